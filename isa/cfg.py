"""The control-flow graph of micro-operations: basic blocks, dominators, post-dominators."""

from __future__ import annotations

from dataclasses import dataclass

from isa.code import MicroOp


@dataclass(frozen=True)
class Graph:
    """Basic blocks: operations `starts[b]` up to `starts[b + 1]`, edges, and the block of each operation.

    `exits[b]` says that some lanes may leave the kernel at the end of block b, `collective[b]` that an
    operation of the block needs the warp's lanes together.
    """

    starts: list[int]
    successors: list[list[int]]
    predecessors: list[list[int]]
    exits: list[bool]
    collective: list[bool]
    block_of: list[int]

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.successors)

    def span(self, block: int) -> range:
        """Indices of the operations of a block."""
        return range(self.starts[block], self.starts[block + 1])


def graph(ops: list[MicroOp], labels: dict[str, int]) -> Graph:
    """Split operations into basic blocks; labels are operation indices.

    A label at the very end has no operation to go to: the caller ends the list with EXIT.
    """
    leaders = {0, *labels.values()}
    for i, op in enumerate(ops):
        if _ends_block(op):
            leaders.add(i + 1)
    starts = sorted(i for i in leaders if i < len(ops)) + [len(ops)]
    count = len(starts) - 1
    block_of = [b for b in range(count) for _ in range(starts[b], starts[b + 1])]
    successors: list[list[int]] = []
    exits: list[bool] = []
    for b in range(count):
        last = ops[starts[b + 1] - 1]
        out = [block_of[labels[last.label]]] if last.label is not None else []
        leaves = "exit" in last.micro.flags
        falls = not (_ends_block(last) and last.guard is None)
        if falls and b + 1 < count and b + 1 not in out:
            out.append(b + 1)
        successors.append(out)
        exits.append(leaves or (falls and b + 1 == count))
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for b, out in enumerate(successors):
        for s in out:
            predecessors[s].append(b)
    collective = [any("collective" in op.micro.flags for op in ops[starts[b] : starts[b + 1]]) for b in range(count)]
    return Graph(starts, successors, predecessors, exits, collective, block_of)


def _ends_block(op: MicroOp) -> bool:
    return "branch" in op.micro.flags or "exit" in op.micro.flags or op.label is not None


def reverse_postorder(successors: list[list[int]], root: int) -> list[int]:
    """Nodes reachable from `root`, each before its successors except along back edges."""
    order: list[int] = []
    seen = {root}
    stack = [(root, iter(successors[root]))]
    while stack:
        node, rest = stack[-1]
        for nxt in rest:
            if nxt not in seen:
                seen.add(nxt)
                stack.append((nxt, iter(successors[nxt])))
                break
        else:
            order.append(node)
            stack.pop()
    return order[::-1]


def dominators(successors: list[list[int]], predecessors: list[list[int]], root: int) -> list[int]:
    """Immediate dominator of each node (root: itself, unreachable: -1); Cooper, Harvey and Kennedy 2001."""
    order = reverse_postorder(successors, root)
    rank = {node: i for i, node in enumerate(order)}
    idom = [-1] * len(successors)
    idom[root] = root
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            best = -1
            for p in predecessors[node]:
                if idom[p] >= 0:
                    best = p if best < 0 else _common(best, p, idom, rank)
            if idom[node] != best:
                idom[node] = best
                changed = True
    return idom


def _common(a: int, b: int, idom: list[int], rank: dict[int, int]) -> int:
    while a != b:
        while rank[a] > rank[b]:
            a = idom[a]
        while rank[b] > rank[a]:
            b = idom[b]
    return a


def immediate_dominators(g: Graph) -> list[int]:
    """Immediate dominator of each block; the entry is its own, unreachable blocks have -1."""
    return dominators(g.successors, g.predecessors, 0)


def dominates(idom: list[int], a: int, b: int) -> bool:
    """Whether every path from the entry to block b passes block a; false for unreachable blocks."""
    if idom[b] < 0:
        return False
    while b != a and b != idom[b]:
        b = idom[b]
    return a == b


def reconvergence(g: Graph) -> list[int]:
    """For each block the operation at which lanes that part at its end meet again, -1: nowhere.

    That is the start of the immediate post-dominator.  A guarded exit does not count as a way out, unless it is the
    only one of a loop: the lanes that take it are gone, and the others still meet.  When paths meet only at the exit
    and one needs nobody on its way there, the other starts when it has ended: `if (..) return; barrier`.
    """
    exit_node = g.count
    ends = {b for b in range(g.count) if not g.successors[b]}
    back: list[list[int]] = [list(p) for p in g.predecessors] + [sorted(ends)]
    leaving = set(reverse_postorder(back, exit_node))
    ends |= {b for b in range(g.count) if g.exits[b] and b not in leaving}
    back[exit_node] = sorted(ends)
    forward = [[*s, exit_node] if b in ends else list(s) for b, s in enumerate(g.successors)] + [[]]
    ipdom = dominators(back, forward, exit_node)
    return [_after_leaving(g, b) if p < 0 or p == exit_node else g.starts[p] for b, p in enumerate(ipdom[: g.count])]


def _after_leaving(g: Graph, block: int) -> int:
    """Where the other path starts, when one leaves without it and without collective operations; else -1."""
    ways = g.successors[block]
    for side, other in (ways, ways[::-1]) if len(ways) == 2 else ():
        reached = reverse_postorder(g.successors, side)
        if other not in reached and not any(g.collective[b] for b in reached):
            return g.starts[other]
    return -1
