"""Circles of a deadlock: warps that wait for each other, each of which would give what the next one waits for."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from emu.explain.ahead import Gift
from emu.explain.invariants import broken, merged
from emu.explain.parties import Party, Thing
from emu.explain.places import short

if TYPE_CHECKING:
    from emu.explain.causes import Case

Circle = list[tuple[Party, Gift]]  # each party with what it would give the one before
Place = tuple[Thing, int, int, str, int, int, int]
GIVES = {
    "copy": "would load",
    "expect": "would expect_tx",
    "registers": "would give registers back",
    "dealloc": "would free columns",
}


def circles(case: Case) -> list[list[Circle]]:
    """Parties that wait for each other, once a circle; those of other warps at the same places stand together."""
    edges = {p: case.sources(p.thing) for p in case.parties}
    found: dict[frozenset[Place], list[Circle]] = {}
    seen: set[frozenset[Party]] = set()
    for start in case.parties:
        ring = _circle(edges, start)
        if not ring or frozenset(ring) in seen:
            continue
        seen.add(frozenset(ring))
        steps = zip([ring[-1], *ring], ring, strict=False)
        circle = [(p, next(g for q, g in edges[before] if q == p)) for before, p in steps]
        found.setdefault(frozenset(_place(link) for link in circle), []).append(circle)
    return list(found.values())


def _place(link: tuple[Party, Gift]) -> Place:
    """What is alike for warps that take the same part in a circle."""
    party, gift = link
    return party.thing, party.pc, party.asked, party.role, party.cta, gift.event.pc, gift.waits


def _circle(edges: dict[Party, list[tuple[Party, Gift]]], start: Party) -> list[Party]:
    """The shortest way from a party back to itself."""
    ways, seen = [[start]], {start}
    while ways:
        way = ways.pop(0)
        for party, _ in edges[way[-1]]:
            if party == start:
                return way
            if party not in seen:
                seen.add(party)
                ways.append([*way, party])
    return []


def circle_text(case: Case, same: list[Circle]) -> str:
    """What is broken (`invariants.broken`), then the circle: each party, and where the next one would give what it waits for."""
    alike: dict[Place, list[Party]] = {}
    for link in itertools.chain.from_iterable(same):
        alike.setdefault(_place(link), []).append(link[0])
    parts = {place: merged(parties) for place, parties in alike.items()}
    circle = [(parts[_place(link)], link[1]) for link in same[0]]
    lines, why = [], broken(case, circle)
    for k, (party, _) in enumerate(circle):
        giver, gift = circle[(k + 1) % len(circle)]
        lacks = case.states[party.thing]
        line = f"{party.name} waits for {lacks.name}"
        line += f" (parity {party.asked})" if party.asked >= 0 else ""
        doing = GIVES.get(gift.event.kind, "would come" if lacks.kind in ("barrier", "cluster") else "would arrive")
        giver_name = "the same party" if len(circle) == 1 else giver.name
        line += f", where {giver_name} {doing} at {short(case.sm, gift.event.pc)}"
        lines.append(line + (f" after {gift.waits} more waits" if gift.waits > 1 else ""))
    text = "; ".join(lines)
    return f"{why}. The circle: {text}" if why else text
