"""Single precision with half-precision sources (PTX ISA 9.7.5): add, sub and fma of f16 or bf16 into f32, on Blackwell.

The half is widened exactly, then the f32 instruction is meant; ptxas makes one FHADD or FHFMA of it.
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import BF16, F16, F32, Format
from isa.micro import Micro, VectorBuilder, lane
from isa.ops import float32
from isa.ops.float32 import ROUND, SAT
from isa.registry import Const, Emitter, Match, instruction
from isa.vectors import half_lanes, nan32, saturate32

FORMATS = {"f16": F16, "bf16": BF16}


def _wide(f: Format, x: int) -> int:
    return bits.convert(f, F32, x & 0xFFFF)


def _finish(v: VectorBuilder, imm: Any, r: Any) -> Any:
    return v.select(v.flag(imm, 1), saturate32(v, r), r)


def _micro(name: str, halves: int, type: str, mode: str, scalar: Any, emit: Any) -> Micro:
    """`halves` sources of 16 bits, then one f32; bit 1 of the immediate saturates (as `isa.ops.float32`)."""

    def meaning(*args: int) -> int:
        sources = [_wide(FORMATS[type], x) for x in args[:halves]]
        result = scalar(F32, *sources, args[halves], mode=mode)
        return bits.saturate(F32, result) if args[-1] & SAT else int(result)

    def emission(v: VectorBuilder, *args: Any) -> Any:
        sources = [half_lanes(v, x, type) for x in args[:halves]]
        return emit(v, *sources, *args[halves:])

    suffix = f"{'.BF16' if type == 'bf16' else ''}{'' if mode == 'rn' else '.' + mode.upper()}"
    return lane(
        name + suffix, "u" * halves + "fi->f", "fma", meaning, emission, "16-bit sources widened; imm bit 1 .sat"
    )


def _subtrahend(emit: Any) -> Any:
    return lambda v, a, c, imm: emit(v, a, v.fneg(c), imm)


def _add(v: VectorBuilder, a: Any, c: Any, imm: Any) -> Any:
    return _finish(v, imm, float32.add_rn(v, a, c))


def _fma(v: VectorBuilder, a: Any, b: Any, c: Any, imm: Any) -> Any:
    return _finish(v, imm, nan32(v, v.fma(a, b, c)))


OPS: dict[tuple[str, str, str], Micro] = {}
for _type in FORMATS:
    for _mode in ROUND:
        _sum = _add if _mode == "rn" else float32.add_directed(_mode)
        _product = _fma if _mode == "rn" else float32.fma_directed(_mode)
        OPS["add", _type, _mode] = _micro("FHADD", 1, _type, _mode, bits.add, _sum)
        OPS["sub", _type, _mode] = _micro("FHADD.NEG", 1, _type, _mode, bits.sub, _subtrahend(_sum))
        OPS["fma", _type, _mode] = _micro("FHFMA", 2, _type, _mode, bits.fma, _product)


@instruction(
    "add{.RND}{.sat}.f32.A d, a, c;",
    "sub{.RND}{.sat}.f32.A d, a, c;",
    "fma.RND{.sat}.f32.A d, a, b, c;",
    sets={"RND": ROUND, "A": tuple(FORMATS)},
    types={"d": "f32", "a": "A", "b": "A", "c": "f32"},
    targets=("sm_100a",),
)
def mixed(e: Emitter, m: Match) -> None:
    """d = a + c, a - c or a * b + c with a and b in half precision, rounded once (rn unless said)."""
    op = m.form.opcode
    halves = [m.a, m.b] if op == "fma" else [m.a]
    for name, source in zip("ab", halves, strict=False):
        if isinstance(source, Const):
            raise e.error("a 16-bit float operand takes no constant", "mov it into a register", m.operand(name))
    e(OPS[op, m["A"], m["RND"] or "rn"], m.d, *halves, m.c, imm=m.has(".sat") * SAT)
