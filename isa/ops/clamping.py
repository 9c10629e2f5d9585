"""Conversions that clamp (PTX ISA 9.7.9.21): .sat, .satfinite and .relu, between 16-bit floats, cvt.pack.

A clamped conversion is the plain one and, behind it or (`.satfinite`) in front of it, a minimum and a maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa.bits import BF16, F16, F64
from isa.ops.convert import F2FP, F2FP_TF32, HADD2_F32, HOPPER, INTEGERS, TF32, tf32_away
from isa.ops.float32 import FADD_ANY, FADD_FTZ, FMNMX_ANY, SAT
from isa.ops.float64 import min_max64
from isa.ops.half import ARITH
from isa.ops.half import SAT as SAT16
from isa.ops.integer import VIMNMX, ZERO
from isa.ops.logic import AND, OR
from isa.ops.move import MOV, move64
from isa.ops.rounding import F2F, MODES, ROUND, float_to_float, from_int, integral
from isa.ops.shift import SHF_L
from isa.registry import ALL_TARGETS, Const, Emitter, Match, Value, instruction
from isa.vectors import SIGN32

KIND = {"f64": "d"}
NAN = 2  # bit of FMNMX's immediate
Sets = dict[str, tuple[str, ...]]
Lowering = Callable[[Emitter, Any], None]


class _Into:
    """A match whose result goes to another register."""

    def __init__(self, match: Match, **values: Value) -> None:
        self._match = match
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return self._values[name] if name in self._values else getattr(self._match, name)

    def __getitem__(self, name: str) -> str:
        return self._match[name]


def clamp01(e: Emitter, d: Value, a: Value, type: str) -> None:
    """d = a limited to [+0, 1]; NaN becomes +0."""
    if type == "f32":
        e(FADD_ANY["rn"], d, a, Const(SIGN32), imm=SAT)
    elif type == "f16":
        e(ARITH["add", "f16"][1], d, a, Const(F16.sign), imm=SAT16)
    else:
        lower = e.tmp("d")
        min_max64(e, "max", lower, a, Const(0, "d"))
        min_max64(e, "min", d, lower, Const(F64.one, "d"))


def _saturated(lower: Lowering) -> Lowering:
    """The lowering `lower` with its result clamped to [0, 1]."""

    def wrapped(e: Emitter, m: Match) -> None:
        plain = e.tmp(KIND.get(m["D"], "r"))
        lower(e, _Into(m, d=plain))
        clamp01(e, m.d, plain, m["D"])

    wrapped.__doc__ = f"{lower.__doc__}  .sat: then limited to [+0, 1], NaN to +0."
    wrapped.__module__ = __name__
    return wrapped


def widen_half(e: Emitter, m: Match) -> None:
    """d = a, exact."""
    if m["D"] == "f32":
        e(HADD2_F32, m.d, m.a)
    else:
        e(F2F["f64", "f16"], m.d, m.a)


def narrow_f32(e: Emitter, m: Match) -> None:
    """d = a rounded to f16; an input that .ftz flushes is zero in f16 anyway."""
    if m["RND"] in ("rn", "rz"):
        e(F2FP["f16", m["RND"], False], m.d, ZERO, m.a)
    else:
        e(F2F["f16", "f32"], m.d, m.a, imm=MODES.index(m["RND"]))


def copy(e: Emitter, m: Match) -> None:
    """d = a, bit for bit."""
    if m["D"] == "f64":
        move64(e, m.d, m.a)
    else:
        e(MOV, m.d, m.a)


def _form(syntax: str, lower: Lowering, targets: tuple[str, ...] = ALL_TARGETS, **sets: tuple[str, ...]) -> None:
    instruction(syntax, sets=sets, types={"d": "D", "a": "A"}, targets=targets)(lower)


_form("cvt.RND.sat.D.A d, a;", _saturated(from_int), RND=MODES, D=("f32", "f64", "f16"), A=INTEGERS)
_form("cvt{.ftz}.sat.D.A d, a;", _saturated(float_to_float), D=("f64",), A=("f32",), RND=())
_form("cvt.RND{.ftz}.sat.D.A d, a;", _saturated(float_to_float), RND=MODES, D=("f32",), A=("f64",))
_form("cvt.RND.sat.D.A d, a;", _saturated(float_to_float), RND=MODES, D=("f16",), A=("f64",))
_form("cvt.RND{.ftz}.sat.D.A d, a;", _saturated(narrow_f32), RND=MODES, D=("f16",), A=("f32",))
_form("cvt{.ftz}.sat.D.A d, a;", _saturated(widen_half), D=("f32",), A=("f16",))
_form("cvt.sat.D.A d, a;", _saturated(widen_half), D=("f64",), A=("f16",))
_form("cvt.RND{.ftz}.sat.D.A d, a;", _saturated(integral), RND=ROUND, D=("f32",), A=("f32",))
for _type in ("f64", "f16"):
    _form("cvt.RND.sat.D.A d, a;", _saturated(integral), RND=ROUND, D=(_type,), A=(_type,))
    _form("cvt.sat.D.A d, a;", _saturated(copy), D=(_type,), A=(_type,))
    _form("cvt.D.A d, a;", copy, D=(_type,), A=(_type,))
_form("cvt.D.A d, a;", copy, HOPPER, D=("bf16",), A=("bf16",))
_form("cvt.RND.D.A d, a;", integral, HOPPER, RND=ROUND, D=("bf16",), A=("bf16",))

# ---- bf16 -------------------------------------------------------------------------------------------


def _from_bf16(e: Emitter, a: Value) -> Value:
    wide = e.tmp()
    e(SHF_L, wide, a, Const(16))
    return wide


@instruction("cvt.ftz.f32.bf16 d, a;", types={"a": "bf16"}, targets=HOPPER)
def widen_bf16_flushed(e: Emitter, m: Match) -> None:
    """d = a, subnormals flushed."""
    e(FADD_FTZ, m.d, _from_bf16(e, m.a), Const(SIGN32))


@instruction("cvt.f64.bf16 d, a;", types={"a": "bf16"}, targets=HOPPER)
def double_bf16(e: Emitter, m: Match) -> None:
    """d = a, exact."""
    e(F2F["f64", "f32"], m.d, _from_bf16(e, m.a))


def _to_bf16(e: Emitter, d: Value, a: Value, mode: str) -> None:
    """An f32 to bf16; upwards and downwards by way of f64."""
    if mode in ("rn", "rz"):
        e(F2FP["bf16", mode, False], d, ZERO, a)
        return
    wide = e.tmp("d")
    e(F2F["f64", "f32"], wide, a)
    e(F2F["bf16", "f64"], d, wide, imm=MODES.index(mode))


@instruction("cvt.RND{.ftz}.bf16.f32 d, a;", sets={"RND": ("rm", "rp")}, types={"d": "bf16", "a": "f32"})
def narrow_bf16(e: Emitter, m: Match) -> None:
    """d = a rounded downwards or upwards."""
    a = m.a
    if m.has(".ftz"):
        a = e.tmp()
        e(FADD_FTZ, a, m.a, Const(SIGN32))
    _to_bf16(e, m.d, a, m["RND"])


@instruction("cvt{.RND}.bf16.f16 d, a;", sets={"RND": MODES}, types={"d": "bf16", "a": "f16"}, targets=HOPPER)
def bf16_of_f16(e: Emitter, m: Match) -> None:
    """d = a rounded (to nearest unless said)."""
    wide = e.tmp()
    e(HADD2_F32, wide, m.a)
    _to_bf16(e, m.d, wide, m["RND"] or "rn")


@instruction("cvt{.RND}.f16.bf16 d, a;", sets={"RND": MODES}, types={"d": "f16", "a": "bf16"}, targets=HOPPER)
def f16_of_bf16(e: Emitter, m: Match) -> None:
    """d = a rounded (to nearest unless said)."""
    mode, wide = m["RND"] or "rn", _from_bf16(e, m.a)
    if mode in ("rn", "rz"):
        e(F2FP["f16", mode, False], m.d, ZERO, wide)
    else:
        e(F2F["f16", "f32"], m.d, wide, imm=MODES.index(mode))


# ---- .satfinite, and .relu of tf32 ------------------------------------------------------------------

LARGEST = {"f16": 0x477FE000, "bf16": BF16.largest << 16, "tf32": TF32.largest << 13}  # as f32


def _finite(e: Emitter, a: Value, type: str) -> Value:
    """An f32 limited to the finite range of a type; NaN stays."""
    low, both = e.tmp(), e.tmp()
    e(FMNMX_ANY["min"], low, a, Const(LARGEST[type]), imm=NAN)
    e(FMNMX_ANY["max"], both, low, Const(LARGEST[type] | SIGN32), imm=NAN)
    return both


_HALVES: Sets = {"RND": ("rn", "rz"), "D": ("f16", "bf16")}


@instruction("cvt.RND{.relu}.satfinite.D.f32 d, a;", sets=_HALVES, types={"d": "D", "a": "f32"})
def finite_half(e: Emitter, m: Match) -> None:
    """d = a in half precision; what overflows, infinities too, becomes the largest finite number."""
    e(F2FP[m["D"], m["RND"], m.has(".relu")], m.d, ZERO, _finite(e, m.a, m["D"]))


_PAIRS: Sets = {"RND": ("rn", "rz"), "D": ("f16x2", "bf16x2")}


@instruction("cvt.RND{.relu}.satfinite.D.f32 d, a, b;", sets=_PAIRS, types={"d": "D", "a": "f32", "b": "f32"})
def finite_pair(e: Emitter, m: Match) -> None:
    """d = {b (low), a (high)} in half precision; what overflows becomes the largest finite number."""
    type = m["D"][:-2]
    e(F2FP[type, m["RND"], m.has(".relu")], m.d, _finite(e, m.a, type), _finite(e, m.b, type))


@instruction("cvt.rna.satfinite.tf32.f32 d, a;", types={"d": "b32", "a": "f32"})
def finite_tf32_away(e: Emitter, m: Match) -> None:
    """d = a with 10 fraction bits, ties away; what overflows becomes the largest finite number."""
    tf32_away(e, _Into(m, a=_finite(e, m.a, "tf32")))


_TF32: Sets = {"RND": ("rn", "rz")}
_TF32_TYPES = {"d": "b32", "a": "f32"}


@instruction("cvt.RND.relu.tf32.f32 d, a;", sets=_TF32, types=_TF32_TYPES, targets=HOPPER)
@instruction("cvt.RND{.relu}.satfinite.tf32.f32 d, a;", sets=_TF32, types=_TF32_TYPES, targets=("sm_100",))
def finite_tf32(e: Emitter, m: Match) -> None:
    """d = a with 10 fraction bits; .relu: negative numbers become +0, .satfinite: overflow the largest finite number."""
    a = _finite(e, m.a, "tf32") if m.has(".satfinite") else m.a
    if m.has(".relu"):
        above = e.tmp()
        e(FMNMX_ANY["max"], above, a, ZERO, imm=NAN)
        a = above
    e(F2FP_TF32[m["RND"]], m.d, a)


# ---- cvt.pack ---------------------------------------------------------------------------------------


def _packed(e: Emitter, m: Match, type: str) -> tuple[Value, int]:
    """{a, b} clamped to `type` and packed, b at the bottom; and the bits of both."""
    width, is_signed = int(type[1:]), type[0] == "s"
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    parts = []
    for x, place in ((m.a, width), (m.b, 0)):
        above, clamped, field, moved = (e.tmp() for _ in range(4))
        e(VIMNMX["max", "s32"], above, x, Const(low & 0xFFFFFFFF))
        e(VIMNMX["min", "s32"], clamped, above, Const(high))
        e(AND, field, clamped, Const((1 << width) - 1))
        e(SHF_L, moved, field, Const(place))
        parts.append(moved)
    both: Value = e.tmp()
    e(OR, both, *parts)
    return both, 2 * width


@instruction("cvt.pack.sat.D.s32 d, a, b;", sets={"D": ("u16", "s16")}, types={"d": "b32", "a": "s32", "b": "s32"})
def pack16(e: Emitter, m: Match) -> None:
    """d = {b (low), a (high)} clamped to 16 bits."""
    both, _ = _packed(e, m, m["D"])
    e(MOV, m.d, both)


_SMALL: Sets = {"D": ("u8", "s8", "u4", "s4", "u2", "s2")}


@instruction("cvt.pack.sat.D.s32.b32 d, a, b, c;", sets=_SMALL, types={"d": "b32", "a": "s32", "b": "s32", "c": "b32"})
def pack_small(e: Emitter, m: Match) -> None:
    """d = {b (lowest), a, the low part of c} with a and b clamped to the type."""
    both, width = _packed(e, m, m["D"])
    above = e.tmp()
    e(SHF_L, above, m.c, Const(width))
    e(OR, m.d, both, above)
