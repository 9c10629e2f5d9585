"""Which register words are live where, as bit sets in Python integers.

A word is live between a definition that may have reached and a use that may follow.  A definition
under a guard ends its life in the lanes of the guard only: what is read under the same guard needs
nothing from before, and definitions under a guard and its opposite end it together.  Registers of
wgmma are held until the wait that covers the operation: the tensor core reads and writes them
meanwhile (PTX ISA 9.7.15.7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from isa.cfg import Graph, reverse_postorder
from isa.code import MicroOp
from isa.registry import NotPred
from isa.simplify import accumulates, words

MAX_GROUPS = 8  # wgmma groups told apart; older ones are waited for together

Flight = tuple[int, ...]  # words of the open group, then of the committed ones, newest first


@dataclass(frozen=True, slots=True)
class Access:
    """Words that an operation reads, defines, and whose earlier life its definition ends (bit sets).

    `guard` is the guard's bit number and whether it is negated; the guard itself is in `always`, the
    words that are read whatever it says.
    """

    uses: int
    defs: int
    kills: int
    always: int
    guard: tuple[int, bool] | None


class Needs:
    """Words that the code behind a point of a block needs: in all lanes, or only under a guard."""

    def __init__(self, everywhere: int) -> None:
        self.everywhere = everywhere
        self.under: dict[tuple[int, bool], int] = {}

    def words(self) -> int:
        """All of them."""
        mask = self.everywhere
        for part in self.under.values():
            mask |= part
        return mask

    def limit(self, possible: int) -> None:
        """Drop words that nothing can have defined."""
        self.everywhere &= possible
        for guard in self.under:
            self.under[guard] &= possible

    def step(self, access: Access) -> None:
        """Move from behind an operation to before it."""
        for guard in [g for g in self.under if access.defs >> g[0] & 1]:
            self.everywhere |= self.under.pop(guard)  # its guard had another value before
        if access.guard is None:
            self.everywhere &= ~access.kills
            for guard in self.under:
                self.under[guard] &= ~access.kills
            self.everywhere |= access.uses
            return
        bit, negated = access.guard
        same, other = self.under.get((bit, negated), 0), self.under.get((bit, not negated), 0)
        self.under[bit, not negated] = other | (self.everywhere & access.kills)
        self.everywhere = self.everywhere & ~access.kills | access.always
        self.under[bit, negated] = same & ~access.kills | access.uses


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


def unwritten(ops: list[MicroOp], g: Graph, live: Liveness) -> Iterator[tuple[int, int]]:
    """(operation, word) of every read of a register word that nothing can have written before."""
    for b in reverse_postorder(g.successors, 0):
        state = live.defined_in[b]
        for i in g.span(b):
            for word in words((*ops[i].sources, ops[i].guard)):
                if not state >> live.numbers[word] & 1:
                    yield i, word
            state |= live.access[i].defs


def _access(op: MicroOp, numbers: dict[int, int]) -> Access:
    uses = _mask(words(op.sources), numbers)
    defs = _mask(words(op.results), numbers)
    kills = defs
    if accumulates(op):
        uses, kills = uses | defs, 0
    guard = words(op.guard)
    if not guard:
        return Access(uses, defs, kills, 0, None)
    always = _mask(guard, numbers)
    return Access(uses, defs, kills, always, (numbers[guard[0]], isinstance(op.guard, NotPred)))


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
    needs, passes = [0] * g.count, [0] * g.count
    for b in range(g.count):
        for outcome, behind in ((needs, 0), (passes, -1)):
            state = Needs(behind)
            for i in reversed(g.span(b)):
                state.step(access[i])
            outcome[b] = state.words()
    live_in, live_out = [0] * g.count, [0] * g.count
    changed = True
    while changed:
        changed = False
        for b in reversed(order):
            out = 0
            for s in g.successors[b]:
                out |= live_in[s]
            live_out[b] = out
            into = (needs[b] | (out & passes[b])) & defined_in[b]
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
    needs = Needs(live.live_out[block])
    for n, i in reversed(list(enumerate(g.span(block)))):
        needs.limit(possible[n])
        yield i, needs.words() | held[n]
        needs.step(live.access[i])
