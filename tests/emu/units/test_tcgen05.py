"""tcgen05.mma and commit as programs: operands and places, order, time, faults, waiting."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.machine import load_machine
from isa.descriptors import ELEMENTS, KINDS, instruction_descriptor, matrix_descriptor
from tests.emu.units.test_tcgen05_math import D_F16, D_F32, D_S32, Case, Machine

TEXT = """
.version 9.0
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry test(.param .u64 shared, .param .u64 tensor, .param .u64 out)
{{
    .reg .pred %p<8>; .reg .b32 %r<100>; .reg .b64 %d<20>;
    .shared .align 16 .b32 slot[4]; .shared .align 8 .b64 bar[4];
    ld.param.u64 %d1, [shared]; ld.param.u64 %d2, [tensor]; ld.param.u64 %d3, [out];
    mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r1, 0;
    mul.wide.u32 %d4, %r1, 4; add.s64 %d1, %d1, %d4; add.s64 %d2, %d2, %d4; add.s64 %d3, %d3, %d4;
    mov.u32 %r3, tile; mad.lo.u32 %r4, %r1, 4, %r3; add.u32 %r5, %r3, {shared};
FILL:
    ld.global.u32 %r6, [%d1]; st.shared.u32 [%r4], %r6; add.s64 %d1, %d1, 512; add.u32 %r4, %r4, 512;
    setp.lt.u32 %p3, %r4, %r5; @%p3 bra FILL;
    @%p2 mbarrier.init.shared.b64 [bar], 1; @%p2 mbarrier.init.shared.b64 [bar + 8], 1;
    @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
    fence.proxy.async.shared::cta; bar.sync 0;
    shl.b32 %r7, %r2, 21; mov.u32 %r8, 0;  // the warp's lanes
STORE:
    {fetch}
    add.u32 %r9, %r7, %r8; tcgen05.st.sync.aligned.32x32b.x8.b32 [%r9], {{{registers}}};
    add.s64 %d2, %d2, 4096; add.u32 %r8, %r8, 8; setp.lt.u32 %p3, %r8, 512; @%p3 bra STORE;
    tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
    {body}
    bar.sync 0;
    mov.u32 %r8, 0;
LOAD:
    add.u32 %r9, %r7, %r8; tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{registers}}}, [%r9]; tcgen05.wait::ld.sync.aligned;
    {show}
    add.s64 %d3, %d3, 4096; add.u32 %r8, %r8, 8; setp.lt.u32 %p3, %r8, 512; @%p3 bra LOAD;
    bar.sync 0;
    @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 512;
    ret;
}}
"""
REGISTERS = ", ".join(f"%r{20 + k}" for k in range(8))
FETCH = " ".join(f"ld.global.u32 %r{20 + k}, [%d2 + {512 * k}];" for k in range(8))
SHOW = " ".join(f"st.global.u32 [%d3 + {512 * k}], %r{20 + k};" for k in range(8))
COMMIT = "@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
BASE = 2048  # where `tile` begins: behind the system's part and the static variables


def run(body: str, shared: Any, tensor: Any, machine: str = "b200", target: str = "sm_100a", **options: Any) -> Any:
    """Tensor Memory behind the body, and the result; the body has %p2 for thread 0 and the mbarriers bar, bar + 8."""
    text = TEXT.format(
        body=body, target=target, shared=shared.nbytes, registers=REGISTERS, fetch=FETCH, show=SHOW,
    )  # fmt: skip
    out = np.zeros((512, 128), np.uint32)
    result = emu.launch(
        emu.load(text=text), machine=load_machine(machine, ("chip.sms=1",)), block=128,
        args=[shared.view(np.uint32), tensor, out], shared_bytes=shared.nbytes, **({"max_cycles": 1_000_000} | options),
    )  # fmt: skip
    return out, result


def address_of_tile() -> int:
    """The shared address of dynamic memory in `TEXT`."""
    text = TEXT.format(body="", target="sm_100a", shared=512, registers=REGISTERS, fetch=FETCH, show=SHOW)
    program = emu.load(text=text).program
    from isa.program import SHARED_BASE

    return -(-(SHARED_BASE + program.shared_static) // 1024) * 1024


def product(case: Case, kind: str, shift: int, guard: str = "@%p2 ", first: int = 0) -> str:
    """The instruction of a case whose shared memory lies `shift` bytes into the CTA's."""
    types = {D_F16: "f16", D_F32: "f32", D_S32: "s32"}
    names = [x.replace("packed", "e2m1") for x in (case.a, case.b)]
    idesc = instruction_descriptor(
        kind, *names, case.m, case.n, d=types[case.d_type], negate_a=bool(case.negate), transpose_a=bool(case.trans_a),
        transpose_b=bool(case.trans_b), saturate=bool(case.saturate), scale_type="ue8m0" if case.ue8m0 else "ue4m3",
        scale_a=case.sfa_id, scale_b=case.sfb_id,
    )  # fmt: skip
    descs = [desc + (shift >> 4) for desc in (case.desc_a, case.desc_b)]
    lane = case.first_lane << 16
    lines = [
        f"mov.u32 %r50, {lane + case.D}; mov.u32 %r51, {lane + case.A}; mov.u32 %r52, {case.SFA}; mov.u32 %r53, {case.SFB};"
    ]
    lines += [f"mov.b64 %d10, {descs[0]:#x}; mov.b64 %d11, {descs[1]:#x}; mov.u32 %r54, {idesc:#x};"]
    lines += [f"mov.u32 %r{60 + k}, {word:#x};" for k, word in enumerate(case.mask)]
    a = "[%r51]" if case.tensor else "%d10"
    ws = ".ws" if case.ws else ""
    size = {0: "", 1: ".block_scale", 2: ".block_scale.block32", 4: ".block_scale.block16"}[case.blocks]
    more = ", [%r52], [%r53]" if case.blocks else ", {%r60, %r61, %r62, %r63}" if any(case.mask) else ""
    scale = f", {case.scale_d}" if case.scale_d else ""
    opcode = f"tcgen05.mma{ws}.cta_group::1.kind::{kind}{size}"
    return "\n".join([*lines, f"{guard}{opcode} [%r50], {a}, %d11, %r54{more}, {case.accumulate}{scale};"])


CASES = [
    (Case(n=128), "f16"),
    (Case("bf16", "bf16", n=256, tensor=1, accumulate=0), "f16"),
    (Case(n=72, trans_a=1, trans_b=1, d_type=D_F16, negate=1, desc_a=matrix_descriptor(0, lbo=8192, sbo=1024)), "f16"),
    (Case(m=64, n=24, first_lane=16, tensor=1, scale_d=3), "f16"),
    (Case(mask=(0xF, 0, 0x80000000, 0)), "f16"),
    (Case("tf32", "tf32", desc_a=matrix_descriptor(0, lbo=4096, sbo=512, swizzle="128B with 32B atoms"), trans_a=1), "tf32"),
    (Case("e2m1", "e5m2", n=40), "f8f6f4"),
    (Case("e3m2", "e2m3", m=64, n=128, ws=1), "f8f6f4"),
    (Case("s8", "u8", d_type=D_S32, saturate=1), "i8"),
    (Case(m=32, n=256, ws=1, tensor=1), "f16"),
    (Case("e4m3", "e2m1", blocks=1, sfa_id=3, sfb_id=1), "mxf8f6f4"),
    (Case("packed", "packed", n=96, blocks=2, sfa_id=2, tensor=1), "mxf4"),
    (Case("packed", "packed", blocks=4, ue8m0=0, accumulate=0), "mxf4nvf4"),
]  # fmt: skip


@pytest.mark.parametrize("case, kind", CASES)
def test_an_instruction_reaches_the_tensor_core(case, kind):
    """What the program finds in Tensor Memory is what the numerics, tested on their own, make of the same operands."""
    machine = Machine(case)
    body = f"{product(case, kind, address_of_tile())}\n{COMMIT} [bar]; mbarrier.wait [bar], 0;"
    out, result = run(body, machine.smem, machine.before)
    assert not result.findings and machine.run() == 0
    np.testing.assert_array_equal(out, machine.tmem)


def test_kinds_and_elements_are_numbered_alike():
    assert KINDS[0] == "f16" and ELEMENTS.index("packed") == 10


# ---- order ---------------------------------------------------------------------------------------------


def test_results_appear_at_completion():
    """A load that does not wait for the commit sees old data; products on the same D follow each other."""
    case = Case(n=64)
    machine, shift = Machine(case), address_of_tile()
    early = f"""{product(Case(n=256), "f16", shift)} {product(case, "f16", shift)}
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r80}}, [%r7 + {case.D}]; tcgen05.wait::ld.sync.aligned;
        {COMMIT} [bar]; mbarrier.wait [bar], 0;
        tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7 + 500], {{%r80}}; tcgen05.wait::st.sync.aligned;"""
    out, result = run(early, machine.smem, machine.before)
    (finding,) = result.findings
    assert finding.rule == "TM204" and "`tcgen05.ld" in finding.message and "is under way" in finding.message
    np.testing.assert_array_equal(out[500], machine.before[case.D])
    twice = "\n".join([product(case, "f16", shift)] * 2) + f"{COMMIT} [bar]; mbarrier.wait [bar], 0;"
    out, result = run(twice, machine.smem, machine.before)
    machine.run()
    machine.run()
    np.testing.assert_array_equal(out, machine.tmem)


def test_operands_are_read_until_completion():
    """Shared memory that is overwritten early spoils the product."""
    case = Case(n=64, accumulate=0)
    machine, shift = Machine(case), address_of_tile()
    spoil = "mov.u32 %r70, tile; mad.lo.u32 %r70, %r1, 128, %r70; @!%p1 st.shared.u32 [%r70], 0; bar.sync 0;"
    body = f"{product(case, 'f16', shift)} {spoil} {COMMIT} [bar]; mbarrier.wait [bar], 0;"
    out, result = run(body, machine.smem, machine.before)
    machine.run()
    assert not result.findings and (out != machine.tmem).any()


def test_every_active_thread_issues_its_own():
    """Four threads of a warp: D = D + 4 A B; one commit of each of two threads."""
    case = Case(n=32)
    machine, shift = Machine(case), address_of_tile()
    body = f"""setp.lt.u32 %p5, %r1, 4; setp.lt.u32 %p6, %r1, 2; @%p2 mbarrier.init.shared.b64 [bar + 16], 2; bar.sync 0;
        {product(case, "f16", shift, "@%p5 ")}
        @%p6 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [bar + 16]; mbarrier.wait [bar + 16], 0;"""
    out, result = run(body, machine.smem, machine.before)
    for _ in range(4):
        machine.run()
    assert not result.findings
    np.testing.assert_array_equal(out, machine.tmem)


def test_a_commit_with_nothing_before_it_arrives():
    machine = Machine(Case())
    out, result = run(f"{COMMIT} [bar]; mbarrier.wait [bar], 0;", machine.smem, machine.before)
    assert not result.findings and np.array_equal(out, machine.before)


def test_chaos_keeps_the_order():
    """Other timing that PTX allows: a program that waits as it should has the same results."""
    case = Case(n=64)
    machine, shift = Machine(case), address_of_tile()
    body = "\n".join([product(case, "f16", shift)] * 3) + f"{COMMIT} [bar]; mbarrier.wait [bar], 0;"
    plain, _ = run(body, machine.smem, machine.before)
    for seed in range(1, 4):
        out, result = run(body, machine.smem, machine.before, chaos=seed)
        assert not result.findings
        np.testing.assert_array_equal(out, plain)


# ---- time ----------------------------------------------------------------------------------------------

# SemiAnalysis, Dissecting Nvidia Blackwell (B200): N -> latency, interval in cycles.
MEASURED = {
    ("SS", 128): {64: (168, 48), 80: (176, 52), 96: (184, 56), 112: (192, 60), 128: (200, 64), 256: (264, 128)},
    ("SS", 64): {64: (152, 32), 128: (184, 64), 256: (248, 128)},
    ("TS", 128): {64: (136, 32), 80: (144, 40), 96: (152, 48), 112: (160, 56), 128: (168, 64), 256: (232, 128)},
    ("TS", 64): {64: (136, 32), 128: (168, 64), 256: (232, 128)},
}
CLOCKS = """
.version 9.0
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry clocks(.param .u64 out, .param .u32 count)
{{
    .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<8>;
    .shared .align 16 .b32 slot[4]; .shared .align 8 .b64 bar;
    ld.param.u64 %d1, [out]; ld.param.u32 %r1, [count];
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
    mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; bar.warp.sync -1;
    mov.u32 %r3, 0; mov.u32 %r4, 256; mov.b64 %d2, {a:#x}; mov.b64 %d3, {b:#x}; mov.u32 %r5, {idesc:#x};
    mov.u32 %r6, %clock;
MORE:
    @%p1 tcgen05.mma.cta_group::1.kind::{kind} [%r3], {operand}, %d3, %r5{scales}, 1;
    sub.u32 %r1, %r1, 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra MORE;
    @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra WAIT;
    mov.u32 %r7, %clock;
    sub.u32 %r7, %r7, %r6; st.global.u32 [%d1], %r7;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 512;
    ret;
}}
"""


def cycles(
    kind: str,
    types: tuple[str, str],
    m: int,
    n: int,
    count: int,
    ts: bool = False,
    machine: str = "b200",
    **options: Any,
) -> int:
    """From the clock before `count` products to the clock behind the wait for their commit."""
    target = "sm_103a" if machine == "b300" else "sm_100a"
    idesc = instruction_descriptor(kind, *types, m, n, d="s32" if kind == "i8" else "f32")
    scaled = kind.startswith("mx")
    text = CLOCKS.format(
        target=target, a=matrix_descriptor(2048, sbo=1024), b=matrix_descriptor(20480, sbo=1024), idesc=idesc,
        kind=f"{kind}.block_scale" if scaled else kind, operand="[%r4]" if ts else "%d2", scales=", [%r4], [%r4]" if scaled else "",
    )  # fmt: skip
    out = np.zeros(1, np.uint32)
    chip = load_machine(machine, ("chip.sms=1", *options.pop("overrides", ())))
    result = emu.launch(emu.load(text=text), machine=chip, block=32, args=[out, count], shared_bytes=65536, **options)
    assert not result.findings, result.findings
    return int(out[0])


@pytest.mark.parametrize("form, m", MEASURED)
def test_measured_latencies_and_intervals(form, m):
    for n, (latency, interval) in MEASURED[form, m].items():
        one, some, more = (cycles("f16", ("bf16", "bf16"), m, n, k, form == "TS") for k in (1, 10, 30))
        assert (one, (more - some) / 20) == (latency, interval), n


@pytest.mark.parametrize(
    "kind, types", [("f8f6f4", ("e4m3", "e4m3")), ("mxf4", ("e2m1", "e2m1")), ("tf32", ("tf32", "tf32"))]
)
def test_every_kind_takes_the_same_time(kind, types):
    assert cycles(kind, types, 128, 128, 1) == 200
    assert cycles(kind, types, 128, 128, 30) - cycles(kind, types, 128, 128, 10) == 20 * 64


def test_a_b300_has_a_least_interval():
    few, more = (cycles("f16", ("f16", "f16"), 128, 64, k, True, "b300") for k in (10, 30))
    assert more - few == 20 * 44


def test_a_full_queue_holds_the_issuing_warp():
    """With a queue of one the products do not overlap: the warp waits (math_pipe_throttle) for the latency of each."""
    body = cycles("f16", ("f16", "f16"), 128, 128, 10, overrides=("unit.tc.queue=1",))
    assert body > 10 * 150 > cycles("f16", ("f16", "f16"), 128, 128, 10)


# ---- faults, waiting -----------------------------------------------------------------------------------

GOOD = Case(n=64)
IDESC = instruction_descriptor("f16", "f16", "f16", 128, 64)


def faulty(change: str, machine: Any = None, case: Case = GOOD, kind: str = "f16") -> Any:
    """The finding of a run in which the product's operands are changed just before it."""
    machine = machine or Machine(case)
    *moves, instruction = product(case, kind, address_of_tile()).split("\n")
    body = "\n".join([*moves, change, instruction, f"{COMMIT} [bar]; mbarrier.wait [bar], 0;"])
    _, result = run(body, machine.smem, machine.before)
    assert result.exit_code() == 6
    (finding,) = [f for f in result.findings if f.severity == "fault"]
    return finding


FAULTS = [
    (f"mov.u32 %r54, {IDESC | 1 << 23:#x};", "TC101", "reserved bits are set"),
    (f"mov.u32 %r54, {IDESC | 4:#x};", "TC101", "sparsity"),
    (f"mov.u32 %r54, {IDESC & ~(31 << 24):#x};", "TC101", "M does not exist"),
    (f"mov.u32 %r54, {IDESC & ~(63 << 17):#x};", "TC101", "N does not exist"),
    (f"mov.u32 %r54, {IDESC | 3 << 7:#x};", "TC101", "type of A"),
    ("and.b64 %d10, %d10, 0xffff3fffffffffff;", "TC102", "version"),
    ("or.b64 %d11, %d11, 0x2000000000000000;", "TC102", "swizzle"),
    ("or.b64 %d11, %d11, 0x0010000000000000;", "TC102", "bit 52"),
    ("mov.b64 %d10, 0x4000404000003fff;", "TC103", "outside shared memory"),
    ("mov.u32 %r50, 0x100000;", "TC104", "lane 0"),
    ("mov.u32 %r50, 460;", "TM102", "64 columns"),
]  # fmt: skip


@pytest.mark.parametrize("change, rule, words", FAULTS)
def test_faults(change, rule, words):
    finding = faulty(change)
    assert finding.rule == rule and words in finding.message and "tcgen05.mma" in finding.message


def test_a_must_lie_where_d_does():
    assert faulty("mov.u32 %r51, 0;", case=Case(m=64, n=64, first_lane=16, tensor=1)).rule == "TC104"


def test_columns_that_are_not_owned():
    """Columns that the CTA has given back: D and A of the product, and at its end D again."""
    machine, shift = Machine(GOOD), address_of_tile()
    free = "@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 512;"
    for body in (
        f"{free} bar.sync 0; {product(GOOD, 'f16', shift)}",
        f"{product(GOOD, 'f16', shift)} {free} bar.sync 0; {COMMIT} [bar]; mbarrier.wait [bar], 0;",
    ):
        _, result = run(body, machine.smem, machine.before)
        assert [f.rule for f in result.findings if f.severity == "fault"] == ["TM101"]


def test_commit_needs_an_mbarrier():
    machine = Machine(GOOD)
    for place, rule in (("[bar + 16]", "MB101"), ("[bar + 4]", "MB102")):
        _, result = run(f"{COMMIT} {place};", machine.smem, machine.before)
        assert result.findings[0].rule == rule
    twice = f"{COMMIT} [bar]; {COMMIT} [bar];"
    _, result = run(
        f"@%p2 mbarrier.init.shared.b64 [bar + 16], 2; @%p2 mbarrier.expect_tx.shared.b64 [bar + 16], 8; {twice}".replace(
            "[bar];", "[bar + 16];"
        )
        + f" {COMMIT} [bar + 16]; bar.sync 0; mbarrier.wait [bar + 16], 0;",
        machine.smem,
        machine.before,
    )
    assert result.findings[0].rule == "MB106"


def test_a_deadlock_names_the_commit_that_would_come():
    """One warp waits for a commit that another one issues only after its own wait: the report says who would deliver."""
    machine = Machine(GOOD)
    body = """setp.ne.u32 %p5, %r2, 1; @%p5 bra OTHERS; mbarrier.wait [bar + 8], 0; setp.eq.u32 %p6, %r1, 32;
        @%p6 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar]; bra.uni READY;
    OTHERS:
        setp.ne.u32 %p5, %r2, 0; @%p5 bra READY; mbarrier.wait [bar], 0; @%p2 mbarrier.arrive.shared.b64 _, [bar + 8];
    READY:"""
    _, result = run(body, machine.smem, machine.before)
    assert result.deadlock is not None and result.exit_code() == 3
    (cause,) = result.deadlock.causes
    assert cause.rule == "MB201" and "warp 0 waits for bar (parity 0), where warp 1 would arrive" in cause.message


def test_silicon_numerics_are_refused():
    machine = Machine(GOOD)
    with pytest.raises(emu.memory_map.LaunchError, match="no Blackwell was measured"):
        run(product(GOOD, "f16", 0), machine.smem, machine.before, numerics="silicon")


# ---- any operands --------------------------------------------------------------------------------------

SKETCH = """
.version 9.0
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry any(.param .u64 a, .param .u64 b, .param .u32 d, .param .u32 idesc, .param .u32 at, .param .u32 sa, .param .u32 sb)
{{
    .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<8>;
    .shared .align 16 .b32 slot[4]; .shared .align 8 .b64 bar;
    ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u32 %r1, [d]; ld.param.u32 %r2, [idesc]; ld.param.u32 %r3, [at];
    ld.param.u32 %r4, [sa]; ld.param.u32 %r5, [sb];
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
    mov.u32 %r6, %tid.x; setp.eq.u32 %p1, %r6, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; bar.warp.sync -1;
    @%p1 tcgen05.mma{ws}.cta_group::1.kind::{kind} [%r1], {operand}, %d2, %r2{more}, 1;
    @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [bar];
    mbarrier.wait [bar], 0;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 512;
    ret;
}}
"""
ONE_SM = load_machine("b200", ("chip.sms=1",))


@functools.cache
def sketch(kind: str, tensor: bool, ws: bool) -> emu.Kernel:
    scaled = kind.startswith("mx")
    name = f"{kind}.block_scale.block16" if kind == "mxf4nvf4" else f"{kind}.block_scale" if scaled else kind
    more = ", [%r4], [%r5]" if scaled else ""
    return emu.load(
        text=SKETCH.format(kind=name, operand="[%r3]" if tensor else "%d1", more=more, ws=".ws" if ws else "")
    )


WORD32, WORD64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
NEAR = st.builds(
    lambda lane, column: lane << 16 | column,
    st.sampled_from((0, 16, 1, 32, 127)),
    st.sampled_from((0, 1, 256, 384, 448, 500, 504, 511, 512)),
)
FIELDS = st.builds(
    lambda start, lbo, sbo, code, base: start | lbo << 16 | sbo << 32 | 1 << 46 | base << 49 | code << 61,
    *(st.integers(0, 0x3FFF) for _ in range(3)), st.sampled_from((0, 1, 2, 4, 6)), st.integers(0, 7),
)  # fmt: skip
SHAPES = st.builds(
    lambda m, n, types, flags: m << 24 | n << 17 | types << 7 | flags << 13 | 0x10, st.sampled_from((2, 4, 8, 16)), st.integers(0, 40),
    st.integers(0, 63), st.integers(0, 15),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KINDS), st.booleans(), st.booleans(), st.one_of(FIELDS, WORD64), st.one_of(FIELDS, WORD64), st.one_of(NEAR, WORD32),
       st.one_of(SHAPES, WORD32), st.one_of(NEAR, WORD32), st.one_of(NEAR, WORD32), st.one_of(NEAR, WORD32))  # fmt: skip
def test_any_operands_end_in_a_result_or_a_named_fault(kind, tensor, ws, a, b, d, idesc, at, sa, sb):
    kernel = sketch(kind, tensor, ws and not kind.startswith("mx"))
    result = emu.launch(
        kernel, machine=ONE_SM, block=32, args=[a, b, d, idesc, at, sa, sb], shared_bytes=65536, max_cycles=100_000
    )
    rules = {f.rule for f in result.findings if f.severity == "fault"}
    assert result.exit_code() == (6 if rules else 0)
    assert rules <= {"TC101", "TC102", "TC103", "TC104", "TM101", "TM102"}


# ---- clusters ------------------------------------------------------------------------------------------

CLUSTER = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry commits(.param .u64 out)
{{
    .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<20>; .reg .b64 %d<8>;
    .shared .align 8 .b64 bar[2];
    ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p2, %r2, {sender};
    @%p1 mbarrier.init.shared.b64 [bar + 8], 1; fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r3, bar; and.pred %p3, %p1, %p2; mov.u16 %h1, {mask}; mapa.shared::cluster.u32 %r4, %r3, 1;
    mov.u32 %r6, %clock;
    @%p3 {commit}
    {wait}
    mov.u32 %r7, %clock; sub.u32 %r7, %r7, %r6;
    mov.u32 %r5, %ctaid.x; mul.wide.u32 %d2, %r5, 4; add.s64 %d1, %d1, %d2; @%p1 st.global.u32 [%d1], %r7;
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
}}
"""
EVERY = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r3 + 8], %h1;"
WAIT = "mbarrier.wait [bar + 8], 0;"


def commits(commit: str, wait: str, mask: int, sender: int = 0, **options: Any) -> tuple[np.ndarray, Any]:
    """Cycles that each of four CTAs of a cluster waited, and the result."""
    chip, out = load_machine("b200", ("chip.sms=16", "chip.gpcs=2")), np.zeros(4, np.uint32)
    text = CLUSTER.format(commit=commit, wait=wait, mask=mask, sender=sender)
    options = {"max_cycles": 100_000} | options
    return out, emu.launch(emu.load(text=text), machine=chip, grid=4, cluster=4, block=32, args=[out], **options)


@pytest.mark.parametrize("sender", [0, 2])
def test_a_commit_arrives_in_every_cta_of_its_mask(sender):
    out, result = commits(EVERY, WAIT, 15, sender)
    assert not result.findings and (out > 0).all()
    assert out[sender] < min(out[k] for k in range(4) if k != sender)  # a message takes its time
    _, stuck = commits(EVERY, WAIT, 7, sender)
    assert stuck.deadlock is not None  # the fourth CTA waits for ever


def test_a_commit_on_another_cta_s_mbarrier():
    wait = f"setp.ne.u32 %p4, %r2, 1; @%p4 bra DONE; {WAIT} DONE:"
    _, result = commits("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r4 + 8];", wait, 0)
    assert not result.findings and result.deadlock is None


def test_a_commit_to_a_cta_that_is_not_there():
    _, result = commits(EVERY, "", 0x11)
    assert result.exit_code() == 6
