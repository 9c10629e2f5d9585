"""bmsk, szext, fns, 64-bit bfind, lop3 with a predicate, against the manual's pseudo-code."""

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa.bits import signed
from isa.ops.logic import lut
from tests.isa.ops.cases import longs, predicates, same, words

M32 = (1 << 32) - 1
ACCEPTED = [
    *[f"bmsk.{mode}.b32 %r1, %r2, %r3;" for mode in ("clamp", "wrap")],
    *[f"szext.{mode}.{t} %r1, %r2, %r3;" for mode in ("clamp", "wrap") for t in ("u32", "s32")],
    *[f"bfind{s}.{t} %r1, %rd2;" for s in ("", ".shiftamt") for t in ("u64", "s64")],
    "fns.b32 %r1, %r2, %r3, %r4;",
    "fns.b32 %r1, 0xff00, 3, -2;",
    "lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 0x96, %p2;",
    "lop3.and.b32 _|%p1, %r2, 5, %r4, 0x96, !%p2;",
]
REJECTED = [
    "bmsk.b32 %r1, %r2, %r3;",
    "szext.clamp.u64 %rd1, %rd2, %r3;",
    "fns.b64 %r1, %rd2, %r3, %r4;",
    "lop3.xor.b32 %r1|%p1, %r2, %r3, %r4, 0x96, %p2;",
    "lop3.or.b32 %r1, %r2, %r3, %r4, 0x96;",
]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


def small(seed: int) -> np.ndarray:
    """Positions and widths: mostly up to 70, some anything."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(1024) < 0.8, rng.integers(0, 70, 1024), words(seed, 1024)).astype(np.uint32)


def run(line: str, expected, **given):
    got = run_ptx(line, **given, d="b32")["d"]
    values = [expected(*(int(x) for x in lane)) & M32 for lane in zip(*given.values(), strict=True)]
    same(got, np.array(values, np.uint32), *given.values())


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_bmsk(mode):
    def mask(a: int, b: int) -> int:  # PTX ISA 9.7.1.23
        a1, b1 = a & 31, b & 31
        above, top = M32 << a1 & M32, M32 << (a1 + b1) & M32
        beyond, wide = False, False
        if mode == "clamp":
            beyond, wide = a >= 32, b >= 32
            above = 0 if beyond else above
        top = 0 if a1 + b1 >= 32 or beyond or wide else top
        return above & ~top

    run(f"bmsk.{mode}.b32 %d, %a, %b;", mask, a=small(1), b=small(2))


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("type", ["u32", "s32"])
def test_szext(mode, type):
    def extended(a: int, b: int) -> int:
        n = b & 31 if mode == "wrap" else min(b, 32)
        return 0 if n == 0 else signed(a, n) if type == "s32" else a & ((1 << n) - 1)

    run(f"szext.{mode}.{type} %d, %a, %b;", extended, a=words(3, 1024), b=small(4))


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("type", ["u64", "s64"])
def test_bfind64(type, shift):
    def place(a: int) -> int:
        if type == "s64" and a >> 63:
            a ^= (1 << 64) - 1
        found = a.bit_length() - 1
        return found if found < 0 or not shift else 63 - found

    a = np.concatenate(
        [longs(5, 512), np.uint64(1) << np.arange(64, dtype=np.uint64), np.array([0, 2**64 - 1], np.uint64)]
    )
    run(f"bfind{'.shiftamt' if shift else ''}.{type} %d, %a;", place, a=a)


def test_fns():
    def find(mask: int, base: int, offset: int) -> int:  # PTX ISA 9.7.1.18
        offset = signed(offset, 32)
        if offset == 0:
            return base if base < 32 and mask >> base & 1 else M32
        count, step, at = abs(offset) - 1, 1 if offset > 0 else -1, base
        while 0 <= at < 32:
            if mask >> at & 1:
                if count == 0:
                    return at
                count -= 1
            at += step
        return M32

    rng = np.random.default_rng(6)
    base = np.where(rng.random(1024) < 0.9, rng.integers(0, 32, 1024), rng.integers(32, 40, 1024)).astype(np.uint32)
    offset = np.where(rng.random(1024) < 0.9, rng.integers(-12, 13, 1024), rng.integers(-40, 40, 1024)).astype(np.int32)
    run("fns.b32 %d, %a, %b, %c;", find, a=words(7, 1024), b=base, c=offset.view(np.uint32))


@pytest.mark.parametrize("table", [0x96, 0xE8, 0x00, 0x80])
def test_lop3_predicate(table):
    a, b, c, q = words(1, 512), words(2, 512), words(3, 512), predicates(4, 512)
    for combine, function in (("or", np.logical_or), ("and", np.logical_and)):
        out = run_ptx(f"lop3.{combine}.b32 %d|%p, %a, %b, %c, {table}, !%q;", a=a, b=b, c=c, q=q, d="b32", p="pred")
        words_ = np.array([lut(table, *map(int, lane)) for lane in zip(a, b, c, strict=True)], np.uint32)
        same(out["d"], words_)
        same(out["p"], function(words_ != 0, ~q))
