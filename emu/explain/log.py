"""The barrier log of an SM, in order of time, and what it says about one barrier (emu/units/history.py records it)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from emu.state import EVENTS
from emu.units import history

if TYPE_CHECKING:
    from emu.sm import StreamingMultiprocessor

KINDS = {
    history.E_INIT: "init",
    history.E_ARRIVE: "arrive",
    history.E_DROP: "drop",
    history.E_EXPECT: "expect",
    history.E_BYTES: "bytes",
    history.E_COPY: "copy",
    history.E_WAITED: "waited",
    history.E_PHASE: "phase",
    history.E_BAR_SYNC: "sync",
    history.E_BAR_ARRIVE: "barrier arrive",
    history.E_BAR_OPEN: "open",
    history.E_REGISTERS: "registers",
    history.E_DEALLOC: "dealloc",
    history.E_EXIT: "exit",
    history.E_CLUSTER: "cluster arrive",
    history.E_CLUSTER_OPEN: "cluster open",
}
SENT = "sent "  # a sender's own record of what it did to the barrier of another CTA
GIVES = ("arrive", "drop", "expect", "bytes")  # what a phase of an mbarrier is made of


class Event(NamedTuple):
    """One operation: `what` is an mbarrier's address or a barrier's number of CTA `cta`; `amount` arrivals, bytes, a parity, ..."""

    cycle: int
    pc: int
    cta: int
    warp: int
    kind: str
    what: int
    amount: int
    by: int = -1  # the CTA whose warp did it, when it is another one


def events(sm: StreamingMultiprocessor, since: int = 0) -> list[Event]:
    """Events from number `since` on that are still remembered."""
    count = int(sm.sm["events"][0])
    found = []
    for n in range(max(since, count - EVENTS), count):
        e = sm.events[n & (EVENTS - 1)]
        cycle, pc, cta, by, warp, kind, what, amount = (int(x) for x in e)
        name = KINDS[kind & (history.E_SENT - 1)]
        name = SENT + name if kind & history.E_SENT else name
        found.append(Event(cycle, pc, cta, warp, name, what, amount, by if by != cta else -1))
    return found


def actor(e: Event) -> tuple[int, int]:
    """Whose event it is: CTA and warp."""
    return e.by if e.by >= 0 else e.cta, e.warp


def whole(sm: StreamingMultiprocessor) -> bool:
    """Whether the log still has every event."""
    return int(sm.sm["events"][0]) <= EVENTS


@dataclass
class Rounds:
    """What happened at one mbarrier since its last init: by phase what was given, the last one not over."""

    given: list[list[Event]]
    waited: list[Event]


def rounds(log: list[Event], cta: int, address: int) -> Rounds:
    """The phases of an mbarrier as far as the log goes back."""
    found = Rounds([[]], [])
    for e in log:
        if e.cta != cta or e.what != address:
            continue
        if e.kind == "init":
            found = Rounds([[]], [])
        elif e.kind == "phase":
            found.given.append([])
        elif e.kind == "waited":
            found.waited.append(e)
        elif e.kind in GIVES:
            found.given[-1].append(e)
    return found
