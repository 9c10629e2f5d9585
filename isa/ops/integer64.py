"""Integer arithmetic in several steps (PTX ISA 9.7.1): 64-bit products, min, max, abs, sad, high halves, add.sat."""

from __future__ import annotations

from isa.ops.compare import GT, ISETP, ISETP_EX, LT, TRUE
from isa.ops.integer import (
    IADD3,
    IADD3_CC,
    IADD3_NEG,
    IADD3_X,
    IMAD,
    IMAD_HI,
    IMAD_WIDE,
    IMAD_WIDE_U32,
    INT16,
    INT32,
    INT64,
    SGXT,
    ZERO,
    ZERO64,
    add64,
    low24,
    sub64,
    widened16,
)
from isa.ops.logic import LOP3_LUT, XOR
from isa.ops.move import MOV, move64
from isa.ops.select import SEL
from isa.ops.shift import SHF_R_S32, SHF_R_U32, SHF_R_U64
from isa.registry import Const, Emitter, Match, Value, instruction

# ---- helpers ------------------------------------------------------------------------------------------


def select64(e: Emitter, p: Value, a: Value, b: Value) -> Value:
    """p ? a : b in a fresh 64-bit register."""
    d = e.tmp("d")
    for half in (e.lo, e.hi):
        e(SEL, half(d), half(a), half(b), p)
    return d


def less64(e: Emitter, a: Value, b: Value, word: str, inverted: bool = False) -> Value:
    """The predicate a < b (or a >= b) of 64-bit integers; `word` is s32 or u32 for the signedness."""
    low, p = e.tmp("p"), e.tmp("p")
    e(ISETP["ge" if inverted else "lt", "u32"], low, e.lo(a), e.lo(b))
    e(ISETP_EX[word], (p, None), e.hi(a), e.hi(b), low, TRUE, imm=GT if inverted else LT)
    return p


def abs64(e: Emitter, a: Value) -> Value:
    """|a| in a fresh register."""
    minus, negative = e.tmp("d"), e.tmp("p")
    sub64(e, minus, ZERO64, a)
    e(ISETP["lt", "s32"], negative, e.hi(a), ZERO)
    return select64(e, negative, minus, a)


def mul_lo64(e: Emitter, d: Value, a: Value, b: Value) -> None:
    """d = the low 64 bits of a * b; d may be an operand."""
    cross, crossed, product = e.tmp(), e.tmp(), e.tmp("d")
    e(IMAD, cross, e.hi(a), e.lo(b), ZERO)
    e(IMAD_WIDE_U32, product, e.lo(a), e.lo(b), ZERO64)
    e(IMAD, crossed, e.lo(a), e.hi(b), cross)
    e(MOV, e.lo(d), e.lo(product))
    e(IADD3, e.hi(d), e.hi(product), crossed)


def mul_hi_u64(e: Emitter, d: Value, a: Value, b: Value) -> None:
    """d = the high 64 bits of the unsigned product: four wide products, each taking the last one's carry word."""
    low, middle, other, high = (e.tmp("d") for _ in range(4))
    e(IMAD_WIDE_U32, low, e.lo(a), e.lo(b), ZERO64)
    e(IMAD_WIDE_U32, middle, e.hi(a), e.lo(b), _word(e, e.hi(low)))
    e(IMAD_WIDE_U32, other, e.lo(a), e.hi(b), _word(e, e.lo(middle)))
    e(IMAD_WIDE_U32, high, e.hi(a), e.hi(b), _word(e, e.hi(middle)))
    carry = e.tmp("p")
    e(IADD3_CC, (e.lo(d), carry), e.lo(high), e.hi(other))
    e(IADD3_X, e.hi(d), e.hi(high), ZERO, carry)


def _word(e: Emitter, x: Value) -> Value:
    """A 32-bit value zero-extended to 64."""
    d = e.tmp("d")
    e(MOV, e.lo(d), x)
    e(MOV, e.hi(d), ZERO)
    return d


# ---- forms --------------------------------------------------------------------------------------------


@instruction("mul.lo.T d, a, b;", "mad.lo.T d, a, b, c;", sets={"T": INT64})
def mul_lo(e: Emitter, m: Match) -> None:
    """d = a * b (+ c), low half."""
    if m.form.opcode == "mul":
        mul_lo64(e, m.d, m.a, m.b)
    else:
        product = e.tmp("d")
        mul_lo64(e, product, m.a, m.b)
        add64(e, m.d, product, m.c)


def mul_hi64(e: Emitter, d: Value, a: Value, b: Value, is_signed: bool) -> None:
    """d = the high half of a * b; the signed product is the unsigned one minus a and b where the other is < 0."""
    result: Value = e.tmp("d")
    mul_hi_u64(e, result, a, b)
    for x, other in ((a, b), (b, a)) if is_signed else ():
        less, negative = e.tmp("d"), e.tmp("p")
        e(ISETP["lt", "s32"], negative, e.hi(other), ZERO)
        sub64(e, less, result, x)
        result = select64(e, negative, less, result)
    move64(e, d, result)


@instruction("mul.hi.T d, a, b;", "mad.hi.T d, a, b, c;", sets={"T": INT64})
def mul_hi(e: Emitter, m: Match) -> None:
    """d = the high half of a * b (+ c)."""
    result = e.tmp("d")
    mul_hi64(e, result, m.a, m.b, m["T"] == "s64")
    if m.form.opcode == "mad":
        add64(e, m.d, result, m.c)
    else:
        move64(e, m.d, result)


@instruction("min.T d, a, b;", "max.T d, a, b;", sets={"T": INT64})
def min_max(e: Emitter, m: Match) -> None:
    """The smaller or larger of a and b."""
    p = less64(e, m.a, m.b, m["T"][0] + "32", inverted=m.form.opcode == "max")
    for half in (e.lo, e.hi):
        e(SEL, half(m.d), half(m.a), half(m.b), p)


@instruction("abs.s64 d, a;")
def absolute(e: Emitter, m: Match) -> None:
    """d = |a|."""
    move64(e, m.d, abs64(e, m.a))


def saturated_sum(e: Emitter, d: Value, a: Value, b: Value, plus: bool = True) -> None:
    """d = a + b or a - b, clamped to s32: the wrapped result's sign tells an overflow."""
    total, overflow, sign, limit, p = e.tmp(), e.tmp(), e.tmp(), e.tmp(), e.tmp("p")
    e(IADD3 if plus else IADD3_NEG, total, a, b)
    # (a ^ total) & (b ^ total), or (a ^ total) & (a ^ b): negative exactly on overflow
    e(LOP3_LUT, overflow, a, b, total, imm=0x42 if plus else 0x18)
    e(SHF_R_S32, sign, a, Const(31))
    e(XOR, limit, sign, Const(0x7FFFFFFF))
    e(ISETP["lt", "s32"], p, overflow, ZERO)
    e(SEL, d, limit, total, p)


@instruction("add.sat.s32 d, a, b;", "sub.sat.s32 d, a, b;")
def add_saturated(e: Emitter, m: Match) -> None:
    """d = a + b or a - b, clamped to the type."""
    saturated_sum(e, m.d, m.a, m.b, m.form.opcode == "add")


@instruction("mad.hi.sat.s32 d, a, b, c;")
def mad_hi_saturated(e: Emitter, m: Match) -> None:
    """d = the high half of a * b, plus c, clamped to the type."""
    high = e.tmp()
    e(IMAD_HI, high, m.a, m.b, ZERO)
    saturated_sum(e, m.d, high, m.c)


@instruction("sad.T d, a, b, c;", sets={"T": INT64})
def sad(e: Emitter, m: Match) -> None:
    """d = |a - b| + c."""
    first, second = e.tmp("d"), e.tmp("d")
    sub64(e, first, m.a, m.b)
    sub64(e, second, m.b, m.a)
    add64(e, m.d, select64(e, less64(e, m.a, m.b, m["T"][0] + "32"), second, first), m.c)


@instruction("mul.hi.T d, a, b;", "mad.hi.T d, a, b, c;", sets={"T": INT16})
def mul_hi16(e: Emitter, m: Match) -> None:
    """d = bits 16..31 of a * b (+ c)."""
    a, b, product = widened16(e, m.a, m["T"]), widened16(e, m.b, m["T"]), e.tmp()
    e(IMAD, product, a, b, ZERO)
    shift = SHF_R_S32 if m["T"] == "s16" else SHF_R_U32
    high = e.tmp() if m.form.opcode == "mad" else m.d
    e(shift, high, product, Const(16))
    if m.form.opcode == "mad":
        e(IADD3, m.d, high, m.c)


@instruction("mul24.hi.T d, a, b;", "mad24.hi.T d, a, b, c;", sets={"T": INT32})
def mul24_hi(e: Emitter, m: Match) -> None:
    """d = bits 16..47 of the 24-bit integers' product (+ c)."""
    (a, b), product = low24(e, m), e.tmp("d")
    e(IMAD_WIDE if m["T"] == "s32" else IMAD_WIDE_U32, product, a, b, ZERO64)
    high = e.tmp() if m.form.opcode == "mad24" else m.d
    e(SHF_R_U64, high, e.lo(product), Const(16), e.hi(product))
    if m.form.opcode == "mad24":
        e(IADD3, m.d, high, m.c)


@instruction("mad24.hi.sat.s32 d, a, b, c;")
def mad24_hi_saturated(e: Emitter, m: Match) -> None:
    """d = bits 16..47 of the 24-bit integers' product, plus c, clamped to the type."""
    a, b = (e.tmp(), e.tmp())
    for x, source in ((a, m.a), (b, m.b)):
        e(SGXT, x, source, Const(24))
    product, high = e.tmp("d"), e.tmp()
    e(IMAD_WIDE, product, a, b, ZERO64)
    e(SHF_R_U64, high, e.lo(product), Const(16), e.hi(product))
    saturated_sum(e, m.d, high, m.c)
