"""The special function unit (MUFU), bit for bit: ex2, lg2, rcp, rsqrt, sqrt and tanh of f32.

All are one datapath: piecewise quadratics in fixed point, truncated once (the interpolator of Oberman and Siu,
ARITH-17, 2005).  Segment and offset x come from the fraction's bits; the square drops its low columns:
    P = K + A x + B q(x),   q(x) = (the partial products of x^2 in the columns from `cut` on) >> cut
Coefficients (`isa.mufu_tables`), columns and the treatment of special values were measured on an H200 and hold for
every one of the 2^32 inputs.

Scalar meanings follow the formula in plain integers.  Vectors use that the two (rcp: one) lowest bits of x never
reach q, so that x = 15 high bits and a few low ones fit 32-bit arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isa import mufu_tables as tables
from isa.bits import F32, M32, is_nan
from isa.micro import VectorBuilder
from isa.vectors import ABS32, INF32, NAN32, SIGN32

FRACTION, TOP = (1 << 23) - 1, 1 << 23
SQUARE_BITS = 15  # bits of x that reach the squarer


@dataclass(frozen=True)
class Table:
    """Segments (C, A, B) of 2^bits arguments; K = C << unit | constant."""

    rows: tuple[tuple[int, int, int], ...]
    bits: int
    unit: int
    constant: int

    def polynomial(self, m: int) -> int:
        """P of the fraction's bits (rsqrt, sqrt: with the exponent's lowest bit before them)."""
        c, a, b = self.rows[(m >> self.bits) % len(self.rows)]
        x = m & (1 << self.bits) - 1
        return (c << self.unit | self.constant) + a * x + b * square(x >> self.bits - SQUARE_BITS)

    @property
    def words(self) -> tuple[int, ...]:
        """A row as the vectors look it up: C, then A and the 13 bits of B."""
        return tuple(c | (a << 13 & M32 | b & 0x1FFF) << 32 for c, a, b in self.rows)


EX2 = Table(tables.EX2, 17, 13, 6114)
LG2 = Table(tables.LG2, 17, 12, 837)
RCP = Table(tables.RCP, 16, 13, 2023)
RSQ = Table(tables.RSQ, 17, 14, 16383)
SQRT = Table(tables.SQRT, 17, 15, 32767)
# tanh: its rows spread over 16 segments a binade: K, and A, B and the bits dropped of m.
_SPREAD = [(drop, rows[s * len(rows) // 16]) for drop, rows in tables.TANH for s in range(16)]
TANH_K = tuple(row[0] for _, row in _SPREAD)
TANH_AB = tuple(row[1] << 24 | (row[2] & 0x1FFFFF) << 3 | drop for drop, row in _SPREAD)


def square(y: int) -> int:
    """q of the 15 bits that reach the squarer: partial products below column 15 are missing."""
    high = y >> 7
    return (high * high >> 1) + sum(y >> 14 - i for i in range(7) if y >> i & 1)


# ---- scalar meanings ------------------------------------------------------------------------------


def ex2(a: int) -> int:
    """2^a: bits of a below 2^-23 are dropped, a negative fraction is complemented, results below 2^-126 are +0."""
    if is_nan(F32, a):
        return F32.nan
    field, m = a >> 23 & 255, a & FRACTION | TOP
    fixed = m << min(field - 127, 9) if field >= 127 else m >> min(127 - field, 24)
    if a & SIGN32:
        fixed = ~fixed if fixed & FRACTION else -fixed
    exponent, fraction = 127 + (fixed >> 23), fixed & FRACTION
    if exponent >= 255:
        return F32.inf
    return exponent << 23 | EX2.polynomial(fraction) >> 15 if exponent > 0 else 0


def lg2(a: int) -> int:
    """log2(a), in units of 2^-36; negative values by complement; truncated to 24 bits."""
    field = a >> 23 & 255
    if is_nan(F32, a) or (a & SIGN32 and field):
        return F32.nan
    if field in (0, 255):
        return F32.inf if field else F32.inf | SIGN32
    if a == F32.one:
        return 0
    value = (field - 127 << 36) + (LG2.polynomial(a & FRACTION) >> 2)
    return truncated(~value if value < 0 else value, -36) | (SIGN32 if value < 0 else 0)


def truncated(value: int, exponent: int) -> int:
    """value * 2^exponent, positive and in the normal range, truncated to f32."""
    drop = value.bit_length() - 24
    kept = value >> drop if drop > 0 else value << -drop
    return kept - TOP | exponent + drop + 150 << 23


def rcp(a: int) -> int:
    """1 / a; subnormals are zeros, results below 2^-126 too."""
    sign, field = a & SIGN32, a >> 23 & 255
    if is_nan(F32, a):
        return F32.nan
    if field == 0:
        return sign | F32.inf
    result = (252 - field << 23) + (RCP.polynomial(a & FRACTION) >> 15)
    return sign | result if result >= TOP else sign


def rsq(a: int) -> int:
    """1 / sqrt(a); a power of four gives the exact power of two."""
    field = a >> 23 & 255
    if is_nan(F32, a) or (a & SIGN32 and field):
        return F32.nan
    if field in (0, 255):
        return 0 if field else a & SIGN32 | F32.inf
    exact = a & (FRACTION | TOP) == TOP
    return (125 - (field - 127 >> 1) << 23) + (RSQ.polynomial(a & (FRACTION | TOP)) >> 16) + exact


def sqrt(a: int) -> int:
    """sqrt(a), from a table of its own."""
    field = a >> 23 & 255
    if is_nan(F32, a) or (a & SIGN32 and field):
        return F32.nan
    if field in (0, 255):
        return a if field else a & SIGN32
    return (126 + (field - 127 >> 1) << 23) + (SQRT.polynomial(a & (FRACTION | TOP)) >> 17)


def tanh(a: int) -> int:
    """tanh(a): a itself below 2^-8 (subnormals too), 1 from 8 on; truncated to 24 bits."""
    sign, size = a & SIGN32, a & ABS32
    if is_nan(F32, a):
        return F32.nan
    place = (size >> 23) - 119
    if place < 0:
        return a
    if place > 10:
        return sign | F32.one
    drop, rows = tables.TANH[place]
    t = (a & FRACTION) >> drop
    k, slope, curve = rows[t >> 17]
    x = t & 0x1FFFF
    return sign | truncated(k + slope * x + curve * square(x >> 2), -42)


# ---- vectors --------------------------------------------------------------------------------------


def square_lanes(v: VectorBuilder, y: Any) -> Any:
    """`square` of u32 lanes: 16-bit lanes, where the high half of a product is one instruction."""
    short = v.trunc(y, "u16")
    twice = v.add(short, short)
    high = v.lshr(short, v.const(7, "u16"))
    total = v.lshr(v.mul(high, high), v.const(1, "u16"))
    wide = v.zext(twice, "u32")
    for i in range(7):
        bit = v.zext(v.and_(twice, v.const(2 << i, "u16")), "u32")
        total = v.add(total, v.trunc(v.lshr(v.mul(bit, wide), v.const(16)), "u16"))
    return v.zext(total, "u32")


def interpolate(v: VectorBuilder, table: Table, m: Any) -> tuple[Any, Any]:
    """(C, W) with P >> s = (C << unit - s) + W, where s = bits - 15; W is signed if A is negative."""
    s = table.bits - SQUARE_BITS
    segment = v.and_(v.lshr(m, v.const(table.bits)), v.const(len(table.rows) - 1))
    c, ab = v.halves(v.lookup(table.words, segment))
    a, b = v.ashr(ab, v.const(13)), v.ashr(v.shl(ab, v.const(19)), v.const(19))
    y = v.and_(v.lshr(m, v.const(s)), v.const(0x7FFF))
    low = v.mul(a, v.and_(m, v.const((1 << s) - 1)))
    rest = v.add(v.add(low, v.const(table.constant)), v.mul(b, square_lanes(v, y)))
    return c, v.add(v.mul(a, y), v.ashr(rest, v.const(s)))


def mantissa(v: VectorBuilder, table: Table, m: Any) -> Any:
    """Y = P >> unit + 2."""
    c, w = interpolate(v, table, m)
    shift = v.ashr if table.rows[0][1] < 0 else v.lshr  # a rising W can have 32 bits
    steps = shift(w, v.const(table.unit - (table.bits - SQUARE_BITS)))
    return v.lshr(v.add(c, steps), v.const(2))


def canonical(v: VectorBuilder, x: Any, result: Any, negative: bool = False) -> Any:
    """f32 lanes from result's bits: NaN where x is NaN, with `negative` also where x is below zero (not subnormal)."""
    word = v.bits(x, "u32")
    if negative:
        bad = v.icmp(">", v.sub(word, v.const(0x00800000)), v.const(INF32 - 0x00800000))
        bad = v.and_(bad, v.icmp("!=", v.and_(word, v.const(INF32)), v.const(0)))
    else:
        bad = v.isnan(x)
    return v.bits(v.select(bad, v.const(NAN32), result), "f32")


def ex2_lanes(v: VectorBuilder, x: Any) -> Any:
    """`ex2` of f32 lanes."""
    size, limit = v.fabs(x), v.const(255.0, "f32")
    limited = v.select(v.fcmp("<", size, limit), size, limit)
    fixed = v.to_int(v.fmul(limited, v.const(2.0**23, "f32")), "u32", True)
    minus = v.ashr(v.bits(x, "u32"), v.const(31))
    whole = v.icmp("==", v.and_(fixed, v.const(FRACTION)), v.const(0))
    fixed = v.sub(v.xor(fixed, minus), v.select(whole, minus, v.const(0)))
    exponent = v.and_(fixed, v.const(M32 - FRACTION))
    result = v.add(v.add(exponent, v.const(F32.one)), mantissa(v, EX2, fixed))
    result = v.select(v.icmp(">=", fixed, v.const(128 << 23), signed=True), v.const(INF32), result)
    result = v.select(v.icmp("<", fixed, v.const(-126 << 23), signed=True), v.const(0), result)
    return canonical(v, x, result)


def lg2_lanes(v: VectorBuilder, x: Any) -> Any:
    """`lg2` of f32 lanes."""
    word = v.bits(x, "u32")
    c, w = interpolate(v, LG2, word)
    exponent = v.sub(v.lshr(word, v.const(23)), v.const(127))
    value = v.add(v.shl(v.zext(c, "u64"), v.const(10, "u64")), v.zext(w, "u64"))
    value = v.add(v.shl(v.sext(exponent, "u64"), v.const(36, "u64")), value)
    minus = v.ashr(value, v.const(63, "u64"))
    result = truncated_lanes(v, v.xor(value, minus), 2.0**-36)
    result = v.or_(result, v.and_(v.trunc(minus, "u32"), v.const(SIGN32)))
    result = v.select(v.icmp("==", word, v.const(F32.one)), v.const(0), result)
    result = v.select(v.icmp("==", word, v.const(INF32)), v.const(INF32), result)
    small = v.icmp("==", v.and_(word, v.const(INF32)), v.const(0))
    return canonical(v, x, v.select(small, v.const(SIGN32 | INF32), result), True)


def truncated_lanes(v: VectorBuilder, value: Any, unit: float) -> Any:
    """Bits of value * unit truncated to f32; value has at most 53 bits."""
    wide = v.bits(v.from_int(value, "f64", True), "u64")
    kept = v.bits(v.and_(wide, v.const(-(1 << 29), "u64")), "f64")
    return v.bits(v.ftrunc(v.fmul(kept, v.const(unit, "f64")), "f32"), "u32")


def rcp_lanes(v: VectorBuilder, x: Any) -> Any:
    """`rcp` of f32 lanes."""
    word = v.bits(x, "u32")
    exponent = v.and_(word, v.const(INF32))
    result = v.add(v.sub(v.const(252 << 23), exponent), mantissa(v, RCP, word))
    result = v.select(v.icmp("<", result, v.const(TOP), signed=True), v.const(0), result)
    result = v.select(v.icmp("==", exponent, v.const(0)), v.const(INF32), result)
    return canonical(v, x, v.or_(result, v.and_(word, v.const(SIGN32))))


def rsq_lanes(v: VectorBuilder, x: Any) -> Any:
    """`rsq` of f32 lanes."""
    word = v.bits(x, "u32")
    field = v.lshr(word, v.const(23))
    half = v.ashr(v.sub(field, v.const(127)), v.const(1))
    result = v.add(v.shl(v.sub(v.const(125), half), v.const(23)), mantissa(v, RSQ, word))
    exact = v.icmp("==", v.and_(word, v.const(FRACTION | TOP)), v.const(TOP))
    result = v.add(result, v.cast_pred(exact, "u32"))
    infinite = v.or_(v.const(INF32), v.and_(word, v.const(SIGN32)))
    result = v.select(v.icmp("==", v.and_(word, v.const(INF32)), v.const(0)), infinite, result)
    return canonical(v, x, v.select(v.icmp("==", word, v.const(INF32)), v.const(0), result), True)


def sqrt_lanes(v: VectorBuilder, x: Any) -> Any:
    """`sqrt` of f32 lanes."""
    word = v.bits(x, "u32")
    field = v.lshr(word, v.const(23))
    half = v.ashr(v.sub(field, v.const(127)), v.const(1))
    result = v.add(v.shl(v.add(half, v.const(126)), v.const(23)), mantissa(v, SQRT, word))
    small = v.icmp("==", v.and_(word, v.const(INF32)), v.const(0))
    result = v.select(small, v.and_(word, v.const(SIGN32)), result)
    return canonical(v, x, v.select(v.icmp("==", word, v.const(INF32)), v.const(INF32), result), True)


def tanh_lanes(v: VectorBuilder, x: Any) -> Any:
    """`tanh` of f32 lanes."""
    word = v.bits(x, "u32")
    size = v.and_(word, v.const(ABS32))
    place = v.sub(v.lshr(size, v.const(19)), v.const(119 << 4))  # binade and segment
    place = v.call("umin", place, v.const(len(TANH_K) - 1))
    k, ab = v.lookup(TANH_K, place), v.lookup(TANH_AB, place)
    low = v.trunc(ab, "u32")
    t = v.lshr(v.and_(word, v.const(FRACTION)), v.and_(low, v.const(7)))
    x17 = v.and_(t, v.const(0x1FFFF))
    slope = v.ashr(ab, v.const(24, "u64"))
    curve = v.sext(v.ashr(v.shl(low, v.const(8)), v.const(11)), "u64")
    p = v.add(k, v.mul(slope, v.zext(x17, "u64")))
    p = v.add(p, v.mul(curve, v.zext(square_lanes(v, v.lshr(x17, v.const(2))), "u64")))
    result = truncated_lanes(v, p, 2.0**-42)
    result = v.select(v.icmp("<", size, v.const(130 << 23)), result, v.const(F32.one))
    result = v.select(v.icmp("<", size, v.const(119 << 23)), size, result)
    return canonical(v, x, v.or_(result, v.and_(word, v.const(SIGN32))))
