"""Chaos: legal but adversarial timing.  Off, a decision point costs the test of one field.

A decision point is a moment at which PTX leaves the time open: the end of a copy or a wgmma, the wake-up of
a waiter, how soon a warp goes on behind cp.async.commit_group, the answer of a try_wait to a phase that is not over, when a warp starts and when it issues next.  What happens there is a
hash of the seed, the CTA, the warp and the number of the warp's decision points before, so that taking
one perturbation away leaves the others what they were.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.raw import ld64, view
from emu.state import PERTURBATION, PERTURBATIONS
from emu.units.common import ctas_of

perturbations_of = view(PERTURBATION)

C_COPY, C_STORE, C_MMA, C_WAKE, C_OPEN, C_ANSWER, C_ISSUE, C_START, C_ASYNC, C_COMMIT = range(1, 11)
EARLY = -1  # as soon as can be
MIX1, MIX2 = 0x2545F4914F6CDD1D, 0x1B873593CC9E2D51


@njit(inline="always")
def mix(x: int) -> int:
    """A 63-bit hash; products wrap."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * MIX1
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * MIX2
    return (x ^ ((x >> 31) & 0x1FFFFFFFF)) & 0x7FFFFFFFFFFFFFFF


@njit(inline="always")
def size(kind: int, r: int) -> int:
    """What a random number asks for: 0 nothing, EARLY, or cycles; mostly few, sometimes many."""
    x = r & 15
    far = (r >> 8) & 0xFFFF
    if kind == C_ISSUE:  # frequent
        return (0 if (r >> 4) & 7 else far & 1023) if x == 0 else (far & 63 if x == 1 else 0)
    if x < 8:
        return 0
    if x < 11:
        return EARLY if kind <= C_WAKE or kind == C_ASYNC else 1 + (far & 15)
    if x < 14:
        return 1 + (far & 127)
    return 1 + (far & 1023) if x == 14 else 1 + (far & 8191)


@njit(inline="always")
def wanted(S: Any, name: int) -> bool:
    """Whether a decision point may be perturbed: all may, or those of a list (`emu.chaos.shrink`)."""
    if S.chaos_only < 0:
        return True
    for k in range(S.chaos_only):
        if ld64(S.chaos_only_at + 8 * k) == name:
            return True
    return False


@compiled
def perturb(S: Any, W: Any, kind: int, pc: int, t: int) -> int:
    """The perturbation of a decision point of warp W: cycles to add, EARLY, or 0."""
    cta = ctas_of(S.cta_at, S.cta_slots)[W.cta].id
    name = (cta * 64 + W.index) << 32 | W.decisions
    W.decisions += 1
    amount = size(kind, mix(mix(S.chaos ^ name) + kind))
    if amount == 0 or S.chaos_left == 0 or not wanted(S, name):
        return 0
    S.chaos_left -= 1
    e = perturbations_of(S.chaos_at, PERTURBATIONS)[S.chaos_done & (PERTURBATIONS - 1)]
    S.chaos_done += 1
    e.name, e.cycle, e.pc, e.kind, e.amount = name, t, pc, kind, amount
    return amount


@njit(inline="always")
def at(S: Any, W: Any, kind: int, pc: int, t: int, when: int, soonest: int) -> int:
    """`when`, or later, or `soonest`: when something that PTX leaves open happens."""
    if S.chaos:
        amount = perturb(S, W, kind, pc, t)
        return soonest if amount == EARLY else when + amount
    return when
