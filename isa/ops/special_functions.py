"""Approximate functions (PTX ISA 9.7.3): ex2 lg2 rcp rsqrt sqrt sin cos tanh .approx, and div.approx/.full.

The special function unit interpolates in tables.  Here each function is a polynomial of the same accuracy class
(at most 1 ulp from the true value; tanh and sin as documented below) with the unit's own treatment of NaN,
infinities, zeros and subnormals, which it always flushes.  The emission is the definition: the scalar meaning
evaluates it with exact roundings.  What `ptxas` wraps around the unit without `.ftz` is lowered the same way.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from isa.bits import F32, from_fraction
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.compare import FSETP, FSETP_ABS
from isa.ops.float32 import FADD_IF, FMUL, FMUL_ANY, FMUL_FTZ, FMUL_IF, FMUL_IF_FTZ
from isa.ops.select import FSEL
from isa.registry import Const, Emitter, Match, Value, instruction
from isa.scalars import meaning_of
from isa.vectors import ABS32, INF32, NAN32, SIGN32, flush32, nan32

# Coefficients: minimax fits (iteratively reweighted least squares in extended precision), constant term first.
EX2 = (0.6931471824645996, 0.24022647738456726, 0.055503323674201965, 0.00961843691766262, 0.0013398875016719103,
       0.00015353360504377633)  # fmt: skip
LG2 = (-0.7213473320007324, 0.4808982312679291, -0.3606966733932495, 0.28856778144836426, -0.23961684107780457,
       0.20459428429603577, -0.19106289744377136, 0.18621398508548737, -0.1099935993552208)  # fmt: skip
TWO_PI, SIN = (
    6.2831854820251465,
    (-2.0823800550573424e-07, -41.341678619384766, 81.60223388671875, -76.57498931884766, 39.71090316772461),
)
TANH = (-0.33333298563957214, 0.13331924378871918, -0.053783826529979706, 0.02079596184194088, -0.005895146634429693)
ROUNDER = 1.5 * 2.0**23  # adding it leaves the nearest integer in the low bits
LOG2_E, LOG2_E_LOW = 1.4426950216293335, 1.925963033500011579e-8
SQRT_HALF = 0x3F3504F3


def _horner(v: VectorBuilder, x: Any, coefficients: tuple[float, ...]) -> Any:
    result = v.const(coefficients[-1], "f32")
    for c in reversed(coefficients[:-1]):
        result = v.fma(result, x, v.const(c, "f32"))
    return result


def _exp2(v: VectorBuilder, x: Any) -> Any:
    """2^x for -126 <= x <= 128: the nearest integer goes to the exponent, the rest through the polynomial."""
    shifted = v.fadd(x, v.const(ROUNDER, "f32"))
    fraction = v.fsub(x, v.fsub(shifted, v.const(ROUNDER, "f32")))
    mantissa = v.fma(_horner(v, fraction, EX2), fraction, v.const(1.0, "f32"))
    exponent = v.shl(v.bits(shifted, "u32"), v.const(23))
    return v.bits(v.add(v.bits(mantissa, "u32"), exponent), "f32")


def _ex2(v: VectorBuilder, x: Any) -> Any:
    top = v.const(128.0, "f32")
    power = _exp2(v, v.select(v.fcmp("<", x, top), x, top))
    power = v.select(v.fcmp("<", x, v.const(-126.0, "f32")), v.const(0.0, "f32"), power)
    return v.select(v.isnan(x), v.bits(v.const(NAN32), "f32"), power)


def _lg2(v: VectorBuilder, x: Any) -> Any:
    bits = v.bits(x, "u32")
    exponent = v.ashr(v.sub(bits, v.const(SQRT_HALF)), v.const(23))
    mantissa = v.bits(v.sub(bits, v.shl(exponent, v.const(23))), "f32")
    f = v.fsub(mantissa, v.const(1.0, "f32"))
    tail = v.fma(v.fmul(f, f), _horner(v, f, LG2), v.fmul(f, v.const(LOG2_E_LOW, "f32")))
    log = v.fadd(v.fma(f, v.const(LOG2_E, "f32"), tail), v.from_int(exponent, "f32", True))
    log = v.select(v.icmp(">=", bits, v.const(INF32)), x, log)  # +inf and NaN; negative x are NaN next
    small = v.icmp("==", v.and_(bits, v.const(INF32)), v.const(0))
    negative = v.fcmp("<", x, v.const(0.0, "f32"))
    log = v.select(negative, v.bits(v.const(NAN32), "f32"), log)
    return v.select(small, v.const(float("-inf"), "f32"), nan32(v, log))


def _rcp(v: VectorBuilder, x: Any) -> Any:
    return nan32(v, flush32(v, v.fdiv(v.const(1.0, "f32"), flush32(v, x))))


def _rsqrt(v: VectorBuilder, x: Any) -> Any:
    x = flush32(v, x)
    y = v.fdiv(v.const(1.0, "f32"), v.call("sqrt", x))
    h = v.fmul(x, y)  # one Newton step with the product's rounding error
    error = v.fma(v.fneg(h), y, v.const(1.0, "f32"))
    error = v.fma(v.fneg(v.fma(x, y, v.fneg(h))), y, error)
    refined = v.fma(v.fmul(y, v.const(0.5, "f32")), error, y)
    size = v.and_(v.bits(x, "u32"), v.const(ABS32))
    special = v.icmp(">=", v.sub(size, v.const(1)), v.const(INF32 - 1))  # zeros, infinities, NaN
    return nan32(v, v.select(special, y, refined))


def _sqrt(v: VectorBuilder, x: Any) -> Any:
    return nan32(v, v.call("sqrt", flush32(v, x)))


def _turn(v: VectorBuilder, x: Any) -> Any:
    """x turns without whole turns, in [-0.5, 0.5]."""
    return v.fsub(x, v.call("rint", x))


def _sine(v: VectorBuilder, r: Any) -> Any:
    """sin(2 pi r) for |r| <= 0.25."""
    return v.fma(r, v.const(TWO_PI, "f32"), v.fmul(r, _horner(v, v.fmul(r, r), SIN)))


def _sin(v: VectorBuilder, x: Any) -> Any:
    r = _turn(v, flush32(v, x))
    size, sign = v.fabs(r), v.and_(v.bits(r, "u32"), v.const(SIGN32))
    folded = v.fsub(v.const(0.5, "f32"), size)
    nearer = v.select(v.fcmp("<", folded, size), folded, size)
    signed = v.bits(v.or_(v.bits(nearer, "u32"), sign), "f32")
    return nan32(v, flush32(v, _sine(v, signed)))


def _cos(v: VectorBuilder, x: Any) -> Any:
    size = v.fabs(_turn(v, flush32(v, x)))
    return nan32(v, _sine(v, v.fsub(v.const(0.25, "f32"), size)))


def _tanh(v: VectorBuilder, x: Any) -> Any:
    size, eight = v.fabs(x), v.const(8.0, "f32")
    limited = v.select(v.fcmp("<", size, eight), size, eight)
    power = _exp2(v, v.fmul(limited, v.const(2 * LOG2_E, "f32")))
    one = v.const(1.0, "f32")
    large = v.fsub(one, v.fdiv(v.const(2.0, "f32"), v.fadd(power, one)))
    large = v.select(v.fcmp("<", size, eight), large, one)
    square = v.fmul(x, x)
    small = v.fma(v.fmul(size, square), _horner(v, square, TANH), size)
    result = v.select(v.fcmp("<", size, v.const(0.6, "f32")), small, large)
    result = v.select(v.fcmp("<", size, v.const(2.0**-8, "f32")), size, result)
    sign = v.and_(v.bits(x, "u32"), v.const(SIGN32))
    signed = v.bits(v.or_(v.bits(result, "u32"), sign), "f32")
    return v.select(v.isnan(x), v.bits(v.const(NAN32), "f32"), signed)


def _mufu(name: str, emit: Any, doc: str) -> Micro:
    return lane(f"MUFU.{name}", "f->f", "mufu", meaning_of(emit), emit, doc)


MUFU_EX2 = _mufu("EX2", _ex2, "2^a; below -126: +0")
MUFU_LG2 = _mufu("LG2", _lg2, "log2 of a")
MUFU_RCP = _mufu("RCP", _rcp, "1 / a; a result below 2^-126 is a zero")
MUFU_RSQ = _mufu("RSQ", _rsqrt, "1 / sqrt(a)")
MUFU_SQRT = _mufu("SQRT", _sqrt, "sqrt(a)")
MUFU_SIN = _mufu("SIN", _sin, "sine of a turns (absolute error about 2^-23; the unit's own is 2^-21)")
MUFU_COS = _mufu("COS", _cos, "cosine of a turns")
MUFU_TANH = _mufu("TANH", _tanh, "tanh of a (within 4 ulp; the unit's own relative error is 2^-11)")

# ---- lowering -------------------------------------------------------------------------------------


def f32(value: float) -> Const:
    """A constant of the given value, which must be an f32."""
    return Const(from_fraction(F32, Fraction(value)))


SCALE, TINY, HUGE = f32(2.0**24), f32(2.0**-126), f32(2.0**126)


def magnitude_is(e: Emitter, cmp: str, a: Value, limit: Const) -> Value:
    """The predicate |a| CMP limit."""
    p = e.tmp("p")
    e(FSETP_ABS[cmp], p, a, limit)
    return p


def scaled(e: Emitter, a: Value, op: Micro, d: Value, correction: Any) -> None:
    """Without .ftz: a subnormal a goes in times 2^24 and the result is corrected."""
    tiny, x, y = magnitude_is(e, "lt", a, TINY), e.tmp(), e.tmp()
    e(FMUL_IF, x, a, SCALE, tiny)
    e(op, y, x)
    correct, by = correction
    e(correct, d, y, by, tiny)


@instruction("ex2.approx{.ftz}.f32 d, a;")
def ex2(e: Emitter, m: Match) -> None:
    """d = 2^a.  Without .ftz, a below -126 is halved and the result squared."""
    if m.has(".ftz"):
        e(MUFU_EX2, m.d, m.a)
        return
    low, x, y = e.tmp("p"), e.tmp(), e.tmp()
    e(FSETP["lt", False], low, m.a, f32(-126.0))
    e(FMUL_IF, x, m.a, f32(0.5), low)
    e(MUFU_EX2, y, x)
    e(FMUL_IF, m.d, y, y, low)


@instruction("lg2.approx{.ftz}.f32 d, a;")
def lg2(e: Emitter, m: Match) -> None:
    """d = log2(a)."""
    if m.has(".ftz"):
        e(MUFU_LG2, m.d, m.a)
    else:
        scaled(e, m.a, MUFU_LG2, m.d, (FADD_IF, f32(-24.0)))


@instruction("rsqrt.approx{.ftz}.f32 d, a;")
def rsqrt(e: Emitter, m: Match) -> None:
    """d = 1 / sqrt(a)."""
    if m.has(".ftz"):
        e(MUFU_RSQ, m.d, m.a)
    else:
        scaled(e, m.a, MUFU_RSQ, m.d, (FMUL_IF, f32(2.0**12)))


@instruction("sqrt.approx{.ftz}.f32 d, a;")
def sqrt(e: Emitter, m: Match) -> None:
    """d = sqrt(a)."""
    if m.has(".ftz"):
        e(MUFU_SQRT, m.d, m.a)
    else:
        scaled(e, m.a, MUFU_SQRT, m.d, (FMUL_IF, f32(2.0**-12)))


@instruction("rcp.approx{.ftz}.f32 d, a;")
def rcp(e: Emitter, m: Match) -> None:
    """d = 1 / a.  Without .ftz, tiny a goes in times 2^24 and huge a times 0.25, and so does the result."""
    if m.has(".ftz"):
        e(MUFU_RCP, m.d, m.a)
        return
    factor, x, y = e.tmp(), e.tmp(), e.tmp()
    e(FSEL, factor, SCALE, f32(1.0), magnitude_is(e, "lt", m.a, TINY))
    e(FSEL, factor, f32(0.25), factor, magnitude_is(e, "gt", m.a, HUGE))
    e(FMUL, x, m.a, factor)
    e(MUFU_RCP, y, x)
    e(FMUL, m.d, factor, y)


@instruction("sin.approx{.ftz}.f32 d, a;", "cos.approx{.ftz}.f32 d, a;")
def sin_cos(e: Emitter, m: Match) -> None:
    """d = sin(a) or cos(a): the unit works in turns."""
    turns = e.tmp()
    e(FMUL_ANY["rz"], turns, m.a, Const(0x3E22F983))
    e(MUFU_SIN if m.form.opcode == "sin" else MUFU_COS, m.d, turns)


@instruction("tanh.approx.f32 d, a;")
def tanh(e: Emitter, m: Match) -> None:
    """d = tanh(a)."""
    e(MUFU_TANH, m.d, m.a)


@instruction("div.full{.ftz}.f32 d, a, b;", "div.approx{.ftz}.f32 d, a, b;")
def div(e: Emitter, m: Match) -> None:
    """d = a / b through the reciprocal; .full also scales huge divisors (recorded on an H200)."""
    ftz, a, b = m.has(".ftz"), m.a, m.b
    steps = [(magnitude_is(e, "gt", b, HUGE), f32(0.25))] if m.has(".full") else []
    steps += [] if ftz else [(magnitude_is(e, "lt", b, TINY), SCALE)]
    for p, factor in steps:
        scaled_a, scaled_b = e.tmp(), e.tmp()
        for result, x in ((scaled_b, b), (scaled_a, a)):
            e(FMUL_IF_FTZ if ftz else FMUL_IF, result, x, factor, p)
        a, b = scaled_a, scaled_b
    y = e.tmp()
    e(MUFU_RCP, y, b)
    e(FMUL_FTZ if ftz else FMUL, m.d, a, y)
