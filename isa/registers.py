"""Register allocation: virtual words to 32-bit rows and predicate slots.

Interference colouring with aggressive coalescing of copies.  64-bit registers that are read or
written as a whole take aligned even pairs; others are two independent words.  Predicates have rows
of their own.  Nothing is ever spilled: rows beyond the hardware's cap are counted and reported, as
`ptxas` reports spills.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from isa.budget import ENTRY, MAX_REGISTERS, launch_registers, live_under
from isa.cfg import Graph, graph
from isa.code import Code, MicroOp
from isa.liveness import Liveness, analyse, unwritten, walk
from isa.registry import Half, NotPred, VReg
from isa.simplify import COPIES, words

PREDICATES = 7  # P0..P6 (P7 is constantly true)


@dataclass
class Allocation:
    """Row of every register word, slot (from 1) of every predicate word, and their counts."""

    row: dict[int, int]
    registers: int
    predicates: int
    pressure: int  # most words live at once: no allocation can do with less
    demand: dict[int, int]  # rows needed under each register cap (`isa.budget.live_under`)


@dataclass(eq=False)
class _Cluster:
    """Words that share a row: one column, or two for an aligned pair."""

    members: list[int]
    clash: list[int]
    predicate: bool = False
    first: int = 0
    weight: int = 0
    row: int = field(default=-1)


def allocate(code: Code) -> tuple[Allocation, Graph]:
    """Rows for a simplified kernel; copies within one row are dropped from it."""
    g = graph(code.ops, code.labels)
    live = analyse(code.ops, g)
    code.unwritten = [(code.ops[i].pos, word // 2) for i, word in unwritten(code.ops, g, live)]
    clash, pressure = _interference(code.ops, g, live)
    where = _clusters(code.ops, live, clash)
    _coalesce(code.ops, g, live, where)
    parts = live_under(code.ops, g, live)
    entry = launch_registers(code.kernel) or MAX_REGISTERS
    allocation = _colour(where, [(entry if cap == ENTRY else cap, mask) for cap, mask in parts.items()], pressure)
    registers = {w: r for w, r in allocation.row.items() if not where[w][0].predicate}
    for cap, mask in parts.items():
        allocation.demand[cap] = max((r + 1 for w, r in registers.items() if mask >> live.numbers[w] & 1), default=0)
    _drop_copies(code, allocation)
    return allocation, graph(code.ops, code.labels)


def _interference(ops: list[MicroOp], g: Graph, live: Liveness) -> tuple[list[int], int]:
    """For each word the words that live when it is defined; and the most register words live at once.

    One direction only: readers test both words.  A copy's source does not clash with its result.
    """
    clash = [0] * len(live.numbers)
    predicates = 0
    for w in predicate_words(ops):
        predicates |= 1 << live.numbers[w]
    pressure = 0
    for b in range(g.count):
        for i, held in walk(ops, g, live, b):
            op, access = ops[i], live.access[i]
            held |= access.defs
            pressure = max(pressure, (held & ~predicates).bit_count())
            results = words(op.results)
            for n, w in enumerate(results):
                others = held & ~(1 << live.numbers[w])
                if op.micro.name in COPIES:
                    source = words(op.sources)
                    if source and not isinstance(op.sources[0], NotPred):
                        others &= ~(1 << live.numbers[source[n]])
                clash[live.numbers[w]] |= others
    return clash, pressure


def predicate_words(ops: list[MicroOp]) -> set[int]:
    """Words of predicate registers."""
    found: set[int] = set()
    for op in ops:
        for letter, value in zip(op.micro.results, op.results, strict=True):
            if letter == "p":
                found.update(words(value))
        for letter, value in zip(op.micro.sources.replace("i", ""), op.sources, strict=True):
            if letter == "p":
                found.update(words(value))
        found.update(words(op.guard))
    return found


def _wholes(ops: list[MicroOp]) -> set[int]:
    """Low words of the 64-bit registers that some operation takes whole."""
    found: set[int] = set()

    def note(value: Any) -> None:
        if isinstance(value, VReg) and value.kind == "d":
            found.add(2 * value.id)

    for op in ops:
        for value in (*op.results, *op.sources):
            note(value)
    return found


def _clusters(ops: list[MicroOp], live: Liveness, clash: list[int]) -> dict[int, tuple[_Cluster, int]]:
    """word -> (its cluster, its column), before coalescing."""
    predicates, wholes = predicate_words(ops), _wholes(ops)
    where: dict[int, tuple[_Cluster, int]] = {}
    for w, bit in live.numbers.items():
        low = w & ~1
        if low in wholes and low not in predicates:
            pair = [live.numbers[x] for x in (low, low + 1)]
            if low not in where:
                cluster = _Cluster([1 << n for n in pair], [clash[n] for n in pair], first=min(pair))
                where[low], where[low + 1] = (cluster, 0), (cluster, 1)
        else:
            where[w] = (_Cluster([1 << bit], [clash[bit]], w in predicates, first=bit), 0)
    return where


def _clashes(a: _Cluster, x: int, b: _Cluster, y: int) -> bool:
    return bool(a.clash[x] & b.members[y] or b.clash[y] & a.members[x])


def _coalesce(ops: list[MicroOp], g: Graph, live: Liveness, where: dict[int, tuple[_Cluster, int]]) -> None:
    """Merge the two sides of copies where nothing forbids it, innermost loops first."""
    depth = _depths(ops, g)
    copies = [i for i, op in enumerate(ops) if op.micro.name in COPIES and not isinstance(op.sources[0], NotPred)]
    by_bit = {bit: w for w, bit in live.numbers.items()}
    for i in sorted(copies, key=lambda i: -depth[i]):
        for target, source in zip(words(ops[i].results), words(ops[i].sources), strict=False):
            (a, x), (b, y) = where[target], where[source]
            if a is not b and (merged := _merged(a, x, b, y)):
                for column, members in enumerate(merged.members):
                    for bit in _bits(members):
                        where[by_bit[bit]] = (merged, column)


def _merged(a: _Cluster, x: int, b: _Cluster, y: int) -> _Cluster | None:
    """One cluster with column x of `a` on column y of `b`, or None when they clash or cannot line up."""
    if len(a.members) < len(b.members):
        a, x, b, y = b, y, a, x
    if len(b.members) == 2 and x != y:
        return None
    columns = [(x, y)] if len(b.members) == 1 else [(0, 0), (1, 1)]
    if any(_clashes(a, c, b, d) for c, d in columns):
        return None
    members, clash = list(a.members), list(a.clash)
    for c, d in columns:
        members[c] |= b.members[d]
        clash[c] |= b.clash[d]
    return _Cluster(members, clash, a.predicate, min(a.first, b.first))


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _depths(ops: list[MicroOp], g: Graph) -> list[int]:
    """Loop depth of each operation, counting backward edges over it."""
    depth = [0] * (len(ops) + 1)
    for b, successors in enumerate(g.successors):
        for s in successors:
            if s <= b:
                depth[g.starts[s]] += 1
                depth[g.starts[b + 1]] -= 1
    total, out = 0, []
    for change in depth[:-1]:
        total += change
        out.append(total)
    return out


def _colour(where: dict[int, tuple[_Cluster, int]], parts: list[tuple[int, int]], pressure: int) -> Allocation:
    """Give every cluster the lowest row that fits; the best of two orders.

    What lives under a low register cap (`parts`: caps and words) comes first and so gets the low rows.
    """
    clusters = list(dict.fromkeys(cluster for cluster, _ in where.values()))
    predicates = [c for c in clusters if c.predicate]
    registers = [c for c in clusters if not c.predicate]
    cap = {c: min(n for n, mask in parts if any(m & mask for m in c.members)) for c in registers}
    by_first = sorted(registers, key=lambda c: (cap[c], c.first))
    wide_first = sorted(registers, key=lambda c: (cap[c], -len(c.members), -_size(c), c.first))
    slots = _assign(sorted(predicates, key=lambda c: c.first))
    best = min((_assign(order) for order in (by_first, wide_first)), key=lambda rows: _height(rows))
    row = {w: best[c] + x for w, (c, x) in where.items() if not c.predicate}
    row |= {w: slots[c] + 1 for w, (c, _) in where.items() if c.predicate}
    return Allocation(row, _height(best), _height(slots) + 1, pressure, {})


def _size(cluster: _Cluster) -> int:
    return sum(m.bit_count() for m in cluster.clash)


def _height(rows: dict[_Cluster, int]) -> int:
    return max((row + len(c.members) for c, row in rows.items()), default=0)


def _assign(order: list[_Cluster]) -> dict[_Cluster, int]:
    members: list[int] = []  # row -> words there
    clash: list[int] = []  # row -> words that clash with those
    rows: dict[_Cluster, int] = {}
    for cluster in order:
        width = len(cluster.members)
        row = 0
        while True:
            while len(members) < row + width:
                members.append(0)
                clash.append(0)
            if all(
                not (members[row + n] & cluster.clash[n] or clash[row + n] & cluster.members[n]) for n in range(width)
            ):
                break
            row += width
        rows[cluster] = row
        for n in range(width):
            members[row + n] |= cluster.members[n]
            clash[row + n] |= cluster.clash[n]
    return rows


def _drop_copies(code: Code, allocation: Allocation) -> None:
    """Remove copies whose two sides share their rows."""
    code.drop({i for i, op in enumerate(code.ops) if _is_nothing(op, allocation.row)})


def _is_nothing(op: MicroOp, row: dict[int, int]) -> bool:
    source = op.sources[0] if op.micro.name in COPIES else None
    if not isinstance(source, VReg | Half):
        return False
    return all(row[a] == row[b] for a, b in zip(words(op.results), words(source), strict=True))
