"""tcgen05.mma and commit with operands that are wrong, or any: a result or a named fault; deadlocks."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.machine import load_machine
from isa.descriptors import KINDS, instruction_descriptor
from tests.emu.units.tcgen05 import COMMIT, address_of_tile, product, run
from tests.emu.units.tcgen05_reference import Case, Machine

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
