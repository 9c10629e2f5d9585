"""Move address and descriptor arithmetic to the uniform datapath, as ptxas does.

An operation moves when the uniform datapath has it, it is unguarded, and everything that reads its
results is an operand that hardware takes from uniform registers (wgmma descriptors, bulk-copy
operands) or an operation that moves too.
"""

from __future__ import annotations

from dataclasses import replace

from isa.lowering import Code, MicroOp
from isa.ops.uniform import UNIFORM
from isa.simplify import words

TAKERS = ("wgmma_mma", "tma_load", "tma_store", "tma_prefetch", "bulk_load", "bulk_store")  # routines with uniform operands


def _uniform_operands(op: MicroOp) -> set[int]:
    """Words that an operation takes from uniform registers: all but fragment lists and predicates."""
    if op.micro.unit not in TAKERS:
        return set()
    fragments = op.micro.unit == "wgmma_mma"
    taken = (v for c, v in zip(op.micro.sources.replace("i", ""), op.sources, strict=True) if c != "p")
    return {w for v in taken if not (fragments and isinstance(v, tuple)) for w in words(v)}


def move_uniform(code: Code) -> None:
    """Replace operations by their uniform twins, in place, until nothing more moves."""
    readers: dict[int, list[int]] = {}
    for i, op in enumerate(code.ops):
        for w in words((*op.sources, op.guard)):
            readers.setdefault(w, []).append(i)
    taken = [_uniform_operands(op) for op in code.ops]
    moved: set[int] = set()
    changed = True
    while changed:
        changed = False
        for i in range(len(code.ops) - 1, -1, -1):
            op = code.ops[i]
            if i in moved or op.guard is not None or op.micro.name not in UNIFORM:
                continue
            used = [w for w in words(op.results) if w in readers]
            if used and all(j in moved or w in taken[j] for w in used for j in readers[w]):
                moved.add(i)
                changed = True
    for i in moved:
        code.ops[i] = replace(code.ops[i], micro=UNIFORM[code.ops[i].micro.name])
