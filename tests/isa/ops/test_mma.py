"""mma.sync and movmatrix."""

import pytest

from isa.ops.mma import mma_word

A4, A2, B2 = "{%r1,%r2,%r3,%r4}", "{%r1,%r2}", "{%r5,%r6}"
F, H, I = "{%f1,%f2,%f3,%f4}", "{%r7,%r8}", "{%r9,%r10,%r11,%r12}"
MMA = "mma.sync.aligned"
ACCEPTED = {
    f"{MMA}.m16n8k16.row.col.f32.f16.f16.f32 {F}, {A4}, {B2}, {F};": ("HMMA.16816", mma_word(16, "f16", "f16")),
    f"{MMA}.m16n8k16.row.col.f32.bf16.bf16.f32 {I}, {A4}, {B2}, {F};": ("HMMA.16816", mma_word(16, "bf16", "bf16")),
    f"{MMA}.m16n8k8.row.col.f32.f16.f16.f32 {F}, {A2}, {{%r5}}, {F};": ("HMMA.1688", mma_word(8, "f16", "f16")),
    f"{MMA}.m16n8k8.row.col.f32.bf16.bf16.f32 {F}, {A2}, {{%r5}}, {F};": ("HMMA.1688", mma_word(8, "bf16", "bf16")),
    f"{MMA}.m16n8k8.row.col.f32.tf32.tf32.f32 {F}, {A4}, {B2}, {F};": ("HMMA.16816", mma_word(8, "tf32", "tf32")),
    f"{MMA}.m16n8k4.row.col.f32.tf32.tf32.f32 {F}, {A2}, {{%r5}}, {F};": ("HMMA.1688", mma_word(4, "tf32", "tf32")),
    f"{MMA}.m16n8k16.row.col.f16.f16.f16.f16 {H}, {A4}, {B2}, {H};": (
        "HMMA.16816", mma_word(16, "f16", "f16", d_f16=True, c_f16=True)),
    f"{MMA}.m16n8k8.row.col.f16.f16.f16.f16 {H}, {A2}, {{%r5}}, {H};": (
        "HMMA.1688", mma_word(8, "f16", "f16", d_f16=True, c_f16=True)),
    f"{MMA}.m16n8k32.row.col.s32.s8.u8.s32 {I}, {A4}, {B2}, {I};": ("IMMA.16832", mma_word(32, "s8", "u8")),
    f"{MMA}.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {I}, {A4}, {B2}, {I};": (
        "IMMA.16832", mma_word(32, "s8", "s8", satfinite=True)),
    f"{MMA}.m16n8k16.row.col.s32.u8.u8.s32 {I}, {A2}, {{%r5}}, {I};": ("IMMA.16816", mma_word(16, "u8", "u8")),
    f"{MMA}.m16n8k16.row.col.f32.f16.f16.f32 {F}, {A4}, {B2}, {{0f00000000,0f00000000,0f00000000,0f00000000}};": (
        "HMMA.16816", mma_word(16, "f16", "f16")),
    "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;": ("MOVM.16.MT88", 0),
}  # fmt: skip
REJECTED = [
    f"{MMA}.m16n8k16.row.col.f32.f16.bf16.f32 {F}, {A4}, {B2}, {F};",
    f"{MMA}.m16n8k16.row.col.f32.f16.f16.f32 {F}, {A2}, {B2}, {F};",
    f"{MMA}.m16n8k16.row.col.f32.f16.f16.f32 {F}, {A4}, {{%r5}}, {F};",
    f"{MMA}.m16n8k16.row.row.f32.f16.f16.f32 {F}, {A4}, {B2}, {F};",
    f"{MMA}.m16n8k8.row.col.f32.f16.f16.f32 {F}, {A4}, {B2}, {F};",
    f"{MMA}.m16n8k4.row.col.f32.f16.f16.f32 {F}, {A2}, {{%r5}}, {F};",
    f"{MMA}.m16n8k16.row.col.f16.bf16.bf16.f16 {H}, {A4}, {B2}, {H};",
    f"{MMA}.m16n8k16.row.col.f16.f16.f16.f16 {F}, {A4}, {B2}, {F};",
    f"{MMA}.m16n8k32.row.col.f32.f16.f16.f32 {F}, {A4}, {B2}, {F};",
    "mma.sync.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
    "movmatrix.sync.aligned.m8n8.b16 %r1, %r2;",
]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", ACCEPTED)
def test_words(instructions, text):
    assert instructions.words(text) == [ACCEPTED[text]]


def test_operands(instructions):
    """A, B and C follow each other in one list; D is another."""
    (op,) = instructions.lower(next(iter(ACCEPTED)))
    assert (len(op.results[0]), len(op.sources[0])) == (4, 10)


def test_on_ampere(instructions):
    for text in ACCEPTED:
        instructions.lower(text, "sm_80")
