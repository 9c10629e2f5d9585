"""Integer arithmetic (PTX ISA 9.7.1): add sub neg abs min max mul mad mul24 mad24 sad.

A 16-bit value lives in the low half of a 32-bit register; the high half is unspecified, so operations whose
result depends on it extend their operands first, as `ptxas` does.
"""

from __future__ import annotations

from typing import Any

from isa.bits import M32, M64, signed
from isa.micro import Micro, VectorBuilder, lane
from isa.registry import Const, Emitter, Match, Value, instruction

INT32 = ("u32", "s32")
INT64 = ("u64", "s64")
INT16 = ("u16", "s16")
ZERO, ZERO64 = Const(0), Const(0, "d")


def s32(x: int) -> int:
    """Bits as a signed 32-bit integer."""
    return signed(x, 32)


# ---- micro-operations ---------------------------------------------------------------------------


def _sum_carry(v: VectorBuilder, a: Any, b: Any) -> Any:
    total = v.add(a, b)
    return total, v.icmp("<", total, a)


def _wide(signed_: bool) -> tuple[Any, Any]:
    """Meaning and emission of a 32 x 32 + 64 bit multiply-add."""

    def meaning(a: int, b: int, c: int) -> int:
        return ((s32(a) * s32(b) if signed_ else a * b) + c) & M64

    def emit(v: VectorBuilder, a: Any, b: Any, c: Any) -> Any:
        extend = v.sext if signed_ else v.zext
        return v.add(v.mul(extend(a, "u64"), extend(b, "u64")), c)

    return meaning, emit


def _high(signed_: bool) -> tuple[Any, Any]:
    """Meaning and emission of the high half of a product, plus c."""

    def meaning(a: int, b: int, c: int) -> int:
        return (((s32(a) * s32(b) if signed_ else a * b) >> 32) + c) & M32

    def emit(v: VectorBuilder, a: Any, b: Any, c: Any) -> Any:
        extend = v.sext if signed_ else v.zext
        return v.add(v.halves(v.mul(extend(a, "u64"), extend(b, "u64")))[1], c)

    return meaning, emit


IADD3 = lane("IADD3", "uu->u", "alu", lambda a, b: (a + b) & M32, lambda v, a, b: v.add(a, b), "a + b")
IADD3_NEG = lane("IADD3.NEG", "uu->u", "alu", lambda a, b: (a - b) & M32, lambda v, a, b: v.sub(a, b), "a - b")
IADD3_CC = lane(
    "IADD3.CC", "uu->up", "alu", lambda a, b: ((a + b) & M32, a + b > M32), _sum_carry, "a + b and its carry"
)
IADD3_NEG_CC = lane(
    "IADD3.NEG.CC",
    "uu->up",
    "alu",
    lambda a, b: ((a - b) & M32, a >= b),
    lambda v, a, b: (v.sub(a, b), v.icmp(">=", a, b)),
    "a - b and its carry (no borrow)",
)
IADD3_X = lane(
    "IADD3.X",
    "uup->u",
    "alu",
    lambda a, b, p: (a + b + p) & M32,
    lambda v, a, b, p: v.add(v.add(a, b), v.cast_pred(p, "u32")),
    "a + b + carry",
)
IADD3_NEG_X = lane(
    "IADD3.NEG.X",
    "uup->u",
    "alu",
    lambda a, b, p: (a - b - 1 + p) & M32,
    lambda v, a, b, p: v.add(v.add(a, v.not_(b)), v.cast_pred(p, "u32")),
    "a - b - 1 + carry",
)
IADD3_IF = lane(
    "IADD3.IF",
    "uup->u",
    "alu",
    lambda a, b, p: (a + b) & M32 if p else a,
    lambda v, a, b, p: v.select(p, v.add(a, b), a),
    "a + b where p, else a: ptxas's @P IADD3",
)
IADD3_NEG_IF = lane(
    "IADD3.NEG.IF",
    "uup->u",
    "alu",
    lambda a, b, p: (a - b) & M32 if p else a,
    lambda v, a, b, p: v.select(p, v.sub(a, b), a),
    "a - b where p, else a",
)
IMAD = lane(
    "IMAD",
    "uuu->u",
    "imad",
    lambda a, b, c: (a * b + c) & M32,
    lambda v, a, b, c: v.add(v.mul(a, b), c),
    "a * b + c, low 32 bits",
)
IMAD_HI = lane("IMAD.HI", "uuu->u", "imad", *_high(True), "high half of signed a * b, plus c")
IMAD_HI_U32 = lane("IMAD.HI.U32", "uuu->u", "imad", *_high(False), "high half of unsigned a * b, plus c")
IMAD_WIDE = lane("IMAD.WIDE", "uuU->U", "imad", *_wide(True), "signed a * b + c, 64 bits")
IMAD_WIDE_U32 = lane("IMAD.WIDE.U32", "uuU->U", "imad", *_wide(False), "unsigned a * b + c, 64 bits")
IABS = lane(
    "IABS",
    "u->u",
    "alu",
    lambda a: abs(s32(a)) & M32,
    lambda v, a: v.call("smax", a, v.sub(v.const(0), a)),
    "|a| (the most negative integer stays)",
)
VABSDIFF = lane(
    "VABSDIFF",
    "uuu->u",
    "alu",
    lambda a, b, c: (abs(s32(a) - s32(b)) + c) & M32,
    lambda v, a, b, c: v.add(c, v.sub(v.call("smax", a, b), v.call("smin", a, b))),
    "|a - b| + c, signed",
)
VABSDIFF_U32 = lane(
    "VABSDIFF.U32",
    "uuu->u",
    "alu",
    lambda a, b, c: (abs(a - b) + c) & M32,
    lambda v, a, b, c: v.add(c, v.sub(v.call("umax", a, b), v.call("umin", a, b))),
    "|a - b| + c, unsigned",
)


def _min_max(name: str, call: str) -> Micro:
    pick = min if call.endswith("min") else max
    key = s32 if call.startswith("s") else (lambda x: x)
    return lane(
        name, "uu->u", "alu", lambda a, b: pick(a, b, key=key), lambda v, a, b: v.call(call, a, b), f"{call} of a and b"
    )


def _min_max16(name: str, call: str) -> Micro:
    pick = min if call.endswith("min") else max
    key = (lambda x: signed(x, 16)) if call.startswith("s") else (lambda x: x)

    def meaning(a: int, b: int) -> int:
        low, high = pick(a & 0xFFFF, b & 0xFFFF, key=key), pick(a >> 16, b >> 16, key=key)
        return high << 16 | low

    return lane(
        name,
        "uu->u",
        "alu",
        meaning,
        lambda v, a, b: v.call(call, v.bits(a, "u16x2"), v.bits(b, "u16x2")),
        f"{call} of each 16-bit half",
    )


VIMNMX = {
    ("min", "s32"): _min_max("VIMNMX.MIN", "smin"),
    ("max", "s32"): _min_max("VIMNMX.MAX", "smax"),
    ("min", "u32"): _min_max("VIMNMX.U32.MIN", "umin"),
    ("max", "u32"): _min_max("VIMNMX.U32.MAX", "umax"),
    ("min", "s16x2"): _min_max16("VIMNMX.S16x2.MIN", "smin"),
    ("max", "s16x2"): _min_max16("VIMNMX.S16x2.MAX", "smax"),
    ("min", "u16x2"): _min_max16("VIMNMX.U16x2.MIN", "umin"),
    ("max", "u16x2"): _min_max16("VIMNMX.U16x2.MAX", "umax"),
}
VIADD16 = lane(
    "VIADD.16x2",
    "uu->u",
    "alu",
    lambda a, b: ((a >> 16) + (b >> 16) & 0xFFFF) << 16 | (a + b & 0xFFFF),
    lambda v, a, b: v.add(v.bits(a, "u16x2"), v.bits(b, "u16x2")),
    "a + b in each 16-bit half",
)
SGXT = lane(
    "SGXT",
    "uu->u",
    "alu",
    lambda a, n: signed(a, min(n & 255, 32)) & M32 if n & 255 else 0,
    lambda v, a, n: _extend(v, a, n, True),
    "the low n bits of a, sign-extended (n of 0: 0)",
)
SGXT_U32 = lane(
    "SGXT.U32",
    "uu->u",
    "alu",
    lambda a, n: a & ((1 << min(n & 255, 32)) - 1),
    lambda v, a, n: _extend(v, a, n, False),
    "the low n bits of a, zero-extended",
)


def _extend(v: VectorBuilder, a: Any, n: Any, signed_: bool) -> Any:
    count = v.call("umin", v.and_(n, v.const(255)), v.const(32))
    shift = v.and_(v.sub(v.const(32), count), v.const(31))
    moved = (v.ashr if signed_ else v.lshr)(v.shl(a, shift), shift)
    return v.select(v.icmp("==", count, v.const(0)), v.const(0), moved)


# ---- helpers for other families --------------------------------------------------------------------


def add64(e: Emitter, d: Value, a: Value, b: Value) -> None:
    """d = a + b on 64-bit values: IADD3 with carry, IADD3.X."""
    carry = e.tmp("p")
    e(IADD3_CC, (e.lo(d), carry), e.lo(a), e.lo(b))
    e(IADD3_X, e.hi(d), e.hi(a), e.hi(b), carry)


def sub64(e: Emitter, d: Value, a: Value, b: Value) -> None:
    """d = a - b on 64-bit values."""
    carry = e.tmp("p")
    e(IADD3_NEG_CC, (e.lo(d), carry), e.lo(a), e.lo(b))
    e(IADD3_NEG_X, e.hi(d), e.hi(a), e.hi(b), carry)


def widened16(e: Emitter, x: Value, type: str) -> Value:
    """A 16-bit operand extended to 32 bits; other types unchanged."""
    if type not in ("u16", "s16", "b16"):
        return x
    if isinstance(x, Const):
        return Const(signed(x.bits, 16) & M32 if type == "s16" else x.bits & 0xFFFF)
    d = e.tmp()
    e(SGXT if type == "s16" else SGXT_U32, d, x, Const(16))
    return d


# ---- forms ----------------------------------------------------------------------------------------


@instruction("add.T d, a, b;", sets={"T": (*INT32, *INT64, *INT16)})
def add(e: Emitter, m: Match) -> None:
    """d = a + b, modulo 2^n."""
    if m["T"] in INT64:
        add64(e, m.d, m.a, m.b)
    else:
        e(IADD3, m.d, m.a, m.b)


@instruction("sub.T d, a, b;", sets={"T": (*INT32, *INT64, *INT16)})
def sub(e: Emitter, m: Match) -> None:
    """d = a - b, modulo 2^n."""
    if m["T"] in INT64:
        sub64(e, m.d, m.a, m.b)
    else:
        e(IADD3_NEG, m.d, m.a, m.b)


@instruction("add.T d, a, b;", sets={"T": ("u16x2", "s16x2")}, targets=("sm_90", "sm_90a", "sm_100a"))
def add_packed(e: Emitter, m: Match) -> None:
    """Each half: d = a + b, modulo 2^16."""
    e(VIADD16, m.d, m.a, m.b)


@instruction("neg.T d, a;", sets={"T": ("s32", "s64", "s16")})
def neg(e: Emitter, m: Match) -> None:
    """d = -a."""
    if m["T"] == "s64":
        sub64(e, m.d, ZERO64, m.a)
    else:
        e(IADD3_NEG, m.d, ZERO, m.a)


@instruction("min.T d, a, b;", "max.T d, a, b;", sets={"T": INT32})
def min_max(e: Emitter, m: Match) -> None:
    """The smaller or larger of a and b."""
    e(VIMNMX[m.form.opcode, m["T"]], m.d, m.a, m.b)


@instruction("min.T d, a, b;", "max.T d, a, b;", sets={"T": INT16})
def min_max16(e: Emitter, m: Match) -> None:
    """The smaller or larger of a and b; the packed instruction does it, its high half is unused."""
    e(VIMNMX[m.form.opcode, m["T"] + "x2"], m.d, m.a, m.b)


@instruction("min.T d, a, b;", "max.T d, a, b;", sets={"T": ("u16x2", "s16x2")}, targets=("sm_90", "sm_90a", "sm_100a"))
def min_max_packed(e: Emitter, m: Match) -> None:
    """The smaller or larger of each half."""
    e(VIMNMX[m.form.opcode, m["T"]], m.d, m.a, m.b)


@instruction(
    "min.relu.T d, a, b;", "max.relu.T d, a, b;", sets={"T": ("s16x2", "s32")}, targets=("sm_90", "sm_90a", "sm_100a")
)
def min_max_relu(e: Emitter, m: Match) -> None:
    """The smaller or larger (of each half), negative results made 0."""
    found = e.tmp()
    e(VIMNMX[m.form.opcode, m["T"]], found, m.a, m.b)
    e(VIMNMX["max", m["T"]], m.d, found, ZERO)


@instruction("abs.s32 d, a;")
def abs_s32(e: Emitter, m: Match) -> None:
    """d = |a|."""
    e(IABS, m.d, m.a)


@instruction("abs.s16 d, a;")
def abs_s16(e: Emitter, m: Match) -> None:
    """d = |a|."""
    e(IABS, m.d, widened16(e, m.a, "s16"))


@instruction("mul.lo.T d, a, b;", sets={"T": (*INT32, *INT16)})
def mul_lo(e: Emitter, m: Match) -> None:
    """d = a * b, low half."""
    e(IMAD, m.d, m.a, m.b, ZERO)


@instruction("mad.lo.T d, a, b, c;", sets={"T": (*INT32, *INT16)})
def mad_lo(e: Emitter, m: Match) -> None:
    """d = a * b + c, low half."""
    e(IMAD, m.d, m.a, m.b, m.c)


@instruction("mul.hi.T d, a, b;", "mad.hi.T d, a, b, c;", sets={"T": INT32})
def mul_hi(e: Emitter, m: Match) -> None:
    """d = the high half of a * b (+ c)."""
    c = m.c if m.form.opcode == "mad" else ZERO
    e(IMAD_HI if m["T"] == "s32" else IMAD_HI_U32, m.d, m.a, m.b, c)


@instruction("mul.wide.T d, a, b;", sets={"T": INT32}, types={"d": "u64"})
@instruction("mad.wide.T d, a, b, c;", sets={"T": INT32}, types={"d": "u64", "c": "u64"})
def mul_wide(e: Emitter, m: Match) -> None:
    """d = a * b (+ c), 64 bits."""
    c = m.c if m.form.opcode == "mad" else ZERO64
    e(IMAD_WIDE if m["T"] == "s32" else IMAD_WIDE_U32, m.d, m.a, m.b, c)


@instruction("mul.wide.T d, a, b;", sets={"T": INT16}, types={"d": "u32"})
@instruction("mad.wide.T d, a, b, c;", sets={"T": INT16}, types={"d": "u32", "c": "u32"})
def mul_wide16(e: Emitter, m: Match) -> None:
    """d = a * b (+ c) of 16-bit integers, 32 bits."""
    c = m.c if m.form.opcode == "mad" else ZERO
    e(IMAD, m.d, widened16(e, m.a, m["T"]), widened16(e, m.b, m["T"]), c)


@instruction("mul24.lo.T d, a, b;", "mad24.lo.T d, a, b, c;", sets={"T": INT32})
def mul24_lo(e: Emitter, m: Match) -> None:
    """d = the low 32 bits of the 24-bit integers' product (+ c)."""
    a, b = low24(e, m)
    e(IMAD, m.d, a, b, m.c if m.form.opcode == "mad24" else ZERO)


def low24(e: Emitter, m: Match) -> tuple[Value, Value]:
    """The operands a and b, extended from 24 bits."""
    a, b = e.tmp(), e.tmp()
    extend = SGXT if m["T"] == "s32" else SGXT_U32
    e(extend, a, m.a, Const(24))
    e(extend, b, m.b, Const(24))
    return a, b


@instruction("sad.T d, a, b, c;", sets={"T": (*INT32, *INT16)})
def sad(e: Emitter, m: Match) -> None:
    """d = |a - b| + c."""
    op = VABSDIFF if m["T"].startswith("s") else VABSDIFF_U32
    e(op, m.d, widened16(e, m.a, m["T"]), widened16(e, m.b, m["T"]), m.c)
