"""The deadlock report: why nothing can go on, each barrier's state, who could still deliver, and what each warp waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.explain.ahead import gifts
from emu.explain.causes import Case, causes, describe_sources, mutual
from emu.explain.log import SENT, events
from emu.explain.parties import Party, Thing, stuck_parties
from emu.explain.places import live_mbarriers, place
from emu.explain.things import name_of, state_of, waits_for
from emu.result import BarrierState, Deadlock, StuckWarp
from emu.state import LIVE

if TYPE_CHECKING:
    from emu.sm import StreamingMultiprocessor

MOST_PARTIES = 32  # whose continuations are looked at


def explain_deadlock(sm: StreamingMultiprocessor) -> Deadlock:
    """The report on an SM whose warps can never go on, with those that its clusters run on; those in `spinning` repeat themselves."""
    parties = stuck_parties(sm.team)
    log = sorted((e for other in sm.team for e in events(other) if not e.kind.startswith(SENT)), key=lambda e: e.cycle)
    ahead = gifts(sm.team, parties[:MOST_PARTIES]) + [[] for _ in parties[MOST_PARTIES:]]
    states = {thing: state_of(sm.team[thing.place], thing, log) for thing in dict.fromkeys(p.thing for p in parties)}
    case = Case(sm, log, parties, ahead, states)
    for party in parties:
        state = states[party.thing]
        if party.asked >= 0 and party.asked not in state.asked:
            state.asked.append(party.asked)
    for thing, state in states.items():
        state.sources = describe_sources(case, thing)
    warps = [warp for party in parties for warp in _warps(sm.team[party.place], party)]
    count = len(warps)
    many = "wait for each other" if mutual(case) else "are stuck"
    waiting = f"{count} warps {many}" if count > 1 else "one warp waits"
    text = f"no warp can issue and no copy or wgmma is in flight: {waiting}"
    spinning = sum(len(other.spinning) for other in sm.team)
    if spinning:
        text = f"nothing changes any more: {spinning} of {count} warps repeat a loop that nobody can end"
    return Deadlock(
        cycle=int(sm.sm[0]["now"]),
        message=text,
        kind="livelock" if spinning else "deadlock",
        warps=sorted(warps, key=lambda w: (w.cta, w.warp)),
        causes=causes(case),
        barriers=[*states.values(), *_others(sm, states, case)],
    )


def _warps(sm: StreamingMultiprocessor, party: Party) -> list[StuckWarp]:
    location, role, text = place(sm, party.pc)
    name = name_of(sm.team[party.thing.place], party.thing)
    return [
        StuckWarp(
            cta=int(sm.ctas[int(sm.warps[k]["cta"])]["id"]),
            warp=int(sm.warps[k]["index"]),
            role=role,
            location=location,
            instruction=text,
            waits_for=waits_for(sm, sm.warps[k], party.thing, party.asked, bool(party.spins)),
            on=name if party.thing.kind != "none" else "",
        )
        for k in party.slots
    ]


def _others(sm: StreamingMultiprocessor, known: dict[Thing, BarrierState], case: Case) -> list[BarrierState]:
    """Live mbarriers, and named barriers to which some have come, of CTAs with stuck warps, that nobody waits for."""
    found = []
    for cta, at_place in dict.fromkeys((thing.cta, thing.place) for thing in known):
        at = sm.team[at_place]
        if at.ctas[cta]["state"] != LIVE:
            continue
        for address in live_mbarriers(at, at.ctas[cta]):
            thing = Thing("mbarrier", cta, address, at_place)
            if thing not in known:
                found.append(state_of(at, thing, case.log))
        for number in at.ctas[cta]["bar_arrived"].nonzero()[0]:
            thing = Thing("barrier", cta, int(number), at_place)
            if thing not in known:
                found.append(state_of(at, thing, case.log))
    return found
