"""What stuck warps would do next: continuations of a deadlocked SM in which one party need not wait.

Who could still deliver what a barrier lacks is a question about the future.  The program itself answers it: on a
copy of the state, let a party's waits pass one after the other, and note what it gives on its way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.explain.log import SENT, Event, events
from emu.explain.parties import Party
from emu.state import BLOCK_MBAR, BLOCK_NONE, BLOCK_REGISTERS, BLOCK_TMEM_ALLOC, DEADLOCK, LIVE, NEVER

if TYPE_CHECKING:
    from emu.sm import StreamingMultiprocessor

STATE = (
    "sm", "warps", "ctas", "groups", "jobs", "tmaps", "ready", "next", "order", "free", "warp_stalls", "_hot", "_cold",
    "shared", "mbars", "live", "versions", "windows", "predicates", "times", "local", "cells", "events", "copies", "log",
    "chip", "tmem", "moves", "stage", "commands", "messages", "inbox", "spare", "sent", "clusters",
)  # fmt: skip
WAITS = 24  # that are let pass
HORIZON = 20_000  # cycles of each step
MOST_BYTES = 1 << 26  # of global memory that is copied; more is made read-only instead


@dataclass(frozen=True)
class Gift:
    """Something that a party gives after `waits` further waits: an arrival, a copy, registers, ..."""

    event: Event
    waits: int


def gifts(team: list[StreamingMultiprocessor], parties: list[Party]) -> list[list[Gift]]:
    """For each party what it would give, in order.  The SMs of the team and global memory are as before."""
    sm = team[0]
    saved = [(other, name, getattr(other, name).copy()) for other in team for name in STATE]
    memory = sm.memory.writable()
    copies = [view.copy() for view in memory] if sum(view.nbytes for view in memory) <= MOST_BYTES else []
    writable = sm.segments["writable"].copy()
    if not copies:
        for other in team:
            other.segments["writable"] = 0
    found = []
    try:
        for party in parties:
            found.append(_continue(team[party.place], party) if not party.spins else [])
            for other, name, array in saved:
                getattr(other, name)[...] = array
            for view, copy in zip(memory, copies, strict=False):
                view[...] = copy
    finally:
        for other in team:
            other.segments["writable"] = writable
    return found


def _continue(sm: StreamingMultiprocessor, party: Party) -> list[Gift]:
    S, found = sm.sm[0], []
    cta = int(sm.ctas[int(sm.warps[party.slots[0]]["cta"])]["id"])
    S["chaos"], seen = 0, int(S["events"])
    for waits in range(WAITS):
        if not _let_pass(sm, party):
            break
        now = int(S["now"])
        S["next_event"], S["give_up"] = now, now
        status = sm.advance(now + HORIZON)
        for e in events(sm, seen):
            if e.warp in party.warps and (e.by == cta if e.kind.startswith(SENT) else e.cta == cta and e.by < 0):
                found.append(Gift(e._replace(kind=e.kind.removeprefix(SENT)), waits))
        seen = int(S["events"])
        if status != DEADLOCK:
            break
    return found


def _let_pass(sm: StreamingMultiprocessor, party: Party) -> bool:
    """Wake a party's parked warps as if what they wait for had come; False when none is parked."""
    S, any_parked = sm.sm[0], False
    for k in party.slots:
        W: Any = sm.warps[k]
        if W["state"] != LIVE or sm.ready[k] != NEVER:
            continue
        any_parked = True
        if W["block"] == BLOCK_MBAR:
            answer = int(sm.linked.instrs[int(W["wait_pc"])]["pd"])
            if answer:
                sm.predicates[k * sm.program.predicates + answer] |= np.uint32(int(W["wait_mask"]))
        elif W["block"] == BLOCK_REGISTERS:
            sm.ctas[int(W["cta"])]["pool"] += int(W["wait_aux"])
        elif W["block"] == BLOCK_TMEM_ALLOC:
            S["tmem_owner"], S["tmem_size"] = 0, 0
            if sm.ctas[int(W["cta"])]["tmem_asked"]:  # of a pair: the columns are given from elsewhere
                W["tmem_due"] = -1
        W["block"], W["came_phase"] = BLOCK_NONE, -1
        sm.ready[k] = max(int(S["now"]), int(W["dep_ready"]))
        for soonest in (S["sub_next"], S["sub_others"]):
            soonest[int(W["sub"])] = min(int(soonest[int(W["sub"])]), int(sm.ready[k]))
    return any_parked
