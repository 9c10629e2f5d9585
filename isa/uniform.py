"""Move work on values that all lanes share to the uniform datapath, as ptxas does.

Two rules.  An operation moves when everything that reads its results is an operand that hardware takes from uniform
registers (wgmma descriptors, bulk-copy operands, Tensor Memory addresses) or an operation that moves too.  And it moves when its operands, and its
guard, are the same in all lanes of the warp: constants, parameters, special registers of the CTA, broadcasts, and what
comes of them where the lanes have not parted.  Vector operations read both files; that a predicate takes a PLOP3 to get
there, and what comes from a vector operation an R2UR, is not modelled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from isa.cfg import Graph, graph, reconvergence
from isa.code import Code, MicroOp
from isa.ops.move import MOV
from isa.ops.special import SPECIAL
from isa.ops.uniform import UNIFORM
from isa.ops.warp import SHUFFLES
from isa.simplify import source_words, words

TAKERS = (
    "wgmma_mma",
    "tma_load",
    "tma_store",
    "tma_prefetch",
    "bulk_load",
    "bulk_store",
    "tmem_load",
    "tmem_store",
    "tmem_dealloc",
    "tcgen05_mma",
    "tcgen05_commit",
)  # routines with uniform operands
FRAGMENTS = ("wgmma_mma", "tmem_store")  # of those, the ones whose list is registers of all lanes
SHARED_SPECIAL = ("%ntid", "%ctaid", "%nctaid", "%cluster", "%ncluster", "%nwarpid", "%nsmid", "%smid", "%gridid")


def move_uniform(code: Code) -> None:
    """Replace operations by their uniform twins, in place."""
    readers: dict[int, list[int]] = {}
    for i, op in enumerate(code.ops):
        for w in source_words(op):
            readers.setdefault(w, []).append(i)
    moved = _only_taken(code, readers)
    moved |= _same_in_all_lanes(code, readers, moved)
    for i in moved:
        code.ops[i] = replace(code.ops[i], micro=UNIFORM[code.ops[i].micro.name])


def _uniform_operands(op: MicroOp) -> set[int]:
    """Words that an operation takes from uniform registers: all but fragment lists and predicates."""
    if op.micro.unit not in TAKERS:
        return set()
    fragments = op.micro.unit in FRAGMENTS
    taken = (v for c, v in zip(op.micro.sources.replace("i", ""), op.sources, strict=True) if c != "p")
    return {w for v in taken if not (fragments and isinstance(v, tuple)) for w in words(v)}


def _only_taken(code: Code, readers: dict[int, list[int]]) -> set[int]:
    """Unguarded operations whose results go to uniform operands only, until nothing more moves."""
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
    return moved


def _same_in_all_lanes(code: Code, readers: dict[int, list[int]], taken: set[int]) -> set[int]:
    """Operations that the uniform datapath has, with operands and guard that are the same in all lanes.

    Moves stay where a vector operation needs their result in its own file, to change it or in a fragment.
    """
    g = graph(code.ops, code.labels)
    entry = _varying(code, g)
    moved: set[int] = set()
    for block in range(g.count):
        varying = set(entry[block])
        for i in g.span(block):
            op = code.ops[i]
            if op.micro.name in UNIFORM and varying.isdisjoint(source_words(op)):
                moved.add(i)
            _step(op, varying)
    there = moved | taken
    moves = [i for i in moved if code.ops[i].micro is MOV]
    return moved - {
        i for i in moves if any(j not in there for w in words(code.ops[i].results) for j in readers.get(w, ()))
    }


def _varying(code: Code, g: Graph) -> list[set[int]]:
    """For each block the words of registers that may differ between the lanes of a warp at its start.

    Where lanes meet again that a branch has parted, everything differs that was written on the ways.
    """
    meets = reconvergence(g)
    entry: list[set[int]] = [set() for _ in range(g.count)]
    pending = list(range(g.count))
    while pending:
        block = pending.pop()
        varying = set(entry[block])
        for i in g.span(block):
            _step(code.ops[i], varying)
        flow = [(s, varying) for s in g.successors[block]]
        last = code.ops[g.span(block)[-1]]
        if len(flow) > 1 and not varying.isdisjoint(words(last.guard)):
            ways = _between(g, block, meets[block])
            written = {w for b in ways for i in g.span(b) for w in words(code.ops[i].results)}
            flow += [(g.block_of[meets[block]], written)] if meets[block] >= 0 else [(b, written) for b in ways]
        for successor, more in flow:
            if not more <= entry[successor]:
                entry[successor] |= more
                pending.append(successor)
    return entry


def _step(op: MicroOp, varying: set[int]) -> None:
    """Follow one operation: which words differ behind it."""
    results = words(op.results)
    if not (_broadcasts(op, varying) or op.micro.is_lane and varying.isdisjoint(source_words(op))):
        varying.update(results)
    elif op.guard is None:
        varying.difference_update(results)


def _broadcasts(op: MicroOp, varying: set[int]) -> bool:
    """Whether a unit gives all lanes one value."""
    if op.guard is not None:
        return False
    if op.micro.unit == "s2r":
        return SPECIAL[op.imm].startswith(SHARED_SPECIAL)
    if op.micro.unit == "shfl" and op.imm == SHUFFLES["idx"]:
        lane: Any = op.sources[1]
        return varying.isdisjoint(words(lane))
    return op.micro.unit in ("vote", "redux")


def _between(g: Graph, block: int, meeting: int) -> set[int]:
    """Blocks on the ways from the end of `block` to the operation where they meet (-1: nowhere)."""
    stop = g.block_of[meeting] if meeting >= 0 else -1
    found: set[int] = set()
    stack = [b for b in g.successors[block] if b != stop]
    while stack:
        b = stack.pop()
        if b not in found:
            found.add(b)
            stack += [s for s in g.successors[b] if s != stop]
    return found
