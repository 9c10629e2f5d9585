"""The barrier log: the latest operations of an SM on barriers and register pools, for reports (emu/explain).

Recorded at instructions that reach a barrier, never at others, so that it costs nothing elsewhere.
"""

from __future__ import annotations

from typing import Any

from emu.compiled import compiled
from emu.raw import view
from emu.state import EVENT, EVENTS
from emu.units.common import ctas_of
from emu.units.hazards import show

events_of = view(EVENT)

# What happened; `emu.explain.log` names the same kinds for readers.
(
    E_INIT,
    E_ARRIVE,
    E_DROP,
    E_EXPECT,
    E_BYTES,
    E_COPY,
    E_WAITED,
    E_PHASE,
    E_BAR_SYNC,
    E_BAR_ARRIVE,
    E_BAR_OPEN,
    E_REGISTERS,
    E_EXIT,
    E_DEALLOC,
    E_CLUSTER,
    E_CLUSTER_OPEN,
) = range(1, 17)
SIGNALS = (E_ARRIVE, E_DROP, E_BAR_SYNC, E_BAR_ARRIVE, E_CLUSTER)
E_SENT = 32  # added to the kind: the sender's own record of what it did to a barrier of another CTA


@compiled
def record(S: Any, W: Any, kind: int, pc: int, what: int, amount: int, t: int) -> None:
    """Append an event of warp W: `what` is an mbarrier's address, a barrier's number or a column, `amount` arrivals, bytes, ...

    Lanes that do the same in one instruction are one event whose amounts add up (parities do not).
    """
    cta = ctas_of(S.cta_at, S.cta_slots)[W.cta].id
    if kind in SIGNALS:
        show(W)
    if S.by and kind != E_WAITED:
        record_of(S, cta, S.by - 1, S.by_warp, kind, S.by_pc, what, amount, t)
    else:
        record_of(S, cta, cta, W.index, kind, pc, what, amount, t)


@compiled
def record_of(S: Any, cta: int, by: int, warp: int, kind: int, pc: int, what: int, amount: int, t: int) -> None:
    """Append an event of a barrier of one CTA, by a warp of another one perhaps."""
    log = events_of(S.event_at, EVENTS)
    e = log[(S.events - 1) & (EVENTS - 1)]
    same = e.cycle == t and e.pc == pc and e.warp == warp and e.cta == cta and e.what == what and e.kind == kind
    same = same and e.by == by
    if same:
        if kind != E_WAITED:
            e.amount += amount
        return
    e = log[S.events & (EVENTS - 1)]
    S.events += 1
    e.cycle, e.pc, e.cta, e.by, e.warp, e.kind, e.what, e.amount = t, pc, cta, by, warp, kind, what, amount
