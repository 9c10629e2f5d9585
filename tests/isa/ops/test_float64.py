"""f64 arithmetic in all modes against exact rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa import bits
from isa.bits import F64
from tests.isa.ops.cases import longs, same

OPS: dict[str, tuple[int, Callable[..., int]]] = {
    "add": (2, bits.add),
    "sub": (2, bits.sub),
    "mul": (2, bits.mul),
    "fma": (3, bits.fma),
}


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("op", OPS)
def test_one_rounding(op: str, mode: str) -> None:
    count, function = OPS[op]
    operands = [longs(80 + k, 768) for k in range(count)]
    line = f"{op}.{mode}.f64 %d, {', '.join(('%a', '%b', '%c')[:count])};"
    got = run_ptx(line, **dict(zip("abc", operands, strict=False)), d="f64")["d"]
    expected = [function(F64, *(int(x) for x in lane), mode=mode) for lane in zip(*operands, strict=True)]
    same(got, np.array(expected, np.uint64), *operands)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_cancellation_and_subnormal_results(mode: str) -> None:
    """c is next to -a * b, and products straddle the smallest normal number."""
    rng = np.random.default_rng(9)
    a = (rng.standard_normal(512) * 2.0 ** rng.integers(-540, 20, 512)).view(np.uint64)
    b = (rng.standard_normal(512) * 2.0 ** rng.integers(-540, 20, 512)).view(np.uint64)
    c = (-(a.view(np.float64) * b.view(np.float64))).view(np.uint64) + rng.integers(0, 3, 512).astype(np.uint64)
    for third in (c, np.zeros_like(c), np.full_like(c, 1 << 63)):
        got = run_ptx(f"fma.{mode}.f64 %d, %a, %b, %c;", a=a, b=b, c=third, d="f64")["d"]
        lanes = zip(a, b, third, strict=True)
        expected = [bits.fma(F64, *(int(x) for x in lane), mode=mode) for lane in lanes]
        same(got, np.array(expected, np.uint64), a, b, third)


@pytest.mark.parametrize("op", ["min", "max"])
def test_min_max(op: str) -> None:
    a, b = longs(84), longs(85)
    got = run_ptx(f"{op}.f64 %d, %a, %b;", a=a, b=b, d="f64")["d"]
    for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        if bits.is_nan(F64, x) and bits.is_nan(F64, y):
            assert z == y | 1 << 51
        else:
            assert z == bits.extremum(F64, x, y, op == "max")


def test_signs() -> None:
    a, b, top = longs(86), longs(87), np.uint64(1 << 63)
    nan = np.isnan(a.view(np.float64))
    same(run_ptx("neg.f64 %d, %a;", a=a, d="f64")["d"], np.where(nan, np.uint64(F64.nan), a ^ top), a)
    same(run_ptx("abs.f64 %d, %a;", a=a, d="f64")["d"], np.where(nan, np.uint64(F64.nan), a & ~top), a)
    same(run_ptx("copysign.f64 %d, %a, %b;", a=a, b=b, d="f64")["d"], (a & top) | (b & ~top), a, b)


def test_testp_classes() -> None:
    a = longs(88)
    size, exponent = a & np.uint64(F64.sign - 1), a >> np.uint64(52) & np.uint64(0x7FF)
    for word, expected in {
        "finite": exponent < 0x7FF,
        "infinite": size == F64.inf,
        "number": size <= F64.inf,
        "notanumber": size > F64.inf,
        "normal": ((exponent > 0) & (exponent < 0x7FF)) | (size == 0),
        "subnormal": (exponent == 0) & (size > 0),
    }.items():
        same(run_ptx(f"testp.{word}.f64 %p, %a;", a=a, p="pred")["p"], expected, a)
