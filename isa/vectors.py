"""Emission helpers: the vector twins of `isa.bits` that several families share.

Everything here is built from the operations of `isa.micro.VectorBuilder`; `x` and the results are vectors.
"""

from __future__ import annotations

from typing import Any

from isa.micro import VectorBuilder

SIGN32, ABS32, INF32, NAN32 = 0x80000000, 0x7FFFFFFF, 0x7F800000, 0x7FFFFFFF
TWO_50, TWO_100 = 2.0**50, 2.0**100


def flush32(v: VectorBuilder, x: Any) -> Any:
    """f32: subnormals to zeros of their sign."""
    bits = v.bits(x, "u32")
    exponent = v.and_(bits, v.const(INF32))
    zero = v.and_(bits, v.const(SIGN32))
    return v.bits(v.select(v.icmp("==", exponent, v.const(0)), zero, bits), "f32")


def flush32_if(v: VectorBuilder, ftz: bool, *xs: Any) -> list[Any]:
    """The operands, flushed when `ftz`."""
    return [flush32(v, x) if ftz else x for x in xs]


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


def clamp_count(v: VectorBuilder, n: Any, limit: int) -> Any:
    """min(n, limit) for unsigned shift counts."""
    return v.call("umin", n, v.const(limit))


def half_lanes(v: VectorBuilder, x: Any, type: str, ftz: bool = False) -> Any:
    """The low 16-bit half of each lane, widened exactly to f32 (`type` is f16 or bf16)."""
    if type == "bf16":
        return v.bits(v.shl(x, v.const(16)), "f32")
    wide = v.fext(v.bits(v.trunc(x, "u16"), "f16"), "f32")
    if not ftz:
        return wide
    tiny = v.fcmp("<", v.fabs(wide), v.const(2.0**-14, "f32"))
    return v.select(tiny, v.bits(v.and_(v.bits(wide, "u32"), v.const(SIGN32)), "f32"), wide)
