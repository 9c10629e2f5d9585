"""What the CTAs of a cluster do to each other's shared memory.

An access to another CTA is a message: a request to the chip, which posts it to the other SM, where it is delivered in its cycle
(`emu/units/cluster.py`).  It arrives no sooner than `peer_cy` after it was sent, and SMs of one cluster never run further
apart than that, so that results do not depend on which SM runs first here.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.chip_state import (
    ASK_PEER,
    MESSAGE,
    MESSAGE_BYTES,
    MESSAGE_DATA,
    P_ARRIVE,
    P_LOAD,
    P_TX,
    REQUESTS,
    SENDING,
)
from emu.compiled import compiled
from emu.raw import copy, ld32, ld64, st32, st64, view
from emu.stalls import Reason
from emu.state import BLOCK_NONE
from emu.units.common import F_RANK, ctas_of, event, fault, get32, get64
from emu.units.history import E_ARRIVE, E_COPY, E_DROP, E_EXPECT, E_SENT, record_of
from emu.units.requests import data_at, request, requests_of
from isa.program import RANK_BIT, SHARED_WINDOW, WINDOW_SIZE

messages_of = view(MESSAGE)
R_LG = int(Reason.LG_THROTTLE)
OFFSET = (1 << RANK_BIT) - 1


# ---- the sender ----------------------------------------------------------------------------------------


@njit(inline="always")
def rank_in(address: int) -> int:
    """The CTA that a shared address lies in."""
    return (address >> RANK_BIT) & 0xFF


@njit(inline="always")
def foreign(S: Any, W: Any, address: int) -> bool:
    """Whether a shared address lies in another CTA."""
    return S.peers and rank_in(address ^ W.window) != 0


@njit(inline="always")
def foreign_generic(S: Any, W: Any, address: int) -> bool:
    """The same of a generic address."""
    return S.peers and address >= SHARED_WINDOW and address < SHARED_WINDOW + WINDOW_SIZE and foreign(S, W, address)


@compiled
def lanes_elsewhere(S: Any, W: Any, row: int, offset: int, m: int, generic: int) -> int:
    """Lanes of `m` whose address, in a row, lies in another CTA of the cluster; -1 after a fault."""
    if not S.peers:
        return 0
    found = 0
    for lane in range(32):
        if (m >> lane) & 1:
            address = (get64(W, row, lane) if generic else get32(W, row, lane)) + offset
            if foreign_generic(S, W, address) if generic else foreign(S, W, address):
                if rank_in(address) >= S.peers:
                    fault(S, W, F_RANK, lane, address & 0xFFFFFFFF, rank_in(address))
                    return -1
                found |= 1 << lane
    return found


@compiled
def peer_id(S: Any, W: Any, rank: int) -> int:
    """The number of the CTA of another rank in W's cluster."""
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    x, y = rank % S.cluster[0], rank // S.cluster[0] % S.cluster[1]
    z = rank // (S.cluster[0] * S.cluster[1])
    x += c.ctaid[0] // S.cluster[0] * S.cluster[0]
    y += c.ctaid[1] // S.cluster[1] * S.cluster[1]
    z += c.ctaid[2] // S.cluster[2] * S.cluster[2]
    return x + S.nctaid[0] * (y + S.nctaid[1] * z)


@compiled
def room(S: Any, W: Any, count: int, t: int) -> bool:
    """Whether `count` messages more may be under way; otherwise the warp retries when the oldest has arrived."""
    if not S.peers or S.sent < SENDING:
        return True
    oldest = ld64(S.sent_at + 8 * ((S.sent + count) & (SENDING - 1)))
    if oldest <= t:
        return True
    W.reason = R_LG
    W.block = BLOCK_NONE
    st64(S.ready_at + W.slot8, oldest)
    return False


@compiled
def send(S: Any, C: Any, W: Any, kind: int, rank: int, m: int, t: int, when: int) -> int:
    """Write down a message to the CTA of a rank that arrives at cycle `when`; returns its place in the log."""
    k = request(S, C, ASK_PEER, t)
    r = requests_of(S.log_at, REQUESTS)[k]
    r.job, r.warp, r.pc, r.mask, r.first, r.port = kind, W.slot, W.pc, m, rank, when
    r.mixed = 0
    st64(S.sent_at + 8 * (S.sent & (SENDING - 1)), when)
    S.sent += 1
    S.acknowledged = max(S.acknowledged, t + C.peer_ack_cy)
    return k


@compiled
def access(
    S: Any, C: Any, W: Any, I: Any, kind: int, m: int, row: int, offset: int, width: int, generic: int, t: int
) -> int:
    """Messages for the lanes of `m`, one a CTA: loads, stores, atomics.  Values are added by the caller to the latest one.

    Returns the place of the first message in the log; the others follow it.
    """
    first = -1
    when = t + (C.peer_load_cy >> 1 if kind == P_LOAD else C.peer_store_cy)
    for rank in range(S.peers):
        mine = 0
        for lane in range(32):
            if (m >> lane) & 1:
                address = (get64(W, row, lane) if generic else get32(W, row, lane)) + offset
                mine |= (rank_in(address) == rank) << lane
        if mine == 0:
            continue
        k = send(S, C, W, kind, rank, mine, t, when)
        r = requests_of(S.log_at, REQUESTS)[k]
        r.width, r.bytes = width, I.imm
        for lane in range(32):
            if (mine >> lane) & 1:
                r.address[lane] = ((get64(W, row, lane) if generic else get32(W, row, lane)) + offset) & 0xFFFFFFFF
        if first < 0:
            first = k
    return first


@compiled
def mark_mixed(S: Any, first: int, others: int) -> None:
    """Note in the requests from place `first` on whether other lanes of their instruction (`others`) have asked too."""
    if others:
        for n in range((S.log_tail - first) & (REQUESTS - 1)):
            requests_of(S.log_at, REQUESTS)[(first + n) & (REQUESTS - 1)].mixed = 1


@compiled
def signal(S: Any, C: Any, W: Any, I: Any, kind: int, m: int, offset: int, sign: int, t: int, when: int) -> None:
    """Messages to mbarriers of other CTAs: arrivals (P_ARRIVE), bytes expected or completed (P_TX)."""
    first = access(S, C, W, I, kind, m, I.a, offset, 8, 0, t)
    count = (S.log_tail - first) & (REQUESTS - 1)
    for n in range(count):
        k = (first + n) & (REQUESTS - 1)
        r = requests_of(S.log_at, REQUESTS)[k]
        r.port = when
        for lane in range(32):
            if (r.mask >> lane) & 1:
                amount = get32(W, I.b, lane)
                st32(data_at(S, k) + 4 * lane, amount)
                note(S, W, I, kind, int(r.first), r.address[lane] & OFFSET, amount * sign, t)
        if sign < 0:
            r.width = -8
        st64(S.sent_at + 8 * ((S.sent - count + n) & (SENDING - 1)), when)


@compiled
def note(S: Any, W: Any, I: Any, kind: int, rank: int, address: int, amount: int, t: int) -> None:
    """The sender's own record of what it did to a barrier elsewhere (the receiver has another)."""
    own, other = ctas_of(S.cta_at, S.cta_slots)[W.cta].id, peer_id(S, W, rank)
    if kind == P_TX or (kind == P_ARRIVE and (I.imm >> 34) & 1):
        record_of(S, other, own, W.index, E_SENT | E_EXPECT, W.pc, address, amount, t)
    if kind == P_ARRIVE:
        drop, one = (I.imm >> 32) & 1, (I.imm >> 34) & 1
        record_of(
            S, other, own, W.index, E_SENT | (E_DROP if drop else E_ARRIVE), W.pc, address, 1 if one else amount, t
        )


@compiled
def note_copy(S: Any, W: Any, rank: int, address: int, size: int, t: int) -> None:
    """The same of a copy that signals a barrier elsewhere."""
    own, other = ctas_of(S.cta_at, S.cta_slots)[W.cta].id, peer_id(S, W, rank)
    record_of(S, other, own, W.index, E_SENT | E_COPY, W.pc, address, size, t)


@compiled
def one_place(S: Any, W: Any, lane: int, target: int, mbar: int) -> int:
    """The rank that the data and the mbarrier of a copy lie in, or -1 after a fault."""
    rank = rank_in(target)
    if rank != rank_in(mbar) or rank >= S.peers:
        fault(S, W, F_RANK, lane, target & 0xFFFFFFFF, max(rank, rank_in(mbar)))
        return -1
    return rank


# ---- the receiver's inbox --------------------------------------------------------------------------------


@compiled
def post(P: Any, time: int) -> int:
    """Room for a message that arrives at an SM at cycle `time`; returns its number, in the order of arrival and posting."""
    mask = P.inbox_size - 1
    P.spares -= 1
    m = ld32(P.spare_at + 4 * P.spares)
    messages = messages_of(P.message_at, P.inbox_size)
    at = P.inbox_tail
    while at > P.inbox_head:
        before = ld32(P.inbox_at + 4 * ((at - 1) & mask))
        if messages[before].time <= time:
            break
        st32(P.inbox_at + 4 * (at & mask), before)
        at -= 1
    st32(P.inbox_at + 4 * (at & mask), m)
    P.inbox_tail += 1
    messages[m].time = time
    event(P, time)
    return m


@compiled
def take(S: Any) -> int:
    """The number of the message that arrives first; it leaves the inbox."""
    m = ld32(S.inbox_at + 4 * (S.inbox_head & (S.inbox_size - 1)))
    S.inbox_head += 1
    return m


@compiled
def give_back(S: Any, m: int) -> None:
    """A message has been delivered."""
    st32(S.spare_at + 4 * S.spares, m)
    S.spares += 1


@njit(inline="always")
def message_data(S: Any, m: int) -> int:
    """Host address of a message's data."""
    return S.message_at + m * MESSAGE_BYTES + MESSAGE_DATA


@compiled
def forward(P: Any, S: Any, r: Any, data: int, size: int) -> int:
    """Post a request of SM S to SM P as a message with the first `size` bytes of its data."""
    k = post(P, int(r.port))
    m = messages_of(P.message_at, P.inbox_size)[k]
    m.kind, m.place, m.warp, m.pc, m.mask, m.width, m.word, m.mixed = (
        r.job, S.place, r.warp, r.pc, r.mask, r.width, r.bytes, r.mixed,
    )  # fmt: skip
    for lane in range(32):
        m.address[lane] = r.address[lane]
    copy(message_data(P, k), data, size)
    return k
