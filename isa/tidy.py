"""What `ptxas` does to compiled code before it orders it: needless zeros and short branches vanish."""

from __future__ import annotations

from isa.cfg import graph
from isa.code import Code, MicroOp
from isa.liveness import Access, analyse, walk
from isa.registry import Const, PredConst
from isa.simplify import negated, pure, words

LONGEST = 4  # operations that go under a guard instead of behind a branch (ptxas 13.0 still does this for 4)
NOTHING = Access(0, 0, 0, 0, None)
GUARDED = ("mbar_arrive",)  # routines besides memory accesses that ptxas guards


def tidy(code: Code) -> None:
    """Merge zeros into wgmma, drop dead operations, guard short branches, in place."""
    _guard_branches(code)
    _start_from_zero(code)
    _drop_dead(code)


def _start_from_zero(code: Code) -> None:
    """A wgmma that adds to zeros set in its block does not add (SASS: RZ in place of the accumulators)."""
    g = graph(code.ops, code.labels)
    for b in range(g.count):
        zeros: set[int] = set()
        for i in g.span(b):
            op = code.ops[i]
            results = words(op.results)
            if op.micro.unit == "wgmma_mma" and zeros.issuperset(results):
                at = op.micro.sources.index("p")
                op.sources = (*op.sources[:at], PredConst(False), *op.sources[at + 1 :])
            zeros.difference_update(results)
            if op.micro.name == "MOV" and op.sources == (Const(0),) and op.guard is None:
                zeros.update(results)


def _drop_dead(code: Code) -> None:
    """Drop pure operations whose results nothing reads any more, such as zeros that wgmma overwrites."""
    dead = {-1}
    while dead:
        g = graph(code.ops, code.labels)
        live = analyse(code.ops, g)
        dead = set()
        for b in range(g.count):
            for i, held in walk(code.ops, g, live, b):
                if pure(code.ops[i]) and not held & live.access[i].defs:
                    dead.add(i)
                    live.access[i] = NOTHING  # the walk goes on as if it were not there: chains go in one round
        code.drop(dead)


def _guard_branches(code: Code) -> None:
    """Replace a branch over a few operations by guards on them."""
    g = graph(code.ops, code.labels)
    gone: set[int] = set()
    for b in range(g.count - 1):
        i = g.starts[b + 1] - 1
        branch, skipped = code.ops[i], [code.ops[k] for k in g.span(b + 1)]
        if branch.label is None or branch.guard is None or code.labels[branch.label] != g.starts[b + 1] + len(skipped):
            continue
        if g.predecessors[b + 1] == [b] and len(skipped) <= LONGEST and _can_guard(branch, skipped):
            for op in skipped:
                op.guard = negated(branch.guard)
            gone.add(i)
    code.drop(gone)
    left = {op.label for op in code.ops}
    code.labels = {name: i for name, i in code.labels.items() if name in left}


def _can_guard(branch: MicroOp, skipped: list[MicroOp]) -> bool:
    """Whether the operations can stand under the branch's guard, which none of them may change."""
    taken = set(words(branch.guard))
    return all(
        op.guard is None
        and (op.micro.is_lane or op.micro.unit in GUARDED or not op.micro.flags.isdisjoint(("loads", "stores")))
        and "collective" not in op.micro.flags
        and taken.isdisjoint(words(op.results))
        for op in skipped
    )
