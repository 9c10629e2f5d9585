"""Integer instructions against Python's and NumPy's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa.bits import signed
from tests.isa.ops.cases import longs, same, shorts, words

INPUT = {16: shorts, 32: words, 64: longs}
COUNT = 512


def check(line: str, type: str, expected: Callable[..., int], operands: int, out: int = 0) -> None:
    """Run `line` on `operands` values of `type`; `expected` works on Python integers, modulo 2^out."""
    width = int(type[1:])
    out = out or width
    arrays = dict(zip("abc", (INPUT[width](seed, COUNT) for seed in range(operands)), strict=False))
    got = run_ptx(line, d=f"b{out}", **arrays)["d"]
    numbers = [[signed(int(x), width) if type[0] == "s" else int(x) for x in v] for v in arrays.values()]
    reference = [expected(*lane) & ((1 << out) - 1) for lane in zip(*numbers, strict=True)]
    mask = np.uint64((1 << out) - 1)
    same(got.astype(np.uint64) & mask, np.array(reference, np.uint64), *arrays.values())


TWO: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("type", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("op", TWO)
def test_two_operands(op: str, type: str) -> None:
    check(f"{op}.{type} %d, %a, %b;", type, TWO[op], 2)


@pytest.mark.parametrize("type", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_high_halves_and_sums(type: str) -> None:
    width = int(type[1:])
    check(f"mul.hi.{type} %d, %a, %b;", type, lambda a, b: (a * b) >> width, 2)
    check(f"mad.lo.{type} %d, %a, %b, %c;", type, lambda a, b, c: a * b + c, 3)
    check(f"mad.hi.{type} %d, %a, %b, %c;", type, lambda a, b, c: ((a * b) >> width) + c, 3)
    check(f"sad.{type} %d, %a, %b, %c;", type, lambda a, b, c: abs(a - b) + c, 3)


@pytest.mark.parametrize("type", ["u16", "s16", "u32", "s32"])
def test_wide_products(type: str) -> None:
    check(f"mul.wide.{type} %d, %a, %b;", type, lambda a, b: a * b, 2, out=2 * int(type[1:]))


@pytest.mark.parametrize("type", ["u32", "s32"])
def test_wide_multiply_add(type: str) -> None:
    a, b, c = words(1), words(2), longs(3)
    got = run_ptx(f"mad.wide.{type} %d, %a, %b, %c;", a=a, b=b, c=c, d="b64")["d"]
    kind = np.int64 if type == "s32" else np.uint64
    x, y = (v.view(np.int32).astype(kind) if type == "s32" else v.astype(kind) for v in (a, b))
    same(got, (x * y).view(np.uint64) + c, a, b, c)


@pytest.mark.parametrize("type", ["u32", "s32"])
def test_24_bit_products(type: str) -> None:
    def low(x: int) -> int:
        return signed(x, 24) if type == "s32" else x & 0xFFFFFF

    check(f"mul24.lo.{type} %d, %a, %b;", type, lambda a, b: low(a) * low(b), 2)
    check(f"mul24.hi.{type} %d, %a, %b;", type, lambda a, b: (low(a) * low(b)) >> 16, 2)
    check(f"mad24.lo.{type} %d, %a, %b, %c;", type, lambda a, b, c: low(a) * low(b) + c, 3)
    check(f"mad24.hi.{type} %d, %a, %b, %c;", type, lambda a, b, c: ((low(a) * low(b)) >> 16) + c, 3)


@pytest.mark.parametrize("type", ["s16", "s32", "s64"])
def test_abs_and_neg(type: str) -> None:
    check(f"abs.{type} %d, %a;", type, abs, 1)
    check(f"neg.{type} %d, %a;", type, lambda a: -a, 1)


@pytest.mark.parametrize("type", ["u16x2", "s16x2"])
def test_packed_halves(type: str) -> None:
    a, b = words(1), words(2)
    x, y = (v.view(np.int16 if type[0] == "s" else np.uint16) for v in (a, b))
    for op, function in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
        got = run_ptx(f"{op}.{type} %d, %a, %b;", a=a, b=b, d="b32")["d"]
        same(got, function(x, y).view(np.uint32), a, b)


def test_saturating_sums() -> None:
    def clamp(x: int) -> int:
        return max(-(1 << 31), min((1 << 31) - 1, x))

    check("add.sat.s32 %d, %a, %b;", "s32", lambda a, b: clamp(a + b), 2)
    check("sub.sat.s32 %d, %a, %b;", "s32", lambda a, b: clamp(a - b), 2)


def test_destination_may_be_a_source() -> None:
    a, b = longs(5), longs(6)
    for line, expected in (
        ("add.u64 %x, %x, %b;", a + b),
        ("mul.lo.u64 %x, %x, %b;", a * b),
        ("min.u64 %x, %x, %b;", np.minimum(a, b)),
        ("shl.b64 %x, %x, 7;", a << np.uint64(7)),
        ("shr.u64 %x, %x, 37;", a >> np.uint64(37)),
        ("shr.s64 %x, %x, 37;", (a.view(np.int64) >> 37).view(np.uint64)),
    ):
        same(run_ptx(f"mov.b64 %x, %a; {line}", a=a, b=b, x="b64")["x"], expected, a, b)
