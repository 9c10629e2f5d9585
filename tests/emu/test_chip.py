"""The chip: the order of memory, contention, the grid over SMs, threads."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

import emu
import emu.chip
import programs
from emu.config import configure
from emu.machine import load_machine
from emu.result import validate
from emu.solve import solve

INDEX = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 32, %r0; mul.wide.u32 %d0, %r2, 4; add.u64 %d1, %out, %d0;"


def machine(sms: int, *overrides: str) -> Any:
    return load_machine("h200", (f"chip.sms={sms}", *overrides))


def launch(ptx: Any, body: str, params: str, args: Any, sms: int, grid: Any, **options: Any) -> Any:
    result = ptx.run(body, params, args, machine=options.pop("machine", machine(sms)), grid=grid, **options)
    assert result.exit_code() == 0 and validate(result) == [], result
    return result


# ---- order of memory -----------------------------------------------------------------------------------


def test_a_flag_crosses_sms(ptx: Any) -> None:
    """CTA 0 writes data, fences, sets a flag; CTA 1 on another SM spins on the flag and then sees the data (PTX ISA 8)."""
    body = (
        INDEX
        + """setp.eq.u32 %p1, %r1, 1; @%p1 bra READER;
        nanosleep.u32 2000; mov.u32 %r5, 77; st.global.u32 [%data], %r5; fence.acq_rel.gpu; mov.u32 %r6, 1; st.global.u32 [%flag], %r6; bra DONE;
        READER: ld.global.u32 %r6, [%flag]; setp.eq.u32 %p2, %r6, 0; @%p2 bra READER; ld.global.u32 %r7, [%data]; st.global.u32 [%d1], %r7; DONE:"""
    )
    out, data, flag = np.zeros(64, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
    launch(ptx, body, "u64 out, u64 data, u64 flag", [out, data, flag], 2, 2)
    assert (out[32:] == 77).all()


@pytest.mark.parametrize("stride", [1, 3])
def test_a_warp_sees_its_own_stores(ptx: Any, stride: int) -> None:
    """Store and load of one address back to back, consecutive lanes or not, wide and narrow (program order, PTX ISA 8.8)."""
    body = f"""mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, {16 * stride}; add.u64 %d1, %out, %d0; .for k in (0, 4) {{ add.u32 %r{{10+k}}, %r0, {{100*k}}; }}
        st.global.v4.u32 [%d1], {{%r10, %r11, %r12, %r13}}; ld.global.v4.u32 {{%r14, %r15, %r16, %r17}}, [%d1];
        add.u32 %r14, %r14, %r17; st.global.u32 [%d1], %r14; mov.u32 %r14, 5; st.global.u8 [%d1 + 4], %r14; ld.global.u32 %r15, [%d1 + 4]; st.global.u32 [%d1 + 8], %r15;"""
    out = np.zeros((32 * stride, 4), np.uint32)
    launch(ptx, body.replace("{100*k}", "100*k"), "u64 out", [out], 1, 1)
    lane = np.arange(32)
    assert np.array_equal(out[::stride, 0], 2 * lane + 300) and np.array_equal(
        out[::stride, 2], (lane + 100 & ~0xFF) | 5
    )


def test_stores_of_one_cycle_are_in_the_order_of_sms(ptx: Any) -> None:
    """Every CTA stores its number to one word at the same cycle: the last SM's stays."""
    out = np.zeros(32, np.uint32)
    launch(ptx, "mov.u32 %r1, %smid; st.global.u32 [%out], %r1;", "u64 out", [out], 8, 8)
    assert out[0] == 7


# ---- the grid ------------------------------------------------------------------------------------------

LONG = """setp.ne.u32 %p1, %r1, 0; @%p1 bra SHORT; nanosleep.u32 20000; SHORT: mov.u32 %r4, %smid; st.global.u32 [%d1], %r4;"""


def test_ctas_start_breadth_first_and_free_slots_take_the_next(ptx: Any) -> None:
    """9 CTAs on 2 SMs with one slot each: CTA 0 is long, so SM 1 takes all others (dynamic, not CTA mod SMs)."""
    out = np.zeros(9 * 32, np.uint32)
    result = launch(ptx, INDEX + LONG, "u64 out", [out], 2, 9, shared_bytes=200_000)
    assert out[::32].tolist() == [0] + [1] * 8
    assert result.cycles > 30_000


@pytest.mark.parametrize("ctas", [1, 2, 5, 16, 17])
def test_every_cta_runs_once(ptx: Any, ctas: int) -> None:
    out = np.zeros(ctas * 32, np.uint32)
    launch(
        ptx,
        INDEX + "ld.global.u32 %r4, [%d1]; add.u32 %r4, %r4, 1; st.global.u32 [%d1], %r4;",
        "u64 out",
        [out],
        2,
        ctas,
    )
    assert (out == 1).all()


def test_waves(ptx: Any) -> None:
    """Six equal CTAs on four SMs take as long as eight, which are handed out a cycle apart; five times four take five waves."""
    cycles = {}
    for ctas in (4, 6, 8, 20):
        out = np.zeros(ctas * 32, np.uint32)
        cycles[ctas] = launch(
            ptx,
            INDEX + "nanosleep.u32 3000; st.global.u32 [%d1], %r0;",
            "u64 out",
            [out],
            4,
            ctas,
            shared_bytes=200_000,
        ).cycles
    assert cycles[8] - cycles[6] == 2 and 1.9 < cycles[8] / cycles[4] < 2.2 and 4.7 < cycles[20] / cycles[4] < 5.4


def starts(ptx: Any, sms: int, ctas: int, warps: int) -> np.ndarray:
    """The first clock of every warp, [CTAs, warps]."""
    out = np.zeros((ctas, warps, 32), np.uint64)
    index = "mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u64 %d3, %clock64; "
    index += f"mad.lo.u32 %r2, %r1, {32 * warps}, %r0; mul.wide.u32 %d0, %r2, 8; add.u64 %d1, %out, %d0; "
    launch(ptx, index + "st.global.u64 [%d1], %d3;", "u64 out", [out], sms, ctas, block=32 * warps)
    return out[:, :, 0].astype(np.int64)


@pytest.mark.parametrize(("warps", "interval"), [(1, 24), (4, 27), (8, 31), (32, 98)])
def test_ctas_and_warps_start_one_after_the_other(ptx: Any, warps: int, interval: int) -> None:
    """Intervals on an H200 (tools/calibrate/measured.csv, cta_start_interval); a warp starts 2 cycles after the one before."""
    at = starts(ptx, 1, 2, warps)
    assert np.abs(np.diff(at[0]) - 2).max(initial=0) <= 1 or warps > 8
    assert at[1, 0] - at[0, 0] == pytest.approx(interval, rel=0.05)


def test_free_slots_get_one_cta_a_cycle(ptx: Any) -> None:
    """64 SMs of 32 slots whose CTAs end at once: all of them together start one a cycle (cta_interval: 132 on 132 SMs)."""
    at = np.sort(starts(ptx, 64, 64 * 64, 1)[64 * 32 :, 0])
    assert np.diff(at).mean() == pytest.approx(1, rel=0.05)


# ---- contention ----------------------------------------------------------------------------------------

STREAM = (
    INDEX
    + """mul.wide.u32 %d0, %r0, 16; mul.wide.u32 %d2, %r1, %bytes; add.u64 %d1, %data, %d0; add.u64 %d1, %d1, %d2; mov.u32 %r3, 0;
    TURN: .for k in (0, 8) { ld.global.v4.u32 {%r{10+4*k}, %r{11+4*k}, %r{12+4*k}, %r{13+4*k}}, [%d1 + 512*8*k]; }
    .for k in (0, 32) { xor.b32 %r9, %r9, %r{10+k}; } add.u64 %d1, %d1, 32768; add.u32 %r3, %r3, 32768; setp.lt.u32 %p1, %r3, %bytes; @%p1 bra TURN;
    mad.lo.u32 %r2, %r1, 256, %r0; mul.wide.u32 %d0, %r2, 4; add.u64 %d1, %out, %d0; st.global.u32 [%d1], %r9;"""
)


def rate(ptx: Any, sms: int, warm: bool, shared: bool = False) -> float:
    """Bytes a cycle and SM that CTAs of 256 threads read, by the difference of 128 and 256 KB each."""
    short, long = (duration(ptx, sms, each, warm, shared) for each in (1 << 17, 1 << 18))
    return (1 << 17) / (long - short)


def duration(ptx: Any, sms: int, each: int, warm: bool, shared: bool) -> int:
    data = np.zeros(each * (1 if shared else sms) // 4, np.uint32)
    body = STREAM.replace("mul.wide.u32 %d2, %r1, %bytes", "mov.u64 %d2, 0") if shared else STREAM
    out = np.zeros(sms * 256, np.uint32)
    result = launch(ptx, body, "u64 out, u64 data, u32 bytes", [out, data, each], 132, sms, block=256, warm=warm)
    return int(result.cycles)


def test_sms_share_l2_and_memory(ptx: Any) -> None:
    """The rates of the H200 (ldg128_throughput, hbm_read_bandwidth): alone, all with own data, all with the same, from HBM."""
    alone, own, same, cold = (
        rate(ptx, 1, True),
        rate(ptx, 132, True),
        rate(ptx, 132, True, shared=True),
        rate(ptx, 132, False),
    )
    assert (
        alone > 60
        and own == pytest.approx(35.8, rel=0.06)
        and same > 1.5 * own
        and cold == pytest.approx(17.3, rel=0.06)
    )


def test_l2_forgets(ptx: Any) -> None:
    """An array that was filled longer ago than L2 holds comes from memory again; one that fits does not."""
    counts = {}
    for capacity in (1 << 20, 1 << 17):
        data, out = np.zeros(1 << 17, np.uint32), np.zeros(256, np.uint32)
        small = machine(1, f"unit.l2.capacity_b={capacity}")
        head, tail = STREAM.split("mov.u32 %r3, 0;")
        loop, end = tail.split("mad.lo.u32")
        again = f"{head} mov.u32 %r8, 0; mov.u64 %d3, %d1; ONCE: mov.u64 %d1, %d3; mov.u32 %r3, 0; {loop} add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, 2; @%p2 bra ONCE; mad.lo.u32{end}"
        counts[capacity] = launch(
            ptx, again, "u64 out, u64 data, u32 bytes", [out, data, 1 << 19], 1, 1, block=256, machine=small
        ).cycles
    assert counts[1 << 17] > 1.2 * counts[1 << 20]


ROUNDS = """mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, {apart}; add.u64 %d1, %data, %d0; mov.u32 %r8, 0;
    ROUND: mov.u64 %d2, %d1; mov.u32 %r3, 0;
    PIECE: {access} add.u64 %d2, %d2, {256 * apart}; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %pieces; @%p1 bra PIECE;
    add.u32 %r8, %r8, 1; setp.lt.u32 %p2, %r8, %rounds; @%p2 bra ROUND;"""
LOAD, STORE = "ld.global.u32 %r5, [%d2]; add.u32 %r6, %r6, %r5;", "st.global.u32 [%d2], %r6;"


def a_round(ptx: Any, access: str, size: int, apart: int, *overrides: str) -> float:
    """Cycles of a later round over `size` bytes by one CTA, a word every `apart` bytes, with 128 KB of L2."""
    body = ROUNDS.replace("{apart}", str(apart)).replace("{256 * apart}", str(256 * apart)).replace("{access}", access)
    data, pieces = np.zeros(size // 4, np.uint32), np.uint32(size // 256 // apart)
    small = machine(1, f"unit.l2.capacity_b={1 << 17}", "unit.l2.held_share=1", *overrides)
    spans = [
        launch(
            ptx,
            body,
            "u64 data, u32 pieces, u32 rounds",
            [data, pieces, np.uint32(n)],
            1,
            1,
            block=256,
            machine=small,
            max_cycles=1 << 24,
        )
        for n in (2, 4)
    ]
    return (spans[1].cycles - spans[0].cycles) / 2


def test_written_lines_go_back_to_memory(ptx: Any) -> None:
    """Stores wait for HBM when L2 has no room for their lines, and not when it has; a line goes back once, however often it was written."""
    slow = ("unit.hbm.gb_per_s=20", "unit.hbm.mixed_share=1")
    assert a_round(ptx, STORE, 1 << 16, 4, *slow) == a_round(ptx, STORE, 1 << 16, 4)
    written = (1 << 18) * 1980e6 / 20e9
    assert a_round(ptx, STORE, 1 << 18, 4, *slow) == pytest.approx(written, rel=0.02)
    assert a_round(ptx, STORE + STORE, 1 << 18, 4, *slow) == pytest.approx(written, rel=0.02)


def test_reads_and_writes_share_memory(ptx: Any) -> None:
    """A round that reads and rewrites takes as long as one that reads and one that writes, and longer where the two hinder each other."""
    slow, apart, hindered = "unit.hbm.gb_per_s=40", "unit.hbm.mixed_share=1", "unit.hbm.mixed_share=0.5"
    for access, share, times in (
        (LOAD, hindered, 1),
        (STORE, hindered, 1),
        (LOAD + STORE, apart, 2),
        (LOAD + STORE, hindered, 4),
    ):
        cycles = a_round(ptx, access, 1 << 22, 128, slow, share)
        assert cycles == pytest.approx(times * (1 << 22) * 1980e6 / 40e9, rel=0.05)


def test_l2_takes_so_many_requests(ptx: Any) -> None:
    """A request of a sector occupies L2 as long as one of a line; a store passes a slice more for its far share."""
    load = LOAD.replace("ld.global", "ld.global.cg")  # past the L1
    few = ("unit.l2.requests_per_cy=0.005", "unit.l2.far_share=0.5", "unit.l2.knee_cy=0")
    side, apart = a_round(ptx, load, 1 << 16, 4, *few), a_round(ptx, load, 1 << 16, 128, *few)
    assert side == pytest.approx((1 << 16) / 128 / 0.005, rel=0.05) and apart == pytest.approx(side, rel=0.05)
    assert a_round(ptx, STORE, 1 << 16, 4, *few) == pytest.approx(1.5 * side, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "count", "cycles"), [("ld", 8, 183), ("ld", 16, 435), ("ld", 32, 962), ("st", 16, 519)]
)
def test_shared_memory_comes_behind_global(ptx: Any, kind: str, count: int, cycles: int) -> None:
    """Four warps with loads or stores of 8 rows of 32 bytes, then a load of shared memory: clocks of the slowest warp on an H200."""
    access = "ld.global.v2.u32 {%r{10+2*k}, %r{11+2*k}}, AT;" if kind == "ld" else "st.global.v2.u32 AT, {%r10, %r11};"
    body = f""".shared .u32 word; mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 2; mad.lo.u32 %r2, %r1, 512, 0; and.b32 %r3, %r0, 3; mad.lo.u32 %r2, %r3, 8, %r2;
        cvt.u64.u32 %d0, %r2; add.u64 %d1, %data, %d0; mov.u32 %r4, word; bar.sync 0; mov.u64 %d2, %clock64;
        .for k in (0, {count}) {{ {access.replace("AT", "[%d1 + 32*(k%16) + 32768*(k/16)]")} }}
        ld.shared.u32 %r5, [%r4]; setp.eq.u32 %p1, %r5, 77; @%p1 bra NEVER; mov.u64 %d3, %clock64; NEVER:
        .for k in (0, {2 * count if kind == "ld" else 0}) {{ xor.b32 %r6, %r6, %r{{10+k}}; }} st.global.u32 [%data], %r6;
        sub.u64 %d3, %d3, %d2; mul.wide.u32 %d4, %r0, 8; add.u64 %d4, %out, %d4; st.global.u64 [%d4], %d3;"""
    out, data = np.zeros(128, np.uint64), np.zeros(1 << 16, np.uint32)
    launch(ptx, body, "u64 out, u64 data", [out, data], 1, 1, block=128, warm=True)
    assert int(out.max()) == pytest.approx(cycles, rel=0.15)


# ---- threads -------------------------------------------------------------------------------------------

WORK = [
    ("fa3", {"seqlen": 300, "seqlen_k": 200, "heads": 3}),
    ("gemm", {"m": 300, "n": 520, "k": 200}),
    ("softmax", {"rows": 70, "cols": 1412}),
    ("vector_add", {"n": 50_000}),
]


@pytest.mark.parametrize(("name", "options"), WORK, ids=[w[0] for w in WORK])
def test_threads_change_nothing(name: str, options: dict[str, Any]) -> None:
    """Outputs and every number of the result but host times, on 1, 2 and 3 threads."""
    seen = set()
    for threads in (1, 2, 3):
        problem = programs.find(name).from_options({}, **options)
        result = solve(problem, machine(7), threads=threads)
        outputs = hashlib.sha256(b"".join(result.outputs[k].tobytes() for k in problem.outputs)).hexdigest()
        result.host_seconds = result.warp_instructions_per_second = 0.0
        seen.add((outputs, result.to_json()))
    assert len(seen) == 1


def test_rounds_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at the chip after every round, or when a launch is watched, changes nothing."""
    cycles, seen = set(), []
    for rounds, watch in ((1, None), (1 << 20, None), (3, lambda ended, total: seen.append((ended, total)))):
        monkeypatch.setattr(emu.chip, "ROUNDS", rounds)
        cycles.add(solve(programs.find("vector_add").from_options({}, n=50_000), machine(3), progress=watch).cycles)
    assert len(cycles) == 1 and seen[-1] == (196, 196)


def test_failures_on_one_of_many(ptx: Any) -> None:
    """A trap on SM 2, a deadlock on SM 1: the report names the CTA, on one thread and on two."""
    for body, code in (
        ("setp.eq.u32 %p1, %r1, 2; @%p1 trap;", 6),
        ("setp.ne.u32 %p1, %r1, 1; setp.ge.or.u32 %p1, %r0, 32, %p1; @%p1 bra ON; bar.sync 1, 64; ON:", 3),
    ):
        for threads in (1, 2):
            result = ptx.run(
                INDEX + body + "st.global.u32 [%d1], %r1;",
                "u64 out",
                [np.zeros(256, np.uint32)],
                block=64,
                machine=machine(4),
                grid=4,
                threads=threads,
            )
            assert result.exit_code() == code, result
            if result.deadlock:
                assert [w.cta for w in result.deadlock.warps] == [1]


def test_no_answer_takes_effect_early() -> None:
    """What SMs run ahead is at most the least latency of anything that the chip answers."""
    C, m = configure(machine(1))[0], machine(1)
    assert 1 <= C["answer_cy"] <= min(m.value("unit.l2.hit_cy"), C["tma_latency_cy"], m.value("sm.turnaround_cy"))


def test_threads_must_be_positive(ptx: Any) -> None:
    with pytest.raises(emu.LaunchError, match="threads"):
        ptx.run("", threads=0)
