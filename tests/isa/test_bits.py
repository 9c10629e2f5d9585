"""The scalar reference arithmetic against NumPy, ml_dtypes and exact fractions."""

from __future__ import annotations

import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa import bits
from isa.bits import BF16, E4M3, E5M2, F16, F32, F64, Format

FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "e4m3": E4M3, "e5m2": E5M2}
NUMPY = {
    "f16": (np.float16, np.uint16),
    "bf16": (ml_dtypes.bfloat16, np.uint16),
    "f32": (np.float32, np.uint32),
    "f64": (np.float64, np.uint64),
}
MODES = ("rn", "rz", "rm", "rp")


def patterns(f: Format) -> st.SearchStrategy[int]:
    """Bit patterns with many zeros, subnormals, powers of two, infinities and NaN."""
    near = st.sampled_from([0, 1, f.smallest_normal, f.one, f.inf, f.largest])
    edge = st.builds(lambda x, d, s: ((x + d) % f.sign) | s * f.sign, near, st.integers(-2, 2), st.integers(0, 1))
    return st.one_of(edge, st.integers(0, 2 * f.sign - 1))


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_arithmetic_matches_the_host(name: str, op: str) -> None:
    f, (kind, raw) = FORMATS[name], NUMPY[name]

    @given(patterns(f), patterns(f))
    def check(x: int, y: int) -> None:
        a, b = (np.array([z], raw).view(kind) for z in (x, y))
        with np.errstate(all="ignore"):
            host = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b}[op]
        got = getattr(bits, op)(f, x, y)
        assert got == (f.nan if np.isnan(host[0]) else int(host.view(raw)[0]))

    check()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_fma_is_the_exact_sum_rounded_once(name: str, mode: str) -> None:
    f = FORMATS[name]

    @given(patterns(f), patterns(f), patterns(f))
    def check(x: int, y: int, z: int) -> None:
        if any(bits.is_nan(f, v) or bits.is_inf(f, v) for v in (x, y, z)):
            return
        exact = bits.to_fraction(f, x) * bits.to_fraction(f, y) + bits.to_fraction(f, z)
        got = bits.fma(f, x, y, z, mode)
        if exact:
            assert got == bits.from_fraction(f, exact, mode)
        else:
            assert bits.magnitude(f, got) == 0

    check()


@given(patterns(F32), st.sampled_from(MODES))
def test_rounding_brackets_the_value(x: int, mode: str) -> None:
    if bits.is_nan(F32, x) or bits.is_inf(F32, x):
        return
    value, r = bits.to_fraction(F32, x), bits.convert(F32, F16, x, mode)
    if bits.is_inf(F16, r):
        assert abs(value) > bits.to_fraction(F16, F16.largest)
        return
    rounded = bits.to_fraction(F16, r)
    holds = {
        "rn": abs(rounded - value) * 2 <= _gap(r),
        "rz": abs(rounded) <= abs(value) < abs(rounded) + _gap(r),
        "rm": rounded <= value,
        "rp": rounded >= value,
    }[mode]
    assert holds or abs(rounded) == bits.to_fraction(F16, F16.largest)


def _gap(r: int) -> Fraction:
    """The unit in the last place of an f16 pattern."""
    return Fraction(2) ** (max(bits.magnitude(F16, r) >> 10, 1) - 25)


def test_conversions_match_ml_dtypes() -> None:
    values = np.random.default_rng(3).integers(0, 1 << 32, 4000, dtype=np.uint64).astype(np.uint32)
    for name in ("f16", "bf16"):
        kind, raw = NUMPY[name]
        with np.errstate(all="ignore"):
            host = values.view(np.float32).astype(kind)
        for x, h in zip(values.tolist(), host.view(raw).tolist(), strict=True):
            expected = FORMATS[name].nan if bits.is_nan(F32, x) else h
            assert bits.convert(F32, FORMATS[name], x) == expected


@pytest.mark.parametrize(("f", "kind"), [(E4M3, ml_dtypes.float8_e4m3fn), (E5M2, ml_dtypes.float8_e5m2)])
def test_fp8_values_match_ml_dtypes(f: Format, kind: type) -> None:
    for x in range(256):
        host = float(np.array([x], np.uint8).view(kind)[0])
        if bits.is_nan(f, x) or bits.is_inf(f, x):
            assert not np.isfinite(host)
        else:
            assert float(bits.to_fraction(f, x)) == host


def test_flush_decides_after_rounding_without_exponent_limit() -> None:
    below, at = Fraction(2) ** -126 - Fraction(2) ** -151, Fraction(2) ** -126
    tiny = Fraction(2) ** -200
    smallest = F32.smallest_normal
    assert bits.from_fraction(F32, below, "rn", ftz=True) == smallest
    assert bits.from_fraction(F32, below - tiny, "rn", ftz=True) == 0
    assert bits.from_fraction(F32, at - tiny, "rz", ftz=True) == 0
    edge = at - Fraction(2) ** -150
    assert bits.from_fraction(F32, edge + tiny, "rp", ftz=True) == smallest
    assert bits.from_fraction(F32, edge, "rp", ftz=True) == 0
    assert bits.from_fraction(F32, -edge - tiny, "rm", ftz=True) == smallest | F32.sign


@given(patterns(F32))
def test_sqrt_is_the_nearest(x: int) -> None:
    with np.errstate(all="ignore"):
        host = np.sqrt(np.array([x], np.uint32).view(np.float32))
    assert bits.sqrt(F32, x) == (F32.nan if np.isnan(host[0]) else int(host.view(np.uint32)[0]))


@pytest.mark.parametrize("mode", MODES)
def test_directed_sqrt_squares_back(mode: str) -> None:
    for x in (0x3F800001, 0x40490FDB, 0x00000001, 0x7F7FFFFF, 0x00800000):
        root = bits.to_fraction(F32, bits.sqrt(F32, x, mode))
        after = bits.to_fraction(F32, bits.sqrt(F32, x, mode) + 1)
        value = bits.to_fraction(F32, x)
        if mode in ("rz", "rm"):
            assert root**2 <= value < after**2
        elif mode == "rp":
            assert root**2 >= value


def test_extremum_orders_zeros_and_skips_nan() -> None:
    plus, minus, nan = 0, F32.sign, 0x7FC00001
    assert bits.extremum(F32, plus, minus, largest=False) == minus
    assert bits.extremum(F32, minus, plus, largest=True) == plus
    assert bits.extremum(F32, nan, F32.one, largest=True) == F32.one
    assert bits.extremum(F32, nan, nan, largest=True) == F32.nan
    assert bits.extremum(F32, nan, F32.one, largest=True, nan=True) == F32.nan
    assert bits.extremum(F32, F32.one | F32.sign, 0x40000000, largest=True, xorsign=True) == 0xC0000000


@given(st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False))
def test_compare_is_the_order_of_values(a: float, b: float) -> None:
    x, y = (struct.unpack("<I", struct.pack("<f", z))[0] for z in (a, b))
    assert bits.compare(F32, x, y) == ("<" if a < b else ">" if a > b else "=")
