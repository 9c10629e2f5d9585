"""An order of operations like that of `ptxas`: list scheduling of basic blocks.

A PTX compiler leaves ordering to `ptxas`, which fills the latencies of one result with work on
others.  Each stretch of a block is replayed on a simple machine, one operation at a time: pipes are busy
for the interval of a timing class, results are late by its latency.  Of what is ready, the operation on the
longest path to the end goes first (Gibbons and Muchnick 1986), with what disassemblies of ptxas 13.0
for sm_90a show on top:

* operations of fixed latency go before arithmetic of variable latency: all multiply-adds, then the
  exponentials that they feed, and sums and conversions as soon as two exponentials are there;
* work that does not depend on a wait goes before it, the loop counter above the wait for wgmma.

What stays in order: operations on the same register; everything that a unit of the machine executes
(memory, barriers, collectives); whatever touches a register of some wgmma, relative to the wgmma
operations; and all operations relative to clock reads, which measure what stands between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Protocol

from isa.budget import part_caps
from isa.cfg import Graph, graph
from isa.code import Code, MicroOp
from isa.liveness import analyse, walk
from isa.registers import PREDICATES, predicate_words
from isa.simplify import accumulates, pure, source_words, words

FENCES = frozenset(("clock", "setmaxnreg", "trap", "nanosleep"))  # routines that nothing crosses
WAITS = frozenset(("wgmma_fence", "wgmma_wait", "bar_sync", "bulk_wait"))  # the warp stands still there
WAITING = "(waits)"  # in place of a pipe
FIXED = "wait"  # the stall reason of results of fixed latency


class Weight(Protocol):
    """What scheduling needs to know of a timing class: cycles, its pipe, why its results are late."""

    @property
    def pipe(self) -> str: ...
    @property
    def interval(self) -> float: ...
    @property
    def latency(self) -> float: ...
    @property
    def stall(self) -> float: ...
    @property
    def reason(self) -> str: ...


Weights = Mapping[str, Weight]  # by timing class


def schedule(code: Code, weights: Weights) -> None:
    """Reorder the operations of every block, in place; the same input gives the same order.

    `weights` describes the timing classes (`emu.machine.Machine.timing`).  With registers or
    predicates running out, operations are taken in the order of the source, and a block whose new order
    still needs more of them than there are keeps its old one.
    """
    g = graph(code.ops, code.labels)
    flags = predicate_words(code.ops)
    caps = part_caps(code, g)
    tensor = {w for op in code.ops if op.micro.unit == "wgmma_mma" for w in _fragments(op)}
    old = list(code.ops)
    before, leaving = _peaks(old, g, flags)
    for b in range(g.count):
        span = g.span(b)
        room = _Room(old[span.start : span.stop], leaving[b], flags, caps[span.start])
        start = span.start
        for stop in (*(i for i in span if _fixed(old[i])), span.stop):
            code.ops[start:stop] = _Stretch(old[start:stop], weights, tensor, room).run()
            for op in old[stop : min(stop + 1, span.stop)]:
                room.place(op)
            start = stop + 1
    after, _ = _peaks(code.ops, g, flags)
    for b in range(g.count):
        span = g.span(b)
        limits = (caps[span.start], PREDICATES)
        if any(new > max(was, limit) for new, was, limit in zip(after[b], before[b], limits, strict=True)):
            code.ops[span.start : span.stop] = old[span.start : span.stop]


def _fixed(op: MicroOp) -> bool:
    """Whether nothing moves across an operation: fences, and what ends a block."""
    return op.micro.unit in FENCES or op.label is not None or not op.micro.flags.isdisjoint(("branch", "exit"))


def _fragments(op: MicroOp) -> tuple[int, ...]:
    return words(tuple(v for v in (*op.results, *op.sources) if isinstance(v, tuple)))


def _reads(op: MicroOp) -> tuple[int, ...]:
    """Words whose old values an operation needs; under a guard, those of its results too."""
    merges = op.guard is not None or accumulates(op)
    return source_words(op) + (words(op.results) if merges else ())


def _peaks(ops: list[MicroOp], g: Graph, flags: set[int]) -> tuple[list[tuple[int, int]], list[set[int]]]:
    """For each block the most registers and predicates live at once, and the words live at its end."""
    live = analyse(ops, g)
    predicates = sum(1 << bit for w, bit in live.numbers.items() if w in flags)
    by_bit = {bit: w for w, bit in live.numbers.items()}
    peaks: list[tuple[int, int]] = []
    for b in range(g.count):
        most = [0, 0]
        for i, held in walk(ops, g, live, b):
            held |= live.access[i].defs
            most[0] = max(most[0], (held & ~predicates).bit_count())
            most[1] = max(most[1], (held & predicates).bit_count())
        peaks.append((most[0], most[1]))
    leaving = [{w for bit, w in by_bit.items() if out >> bit & 1} for out in live.live_out]
    return peaks, leaving


class _Room:
    """Registers and predicates in use while a block is filled from its start."""

    def __init__(self, ops: list[MicroOp], leaving: set[int], flags: set[int], cap: int) -> None:
        self.flags = flags
        self.cap = cap
        self.uses: dict[int, int] = dict.fromkeys(leaving, 1)
        self.live: set[int] = set()
        self.count = [0, 0]
        defined: set[int] = set()
        for op in ops:
            for w in _reads(op):
                self.uses[w] = self.uses.get(w, 0) + 1
                if w not in defined:
                    self._add(w)
            defined.update(words(op.results))
        for w in leaving - defined:
            self._add(w)

    @property
    def full(self) -> bool:
        """Whether one more value may be one too many."""
        return self.count[0] >= self.cap - 1 or self.count[1] >= PREDICATES

    def place(self, op: MicroOp) -> None:
        """Account for the next operation."""
        for w in _reads(op):
            self.uses[w] -= 1
            if not self.uses[w] and w in self.live:
                self.live.remove(w)
                self.count[w in self.flags] -= 1
        for w in words(op.results):
            if self.uses.get(w):
                self._add(w)

    def _add(self, w: int) -> None:
        if w not in self.live:
            self.live.add(w)
            self.count[w in self.flags] += 1


class _Stretch:
    """List scheduling of operations without a fence between them."""

    def __init__(self, ops: list[MicroOp], weights: Weights, tensor: set[int], room: _Room) -> None:
        self.ops = ops
        self.weights = [weights[op.micro.timing] for op in ops]
        self.room = room
        self.followers: list[dict[int, float]] = [{} for _ in ops]  # later operation -> cycles after this one
        self.missing = [0] * len(ops)
        self._depend(tensor)
        self.rank = self._rank()

    # ---- dependences ----

    def _edge(self, a: int, b: int, cycles: float) -> None:
        known = self.followers[a].get(b)
        if known is None:
            self.missing[b] += 1
        self.followers[a][b] = max(cycles, known or 0)

    def _depend(self, tensor: set[int]) -> None:
        writer: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        unit = mma = -1  # the last operations of units and of wgmma
        touching: list[int] = []  # since then, operations on registers of wgmma
        for i, op in enumerate(self.ops):
            reads, results = _reads(op), words(op.results)
            for w in reads:
                if w in writer:
                    self._edge(writer[w], i, self.weights[writer[w]].latency)
                readers.setdefault(w, []).append(i)
            for w in results:
                for j in (*readers.pop(w, ()), *((writer[w],) if w in writer else ())):
                    if j != i:
                        self._edge(j, i, 0)
                writer[w] = i
            if op.micro.unit.startswith("wgmma_"):
                for j in touching:
                    self._edge(j, i, 0)
                touching, mma = [], i
            elif not tensor.isdisjoint(reads) or not tensor.isdisjoint(results):
                if mma >= 0:
                    self._edge(mma, i, 0)
                touching.append(i)
            if not pure(op):
                if unit >= 0:
                    self._edge(unit, i, self.weights[unit].stall)
                unit = i

    def _rank(self) -> list[tuple[int, float, int]]:
        """Sort key of every operation, the most urgent first."""
        height = [0.0] * len(self.ops)
        for i in range(len(self.ops) - 1, -1, -1):
            own = self.weights[i].latency
            height[i] = max((cycles + height[j] for j, cycles in self.followers[i].items()), default=own)
        slow = [op.micro.is_lane and weight.reason != FIXED for op, weight in zip(self.ops, self.weights, strict=True)]
        return [(int(slow[i]), -height[i], i) for i in range(len(self.ops))]

    # ---- the replay ----

    def run(self) -> list[MicroOp]:
        """The operations in their new order."""
        n = len(self.ops)
        self.at = [0.0] * n  # cycle when the operands are there
        self.early = [(0.0, i) for i in range(n) if not self.missing[i]]
        self.ready: dict[str, list[tuple[int, float, int]]] = {}  # by pipe, the most urgent first
        self.free: dict[str, float] = {}  # pipe -> cycle from which it takes the next operation
        self.done = [False] * n
        first, now = 0, 0.0
        order: list[MicroOp] = []
        while len(order) < n:
            while self.done[first]:
                first += 1
            i, now = (first, max(now, self.at[first])) if self.room.full else self._next(now)
            self._place(i, now)
            order.append(self.ops[i])
            now += max(1, self.weights[i].stall)
        return order

    def _next(self, now: float) -> tuple[int, float]:
        """The most urgent operation that can issue, and when: at `now`, or as soon as there is one."""
        while True:
            while self.early and self.early[0][0] <= now:
                i = heappop(self.early)[1]
                heappush(self.ready.setdefault(self._queue(i), []), self.rank[i])
            best: tuple[int, float, int] | None = None
            later = [self.early[0][0]] if self.early else []
            for pipe, queue in self.ready.items():
                while queue and self.done[queue[0][2]]:
                    heappop(queue)
                if queue and pipe != WAITING:
                    if self.free.get(pipe, 0) > now:
                        later.append(self.free[pipe])
                    elif best is None or queue[0] < best:
                        best = queue[0]
            if best is not None:
                return best[2], now
            if not later:
                return self.ready[WAITING][0][2], now
            now = min(later)

    def _queue(self, i: int) -> str:
        return WAITING if self.ops[i].micro.unit in WAITS else self.weights[i].pipe

    def _place(self, i: int, now: float) -> None:
        weight = self.weights[i]
        self.done[i] = True
        self.free[weight.pipe] = now + weight.interval
        self.room.place(self.ops[i])
        for j, cycles in self.followers[i].items():
            self.at[j] = max(self.at[j], now + cycles)
            self.missing[j] -= 1
            if not self.missing[j]:
                heappush(self.early, (self.at[j], j))
