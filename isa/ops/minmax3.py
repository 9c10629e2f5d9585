"""Minimum and maximum of three f32 (PTX ISA 9.7.3.11, 9.7.3.12): one FMNMX3 on Blackwell."""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import F32
from isa.micro import Micro, VectorBuilder, lane
from isa.registry import Emitter, Match, instruction
from isa.vectors import flush32, nan32

FTZ, NAN, ABS = 1, 2, 4  # bits of the immediate


def _three(largest: bool, a: int, b: int, c: int, imm: int) -> int:
    values = [bits.flush(F32, x) if imm & FTZ else x for x in (a, b, c)]
    values = [bits.magnitude(F32, x) if imm & ABS else x for x in values]
    first = bits.extremum(F32, values[0], values[1], largest, nan=bool(imm & NAN))
    return bits.extremum(F32, first, values[2], largest, nan=bool(imm & NAN))


def _plain(largest: bool, ftz: bool) -> Micro:
    call = "maximumnum" if largest else "minimumnum"

    def emit(v: VectorBuilder, a: Any, b: Any, c: Any) -> Any:
        r = nan32(v, v.call(call, v.call(call, a, b), c))
        return flush32(v, r) if ftz else r  # flushing keeps the order

    name = f"FMNMX3.{'MAX' if largest else 'MIN'}{'.FTZ' if ftz else ''}"
    doc = "of three; -0 below +0, NaN counts only where all are"
    return lane(name, "fff->f", "alu", lambda a, b, c: _three(largest, a, b, c, int(ftz)), emit, doc)


def _general(largest: bool) -> Micro:
    call = "maximumnum" if largest else "minimumnum"

    def emit(v: VectorBuilder, a: Any, b: Any, c: Any, imm: Any) -> Any:
        values = [v.select(v.flag(imm, 0), flush32(v, x), x) for x in (a, b, c)]
        values = [v.select(v.flag(imm, 2), v.fabs(x), x) for x in values]
        strict = v.or_(v.or_(v.isnan(a), v.isnan(b)), v.isnan(c))
        r = nan32(v, v.call(call, v.call(call, *values[:2]), values[2]))
        nan = v.bits(v.const(F32.nan), "f32")
        return v.select(v.flag(imm, 1), v.select(strict, nan, r), r)

    name = f"FMNMX3.{'MAX' if largest else 'MIN'}.ANY"
    return lane(
        name,
        "fffi->f",
        "alu",
        lambda a, b, c, imm: _three(largest, a, b, c, imm),
        emit,
        "imm bit 0 .ftz, 1 .NaN, 2 .abs",
    )


FMNMX3 = {(op, ftz): _plain(op == "max", ftz) for op in ("min", "max") for ftz in (False, True)}
FMNMX3_ANY = {op: _general(op == "max") for op in ("min", "max")}


@instruction("min{.ftz}{.NaN}{.abs}.f32 d, a, b, c;", "max{.ftz}{.NaN}{.abs}.f32 d, a, b, c;", targets=("sm_100",))
def min_max3(e: Emitter, m: Match) -> None:
    """The smallest or largest of three numbers, or of their magnitudes (.abs); with .NaN any NaN gives NaN."""
    op, ftz, nan, abs_ = m.form.opcode, m.has(".ftz"), m.has(".NaN"), m.has(".abs")
    if nan or abs_:
        e(FMNMX3_ANY[op], m.d, m.a, m.b, m.c, imm=ftz * FTZ | nan * NAN | abs_ * ABS)
    else:
        e(FMNMX3[op, ftz], m.d, m.a, m.b, m.c)
