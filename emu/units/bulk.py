"""Bulk copies without a tensor map, st.async, red.async, clusterlaunchcontrol: jobs of the copy engine (`emu.units.tma`).

A range of bytes is a tensor of one dimension.  An asynchronous store takes its registers at issue and arrives, with its
signal, after the latency of its timing class.
"""

from __future__ import annotations

from typing import Any

from emu.chip_state import ASK_CANCEL, PENDING
from emu.compiled import compiled
from emu.raw import ld16, st32
from emu.state import JOBS, LOAD
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
from emu.units.history import E_COPY, record
from emu.units.mbarrier import cell
from emu.units.memory import shared_host
from emu.units.tma import advance as copy_engine
from emu.units.tma import ask, enroll, free_job, room, start_load, start_store

UNIT = 16  # bytes: alignment and unit of the size


@compiled
def range_job(S: Any, W: Any, lane: int, address: int, offset: int, size: int) -> int:
    """A job for `size` bytes at a global address and an offset in shared memory; -1 after a fault."""
    if address % UNIT:
        fault(S, W, F_GLOBAL_ALIGN, lane, address, UNIT)
        return -1
    if size % UNIT:
        fault(S, W, F_BULK_SIZE, lane, offset, size)
        return -1
    if offset % UNIT:
        fault(S, W, F_TMA_ALIGN, lane, offset, 0)
        return -1
    if offset + size > S.smem_per_cta:
        fault(S, W, F_SHARED_RANGE, lane, offset, size)
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


@compiled
def bulk_load(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """cp.async.bulk from global to shared memory; each active lane issues its own copy."""
    if m == 0:
        return DEFAULT
    if not room(S, C, W, t, m):
        return RETRY
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        size = get32(W, ld16(S.list_at + I.list * 2), lane)
        mbar = cell(S, W, lane, get32(W, I.c, lane), 1)
        if mbar < 0:
            return DEFAULT
        k = range_job(S, W, lane, get64(W, I.b, lane), get32(W, I.a, lane), size)
        if k < 0:
            return DEFAULT
        jobs_of(S.job_at, JOBS)[k].mbar = mbar
        start_load(S, C, W, k, t)
    return DEFAULT


@compiled
def bulk_store(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """cp.async.bulk and cp.reduce.async.bulk from shared to global memory, part of the lane's open bulk group."""
    if m == 0:
        return DEFAULT
    if not room(S, C, W, t, m):
        return RETRY
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        size = get32(W, ld16(S.list_at + I.list * 2), lane)
        k = range_job(S, W, lane, get64(W, I.a, lane), get32(W, I.b, lane), size)
        if k < 0:
            return DEFAULT
        jobs_of(S.job_at, JOBS)[k].code = I.imm & 0xFFFF
        start_store(S, C, W, k, t)
    return DEFAULT


@compiled
def async_store(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """st.async and red.async to shared memory."""
    if m == 0:
        return DEFAULT
    if not room(S, C, W, t, m):
        return RETRY
    size = I.imm >> 32
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        offset = get32(W, I.a, lane)
        mbar = cell(S, W, lane, get32(W, I.b, lane), 1)
        if mbar < 0 or shared_host(S, W, lane, offset, size) == 0:
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


@compiled
def try_cancel(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """clusterlaunchcontrol.try_cancel: a job whose 16 bytes the chip writes (`emu.units.answers`)."""
    if m == 0:
        return DEFAULT
    if not room(S, C, W, t, m):
        return RETRY
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        offset = get32(W, I.a, lane)
        mbar = cell(S, W, lane, get32(W, I.b, lane), 1)
        if mbar < 0:
            return DEFAULT
        if offset % UNIT:
            fault(S, W, F_TMA_ALIGN, lane, offset, 0)
            return DEFAULT
        if shared_host(S, W, lane, offset, UNIT) == 0:
            return DEFAULT
        k = free_job(S)
        j = jobs_of(S.job_at, JOBS)[k]
        enroll(S, W, j, lane)
        j.state, j.staged = LOAD, 1
        j.bytes, j.mbar, j.smem = UNIT, mbar, W.smem_base + offset
        j.serve, j.finish, j.read = t, PENDING, PENDING
        S.jobs += 1
        record(S, W, E_COPY, W.pc, (mbar << 3) - W.smem_base, UNIT, t)
        ask(S, C, ASK_CANCEL, k, t)
    return DEFAULT


@compiled
def advance(S: Any, C: Any, t: int) -> int:
    """The jobs are the copy engine's, also of a program that uses no tensor map."""
    return int(copy_engine(S, C, t))
