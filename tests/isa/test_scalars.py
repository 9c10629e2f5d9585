"""The scalar builder agrees with NumPy's float32 and integers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isa.scalars import Lane, ScalarLanes, meaning_of

WORDS = st.integers(0, 2**32 - 1)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
V = ScalarLanes()


def f32(x: float) -> Lane:
    return V.const(float(x), "f32")


def value(x: Lane) -> np.float32:
    return np.array([x.value], np.uint32).view(np.float32)[0]


@given(FINITE, FINITE)
def test_float_operations(a: float, b: float) -> None:
    x, y = np.float32(a), np.float32(b)
    with np.errstate(all="ignore"):
        for got, host in ((V.fadd, x + y), (V.fsub, x - y), (V.fmul, x * y), (V.fdiv, x / y)):
            if not np.isnan(host):
                assert value(got(f32(a), f32(b))) == host
    assert V.fcmp("<", f32(a), f32(b)).value == (x < y)
    assert V.fcmp(">=", f32(a), f32(b)).value == (x >= y)


@given(FINITE)
def test_rounding_functions(a: float) -> None:
    x = np.float32(a)
    for name, host in (("rint", np.rint), ("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc)):
        got = value(V.call(name, f32(a)))
        assert got == host(x) and np.signbit(got) == np.signbit(host(x))
    assert value(V.fabs(f32(a))) == abs(x) and value(V.fneg(f32(a))) == -x


@given(WORDS, WORDS, st.integers(0, 31))
def test_integer_operations(a: int, b: int, n: int) -> None:
    x, y, k = Lane("u32", a), Lane("u32", b), Lane("u32", n)
    wrap = 2**32 - 1
    assert V.add(x, y).value == a + b & wrap and V.sub(x, y).value == a - b & wrap
    assert V.shl(x, k).value == a << n & wrap and V.lshr(x, k).value == a >> n
    assert V.ashr(x, k).value == (a - (a >> 31 << 32) >> n) & wrap
    assert V.icmp("<", x, y).value == (a < b)
    assert V.icmp("<", x, y, signed=True).value == (a - (a >> 31 << 32) < b - (b >> 31 << 32))


def test_meaning_of_an_emission() -> None:
    square = meaning_of(lambda v, x: v.select(v.isnan(x), v.const(0.0, "f32"), v.fmul(x, x)))
    assert square(0x40400000) == 0x41100000 and square(0x7FC00000) == 0
