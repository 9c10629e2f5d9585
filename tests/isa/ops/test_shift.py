"""Shifts and bit fields against Python's integers, counts far out of range included."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa.bits import signed
from tests.isa.ops.cases import longs, same, shorts, words

MAKE = {16: shorts, 32: words, 64: longs}
M32 = (1 << 32) - 1


def counts(seed: int, count: int = 2048) -> np.ndarray:
    """Shift counts: mostly small, some huge."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(count) < 0.8, rng.integers(0, 80, count), words(seed, count)).astype(np.uint32)


def check(got: np.ndarray, expected: Callable[..., int], width: int, *operands: np.ndarray) -> None:
    mask = (1 << width) - 1
    reference = [expected(*(int(x) for x in lane)) & mask for lane in zip(*operands, strict=True)]
    same(got.astype(np.uint64) & np.uint64(mask), np.array(reference, np.uint64), *operands)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_clamp(width: int) -> None:
    a, n = MAKE[width](1), counts(2)
    for line, expected in (
        (f"shl.b{width} %d, %a, %n;", lambda x, k: x << min(k, width)),
        (f"shr.u{width} %d, %a, %n;", lambda x, k: x >> min(k, width)),
        (f"shr.b{width} %d, %a, %n;", lambda x, k: x >> min(k, width)),
        (f"shr.s{width} %d, %a, %n;", lambda x, k: signed(x, width) >> min(k, width)),
    ):
        check(run_ptx(line, a=a, n=n, d=f"b{width}")["d"], expected, width, a, n)


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shifts(mode: str) -> None:
    low, high, n = words(3), words(4), counts(5)

    def amount(k: int) -> int:
        return min(k, 32) if mode == "clamp" else k & 31

    left = run_ptx(f"shf.l.{mode}.b32 %d, %a, %b, %n;", a=low, b=high, n=n, d="b32")["d"]
    check(left, lambda x, y, k: (y << 32 | x) << amount(k) >> 32, 32, low, high, n)
    right = run_ptx(f"shf.r.{mode}.b32 %d, %a, %b, %n;", a=low, b=high, n=n, d="b32")["d"]
    check(right, lambda x, y, k: (y << 32 | x) >> amount(k), 32, low, high, n)


def field(x: int, position: int, length: int, type: str) -> int:
    """bfe as the manual's pseudocode has it."""
    width = int(type[1:])
    position, length, msb = position & 255, length & 255, width - 1
    if type[0] == "u" or length == 0:
        sign = 0
    else:
        sign = x >> min(position + length - 1, msb) & 1
    result = 0
    for i in range(width):
        bit = x >> (position + i) & 1 if i < length and position + i <= msb else sign
        result |= bit << i
    return result


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
def test_bfe(type: str) -> None:
    width = int(type[1:])
    a, position, length = MAKE[width](6, 512), counts(7, 512), counts(8, 512)
    got = run_ptx(f"bfe.{type} %d, %a, %b, %c;", a=a, b=position, c=length, d=f"b{width}")["d"]
    check(got, lambda x, p, n: field(x, p, n, type), width, a, position, length)


def inserted(a: int, b: int, position: int, length: int, width: int) -> int:
    """bfi as the manual's pseudocode has it."""
    for i in range(length & 255):
        place = (position & 255) + i
        if place >= width:
            break
        b = b & ~(1 << place) | (a >> i & 1) << place
    return b


@pytest.mark.parametrize("width", [32, 64])
def test_bfi(width: int) -> None:
    a, b, position, length = MAKE[width](9, 512), MAKE[width](10, 512), counts(11, 512), counts(12, 512)
    got = run_ptx(f"bfi.b{width} %d, %a, %b, %p, %n;", a=a, b=b, p=position, n=length, d=f"b{width}")["d"]
    check(got, lambda x, y, p, n: inserted(x, y, p, n, width), width, a, b, position, length)


@pytest.mark.parametrize("width", [32, 64])
def test_counting(width: int) -> None:
    a = MAKE[width](13)
    check(run_ptx(f"popc.b{width} %d, %a;", a=a, d="b32")["d"], lambda x: x.bit_count(), 32, a)
    check(run_ptx(f"clz.b{width} %d, %a;", a=a, d="b32")["d"], lambda x: width - x.bit_length(), 32, a)
    reverse = run_ptx(f"brev.b{width} %d, %a;", a=a, d=f"b{width}")["d"]
    check(reverse, lambda x: int(f"{x:0{width}b}"[::-1], 2), width, a)


@pytest.mark.parametrize("type", ["u32", "s32"])
def test_bfind(type: str) -> None:
    a = np.concatenate([words(14), np.arange(64, dtype=np.uint32), -np.arange(1, 65, dtype=np.int32).view(np.uint32)])

    def place(x: int) -> int:
        return (x ^ M32 if type == "s32" and x >> 31 else x).bit_length() - 1

    check(run_ptx(f"bfind.{type} %d, %a;", a=a, d="b32")["d"], place, 32, a)
    shift = run_ptx(f"bfind.shiftamt.{type} %d, %a;", a=a, d="b32")["d"]
    check(shift, lambda x: -1 if place(x) < 0 else 31 - place(x), 32, a)
