"""Approximate functions (PTX ISA 9.7.3): ex2 lg2 rcp rsqrt sqrt sin cos tanh .approx, and div.approx/.full.

The unit itself is in `isa.mufu`, bit for bit.  Sine and cosine, whose tables are not known, and ex2 in fast mode are
polynomials of the unit's accuracy class with its treatment of NaN, infinities, zeros and subnormals, which it always
flushes; their emission is the definition, and the scalar meaning evaluates it with exact roundings.  What `ptxas`
wraps around the unit without `.ftz` is lowered the same way.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from isa import mufu
from isa.bits import F32, from_fraction
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.compare import FSETP, FSETP_ABS
from isa.ops.float32 import FADD_IF, FMUL, FMUL_ANY, FMUL_FTZ, FMUL_IF, FMUL_IF_FTZ
from isa.ops.select import FSEL
from isa.registry import Const, Emitter, Match, Value, instruction
from isa.scalars import meaning_of
from isa.vectors import NAN32, SIGN32, flush32, nan32

# Coefficients: minimax fits (iteratively reweighted least squares in extended precision), constant term first.
EX2 = (0.6931471824645996, 0.24022647738456726, 0.055503323674201965, 0.00961843691766262, 0.0013398875016719103,
       0.00015353360504377633)  # fmt: skip
ROUNDER = 1.5 * 2.0**23  # adding it leaves the nearest integer in the low bits
TWO_PI, SIN = (
    6.2831854820251465,
    (-2.0823800550573424e-07, -41.341678619384766, 81.60223388671875, -76.57498931884766, 39.71090316772461),
)


def _horner(v: VectorBuilder, x: Any, coefficients: tuple[float, ...]) -> Any:
    result = v.const(coefficients[-1], "f32")
    for c in reversed(coefficients[:-1]):
        result = v.fma(result, x, v.const(c, "f32"))
    return result


def _ex2(v: VectorBuilder, x: Any) -> Any:
    """2^x: the nearest integer goes to the exponent, the rest through the polynomial."""
    top = v.const(128.0, "f32")
    limited = v.select(v.fcmp("<", x, top), x, top)
    shifted = v.fadd(limited, v.const(ROUNDER, "f32"))
    fraction = v.fsub(limited, v.fsub(shifted, v.const(ROUNDER, "f32")))
    mantissa = v.fma(_horner(v, fraction, EX2), fraction, v.const(1.0, "f32"))
    exponent = v.shl(v.bits(shifted, "u32"), v.const(23))
    power = v.bits(v.add(v.bits(mantissa, "u32"), exponent), "f32")
    power = v.select(v.fcmp("<", x, v.const(-126.0, "f32")), v.const(0.0, "f32"), power)
    return v.select(v.isnan(x), v.bits(v.const(NAN32), "f32"), power)


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


def _mufu(name: str, meaning: Any, emit: Any, doc: str, fast: str = "") -> Micro:
    return lane(f"MUFU.{name}", "f->f", "ex2" if name.startswith("EX2") else "mufu", meaning, emit, doc, fast)


# The table costs softmax a fifth of its speed: outside silicon mode a polynomial takes its place.
MUFU_EX2 = _mufu("EX2", mufu.ex2, mufu.ex2_lanes, "2^a; below -126: +0", fast="MUFU.EX2.FAST")
_mufu("EX2.FAST", meaning_of(_ex2), _ex2, "2^a by a polynomial, within 1 ulp of 2^a and 2 of the unit; below -126: +0")
MUFU_LG2 = _mufu("LG2", mufu.lg2, mufu.lg2_lanes, "log2 of a")
MUFU_RCP = _mufu("RCP", mufu.rcp, mufu.rcp_lanes, "1 / a; a result below 2^-126 is a zero")
MUFU_RSQ = _mufu("RSQ", mufu.rsq, mufu.rsq_lanes, "1 / sqrt(a)")
MUFU_SQRT = _mufu("SQRT", mufu.sqrt, mufu.sqrt_lanes, "sqrt(a)")
MUFU_TANH = _mufu("TANH", mufu.tanh, mufu.tanh_lanes, "tanh of a")
MUFU_SIN = _mufu("SIN", meaning_of(_sin), _sin, "sine of a turns (absolute error about 2^-23; the unit's own is 2^-21)")
MUFU_COS = _mufu("COS", meaning_of(_cos), _cos, "cosine of a turns")

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
