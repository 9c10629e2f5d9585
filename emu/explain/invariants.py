"""What a full and an empty barrier promise each other, and which of it does not hold: why a circle, why a slot is filled twice.

A slot of a ring is filled and given back in turn.  Its first fill waits for nothing, so it asks for parity 1 of a barrier no phase of
which has completed (PTX ISA, mbarrier.test_wait: the phase before the first counts as complete).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from emu.explain.ahead import Gift
from emu.explain.log import Event, rounds, whole
from emu.explain.parties import Party, Thing
from emu.explain.places import barrier_name, short
from emu.explain.things import gives
from emu.result import BarrierState

if TYPE_CHECKING:
    from emu.explain.causes import Case
    from emu.sm import StreamingMultiprocessor

DATA = ("expect", "bytes", "copy")


def broken(case: Case, circle: list[tuple[Party, Gift]]) -> str:
    """The promise that does not hold in a circle of parties (each with what it would give the one before), or ""."""
    parties = [party for party, _ in circle]
    if any(p.thing.kind != "mbarrier" for p in parties):
        return ""
    fresh = [p for p in parties if whole(case.sm) and _is_fresh(case, p)]
    filling = [p for p in fresh if _fills(case, p)]
    if len(fresh) == 1 or len(filling) == 1:
        return _fresh_text(case, (filling if len(filling) == 1 else fresh)[0])
    if fresh:
        names = " and ".join(dict.fromkeys(case.states[p.thing].name for p in fresh))
        return (
            f"{names} are fresh: no phase of them has completed and nobody has arrived. One side is to arrive before it waits, or to ask for "
            "parity 1 in a first wait that must not block"
        )
    for k, (party, _) in enumerate(circle):
        giver, gift = circle[(k + 1) % len(circle)]
        if party.thing != giver.thing and _lost(case, party.thing, giver.thing):
            text = _lost_text(case, party, giver, gift)
            if text:
                return text
    return ""


def _is_fresh(case: Case, party: Party) -> bool:
    """Whether a party's first wait at a barrier finds it as mbarrier.init left it, and asks for its first phase."""
    state, found = case.states[party.thing], rounds(case.log, case.states[party.thing].cta, party.thing.number)
    waited = any(e.warp in party.warps for e in found.waited)
    return state.phase == 0 and party.asked == 0 and not found.given[0] and not waited


def _fills(case: Case, party: Party) -> bool:
    """Whether a party brings data behind its wait, for which somebody in a circle with it waits."""
    ahead = (
        gifts
        for other, gifts in zip(case.parties, case.gifts, strict=True)
        if other.slots[0] == party.slots[0] and other.place == party.place
    )
    return any(g.event.kind in DATA for gifts in ahead for g in gifts)


def _fresh_text(case: Case, party: Party) -> str:
    name = case.states[party.thing].name
    return (
        f"{name} is fresh: no phase of it has completed and nobody has arrived. A first wait that must not block asks for parity 1, "
        f"that of {party.name} at {short(case.sm, party.pc, quote=True)} asks for 0"
    )


def _lost(case: Case, empty: Thing, full: Thing) -> bool:
    """Whether two barriers' phases have completed in turn, `full` first, and the last phase of `full` has no answer."""
    ends, data = "", {empty: False, full: False}
    for e in case.log:
        for thing, letter in ((full, "f"), (empty, "e")):
            if e.what != thing.number or e.cta != case.states[thing].cta:
                continue
            if e.kind == "init":
                ends = ""
            elif e.kind == "phase":
                ends += letter
            data[thing] |= e.kind in DATA
    one_more = case.states[full].phase == (case.states[empty].phase or 0) + 1
    return one_more and bool(re.fullmatch("e?(fe)*f", ends)) and not data[empty] and (len(ends) > 1 or data[full])


def _lost_text(case: Case, party: Party, giver: Party, gift: Gift) -> str:
    """`party` waits for the empty barrier, `giver` for the full one; "" when that one has not seen the last fill."""
    empty, full = case.states[party.thing], case.states[giver.thing]
    place = short(case.sm, gift.event.pc)
    waited = [e for e in rounds(case.log, full.cta, giver.thing.number).waited if e.warp == giver.warps[0]]
    if not waited or waited[-1].amount == giver.asked:
        return ""
    text = (
        f"{full.phase} phase{'s' if full.phase != 1 else ''} of {full.name} {'have' if full.phase != 1 else 'has'} completed and only "
        f"{empty.phase} of {empty.name}: one fill was never given back"
    )
    last = waited[-1]
    since = [
        e
        for e in case.log
        if e.cycle > last.cycle
        and e.warp == last.warp
        and e.kind in ("arrive", "drop")
        and gives(e, party.thing, empty.cta)
    ]
    if since:
        return text
    return (
        f"{text}. {giver.name} saw it at {short(case.sm, last.pc)} at cycle {last.cycle:,} and has not arrived on {empty.name} since "
        f"(an arrival there is at {place})"
    )


def filled_again(sm: StreamingMultiprocessor, log: list[Event], warp: int, address: int, state: BarrierState) -> str:
    """Why a warp arrives on a phase of an mbarrier to which it has come: its last wait did not hold it back.  "" where it has not."""
    cta = state.cta
    given = rounds(log, cta, address).given[-1]
    came = [e for e in given if e.warp == warp and e.by < 0 and e.kind in ("arrive", "drop")]
    if not came:
        return ""
    text = f"this warp has already arrived in phase {state.phase}, which is not complete: it fills or releases the slot a second time"
    waits = [e for e in log if e.kind == "waited" and e.cta == cta and e.warp == warp and e.what != address]
    if not waits or waits[-1].cycle < came[-1].cycle:
        return f"this warp has already arrived in phase {state.phase} and has not waited since; the init count must equal the arrivals of a phase"
    last = waits[-1]
    slot = next(k for k in range(len(sm.ctas)) if int(sm.ctas[k]["id"]) == cta)
    name = barrier_name(sm, sm.ctas[slot], last.what)
    text += f". Its last wait, for parity {last.amount} of {name} at {short(sm, last.pc, quote=True)} at cycle {last.cycle:,}, passed: "
    before = log[: log.index(last)]
    if not whole(sm):
        return text + f"the phase of parity {last.amount} was over"
    done = sum(e.kind == "phase" and e.what == last.what and e.cta == cta for e in before)
    text += (
        f"{done} phase{'s' if done > 1 else ''} of it {'were' if done > 1 else 'was'} over"
        if done
        else "no phase of it was over, and parity 1 asks for the one before the first"
    )
    if done > (state.phase or 0) and not any(e.kind in DATA for e in before if e.what == last.what and e.cta == cta):
        text += f", while only {state.phase} of this one {'is' if state.phase == 1 else 'are'}: it is given back more often than it is filled; is its init count too small?"
    same = [e for e in waits[:-1] if e.what == last.what]
    if same and same[-1].amount == last.amount:
        text += f". It asked for parity {last.amount} the time before, too: its phase bit was not flipped"
    return text


def merged(parties: list[Party]) -> Party:
    """Warps that wait for the same thing at the same place as one party."""
    return replace(parties[0], warps=tuple(sorted({w for p in parties for w in p.warps})))
