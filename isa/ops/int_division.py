"""Integer division and remainder (PTX ISA 9.7.1): the sequences that `ptxas` writes.

The special function unit gives a reciprocal that never exceeds the true one after its conversion, one Newton step in
integers makes it good to about 2^-32, and at most two corrections make the quotient exact.  A zero divisor gives
all ones for both.
"""

from __future__ import annotations

from isa.bits import M32, M64
from isa.ops.compare import ISETP
from isa.ops.convert import widened
from isa.ops.integer import (
    IABS,
    IADD3,
    IADD3_IF,
    IADD3_NEG,
    IADD3_NEG_IF,
    IMAD,
    IMAD_HI_U32,
    ZERO64,
    add64,
    sub64,
)
from isa.ops.integer64 import abs64, less64, mul_hi_u64, mul_lo64, select64
from isa.ops.logic import OR, XOR
from isa.ops.move import move64
from isa.ops.rounding import F2I, I2F
from isa.ops.select import SEL
from isa.ops.special_functions import MUFU_RCP
from isa.registry import Const, Emitter, Match, Value, instruction

ZERO, ONES = Const(0), Const(M32)
ROUND_UP, TRUNCATE_FTZ = 3, 1 | 4


def divide_u32(e: Emitter, a: Value, b: Value) -> tuple[Value, Value]:
    """Quotient and remainder of unsigned 32-bit integers, before the zero divisor is looked at."""
    single, inverse, lowered, estimate = (e.tmp() for _ in range(4))
    e(I2F["f32", "u32"], single, b, imm=ROUND_UP)
    e(MUFU_RCP, inverse, single)
    e(IADD3, lowered, inverse, Const(0x0FFFFFFE))  # times 2^32, two units down
    e(F2I["f32", "u32"], estimate, lowered, imm=TRUNCATE_FTZ)
    minus, error, better, q, r = (e.tmp() for _ in range(5))
    e(IADD3_NEG, minus, ZERO, b)
    e(IMAD, error, minus, estimate, ZERO)
    e(IMAD_HI_U32, better, estimate, error, estimate)
    e(IMAD_HI_U32, q, better, a, ZERO)
    e(IMAD, r, q, minus, a)
    for _ in range(2):
        over, next_q, next_r = e.tmp("p"), e.tmp(), e.tmp()
        e(ISETP["ge", "u32"], over, r, b)
        e(IADD3_IF, next_q, q, Const(1), over)
        e(IADD3_NEG_IF, next_r, r, b, over)
        q, r = next_q, next_r
    return q, r


def _small(e: Emitter, m: Match, d: Value, a: Value, b: Value, is_signed: bool) -> None:
    """div or rem of 32-bit values."""
    nonzero = e.tmp("p")
    e(ISETP["ne", "u32"], nonzero, b, ZERO)
    x, y = a, b
    if is_signed:
        x, y = e.tmp(), e.tmp()
        e(IABS, x, a)
        e(IABS, y, b)
    result: Value = divide_u32(e, x, y)[m.form.opcode == "rem"]
    if is_signed:
        sign, negative, minus = e.tmp(), e.tmp("p"), e.tmp()
        if m.form.opcode == "div":
            e(XOR, sign, a, b)
        e(ISETP["lt", "s32"], negative, sign if m.form.opcode == "div" else a, ZERO)
        e(IADD3_NEG, minus, ZERO, result)
        signed_result = e.tmp()
        e(SEL, signed_result, minus, result, negative)
        result = signed_result
    e(SEL, d, result, ONES, nonzero)


@instruction(*(f"{op}.T d, a, b;" for op in ("div", "rem")), sets={"T": ("u32", "s32", "u16", "s16")})
def divide(e: Emitter, m: Match) -> None:
    """Quotient toward zero, or the remainder with the dividend's sign."""
    is_signed = m["T"][0] == "s"
    _small(e, m, m.d, widened(e, m.a, m["T"]), widened(e, m.b, m["T"]), is_signed)


# ---- 64 bits ----------------------------------------------------------------------------------------


def divide_u64(e: Emitter, a: Value, b: Value) -> tuple[Value, Value]:
    """Quotient and remainder of unsigned 64-bit integers, before the zero divisor is looked at."""
    single, inverse, lowered = (e.tmp() for _ in range(3))
    minus, guess, first_q, product, first_r = (e.tmp("d") for _ in range(5))
    e(I2F["f32", "u64"], single, b, imm=ROUND_UP)
    e(MUFU_RCP, inverse, single)
    e(IADD3, lowered, inverse, Const(0x1FFFFFFE))  # times 2^64, two units down
    e(F2I["f32", "u64"], guess, lowered, imm=TRUNCATE_FTZ)
    sub64(e, minus, ZERO64, b)
    for _ in range(2):
        error, step, better = (e.tmp("d") for _ in range(3))
        mul_lo64(e, error, minus, guess)
        mul_hi_u64(e, step, guess, error)
        add64(e, better, guess, step)
        guess = better
    mul_hi_u64(e, first_q, guess, a)
    mul_lo64(e, product, first_q, b)
    sub64(e, first_r, a, product)
    q: Value = first_q
    r: Value = first_r
    for _ in range(2):
        over, more, less = less64(e, r, b, "u32", inverted=True), e.tmp("d"), e.tmp("d")
        add64(e, more, q, Const(1, "d"))
        sub64(e, less, r, b)
        q, r = select64(e, over, more, q), select64(e, over, less, r)
    return q, r


@instruction(*(f"{op}.T d, a, b;" for op in ("div", "rem")), sets={"T": ("u64", "s64")})
def divide64(e: Emitter, m: Match) -> None:
    """64-bit quotient or remainder; `ptxas` calls a routine with these steps, here they are in line."""
    a, b, remainder = m.a, m.b, m.form.opcode == "rem"
    either, nonzero = e.tmp(), e.tmp("p")
    e(OR, either, e.lo(b), e.hi(b))
    e(ISETP["ne", "u32"], nonzero, either, ZERO)
    if m["T"] == "s64":
        sign, negative, minus = e.tmp(), e.tmp("p"), e.tmp("d")
        e(XOR, sign, e.hi(a), ZERO if remainder else e.hi(b))
        e(ISETP["lt", "s32"], negative, sign, ZERO)
        result: Value = divide_u64(e, abs64(e, a), abs64(e, b))[remainder]
        sub64(e, minus, ZERO64, result)
        result = select64(e, negative, minus, result)
    else:
        result = divide_u64(e, a, b)[remainder]
    move64(e, m.d, select64(e, nonzero, result, Const(M64, "d")))
