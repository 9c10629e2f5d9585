"""Logic (PTX ISA 9.7.8): and or xor not cnot lop3, on bits and on predicates."""

from __future__ import annotations

from typing import Any

from isa.bits import M32
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.move import MOV
from isa.registry import Const, Emitter, Match, PredConst, instruction

SELECT_BITS = 0xE2  # lop3 table of (b ? a : c)


def lut(imm: int, a: int, b: int, c: int) -> int:
    """The lop3 truth table applied to each bit: bit 4a + 2b + c of `imm` is the result."""
    result = 0
    for index in range(8):
        if imm >> index & 1:
            terms = (x if index >> place & 1 else ~x for x, place in ((a, 2), (b, 1), (c, 0)))
            first, second, third = terms
            result |= first & second & third
    return result & M32


def _mux(v: VectorBuilder, p: Any, x: Any, y: Any) -> Any:
    """Bitwise p ? x : y."""
    return v.xor(y, v.and_(p, v.xor(x, y)))


def _lut_emit(v: VectorBuilder, a: Any, b: Any, c: Any, imm: Any) -> Any:
    row = [v.select(v.flag(imm, k), v.const(-1), v.const(0)) for k in range(8)]
    for p in (c, b, a):
        row = [_mux(v, p, row[k + 1], row[k]) for k in range(0, len(row), 2)]
    return row[0]


def _logic(name: str, scalar: Any, method: str) -> tuple[Micro, Micro]:
    """The 32-bit and the predicate form of a two-operand operation."""
    return (
        lane(f"LOP3.{name}", "uu->u", "alu", scalar, lambda v, a, b: getattr(v, method)(a, b), f"a {name} b"),
        lane(f"PLOP3.{name}", "pp->p", "predicate", scalar, lambda v, a, b: getattr(v, method)(a, b), f"a {name} b"),
    )


AND, PAND = _logic("AND", lambda a, b: a & b, "and_")
OR, POR = _logic("OR", lambda a, b: a | b, "or_")
XOR, PXOR = _logic("XOR", lambda a, b: a ^ b, "xor")
NOT = lane("LOP3.NOT", "u->u", "alu", lambda a: a ^ M32, lambda v, a: v.not_(a), "~a")
LOP3_LUT = lane(
    "LOP3.LUT",
    "uuui->u",
    "alu",
    lambda a, b, c, imm: lut(imm, a, b, c),
    _lut_emit,
    "truth table imm on the bits of a, b, c",
)
CNOT = lane(
    "LOP3.CNOT",
    "u->u",
    "alu",
    lambda a: int(a == 0),
    lambda v, a: v.cast_pred(v.icmp("==", a, v.const(0)), "u32"),
    "1 where a is 0, else 0",
)
WORD = {"and": AND, "or": OR, "xor": XOR}
PREDICATE = {"and": PAND, "or": POR, "xor": PXOR}


@instruction(*(f"{op}.{{b32,b16}} d, a, b;" for op in WORD))
def logic(e: Emitter, m: Match) -> None:
    """Bitwise and, or, xor."""
    e(WORD[m.form.opcode], m.d, m.a, m.b)


@instruction(*(f"{op}.b64 d, a, b;" for op in WORD))
def logic64(e: Emitter, m: Match) -> None:
    """Bitwise and, or, xor, one LOP3 a word."""
    for half in (e.lo, e.hi):
        e(WORD[m.form.opcode], half(m.d), half(m.a), half(m.b))


@instruction(*(f"{op}.pred p, a, b;" for op in PREDICATE))
def logic_pred(e: Emitter, m: Match) -> None:
    """Predicate and, or, xor."""
    e(PREDICATE[m.form.opcode], m.p, m.a, m.b)


@instruction("not.{b32,b16} d, a;")
def not_word(e: Emitter, m: Match) -> None:
    """One's complement."""
    e(NOT, m.d, m.a)


@instruction("not.b64 d, a;")
def not64(e: Emitter, m: Match) -> None:
    """One's complement."""
    for half in (e.lo, e.hi):
        e(NOT, half(m.d), half(m.a))


@instruction("not.pred p, a;")
def not_pred(e: Emitter, m: Match) -> None:
    """Predicate negation."""
    e(PXOR, m.p, m.a, PredConst(True))


@instruction("cnot.b32 d, a;")
def cnot(e: Emitter, m: Match) -> None:
    """1 if a is 0, else 0."""
    e(CNOT, m.d, m.a)


@instruction("cnot.b16 d, a;")
def cnot16(e: Emitter, m: Match) -> None:
    """1 if the low half of a is 0, else 0."""
    low = e.tmp()
    e(AND, low, m.a, Const(0xFFFF))
    e(CNOT, m.d, low)


@instruction("cnot.b64 d, a;")
def cnot64(e: Emitter, m: Match) -> None:
    """1 if a is 0, else 0."""
    any_bit = e.tmp()
    e(OR, any_bit, e.lo(m.a), e.hi(m.a))
    e(CNOT, e.lo(m.d), any_bit)
    e(MOV, e.hi(m.d), Const(0))


@instruction("lop3.b32 d, a, b, c, table;", types={"table": "imm"})
def lop3(e: Emitter, m: Match) -> None:
    """Any function of three bits: table = f(0xf0, 0xcc, 0xaa)."""
    e(LOP3_LUT, m.d, m.a, m.b, m.c, imm=m.table)
