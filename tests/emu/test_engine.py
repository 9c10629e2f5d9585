"""The cycle loop: asynchrony in time, stall accounting, determinism, and stepping against jumping."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import emu
import programs
from emu.machine import load_machine
from emu.result import validate
from emu.solve import solve
from emu.stalls import REASONS, Reason
from programs.tensormap import TensorMap

# ---- asynchrony: the same read, a little later each time -------------------------------------------------
# `body` starts an asynchronous operation and waits `%delay` cycles (a sled of NOPs, one bit of the delay at a
# time); `probe` then looks or interferes.  %r90, %r91: clock after the start and at the probe; %r92: what was seen.

PREPARE = ".for k in (0, bits) { and.b32 %r95, %delay, 1 << k; setp.ne.u32 %q{k}, %r95, 0; }"
DELAY = ".for k in (0, bits) { @!%q{k} bra OVER{k}; .for n in (0, 1 << k) { griddepcontrol.wait; } OVER{k}: }"
LOOP = """.reg .b32 %delay; .reg .pred %q<12>; .let bits = BITS
    mov.u32 %r0, %tid.x; mul.wide.u32 %d30, %r0, 4; add.u64 %d31, %out, %d30; mov.u32 %delay, 0; mov.u32 %r97, 0; mov.u64 %d29, %out;
    SETUP
    AGAIN: PREPARE START mov.u32 %r90, %clock; DELAY PROBE
    FINISH
    setp.ne.u32 %p9, %r0, 0; @%p9 bra NEXT; sub.u32 %r91, %r91, %r90; st.global.v2.u32 [%d29], {%r91, %r92};
    NEXT: bar.sync 0; add.u64 %d29, %d29, 8; xor.b32 %r97, %r97, 1; add.u32 %delay, %delay, 1; setp.lt.u32 %p9, %delay, 1 << bits; @%p9 bra AGAIN;"""


def sweep(
    ptx: Any,
    bits: int,
    setup: str,
    start: str,
    probe: str,
    finish: str,
    params: str = "",
    args: Any = (),
    **options: Any,
) -> Any:
    """(cycles after the start, value seen) for every delay, in order of time; times cover every cycle."""
    out = np.zeros((1 << bits, 2), np.uint32)
    parts = {
        "BITS": str(bits),
        "SETUP": setup,
        "START": start,
        "PROBE": probe,
        "FINISH": finish,
        "PREPARE": PREPARE,
        "DELAY": DELAY,
    }
    body = re.sub("|".join(parts), lambda word: parts[word.group()], LOOP)
    result = ptx.run(body, f"u64 out{', ' if params else ''}{params}", [out, *args], **options)
    assert result.exit_code() == 0, result
    out = out[2:]  # the first turns find cold lines
    order = np.argsort(out[:, 0], kind="stable")
    return out[order, 0].astype(int), out[order, 1].astype(int)


def flips(times: np.ndarray, seen: np.ndarray, before: int, after: int) -> int:
    """The time of the single change from one value to the other; the sweep looked at the cycles around it."""
    changes = np.flatnonzero(np.diff(seen))
    assert len(changes) == 1 and seen[0] == before and seen[-1] == after, (changes, seen[0], seen[-1])
    k = int(changes[0])
    assert times[k + 1] - times[k] <= 8
    return int(times[k + 1])


TMA = ".shared .align 128 .b8 box[4096]; .shared .align 8 .b64 bar;"
INIT = "mov.u32 %r1, box; mov.u32 %r2, 0; setp.ne.u32 %p1, %r0, 0; @%p1 bra GO; mbarrier.init.shared.b64 [bar], 1; GO: bar.sync 0;"


def test_a_bulk_load_appears_at_its_end(ptx: Any) -> None:
    """ld.shared of the destination: old until the copy completes, new afterwards; never before the barrier says so."""
    array = np.full((8, 128), 7, np.uint32)
    times, seen = sweep(
        ptx, 10, INIT,
        "mov.u32 %r5, 3; st.shared.u32 [%r1 + 4092], %r5; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 4096; tma.load.2d [%r1], [%map, {%r2, %r2}], [bar];",
        "mbarrier.test_wait.parity.shared.b64 %p2, [bar], %r97; ld.shared.u32 %r92, [%r1 + 4092]; mov.u32 %r91, %clock; @%p2 add.u32 %r92, %r92, 1000;",
        "mbarrier.wait [bar], %r97;",
        "tensormap map", [TensorMap(array, (128, 8), 0)], shared=TMA, block=1,
    )  # fmt: skip
    done = flips(times, np.minimum(seen % 1000, 7), 3, 7)
    assert not ((seen >= 1000) & (seen % 1000 == 3)).any()
    assert 200 < done < 900


@pytest.mark.parametrize("probe", ["target", "source"])
def test_a_bulk_store_reads_then_writes(ptx: Any, probe: str) -> None:
    """The target changes once, at completion; overwriting the source spoils the copy until the end of its read window."""
    array = np.zeros((8, 128), np.uint32)
    looks = {
        "target": "ld.global.u32 %r92, [%array]; mov.u32 %r91, %clock; cp.async.bulk.wait_group 0;",
        "source": "mov.u32 %r5, 9; st.shared.u32 [%r1], %r5; mov.u32 %r91, %clock; cp.async.bulk.wait_group 0; ld.global.u32 %r92, [%array];",
    }
    times, seen = sweep(
        ptx, 9, INIT,
        "mov.u32 %r5, 3; st.shared.u32 [%r1], %r5; mov.u32 %r5, 0; st.global.u32 [%array], %r5; tma.store.2d [%map, {%r2, %r2}], [%r1]; cp.async.bulk.commit_group;",
        looks[probe], "", "tensormap map, u64 array", [TensorMap(array, (128, 8), 0), array], shared=TMA, block=1,
    )  # fmt: skip
    flips(times, seen, *((0, 3) if probe == "target" else (9, 3)))


MMA = ".shared .align 128 .b8 a[2048]; .shared .align 128 .b8 b[256];"
MMA_SETUP = """shl.b32 %r2, %r0, 4; mov.u32 %r3, a; add.u32 %r3, %r3, %r2; mov.u32 %r4, 0x3C003C00; st.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4};
    mov.u32 %r1, b; setp.lt.u32 %p1, %r0, 16; add.u32 %r5, %r1, %r2; @%p1 st.shared.v4.u32 [%r5], {%r4, %r4, %r4, %r4}; fence.proxy.async.shared::cta; bar.sync 0;
    mov.u32 %r6, a; shr.u32 %r6, %r6, 4; cvt.u64.u32 %d1, %r6; or.b64 %d1, %d1, 0x1000080000; shr.u32 %r6, %r1, 4; cvt.u64.u32 %d2, %r6; or.b64 %d2, %d2, 0x1000080000;
    setp.eq.u32 %p1, %r0, 9999;"""
MMA_START = """mov.u32 %r4, 0x3C003C00; st.shared.u32 [%r1], %r4; .for i in (0, 4) { mov.f32 %f{i}, 0f40A00000; } bar.sync 0; wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f4, %f5, %f6, %f7}, %d1, %d2, %p1, 1, 1, 0, 0;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d1, %d2, %p1, 1, 1, 0, 0; wgmma.commit_group.sync.aligned;"""


@pytest.mark.parametrize("probe", ["result", "operand"])
def test_a_wgmma_reads_its_operands_and_writes_its_result_at_its_end(ptx: Any, probe: str) -> None:
    """D before wait_group is the old register (5) until completion (16); overwriting B spoils it (17) until then."""
    looks = {
        "result": "cvt.rni.u32.f32 %r92, %f0; mov.u32 %r91, %clock; wgmma.wait_group.sync.aligned 0;",
        "operand": "mov.u32 %r5, 0x3C004000; st.shared.u32 [%r1], %r5; mov.u32 %r91, %clock; wgmma.wait_group.sync.aligned 0; cvt.rni.u32.f32 %r92, %f0;",
    }
    times, seen = sweep(ptx, 8, MMA_SETUP, MMA_START, looks[probe], "bar.sync 0;", shared=MMA, block=128)
    done = flips(times, seen, *((5, 16) if probe == "result" else (17, 16)))
    assert 20 < done < 200


# ---- stalls ------------------------------------------------------------------------------------------


def share(result: Any, reason: str, role: str = "main") -> float:
    """Part of the warp-cycles of a run that went to a reason."""
    rows = result.stalls.values() if role == "main" else [result.stalls[role]]
    return sum(row.get(reason, 0) for row in rows) / sum(sum(row.values()) for row in rows)


def dominated(result: Any, **least: float) -> None:
    """Each named reason has at least that share, and all of them together nearly everything."""
    shares = {name: round(share(result, name), 3) for name in REASONS if share(result, name) > 0.005}
    for name, part in least.items():
        assert shares.get(name, 0) >= part, shares
    assert shares.get("misc", 0) <= 0.01


def chain(text: str, count: int = 64) -> str:
    return f"mov.u32 %r50, 0; TURN: .for i in (0, {count}) {{ {text} }} add.u32 %r50, %r50, 1; setp.lt.u32 %p5, %r50, 50; @%p5 bra TURN;"


BARRIERS = ".shared .align 8 .b64 bar; .shared .align 16 .b8 area[4096];"
ONE_LATE = """mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0; setp.ge.u32 %p1, %r0, 384; @%p1 bra LATE;
    {wait} bra DONE; LATE: mov.u32 %r1, %clock; SPIN: mov.u32 %r2, %clock; sub.u32 %r2, %r2, %r1; setp.lt.u32 %p2, %r2, 5000; @%p2 bra SPIN; {arrive} DONE:"""
ARRIVE = "setp.eq.u32 %p2, %r0, 384; @%p2 mbarrier.arrive.shared.b64 _, [bar];"
POLL = "and.b32 %r3, %r0, 31; setp.ne.u32 %p2, %r3, 0; @%p2 bra SKIP; AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0{hint}; @!%p3 bra AGAIN; SKIP: bar.warp.sync -1;"

# What an H200 charged to small kernels of one cause each (Nsight Compute 2025.3): kernel, block, shares at least.
CAUSES: dict[str, tuple[str, int, dict[str, float]]] = {
    "FFMA chain": (chain("fma.rn.f32 %f1, %f1, %f2, %f3;"), 128, {"wait": 0.7, "selected": 0.23}),
    "FFMA, 4 warps a scheduler": (chain(".for k in (0, 4) { fma.rn.f32 %f{10+k}, %f{10+k}, %f2, %f3; }", 16), 512, {"not_selected": 0.55, "selected": 0.2}),
    "MUFU chain": (chain("ex2.approx.ftz.f32 %f1, %f1;"), 128, {"short_scoreboard": 0.4, "wait": 0.15}),
    "MUFU throughput": (chain(".for k in (0, 8) { ex2.approx.ftz.f32 %f{10+k}, %f{10+k}; }", 8), 512, {"mio_throttle": 0.4}),
    "shuffle chain": (chain("shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1;"), 128, {"short_scoreboard": 0.75}),
    "LDS chain": ("mov.u32 %r1, area; st.shared.u32 [%r1], %r1;" + chain("ld.shared.u32 %r1, [%r1];"), 32, {"short_scoreboard": 0.6}),
    "pointer chase": ("st.global.u64 [%out], %out; mov.u64 %d1, %out;" + chain("ld.global.cg.u64 %d1, [%d1];", 8), 32, {"long_scoreboard": 0.85}),
    "pointer chase in L1": ("st.global.u64 [%out], %out; mov.u64 %d1, %out;" + chain("ld.global.u64 %d1, [%d1];"), 32, {"long_scoreboard": 0.6}),
    "named barrier": (ONE_LATE.format(wait="bar.sync 1, 416;", arrive="bar.sync 1, 416;"), 416, {"barrier": 0.85}),
    "bar.arrive": (ONE_LATE.format(wait="bar.sync 1, 416;", arrive="bar.arrive 1, 416;"), 416, {"barrier": 0.85}),
    "mbarrier, whole warp": (ONE_LATE.format(wait="mbarrier.wait [bar], 0;", arrive=ARRIVE), 416, {"long_scoreboard": 0.85}),
    "mbarrier, one lane": (ONE_LATE.format(wait=POLL.format(hint=""), arrive=ARRIVE), 416, {"branch_resolving": 0.5}),
    "mbarrier, one lane, hint": (ONE_LATE.format(wait=POLL.format(hint=", 10000000"), arrive=ARRIVE), 416, {"sleeping": 0.7}),
    "nanosleep": ("nanosleep.u32 10000;", 32, {"sleeping": 0.9}),
    "fence.gpu": (chain("fence.acq_rel.gpu;", 8), 32, {"membar": 0.9}),
    "fence.proxy.async": (chain("fence.proxy.async;", 8), 32, {"membar": 0.9}),
    "half-rate ALU": (chain(".for k in (0, 8) { max.f32 %f{10+k}, %f{10+k}, %f2; }", 8), 512, {"math_pipe_throttle": 0.3, "not_selected": 0.3}),
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_causes_have_their_reasons(ptx: Any, cause: str) -> None:
    body, block, least = CAUSES[cause]
    result = ptx.run(body, "u64 out", [np.zeros(64, np.uint64)], block=block, shared=BARRIERS)
    assert not result.findings and result.deadlock is None and validate(result) == []
    dominated(result, **least)


WGMMA = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f0..%f63}, %d1, %d2, 1, 1, 1, 0, 0;"
WGMMA_SHARED = ".shared .align 1024 .b8 a[2048]; .shared .align 1024 .b8 b[8192];"
DESCRIPTORS = "mov.u32 %r6, a; shr.u32 %r6, %r6, 4; cvt.u64.u32 %d1, %r6; or.b64 %d1, %d1, 0x1000080000; add.u64 %d2, %d1, 128; mov.u32 %r0, %tid.x;"


@pytest.mark.parametrize(
    ("body", "least"),
    [
        (chain(f"wgmma.fence.sync.aligned; {WGMMA * 8} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;", 1), {"barrier": 0.5}),
        (f"wgmma.fence.sync.aligned; .for k in (0, 128) {{ {WGMMA} }} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;", {"mio_throttle": 0.4}),
        ("setp.ge.u32 %p1, %r0, 96; @%p1 nanosleep.u32 5000; wgmma.fence.sync.aligned;", {"gmma": 0.6, "sleeping": 0.2}),
    ],
    ids=["wait_group", "queue", "fence"],
)  # fmt: skip
def test_causes_of_wgmma(ptx: Any, body: str, least: dict[str, float]) -> None:
    result = ptx.run(DESCRIPTORS + body, block=128, shared=WGMMA_SHARED)
    assert not result.findings and validate(result) == []
    dominated(result, **least)


PROGRAMS = [
    ("fa3", {}, {"seqlen": 300, "seqlen_k": 200, "heads": 2}),
    ("fa3", {"SPECIALIZE": 0}, {"seqlen": 128, "seqlen_k": 200, "heads": 1}),
    ("gemm", {}, {"m": 300, "n": 520, "k": 200}),
    ("softmax", {}, {"rows": 9, "cols": 1412}),
    ("vector_add", {}, {"n": 5000}),
]  # fmt: skip


def shipped(name: str, defines: dict[str, Any], options: dict[str, Any]) -> Any:
    return solve(
        programs.find(name).from_options(defines, **options),
        load_machine("h200", ("chip.sms=2",)),
        max_cycles=1_000_000,
    )


@pytest.mark.parametrize(("name", "defines", "options"), PROGRAMS, ids=str)
def test_results_of_programs_are_consistent_and_repeatable(
    name: str, defines: dict[str, Any], options: dict[str, Any]
) -> None:
    first, second = shipped(name, defines, options), shipped(name, defines, options)
    assert validate(first) == [] and share(first, "misc") <= 0.01
    selected = sum(row["selected"] for row in first.stalls.values())
    assert selected == first.issue.selected == first.warp_instructions
    lines = sum(sum(line.stalls.values()) for line in first.lines)
    assert lines == sum(sum(row.values()) for row in first.stalls.values())
    for field in ("cycles", "stalls", "issue", "lines", "instruction_mix", "pipes"):
        assert getattr(first, field) == getattr(second, field)
    assert all(np.array_equal(first.outputs[k], second.outputs[k], equal_nan=True) for k in first.outputs)


# ---- stepping ------------------------------------------------------------------------------------------


Work = tuple[Any, list[Any], Any, Any, int]  # kernel, arguments, block, grid, dynamic shared memory


def mixed(ptx: Any) -> Work:
    """Divergence, barriers, shuffles, conflicts, global memory, sleeping and mbarriers in 7 warps."""
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, area; and.b32 %r2, %r0, 31; mad.lo.u32 %r3, %r2, 128, %r1; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %out, %d1; mov.u32 %r4, 0;
        setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [bar], 224; bar.sync 0;
        AGAIN: and.b32 %r5, %r0, 7; mov.u32 %r6, 0; TRIP: add.u32 %r6, %r6, 1; st.shared.u32 [%r3], %r6; setp.lt.u32 %p2, %r6, %r5; @%p2 bra TRIP;
        shfl.sync.bfly.b32 %r7, %r6, 3, 31, -1; ld.shared.u32 %r8, [%r3]; ld.global.u32 %r9, [%d1]; cvt.rn.f32.u32 %f1, %r9; ex2.approx.ftz.f32 %f1, %f1; cvt.rzi.u32.f32 %r10, %f1;
        mad.lo.u32 %r9, %r7, 5, %r9; xor.b32 %r9, %r9, %r8; add.u32 %r9, %r9, %r10; st.global.u32 [%d1], %r9; mbarrier.arrive.shared.b64 _, [bar]; shr.u32 %r11, %r0, 5; mul.lo.u32 %r11, %r11, 40; nanosleep.u32 %r11;
        and.b32 %r12, %r4, 1; mbarrier.wait [bar], %r12; bar.sync 2; add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 5; @%p2 bra AGAIN;"""
    return ptx.assemble(body, "u64 out", BARRIERS), [np.arange(224, dtype=np.uint32)], 224, 1, 0


def problem(name: str, defines: dict[str, Any], **options: Any) -> Callable[[Any], Work]:
    def make(ptx: Any) -> Work:
        found = programs.find(name).from_options(defines, **options)
        start = found.launch(found.make_inputs(0), 1)
        kernel = emu.load(found.kernel_path, defines=found.defines)
        return kernel, list(start.args), start.block, start.grid, start.shared_bytes

    return make


WORK: dict[str, Callable[[Any], Work]] = {
    "mixed": mixed,
    "fa3": problem("fa3", {"KV_TILE": 48}, seqlen=130, seqlen_k=100, heads=1),
    "fa2": problem("fa2", {}, seqlen=100, seqlen_k=130, heads=1, head_dim=64),
    "gemm": problem("gemm", {"TILE_N": 64, "STAGES": 2}, m=140, n=72, k=136),
    "softmax": problem("softmax", {}, rows=23, cols=260),
}


@pytest.mark.parametrize("name", ["mixed", "fa3", "gemm"])
def test_every_cycle_of_a_warp_has_one_reason(ptx: Any, name: str) -> None:
    """From launch to exit, per warp; the sums over instructions are the sums over warps; issue slots are used or idle."""
    sm = ptx.step(*WORK[name](ptx))
    launched = sm.warps["order"] > 0
    used, stalls = sm.warps[launched], sm.warp_stalls[launched]
    assert len(used) == sm.sm["launched"][0]
    resident = used["last"] - used["born"] + 1
    assert (stalls.sum(axis=1) == resident).all()
    assert (stalls.sum(axis=0) == sm.stalls.sum(axis=0)).all()
    assert sm.stalls[:, Reason.MISC].sum() <= 0.01 * resident.sum()


COUNTERS = [
    "status", "now", "launched", "finished_ctas", "tensor_cycles", "tma_bytes", "store_bytes", "hbm_bytes", "l2_bytes",
    "smem_waves", "mma_count",
]  # fmt: skip


def outcome(sm: Any, args: list[Any]) -> dict[str, bytes]:
    """Everything that a run leaves: values, cycles, stalls."""
    found = {
        name: getattr(sm, name).tobytes()
        for name in ("windows", "predicates", "shared", "mbars", "stalls", "warp_stalls")
    }
    found |= {name: sm.sm[name].tobytes() for name in COUNTERS}
    found |= {f"warp {name}": sm.warps[name].tobytes() for name in ("last", "born", "exited")}
    arrays = [arg.array if isinstance(arg, TensorMap) else arg for arg in args]
    return found | {f"argument {k}": array.tobytes() for k, array in enumerate(arrays)}


@pytest.mark.parametrize("name", WORK)
def test_stepping_equals_jumping(ptx: Any, quantum: Callable[[int], None], name: str) -> None:
    """Whatever the number of cycles after which the core is left and entered again."""
    results = {}
    for cycles in (1 << 22, 1000, 7, 1):
        quantum(cycles)
        kernel, args, *rest = WORK[name](ptx)
        results[cycles] = outcome(ptx.step(kernel, args, *rest), args)
    whole = results.pop(1 << 22)
    for cycles, other in results.items():
        assert [key for key in whole if whole[key] != other[key]] == [], cycles
