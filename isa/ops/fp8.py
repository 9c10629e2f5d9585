"""Conversions with e4m3 and e5m2 pairs (PTX ISA 9.7.9.21): from f32 and f16x2, saturated to finite, and back."""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import E4M3, E5M2, F16, F32, Format
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.convert import relu32
from isa.registry import Emitter, Match, instruction
from isa.vectors import NAN32, SIGN32, half_lanes

# ---- micro-operations ---------------------------------------------------------------------------


def finite_byte(f: Format, g: Format, x: int, relu: bool) -> int:
    """cvt.rn.satfinite of a value of format f to at most 8 bits: overflow and infinity give the largest finite value."""
    if bits.is_nan(f, x):
        return g.nan
    r = bits.convert(f, g, x)
    if bits.is_nan(g, r) or bits.is_inf(g, r):
        r = g.largest | (g.sign if x & f.sign else 0)
    return bits.relu(g, r) if relu else r


def finite_lanes(v: VectorBuilder, g: Format, x: Any) -> Any:
    """u32 lanes with one number of format g each, from f32 lanes."""
    drop = 23 - g.fraction
    largest = v.const(float(bits.to_fraction(g, g.largest)), "f32")
    size, sign = v.fabs(x), v.lshr(v.and_(v.bits(x, "u32"), v.const(SIGN32)), v.const(32 - g.width))
    limited = v.select(v.fcmp("<", size, largest), size, largest)
    word = v.bits(limited, "u32")
    odd = v.and_(v.lshr(word, v.const(drop)), v.const(1))
    rounded = v.lshr(v.add(word, v.add(odd, v.const((1 << drop - 1) - 1))), v.const(drop))
    normal = v.sub(rounded, v.const((F32.bias - g.bias) << g.fraction))
    scale = 2.0 ** (g.bias - 1 + g.fraction)
    subnormal = v.to_int(v.call("rint", v.fmul(limited, v.const(scale, "f32"))), "u32", True)
    byte = v.select(v.fcmp("<", limited, v.const(2.0 ** (1 - g.bias), "f32")), subnormal, normal)
    return v.select(v.isnan(x), v.const(g.nan), v.or_(byte, sign))


def _to_fp8(g: Format, name: str, relu: bool) -> tuple[Micro, Micro]:
    """From two f32 (a to the high byte) and from the halves of an f16x2."""

    def emit(v: VectorBuilder, a: Any, b: Any) -> Any:
        high, low = (finite_lanes(v, g, relu32(v, x) if relu else x) for x in (a, b))
        return v.or_(v.shl(high, v.const(8)), low)

    suffix = f"{name}{'.RELU' if relu else ''}"
    return (
        lane(
            f"F2FP.{suffix}.F32",
            "ff->u",
            "alu",
            lambda a, b: finite_byte(F32, g, a, relu) << 8 | finite_byte(F32, g, b, relu),
            emit,
            "a to the high byte, saturated to finite",
        ),
        lane(
            f"F2FP.{suffix}.F16",
            "u->u",
            "alu",
            lambda a: finite_byte(F16, g, a >> 16, relu) << 8 | finite_byte(F16, g, a & 0xFFFF, relu),
            lambda v, a: emit(v, half_lanes(v, v.lshr(a, v.const(16)), "f16"), half_lanes(v, a, "f16")),
            "both halves, saturated to finite",
        ),
    )


def _unpack_fp8(g: Format, name: str, high: bool, relu: bool = False) -> Micro:
    first = 16 * high

    def half(byte: int) -> int:
        value = bits.convert(g, F16, byte)
        return bits.relu(F16, value) if relu else value

    def emit(v: VectorBuilder, a: Any) -> Any:
        halves = []
        for shift in (first, first + 8):
            byte = v.and_(v.lshr(a, v.const(shift)), v.const(255))
            size = v.bits(v.shl(v.and_(byte, v.const(127)), v.const(23 - g.fraction)), "f32")
            value = v.fmul(size, v.const(2.0 ** (F32.bias - g.bias), "f32"))  # exact, subnormals too
            if not g.finite:
                infinite = v.icmp("==", v.and_(byte, v.const(127)), v.const(g.inf))
                value = v.select(infinite, v.const(float("inf"), "f32"), value)
            nan = v.icmp(">", v.and_(byte, v.const(127)), v.const(g.largest if g.finite else g.inf))
            sign = v.shl(v.and_(byte, v.const(128)), v.const(24))
            word = v.select(nan, v.const(NAN32), v.or_(v.bits(value, "u32"), sign))
            signed = v.bits(word, "f32")
            halves.append(v.ftrunc(relu32(v, signed) if relu else signed, "f16"))
        return v.pair(*halves)

    return lane(
        f"F2FP.F16.{name}.UNPACK{'.H1' if high else ''}{'.RELU' if relu else ''}",
        "u->u",
        "alu",
        lambda a: half(a >> first + 8 & 255) << 16 | half(a >> first & 255),
        emit,
        f"the {'upper' if high else 'lower'} two bytes as f16x2, exact",
    )


FP8 = {
    (type, relu): _to_fp8(g, type.upper(), relu)
    for type, g in (("e4m3", E4M3), ("e5m2", E5M2))
    for relu in (False, True)
}
UNPACK = {
    (type, high): _unpack_fp8(g, type.upper(), high)
    for type, g in (("e4m3", E4M3), ("e5m2", E5M2))
    for high in (False, True)
}

UNPACK_RELU = {type: _unpack_fp8(g, type.upper(), False, relu=True) for type, g in (("e4m3", E4M3), ("e5m2", E5M2))}

# ---- forms ----------------------------------------------------------------------------------------

HOPPER = ("sm_90", "sm_90a", "sm_100a")
FP8_TYPES = ("e4m3x2", "e5m2x2")


@instruction(
    "cvt.rn.satfinite{.relu}.D.f32 d, a, b;",
    sets={"D": FP8_TYPES},
    types={"d": "b16", "a": "f32", "b": "f32"},
    targets=HOPPER,
)
def narrow_fp8(e: Emitter, m: Match) -> None:
    """d = {b (low byte), a (high byte)}."""
    e(FP8[m["D"][:-2], m.has(".relu")][0], m.d, m.a, m.b)


@instruction(
    "cvt.rn.satfinite{.relu}.D.f16x2 d, a;", sets={"D": FP8_TYPES}, types={"d": "b16", "a": "b32"}, targets=HOPPER
)
def narrow_fp8_half(e: Emitter, m: Match) -> None:
    """Both halves of a, low to low."""
    e(FP8[m["D"][:-2], m.has(".relu")][1], m.d, m.a)


@instruction("cvt.rn{.relu}.f16x2.A d, a;", sets={"A": FP8_TYPES}, types={"d": "b32", "a": "b16"}, targets=HOPPER)
def widen_fp8(e: Emitter, m: Match) -> None:
    """Two bytes as f16x2, exact; .relu: negative numbers become +0."""
    type = m["A"][:-2]
    e(UNPACK_RELU[type] if m.has(".relu") else UNPACK[type, False], m.d, m.a)
