"""wgmma: every shape and type, operand checks, and the wgmma word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.ops.wgmma import COLUMNS, INTEGER_COLUMNS, KINDS, wgmma_word
from isa.registry import NotPred, PredConst

MMA = "wgmma.mma_async.sync.aligned"
A4 = "{%r290,%r291,%r292,%r293}"
SCALES, BOTH, ONE = ", 1, 1", ", 1, 1, 0, 0", ", 1, 1, 0"
FP8 = [(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
INT8 = [(a, b) for a in ("s8", "u8") for b in ("s8", "u8")]
# D, A, B, K, columns, what follows scale-d in the SS and in the RS form
FAMILIES = [
    ("f32", "f16", "f16", 16, COLUMNS, BOTH, ONE),
    ("f16", "f16", "f16", 16, COLUMNS, BOTH, ONE),
    ("f32", "bf16", "bf16", 16, COLUMNS, BOTH, ONE),
    ("f32", "tf32", "tf32", 8, COLUMNS, SCALES, SCALES),
    *((d, a, b, 32, COLUMNS, SCALES, SCALES) for d in ("f32", "f16") for a, b in FP8),
    *(("s32", a, b, 32, INTEGER_COLUMNS, "", "") for a, b in INT8),
]


def vector(letter, count):
    return f"{{{','.join(f'%{letter}{k}' for k in range(count))}}}"


def result(d, n):
    return vector("f" if d == "f32" else "r", n // 4 if d == "f16" else n // 2)


@pytest.mark.parametrize("d, a, b, k, columns, ss, rs", FAMILIES)
def test_every_shape(instructions, d, a, b, k, columns, ss, rs):
    opcodes = [f"{MMA}.m64n{n}k{k}.{d}.{a}.{b} {result(d, n)}" for n in columns]
    memory = instructions.lower("\n".join(f"{opcode}, %rd5, %rd6, 1{ss};" for opcode in opcodes))
    registers = instructions.lower("\n".join(f"{opcode}, {A4}, %rd6, 1{rs};" for opcode in opcodes))
    for n, shared, fragment in zip(columns, memory, registers, strict=True):
        assert (shared.micro.name, fragment.micro.name) == ("HGMMA", "HGMMA.RS")
        assert shared.imm == wgmma_word(n, a, b, d_f16=d == "f16")
        assert fragment.imm == wgmma_word(n, a, b, d_f16=d == "f16", a_registers=True)
        assert len(shared.results[0]) == (n // 4 if d == "f16" else n // 2)
        assert len(fragment.sources[2]) == 4


@pytest.mark.parametrize("d, a, b, k, columns, ss, rs", FAMILIES)
def test_shapes_that_ptxas_takes(instructions, d, a, b, k, columns, ss, rs):
    opcodes = [f"{MMA}.m64n{n}k{k}.{d}.{a}.{b} {result(d, n)}" for n in (columns[0], columns[4], columns[-1])]
    instructions.accept(
        [
            f"{opcode}, {source}, 1{rest};"
            for opcode in opcodes
            for source, rest in (("%rd5, %rd6", ss), (f"{A4}, %rd6", rs))
        ]
    )


F16 = f"{MMA}.m64n8k16.f32.f16.f16"
D4 = "{%f0,%f1,%f2,%f3}"
FLAGS = {
    f"{F16} {D4}, %rd5, %rd6, %p1, -1, 1, 0, 0;": wgmma_word(8, "f16", negate_a=True),
    f"{F16} {D4}, %rd5, %rd6, %p1, 1, -1, 0, 0;": wgmma_word(8, "f16", negate_b=True),
    f"{F16} {D4}, %rd5, %rd6, !%p1, 1, 1, 1, 0;": wgmma_word(8, "f16", trans_a=True),
    f"{F16} {D4}, %rd5, %rd6, 0, 1, 1, 0, 1;": wgmma_word(8, "f16", trans_b=True),
    f"{F16} {D4}, {A4}, %rd6, 0, 1, 1, 1;": wgmma_word(8, "f16", trans_b=True, a_registers=True),
    f"{F16} {{%r0,%r1,%r2,%r3}}, %rd5, 0x4000004000000000, 1, 1, 1, 0, 0;": wgmma_word(8, "f16"),
    f"{MMA}.m64n8k32.s32.u8.s8.satfinite {vector('r', 4)}, %rd5, %rd6, 1;": wgmma_word(8, "u8", "s8", satfinite=True),
    f"{MMA}.m64n8k32.satfinite.s32.s8.s8 {vector('r', 4)}, %rd5, %rd6, 1;": wgmma_word(8, "s8", satfinite=True),
}
REJECTED = [
    f"{MMA}.m64n12k16.f32.f16.f16 {vector('f', 6)}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{MMA}.m64n264k16.f32.f16.f16 {vector('f', 132)}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{MMA}.m64n40k32.s32.s8.s8 {vector('r', 20)}, %rd5, %rd6, 1;",
    f"{MMA}.m64n8k8.f32.f16.f16 {D4}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{F16} {D4}, %rd5, %rd6, 2, 1, 1, 0, 0;",
    f"{F16} {D4}, %rd5, %rd6, 1, 0, 1, 0, 0;",
    f"{F16} {D4}, %rd5, %rd6, 1, 1, 2, 0, 0;",
    f"{F16} {D4}, %rd5, %rd6, 1, 1, 1, 2, 0;",
    f"{F16} {D4}, %rd5, %rd6, 1, 1, 1, 0, -1;",
    f"{F16} {D4}, %rd5, %rd6, 1, 1, 1;",
    f"{F16} {D4}, %rd5, %rd6, 1;",
    f"{F16} {vector('f', 3)}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{F16} {vector('f', 5)}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{F16} {{%f0,_,%f2,%f3}}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{F16} {D4}, {A4}, %rd6, 1, 1, 1, 0, 0;",
    f"{F16} {D4}, {vector('r', 2)}, %rd6, 1, 1, 1, 0;",
    f"{F16} {D4}, {vector('f', 4)}, %rd6, 1, 1, 1, 0;",
    f"{F16} {D4}, %r5, %rd6, 1, 1, 1, 0, 0;",
    f"{F16}.satfinite {D4}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{MMA}.m64n8k16.f16.f16.f16 {D4}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{MMA}.m64n8k16.f16.bf16.bf16 {vector('r', 2)}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{MMA}.m64n8k16.f32.f16.bf16 {D4}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{MMA}.m64n8k8.f32.tf32.tf32 {D4}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    f"{MMA}.m64n8k8.f32.tf32.tf32 {D4}, {vector('f', 4)}, %rd6, 1, 1, 1;",
    f"{MMA}.m64n8k32.s32.s8.s8 {vector('r', 4)}, %rd5, %rd6, 1, 1, 1;",
    f"{MMA}.m64n8k32.s32.s8.s8 {vector('f', 4)}, %rd5, %rd6, 1;",
    f"{MMA}.m64n8k32.s32.e4m3.s8 {vector('r', 4)}, %rd5, %rd6, 1;",
    f"wgmma.mma_async.aligned.m64n8k16.f32.f16.f16 {D4}, %rd5, %rd6, 1, 1, 1, 0, 0;",
    "wgmma.fence;",
    "wgmma.wait_group.sync.aligned -1;",
    "wgmma.wait_group.sync.aligned %r5;",
]
GROUPS = {
    "wgmma.fence.sync.aligned;": ("WARPGROUP.ARRIVE", 0),
    "wgmma.commit_group.sync.aligned;": ("WARPGROUP.COMMIT", 0),
    "wgmma.wait_group.sync.aligned 0;": ("WARPGROUP.DEPBAR", 0),
    "wgmma.wait_group.sync.aligned 64;": ("WARPGROUP.DEPBAR", 64),
}


def test_accepted(instructions):
    instructions.accept([*FLAGS, *GROUPS])


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", [*FLAGS])
def test_flags(instructions, text):
    (op,) = instructions.lower(text)
    assert op.imm == FLAGS[text]


@pytest.mark.parametrize("text", GROUPS)
def test_groups(instructions, text):
    assert instructions.words(text) == [GROUPS[text]]


@pytest.mark.parametrize("scale, kind", [("0", PredConst(False)), ("1", PredConst(True)), ("!%p1", NotPred)])
def test_scale_d(instructions, scale, kind):
    (op,) = instructions.lower(f"{F16} {D4}, %rd5, %rd6, {scale}, 1, 1, 0, 0;")
    found = op.sources[2]
    assert found == kind if isinstance(kind, PredConst) else isinstance(found, kind)


def test_the_accumulator_is_counted_in_the_message(instructions):
    error = instructions.reject(f"{MMA}.m64n128k16.f32.f16.f16 {vector('f', 32)}, %rd5, %rd6, 1, 1, 1, 0, 0;")
    assert "64 registers, found 32" in str(error)


def test_wgmma_is_hopper_only(instructions):
    with pytest.raises(Exception, match="sm_90a only"):
        instructions.lower("wgmma.fence.sync.aligned;", "sm_100a")


@given(st.sampled_from(COLUMNS), st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(KINDS)),
       st.lists(st.booleans(), min_size=7, max_size=7))  # fmt: skip
def test_word_fields(n, a, b, flags):
    names = ("d_f16", "negate_a", "negate_b", "trans_a", "trans_b", "a_registers", "satfinite")
    word = wgmma_word(n, a, b, **dict(zip(names, flags, strict=True)))
    assert (word & 0x1FF, word >> 12 & 15) == (n, KINDS[a])
    assert [bool(word >> 16 + bit & 1) for bit in range(7)] == flags
    assert word >> 24 == (KINDS[b] if a != b else 0)
