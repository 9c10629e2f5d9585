"""Representative mode: a few CTAs of every class are executed, the others take as long as these.

First the whole chip runs for a moment (PROBE), which shows how much of what SMs load they share: the part that L2 moves
and the part that comes from device memory.  A grid that ends within that time is done.  Otherwise the executed CTAs
start again on a part of the chip, as many on an SM as on all of it, and each SM uses L2 and memory for the SMs that it
stands for, in those proportions.  Then the whole grid is dealt out to all SMs with the durations that were seen.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from emu.machine import Machine

LEAST = 3  # executed CTAs of a class
TOGETHER = 12  # executed CTAs of a grid with few classes
PROBE = 1 << 14  # cycles


@dataclass(frozen=True)
class Sample:
    """Which CTAs are executed (ascending), how many CTAs each of them stands for; SMs that each of the part's SMs is.

    `arrays` is the chip's ARRAY table as the run of the whole chip left it; None before that run.
    """

    ctas: tuple[int, ...]
    stands_for: tuple[float, ...]
    weights: tuple[int, ...]
    arrays: np.ndarray | None = None


@dataclass(frozen=True)
class Pace:
    """How CTAs follow one another, cycles: on the slots of an SM at the start, in a freed slot, from one freed slot to the next."""

    fill: float
    turnaround: int
    handed: float

    @classmethod
    def of(cls, machine: Machine, warps: int) -> Pace:
        """That of CTAs of so many warps."""
        v = machine.value
        fill = max(v("sm.fill_cy") + warps * v("sm.fill_warp_cy"), warps * v("sm.fill_least_warp_cy"))
        return cls(fill, int(v("sm.turnaround_cy") + warps * v("sm.turnaround_warp_cy")), v("chip.cta_cy"))


def border_classes(grid: tuple[int, int, int]) -> list[Hashable]:
    """Classes of CTAs of a kernel that says nothing: first, last or neither in each dimension of the grid."""
    x, y, z = (np.minimum(np.arange(n), 1) + (np.arange(n) == n - 1) * (n > 1) for n in grid)
    return [(a, b, c) for c in z.tolist() for b in y.tolist() for a in x.tolist()]


def choose(classes: Sequence[Hashable], slots: int, sms: int) -> Sample | None:
    """The sample of a grid whose CTA i is of `classes[i]`, on `sms` SMs of `slots` CTAs; None when most would be in it."""
    members: dict[Hashable, list[int]] = {}
    for cta, kind in enumerate(classes):
        members.setdefault(kind, []).append(cta)
    each = max(LEAST, -(-TOGETHER // len(members)))
    together = min(slots, -(-len(classes) // sms))  # on an SM
    chosen: dict[int, float] = {}
    for alike in members.values():
        count = min(each * together, len(alike))
        first = (len(alike) - count) // 2
        chosen |= dict.fromkeys(alike[first : first + count], len(alike) / count)
    ctas = tuple(sorted(chosen))
    part = -(-len(ctas) // together)
    if 2 * len(ctas) > len(classes) or 2 * part > sms:
        return None
    resident = min(1.0, sms * together / len(classes))  # part of the grid that runs at one time
    mine = [[chosen[cta] for cta in ctas[k::part]] for k in range(part)]  # of each SM of the part
    weights = tuple(max(round(resident * sum(counts) / len(counts)), 1) for counts in mine)
    return Sample(ctas, tuple(chosen[cta] for cta in ctas), weights)


def of_ctas(sample: Sample, members: np.ndarray) -> Sample:
    """The CTAs, and the SMs, of a sample of clusters with these `members` [clusters, CTAs]."""
    many = members.shape[1]
    ctas = tuple(int(cta) for cluster in sample.ctas for cta in members[cluster])
    stands_for = tuple(x for x in sample.stands_for for _ in range(many))
    weights = tuple(x for x in sample.weights for _ in range(many))
    return Sample(ctas, stands_for, weights, sample.arrays)


def shares(arrays: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """The ARRAY table for a sample, from that of the whole chip and the lines of every array.

    What nobody has asked for yet, SMs are taken to have for themselves.
    """
    given = np.zeros_like(arrays)
    for name in ("moved", "missed", "waited"):
        given[f"{name}_share"] = np.where(arrays["asked"] > 0, arrays[name] / np.maximum(arrays["asked"], 1.0), 1.0)
    given["budget"] = lines
    return given


def replay(
    classes: Sequence[Hashable], sample: Sample, durations: Sequence[int], slots: int, sms: int, pace: Pace
) -> list[int]:
    """Cycles of every SM when the whole grid runs: CTAs breadth first, then each to the slot that is free first.

    CTAs of a class take the durations of its executed ones in turn.
    """
    seen: dict[Hashable, list[int]] = {}
    for cta, cycles in zip(sample.ctas, durations, strict=True):
        seen.setdefault(classes[cta], []).append(cycles)
    used = min(sms, len(classes))
    free = [(slot * pace.fill, slot, sm) for slot in range(slots) for sm in range(used)]
    first, handed = len(free), 0.0
    turn: dict[Hashable, int] = dict.fromkeys(seen, 0)
    ends = [0] * used
    for number, kind in enumerate(classes):
        start, _, sm = free[0]
        if number >= first:
            start = max(start, handed)
            handed = start + pace.handed
        cycles = seen[kind][turn[kind] % len(seen[kind])]
        turn[kind] += 1
        ends[sm] = max(ends[sm], int(start) + cycles)
        heapq.heapreplace(free, (start + cycles + pace.turnaround, 0, sm))
    return ends
