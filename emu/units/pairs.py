"""Pairs of CTAs, whose ranks in the cluster differ in the last bit (PTX ISA 9.7.16.5): what the chip does for tcgen05 with cta_group::2.

Two SMs share a product, a copy, an allocation.  The chip executes them among its answers, in order, so that no SM moves meanwhile.
"""

from __future__ import annotations

from typing import Any

from emu.chip_state import P_TMEM
from emu.compiled import call_unit, compiled
from emu.raw import st64
from emu.state import CTA_SLOTS, LIVE, SM, TC_RING, TMEM_LANES, WARP_SLOTS
from emu.units.common import (
    F_PAIR_COLUMNS,
    F_PEER_GONE,
    PAIRED,
    commands_of,
    ctas_of,
    fault,
    instrs_of,
    sms_of,
    warps_of,
)
from emu.units.peers import messages_of, post
from emu.units.tmem_layout import cell

SM_BYTES = SM.itemsize


@compiled
def partner(H: Any, S: Any) -> int:
    """The number of the SM with the other CTA of the pairs on SM S."""
    rank = S.place % H.cluster
    return int(S.place - rank + (rank ^ 1))


@compiled
def answer_pair(H: Any, S: Any, C: Any, r: Any) -> None:
    """A product, copy or shift of a pair: both SMs' memories change now, before either SM gets to the command's completion."""
    other = partner(H, S)
    P, J = sms_of(H.sm_at, H.sms)[other], commands_of(S.tc_at, TC_RING)[r.job]
    W, I = warps_of(S.warp_at, WARP_SLOTS)[r.warp], instrs_of(S.instr_at, S.npc)[r.pc]
    c = ctas_of(P.cta_at, CTA_SLOTS)[J.cta]
    if c.state != LIVE:
        fault(S, W, F_PEER_GONE, J.lane, J.d, c.id)
        S.fault_pc = r.pc
        return
    call_unit(S.unit_at[I.kind], S, C, W, I, PAIRED, r.job, H.sm_at + SM_BYTES * other)


# ---- Tensor Memory ---------------------------------------------------------------------------------------


@compiled
def answer_tmem(H: Any, S: Any, C: Any, r: Any) -> None:
    """A CTA of a pair wants columns: it has them when the other one wants them, too, and both SMs have them free."""
    c = ctas_of(S.cta_at, CTA_SLOTS)[r.job]
    c.tmem_asked, c.tmem_warp, c.tmem_pc, c.tmem_when = r.width, r.warp, r.pc, r.time
    give(H, S, C, r.job, r.time)


@compiled
def answer_free(H: Any, S: Any, C: Any, r: Any) -> None:
    """A CTA of a pair has given columns back: pairs that wait look again when their sleep ends."""
    for k in range(r.first, r.first + r.width):
        S.tmem_owner[k] = 0
    for slot in range(H.slots):
        give(H, S, C, slot, r.time)


@compiled
def give(H: Any, S: Any, C: Any, slot: int, t: int) -> None:
    """Give the pair in a slot the first columns that are free in both SMs, if both CTAs have asked."""
    P = sms_of(H.sm_at, H.sms)[partner(H, S)]
    c, d = ctas_of(S.cta_at, CTA_SLOTS)[slot], ctas_of(P.cta_at, CTA_SLOTS)[slot]
    if c.state != LIVE or d.state != LIVE or not c.tmem_asked or not d.tmem_asked:
        return
    if c.tmem_asked != d.tmem_asked:
        fault(S, warps_of(S.warp_at, WARP_SLOTS)[c.tmem_warp], F_PAIR_COLUMNS, 0, c.tmem_asked, d.tmem_asked)
        S.fault_pc = c.tmem_pc
        return
    parts = c.tmem_asked // C.tmem_unit
    first = find_both(S, P, C, parts)
    if first < 0:
        return
    when = max(c.tmem_when, d.tmem_when) + C.tmem_alloc_cy
    if when < t + C.peer_cy:  # they slept, and look every `tmem_retry_cy`
        when += (t + C.peer_cy - when + C.tmem_retry_cy - 1) // C.tmem_retry_cy * C.tmem_retry_cy
    take(S, C, slot, first, parts, when)
    take(P, C, slot, first, parts, when)


@compiled
def find_both(S: Any, P: Any, C: Any, parts: int) -> int:
    """The first place that is free in both SMs, aligned to its size, or -1."""
    for first in range(0, C.tmem_columns // C.tmem_unit, parts):
        free = True
        for k in range(first, first + parts):
            if S.tmem_owner[k] or P.tmem_owner[k]:
                free = False
        if free:
            return first
    return -1


@compiled
def take(S: Any, C: Any, slot: int, first: int, parts: int, when: int) -> None:
    """Units of columns belong to the CTA in a slot from now on; its warp hears of it at cycle `when`."""
    c = ctas_of(S.cta_at, CTA_SLOTS)[slot]
    for k in range(first, first + parts):
        S.tmem_owner[k] = slot + 1
    S.tmem_size[first], S.tmem_pc[first] = c.tmem_asked, c.tmem_pc
    start = cell(S, 0, first * C.tmem_unit)
    for k in range(0, c.tmem_asked * TMEM_LANES * 4, 8):  # undefined: NaN shows whoever reads it
        st64(start + k, -1)
    m = messages_of(S.message_at, S.inbox_size)[post(S, when)]
    m.kind, m.slot, m.cta, m.warp, m.word = P_TMEM, slot, c.id, c.tmem_warp, first
    c.tmem_asked = 0
