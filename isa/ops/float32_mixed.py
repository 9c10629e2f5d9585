"""Single precision with half-precision sources (PTX ISA 9.7.5): add, sub and fma of f16 or bf16 into f32, on Blackwell.

The half is widened exactly, then the f32 instruction is meant; ptxas makes one FHADD or FHFMA of it.
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import BF16, F16, F32
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.float32 import FADD_ANY, FFMA_ANY, ROUND, SAT
from isa.registry import Const, Emitter, Match, instruction
from isa.vectors import half_lanes

FORMATS = {"f16": F16, "bf16": BF16}


def _mixed(name: str, whole: Micro, halves: int, type: str, mode: str, negate: bool = False) -> Micro:
    """The f32 micro-operation `whole` whose first `halves` sources have 16 bits; `negate`: its last one is negated."""
    assert whole.meaning is not None and whole.emit is not None
    scalar, vector = whole.meaning, whole.emit

    def meaning(*args: int) -> int:
        sources = [bits.convert(FORMATS[type], F32, x & 0xFFFF) for x in args[:halves]]
        return int(scalar(*sources, args[halves] ^ (F32.sign if negate else 0), args[-1]))

    def emit(v: VectorBuilder, *args: Any) -> Any:
        sources = [half_lanes(v, x, type) for x in args[:halves]]
        return vector(v, *sources, v.fneg(args[halves]) if negate else args[halves], args[-1])

    suffix = f"{'.BF16' if type == 'bf16' else ''}{'' if mode == 'rn' else '.' + mode.upper()}"
    return lane(name + suffix, "u" * halves + "fi->f", "fma", meaning, emit, f"{whole.name} of 16-bit sources")


OPS: dict[tuple[str, str, str], Micro] = {}
for _type in FORMATS:
    for _mode in ROUND:
        OPS["add", _type, _mode] = _mixed("FHADD", FADD_ANY[_mode], 1, _type, _mode)
        OPS["sub", _type, _mode] = _mixed("FHADD.NEG", FADD_ANY[_mode], 1, _type, _mode, negate=True)
        OPS["fma", _type, _mode] = _mixed("FHFMA", FFMA_ANY[_mode], 2, _type, _mode)


@instruction(
    "add{.RND}{.sat}.f32.A d, a, c;",
    "sub{.RND}{.sat}.f32.A d, a, c;",
    "fma.RND{.sat}.f32.A d, a, b, c;",
    sets={"RND": ROUND, "A": tuple(FORMATS)},
    types={"d": "f32", "a": "A", "b": "A", "c": "f32"},
    targets=("sm_100",),
)
def mixed(e: Emitter, m: Match) -> None:
    """d = a + c, a - c or a * b + c with a and b in half precision, rounded once (rn unless said)."""
    op = m.form.opcode
    halves = [m.a, m.b] if op == "fma" else [m.a]
    for name, source in zip("ab", halves, strict=False):
        if isinstance(source, Const):
            raise e.error("a 16-bit float operand takes no constant", "mov it into a register", m.operand(name))
    e(OPS[op, m["A"], m["RND"] or "rn"], m.d, *halves, m.c, imm=m.has(".sat") * SAT)
