"""Integer division: exact quotients and remainders, zero divisors included."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa.bits import signed
from tests.isa.ops.cases import longs, same, shorts, words

MAKE = {16: shorts, 32: words, 64: longs}


def dividends(width: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with divisors of all sizes and quotients next to integers."""
    rng = np.random.default_rng(width)
    a, b = MAKE[width](21, count), MAKE[width](22, count)
    kind = a.dtype.type
    b = b >> rng.integers(0, width, count).astype(kind)
    near = (a // np.maximum(b, kind(1))) * b + rng.integers(-1, 2, count).astype(kind)
    return np.where(rng.random(count) < 0.5, near.astype(a.dtype), a), b


def reference(op: str, type: str, x: int, y: int) -> int:
    """Truncated division; by zero all ones, which is what the sequences of ptxas leave."""
    width = int(type[1:])
    wrap = (1 << width) - 1
    if y == 0:
        return wrap
    if type[0] == "s":
        p, q = signed(x, width), signed(y, width)
        quotient = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        return (quotient if op == "div" else p - q * quotient) & wrap
    return x // y if op == "div" else x % y


@pytest.mark.parametrize("op", ["div", "rem"])
@pytest.mark.parametrize("type", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_quotients_are_exact(op: str, type: str) -> None:
    width = int(type[1:])
    a, b = dividends(width, 4096 if width < 64 else 1024)
    got = run_ptx(f"{op}.{type} %d, %a, %b;", a=a, b=b, d=f"b{width}")["d"]
    expected = [reference(op, type, int(x), int(y)) for x, y in zip(a, b, strict=True)]
    mask = np.uint64((1 << width) - 1)
    same(got.astype(np.uint64) & mask, np.array(expected, np.uint64), a, b)


@pytest.mark.parametrize("divisor", [3, 7, 10, 641, 0x7FFFFFFF, 0x80000001, 0xFFFFFFFF])
def test_multiples_of_a_divisor_and_their_neighbours(divisor: int) -> None:
    step = max((2**32 - 1) // divisor // 2048, 1)
    multiples = np.arange(0, (2**32 - 1) // divisor + 1, step, dtype=np.uint64)[:2048] * np.uint64(divisor)
    for shift in (-1, 0, 1):
        a = (multiples.astype(np.int64) + shift).astype(np.uint32)
        got = run_ptx(f"div.u32 %d, %a, {divisor};", a=a, d="b32")["d"]
        same(got, a // np.uint32(divisor), a)
