"""Shifts and bit fields (PTX ISA 9.7.1, 9.7.8): shl shr shf bfe bfi popc clz bfind brev."""

from __future__ import annotations

from typing import Any

from isa.bits import M32, M64, signed
from isa.micro import VectorBuilder, lane
from isa.ops.compare import ISETP
from isa.ops.integer import IADD3, IADD3_NEG, SGXT, SGXT_U32, VIMNMX, add64, widened16
from isa.ops.logic import LOP3_LUT, SELECT_BITS
from isa.ops.move import MOV
from isa.ops.select import SEL
from isa.registry import Const, Emitter, Match, Value, instruction

ZERO = Const(0)

# ---- micro-operations ---------------------------------------------------------------------------


def _shift32(v: VectorBuilder, shift: Any, a: Any, n: Any) -> Any:
    """A logical shift whose counts of 32 and more give 0."""
    moved = shift(a, v.and_(n, v.const(31)))
    return v.select(v.icmp("<", n, v.const(32)), moved, v.const(0))


def _funnel(v: VectorBuilder, low: Any, n: Any, high: Any, limit: int) -> Any:
    """{high, low} and the clamped 64-bit count."""
    count = v.call("umin", n, v.const(limit))
    return v.pair(low, high), v.zext(count, "u64")


def _funnel_left(v: VectorBuilder, low: Any, n: Any, high: Any, wrap: bool) -> Any:
    n = v.and_(n, v.const(31)) if wrap else n
    value, count = _funnel(v, low, n, high, 32)
    return v.halves(v.shl(value, count))[1]


def _funnel_right(v: VectorBuilder, low: Any, n: Any, high: Any, wrap: bool) -> Any:
    n = v.and_(n, v.const(31)) if wrap else n
    value, count = _funnel(v, low, n, high, 32)
    return v.halves(v.lshr(value, count))[0]


def _funnel_right64(v: VectorBuilder, low: Any, n: Any, high: Any, arithmetic: bool) -> Any:
    value, count = _funnel(v, low, n, high, 63)
    moved = v.halves((v.ashr if arithmetic else v.lshr)(value, count))[0]
    if arithmetic:
        return moved
    return v.select(v.icmp("<", n, v.const(64)), moved, v.const(0))


def _funnel_left64(v: VectorBuilder, low: Any, n: Any, high: Any) -> Any:
    value, count = _funnel(v, low, n, high, 63)
    return v.select(v.icmp("<", n, v.const(64)), v.halves(v.shl(value, count))[1], v.const(0))


SHF_L = lane(
    "SHF.L",
    "uu->u",
    "alu",
    lambda a, n: (a << n) & M32 if n < 32 else 0,
    lambda v, a, n: _shift32(v, v.shl, a, n),
    "a << n; counts from 32 give 0",
)
SHF_R_U32 = lane(
    "SHF.R.U32",
    "uu->u",
    "alu",
    lambda a, n: a >> n if n < 32 else 0,
    lambda v, a, n: _shift32(v, v.lshr, a, n),
    "a >> n, logical; counts from 32 give 0",
)
SHF_R_S32 = lane(
    "SHF.R.S32",
    "uu->u",
    "alu",
    lambda a, n: (signed(a, 32) >> min(n, 31)) & M32,
    lambda v, a, n: v.ashr(a, v.call("umin", n, v.const(31))),
    "a >> n, arithmetic; counts from 32 give the sign",
)
SHF_L_HI = lane(
    "SHF.L.HI",
    "uuu->u",
    "alu",
    lambda low, n, high: ((high << 32 | low) << min(n, 32) & M64) >> 32,
    lambda v, low, n, high: _funnel_left(v, low, n, high, False),
    "high word of {high, low} << min(n, 32)",
)
SHF_L_W_HI = lane(
    "SHF.L.W.HI",
    "uuu->u",
    "alu",
    lambda low, n, high: ((high << 32 | low) << (n & 31) & M64) >> 32,
    lambda v, low, n, high: _funnel_left(v, low, n, high, True),
    "high word of {high, low} << (n mod 32)",
)
SHF_R = lane(
    "SHF.R",
    "uuu->u",
    "alu",
    lambda low, n, high: ((high << 32 | low) >> min(n, 32)) & M32,
    lambda v, low, n, high: _funnel_right(v, low, n, high, False),
    "low word of {high, low} >> min(n, 32)",
)
SHF_R_W = lane(
    "SHF.R.W",
    "uuu->u",
    "alu",
    lambda low, n, high: ((high << 32 | low) >> (n & 31)) & M32,
    lambda v, low, n, high: _funnel_right(v, low, n, high, True),
    "low word of {high, low} >> (n mod 32)",
)
SHF_L_U64_HI = lane(
    "SHF.L.U64.HI",
    "uuu->u",
    "alu",
    lambda low, n, high: ((high << 32 | low) << n & M64) >> 32 if n < 64 else 0,
    _funnel_left64,
    "high word of the 64-bit {high, low} << n; counts from 64 give 0",
)
SHF_R_U64 = lane(
    "SHF.R.U64",
    "uuu->u",
    "alu",
    lambda low, n, high: ((high << 32 | low) >> n) & M32 if n < 64 else 0,
    lambda v, low, n, high: _funnel_right64(v, low, n, high, False),
    "low word of the 64-bit {high, low} >> n, logical",
)
SHF_R_S64 = lane(
    "SHF.R.S64",
    "uuu->u",
    "alu",
    lambda low, n, high: (signed(high << 32 | low, 64) >> min(n, 63)) & M32,
    lambda v, low, n, high: _funnel_right64(v, low, n, high, True),
    "low word of the 64-bit {high, low} >> n, arithmetic",
)
BMSK = lane(
    "BMSK",
    "uu->u",
    "alu",
    lambda position, n: (((1 << min(n & 255, 32)) - 1) << (position & 255)) & M32 if (position & 255) < 32 else 0,
    lambda v, position, n: _mask(v, v.and_(position, v.const(255)), v.and_(n, v.const(255))),
    "n ones from bit `position` (both taken modulo 256)",
)
POPC = lane("POPC", "u->u", "xu", lambda a: a.bit_count(), lambda v, a: v.call("ctpop", a), "number of ones")
FLO = lane(
    "FLO.U32",
    "u->u",
    "xu",
    lambda a: a.bit_length() - 1 & M32,
    lambda v, a: v.sub(v.const(31), v.call("ctlz", a)),
    "place of the highest one, or -1",
)
FLO_S32 = lane(
    "FLO",
    "u->u",
    "xu",
    lambda a: (a ^ M32 if a >> 31 else a).bit_length() - 1 & M32,
    lambda v, a: v.sub(v.const(31), v.call("ctlz", v.xor(a, v.ashr(a, v.const(31))))),
    "place of the highest bit that differs from the sign, or -1",
)
FLO_SH = lane(
    "FLO.U32.SH",
    "u->u",
    "xu",
    lambda a: 32 - a.bit_length() if a else M32,
    lambda v, a: v.select(v.icmp("==", a, v.const(0)), v.const(M32), v.call("ctlz", a)),
    "left shift that brings the highest one to bit 31, or -1",
)
FLO_S32_SH = lane(
    "FLO.SH",
    "u->u",
    "xu",
    lambda a: FLO_SH.meaning(a ^ M32 if a >> 31 else a),  # type: ignore[misc]
    lambda v, a: FLO_SH.emit(v, v.xor(a, v.ashr(a, v.const(31)))),  # type: ignore[misc]
    "the same for the highest bit that differs from the sign",
)
BREV = lane(
    "BREV",
    "u->u",
    "xu",
    lambda a: int(f"{a:032b}"[::-1], 2),
    lambda v, a: v.call("bitreverse", a),
    "bits in reverse order",
)


def _mask(v: VectorBuilder, position: Any, n: Any) -> Any:
    ones = v.not_(v.halves(v.shl(v.const(-1, "u64"), v.zext(v.call("umin", n, v.const(32)), "u64")))[0])
    return _shift32(v, v.shl, ones, position)


# ---- forms ----------------------------------------------------------------------------------------


@instruction("shl.b32 d, a, b;", "shr.{u32,b32} d, a, b;", "shr.s32 d, a, b;", types={"b": "u32"})
def shift32(e: Emitter, m: Match) -> None:
    """Shift by an unsigned count; counts above 31 shift everything out (arithmetic: leave the sign)."""
    left = m.form.opcode == "shl"
    e(SHF_L if left else SHF_R_S32 if m.has(".s32") else SHF_R_U32, m.d, m.a, m.b)


@instruction("shl.b16 d, a, b;", "shr.{u16,b16} d, a, b;", "shr.s16 d, a, b;", types={"b": "u32"})
def shift16(e: Emitter, m: Match) -> None:
    """16-bit shifts: right shifts extend first."""
    if m.form.opcode == "shl":
        e(SHF_L, m.d, m.a, m.b)
    elif m.has(".s16"):
        e(SHF_R_S32, m.d, widened16(e, m.a, "s16"), m.b)
    else:
        e(SHF_R_U32, m.d, widened16(e, m.a, "u16"), m.b)


def shl64(e: Emitter, d: Value, a: Value, n: Value) -> None:
    """d = a << n; the high word first, so that d may be a."""
    e(SHF_L_U64_HI, e.hi(d), e.lo(a), n, e.hi(a))
    e(SHF_L, e.lo(d), e.lo(a), n)


def shr64(e: Emitter, d: Value, a: Value, n: Value, arithmetic: bool) -> None:
    """d = a >> n; the low word first, so that d may be a."""
    e(SHF_R_S64 if arithmetic else SHF_R_U64, e.lo(d), e.lo(a), n, e.hi(a))
    e(SHF_R_S32 if arithmetic else SHF_R_U32, e.hi(d), e.hi(a), n)


@instruction("shl.b64 d, a, b;", "shr.{u64,b64} d, a, b;", "shr.s64 d, a, b;", types={"b": "u32"})
def shift64(e: Emitter, m: Match) -> None:
    """64-bit shifts; counts above 63 give 0, or the sign."""
    if m.form.opcode == "shl":
        shl64(e, m.d, m.a, m.b)
    else:
        shr64(e, m.d, m.a, m.b, m.has(".s64"))


@instruction("shf.l.MODE.b32 d, a, b, c;", "shf.r.MODE.b32 d, a, b, c;", sets={"MODE": ("clamp", "wrap")})
def funnel(e: Emitter, m: Match) -> None:
    """Shift the 64-bit {b, a} by c: left gives the high word, right the low word."""
    wrap = m["MODE"] == "wrap"
    left = SHF_L_W_HI if wrap else SHF_L_HI
    right = SHF_R_W if wrap else SHF_R
    e(left if m.has(".l") else right, m.d, m.a, m.c, m.b)


@instruction("bfe.T d, a, b, c;", sets={"T": ("u32", "s32")}, types={"b": "u32", "c": "u32"})
def bfe(e: Emitter, m: Match) -> None:
    """Bits b .. b+c-1 of a (b and c modulo 256), extended; past bit 31 stand zeros or the sign."""
    position, field = _byte(e, m.b), e.tmp()
    is_signed = m["T"] == "s32"
    e(SHF_R_S32 if is_signed else SHF_R_U32, field, m.a, position)
    e(SGXT if is_signed else SGXT_U32, m.d, field, m.c)


@instruction("bfe.T d, a, b, c;", sets={"T": ("u64", "s64")}, types={"b": "u32", "c": "u32"})
def bfe64(e: Emitter, m: Match) -> None:
    """The same on 64 bits: up to the top, then down with zeros or the sign."""
    field, unused, arithmetic = e.tmp("d"), e.tmp(), m["T"] == "s64"
    shr64(e, field, m.a, _byte(e, m.b), arithmetic)
    length = e.tmp()
    e(VIMNMX["min", "u32"], length, _byte(e, m.c), Const(64))
    e(IADD3_NEG, unused, Const(64), length)
    shl64(e, field, field, unused)
    shr64(e, m.d, field, unused, arithmetic)


@instruction("bfi.b32 d, a, b, c, n;", types={"c": "u32", "n": "u32"})
def bfi(e: Emitter, m: Match) -> None:
    """d = b with its bits c .. c+n-1 (c and n modulo 256) replaced by the low bits of a."""
    mask, moved = e.tmp(), e.tmp()
    e(BMSK, mask, m.c, m.n)
    e(SHF_L, moved, m.a, _byte(e, m.c))
    e(LOP3_LUT, m.d, moved, mask, m.b, imm=SELECT_BITS)


@instruction("bfi.b64 d, a, b, c, n;", types={"c": "u32", "n": "u32"})
def bfi64(e: Emitter, m: Match) -> None:
    """The same on 64 bits."""
    mask, moved, position, one = e.tmp("d"), e.tmp("d"), _byte(e, m.c), Const(1, "d")
    shl64(e, mask, one, _byte(e, m.n))
    add64(e, mask, mask, Const(M64, "d"))
    shl64(e, mask, mask, position)
    shl64(e, moved, m.a, position)
    for half in (e.lo, e.hi):
        e(LOP3_LUT, half(m.d), half(moved), half(mask), half(m.b), imm=SELECT_BITS)


def _byte(e: Emitter, x: Value) -> Value:
    """The low byte of a bit position."""
    if isinstance(x, Const):
        return Const(x.bits & 255)
    d = e.tmp()
    e(SGXT_U32, d, x, Const(8))
    return d


@instruction("popc.b32 d, a;", types={"d": "u32"})
def popc(e: Emitter, m: Match) -> None:
    """Number of ones."""
    e(POPC, m.d, m.a)


@instruction("popc.b64 d, a;", types={"d": "u32"})
def popc64(e: Emitter, m: Match) -> None:
    """Number of ones."""
    low, high = e.tmp(), e.tmp()
    e(POPC, low, e.lo(m.a))
    e(POPC, high, e.hi(m.a))
    e(IADD3, m.d, low, high)


@instruction("clz.b32 d, a;", types={"d": "u32"})
def clz(e: Emitter, m: Match) -> None:
    """Number of leading zeros, 32 for 0."""
    place = e.tmp()
    e(FLO, place, m.a)
    e(IADD3_NEG, m.d, Const(31), place)


@instruction("clz.b64 d, a;", types={"d": "u32"})
def clz64(e: Emitter, m: Match) -> None:
    """Number of leading zeros, 64 for 0: of the high word unless that is 0."""
    zero, word, place, base = e.tmp("p"), e.tmp(), e.tmp(), e.tmp()
    e(ISETP["eq", "u32"], zero, e.hi(m.a), ZERO)
    e(SEL, word, e.lo(m.a), e.hi(m.a), zero)
    e(FLO, place, word)
    e(SEL, base, Const(63), Const(31), zero)
    e(IADD3_NEG, m.d, base, place)


@instruction("bfind{.shiftamt}.T d, a;", sets={"T": ("u32", "s32")}, types={"d": "u32"})
def bfind(e: Emitter, m: Match) -> None:
    """Place of the highest significant bit (from the top with .shiftamt), 0xffffffff without one."""
    plain, shift = (FLO_S32, FLO_S32_SH) if m["T"] == "s32" else (FLO, FLO_SH)
    e(shift if m.has(".shiftamt") else plain, m.d, m.a)


@instruction("brev.b32 d, a;")
def brev(e: Emitter, m: Match) -> None:
    """Bits in reverse order."""
    e(BREV, m.d, m.a)


@instruction("brev.b64 d, a;")
def brev64(e: Emitter, m: Match) -> None:
    """Bits in reverse order."""
    high = e.tmp()
    e(BREV, high, e.lo(m.a))
    e(BREV, e.lo(m.d), e.hi(m.a))
    e(MOV, e.hi(m.d), high)
