"""Producers and consumers over rings of slots, as barrier programs that are right, and single mistakes in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from emu.testing.program import COPY_BYTES, BarrierProgram, Op


@dataclass(frozen=True)
class Pipeline:
    """A ring of `stages` slots through which `items` words go from producer warps, in turn, to all consumer warps.

    Slot s has a full mbarrier 2s (one arrival) and an empty one 2s + 1 (an arrival of each consumer).  `copies`: bulk
    copies bring the words, else stores do.  Item i is the word i + 1.  The producers must divide the stages.
    """

    stages: int
    items: int
    producers: int = 1
    consumers: int = 1
    copies: bool = False

    def __post_init__(self) -> None:
        if self.stages % self.producers:
            text = f"{self.producers} producers do not divide {self.stages} stages: one would skip phases of a slot's barrier"
            raise ValueError(text + " and mistake an older phase for its own")

    def program(self) -> BarrierProgram:
        """The barrier program: consumers are the last warps."""
        counts = tuple(count for _ in range(self.stages) for count in (1, self.consumers))
        producers = [self._producer(range(p, self.items, self.producers)) for p in range(self.producers)]
        consumers = [self._consumer() for _ in range(self.consumers)]
        return BarrierProgram(counts, (*producers, *consumers))

    def _producer(self, items: range) -> tuple[Op, ...]:
        ops = []
        for i in items:
            slot, turn = i % self.stages, i // self.stages
            ops.append(Op("wait", 2 * slot + 1, 1 - turn % 2))
            if self.copies:
                ops += [Op("arrive_expect", 2 * slot, COPY_BYTES), Op("copy", 2 * slot, slot, i + 1)]
            else:
                ops += [Op("put", slot, i + 1), Op("arrive", 2 * slot, 1)]
        return tuple(ops)

    def _consumer(self) -> tuple[Op, ...]:
        ops = []
        for i in range(self.items):
            slot, turn = i % self.stages, i // self.stages
            ops += [Op("wait", 2 * slot, turn % 2), Op("get", slot), Op("arrive", 2 * slot + 1, 1)]
        return tuple(ops)

    def answers(self) -> tuple[tuple[int, int, int], ...]:
        """What the consumers read, as `Outcome.answers`: every item once, in order."""
        consumers = range(self.producers, self.producers + self.consumers)
        return tuple((w, 3 * i + 1, i + 1) for w in consumers for i in range(self.items))


class Fault(NamedTuple):
    """A program with one mistake: which, and the mbarrier (-1: none) that it concerns."""

    name: str
    barrier: int
    program: BarrierProgram


def faults(program: BarrierProgram) -> list[Fault]:
    """Every single mistake: an operation dropped or doubled, a parity flipped, a count, amount or place wrong."""
    found = []
    for w, ops in enumerate(program.warps):
        for k, op in enumerate(ops):
            where = f"warp {w}, operation {k}: {' '.join(map(str, op[:3]))}"
            concerns = op.barrier if op.kind not in ("put", "get", "pause", "sync", "signal") else -1

            def fault(
                what: str, *others: Op, at: tuple[int, int] = (w, k), place: str = where, bar: int = concerns
            ) -> None:
                found.append(Fault(f"{what} ({place})", bar, program.change(*at, *others)))

            fault("dropped")
            if op.kind != "get":
                fault("doubled", op, op)
            if op.kind in ("wait", "test"):
                fault("parity flipped", op._replace(value=1 - op.value))
            if op.kind in ("arrive", "drop", "keep"):
                fault("one arrival more", op._replace(value=op.value + 1))
            if op.kind in ("arrive_expect", "expect", "complete"):
                fault("16 bytes more", op._replace(value=op.value + 16))
                fault("16 bytes less", op._replace(value=op.value - 16))
            if concerns >= 0 and len(program.counts) > 1:
                fault("on the next mbarrier", op._replace(barrier=(op.barrier + 1) % len(program.counts)))
    for b, count in enumerate(program.counts):
        for change in (1, -1):
            if count + change > 0:
                counts = (*program.counts[:b], count + change, *program.counts[b + 1 :])
                found.append(Fault(f"mbarrier {b} counts {count + change}", b, BarrierProgram(counts, program.warps)))
    return found
