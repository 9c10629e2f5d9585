"""What warps did instead of what a barrier lacks: arrivals elsewhere, copies that pass it by, instructions that have never run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.explain.log import SENT, Event, actor, events, whole
from emu.explain.parties import Thing
from emu.explain.places import barrier_name, live_mbarriers, operand_words, role, short, span, warps_text
from emu.explain.things import generations
from emu.state import LIVE
from isa.micro import MICROS

if TYPE_CHECKING:
    from emu.explain.causes import Case

ARRIVALS = ("mbar_arrive", "copy_arrive", "tcgen05_commit")  # units of the instructions that arrive on an mbarrier
MOST = 3  # places that are named


def stranded(case: Case, thing: Thing) -> str:
    """Warps that have come to another named barrier of the CTA, where nobody waits, and not to this one; "" for none."""
    state = case.states[thing]
    here = {e.warp for e in case.given(thing)}
    waited = {p.thing.number for p in case.parties if p.thing.kind == "barrier" and p.thing[1::2] == thing[1::2]}
    found = []
    for number in case.sm_of(thing).ctas[thing.cta]["bar_arrived"].nonzero()[0]:
        came = [e for e in generations(case.log, state.cta, int(number))[-1] if e.warp not in here]
        if int(number) not in waited and came and 32 * len(came) <= state.pending:
            own = role(case.sm, came[0].pc)
            name = f"{own + ' ' if own != 'main' else ''}{warps_text(e.warp for e in came)}"
            found.append(
                f"{name} arrived on barrier {number} instead at {short(case.sm, came[-1].pc, quote=True)}, where nobody waits"
            )
    return "; ".join(found)


def by_cta(case: Case, given: list[Event], cta: int) -> str:
    """`: 2 of its own CTA, none of CTA 1`: the arrivals at an mbarrier by the CTA of a cluster that they came from; "" without clusters."""
    if not case.sm.peers:
        return ""
    came: dict[int, int] = {cta: 0} | {c: 0 for c in _cluster(case, cta)}
    for e in given:
        if e.kind in ("arrive", "drop"):
            came[actor(e)[0]] = came.get(actor(e)[0], 0) + e.amount
    return ": " + ", ".join(f"{n or 'none'} of {'its own CTA' if c == cta else f'CTA {c}'}" for c, n in came.items())


def _cluster(case: Case, cta: int) -> list[int]:
    """The live CTAs of a CTA's cluster, itself too."""
    for k in range(len(case.sm.ctas)):
        ids = [int(sm.ctas[k]["id"]) for sm in case.sm.team if sm.ctas[k]["state"] == LIVE]
        if cta in ids:
            return ids
    return [cta]


def passed_by(case: Case, thing: Thing) -> str:
    """Copies to several CTAs of a cluster that signalled this barrier's place in others, not here; "" for none."""
    state = case.states[thing]
    if not case.sm.peers:
        return ""
    copies: dict[tuple[int, int, int, int], set[int]] = {}  # (cycle, place, CTA, warp) -> CTAs that it signals
    for sm in case.sm.team:
        for e in events(sm):
            if e.kind.removeprefix(SENT) == "copy" and e.what == thing.number:
                copies.setdefault((e.cycle, e.pc, *actor(e)), set()).add(e.cta)
    shared = {pc for (_, pc, cta, _), to in copies.items() if to != {cta}}
    senders: dict[tuple[int, tuple[int, ...]], dict[str, None]] = {}
    for (_, pc, cta, warp), to in copies.items():
        if pc in shared and state.cta not in to:
            senders.setdefault((pc, tuple(sorted(to))), {})[f"CTA {cta} warp {warp}"] = None
    found = [
        f"{' and '.join(by)} at {short(case.sm, pc, quote=True)}, whose mask names CTA{'s' if len(to) > 1 else ''} {span(to)} only"
        for (pc, to), by in senders.items()
    ]
    if not found:
        return ""
    more = ", ..." if len(found) > MOST else ""
    return f". Copies for {state.name.removesuffix(f' of CTA {state.cta}')} that leave CTA {state.cta} out: {'; '.join(found[:MOST])}{more}"


def exited(case: Case, cta: int) -> dict[int, Event | None]:
    """The warps of a live CTA that have exited, with their exit where it is remembered."""
    places = [(sm, k) for sm in case.sm.team for k in range(len(sm.ctas)) if sm.ctas[k]["id"] == cta]
    at = next(((sm, k) for sm, k in places if sm.ctas[k]["state"] == LIVE), None)
    if at is None:
        return {}
    sm, slot = at
    first, count = int(sm.ctas[slot]["first_warp"]), int(sm.ctas[slot]["warps"])
    ended = {e.warp: e for e in case.log if e.cta == cta and e.kind == "exit"}
    gone = [int(W["index"]) for W in sm.warps[first : first + count] if W["state"] != LIVE]
    return {index: ended.get(index) for index in gone}


def gone(case: Case, cta: int, among: set[int] | None = None) -> str:
    """`. Exited: warps 1-3 at fa3.mptx:202`: warps of a CTA (of those in `among`) that have exited, by place; "" for none."""
    groups: dict[str, list[int]] = {}
    for index, e in exited(case, cta).items():
        if among is None or index in among:
            groups.setdefault(f" at {short(case.sm, e.pc)}" if e else "", []).append(index)
    return f". Exited: {'; '.join(f'{warps_text(w)}{at}' for at, w in groups.items())}" if groups else ""


def nobody(case: Case, thing: Thing, arrived: list[Event]) -> str:
    """Why no arrival comes to an mbarrier behind those of this phase: who gave earlier ones has exited, or no instruction does."""
    state, log = case.states[thing], case.log
    came = [e for e in log if e.kind in ("arrive", "drop") and e.cta == state.cta and e.what == thing.number]
    if came or not whole(case.sm):
        givers = {e.warp for e in came if e.by < 0} - {e.warp for e in arrived if e.by < 0}
        left = "nobody else that is left" if arrived else "no warp that is left"
        return f"; {left} arrives on it" + gone(case, state.cta, givers if came else None)
    names, program = [], case.sm.program
    known = {e.pc for sm in case.sm.team for e in events(sm)} | {g.event.pc for gifts in case.gifts for g in gifts}
    at = case.sm_of(thing)
    barriers = {barrier_name(at, at.ctas[thing.cta], a).split("[")[0] for a in live_mbarriers(at, at.ctas[thing.cta])}
    others = barriers - {barrier_name(at, at.ctas[thing.cta], thing.number).split("[")[0]}
    for pc, name in enumerate(program.micro_names):
        if MICROS[name].unit in ARRIVALS and pc not in known and not others & set(operand_words(case.sm, pc)):
            names.append(short(case.sm, pc))
    if not names:
        return "; no instruction of the program arrives on it: its arrivals are all for other barriers"
    places = list(dict.fromkeys(names))
    text = f"; nobody has ever arrived on it. Arrivals that have not run: {', '.join(places[:MOST])}{', ...' if len(places) > MOST else ''}"
    return text + gone(case, state.cta)
