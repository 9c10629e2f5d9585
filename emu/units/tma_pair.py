"""Tensor loads with cta_group::2, which signal the mbarrier of the other CTA of the pair (PTX ISA 9.7.9.27.1.2)."""

from __future__ import annotations

from typing import Any

from emu.chip_state import P_BYTES, REQUESTS, SENDING
from emu.compiled import compiled
from emu.raw import ld64, st32
from emu.units.mbarrier import cell
from emu.units.peers import OFFSET, rank_in, send
from emu.units.requests import data_at, requests_of
from isa.program import RANK_BIT


@compiled
def across(S: Any, W: Any, j: Any, lane: int, target: int, mbar: int) -> bool:
    """Whether a load to this CTA with cta_group::2 signals the other CTA of its pair; fills in the mbarrier there."""
    me = rank_in(W.window)
    if not S.peers or rank_in(target) != me or rank_in(mbar) != me ^ 1 or me ^ 1 >= S.peers:
        return False
    j.signal, j.mbar = (me ^ 1) + 1, cell(S, W, lane, (mbar & OFFSET) + W.window, 0)
    return True


@compiled
def tell_partner(S: Any, C: Any, W: Any, j: Any, t: int) -> None:
    """The signal of a load to the other CTA of the pair: a message, which takes the time of a remote arrival."""
    k = send(S, C, W, P_BYTES, j.signal - 1, 1 << j.lane, t, t + C.peer_arrive_cy)
    r = requests_of(S.log_at, REQUESTS)[k]
    r.pc, r.width, r.bytes = j.pc, 8, 0
    r.address[j.lane] = j.signal - 1 << RANK_BIT | (j.mbar << 3) - W.smem_base
    st32(data_at(S, k) + 4 * j.lane, j.bytes)


@compiled
def oldest_message(S: Any) -> int:
    """When the message arrives that the next one would take the place of; 0: there is room."""
    return ld64(S.sent_at + 8 * (S.sent & (SENDING - 1))) if S.sent >= SENDING else 0
