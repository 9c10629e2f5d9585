"""Extended precision: long additions, subtractions and products against Python's integers."""

import numpy as np
import pytest

from emu.lanes import run_ptx
from tests.isa.ops.cases import longs, same, words

ACCEPTED = [
    f"{op}.{t} %{r}1, %{r}2, %{r}3;"
    for op in ("add.cc", "addc", "addc.cc", "sub.cc", "subc", "subc.cc")
    for t, r in (("u32", "r"), ("s32", "r"), ("u64", "rd"), ("s64", "rd"))
]
ACCEPTED += [
    f"{op}.{t} %{r}1, %{r}2, %{r}3, %{r}4;"
    for op in ("mad.lo.cc", "mad.hi.cc", "madc.lo", "madc.hi", "madc.lo.cc", "madc.hi.cc")
    for t, r in (("u32", "r"), ("s32", "r"), ("u64", "rd"), ("s64", "rd"))
]
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize(
    "text", ["add.cc.u16 %h1, %h2, %h3;", "madc.wide.u32 %rd1, %r2, %r3, %rd4;", "subc.b32 %r1, %r2, %r3;"]
)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("op, sign", [("add", 1), ("sub", -1)])
@pytest.mark.parametrize("width", [32, 64])
def test_three_words(op, sign, width):
    make, t = (words, "b32") if width == 32 else (longs, "b64")
    parts = {f"{n}{k}": make(10 * k + i, 512) for i, n in enumerate("ab") for k in range(3)}
    k = f"{width}"
    out = run_ptx(
        f"{op}.cc.u{k} %d0, %a0, %b0; {op}c.cc.s{k} %d1, %a1, %b1; {op}c.cc.u{k} %d2, %a2, %b2; {op}c.u{k} %d3, 0, 0;",
        **parts, d0=t, d1=t, d2=t, d3=t,
    )  # fmt: skip
    mask = (1 << width) - 1
    whole = [[sum(int(parts[f"{n}{k}"][i]) << width * k for k in range(3)) for i in range(512)] for n in "ab"]
    for place in range(4):
        expected = [(a + sign * b) >> width * place & mask for a, b in zip(*whole, strict=True)]
        same(out[f"d{place}"], np.array(expected, np.uint64), *parts.values())


@pytest.mark.parametrize("width", [32, 64])
def test_product_chain(width):
    """The schoolbook step of compilers: mad.lo.cc, then madc.hi with the carry."""
    make, t = (words, "b32") if width == 32 else (longs, "b64")
    a, b, c, d = (make(k, 512) for k in range(4))
    k = f"u{width}"
    out = run_ptx(
        f"mad.lo.cc.{k} %lo, %a, %b, %c; madc.hi.cc.{k} %hi, %a, %b, %d; addc.{k} %top, 0, 0;",
        a=a, b=b, c=c, d=d, lo=t, hi=t, top=t,
    )  # fmt: skip
    totals = [int(x) * int(y) + int(z) + (int(u) << width) for x, y, z, u in zip(a, b, c, d, strict=True)]
    for place, name in enumerate(("lo", "hi", "top")):
        same(out[name], np.array([x >> width * place & ((1 << width) - 1) for x in totals], np.uint64), a, b, c, d)


def test_signed_high_half():
    a, b, c = (words(k, 512) for k in range(3))
    out = run_ptx("mad.hi.cc.s32 %d, %a, %b, %c; addc.u32 %e, 0, 0;", a=a, b=b, c=c, d="b32", e="b32")
    high = ((a.view(np.int32).astype(np.int64) * b.view(np.int32)) >> 32).astype(np.uint64) & M32
    total = high + c
    same(out["d"], total & M32, a, b, c)
    same(out["e"], total >> np.uint64(32), a, b, c)
