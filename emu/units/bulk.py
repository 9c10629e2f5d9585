"""Bulk copies without a tensor map, st.async, red.async, clusterlaunchcontrol: jobs of the copy engine (`emu.units.tma`).

A range of bytes is a tensor of one dimension.  An asynchronous store takes its registers at issue and arrives, with its
signal, after the latency of its timing class.
"""

from __future__ import annotations

from typing import Any

from emu.chip_state import ASK_CANCEL, P_ASYNC, PENDING, REQUESTS, SENDING
from emu.compiled import compiled
from emu.copy_state import LOAD, SEND_READING
from emu.raw import ld16, st32, st64
from emu.state import JOBS
from emu.units import peers
from emu.units.chaos import C_COPY, at
from emu.units.common import (
    DEFAULT,
    F_BULK_SIZE,
    F_GLOBAL_ALIGN,
    F_SHARED_RANGE,
    F_TMA_ALIGN,
    RETRY,
    event,
    fault,
    get32,
    get64,
    jobs_of,
    tmaps_of,
)
from emu.units.each_lane import each_lane
from emu.units.history import E_COPY, record
from emu.units.jobs import addressed, ask, enroll, free_job, note_ranks, place_of, room, start_load, start_store
from emu.units.mbarrier import cell
from emu.units.memory import shared_host
from emu.units.peers import OFFSET, access, lanes_elsewhere, note_copy, one_place
from emu.units.requests import data_at, requests_of
from emu.units.tma import advance as copy_engine

UNIT = 16  # bytes: alignment and unit of the size


@compiled
def range_fault(S: Any, W: Any, lane: int, offset: int, size: int) -> bool:
    """Whether a range of a CTA's shared memory is misaligned or too long, with its fault."""
    if offset % UNIT:
        fault(S, W, F_TMA_ALIGN, lane, offset, 0)
    elif offset + size > S.smem_per_cta:
        fault(S, W, F_SHARED_RANGE, lane, offset, size)
    return S.fault != 0


@compiled
def range_job(S: Any, W: Any, lane: int, address: int, offset: int, size: int) -> int:
    """A job for `size` bytes at a global address and an offset in shared memory; -1 after a fault."""
    if address % UNIT:
        fault(S, W, F_GLOBAL_ALIGN, lane, address, UNIT)
        return -1
    if size % UNIT:
        fault(S, W, F_BULK_SIZE, lane, offset, size)
        return -1
    if range_fault(S, W, lane, offset, size):
        return -1
    k = free_job(S)
    j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
    enroll(S, W, j, lane)
    T.base, T.rank, T.elem, T.swizzle, T.fill_nan, T.etype = address, 1, 1, 0, 0, 0
    T.dims[0], T.box[0], T.estride[0], T.strides[0] = size, size, 1, 1
    j.coords[0] = 0
    j.bytes = size
    j.smem = W.smem_base + offset
    return k


@each_lane(room)
def bulk_load(S: Any, C: Any, W: Any, I: Any, t: int, lane: int) -> bool:
    """cp.async.bulk from global to shared memory."""
    size = get32(W, ld16(S.list_at + I.list * 2), lane)
    k = range_job(S, W, lane, get64(W, I.b, lane), place_of(S, W, get32(W, I.a, lane)), size)
    if k < 0:
        return False
    multicast, mask = (I.imm >> 8) & 1, 0
    if multicast:
        mask = get32(W, ld16(S.list_at + I.list * 2 + 2), lane) & 0xFFFF
    j = jobs_of(S.job_at, JOBS)[k]
    if not addressed(S, W, j, lane, get32(W, I.a, lane), get32(W, I.c, lane), multicast, mask):
        return False
    start_load(S, C, W, k, t)
    return True


@each_lane(room)
def bulk_store(S: Any, C: Any, W: Any, I: Any, t: int, lane: int) -> bool:
    """cp.async.bulk and cp.reduce.async.bulk from shared to global memory, part of the lane's open bulk group."""
    size = get32(W, ld16(S.list_at + I.list * 2), lane)
    k = range_job(S, W, lane, get64(W, I.a, lane), place_of(S, W, get32(W, I.b, lane)), size)
    if k < 0:
        return False
    jobs_of(S.job_at, JOBS)[k].code = I.imm & 0xFFFF
    start_store(S, C, W, k, t)
    return True


@each_lane(room)
def bulk_send(S: Any, C: Any, W: Any, I: Any, t: int, lane: int) -> bool:
    """cp.async.bulk and cp.reduce.async.bulk from shared memory to that of a CTA of the cluster."""
    size = get32(W, ld16(S.list_at + I.list * 2), lane)
    target, source, mbar = get32(W, I.a, lane), get32(W, I.b, lane), get32(W, I.c, lane)
    k = range_job(S, W, lane, 0, (source - W.window) & 0xFFFFFFFF, size)
    if k < 0 or range_fault(S, W, lane, place_of(S, W, target), size):
        return False
    j = jobs_of(S.job_at, JOBS)[k]
    if not addressed(S, W, j, lane, target, mbar, 0, 0):
        return False
    j.code, j.target = I.imm & 0xFFFF, W.smem_base + place_of(S, W, target)
    start_store(S, C, W, k, t)
    slower = (size * C.peer_copy_kb_cy256 >> 10) - (size * C.store_kb_cy256 >> 10)
    S.store_free += slower
    j.state, j.serve, j.read = SEND_READING, S.store_free >> 8, j.read + (slower >> 8)
    j.finish = max(j.read + C.peer_copy_cy, t + C.peer_cy)
    if j.own:
        record(S, W, E_COPY, W.pc, (j.mbar << 3) - W.smem_base, size, t)
    else:
        note_ranks(S, W, j, t)
    return True


@compiled
def async_elsewhere(S: Any, C: Any, W: Any, I: Any, m: int, t: int) -> None:
    """Messages of st.async and red.async to other CTAs."""
    size = I.imm >> 32
    first = access(S, C, W, I, P_ASYNC, m, I.a, 0, size, 0, t)
    count = (S.log_tail - first) & (REQUESTS - 1)
    for n in range(count):
        k = (first + n) & (REQUESTS - 1)
        r = requests_of(S.log_at, REQUESTS)[k]
        r.port = at(S, W, C_COPY, W.pc, t, t + I.latency, t + C.peer_cy)
        st64(S.sent_at + 8 * ((S.sent - count + n) & (SENDING - 1)), r.port)
        for lane in range(32):
            if not (r.mask >> lane) & 1:
                continue
            mbar = get32(W, I.b, lane)
            if one_place(S, W, lane, r.address[lane], mbar) < 0:
                return
            for word in range(size // 4):
                st32(data_at(S, k) + 16 * lane + 4 * word, get32(W, ld16(S.list_at + I.list * 2 + 2 * word), lane))
            st32(data_at(S, k) + 512 + 4 * lane, mbar)
            note_copy(S, W, int(r.first), mbar & OFFSET, size, t)


@compiled
def async_store(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """st.async and red.async to shared memory."""
    if m == 0:
        return DEFAULT
    if not room(S, C, W, t, m):
        return RETRY
    size = I.imm >> 32
    elsewhere = lanes_elsewhere(S, W, I.a, 0, m, 0)
    if elsewhere < 0:
        return DEFAULT
    if elsewhere:
        if not peers.room(S, W, S.peers, t):
            return RETRY
        async_elsewhere(S, C, W, I, elsewhere, t)
        m &= ~elsewhere
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        offset = (get32(W, I.a, lane) - W.window) & 0xFFFFFFFF
        mbar = cell(S, W, lane, get32(W, I.b, lane), 1)
        if mbar < 0 or shared_host(S, W, lane, offset + W.window, size) == 0:
            return DEFAULT
        k = free_job(S)
        j = jobs_of(S.job_at, JOBS)[k]
        enroll(S, W, j, lane)
        for word in range(size // 4):
            st32(j.staging_at + 4 * word, get32(W, ld16(S.list_at + I.list * 2 + 2 * word), lane))
        j.state, j.staged, j.code = LOAD, 1, I.imm & 0xFFFF
        j.bytes, j.mbar, j.smem = size, mbar, W.smem_base + offset
        j.serve = t
        j.finish = at(S, W, C_COPY, W.pc, t, t + I.latency, t + 1)
        j.read = j.finish
        S.jobs += 1
        record(S, W, E_COPY, W.pc, (mbar << 3) - W.smem_base, size, t)
        event(S, j.finish)
    return DEFAULT


@each_lane(room)
def try_cancel(S: Any, C: Any, W: Any, I: Any, t: int, lane: int) -> bool:
    """clusterlaunchcontrol.try_cancel: a job whose 16 bytes the chip writes (`emu.units.answers`)."""
    offset = (get32(W, I.a, lane) - W.window) & 0xFFFFFFFF
    mbar = cell(S, W, lane, get32(W, I.b, lane), 1)
    if mbar < 0:
        return False
    if offset % UNIT:
        fault(S, W, F_TMA_ALIGN, lane, offset, 0)
        return False
    if shared_host(S, W, lane, offset + W.window, UNIT) == 0:
        return False
    k = free_job(S)
    j = jobs_of(S.job_at, JOBS)[k]
    enroll(S, W, j, lane)
    j.state, j.staged = LOAD, 1
    j.bytes, j.mbar, j.smem = UNIT, mbar, W.smem_base + offset
    j.serve, j.finish, j.read = t, PENDING, PENDING
    S.jobs += 1
    record(S, W, E_COPY, W.pc, (mbar << 3) - W.smem_base, UNIT, t)
    ask(S, C, ASK_CANCEL, k, t)
    return True


@compiled
def advance(S: Any, C: Any, t: int) -> int:
    """The jobs are the copy engine's, also of a program that uses no tensor map."""
    return int(copy_engine(S, C, t))
