"""Extended precision: add.cc, addc, sub.cc, subc, mad.cc, madc (PTX ISA 9.7.2).

The condition code's carry flag is a predicate of the kernel; a subtraction leaves its borrow there.
"""

from __future__ import annotations

from typing import Any

from isa.bits import M32
from isa.micro import VectorBuilder, lane
from isa.ops.integer import IMAD, IMAD_HI, IMAD_HI_U32, INT32, INT64, ZERO
from isa.ops.integer64 import mul_hi64, mul_lo64
from isa.registry import Emitter, Match, PredConst, Value, instruction


def _emit_add(v: VectorBuilder, a: Any, b: Any, p: Any) -> Any:
    total = v.add(a, b)
    result = v.add(total, v.cast_pred(p, "u32"))
    return result, v.or_(v.icmp("<", total, a), v.icmp("<", result, total))


def _emit_sub(v: VectorBuilder, a: Any, b: Any, p: Any) -> Any:
    rest = v.sub(a, b)
    borrow = v.cast_pred(p, "u32")
    return v.sub(rest, borrow), v.or_(v.icmp("<", a, b), v.icmp("<", rest, borrow))


IADD3_X_CC = lane(
    "IADD3.X.CC", "uup->up", "alu", lambda a, b, p: ((a + b + p) & M32, a + b + p > M32), _emit_add,
    "a + b + carry, and its carry",
)  # fmt: skip
IADD3_NEG_B = lane(
    "IADD3.NEG.B", "uup->up", "alu", lambda a, b, p: ((a - b - p) & M32, a - b - p < 0), _emit_sub,
    "a - b - borrow, and its borrow",
)  # fmt: skip


def _chain(e: Emitter, m: Match, d: Value, a: Value, b: Value, carry_in: bool) -> None:
    """d = a + b or a - b with the carry flag, a word at a time; `.cc` writes the flag."""
    micro = IADD3_NEG_B if m.form.opcode.startswith("sub") else IADD3_X_CC
    flag: Value = e.carry() if carry_in else PredConst(False)
    result = e.carry() if m.has(".cc") else None
    if m.types[-1].endswith("32"):
        e(micro, (d, result), a, b, flag)
        return
    between = e.tmp("p")
    e(micro, (e.lo(d), between), e.lo(a), e.lo(b), flag)
    e(micro, (e.hi(d), result), e.hi(a), e.hi(b), between)


_SETS: dict[str, tuple[str, ...]] = {"T": (*INT32, *INT64)}


@instruction("add.cc.T d, a, b;", "sub.cc.T d, a, b;", sets=_SETS)
@instruction("addc{.cc}.T d, a, b;", "subc{.cc}.T d, a, b;", sets=_SETS)
def add(e: Emitter, m: Match) -> None:
    """d = a + b or a - b, with the carry or borrow of the instruction before (addc, subc); .cc hands on its own."""
    _chain(e, m, m.d, m.a, m.b, m.form.opcode.endswith("c"))


@instruction("mad.HALF.cc.T d, a, b, c;", sets=_SETS | {"HALF": (".lo", ".hi")})
@instruction("madc.HALF{.cc}.T d, a, b, c;", sets=_SETS | {"HALF": (".lo", ".hi")})
def mad(e: Emitter, m: Match) -> None:
    """d = the low or high half of a * b, plus c and (madc) the carry; .cc hands on the carry of that sum."""
    high, signed = m["HALF"] == "hi", m["T"].startswith("s")
    if m["T"] in INT32:
        product: Value = e.tmp()
        e((IMAD_HI if signed else IMAD_HI_U32) if high else IMAD, product, m.a, m.b, ZERO)
    else:
        product = e.tmp("d")
        if high:
            mul_hi64(e, product, m.a, m.b, signed)
        else:
            mul_lo64(e, product, m.a, m.b)
    _chain(e, m, m.d, product, m.c, m.form.opcode == "madc")
