"""Fields and positions of bits (PTX ISA 9.7.1): bmsk, szext, fns, bfind of 64 bits, lop3 with a predicate."""

from __future__ import annotations

from isa.bits import M32
from isa.ops.compare import BOOL, GT, ISETP, ISETP_ANY, LT
from isa.ops.integer import IABS, IADD3, IADD3_NEG, SGXT, SGXT_U32, VIMNMX, ZERO
from isa.ops.logic import AND, LOP3_LUT, XOR
from isa.ops.select import SEL
from isa.ops.shift import BMSK, BREV, FLO, POPC, SHF_L, SHF_R_S32
from isa.registry import Const, Emitter, Match, Value, instruction

MODES = (".clamp", ".wrap")
NONE = Const(M32)


def _limited(e: Emitter, x: Value, mode: str) -> Value:
    """A position or width: modulo 32, or anything above 32 as good as 32."""
    d = e.tmp()
    if mode == "wrap":
        e(AND, d, x, Const(31))
    else:
        e(VIMNMX["min", "u32"], d, x, Const(32))
    return d


@instruction("bmsk.MODE.b32 d, a, b;", sets={"MODE": MODES}, types={"a": "u32", "b": "u32"})
def bmsk(e: Emitter, m: Match) -> None:
    """d = b ones from bit a on; both clamped at 32 or modulo 32."""
    e(BMSK, m.d, _limited(e, m.a, m["MODE"]), _limited(e, m.b, m["MODE"]))


@instruction("szext.MODE.T d, a, b;", sets={"MODE": MODES, "T": ("u32", "s32")}, types={"d": "T", "a": "T", "b": "u32"})
def szext(e: Emitter, m: Match) -> None:
    """d = the low b bits of a (clamped at 32 or modulo 32), extended by sign or zeros."""
    e(SGXT if m["T"] == "s32" else SGXT_U32, m.d, m.a, _limited(e, m.b, m["MODE"]))


@instruction("bfind{.shiftamt}.T d, a;", sets={"T": ("u64", "s64")}, types={"d": "u32"})
def bfind64(e: Emitter, m: Match) -> None:
    """Place of the highest significant bit (from the top with .shiftamt), 0xffffffff without one."""
    low, high = e.lo(m.a), e.hi(m.a)
    if m["T"] == "s64":
        sign, flipped = e.tmp(), (e.tmp(), e.tmp())
        e(SHF_R_S32, sign, high, Const(31))
        e(XOR, flipped[0], low, sign)
        e(XOR, flipped[1], high, sign)
        low, high = flipped
    zero, word, place, base = e.tmp("p"), e.tmp(), e.tmp(), e.tmp()
    e(ISETP["eq", "u32"], zero, high, ZERO)
    e(SEL, word, low, high, zero)
    e(SEL, base, ZERO, Const(32), zero)
    e(FLO, place, word)
    none, found = e.tmp("p"), e.tmp()
    e(ISETP["eq", "u32"], none, word, ZERO)
    e(IADD3, found, place, base)
    if m.has(".shiftamt"):
        e(IADD3_NEG, found, Const(63), found)
    e(SEL, m.d, NONE, found, none)


@instruction("fns.b32 d, a, b, c;", types={"a": "b32", "b": "u32", "c": "s32"})
def fns(e: Emitter, m: Match) -> None:
    """d = the |c|-th one of a from bit b on, upwards or (c < 0) downwards, b itself for c = 0; 0xffffffff without one.

    Downwards is upwards in the reversed word.  A search in halves finds the lowest place below which enough ones lie.
    """
    down, mirrored, other, mask, base = e.tmp("p"), e.tmp(), e.tmp(), e.tmp(), e.tmp()
    e(ISETP["lt", "s32"], down, m.c, ZERO)
    e(BREV, mirrored, m.a)
    e(IADD3_NEG, other, Const(31), m.b)
    e(SEL, mask, mirrored, m.a, down)
    e(SEL, base, other, m.b, down)
    kept, ones, count, wanted, total, fits = e.tmp(), e.tmp(), e.tmp(), e.tmp(), e.tmp(), e.tmp("p")
    e(SHF_L, ones, NONE, base)
    e(AND, kept, mask, ones)
    e(IABS, count, m.c)
    e(VIMNMX["max", "u32"], wanted, count, Const(1))
    e(POPC, total, kept)
    e(ISETP["le", "u32"], fits, wanted, total)
    place: Value = ZERO
    for step in (16, 8, 4, 2, 1):
        further, below, seen, few, moved = e.tmp(), e.tmp(), e.tmp(), e.tmp("p"), e.tmp()
        e(IADD3, further, place, Const(step))
        e(BMSK, below, ZERO, further)
        e(AND, below, below, kept)
        e(POPC, seen, below)
        e(ISETP["lt", "u32"], few, seen, wanted)
        e(SEL, moved, further, place, few)
        place = moved
    up, found, exact, here = e.tmp(), e.tmp(), e.tmp("p"), e.tmp("p")
    e(IADD3_NEG, up, Const(31), place)
    e(SEL, found, up, place, down)
    # with c = 0 only the place b itself counts
    e(ISETP["eq", "u32"], here, place, base)
    e(ISETP_ANY["u32"], (exact, None), count, ZERO, here, imm=LT | GT | BOOL["or"] << 4)
    e(SEL, found, found, NONE, exact)
    e(SEL, m.d, found, NONE, fits)


@instruction("lop3.BOOL.b32 d|p, a, b, c, table, q;", sets={"BOOL": ("or", "and")}, types={"table": "imm", "q": "pred"})
def lop3_predicate(e: Emitter, m: Match) -> None:
    """Any function of three bits, and p = (d != 0) and, or q."""
    if m.p is None and m.d is None:
        raise e.error("lop3 needs one of its results")
    word = m.d if m.d is not None else e.tmp()
    e(LOP3_LUT, word, m.a, m.b, m.c, imm=m.table)
    e(ISETP_ANY["u32"], (m.p, None), word, ZERO, m.q, imm=LT | GT | BOOL[m["BOOL"]] << 4)
