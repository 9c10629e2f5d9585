"""Emission helpers: the vector twins of `isa.bits` that several families share.

Everything here is built from the operations of `isa.micro.VectorBuilder`; `x` and the results are vectors.
"""

from __future__ import annotations

from typing import Any

from isa.bits import F64, Format
from isa.micro import VectorBuilder

SIGN32, ABS32, INF32, NAN32 = 0x80000000, 0x7FFFFFFF, 0x7F800000, 0x7FFFFFFF
TWO_50, TWO_100 = 2.0**50, 2.0**100


def flush32(v: VectorBuilder, x: Any) -> Any:
    """f32: subnormals to zeros of their sign."""
    bits = v.bits(x, "u32")
    exponent = v.and_(bits, v.const(INF32))
    zero = v.and_(bits, v.const(SIGN32))
    return v.bits(v.select(v.icmp("==", exponent, v.const(0)), zero, bits), "f32")


def nan32(v: VectorBuilder, r: Any) -> Any:
    """f32: any NaN to the canonical 0x7fffffff."""
    return v.bits(v.select(v.isnan(r), v.const(NAN32), v.bits(r, "u32")), "f32")


def flush32_tiny(v: VectorBuilder, r: Any, scaled: Any) -> Any:
    """The `.ftz` result rule for products.

    `scaled` is the result times 2^100, rounded with room below 2^-126: the comparison sees the value rounded to
    24 bits as if the exponent had no lower limit.
    """
    tiny = v.fcmp("<", v.fabs(scaled), v.const(2.0**-26, "f32"))
    zero = v.and_(v.bits(r, "u32"), v.const(SIGN32))
    return v.bits(v.select(tiny, zero, v.bits(r, "u32")), "f32")


def saturate32(v: VectorBuilder, r: Any) -> Any:
    """f32: clamp to [+0, 1]; NaN and -0 give +0."""
    one = v.const(1.0, "f32")
    positive = v.select(v.fcmp(">", r, v.const(0.0, "f32")), r, v.const(0.0, "f32"))
    return v.select(v.fcmp(">", positive, one), one, positive)


def half_lanes(v: VectorBuilder, x: Any, type: str, ftz: bool = False) -> Any:
    """The low 16-bit half of each lane, widened exactly to f32 (`type` is f16 or bf16)."""
    if type == "bf16":
        return v.bits(v.shl(x, v.const(16)), "f32")
    wide = v.fext(v.bits(v.trunc(x, "u16"), "f16"), "f32")
    if not ftz:
        return wide
    tiny = v.fcmp("<", v.fabs(wide), v.const(2.0**-14, "f32"))
    return v.select(tiny, v.bits(v.and_(v.bits(wide, "u32"), v.const(SIGN32)), "f32"), wide)


def two_sum(v: VectorBuilder, x: Any, y: Any) -> tuple[Any, Any]:
    """s, err with s + err = x + y exactly, s rounded to nearest (Knuth)."""
    s = v.fadd(x, y)
    t = v.fsub(s, x)
    return s, v.fadd(v.fsub(x, v.fsub(s, t)), v.fsub(y, t))


def add_odd(v: VectorBuilder, x: Any, y: Any, width: str) -> Any:
    """x + y rounded to odd (f32 or f64): a later rounding to fewer bits then sees the exact sum."""
    s, err = two_sum(v, x, y)
    bits, integer = v.bits(s, width), width
    zero = v.const(0, integer)
    even = v.icmp("==", v.and_(bits, v.const(1, integer)), zero)
    inexact = v.fcmp("!=", err, v.const(0.0, width.replace("u", "f")))
    outward = v.icmp(">=", v.xor(bits, v.bits(err, integer)), zero, signed=True)
    step = v.select(outward, v.const(1, integer), v.const(-1, integer))
    adjusted = v.add(bits, v.select(v.and_(even, inexact), step, zero))
    return v.bits(adjusted, width.replace("u", "f"))


def directed32(v: VectorBuilder, mode: str, s: Any, err: Any, zero: Any, ftz: Any) -> Any:
    """The f64 sum s + err (err at most half a unit of s) rounded once to f32 in `mode` rz, rm or rp.

    `zero` holds f32 bits whose sign an exact zero takes; `ftz` is a condition: flush what is below 2^-126 after
    rounding as if the exponent had no lower limit.
    """
    none = v.const(0.0, "f64")
    nearest = v.ftrunc(s, "f32")
    bits = v.bits(nearest, "u32")
    off = v.fsub(s, v.fext(nearest, "f64"))
    rest = v.select(v.fcmp("==", off, none), err, off)  # the sign of exact - nearest
    below, above = v.fcmp("<", rest, none), v.fcmp(">", rest, none)
    negative = v.icmp("<", bits, v.const(0), signed=True)
    if mode == "rz":
        toward = v.select(negative, above, below)
        bits = v.select(toward, v.sub(bits, v.const(1)), bits)
    elif mode == "rm":
        bits = v.select(below, v.select(negative, v.add(bits, v.const(1)), v.sub(bits, v.const(1))), bits)
    else:
        bits = v.select(above, v.select(negative, v.sub(bits, v.const(1)), v.add(bits, v.const(1))), bits)
    bits = v.select(v.fcmp("==", s, none), v.and_(zero, v.const(SIGN32)), bits)
    size, limit = v.fabs(s), v.const(2.0**-126 - 2.0**-150, "f64")
    outward = v.fcmp(">", v.select(v.fcmp("<", s, none), v.fneg(err), err), none)
    tiny = v.or_(v.fcmp("<", size, limit), v.and_(v.fcmp("==", size, limit), v.not_(outward)))
    tiny = v.or_(tiny, v.fcmp("<", v.fabs(v.bits(bits, "f32")), v.const(2.0**-126, "f32")))
    flushed = v.select(tiny, v.and_(bits, v.const(SIGN32)), bits)
    return nan32(v, v.bits(v.select(ftz, flushed, bits), "f32"))


def pack(v: VectorBuilder, f: Format, sign: Any, m: Any, drop: Any, biased: Any, imm: Any) -> Any:
    """u64 lanes of format f from an exact number, rounded once in the mode of `imm` bits 0..1.

    `sign` is a predicate, `m` < 2^62 the significand, `biased` its exponent field in f when its lowest `drop` bits
    (at least 1) leave f.fraction + 1 bits; fields below 1 become subnormal here.
    """
    one, zero = v.const(1, "u64"), v.const(0, "u64")
    deficit = v.call("smax", v.sub(one, biased), zero)
    drop = v.call("umin", v.add(drop, deficit), v.const(63, "u64"))
    biased = v.call("smax", biased, one)
    kept, half = v.lshr(m, drop), v.shl(one, v.sub(drop, one))
    rest = v.and_(m, v.sub(v.shl(one, drop), one))
    odd = v.icmp("!=", v.and_(kept, one), zero)
    nearest = v.or_(v.icmp(">", rest, half), v.and_(v.icmp("==", rest, half), odd))
    false = v.const(0, "pred")
    directed = v.select(v.flag(imm, 1), v.select(v.flag(imm, 0), v.not_(sign), sign), false)  # away from zero
    up = v.select(v.flag(imm, 1), v.and_(directed, v.icmp("!=", rest, zero)), v.select(v.flag(imm, 0), false, nearest))
    result = v.add(v.add(kept, v.cast_pred(up, "u64")), v.shl(v.sub(biased, one), v.const(f.fraction, "u64")))
    outward = v.select(v.flag(imm, 1), directed, v.select(v.flag(imm, 0), false, v.const(1, "pred")))
    limit = v.select(outward, v.const(f.inf, "u64"), v.const(f.largest, "u64"))
    result = v.select(v.icmp(">=", result, v.const(f.inf, "u64")), limit, result)
    return v.or_(result, v.select(sign, v.const(f.sign, "u64"), zero))


def narrow(v: VectorBuilder, f: Format, x: Any, imm: Any) -> Any:
    """The f64 value x in a narrower format f (u64 lanes), rounded once in the mode of `imm`."""
    bits = v.bits(x, "u64")
    sign = v.icmp("<", bits, v.const(0, "u64"), signed=True)
    exponent = v.and_(v.lshr(bits, v.const(52, "u64")), v.const(0x7FF, "u64"))
    normal = v.icmp("!=", exponent, v.const(0, "u64"))
    m = v.and_(bits, v.const((1 << 52) - 1, "u64"))
    m = v.or_(m, v.shl(v.cast_pred(normal, "u64"), v.const(52, "u64")))
    biased = v.add(exponent, v.const(f.bias - F64.bias, "u64"))
    result = pack(v, f, sign, m, v.const(52 - f.fraction, "u64"), biased, imm)
    infinite = v.icmp("==", v.and_(bits, v.const(F64.sign - 1, "u64")), v.const(F64.inf, "u64"))
    signed_inf = v.or_(v.const(f.inf, "u64"), v.select(sign, v.const(f.sign, "u64"), v.const(0, "u64")))
    return v.select(v.isnan(x), v.const(f.nan, "u64"), v.select(infinite, signed_inf, result))


def pack_any(v: VectorBuilder, f: Format, sign: Any, m: Any, exponent: Any, imm: Any) -> Any:
    """u64 lanes of format f from m * 2^exponent (m unsigned, 0 gives 0), rounded once in the mode of `imm`.

    A significand that ends in a sticky bit is exact enough when it has two bits more than the format.
    """
    empty = v.call("ctlz", m)
    top = v.shl(m, v.and_(empty, v.const(63, "u64")))
    lost = v.icmp("!=", v.and_(top, v.const(3, "u64")), v.const(0, "u64"))
    top = v.or_(v.lshr(top, v.const(2, "u64")), v.cast_pred(lost, "u64"))
    biased = v.add(exponent, v.sub(v.const(f.bias + 63, "u64"), empty))
    result = pack(v, f, sign, top, v.const(61 - f.fraction, "u64"), biased, imm)
    return v.select(v.icmp("==", m, v.const(0, "u64")), v.const(0, "u64"), result)


def from_integer(v: VectorBuilder, f: Format, x: Any, signed: bool, imm: Any) -> Any:
    """A u64 or s64 integer in format f (u64 lanes), rounded once in the mode of `imm`."""
    zero = v.const(0, "u64")
    sign = v.icmp("<", x, zero, signed=True) if signed else v.const(0, "pred")
    return pack_any(v, f, sign, v.select(sign, v.sub(zero, x), x), zero, imm)
