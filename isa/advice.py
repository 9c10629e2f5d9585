"""What `ptxas` warns of around wgmma: registers that nothing orders before a product, or that are touched too early.

The rules of PTX ISA 9.7.15.7: a `wgmma.fence` stands before the first product of a kernel, and between an ordinary access
to registers of D or A and the next product with them; between a product and the wait that covers it nobody touches D, and
nobody writes A.  Found on every path of the program as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from isa.cfg import Graph, graph, reverse_postorder
from isa.code import Code, MicroOp
from isa.simplify import words

EVERYTHING = -1
GROUPS = 8  # committed groups told apart; older ones are waited for together
TENSOR = ("wgmma_mma", "wgmma_fence", "wgmma_commit", "wgmma_wait")

Flight = tuple[tuple[int, int], ...]  # (words of D, words of A) of the open group, then of committed ones, newest first


class State(NamedTuple):
    """Words that ordinary operations have touched since the last fence, and products under way."""

    touched: int
    flight: Flight


def _mask(value: object) -> int:
    return sum(1 << w for w in set(words(value)))


def _after(op: MicroOp, s: State) -> State:
    match op.micro.unit:
        case "wgmma_mma":
            d, a = s.flight[0]
            lists = [x for x in op.sources if isinstance(x, tuple)]
            return State(s.touched, ((d | _mask(op.results), a | _mask(tuple(lists))), *s.flight[1:]))
        case "wgmma_fence":
            return State(0, s.flight)
        case "wgmma_commit":
            groups = ((0, 0), *s.flight)
            if len(groups) > GROUPS:
                last = tuple(x | y for x, y in zip(groups[GROUPS - 1], groups[GROUPS], strict=True))
                groups = (*groups[: GROUPS - 1], (last[0], last[1]))
            return State(s.touched, groups)
        case "wgmma_wait":
            return State(s.touched, s.flight[: 1 + (op.imm & 0xFFFFFFFF)])
    return State(s.touched | _mask((op.sources, op.results)), s.flight)


def _joined(a: State | None, b: State) -> State:
    if a is None:
        return b
    length = max(len(a.flight), len(b.flight))
    first, second = (x.flight + ((0, 0),) * (length - len(x.flight)) for x in (a, b))
    both = tuple((d | e, p | q) for (d, p), (e, q) in zip(first, second, strict=True))
    return State(a.touched | b.touched, both)


def _states(code: Code, g: Graph) -> list[State | None]:
    """The state before each block; None where no path leads."""
    into: list[State | None] = [None] * g.count
    into[0] = State(EVERYTHING, ((0, 0),))
    order, changed = reverse_postorder(g.successors, 0), True
    while changed:
        changed = False
        for b in order:
            state = into[b]
            if state is None:
                continue
            for i in g.span(b):
                state = _after(code.ops[i], state)
            for s in g.successors[b]:
                joined = _joined(into[s], state)
                changed |= joined != into[s]
                into[s] = joined
    return into


def wgmma_advice(code: Code) -> Iterator[str]:
    """Warnings in words, the first place of each kind; nothing for kernels without wgmma."""
    if not any(op.micro.unit == "wgmma_mma" for op in code.ops):
        return
    g = graph(code.ops, code.labels)
    found: dict[str, str] = {}
    for b, state in enumerate(_states(code, g)):
        if state is None:
            continue
        for i in g.span(b):
            op = code.ops[i]
            for kind, text in _judged(code, op, state):
                found.setdefault(kind, f"{code.kernel.name}: {op.pos}: {text}")
            state = _after(op, state)
    yield from found.values()


def _judged(code: Code, op: MicroOp, state: State) -> Iterator[tuple[str, str]]:
    """What is wrong with one operation."""
    if op.micro.unit == "wgmma_mma":
        mine = _mask((op.results, tuple(x for x in op.sources if isinstance(x, tuple))))
        if state.touched == EVERYTHING:
            yield "first", "no wgmma.fence stands before this wgmma on some path (ptxas C7510: it is serialized)"
        elif state.touched & mine:
            names = _names(code, state.touched & mine)
            yield "fence", f"{names} touched since the last wgmma.fence: another one belongs before this wgmma"
    elif op.micro.unit not in TENSOR:
        reads, writes = _mask((op.sources, op.guard)), _mask(op.results)
        for d, a in state.flight:
            if early := (reads | writes) & d | writes & a:
                verb = "written" if writes & early else "read"
                yield verb, f"{_names(code, early)} {verb} while a wgmma still uses it: wgmma.wait_group comes first"


def _names(code: Code, mask: int) -> str:
    """Registers by name, the first and how many more."""
    numbers = sorted({w // 2 for w in range(mask.bit_length()) if mask >> w & 1})
    named = [code.names[n] for n in numbers if n in code.names] or ["a register"]
    return f"{named[0]} and {len(named) - 1} more are" if len(named) > 1 else f"{named[0]} is"
