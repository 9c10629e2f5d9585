"""Commits of tcgen05: which mbarriers they name, and their arrivals (PTX ISA 9.7.16.12)."""

from __future__ import annotations

from typing import Any

from emu.chip_state import P_ARRIVE, REQUESTS, SENDING
from emu.compiled import compiled
from emu.raw import ld8, ld64, st32
from emu.units.common import (
    F_COPY_RANKS,
    F_MBAR_ARRIVALS,
    F_MBAR_INVALID,
    ctas_of,
    fault,
    get32,
    signed32,
)
from emu.units.history import E_ARRIVE, E_SENT, record, record_of
from emu.units.mbarrier import cell, settle
from emu.units.mbarrier_word import expected_of, make_word, pending_of, phase_of, tx_of
from emu.units.peers import OFFSET, peer_id, rank_in, send
from emu.units.requests import data_at, requests_of
from isa.program import RANK_BIT

EVERY = 1 << 32  # of a commit's immediate: a mask of CTAs is given


@compiled
def addressed(S: Any, W: Any, I: Any, lane: int, J: Any) -> bool:
    """Fill in the mbarriers of a commit: a place in a CTA, and the ranks of the CTAs that have them; False after a fault."""
    address = get32(W, I.a, lane) + signed32(I.imm)
    me, all_ = rank_in(W.window), max(S.peers, 1)
    ranks = get32(W, I.b, lane) & 0xFFFF if I.imm & EVERY else 1 << (rank_in(address) if S.peers else me)
    if ranks >> all_ and S.peers or not S.peers and ranks & ~(1 << me):
        fault(S, W, F_COPY_RANKS, lane, ranks, all_)
        return False
    J.a = ranks & ~(1 << me)
    J.b = ranks >> me & 1
    J.mbar = cell(S, W, lane, (address & OFFSET) + W.window if S.peers else address, J.b)
    return bool(J.mbar >= 0)


@compiled
def arrive(S: Any, C: Any, W: Any, J: Any, t: int) -> None:
    """A commit is complete: one arrival, on the same mbarrier of each CTA that it names.

    Messages to other CTAs may have to wait for room; then the commit is complete later.
    """
    address = (J.mbar << 3) - ctas_of(S.cta_at, S.cta_slots)[J.cta].smem_base
    if J.a:
        oldest = ld64(S.sent_at + 8 * (S.sent + S.peers & SENDING - 1)) if S.sent >= SENDING else 0
        if oldest > t:
            J.finish = oldest
            return
        tell_others(S, C, W, J, address, t)
    if J.b and not ld8(S.live_at + J.mbar):
        fault(S, W, F_MBAR_INVALID, J.lane, address, 0)
    elif J.b:
        word = ld64(S.mbar_at + J.mbar * 8)
        if pending_of(word) == 0:
            fault(S, W, F_MBAR_ARRIVALS, J.lane, address, 1)
            return
        record(S, W, E_ARRIVE, J.pc, address, 1, t)
        settle(S, C, W, J.mbar, make_word(expected_of(word), tx_of(word), pending_of(word) - 1, phase_of(word)), t)


@compiled
def tell_others(S: Any, C: Any, W: Any, J: Any, address: int, t: int) -> None:
    """The arrivals of a commit on mbarriers of other CTAs: messages, which take the time of a remote arrival."""
    own = ctas_of(S.cta_at, S.cta_slots)[J.cta].id
    for rank in range(S.peers):
        if J.a >> rank & 1:
            k = send(S, C, W, P_ARRIVE, rank, 1 << J.lane, t, t + C.peer_arrive_cy)
            r = requests_of(S.log_at, REQUESTS)[k]
            r.pc, r.width, r.bytes = J.pc, 8, 0
            r.address[J.lane] = rank << RANK_BIT | address
            st32(data_at(S, k) + 4 * J.lane, 1)
            record_of(S, peer_id(S, W, rank), own, W.index, E_SENT | E_ARRIVE, J.pc, address, 1, t)
