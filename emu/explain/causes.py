"""What is probably wrong: rules over the state, the log and the continuations of a deadlock."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from emu.explain.ahead import Gift
from emu.explain.circles import circle_text, circles
from emu.explain.evidence import by_cta, gone, nobody, passed_by, stranded
from emu.explain.invariants import merged
from emu.explain.log import Event, actor, rounds, whole
from emu.explain.parties import Party, Thing
from emu.explain.places import short, warps_text
from emu.explain.things import came_to, generations, gives, members_of, name_of, together, who, without_partner
from emu.result import BarrierState, Cause, Source

if TYPE_CHECKING:
    from emu.sm import StreamingMultiprocessor


RANK = (
    "MB207", "NB102", "CL106", "MB205", "TX101", "TX102", "RG101", "TM114", "TM106", "WG105", "NB101", "MB204", "CL101",
    "MB201",
)  # fmt: skip

CTA = re.compile(r"CTA \d+")


@dataclass
class Case:
    """All that is known about a deadlock."""

    sm: StreamingMultiprocessor
    log: list[Event]
    parties: list[Party]
    gifts: list[list[Gift]]
    states: dict[Thing, BarrierState]

    def sm_of(self, thing: Thing) -> StreamingMultiprocessor:
        """The SM that a thing lies on."""
        return self.sm.team[thing.place]

    def sources(self, thing: Thing) -> list[tuple[Party, Gift]]:
        """Who would still give a thing what it lacks now, each party's next gift first."""
        state, found = self.states[thing], []
        for party, gifts in zip(self.parties, self.gifts, strict=True):
            own = [g for g in gifts if gives(g.event, thing, state.cta)]
            wanted = self._wanted(thing, own)
            if wanted:
                found.append((party, wanted))
        return found

    def _wanted(self, thing: Thing, own: list[Gift]) -> Gift | None:
        """The first gift that helps: of what is lacking, by a warp that has not given all that is its part of a phase."""
        state = self.states[thing]
        if thing.kind == "mbarrier" and not state.pending:
            lacking, other = ("copy", "expect") if state.bytes > 0 else ("expect", "copy")
            first = next((g for g in own if g.event.kind in (lacking, other)), None)
            return first if first and first.event.kind == lacking else None
        if thing.kind == "mbarrier":
            own = [g for g in own if g.event.kind in ("arrive", "drop")]
        came = Counter(actor(e) for e in self.given(thing) if e.kind not in ("expect", "bytes"))
        part = self.before(thing)
        return next((g for g in own if not came[actor(g.event)] or came[actor(g.event)] < part[actor(g.event)]), None)

    def before(self, thing: Thing) -> Counter[tuple[int, int]]:
        """How often each warp gave the phase of an mbarrier before the one that is not over."""
        given = rounds(self.log, self.states[thing].cta, thing.number).given if thing.kind == "mbarrier" else []
        return (
            Counter(actor(e) for e in given[-2] if e.kind not in ("expect", "bytes")) if len(given) > 1 else Counter()
        )

    def given(self, thing: Thing) -> list[Event]:
        """What has come in the phase, or generation, that is not over."""
        cta = self.states[thing].cta
        if thing.kind == "cluster":
            return came_to(self.sm, thing, self.log)
        if thing.kind == "mbarrier":
            return rounds(self.log, cta, thing.number).given[-1]
        return generations(self.log, cta, thing.number)[-1] if thing.kind == "barrier" else []


def describe_sources(case: Case, thing: Thing) -> list[Source]:
    """`Case.sources` for the report."""
    verbs = {
        "copy": "a copy",
        "expect": "expect_tx",
        "registers": "registers",
        "dealloc": "columns",
        "sync": "bar.sync",
        "drop": "arrive_drop",
    }
    found = []
    for party, gift in case.sources(thing):
        what = verbs.get(gift.event.kind, "an arrival")
        place = short(case.sm, gift.event.pc)
        blocked = case.states[party.thing].name
        found.append(Source(who=party.name, what=what, location=place, waits=gift.waits, waits_for=blocked))
    return found


@dataclass
class Found:
    """A cause with the things that it explains, and those whose own causes it would follow from."""

    cause: Cause
    about: set[Thing]
    behind: set[Thing]


def causes(case: Case) -> list[Cause]:
    """What is probably wrong: mistakes (`RANK`), then what follows from them.  What is true of several parties or CTAs is said once."""
    found = _of_parties(case)
    for thing in dict.fromkeys(p.thing for p in case.parties):
        behind = _blocked_on(case, thing) if thing.kind in ("cluster", "warpgroup") else set()
        found += [Found(cause, {thing}, behind) for cause in _lacking(case, thing)]
    found += _circular(case)
    found.sort(key=lambda f: RANK.index(f.cause.rule))
    explained: set[Thing] = set()
    for f in found:
        f.cause.consequence = bool(explained & (f.about | f.behind))
        if f.cause.rule != "MB201":
            explained |= f.about
    return _once(sorted((f.cause for f in found), key=lambda c: c.consequence))


def _of_parties(case: Case) -> list[Found]:
    """MB207 and MB205; warps that make the same mistake at the same place are one party."""
    alike: dict[tuple[Thing, str, str], list[tuple[Party, Cause]]] = {}
    for party in case.parties:
        for rule in (_same_parity, _lapped):
            for cause in rule(case, party):
                text = re.sub(r"cycle [\d,]+", "", cause.message.replace(party.name, ""))
                alike.setdefault((party.thing, cause.rule, text), []).append((party, cause))
    found = []
    for (thing, _, _), same in alike.items():
        party, cause = same[0]
        cause.message = cause.message.replace(party.name, merged([p for p, _ in same]).name)
        found.append(Found(cause, {thing}, set()))
    return found


def _blocked_on(case: Case, thing: Thing) -> set[Thing]:
    """What the warps wait for that do not come to a cluster's barrier or a warpgroup's wgmma."""
    group = range(4 * thing.number, 4 * thing.number + 4)
    return {
        p.thing
        for p in case.parties
        if p.thing != thing and (thing.kind == "cluster" or p.place == thing.place and p.warps[0] in group)
    }


def _once(found: list[Cause]) -> list[Cause]:
    """Causes that differ in the number of their CTA only are one, with the CTAs that it is so in, too."""
    alike: dict[tuple[str, str], list[Cause]] = {}
    for cause in found:
        own = _cta_of(cause)
        text = CTA.sub(lambda m, own=own: "own" if m.group() == own else "other", cause.message)  # type: ignore[misc]
        alike.setdefault((cause.rule, text), []).append(cause)
    for first, *others in alike.values():
        ctas = [cta for cta in dict.fromkeys(map(_cta_of, others)) if cta != _cta_of(first)]
        first.message += f" (alike in {', '.join(ctas)})" if ctas else ""
    return [same[0] for same in alike.values()]


def _cta_of(cause: Cause) -> str:
    """The first CTA that a message names."""
    found = CTA.search(cause.message)
    return found.group() if found else ""


def mutual(case: Case) -> bool:
    """Whether some parties wait for each other."""
    return any(len(f.behind) > 1 for f in _circular(case))


def _circular(case: Case) -> list[Found]:
    """MB201: parties that wait for each other."""
    return [
        Found(Cause(rule="MB201", message=circle_text(case, same)), set(), {p.thing for ring in same for p, _ in ring})
        for same in circles(case)
    ]


def _same_parity(case: Case, party: Party) -> Iterator[Cause]:
    """MB207: the wait before, of the same warp on the same barrier, asked for the same parity."""
    if party.thing.kind != "mbarrier":
        return
    state = case.states[party.thing]
    waited = [e for e in rounds(case.log, state.cta, party.thing.number).waited if e.warp == party.warps[0]]
    if waited and waited[-1].amount == party.asked:
        before = f"at {short(case.sm, waited[-1].pc)} at cycle {waited[-1].cycle:,}"
        if waited[-1].pc == party.pc:
            before = f"there at cycle {waited[-1].cycle:,}"
        text = (
            f"{party.name} asks {state.name} for parity {party.asked} at {short(case.sm, party.pc)}, which it did {before}"
            " and passed: its phase bit was not flipped, or the place in the ring is not the one that is meant"
        )
        yield Cause(rule="MB207", message=text)


def _lapped(case: Case, party: Party) -> Iterator[Cause]:
    """MB205: the phase that is meant is over, and another one of the same parity too."""
    if party.thing.kind != "mbarrier" or not whole(case.sm):
        return
    state = case.states[party.thing]
    passed = [e for e in rounds(case.log, state.cta, party.thing.number).waited if e.warp == party.warps[0]]
    asked = [e.amount for e in passed] + [party.asked]
    if any(a == b for a, b in itertools.pairwise(asked)):
        return
    behind = (state.phase or 0) - (len(passed) - asked[0])
    if behind >= 2:
        text = (
            f"{party.name} waits at {short(case.sm, party.pc)} for phase {len(passed) - asked[0]} of {state.name}, which is over: "
            f"{state.phase} phases are, and the parity is the same again. Its phases complete without waiting for this party"
        )
        yield Cause(rule="MB205", message=text)


def _lacking(case: Case, thing: Thing) -> Iterator[Cause]:
    """MB204, TX101, TX102, NB101, NB102, RG101, TM106, TM114, WG105: nobody gives what is lacking."""
    state = case.states[thing]
    if thing.kind == "barrier":
        yield from _named(case, thing)
    if thing.kind == "cluster":
        yield from _cluster(case, thing)
    if case.sources(thing):
        return
    if thing.kind == "mbarrier" and state.address is not None:
        yield from _mbarrier(case, thing, state)
    elif thing.kind == "registers":
        held = "; ".join(state.given)
        text = f"setmaxnreg.inc gets no registers: none of the warps that are left gives any back. {held}"
        yield Cause(rule="RG101", message=text + gone(case, state.cta))
    elif thing.kind == "tmem" and (other := without_partner(case.sm.team[thing.place], thing.cta)) >= 0:
        text = f"tcgen05.alloc of a pair of CTAs (cta_group::2): CTA {other}, the other one, never comes to its own"
        yield Cause(rule="TM114", message=text)
    elif thing.kind == "tmem":
        held = "; ".join(state.given) or "nobody has any"
        text = f"tcgen05.alloc gets no columns of Tensor Memory: no warp that is left frees any. Allocated: {held}"
        yield Cause(rule="TM106", message=text)
    elif thing.kind == "warpgroup":
        here = {w for p in case.parties if p.thing == thing for w in p.warps}
        missing = [w for w in range(4 * thing.number, 4 * thing.number + 4) if w not in here]
        if not missing:
            return
        text = (
            f"warpgroup {thing.number} is not complete: {warps_text(missing)} of it {_fate(case, state.cta, missing)}"
        )
        yield Cause(rule="WG105", message=text)


def _mbarrier(case: Case, thing: Thing, state: BarrierState) -> Iterator[Cause]:
    given = rounds(case.log, state.cta, thing.number).given
    if state.pending:
        came = state.expected - state.pending
        init = short(case.sm, _init_pc(case, thing), quote=True)
        text = f"{state.name} expects {state.expected} arrival{'s' if state.expected > 1 else ''} a phase ({init}), and in phase {state.phase} "
        arrived = [e for e in given[-1] if e.kind in ("arrive", "drop")]
        text += f"only {came} came{by_cta(case, arrived, state.cta)}{_who_gave(case, arrived)}" if came else "none came"
        text += nobody(case, thing, arrived)
        yield Cause(rule="MB204", message=text)
    elif state.bytes:
        announced = sum(e.amount for e in given[-1] if e.kind == "expect")
        came = sum(e.amount for e in given[-1] if e.kind == "bytes")
        text = f"phase {state.phase} of {state.name} expects {announced:,} bytes"
        text += _who_gave(case, [e for e in given[-1] if e.kind == "expect"], quote=True)
        text += f", {came:,} came" + _who_gave(case, [e for e in given[-1] if e.kind == "bytes"])
        if state.bytes > 0:
            text += f": {state.bytes:,} are missing and no copy is in flight{passed_by(case, thing)}"
            yield Cause(rule="TX101", message=text)
        else:
            yield Cause(rule="TX102", message=f"{text}: {-state.bytes:,} too many, so that the phase never ends")


def _who_gave(case: Case, given: list[Event], quote: bool = False) -> str:
    places = list(dict.fromkeys(who(case.sm, *group, quote=quote) for group in together(given)))
    return f" ({', '.join(places[:3])}{', ...' if len(places) > 3 else ''})" if places else ""


def _named(case: Case, thing: Thing) -> Iterator[Cause]:
    state = case.states[thing]
    given = case.given(thing)
    twice: list[Event] = []
    for members in generations(case.log, state.cta, thing.number)[-2:]:
        twice += [e for k, e in enumerate(members) if e.warp in {x.warp for x in members[:k]}]
    if twice:
        text = f"{who(case.sm, twice[0])} came to {state.name} a second time before it opened, in the place of another warp"
        yield Cause(rule="NB102", message=text)
    if case.sources(thing):
        return
    text = f"{state.name} waits for {state.expected} threads, {state.expected - state.pending} have come "
    text += (
        f"({warps_text(e.warp for e in given)}), and no other warp comes to it"
        if given
        else "and no other warp comes to it"
    )
    instead = stranded(case, thing)
    if instead:
        text += f"; {instead}"
    elif not twice:
        text += f"; either others are to come, or the count is to be {state.expected - state.pending}"
    earlier = {e.warp for members in generations(case.log, state.cta, thing.number)[:-1] for e in members}
    yield Cause(rule="NB101", message=text + gone(case, state.cta, earlier - {e.warp for e in given}))


def _cluster(case: Case, thing: Thing) -> Iterator[Cause]:
    """CL101, CL106: warps that do not come to the cluster's barrier, or wait there without having come."""
    members, astray = members_of(case.sm, thing), False
    for party in case.parties:
        k = (party.cta, party.warps[0])
        if party.thing == thing and k in members and members[k]["came_phase"] < 0:
            text = (
                f"{party.name} waits at {short(case.sm, party.pc)} for the cluster's barrier without having come to it"
            )
            yield Cause(rule="CL106", message=text)
            astray = True
    if astray or case.sources(thing):
        return
    state = case.states[thing]
    missing = [who for who, W in members.items() if W["came_phase"] < 0]
    text = f"the cluster's barrier waits for {state.expected} threads, {state.expected - state.pending} have come"
    for cta in dict.fromkeys(cta for cta, _ in missing):
        warps = [k for c, k in missing if c == cta]
        text += f"; {warps_text(warps)} of CTA {cta} {_fate(case, cta, warps)}"
    yield Cause(rule="CL101", message=text)


def _fate(case: Case, cta: int, warps: list[int]) -> str:
    """Where warps are instead."""
    for party in case.parties:
        own = party.cta if party.cta >= 0 else case.states[party.thing].cta
        if own == cta and set(warps) & set(party.warps):
            return f"wait for {name_of(case.sm_of(party.thing), party.thing)} at {short(case.sm, party.pc)}"
    return "have exited"


def _init_pc(case: Case, thing: Thing) -> int:
    sm = case.sm_of(thing)
    return int(sm.cells["init_pc"][(int(sm.ctas[thing.cta]["smem_base"]) + thing.number) >> 3])
