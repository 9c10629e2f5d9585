"""Scalar video instructions (PTX ISA 9.7.17): a part of each source, an operation on 34 bits, a clamp, and a merge.

No chip since Kepler executes them; `ptxas` writes sequences too. An intermediate is a pair of words, 64 bits with a sign.
"""

from __future__ import annotations

from typing import NamedTuple

from isa.ops.carry import IADD3_X_CC
from isa.ops.compare import GT, ISETP, ISETP_EX, LT, TRUE
from isa.ops.integer import (
    IADD3,
    IADD3_CC,
    IADD3_NEG,
    IADD3_NEG_CC,
    IADD3_NEG_X,
    IADD3_X,
    IMAD_WIDE,
    IMAD_WIDE_U32,
    VIMNMX,
    ZERO,
    ZERO64,
)
from isa.ops.logic import AND, LOP3_LUT, NOT, OR, SELECT_BITS, XOR
from isa.ops.move import MOV
from isa.ops.select import SEL
from isa.ops.shift import SHF_L, SHF_L_U64_HI, SHF_R_S32, SHF_R_U32, SHF_R_U64
from isa.registry import Const, Emitter, Match, Part, PredConst, Value, instruction

TYPES = (".u32", ".s32")
COMPARISONS = (".eq", ".ne", ".lt", ".le", ".gt", ".ge")
M32 = (1 << 32) - 1


class Wide(NamedTuple):
    """A signed 64-bit integer in two words."""

    low: Value
    high: Value


# ---- parts of a word ----------------------------------------------------------------------------------


def field(e: Emitter, word: Value, at: int, width: int, type: str) -> Value:
    """Bits `at` .. `at + width - 1` of a word, extended by sign or zeros."""
    if width == 32:
        return word
    left, d = e.tmp(), e.tmp()
    e(SHF_L, left, word, Const(32 - at - width))
    e(SHF_R_S32 if type == "s32" else SHF_R_U32, d, left, Const(32 - width))
    return d


def place(e: Emitter, part: Part, name: str, m: Match) -> tuple[int, int]:
    """First bit and width of the byte or half that a scalar instruction's operand selects."""
    if not part.selector:
        return 0, 32
    kind, index = part.selector[0], part.selector[1:]
    if len(index) != 1 or int(index) >= {"b": 4, "h": 2}[kind]:
        raise e.error(f"'.{part.selector}' selects no byte or half", "write .b0 to .b3, .h0 or .h1", m.operand(name))
    width = {"b": 8, "h": 16}[kind]
    return int(index) * width, width


def insert(e: Emitter, d: Value, value: Value, into: Value, at: int, width: int) -> None:
    """d = `into` with `width` bits of `value` from bit `at` on."""
    moved = e.tmp()
    e(SHF_L, moved, value, Const(at))
    mask = ((1 << width) - 1) << at
    e(LOP3_LUT, d, moved, Const(mask), into, imm=SELECT_BITS)


# ---- 64-bit steps -------------------------------------------------------------------------------------


def extended(e: Emitter, low: Value, type: str) -> Wide:
    """A word as a signed 64-bit integer."""
    if type == "u32":
        return Wide(low, ZERO)
    high = e.tmp()
    e(SHF_R_S32, high, low, Const(31))
    return Wide(low, high)


def add(e: Emitter, a: Wide, b: Wide) -> Wide:
    """a + b."""
    low, high, carry = e.tmp(), e.tmp(), e.tmp("p")
    e(IADD3_CC, (low, carry), a.low, b.low)
    e(IADD3_X, high, a.high, b.high, carry)
    return Wide(low, high)


def subtract(e: Emitter, a: Wide, b: Wide) -> Wide:
    """a - b."""
    low, high, carry = e.tmp(), e.tmp(), e.tmp("p")
    e(IADD3_NEG_CC, (low, carry), a.low, b.low)
    e(IADD3_NEG_X, high, a.high, b.high, carry)
    return Wide(low, high)


def compared(e: Emitter, a: Wide, b: Wide, cmp: str) -> Value:
    """The predicate a cmp b."""
    p = e.tmp("p")
    if cmp in ("eq", "ne"):
        low, high, both = e.tmp(), e.tmp(), e.tmp()
        e(XOR, low, a.low, b.low)
        e(XOR, high, a.high, b.high)
        e(OR, both, low, high)
        e(ISETP[cmp, "u32"], p, both, ZERO)
        return p
    if cmp in ("gt", "le"):
        a, b, cmp = b, a, {"gt": "lt", "le": "ge"}[cmp]
    below = e.tmp("p")
    e(ISETP[cmp, "u32"], below, a.low, b.low)
    e(ISETP_EX["s32"], (p, None), a.high, b.high, below, TRUE, imm=LT if cmp == "lt" else GT)
    return p


def chosen(e: Emitter, p: Value, a: Wide, b: Wide) -> Wide:
    """p ? a : b."""
    low, high = e.tmp(), e.tmp()
    e(SEL, low, a.low, b.low, p)
    e(SEL, high, a.high, b.high, p)
    return Wide(low, high)


def extremum(e: Emitter, a: Wide, b: Wide, operation: str) -> Wide:
    """The smaller or larger."""
    return chosen(e, compared(e, a, b, "lt" if operation == "min" else "gt"), a, b)


def constant(value: int) -> Wide:
    """A constant."""
    return Wide(Const(value & M32), Const(value >> 32 & M32))


def clamped(e: Emitter, x: Wide, width: int, type: str) -> Wide:
    """x limited to the integers of `width` bits."""
    least, most = (-(1 << width - 1), (1 << width - 1) - 1) if type == "s32" else (0, (1 << width) - 1)
    return extremum(e, extremum(e, x, constant(least), "max"), constant(most), "min")


# ---- the operations -----------------------------------------------------------------------------------


def primary(e: Emitter, operation: str, a: Wide, b: Wide) -> Wide:
    """The first operation of an instruction by its name without the v."""
    if operation == "add":
        return add(e, a, b)
    if operation in ("min", "max"):
        return extremum(e, a, b, operation)
    difference = subtract(e, a, b)
    if operation == "sub":
        return difference
    zero = Wide(ZERO, ZERO)
    return chosen(e, compared(e, difference, zero, "lt"), subtract(e, zero, difference), difference)


def shifted(e: Emitter, operation: str, a: Wide, count: Value, wrap: bool) -> Wide:
    """a << count or a >> count; the count modulo 32, or 32 at most."""
    n, low, high = e.tmp(), e.tmp(), e.tmp()
    if wrap:
        e(AND, n, count, Const(31))
    else:
        e(VIMNMX["min", "u32"], n, count, Const(32))
    if operation == "shl":
        e(SHF_L, low, a.low, n)
        e(SHF_L_U64_HI, high, a.low, n, a.high)
    else:
        e(SHF_R_U64, low, a.low, n, a.high)
        e(SHF_R_S32, high, a.high, n)
    return Wide(low, high)


def _source(e: Emitter, m: Match, name: str, type: str) -> Wide:
    part: Part = getattr(m, name)
    if part.negated:
        raise e.error(f"operand {name} takes no minus here", operand=m.operand(name))
    at, width = place(e, part, name, m)
    return extended(e, field(e, part.value, at, width, type), type)


def _finish(e: Emitter, m: Match, x: Wide, type: str) -> None:
    """Clamp, then the second operation with c, or the merge into it."""
    at, width = place(e, m.d, "d", m)
    second = m["OP2"]
    if m.d.selector and (second or m.c is None):
        raise e.error("a part of d is written over those of c", "give c, and no second operation", m.operand("d"))
    if m.has(".sat"):
        x = clamped(e, x, width, type)
    if second == "add":
        e(IADD3, m.d.value, x.low, m.c)
    elif second:
        e(MOV, m.d.value, extremum(e, x, extended(e, m.c, type), second).low)
    elif m.d.selector:
        insert(e, m.d.value, x.low, m.c, at, width)
    else:
        e(MOV, m.d.value, x.low)


_SETS = {
    "D": TYPES,
    "A": TYPES,
    "B": TYPES,
    "OP2": (".add", ".min", ".max"),
    "CMP": COMPARISONS,
    "MODE": (".clamp", ".wrap"),
}
_PARTS = {"d": "part", "a": "part", "b": "part", "c": "b32"}


@instruction(
    *(f"v{op}.D.A.B{{.sat}} d, a, b{{, c}};" for op in ("add", "sub", "absdiff", "min", "max")),
    *(f"v{op}.D.A.B{{.sat}}.OP2 d, a, b, c;" for op in ("add", "sub", "absdiff", "min", "max")),
    sets=_SETS,
    types=_PARTS,
)
def arithmetic(e: Emitter, m: Match) -> None:
    """d = a op b of parts of words; .sat clamps; then op2 with c, or the rest of the word from c."""
    a, b = _source(e, m, "a", m["A"]), _source(e, m, "b", m["B"])
    _finish(e, m, primary(e, m.form.opcode[1:], a, b), m["D"])


@instruction(
    *(f"v{op}.D.A.u32{{.sat}}.MODE d, a, b{{, c}};" for op in ("shl", "shr")),
    *(f"v{op}.D.A.u32{{.sat}}.MODE.OP2 d, a, b, c;" for op in ("shl", "shr")),
    sets=_SETS,
    types=_PARTS,
)
def shift(e: Emitter, m: Match) -> None:
    """d = a << b or a >> b of parts of words, as `arithmetic`."""
    a, b = _source(e, m, "a", m["A"]), _source(e, m, "b", "u32")
    _finish(e, m, shifted(e, m.form.opcode[1:], a, b.low, m["MODE"] == "wrap"), m["D"])


@instruction("vset.A.B.CMP d, a, b{, c};", "vset.A.B.CMP.OP2 d, a, b, c;", sets=_SETS, types=_PARTS)
def compare(e: Emitter, m: Match) -> None:
    """d = a cmp b (1 or 0) of parts of words, then as `arithmetic`."""
    p = compared(e, _source(e, m, "a", m["A"]), _source(e, m, "b", m["B"]), m["CMP"])
    bit = e.tmp()
    e(SEL, bit, Const(1), ZERO, p)
    _finish(e, m, Wide(bit, ZERO), "u32")


# ---- multiply-add -------------------------------------------------------------------------------------


def product(e: Emitter, a: Value, b: Value, a_type: str, b_type: str) -> list[Value]:
    """a * b in three words."""
    full, high, sign = e.tmp("d"), e.tmp(), e.tmp()
    if a_type == b_type:
        e(IMAD_WIDE if a_type == "s32" else IMAD_WIDE_U32, full, a, b, ZERO64)
        e(MOV, high, e.hi(full))
    else:  # the unsigned product, less 2^32 times the unsigned one where the other is negative
        e(IMAD_WIDE_U32, full, a, b, ZERO64)
        other, factor = (b, a) if b_type == "s32" else (a, b)
        negative, less = e.tmp(), e.tmp()
        e(SHF_R_S32, negative, other, Const(31))
        e(AND, less, negative, factor)
        e(IADD3_NEG, high, e.hi(full), less)
    if "s32" not in (a_type, b_type):
        return [e.lo(full), high, ZERO]
    e(SHF_R_S32, sign, high, Const(31))
    return [e.lo(full), high, sign]


def _inverted(e: Emitter, words: list[Value]) -> list[Value]:
    found: list[Value] = [e.tmp() for _ in words]
    for d, word in zip(found, words, strict=True):
        e(NOT, d, word)
    return found


@instruction(
    "vmad.D.A.B{.sat}{.SCALE} d, a, b, c;",
    "vmad.D.A.B.po{.sat}{.SCALE} d, a, b, c;",
    sets=_SETS | {"SCALE": (".shr7", ".shr15")},
    types=_PARTS | {"d": "b32", "c": "part"},
)
def multiply_add(e: Emitter, m: Match) -> None:
    """d = (+-(a * b) +- c (+ 1 with .po)) >> 0, 7 or 15, .sat clamped to 32 bits; signed where anything is."""
    sources = []
    for name, type in (("a", m["A"]), ("b", m["B"])):
        at, width = place(e, getattr(m, name), name, m)
        sources.append(field(e, getattr(m, name).value, at, width, type))
    minus = m.a.negated != m.b.negated
    if m.c.selector or (m.has(".po") and (m.a.negated or m.b.negated or m.c.negated)):
        raise e.error("c is a whole word, and nothing has a minus with .po", operand=m.operand("c"))
    if minus and m.c.negated:
        raise e.error("the product or c is subtracted, not both", operand=m.operand("c"))
    is_signed = "s32" in (m["A"], m["B"]) or minus or m.c.negated
    words = product(e, sources[0], sources[1], m["A"], m["B"])
    added = extended(e, m.c.value, "s32" if is_signed else "u32")
    addend: list[Value] = [added.low, added.high, added.high]
    if minus:
        words = _inverted(e, words)
    elif m.c.negated:
        addend = _inverted(e, addend)
    carry: Value = PredConst(m.has(".po") or minus or m.c.negated)
    total: list[Value] = []
    for word, other in zip(words, addend, strict=True):
        d, following = e.tmp(), e.tmp("p")
        e(IADD3_X_CC, (d, following), word, other, carry)
        total.append(d)
        carry = following
    scale = {"": 0, "shr7": 7, "shr15": 15}[m["SCALE"]]
    low, high = e.tmp(), e.tmp()
    e(SHF_R_U64, low, total[0], Const(scale), total[1])
    e(SHF_R_U64, high, total[1], Const(scale), total[2])
    result = Wide(low, high)
    if m.has(".sat") and is_signed:
        result = clamped(e, result, 32, "s32")
    elif m.has(".sat"):
        over = e.tmp("p")
        e(ISETP["ne", "u32"], over, high, ZERO)
        result = chosen(e, over, constant(M32), result)
    e(MOV, m.d, result.low)
