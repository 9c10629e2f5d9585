"""f32 arithmetic: recorded silicon bit for bit, and exact fractions next to the flush boundary."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa import bits
from isa.bits import F32
from tests.isa.ops import recorded
from tests.isa.ops.cases import same, words

STARTS = ("add_", "sub_", "mul_", "fma_", "min", "max", "abs", "neg")


@pytest.mark.parametrize("name", recorded.names("scalar_f32", *STARTS))
def test_recorded(name: str) -> None:
    recorded.replay("scalar_f32", name, recorded.arithmetic(name, "f32"))


MODES = ("rn", "rz", "rm", "rp")


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("sat", ["", ".sat"])
@pytest.mark.parametrize("mode", MODES)
def test_every_modifier_is_one_rounding(mode: str, sat: str, ftz: str) -> None:
    a, b, c = words(31, 384), words(32, 384), words(33, 384)
    for op, operands, function in (
        ("add", "%a, %b", bits.add),
        ("sub", "%a, %b", bits.sub),
        ("mul", "%a, %b", bits.mul),
        ("fma", "%a, %b, %c", bits.fma),
        ("mad", "%a, %b, %c", bits.fma),
    ):
        got = run_ptx(f"{op}.{mode}{ftz}{sat}.f32 %d, {operands};", a=a, b=b, c=c, d="f32")["d"]
        lanes = zip(a, b, c, strict=True) if "%c" in operands else zip(a, b, strict=True)
        expected = [function(F32, *(int(x) for x in lane), mode=mode, ftz=bool(ftz)) for lane in lanes]
        same(got, [bits.saturate(F32, r) if sat else r for r in expected], a, b, c)


def near_the_flush_boundary(count: int = 4096) -> tuple[np.ndarray, np.ndarray]:
    """Factors whose product is within a few 2^-151 of 2^-126."""
    rng = np.random.default_rng(7)
    a = rng.integers(0x37800001, 0x37FFFFFF, count).astype(np.uint32)  # near 2^-16, so that b is normal
    exact = 2.0**-126 / a.view(np.float32).astype(np.float64)
    b = exact.astype(np.float32).view(np.uint32) + rng.integers(-1, 2, count).astype(np.uint32)
    return a, b


@pytest.mark.parametrize("mode", MODES)
def test_flush_next_to_the_smallest_normal(mode: str) -> None:
    a, b = near_the_flush_boundary()
    got = run_ptx(f"mul.{mode}.ftz.f32 %d, %a, %b;", a=a, b=b, d="f32")["d"]
    expected = [bits.mul(F32, int(x), int(y), mode, ftz=True) for x, y in zip(a, b, strict=True)]
    same(got, expected, a, b)
    assert 0 < np.count_nonzero(got == 0) < len(got)


@pytest.mark.parametrize("mode", MODES)
def test_fused_sum_next_to_the_smallest_normal(mode: str) -> None:
    rng = np.random.default_rng(8)
    a = rng.integers(0x20000000, 0x21000000, 2048).astype(np.uint32)
    b = rng.integers(0x1E800000, 0x1F800000, 2048).astype(np.uint32)
    product = a.view(np.float32).astype(np.float64) * b.view(np.float32)
    c = (2.0**-126 - product).astype(np.float32).view(np.uint32)
    got = run_ptx(f"fma.{mode}.ftz.f32 %d, %a, %b, %c;", a=a, b=b, c=c, d="f32")["d"]
    lanes = zip(a, b, c, strict=True)
    same(got, [bits.fma(F32, *(int(x) for x in lane), mode=mode, ftz=True) for lane in lanes], a, b, c)


@pytest.mark.parametrize("qualifiers", ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"])
@pytest.mark.parametrize("op", ["min", "max"])
def test_min_max_qualifiers(op: str, qualifiers: str) -> None:
    a, b = words(34, 512), words(35, 512)
    for ftz in ("", ".ftz"):
        got = run_ptx(f"{op}{ftz}{qualifiers}.f32 %d, %a, %b;", a=a, b=b, d="f32")["d"]
        flush = (lambda x: bits.flush(F32, int(x))) if ftz else int
        expected = [
            bits.extremum(F32, flush(x), flush(y), op == "max", "NaN" in qualifiers, "xorsign" in qualifiers)
            for x, y in zip(a, b, strict=True)
        ]
        same(got, expected, a, b)


def test_copysign_takes_the_first_sign() -> None:
    a, b = words(36), words(37)
    got = run_ptx("copysign.f32 %d, %a, %b;", a=a, b=b, d="f32")["d"]
    same(got, (a & np.uint32(0x80000000)) | (b & np.uint32(0x7FFFFFFF)), a, b)


def test_testp_classes() -> None:
    a = words(38)
    size, exponent = a & np.uint32(0x7FFFFFFF), (a >> np.uint32(23)) & np.uint32(255)
    for word, expected in {
        "finite": exponent < 255,
        "infinite": size == 0x7F800000,
        "number": size <= 0x7F800000,
        "notanumber": size > 0x7F800000,
        "normal": ((exponent > 0) & (exponent < 255)) | (size == 0),
        "subnormal": (exponent == 0) & (size > 0),
    }.items():
        same(run_ptx(f"testp.{word}.f32 %p, %a;", a=a, p="pred")["p"], expected, a)
