"""Which register words are live where, as bit sets in Python integers.

A word is live between a definition that may have reached and a use that may follow.  Guarded
definitions do not end a life.  Registers of wgmma are held until the wait that covers the operation:
the tensor core reads and writes them meanwhile (PTX ISA 9.7.15.7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from isa.cfg import Graph, reverse_postorder
from isa.lowering import MicroOp
from isa.simplify import accumulates, source_words, words

MAX_GROUPS = 8  # wgmma groups told apart; older ones are waited for together

Flight = tuple[int, ...]  # words of the open group, then of the committed ones, newest first


@dataclass(frozen=True)
class Access:
    """Words that an operation reads, defines, and whose earlier life its definition ends (bit sets)."""

    uses: int
    defs: int
    kills: int


@dataclass(frozen=True)
class Liveness:
    """Result: dense numbers of words, accesses by operation, and per-block boundary sets."""

    numbers: dict[int, int]  # word -> bit
    access: list[Access]
    live_out: list[int]
    defined_in: list[int]
    flight_in: list[Flight]


def analyse(ops: list[MicroOp], g: Graph) -> Liveness:
    """Solve liveness, possible definition and registers in flight for every block."""
    numbers: dict[int, int] = {}
    access = [_access(op, numbers) for op in ops]
    order = reverse_postorder(g.successors, 0)
    defined_in = _defined(access, g, order)
    live_out = _live(access, g, order, defined_in)
    return Liveness(numbers, access, live_out, defined_in, _flights(ops, access, g, order))


def _access(op: MicroOp, numbers: dict[int, int]) -> Access:
    uses = _mask(source_words(op), numbers)
    defs = _mask(words(op.results), numbers)
    if accumulates(op):
        uses |= defs
    return Access(uses, defs, defs if op.guard is None and not accumulates(op) else 0)


def _mask(found: tuple[int, ...], numbers: dict[int, int]) -> int:
    mask = 0
    for w in found:
        mask |= 1 << numbers.setdefault(w, len(numbers))
    return mask


def _defined(access: list[Access], g: Graph, order: list[int]) -> list[int]:
    """Words that some path to each block's start may have defined."""
    made = [0] * g.count
    for b in range(g.count):
        for i in g.span(b):
            made[b] |= access[i].defs
    into = [0] * g.count
    changed = True
    while changed:
        changed = False
        for b in order:
            state = 0
            for p in g.predecessors[b]:
                state |= into[p] | made[p]
            changed |= state != into[b]
            into[b] = state
    return into


def _live(access: list[Access], g: Graph, order: list[int], defined_in: list[int]) -> list[int]:
    """Words live at the end of each block."""
    needs, kills = [0] * g.count, [0] * g.count
    for b in range(g.count):
        for i in reversed(g.span(b)):
            needs[b] = (needs[b] & ~access[i].kills) | access[i].uses
            kills[b] |= access[i].kills
    live_in, live_out = [0] * g.count, [0] * g.count
    changed = True
    while changed:
        changed = False
        for b in reversed(order):
            out = 0
            for s in g.successors[b]:
                out |= live_in[s]
            live_out[b] = out
            into = (needs[b] | (out & ~kills[b])) & defined_in[b]
            changed |= into != live_in[b]
            live_in[b] = into
    return live_out


def _flights(ops: list[MicroOp], access: list[Access], g: Graph, order: list[int]) -> list[Flight]:
    into: list[Flight] = [(0,)] * g.count
    if not any(op.micro.unit == "wgmma_mma" for op in ops):
        return into
    changed = True
    while changed:
        changed = False
        for b in order:
            state = into[b]
            for i in g.span(b):
                state = fly(ops[i], access[i], state)
            for s in g.successors[b]:
                joined = _join(into[s], state)
                changed |= joined != into[s]
                into[s] = joined
    return into


def fly(op: MicroOp, access: Access, state: Flight) -> Flight:
    """Registers in flight after an operation."""
    match op.micro.unit:
        case "wgmma_mma":
            return (state[0] | access.defs | access.uses, *state[1:])
        case "wgmma_commit":
            groups = (0, *state)
            return groups[:MAX_GROUPS] + (groups[MAX_GROUPS] | groups[-1],) if len(groups) > MAX_GROUPS else groups
        case "wgmma_wait":
            return state[: 1 + op.imm]
        case _:
            return state


def _join(a: Flight, b: Flight) -> Flight:
    length = max(len(a), len(b))
    a, b = a + (0,) * (length - len(a)), b + (0,) * (length - len(b))
    return tuple(x | y for x, y in zip(a, b, strict=True))


def walk(ops: list[MicroOp], g: Graph, live: Liveness, block: int) -> Iterator[tuple[int, int]]:
    """(operation, words that must keep their rows just after it), last operation first."""
    held: list[int] = []
    state, defined = live.flight_in[block], live.defined_in[block]
    possible: list[int] = []
    for i in g.span(block):
        state = fly(ops[i], live.access[i], state)
        flying = 0
        for group in state:
            flying |= group
        held.append(flying)
        defined |= live.access[i].defs
        possible.append(defined)
    now = live.live_out[block]
    for n, i in reversed(list(enumerate(g.span(block)))):
        now &= possible[n]
        yield i, now | held[n]
        now = (now & ~live.access[i].kills) | live.access[i].uses
