"""Accesses that nothing orders behind what is still to be written; the first one is noted, and the run goes on, as silicon does.

Shared memory that a cp.async writes (PTX ISA 9.7.9.25.3), whenever its bytes come: a copy is ordered before the reads of its own warp by a wait that covers its group, and before those of other warps when
its warp signals something (a barrier, an mbarrier, a fence) behind that wait.  Each 16 bytes of shared memory remember who
copied to them last.  Tensor Memory that a tcgen05.mma writes (9.7.16.6.2): only the wait for a commit orders loads and stores behind it.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.raw import ld64, st64
from emu.state import LIVE, TC_RING, WARP_SLOTS
from emu.tmem_state import TC_MMA
from emu.units.common import commands_of, warps_of
from emu.units.tmem_layout import column_of, parts_of

# The mark of 16 bytes: which of their words, the lane, slot and instruction that copied, the lane's group.
LANE, SLOT, PLACE, GROUP = 4, 9, 15, 35
WORDS, LANES, PLACES, GROUPS = 15, 31, (1 << 20) - 1, (1 << 28) - 1

# No hazard; a copy that its own warp reads and has not waited for; another warp's; that one has waited for, but not signalled; a product;
# and a copy of more bytes than its size.
H_NONE, H_OWN, H_OTHER, H_SIGNAL, H_PRODUCT, H_SIZE = range(6)


@compiled
def words_of(offset: int, size: int) -> int:
    """The words of its 16 bytes that an access covers, as a mask."""
    return (((1 << ((size + 3) >> 2)) - 1) << ((offset >> 2) & 3)) & WORDS


@njit(inline="always")
def mark(S: Any, W: Any, lane: int, host: int, size: int) -> None:
    """A lane copies to shared memory."""
    offset = host - S.smem_at
    at, page = S.copied_at + (offset >> 4 << 3), S.marked_at + (offset >> 10 << 3)
    by = lane << LANE | W.slot << SLOT | (W.pc & PLACES) << PLACE | (W.copy_group[lane] & GROUPS) << GROUP
    pages = ld64(page)
    words = words_of(offset, size)
    if (pages >> ((offset >> 4) & 63)) & 1 and ld64(at) >> SLOT == by >> SLOT:
        words |= ld64(at) & WORDS
    st64(at, by | words)
    st64(page, pages | 1 << ((offset >> 4) & 63))


@njit(inline="always")
def marked(S: Any, host: int) -> int:
    """Whether the 16 bytes have a mark, in a program with copies."""
    offset = host - S.smem_at
    return (ld64(S.marked_at + (offset >> 10 << 3)) >> ((offset >> 4) & 63)) & 1 if S.marked_at else 0


@njit(inline="always")
def shown(V: Any, found: int) -> bool:
    """Whether everybody may see what a mark of warp V stands for."""
    copier, group = (found >> LANE) & LANES, found >> GROUP
    return bool(group < V.copy_shown[copier] or (V.state != LIVE and group < V.copy_waited[copier]))


@compiled
def check(S: Any, W: Any, lane: int, host: int, size: int) -> None:
    """A lane reads 16 bytes of shared memory that have a mark, or a part of them."""
    offset = host - S.smem_at
    warps, found = warps_of(S.warp_at, WARP_SLOTS), ld64(S.copied_at + (offset >> 4 << 3))
    copier, group, V = (found >> LANE) & LANES, found >> GROUP, warps[(found >> SLOT) & (WARP_SLOTS - 1)]
    if shown(V, found):
        forget(S, offset >> 10)
        return
    waited = group < V.copy_waited[copier]
    if not found & words_of(offset, size) or (waited and V.slot == W.slot):
        return
    kind = H_OWN if V.slot == W.slot else H_SIGNAL if waited else H_OTHER
    newer = V.copy_group[copier] - group
    note(S, W, kind, lane, offset - W.smem_base, V.slot, (found >> PLACE) & PLACES, newer)


@compiled
def forget(S: Any, page: int) -> None:
    """Take away the marks of a page whose copies everybody may see."""
    warps, left = warps_of(S.warp_at, WARP_SLOTS), ld64(S.marked_at + page * 8)
    for k in range(64):
        if (left >> k) & 1:
            found = ld64(S.copied_at + (page * 64 + k) * 8)
            if shown(warps[(found >> SLOT) & (WARP_SLOTS - 1)], found):
                left &= ~(1 << k)
    st64(S.marked_at + page * 8, left)


@compiled
def note(S: Any, W: Any, kind: int, lane: int, address: int, by: int, by_pc: int, newer: int) -> None:
    """Keep the SM's first hazard: who accesses what, and the warp slot and place of what it does not wait for."""
    if S.hazard == H_NONE:
        S.hazard, S.hazard_pc, S.hazard_warp, S.hazard_lane = kind, W.pc, W.slot, lane
        S.hazard_address, S.hazard_by, S.hazard_by_pc, S.hazard_newer = address, by, by_pc, newer


@compiled
def check_products(S: Any, W: Any, taddr: int, width: int) -> None:
    """A warp loads or stores columns of Tensor Memory: products of its CTA that are under way write others."""
    for k in range(S.tc_head, S.tc_tail):
        J = commands_of(S.tc_at, TC_RING)[k & (TC_RING - 1)]
        first, column = column_of(J.d), column_of(taddr)
        if J.what == TC_MMA and J.cta == W.cta and first < column + width and column < first + J.n // parts_of(J):
            note(S, W, H_PRODUCT, 0, taddr, J.warp, J.pc, 0)


@compiled
def wait_for(W: Any, m: int, newest: int) -> None:
    """The lanes wait for all but their `newest` groups."""
    for lane in range(32):
        if (m >> lane) & 1:
            W.copy_waited[lane] = max(W.copy_waited[lane], W.copy_group[lane] - newest)


@compiled
def show(W: Any) -> None:
    """The warp signals: whoever waits for that sees the copies that it has waited for."""
    if W.copies:
        for lane in range(32):
            W.copy_shown[lane] = W.copy_waited[lane]
