"""Conversions (PTX ISA 9.7.9.21): integers among each other, and f32 with f16, bf16, tf32, e4m3, e5m2.

Rounding conversions between integers and floats, and those of f64, are in `rounding.py`.
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import BF16, F16, F32, M32, Format, clamp, signed
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.compare import FSETP_ABS, GT, ISETP, ISETP_EX, LT, TRUE
from isa.ops.float32 import FADD, FADD_ANY, FADD_FTZ
from isa.ops.integer import IADD3_IF, SGXT, SGXT_U32
from isa.ops.logic import AND
from isa.ops.move import MOV, move64
from isa.ops.select import SEL
from isa.ops.shift import SHF_L, SHF_R_S32
from isa.registry import Const, Emitter, Match, Value, instruction
from isa.vectors import NAN32, SIGN32, half_lanes, nan32

ZERO = Const(0)
HOPPER = ("sm_90", "sm_90a", "sm_100a")

# ---- f32 -> f16, bf16 ----------------------------------------------------------------------------------


def truncated_f16(v: VectorBuilder, x: Any) -> Any:
    """f32 lanes truncated to values that f16 holds exactly; finite overflow becomes the largest finite value."""
    bits_, size = v.bits(x, "u32"), v.fabs(x)
    normal = v.bits(v.and_(bits_, v.const(0xFFFFE000)), "f32")
    grid = v.fmul(v.call("trunc", v.fmul(x, v.const(2.0**24, "f32"))), v.const(2.0**-24, "f32"))
    value = v.select(v.fcmp("<", size, v.const(2.0**-14, "f32")), grid, normal)
    too_big = v.and_(v.fcmp(">", size, v.const(65504.0, "f32")), v.icmp("!=", v.bits(size, "u32"), v.const(F32.inf)))
    largest = v.or_(v.and_(bits_, v.const(SIGN32)), v.bits(v.const(65504.0, "f32"), "u32"))
    return v.select(too_big, v.bits(largest, "f32"), value)


def relu32(v: VectorBuilder, x: Any) -> Any:
    """Negative numbers and -0 to +0; NaN stays."""
    negative = v.icmp("<", v.bits(x, "u32"), v.const(0), signed=True)
    return v.select(v.and_(negative, v.not_(v.isnan(x))), v.const(0.0, "f32"), x)


def _f16_pair(v: VectorBuilder, low: Any, high: Any, mode: str) -> Any:
    halves = []
    for x in (low, high):
        x = nan32(v, x)  # 0x7fffffff becomes 0x7fff, truncated or not
        halves.append(v.ftrunc(x if mode == "rn" else truncated_f16(v, x), "f16"))
    return v.pair(*halves)


def _bf16_word(v: VectorBuilder, x: Any, mode: str) -> Any:
    """bf16 bits in the high half of each lane; the low half is garbage."""
    word = v.bits(x, "u32")
    if mode == "rn":
        odd = v.and_(v.lshr(word, v.const(16)), v.const(1))
        word = v.add(word, v.add(odd, v.const(0x7FFF)))
    return v.select(v.isnan(x), v.const(NAN32), word)


def _bf16_pair(v: VectorBuilder, low: Any, high: Any, mode: str) -> Any:
    low, high = _bf16_word(v, low, mode), _bf16_word(v, high, mode)
    return v.or_(v.lshr(low, v.const(16)), v.and_(high, v.const(0xFFFF0000)))


def _f2fp(f: Format, name: str, mode: str, relu: bool, pair: Any) -> Micro:
    def half(x: int) -> int:
        r = bits.convert(F32, f, x, mode)
        return bits.relu(f, r) if relu else r

    def emit(v: VectorBuilder, a: Any, b: Any) -> Any:
        return pair(v, *((relu32(v, b), relu32(v, a)) if relu else (b, a)), mode)

    suffix = (".RZ" if mode == "rz" else "") + (".RELU" if relu else "")
    return lane(
        f"F2FP.{name}{suffix}", "ff->u", "alu", lambda a, b: half(a) << 16 | half(b), emit, "a to the high half"
    )


F2FP = {
    (type, mode, relu): _f2fp(f, type.upper(), mode, relu, pair)
    for type, f, pair in (("f16", F16, _f16_pair), ("bf16", BF16, _bf16_pair))
    for mode in ("rn", "rz")
    for relu in (False, True)
}
HADD2_F32 = lane(
    "HADD2.F32",
    "u->f",
    "half_wide",
    lambda a: bits.convert(F16, F32, a & 0xFFFF),
    lambda v, a: nan32(v, half_lanes(v, a, "f16")),
    "the low f16 as f32; NaN becomes 0x7fffffff",
)

# ---- tf32 ---------------------------------------------------------------------------------------------


def _tf32(mode: str) -> Micro:
    def meaning(x: int) -> int:
        if bits.is_nan(F32, x):
            return 0x7FFFE000
        return bits.convert(F32, TF32, x, mode) << 13

    def emit(v: VectorBuilder, x: Any) -> Any:
        word = v.bits(x, "u32")
        if mode == "rn":
            odd = v.and_(v.lshr(word, v.const(13)), v.const(1))
            word = v.add(word, v.add(odd, v.const(0xFFF)))
        word = v.select(v.isnan(x), v.const(0x7FFFE000), word)
        return v.and_(word, v.const(0xFFFFE000))

    return lane(f"F2FP.TF32{'.RZ' if mode == 'rz' else ''}", "f->u", "alu", meaning, emit, "low 13 bits zero")


TF32 = Format(8, 10, 0x3FFFF)
F2FP_TF32 = {mode: _tf32(mode) for mode in ("rn", "rz")}

# ---- integer -> integer, saturating ---------------------------------------------------------------------


def _i2i(type: str, word: str) -> Micro:
    width, is_signed = int(type[1:]), type[0] == "s"
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)

    def meaning(x: int) -> int:
        return clamp(signed(x, 32) if word == "s32" else x, low, high) & M32

    def emit(v: VectorBuilder, x: Any) -> Any:
        if word == "u32":
            return v.call("umin", x, v.const(high))
        return v.call("smin", v.call("smax", x, v.const(low)), v.const(high))

    return lane(f"I2I.{type.upper()}.{word.upper()}.SAT", "u->u", "xu", meaning, emit, f"clamped to {type}")


I2I = {(type, word): _i2i(type, word) for type in ("s8", "u8", "s16", "u16") for word in ("s32", "u32")}

# ---- lowering -------------------------------------------------------------------------------------------


def widened(e: Emitter, x: Value, type: str) -> Value:
    """An integer of up to 32 bits extended to 32."""
    width = int(type[1:])
    if width == 32:
        return x
    d = e.tmp()
    e(SGXT if type[0] == "s" else SGXT_U32, d, x, Const(width))
    return d


def integer(e: Emitter, d: Value, a: Value, target: str, source: str) -> None:
    """d = a extended, or reduced modulo 2^n; a narrow result is extended to its register."""
    width, have = int(target[1:]), int(source[1:])
    word = e.lo(a) if have == 64 else a
    if width == 64 and have == 64:
        move64(e, d, a)
    elif width == 64:
        _extend64(e, d, widened(e, word, source), source[0] == "s")
    elif min(width, have) == 32:
        e(MOV, d, word)
    elif have < width:
        wide = e.tmp() if width < 32 and (source[0], target[0]) == ("s", "u") else d
        e(SGXT if source[0] == "s" else SGXT_U32, wide, word, Const(have))
        if wide is not d:
            e(SGXT_U32, d, wide, Const(width))
    else:
        e(SGXT if target[0] == "s" else SGXT_U32, d, word, Const(width))


def _extend64(e: Emitter, d: Value, low: Value, is_signed: bool) -> None:
    e(MOV, e.lo(d), low)
    if is_signed:
        e(SHF_R_S32, e.hi(d), low, Const(31))
    else:
        e(MOV, e.hi(d), ZERO)


def _limits(type: str) -> tuple[int, int]:
    width = int(type[1:])
    return (-(1 << width - 1), (1 << width - 1) - 1) if type[0] == "s" else (0, (1 << width) - 1)


def saturated(e: Emitter, d: Value, a: Value, target: str, source: str) -> None:
    """`.sat`: limits by I2I for up to 16 bits, by comparison and selection for 32 and 64."""
    have, width = int(source[1:]), int(target[1:])
    if have == 64:
        _saturated64(e, d, a, target, source)
        return
    value, word = widened(e, a, source), source[0] + "32"
    if width < 32:
        e(I2I[target, word], d, value)
        return
    if source[0] == "s":  # to unsigned: only negative values are out of range
        cmp, limit = "lt", 0
    else:  # u32 to s32: only values from 2^31 on
        cmp, limit = "gt", M32 >> 1
    p, limited = e.tmp("p"), e.tmp()
    e(ISETP[cmp, word], p, value, Const(limit))
    e(SEL, limited, Const(limit), value, p)
    if width == 64:
        _extend64(e, d, limited, False)
    else:
        e(MOV, d, limited)


def _saturated64(e: Emitter, d: Value, a: Value, target: str, source: str) -> None:
    """A 64-bit source against both limits."""
    low, high = e.lo(a), e.hi(a)
    word = source[0] + "32"
    for cmp, limit in zip(("lt", "gt"), _limits(target), strict=True):
        bound = _limits(source)[cmp == "gt"]
        if (cmp == "lt" and bound >= limit) or (cmp == "gt" and bound <= limit):
            continue
        first, p = e.tmp("p"), e.tmp("p")
        next_low, next_high = e.tmp(), e.tmp()
        e(ISETP[cmp, "u32"], first, low, Const(limit & M32))
        e(ISETP_EX[word], (p, None), high, Const(limit >> 32 & M32), first, TRUE, imm=LT if cmp == "lt" else GT)
        e(SEL, next_low, Const(limit & M32), low, p)
        e(SEL, next_high, Const(limit >> 32 & M32), high, p)
        low, high = next_low, next_high
    if int(target[1:]) == 64:
        e(MOV, e.lo(d), low)
        e(MOV, e.hi(d), high)
    else:
        e(MOV, d, low)


INTEGERS = tuple(f"{sign}{width}" for sign in "su" for width in (8, 16, 32, 64))


@instruction("cvt.D.A d, a;", sets={"D": INTEGERS, "A": INTEGERS}, types={"d": "D", "a": "A"})
def convert_integer(e: Emitter, m: Match) -> None:
    """Integer to integer: extended, or reduced modulo 2^n."""
    integer(e, m.d, m.a, m["D"], m["A"])


def convert_saturated(e: Emitter, m: Match) -> None:
    """Integer to integer, clamped to the target's range."""
    saturated(e, m.d, m.a, m["D"], m["A"])


for _target in INTEGERS:
    _low, _high = _limits(_target)
    _sources = tuple(t for t in INTEGERS if _limits(t)[0] < _low or _limits(t)[1] > _high)
    instruction("cvt.sat.D.A d, a;", sets={"D": (_target,), "A": _sources}, types={"d": "D", "a": "A"})(
        convert_saturated
    )


@instruction(
    "cvt.RND{.ftz}.D.f32 d, a;",
    "cvt.RND.relu.D.f32 d, a;",
    sets={"RND": ("rn", "rz"), "D": ("f16", "bf16")},
    types={"d": "D", "a": "f32"},
)
def narrow(e: Emitter, m: Match) -> None:
    """d = a in half precision: the low half of a pack with zero.  An input that .ftz flushes is zero in f16 anyway."""
    a = m.a
    if m.has(".ftz") and m["D"] == "bf16":
        a = e.tmp()
        e(FADD_FTZ, a, m.a, Const(SIGN32))
    e(F2FP[m["D"], m["RND"], m.has(".relu")], m.d, ZERO, a)


@instruction(
    "cvt.RND{.relu}.D.f32 d, a, b;",
    sets={"RND": ("rn", "rz"), "D": ("f16x2", "bf16x2")},
    types={"d": "D", "a": "f32", "b": "f32"},
)
def narrow_pair(e: Emitter, m: Match) -> None:
    """d = {b (low), a (high)} in half precision."""
    e(F2FP[m["D"][:-2], m["RND"], m.has(".relu")], m.d, m.a, m.b)


@instruction("cvt{.ftz}.f32.f16 d, a;", types={"a": "f16"})
def widen_f16(e: Emitter, m: Match) -> None:
    """d = a, exact (a subnormal f16 is a normal f32); NaN becomes 0x7fffffff."""
    e(HADD2_F32, m.d, m.a)


@instruction("cvt.f32.bf16 d, a;", types={"a": "bf16"})
def widen_bf16(e: Emitter, m: Match) -> None:
    """d = a, exact, NaN payload kept."""
    e(SHF_L, m.d, m.a, Const(16))


@instruction("cvt{.ftz}{.sat}.f32.f32 d, a;")
def same_f32(e: Emitter, m: Match) -> None:
    """d = a, flushed or clamped to [0, 1]."""
    if m.has(".sat"):
        e(FADD_ANY["rn"], m.d, m.a, Const(SIGN32), imm=m.has(".ftz") | 2)
    else:
        e(FADD_FTZ if m.has(".ftz") else FADD, m.d, m.a, Const(SIGN32))


@instruction("cvt.rna.tf32.f32 d, a;", types={"d": "b32"})
def tf32_away(e: Emitter, m: Match) -> None:
    """Ties away: add half a unit to finite values, clear the low bits."""
    finite, moved = e.tmp("p"), e.tmp()
    e(FSETP_ABS["lt"], finite, m.a, Const(F32.inf))
    e(IADD3_IF, moved, m.a, Const(0x1000), finite)
    e(AND, m.d, moved, Const(0xFFFFE000))


@instruction("cvt.RND.tf32.f32 d, a;", sets={"RND": ("rn", "rz")}, types={"d": "b32"}, targets=HOPPER)
def tf32(e: Emitter, m: Match) -> None:
    """d = a with 10 fraction bits."""
    e(F2FP_TF32[m["RND"]], m.d, m.a)
