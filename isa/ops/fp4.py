"""Conversions with e2m1, e2m3, e3m2 and ue8m0 pairs (PTX ISA 9.7.9.22), on Blackwell.

The small floats have neither infinity nor NaN: what is too large becomes the largest number of its sign, and NaN the
largest positive one.  ue8m0 is an exponent without sign: the sign of what is converted is dropped (cuda_fp8.h).
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import BF16, E2M1, E2M3, E3M2, F16, F32
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.convert import relu32
from isa.ops.fp8 import finite_byte, finite_lanes
from isa.registry import Emitter, Match, instruction
from isa.vectors import half_lanes

BLACKWELL = ("sm_100f",)
SMALL = {"e2m1x2": E2M1, "e2m3x2": E2M3, "e3m2x2": E3M2}
SPAN = {"e2m1x2": 4, "e2m3x2": 8, "e3m2x2": 8}  # bits between the two of a pair

# ---- e2m1, e2m3, e3m2 ------------------------------------------------------------------------------


def _narrow(type: str, source: str, relu: bool) -> Micro:
    """Two f32 (a on top), or the halves of an f16x2, packed."""
    g, span = SMALL[type], SPAN[type]

    def emit(v: VectorBuilder, a: Any, b: Any) -> Any:
        high, low = (finite_lanes(v, g, relu32(v, x) if relu else x) for x in (a, b))
        return v.or_(v.shl(high, v.const(span)), low)

    name = f"F2FP.{type[:-2].upper()}{'.RELU' if relu else ''}"
    if source == "f32":
        pair = lambda a, b: finite_byte(F32, g, a, relu) << span | finite_byte(F32, g, b, relu)
        return lane(f"{name}.F32", "ff->u", "alu", pair, emit, "a on top, saturated to finite")
    return lane(
        f"{name}.F16",
        "u->u",
        "alu",
        lambda a: finite_byte(F16, g, a >> 16, relu) << span | finite_byte(F16, g, a & 0xFFFF, relu),
        lambda v, a: emit(v, half_lanes(v, v.lshr(a, v.const(16)), "f16"), half_lanes(v, a, "f16")),
        "both halves, saturated to finite",
    )


def _widen(type: str, relu: bool) -> Micro:
    """Both numbers of a pair as f16x2, exact; what lies above them in their bytes is ignored."""
    g, span = SMALL[type], SPAN[type]

    def one(a: int) -> int:
        value = bits.convert(g, F16, a & (1 << g.width) - 1)
        return bits.relu(F16, value) if relu else value

    def emit(v: VectorBuilder, a: Any) -> Any:
        halves = []
        for shift in (0, span):
            part = v.lshr(a, v.const(shift))
            size = v.bits(v.shl(v.and_(part, v.const(g.sign - 1)), v.const(23 - g.fraction)), "f32")
            value = v.fmul(size, v.const(2.0 ** (F32.bias - g.bias), "f32"))
            sign = v.shl(v.and_(part, v.const(g.sign)), v.const(32 - g.width))
            signed = v.bits(v.or_(v.bits(value, "u32"), sign), "f32")
            halves.append(v.ftrunc(relu32(v, signed) if relu else signed, "f16"))
        return v.pair(*halves)

    name = f"F2FP.F16.{type[:-2].upper()}.UNPACK{'.RELU' if relu else ''}"
    return lane(name, "u->u", "alu", lambda a: one(a >> span) << 16 | one(a), emit, "both as f16x2, exact")


NARROW = {
    (type, source, relu): _narrow(type, source, relu)
    for type, source in (("e2m1x2", "f32"), ("e2m3x2", "f32"), ("e3m2x2", "f32"), ("e2m1x2", "f16x2"))
    for relu in (False, True)
}
WIDEN = {(type, relu): _widen(type, relu) for type in SMALL for relu in (False, True)}


@instruction(
    "cvt.rn.satfinite{.relu}.D.f32 d, a, b;",
    sets={"D": ("e2m1x2",)},
    types={"d": "b8", "a": "f32", "b": "f32"},
    targets=BLACKWELL,
)
@instruction(
    "cvt.rn.satfinite{.relu}.D.f32 d, a, b;",
    sets={"D": ("e2m3x2", "e3m2x2")},
    types={"d": "b16", "a": "f32", "b": "f32"},
    targets=BLACKWELL,
)
def narrow(e: Emitter, m: Match) -> None:
    """d = {b (low), a (high)}: two of 4 bits in a byte, or two of 6 bits at the bottom of two bytes."""
    e(NARROW[m["D"], "f32", m.has(".relu")], m.d, m.a, m.b)


@instruction("cvt.rn.satfinite{.relu}.e2m1x2.f16x2 d, a;", types={"d": "b8", "a": "b32"}, targets=BLACKWELL)
def narrow_halves(e: Emitter, m: Match) -> None:
    """Both halves of a, low to low."""
    e(NARROW["e2m1x2", "f16x2", m.has(".relu")], m.d, m.a)


@instruction("cvt.rn{.relu}.f16x2.A d, a;", sets={"A": ("e2m1x2",)}, types={"d": "b32", "a": "b8"}, targets=BLACKWELL)
@instruction(
    "cvt.rn{.relu}.f16x2.A d, a;", sets={"A": ("e2m3x2", "e3m2x2")}, types={"d": "b32", "a": "b16"}, targets=BLACKWELL
)
def widen(e: Emitter, m: Match) -> None:
    """d = both numbers of a as f16x2, exact."""
    e(WIDEN[m["A"], m.has(".relu")], m.d, m.a)


# ---- ue8m0 -----------------------------------------------------------------------------------------

UP, FINITE = 1, 2  # bits of the immediate: .rp, .satfinite
TINY = 1 << F32.fraction - 1  # 2^-127, the smallest ue8m0, as f32


def _exponent(word: int, imm: int) -> int:
    """The ue8m0 of an f32 pattern: its exponent, one more if .rp and anything lies above it."""
    size = word & F32.sign - 1
    field, rest = size >> F32.fraction, size & (1 << F32.fraction) - 1
    if imm & UP and rest and TINY < size < F32.inf:
        field += 1
    return field - 1 if imm & FINITE and size <= F32.inf and field == 255 else field


def _exponent_lanes(v: VectorBuilder, word: Any, imm: Any) -> Any:
    size = v.and_(word, v.const(F32.sign - 1))
    field = v.lshr(size, v.const(F32.fraction))
    rest = v.icmp("!=", v.and_(size, v.const((1 << F32.fraction) - 1)), v.const(0))
    between = v.and_(v.icmp(">", size, v.const(TINY)), v.icmp("<", size, v.const(F32.inf)))
    raised = v.select(v.and_(rest, between), v.add(field, v.const(1)), field)
    field = v.select(v.flag(imm, 0), raised, field)
    over = v.and_(v.icmp("==", field, v.const(255)), v.icmp("<=", size, v.const(F32.inf)))
    return v.select(v.flag(imm, 1), v.select(over, v.const(254), field), field)


def _scale_lanes(v: VectorBuilder, byte: Any) -> Any:
    """One ue8m0 as bf16."""
    value = v.select(v.icmp("==", byte, v.const(0)), v.const(0x40), v.shl(byte, v.const(7)))
    return v.select(v.icmp("==", byte, v.const(255)), v.const(BF16.nan), value)


def _scale(byte: int) -> int:
    return BF16.nan if byte == 255 else byte << 7 if byte else 0x40


F2FP_E8 = lane(
    "F2FP.E8.F32",
    "uui->u",
    "alu",
    lambda a, b, imm: _exponent(a, imm) << 8 | _exponent(b, imm),
    lambda v, a, b, imm: v.or_(v.shl(_exponent_lanes(v, a, imm), v.const(8)), _exponent_lanes(v, b, imm)),
    "exponents of a (high) and b; imm bit 0 up, 1 saturated to finite",
)
F2FP_E8_BF16 = lane(
    "F2FP.E8.BF16",
    "ui->u",
    "alu",
    lambda a, imm: _exponent(a & 0xFFFF0000, imm) << 8 | _exponent(a << 16 & 0xFFFFFFFF, imm),
    lambda v, a, imm: v.or_(
        v.shl(_exponent_lanes(v, v.and_(a, v.const(0xFFFF0000)), imm), v.const(8)),
        _exponent_lanes(v, v.shl(a, v.const(16)), imm),
    ),
    "exponents of both halves; imm bit 0 up, 1 saturated to finite",
)
F2FP_BF16_E8 = lane(
    "F2FP.BF16.E8.UNPACK",
    "u->u",
    "alu",
    lambda a: _scale(a >> 8 & 255) << 16 | _scale(a & 255),
    lambda v, a: v.or_(
        v.shl(_scale_lanes(v, v.and_(v.lshr(a, v.const(8)), v.const(255))), v.const(16)),
        _scale_lanes(v, v.and_(a, v.const(255))),
    ),
    "both exponents as bf16, exact",
)

_UP: dict[str, tuple[str, ...]] = {"RND": ("rz", "rp")}


def _steer(m: Match) -> int:
    return (m["RND"] == "rp") * UP | m.has(".satfinite") * FINITE


@instruction(
    "cvt.RND{.satfinite}.ue8m0x2.f32 d, a, b;",
    sets=_UP,
    types={"d": "b16", "a": "f32", "b": "f32"},
    targets=BLACKWELL,
)
def exponents(e: Emitter, m: Match) -> None:
    """d = the powers of two at or below (.rz), at or above (.rp) |b| (low byte) and |a| (high byte)."""
    e(F2FP_E8, m.d, m.a, m.b, imm=_steer(m))


@instruction("cvt.RND{.satfinite}.ue8m0x2.bf16x2 d, a;", sets=_UP, types={"d": "b16", "a": "b32"}, targets=BLACKWELL)
def exponents_bf16(e: Emitter, m: Match) -> None:
    """The same of both halves of a."""
    e(F2FP_E8_BF16, m.d, m.a, imm=_steer(m))


@instruction("cvt.rn.bf16x2.ue8m0x2 d, a;", types={"d": "b32", "a": "b16"}, targets=BLACKWELL)
def powers(e: Emitter, m: Match) -> None:
    """d = both powers of two as bf16x2, exact."""
    e(F2FP_BF16_E8, m.d, m.a)
