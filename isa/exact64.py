"""Exactly rounded f64 emissions in any mode: fma, division and square root through error terms.

A host has no per-operation rounding mode, so the operands are scaled to significands near 1, the nearest result and
the sign of its error are computed there, and `isa.vectors.pack_any` rounds once, with subnormals and overflow.
Results that involve NaN, infinities or a division by zero come from the host's own operation.
"""

from __future__ import annotations

from typing import Any

from isa.bits import F64
from isa.micro import VectorBuilder
from isa.vectors import add_odd, pack_any, two_sum

FAR = 300  # exponents further apart than this only leave a sticky bit


def nan64(v: VectorBuilder, r: Any) -> Any:
    """f64: any NaN to the canonical one."""
    return v.bits(v.select(v.isnan(r), v.const(F64.nan, "u64"), v.bits(r, "u64")), "f64")


def _normalized(v: VectorBuilder, x: Any) -> tuple[Any, Any]:
    """x as (m, e) with x = m * 2^e and 1 <= |m| < 2; zeros keep their sign and get a tiny exponent."""
    mask, zero = v.const(F64.inf, "u64"), v.const(0, "u64")
    small = v.icmp("==", v.and_(v.bits(x, "u64"), mask), zero)
    y = v.bits(v.select(small, v.fmul(x, v.const(2.0**54, "f64")), x), "u64")
    field = v.lshr(v.and_(y, mask), v.const(52, "u64"))
    exponent = v.sub(field, v.select(small, v.const(F64.bias + 54, "u64"), v.const(F64.bias, "u64")))
    m = v.bits(v.or_(v.and_(y, v.not_(mask)), v.const(F64.one, "u64")), "f64")
    none = v.fcmp("==", x, v.const(0.0, "f64"))
    return v.select(none, x, m), v.select(none, v.const(-5000, "u64"), exponent)


def _scaled(v: VectorBuilder, m: Any, shift: Any) -> Any:
    """m * 2^shift for shifts of moderate size."""
    power = v.shl(v.add(shift, v.const(F64.bias, "u64")), v.const(52, "u64"))
    return v.fmul(m, v.bits(power, "f64"))


def _rounded(v: VectorBuilder, q: Any, error: Any, exponent: Any, imm: Any) -> Any:
    """(q + error) * 2^exponent rounded once; only the sign of `error` counts.  A zero q gives +0."""
    bits, none = v.bits(q, "u64"), v.const(0.0, "f64")
    fraction = v.or_(v.and_(bits, v.const((1 << 52) - 1, "u64")), v.const(1 << 52, "u64"))
    field = v.lshr(v.and_(bits, v.const(F64.inf, "u64")), v.const(52, "u64"))
    sign = v.icmp("<", bits, v.const(0, "u64"), signed=True)
    outward = v.icmp("==", v.fcmp("<", error, none), sign)
    step = v.select(outward, v.const(1, "u64"), v.const(-1, "u64"))
    step = v.select(v.fcmp("!=", error, none), step, v.const(0, "u64"))
    m = v.add(v.shl(fraction, v.const(10, "u64")), step)
    m = v.select(v.fcmp("==", q, none), v.const(0, "u64"), m)
    lowest = v.add(v.sub(field, v.const(F64.bias + 52 + 10, "u64")), exponent)
    return pack_any(v, F64, sign, m, lowest, imm)


def _finite(v: VectorBuilder, x: Any) -> Any:
    return v.fcmp("<", v.fabs(x), v.const(float("inf"), "f64"))


def fma64(v: VectorBuilder, a: Any, b: Any, c: Any, imm: Any) -> Any:
    """a * b + c, rounded once (the sum of three terms after Boldo and Melquiond, with rounding to odd)."""
    (ma, ea), (mb, eb), (mc, ec) = (_normalized(v, x) for x in (a, b, c))
    ep, far = v.add(ea, eb), v.const(-FAR, "u64")
    top = v.call("smax", ep, ec)
    ma = _scaled(v, ma, v.call("smax", v.sub(ep, top), far))
    mc = _scaled(v, mc, v.call("smax", v.sub(ec, top), far))
    high = v.fmul(ma, mb)
    low = v.fma(ma, mb, v.fneg(high))
    th, tl = two_sum(v, mc, low)
    vh, vl = two_sum(v, high, th)
    z = add_odd(v, tl, vl, "u64")
    s = v.fadd(vh, z)
    result = _rounded(v, s, v.fsub(z, v.fsub(s, vh)), top, imm)
    product = v.xor(v.bits(a, "u64"), v.bits(b, "u64"))
    minus = v.flag(imm, 1), v.flag(imm, 0)
    both, either = v.and_(product, v.bits(c, "u64")), v.or_(product, v.bits(c, "u64"))
    zero = v.and_(v.select(minus[0], v.select(minus[1], both, either), both), v.const(F64.sign, "u64"))
    result = v.select(v.fcmp("==", s, v.const(0.0, "f64")), zero, result)
    ordinary = v.and_(_finite(v, a), v.and_(_finite(v, b), _finite(v, c)))
    return nan64(v, v.select(ordinary, v.bits(result, "f64"), v.fma(a, b, c)))


def div64(v: VectorBuilder, a: Any, b: Any, imm: Any) -> Any:
    """a / b, rounded once."""
    (ma, ea), (mb, eb) = _normalized(v, a), _normalized(v, b)
    q = v.fdiv(ma, mb)
    rest = v.fma(v.fneg(q), mb, ma)  # exact
    error = v.bits(v.xor(v.bits(rest, "u64"), v.and_(v.bits(mb, "u64"), v.const(F64.sign, "u64"))), "f64")
    result = _rounded(v, q, error, v.sub(ea, eb), imm)
    none = v.const(0.0, "f64")
    ordinary = v.and_(v.fcmp("!=", a, none), v.fcmp("!=", b, none))
    ordinary = v.and_(ordinary, v.and_(_finite(v, a), _finite(v, b)))
    return nan64(v, v.select(ordinary, v.bits(result, "f64"), v.fdiv(a, b)))


def sqrt64(v: VectorBuilder, a: Any, imm: Any) -> Any:
    """The square root of a, rounded once."""
    m, exponent = _normalized(v, a)
    odd = v.icmp("!=", v.and_(exponent, v.const(1, "u64")), v.const(0, "u64"))
    m = v.select(odd, v.fadd(m, m), m)
    root = v.call("sqrt", m)
    error = v.fma(v.fneg(root), root, m)  # exact
    result = _rounded(v, root, error, v.ashr(exponent, v.const(1, "u64")), imm)
    ordinary = v.and_(v.fcmp(">", a, v.const(0.0, "f64")), _finite(v, a))
    return nan64(v, v.select(ordinary, v.bits(result, "f64"), v.call("sqrt", a)))
