"""mma.sync of 8-bit floats becomes conversions, two HMMA and additions, as `ptxas` 13.0 makes them for sm_90a."""

import pytest

from isa.ops.mma import mma_word

MMA = "mma.sync.aligned"
F, H, A4, A2, B2 = "{%f1,%f2,%f3,%f4}", "{%r7,%r8}", "{%r1,%r2,%r3,%r4}", "{%r1,%r2}", "{%r5,%r6}"
SASS = {
    f"{MMA}.m16n8k32.row.col.f32.e4m3.e5m2.f32 {F}, {A4}, {B2}, {F};": ("HMMA.16816", 16, False, 4, 2, ["FADD"] * 4),
    f"{MMA}.m16n8k16.row.col.f32.e4m3.e5m2.f32 {F}, {A2}, {{%r5}}, {F};": ("HMMA.1688", 8, False, 2, 1, ["FADD"] * 4),
    f"{MMA}.m16n8k32.row.col.f16.e4m3.e5m2.f16 {H}, {A4}, {B2}, {H};": ("HMMA.16816", 16, True, 4, 2, ["HADD2"] * 2),
    f"{MMA}.m16n8k16.row.col.f16.e4m3.e5m2.f16 {H}, {A2}, {{%r5}}, {H};": ("HMMA.1688", 8, True, 2, 1, ["HADD2"] * 2),
}
REJECTED = [
    f"{MMA}.m16n8k32.row.col.f32.e4m3.f16.f32 {F}, {A4}, {B2}, {F};",
    f"{MMA}.m16n8k32.row.col.f16.e4m3.e4m3.f16 {F}, {A4}, {B2}, {F};",
    f"{MMA}.m16n8k8.row.col.f32.e4m3.e4m3.f32 {F}, {A2}, {{%r5}}, {F};",
]


@pytest.mark.parametrize("text", SASS)
def test_operations(instructions, text):
    op, k, half, a, b, add = SASS[text]
    word = mma_word(k, "f16", "f16", d_f16=half, c_f16=half)
    expected = []
    for suffix in ("", ".H1"):
        expected += (
            [(f"F2FP.F16.E4M3.UNPACK{suffix}", 0)] * a + [(f"F2FP.F16.E5M2.UNPACK{suffix}", 0)] * b + [(op, word)]
        )
    assert instructions.words(text) == expected + [(name, 0) for name in add]


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)
