"""Bulk tensor copies and bulk groups (PTX ISA 9.7.9.25.5, 9.7.9.25.6; rules 6 and 7 of the measurements).

A load is queued at issue, served in order at the copy engine's rate, and takes effect at completion, which the chip
says: the whole box is read from global memory and written to shared memory, then the mbarrier is told the full box's
bytes (also when parts lie outside the tensor).  A store reads shared memory at the end of its read window; the chip
writes global memory with what was asked in that cycle.
"""

from __future__ import annotations

from typing import Any

from emu.chip_state import ASK_COPY_OUT, ASK_SEND
from emu.compiled import compiled
from emu.copy_state import LOAD, SEND_READING, SENT, STORE_DONE, STORE_READING, STORE_WRITING
from emu.raw import ld8, ld16
from emu.stalls import Reason
from emu.state import BLOCK_BULK_WAIT, FREE, JOBS, LIVE, NEVER, WARP_SLOTS
from emu.units.boxes import decode, deliver, outer_rows, pitch_of, read_box, stage_box
from emu.units.chaos import C_OPEN, at
from emu.units.common import (
    DEFAULT,
    F_SHARED_RANGE,
    F_TMA_ALIGN,
    F_TMA_MBAR,
    F_TMAP,
    F_TMAP_RANK,
    PARK,
    fault,
    get32,
    get64,
    jobs_of,
    park,
    signed32,
    tmaps_of,
    wake,
    warps_of,
)
from emu.units.each_lane import each_lane
from emu.units.history import E_BYTES, record
from emu.units.jobs import addressed, ask, enroll, free_job, place_of, room, start_load, start_store
from emu.units.mbarrier import complete_tx
from emu.units.tma_pair import across, oldest_message, tell_partner
from isa.ops.atomic import OPERATIONS, TYPES
from isa.ops.tma import PAIR

# Types of the elements of a tensor map (PTX ISA 9.7.9.28) as those of atomics; -1: no reduction has it.
_NAMES = ("", "", "u32", "s32", "u64", "s64", "f16", "f32", "f32", "f64", "bf16", "", "")
ATOMIC_TYPES = tuple(TYPES.index(name) if name else -1 for name in _NAMES)
U32, S64, F32, F64 = (TYPES.index(name) for name in ("u32", "s64", "f32", "f64"))
ADD, MAX, INC, DEC, AND = (OPERATIONS.index(name) for name in ("add", "max", "inc", "dec", "and"))
R_LONG = int(Reason.LONG_SCOREBOARD)


# ---- issue -----------------------------------------------------------------------------------------


@compiled
def claim(S: Any, W: Any, I: Any, lane: int) -> int:
    """Fill a job with what loads and stores share; returns its number, or -1 after a fault."""
    k = free_job(S)
    j = jobs_of(S.job_at, JOBS)[k]
    T = tmaps_of(S.tmap_at, JOBS)[k]
    if not decode(S, W, lane, get64(W, I.a, lane), T):
        return -1
    if T.rank != I.imm & 15:
        fault(S, W, F_TMAP_RANK, lane, T.rank, I.imm & 15)
        return -1
    for d in range(T.rank):
        j.coords[d] = signed32(get32(W, ld16(S.list_at + I.list * 2 + 2 * d), lane))
    enroll(S, W, j, lane)
    offset = place_of(S, W, get32(W, I.b, lane))
    if offset % (128 if T.swizzle else 16) != 0:
        fault(S, W, F_TMA_ALIGN, lane, offset, T.swizzle)
        return -1
    j.bytes = T.box[0] * T.elem * outer_rows(T)
    if offset + outer_rows(T) * pitch_of(T) > S.smem_per_cta:
        fault(S, W, F_SHARED_RANGE, lane, offset, outer_rows(T) * pitch_of(T))
        return -1
    j.smem = W.smem_base + offset
    return k


@each_lane(room)
def tma_load(S: Any, C: Any, W: Any, I: Any, t: int, lane: int) -> bool:
    """cp.async.bulk.tensor to shared memory."""
    k = claim(S, W, I, lane)
    if k < 0:
        return False
    j = jobs_of(S.job_at, JOBS)[k]
    multicast, mask = (I.imm >> 8) & 1, 0
    if multicast:
        mask = get32(W, ld16(S.list_at + I.list * 2 + 2 * (I.imm & 15)), lane) & 0xFFFF
    target, mbar = get32(W, I.b, lane), get32(W, I.c, lane)
    if I.imm & PAIR and across(S, W, j, lane, target, mbar):
        if j.mbar < 0:
            return False
    elif not addressed(S, W, j, lane, target, mbar, multicast, mask):
        return False
    start_load(S, C, W, k, t)
    return True


@each_lane(room)
def tma_store(S: Any, C: Any, W: Any, I: Any, t: int, lane: int) -> bool:
    """cp.async.bulk.tensor from shared memory, part of the lane's open bulk group."""
    k = claim(S, W, I, lane)
    if k < 0:
        return False
    code = I.imm >> 16 & 255
    if code:
        code = reduction(S, W, lane, code, tmaps_of(S.tmap_at, JOBS)[k].etype)
        if code < 0:
            return False
    jobs_of(S.job_at, JOBS)[k].code = code
    start_store(S, C, W, k, t)
    return True


@compiled
def reduction(S: Any, W: Any, lane: int, operation: int, etype: int) -> int:
    """The job's code for an operation (from 1 on) on elements of a tensor map's type, or -1 after a fault."""
    kind = ATOMIC_TYPES[etype]
    whole = kind >= 0 and kind <= S64
    bits = operation - 1 >= AND
    fits = whole or (operation - 1 <= MAX and kind > F64) or (operation - 1 == ADD and kind >= F32)
    if not fits or (bits and not whole) or ((operation - 1 == INC or operation - 1 == DEC) and kind != U32):
        fault(S, W, F_TMAP, lane, etype, operation)
        return -1
    return operation | kind << 8


@compiled
def tma_prefetch(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """prefetch.tensormap, cp.async.bulk.prefetch.tensor: hints without effect on values."""
    return DEFAULT


@compiled
def bulk_commit(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """cp.async.bulk.commit_group: per thread."""
    for lane in range(32):
        if (m >> lane) & 1:
            W.bulk_group[lane] += 1
    return DEFAULT


@compiled
def pending(S: Any, W: Any, m: int, newest: int, reading: int) -> bool:
    """Whether a thread of `m` has an older bulk group than its `newest` ones that is not done (or not read)."""
    jobs = jobs_of(S.job_at, JOBS)
    for k in range(JOBS):
        j = jobs[k]
        if j.state < STORE_READING or j.state >= STORE_DONE or j.warp != W.slot or not (m >> j.lane) & 1:
            continue
        if j.group < W.bulk_group[j.lane] - newest and (not reading or j.state == STORE_READING):
            return True
    return False


@compiled
def bulk_wait(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """cp.async.bulk.wait_group{.read} N."""
    if m == 0 or not pending(S, W, m, I.imm & 0xFFFFFFFF, (I.imm >> 32) & 1):
        W.dep_ready = t + I.latency
        return DEFAULT
    park(S, W, BLOCK_BULK_WAIT, R_LONG, t)
    W.wait_mask = m
    W.wait_aux = I.imm
    return PARK


# ---- advance ---------------------------------------------------------------------------------------


@compiled
def finish(S: Any, C: Any, k: int, t: int) -> None:
    """Take the next step of a job that is due."""
    j = jobs_of(S.job_at, JOBS)[k]
    W = warps_of(S.warp_at, WARP_SLOTS)[j.warp]
    if j.state == SEND_READING:
        stage_box(S, W, k)
        if j.own:
            j.state, j.staged, j.smem = LOAD, 1, j.target
        else:
            j.state = SENT
            ask(S, C, ASK_SEND, k, t)
    elif j.state == SENT or (j.state == LOAD and not j.own):
        j.state = FREE
        S.jobs -= 1
    elif j.state == LOAD:
        if j.staged:
            deliver(S, k)
        else:
            read_box(S, W, k)
        if j.signal:
            tell_partner(S, C, W, j, t)
        elif not ld8(S.live_at + j.mbar):
            fault(S, W, F_TMA_MBAR, j.lane, (j.mbar << 3) - W.smem_base, 0)
        else:
            record(S, W, E_BYTES, j.pc, (j.mbar << 3) - W.smem_base, j.bytes, t)
            complete_tx(S, C, W, j.mbar, j.bytes, t)
        j.state = FREE
        S.jobs -= 1
    elif j.state == STORE_READING:
        stage_box(S, W, k)
        j.state, j.written = STORE_WRITING, 0
        ask(S, C, ASK_COPY_OUT, k, t)
    else:
        j.state = FREE if j.written else STORE_DONE
        S.jobs -= 1
    S.last = t
    if S.fault and S.fault_pc != j.pc:
        S.fault_pc = j.pc
    waits = W.state == LIVE and W.block == BLOCK_BULK_WAIT
    if waits and not pending(S, W, W.wait_mask, W.wait_aux & 0xFFFFFFFF, (W.wait_aux >> 32) & 1):
        wake(S, W, at(S, W, C_OPEN, W.pc, t, t + C.bulk_wake_cy, t + 1))


@compiled
def advance(S: Any, C: Any, t: int) -> int:
    """Finish copies that are due, in order of issue; returns the next cycle of interest."""
    if S.jobs == 0:
        return NEVER
    jobs = jobs_of(S.job_at, JOBS)
    while True:
        due, seq = -1, NEVER
        look = NEVER
        for k in range(JOBS):
            j = jobs[k]
            if j.state == FREE or j.state == STORE_DONE:
                continue
            when = j.read if j.state == STORE_READING or j.state == SEND_READING else j.finish
            when += C.peer_cy + 1 if j.state == SENT else 0  # the receiver has it by then
            if when <= t and j.seq < seq:
                due, seq = k, j.seq
            look = min(look, when)
        if due < 0:
            return int(look)
        if jobs[due].signal and oldest_message(S) > t:
            jobs[due].finish = oldest_message(S)
            continue
        finish(S, C, due, t)
        if S.fault:
            return NEVER
