"""Clusters: the cluster's barrier (PTX ISA 9.7.13.3), and what arrives from other CTAs of the cluster.

A message acts in the cycle of its arrival as if the CTA had done it itself; a reply to a load or an atomic goes back by way of the
chip.  A CTA that has exited has no shared memory any more: whoever reaches for it faults.
"""

from __future__ import annotations

from typing import Any

from emu.chip_state import (
    ASK_REPLY,
    P_ARRIVE,
    P_ASYNC,
    P_ATOMIC,
    P_BYTES,
    P_COPY,
    P_LOAD,
    P_OPEN,
    P_STORE,
    P_TMEM,
    P_TX,
    REQUESTS,
)
from emu.compiled import compiled
from emu.raw import copy, ld8, ld32
from emu.stalls import Reason
from emu.state import BLOCK_CLUSTER, JOBS, LIVE, NEVER, WARP_SLOTS
from emu.units import atomic
from emu.units.barrier import meet
from emu.units.boxes import combine, deliver, read_box
from emu.units.common import (
    DEFAULT,
    F_CLUSTER_TWICE,
    F_PEER_GONE,
    F_TMA_MBAR,
    PARK,
    RETRY,
    ctas_of,
    fault,
    first_lane,
    instrs_of,
    jobs_of,
    park,
    together,
    wake,
    warps_of,
)
from emu.units.history import E_BYTES, E_CLUSTER, record
from emu.units.mbarrier import arrive_on, cell, complete_tx, tx_on
from emu.units.memory import shared_host, touch
from emu.units.opening import cluster_came, open_cluster
from emu.units.peers import give_back, message_data, messages_of, take
from emu.units.requests import data_at, request, requests_of

FULL = 0xFFFFFFFF
R_BARRIER = int(Reason.BARRIER)
OWN = 16  # the number of the cluster's barrier among those of a CTA


# ---- the cluster's barrier -------------------------------------------------------------------------------


@compiled
def cluster_arrive(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """barrier.cluster.arrive: lanes come from wherever they are; the warp has come when all have that have not exited."""
    if m == 0 or (I.imm and not together(S, W, m, FULL)):
        return DEFAULT
    if W.came & m or W.came_phase >= 0:
        fault(S, W, F_CLUSTER_TWICE, first_lane(m), 0, 0)
        return DEFAULT
    W.came |= m
    record(S, W, E_CLUSTER, W.pc, OWN, 32, t)
    if (W.came | W.exited) & FULL == FULL:
        cluster_came(S, C, W, t)
    return DEFAULT


@compiled
def cluster_wait(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """barrier.cluster.wait: until the phase is over that the warp has come to."""
    if m == 0 or (I.imm and not together(S, W, m, FULL)):
        return DEFAULT
    if not I.imm and m & W.passed:
        W.passed &= ~m
        return DEFAULT
    if not I.imm and (W.came or W.met):  # other lanes of the warp have yet to come, or wait for this path
        met = meet(S, W, OWN, m, t)
        if met < 1:
            return RETRY if met == 0 else DEFAULT
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    if W.came_phase >= 0 and c.cluster_phase > W.came_phase:
        W.came_phase = -1
        return DEFAULT
    park(S, W, BLOCK_CLUSTER, R_BARRIER, t)
    return PARK


# ---- messages --------------------------------------------------------------------------------------------


@compiled
def advance(S: Any, C: Any, t: int) -> int:
    """Deliver what has arrived; returns when the next message does."""
    while S.inbox_head < S.inbox_tail:
        mask = S.inbox_size - 1
        m = messages_of(S.message_at, S.inbox_size)[ld32(S.inbox_at + 4 * (S.inbox_head & mask))]
        if m.time > t:
            return int(m.time)
        k = take(S)
        open_or_deliver(S, C, k, t)
        give_back(S, k)
        S.last = max(S.last, t) if S.live_warps else S.last
        if S.fault:
            return NEVER
    return NEVER


@compiled
def open_or_deliver(S: Any, C: Any, k: int, t: int) -> None:
    """One message, in the name of the CTA that it is for."""
    m = messages_of(S.message_at, S.inbox_size)[k]
    c = ctas_of(S.cta_at, S.cta_slots)[m.slot]
    V = warps_of(S.warp_at, WARP_SLOTS)[c.first_warp]
    here = c.state == LIVE and c.id == m.cta
    if m.kind == P_TMEM:
        if here:
            V = warps_of(S.warp_at, WARP_SLOTS)[m.warp]
            V.tmem_due = -1 - m.word
            wake(S, V, t)
        return
    if m.kind == P_OPEN:
        if here:
            open_cluster(S, C, m.slot, t)
        return
    S.by, S.by_warp, S.by_pc = m.by + 1, m.index, m.pc
    if here:
        act(S, C, V, m, k, t)
    else:
        fault(S, V, F_PEER_GONE, first_lane(m.mask), m.address[first_lane(m.mask)], m.cta)
    S.by = 0


@compiled
def act(S: Any, C: Any, V: Any, m: Any, k: int, t: int) -> None:
    """What a message does to the CTA of warp V."""
    data = message_data(S, k)
    if m.kind == P_COPY:
        land(S, C, V, k, t)
        return
    if m.kind == P_LOAD or m.kind == P_ATOMIC:
        reply(S, C, V, m, data, t)
        return
    for lane in range(32):
        if not (m.mask >> lane) & 1 or S.fault:
            continue
        if m.kind == P_STORE:
            host = shared_host(S, V, lane, m.address[lane], m.width)
            if host:
                copy(host, data + lane * m.width, m.width)
                touch(S, host, m.width)
        elif m.kind == P_ASYNC:
            asynchronous(S, C, V, m, data, lane, t)
        else:
            cell_number = cell(S, V, lane, m.address[lane], 1)
            amount = ld32(data + 4 * lane)
            if cell_number >= 0 and m.kind == P_ARRIVE:
                arrive_on(S, C, V, cell_number, lane, amount, m.word, t)
            elif cell_number >= 0 and m.kind == P_BYTES:
                record(S, V, E_BYTES, m.pc, (cell_number << 3) - V.smem_base, amount, t)
                complete_tx(S, C, V, cell_number, amount, t)
            elif cell_number >= 0 and m.kind == P_TX:
                tx_on(S, C, V, cell_number, lane, -amount if m.width < 0 else amount, t)


@compiled
def reply(S: Any, C: Any, V: Any, m: Any, data: int, t: int) -> None:
    """Read, or change and read, and send back what was there."""
    I = instrs_of(S.instr_at, S.npc)[m.pc]
    k = request(S, C, ASK_REPLY, t)
    r = requests_of(S.log_at, REQUESTS)[k]
    r.job, r.warp, r.pc, r.mask, r.width, r.bytes, r.mixed = m.place, m.warp, m.pc, m.mask, m.width, m.by, m.mixed
    r.first = 1 if m.kind == P_ATOMIC else 0
    for lane in range(32):
        if not (m.mask >> lane) & 1:
            continue
        host = shared_host(S, V, lane, m.address[lane], m.width)
        if host == 0:
            return
        if m.kind == P_LOAD:
            copy(data_at(S, k) + lane * m.width, host, m.width)
        else:
            atomic.operate(I, data, host, lane, 0, data_at(S, k) + 16 * lane)
            touch(S, host, m.width)


@compiled
def asynchronous(S: Any, C: Any, V: Any, m: Any, data: int, lane: int, t: int) -> None:
    """st.async and red.async: 16 bytes a lane, then the mbarriers of the lanes."""
    host = shared_host(S, V, lane, m.address[lane], m.width)
    mbar = cell(S, V, lane, ld32(data + 512 + 4 * lane), 1)
    if host == 0 or mbar < 0:
        return
    if m.word & 0xFFFF:
        combine(host, data + 16 * lane, m.width, m.word & 0xFFFF, 0)
    else:
        copy(host, data + 16 * lane, m.width)
    touch(S, host, m.width)
    record(S, V, E_BYTES, m.pc, (mbar << 3) - V.smem_base, m.width, t)
    complete_tx(S, C, V, mbar, m.width, t)


@compiled
def land(S: Any, C: Any, V: Any, k: int, t: int) -> None:
    """A bulk copy arrives: the job beside the message says what and where."""
    j = jobs_of(S.job_at, JOBS)[JOBS + k]
    if j.staged:
        deliver(S, JOBS + k)
    else:
        read_box(S, V, JOBS + k)
    S.tma_bytes += 0 if j.staged else j.bytes
    if not ld8(S.live_at + j.mbar):
        fault(S, V, F_TMA_MBAR, j.lane, (j.mbar << 3) - V.smem_base, 0)
        return
    record(S, V, E_BYTES, j.pc, (j.mbar << 3) - V.smem_base, j.bytes, t)
    complete_tx(S, C, V, j.mbar, j.bytes, t)
