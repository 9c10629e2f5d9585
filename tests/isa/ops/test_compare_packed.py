"""setp and set on packed halves, against the comparison of each half."""

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa import bits
from isa.bits import BF16, F16
from tests.isa.ops.cases import predicates, same, words

COMPARES = ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
ACCEPTED = [f"setp.{cmp}.{t} %p1|%p2, %r2, %r3;" for cmp in COMPARES for t in ("f16x2", "bf16x2")]
ACCEPTED += [f"set.{cmp}.{t}.{t} %r1, %r2, %r3;" for cmp in COMPARES for t in ("f16x2", "bf16x2")]
ACCEPTED += [f"setp.lt.{b}.ftz.f16x2 %p1|_, %r2, %r3, !%p3;" for b in ("and", "or", "xor")]
ACCEPTED += [f"set.lt.{t}.{s} %h1, %h2, %h3;" for s in ("f16", "bf16") for t in ("u16", "s16", s)]
ACCEPTED += ["set.ltu.or.ftz.f16x2.f16x2 %r1, %r2, %r3, %p1;"]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize(
    "text",
    ["setp.lt.ftz.bf16x2 %p1|%p2, %r2, %r3;", "set.lt.u32.f16x2 %r1, %r2, %h3;", "set.hi.f16x2.f16x2 %r1, %r2, %r3;"],
)
def test_rejected(instructions, text):
    instructions.reject(text)


def holds(f, cmp: str, a: int, b: int, ftz: bool) -> bool:
    if ftz:
        a, b = bits.flush(f, a), bits.flush(f, b)
    outcome = bits.compare(f, a, b)
    if outcome == "?":
        return cmp.endswith("u") and cmp != "num" or cmp == "nan"
    plain = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "num": "<=>", "nan": ""}
    return outcome in plain[cmp if cmp in plain else cmp[:-1]]


@pytest.mark.parametrize("type", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("cmp", COMPARES)
def test_halves(type, cmp):
    f, ftz = (F16, cmp in ("lt", "equ")) if type == "f16x2" else (BF16, False)
    a, b, c = words(1, 512), words(2, 512), predicates(3, 512)
    b[::4] = a[::4]
    low, high = (
        np.array([holds(f, cmp, int(x) >> s & 0xFFFF, int(y) >> s & 0xFFFF, ftz) for x, y in zip(a, b, strict=True)])
        for s in (0, 16)
    )
    flag = ".ftz" if ftz else ""
    out = run_ptx(
        f"setp.{cmp}{flag}.{type} %p|%q, %a, %b; setp.{cmp}.xor{flag}.{type} %x|%y, %a, %b, %c; set.{cmp}{flag}.{type}.{type} %d, %a, %b;",
        a=a, b=b, c=c, p="pred", q="pred", x="pred", y="pred", d="b32",
    )  # fmt: skip
    same(out["p"], low, a, b)
    same(out["q"], high, a, b)
    same(out["x"], low ^ c, a, b)
    same(out["y"], high ^ c, a, b)
    one = f.one
    same(out["d"], np.where(low, one, 0).astype(np.uint32) | np.where(high, one << 16, 0).astype(np.uint32), a, b)
