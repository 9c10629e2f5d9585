"""`ldmatrix` and `stmatrix`: 8x8 matrices of 16-bit elements between shared memory and a warp's registers."""

from __future__ import annotations

from isa.micro import unit
from isa.ops.address import offset_of, shared_base
from isa.registry import Emitter, Match, instruction

_DOC = "imm: matrix word; lane 8k + r gives the address of row r of matrix k"
LDSM = {
    n: unit(f"LDSM.16.M88{'' if n == 1 else f'.{n}'}", "u->L", f"ldsm{n}", "ldsm", _DOC, "loads", "collective")
    for n in (1, 2, 4)
}
STSM = {
    n: unit(f"STSM.16.M88{'' if n == 1 else f'.{n}'}", "uL->", f"stsm{n}", "stsm", _DOC, "stores", "collective")
    for n in (1, 2, 4)
}

_SETS = {"NUM": (".x1", ".x2", ".x4"), "SHARED": (".shared", ".shared::cta")}


def matrix_word(offset: int, matrices: int, trans: bool = False) -> int:
    """The immediate of LDSM and STSM: signed byte offset, bit 32 transpose, bits 40..47 matrices."""
    return (offset & 0xFFFFFFFF) | trans << 32 | matrices << 40


def _count(e: Emitter, m: Match, name: str, given: int) -> int:
    matrices = int(m["NUM"][1:])
    if given != matrices:
        raise e.error(f".{m['NUM']} takes a vector of {matrices} registers, found {given}", operand=m.operand(name))
    return matrices


@instruction(
    "ldmatrix.sync.aligned.m8n8.NUM{.trans}.SHARED.b16 {d}, [a];",
    "ldmatrix.sync.aligned.NUM.m8n8{.trans}.SHARED.b16 {d}, [a];",
    "ldmatrix.sync.aligned.m8n8.NUM{.trans}.b16 {d}, [a];",
    "ldmatrix.sync.aligned.NUM.m8n8{.trans}.b16 {d}, [a];",
    sets=_SETS,
    types={"d": "vec:b32"},
)
def ldmatrix(e: Emitter, m: Match) -> None:
    """d = one register per 8x8 matrix: lane l gets elements 2(l%4), +1 of row l/4, of the columns
    with .trans (PTX ISA 9.7.14.5.15).  Without .shared the address is generic and must be in shared memory.
    """
    matrices = _count(e, m, "d", len(m.d))
    word = matrix_word(offset_of(e, m.a), matrices, m.has(".trans"))
    rows = [d if d is not None else e.tmp() for d in m.d]
    e(LDSM[matrices], rows, shared_base(e, m.a, generic=not m["SHARED"]), imm=word)


@instruction(
    "stmatrix.sync.aligned.m8n8.NUM{.trans}.SHARED.b16 [a], {b};",
    "stmatrix.sync.aligned.NUM.m8n8{.trans}.SHARED.b16 [a], {b};",
    "stmatrix.sync.aligned.m8n8.NUM{.trans}.b16 [a], {b};",
    "stmatrix.sync.aligned.NUM.m8n8{.trans}.b16 [a], {b};",
    sets=_SETS,
    types={"b": "vec:b32"},
    targets=("sm_90", "sm_90a", "sm_100a"),
)
def stmatrix(e: Emitter, m: Match) -> None:
    """The reverse of ldmatrix (PTX ISA 9.7.14.5.16)."""
    matrices = _count(e, m, "b", len(m.b))
    word = matrix_word(offset_of(e, m.a), matrices, m.has(".trans"))
    e(STSM[matrices], None, shared_base(e, m.a, generic=not m["SHARED"]), m.b, imm=word)
