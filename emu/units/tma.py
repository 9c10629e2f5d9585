"""Bulk tensor copies and bulk groups (PTX ISA 9.7.9.25.5, 9.7.9.25.6; rules 6 and 7 of the measurements).

A load is queued at issue, served in order at the copy engine's rate, and takes effect at completion:
the whole box is read from global memory and written to shared memory, then the mbarrier is told the
full box's bytes (also when parts lie outside the tensor).  A store reads shared memory at the end of
its read window, and global memory changes at completion.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.raw import chunk16, copy, ld8, ld16, ld32, ld64, st8, st64
from emu.stalls import Reason
from emu.state import (
    BLOCK_BULK_QUEUE,
    BLOCK_BULK_WAIT,
    FREE,
    JOBS,
    LIVE,
    LOAD,
    NEVER,
    STORE_READING,
    STORE_WRITING,
    WARP_SLOTS,
)
from emu.units.common import (
    DEFAULT,
    F_GLOBAL_RANGE,
    F_READ_ONLY,
    F_SHARED_RANGE,
    F_TMA_ALIGN,
    F_TMA_MBAR,
    F_TMAP,
    F_TMAP_RANK,
    PARK,
    RETRY,
    event,
    fault,
    get32,
    get64,
    jobs_of,
    park,
    segment_host,
    signed32,
    tmaps_of,
    wake,
    warps_of,
)
from emu.units.mbarrier import cell, complete_tx
from emu.units.memory import LINE, first_touch, touch

R_LONG, R_MIO = int(Reason.LONG_SCOREBOARD), int(Reason.MIO_THROTTLE)
ELEMENT_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4)  # by PTX element code (ISA 9.7.9.28)


@compiled
def decode(S: Any, W: Any, lane: int, address: int, T: Any) -> bool:
    """Decode the 128 bytes of a tensor map (layout: programs.tensormap); False after a fault."""
    host = segment_host(S, address, 128, 0)
    if host <= 0 or address & 63:
        fault(S, W, F_TMAP, lane, address, 0)
        return False
    code = ld8(host + 9)
    if code >= len(ELEMENT_BYTES) or ld8(host + 10) or ld8(host + 11) > 3 or ld8(host + 12) or ld8(host + 8) > 4:
        fault(S, W, F_TMAP, lane, address, code)
        return False
    T.base = ld64(host)
    T.rank = ld8(host + 8) + 1
    T.elem = ELEMENT_BYTES[code]
    T.etype = code
    swizzle = ld8(host + 11)
    T.swizzle = 0 if swizzle == 0 else 16 << swizzle
    T.fill_nan = ld8(host + 13)
    T.strides[0] = T.elem
    for d in range(5):
        used = d < T.rank
        T.dims[d] = ld32(host + 16 + 4 * d) if used else 1
        T.box[d] = ld32(host + 36 + 4 * d) if used else 1
        T.estride[d] = max(ld32(host + 56 + 4 * d), 1) if used and d else 1  # dimension 0: ignored (driver API)
        if d:
            T.strides[d] = ld64(host + 80 + 8 * (d - 1)) if used else 0
        if used and (T.box[0] * T.elem % 16 or T.base & 15 or T.box[d] < 1 or T.box[d] > 256 or T.dims[d] < 1):
            fault(S, W, F_TMAP, lane, address, d)
            return False
    return True


@njit(inline="always")
def inner_count(T: Any) -> int:
    """Elements of an inner row that a copy moves."""
    return (T.box[0] + T.estride[0] - 1) // T.estride[0]


@njit(inline="always")
def pitch_of(T: Any) -> int:
    """Bytes between rows in shared memory: a box narrower than the swizzle keeps its width (H200)."""
    row = inner_count(T) * T.elem
    return max(row, T.swizzle)


@njit(inline="always")
def outer_rows(T: Any) -> int:
    """Inner rows of a box."""
    rows = 1
    for d in range(1, T.rank):
        rows *= (T.box[d] + T.estride[d] - 1) // T.estride[d]
    return rows


@njit(inline="always")
def swizzled(address: int, swizzle: int) -> int:
    """XOR the 16-byte chunk number with the line number inside the pattern (ptx: 32B, 64B, 128B modes)."""
    if swizzle == 0:
        return address
    mask = (swizzle >> 4) - 1
    return address ^ (((address >> 7) & mask) << 4)


# ---- issue -----------------------------------------------------------------------------------------


@compiled
def room(S: Any, C: Any, W: Any, t: int, lanes: int) -> bool:
    """Whether `lanes` more copies fit; otherwise the warp retries when the oldest has been served."""
    jobs = jobs_of(S.job_at, JOBS)
    waiting, soonest, used = 0, NEVER, 0
    for k in range(JOBS):
        j = jobs[k]
        if j.state != FREE:
            used += 1
            if j.serve > t:
                waiting += 1
                soonest = min(soonest, j.serve)
            elif used + lanes > JOBS:
                soonest = min(soonest, max(j.finish, t + 1))
    if waiting + 1 <= C.tma_queue and used + lanes <= JOBS:
        return True
    park(S, W, BLOCK_BULK_QUEUE, R_MIO, t)
    st64(S.ready_at + W.slot8, max(soonest, t + 1))
    return False


@compiled
def free_job(S: Any) -> int:
    """A free job (room() has made sure of it)."""
    jobs = jobs_of(S.job_at, JOBS)
    for k in range(JOBS):
        if jobs[k].state == FREE:
            return k
    return 0


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
    j.warp, j.lane, j.cta, j.pc = W.slot, lane, W.cta, W.pc
    j.group = W.bulk_group[lane]
    offset = get32(W, I.b, lane)
    if offset % (128 if T.swizzle else 16) != 0:
        fault(S, W, F_TMA_ALIGN, lane, offset, T.swizzle)
        return -1
    j.bytes = inner_count(T) * T.elem * outer_rows(T)
    if offset + outer_rows(T) * pitch_of(T) > S.smem_per_cta:
        fault(S, W, F_SHARED_RANGE, lane, offset, outer_rows(T) * pitch_of(T))
        return -1
    j.smem = W.smem_base + offset
    S.job_seq += 1
    j.seq = S.job_seq
    return k


@compiled
def missing_bytes(S: Any, k: int) -> int:
    """Bytes of a load that have not been read before in this launch (they come from HBM)."""
    j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
    lines = 0
    first, count = inner_range(j, T)
    for row in range(outer_rows(T)):
        address, inside = source_row(j, T, row)
        if inside and count > 0:
            start = address + first * T.elem * T.estride[0]
            for line in range(start // LINE, (start + count * T.elem * T.estride[0] + LINE - 1) // LINE):
                lines += first_touch(S, line * LINE)
    return lines * LINE


@compiled
def tma_load(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """cp.async.bulk.tensor to shared memory; each active lane issues its own copy."""
    if m == 0:
        return DEFAULT
    lanes = 0
    for lane in range(32):
        lanes += (m >> lane) & 1
    if not room(S, C, W, t, lanes):
        return RETRY
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        k = claim(S, W, I, lane)
        if k < 0:
            return DEFAULT
        j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
        j.mbar = cell(S, W, lane, get32(W, I.c, lane), 1)
        if j.mbar < 0:
            return DEFAULT
        j.state = LOAD
        S.jobs += 1
        service = max(j.bytes * C.tma_kb_cy256 >> 10, outer_rows(T) * C.tma_row_cy256)
        missing = missing_bytes(S, k)
        latency = C.tma_latency_cy
        begin = max((t + C.tma_issue_cy) << 8, S.tma_free)
        if missing:
            S.hbm_free = max(t << 8, S.hbm_free) + (missing * C.hbm_kb_cy256 >> 10)
            begin = max(begin, S.hbm_free - service)
            latency += C.tma_hbm_cy
            S.hbm_bytes += missing
        S.tma_free = begin + service
        S.tma_bytes += j.bytes
        j.serve = S.tma_free >> 8
        j.finish = j.serve + latency
        j.read = j.finish
        S.tma_until = max(S.tma_until, j.finish)
        event(S, j.finish)
    return DEFAULT


@compiled
def tma_store(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """cp.async.bulk.tensor from shared memory, part of the lane's open bulk group."""
    if m == 0:
        return DEFAULT
    lanes = 0
    for lane in range(32):
        lanes += (m >> lane) & 1
    if not room(S, C, W, t, lanes):
        return RETRY
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        k = claim(S, W, I, lane)
        if k < 0:
            return DEFAULT
        j = jobs_of(S.job_at, JOBS)[k]
        j.state = STORE_READING
        S.jobs += 1
        begin = max((t + C.tma_issue_cy) << 8, S.store_free)
        S.store_free = begin + (j.bytes * C.store_kb_cy256 >> 10)
        S.store_bytes += j.bytes
        j.serve = S.store_free >> 8
        j.read = j.serve + C.store_read_cy
        j.finish = j.read + C.store_write_cy
        event(S, j.read)
    return DEFAULT


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
        if j.state >= STORE_READING and j.warp == W.slot and (m >> j.lane) & 1:
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
def source_row(j: Any, T: Any, row: int) -> tuple[int, bool]:
    """Global address of an inner row's first element, and whether the row lies inside dimensions 1 and up."""
    address = T.base + j.coords[0] * T.elem
    inside = True
    rest = row
    for d in range(1, T.rank):
        c = j.coords[d]
        if rest:
            n = (T.box[d] + T.estride[d] - 1) // T.estride[d]
            c += (rest % n) * T.estride[d]
            rest //= n
        inside = inside and c >= 0 and c < T.dims[d]
        address += c * T.strides[d]
    return address, inside


@compiled
def inner_range(j: Any, T: Any) -> tuple[int, int]:
    """Which elements (first, count) of every inner row lie inside dimension 0."""
    step, c0 = T.estride[0], j.coords[0]
    first = 0 if c0 >= 0 else (-c0 + step - 1) // step
    last = inner_count(T)
    if c0 + (last - 1) * step >= T.dims[0]:
        last = (T.dims[0] - c0 + step - 1) // step if T.dims[0] > c0 else 0
    return first, max(last - first, 0)


@compiled
def next_row(j: Any, T: Any, row: int, address: int, inside: bool) -> tuple[int, bool]:
    """`source_row` of the row behind `row`: a step in dimension 1 while that lasts."""
    n = (T.box[1] + T.estride[1] - 1) // T.estride[1] if T.estride[1] > 1 else T.box[1]
    k = row % n if row >= n else row
    if k + 1 == n or not inside:
        return source_row(j, T, row + 1)
    c = j.coords[1] + (k + 1) * T.estride[1]
    return address + T.estride[1] * T.strides[1], c < T.dims[1]


@compiled
def read_box(S: Any, W: Any, k: int) -> None:
    """Copy a box from global to shared memory with swizzle and out-of-bounds fill."""
    j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
    row_bytes, pitch, step = inner_count(T) * T.elem, pitch_of(T), T.estride[0]
    base, window = j.smem - W.smem_base, S.smem_at + W.smem_base
    first, count = inner_range(j, T)
    low, high, whole = first * T.elem, (first + count) * T.elem, step == 1
    address, inside = source_row(j, T, 0)
    rows = outer_rows(T)
    for row in range(rows):
        host = 0
        if inside and count > 0:
            start = address + first * T.elem * step
            host = segment_host(S, start, ((count - 1) * step + 1) * T.elem, 0)
            if host <= 0:
                fault(S, W, F_GLOBAL_RANGE, j.lane, start, count * T.elem)
                return
        if host and whole and low == 0 and high == row_bytes and row_bytes & 15 == 0:
            copy_row(window, base + row * pitch, host, row_bytes, T.swizzle)
        else:
            partial_row(T, window, base + row * pitch, host, row_bytes, low, high if host else low)
        if row + 1 < rows:
            address, inside = next_row(j, T, row, address, inside)
    touch(S, window + base, rows * pitch)


@compiled
def copy_row(window: int, at_row: int, host: int, row_bytes: int, swizzle: int) -> None:
    """Copy a whole inner row, 16 bytes at a time."""
    for at in range(0, row_bytes, 16):
        chunk16(window + swizzled(at_row + at, swizzle), host + at)


@compiled
def partial_row(T: Any, window: int, at_row: int, host: int, row_bytes: int, low: int, high: int) -> None:
    """Write an inner row of which only bytes [low, high) come from the tensor."""
    for at in range(0, row_bytes, 16):
        target = window + swizzled(at_row + at, T.swizzle)
        if host and T.estride[0] == 1 and at >= low and at + 16 <= high:
            chunk16(target, host + at - low)
        else:
            partial_chunk(T, target, host, at, row_bytes, low, high)


@compiled
def partial_chunk(T: Any, target: int, host: int, at: int, row_bytes: int, low: int, high: int) -> None:
    """Write up to 16 bytes of a row of which only [low, high) comes from the tensor."""
    for b in range(min(16, row_bytes - at)):
        x = at + b
        if x >= low and x < high:
            element = (x - low) // T.elem
            st8(target + b, ld8(host + element * T.elem * T.estride[0] + (x % T.elem)))
        else:
            st8(target + b, fill_byte(T, x % T.elem))


@njit(inline="always")
def fill_byte(T: Any, b: int) -> int:
    """A byte of the out-of-bounds value: zero, or the all-ones NaN with a clear sign bit."""
    if not T.fill_nan:
        return 0
    return 0x7F if b == T.elem - 1 else 0xFF


@compiled
def stage_box(S: Any, W: Any, k: int) -> None:
    """Read a store's source out of shared memory (end of its read window)."""
    j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
    row_bytes, pitch = inner_count(T) * T.elem, pitch_of(T)
    window, base = S.smem_at + W.smem_base, j.smem - W.smem_base
    for row in range(outer_rows(T)):
        for at in range(0, row_bytes, 16):
            source = window + swizzled(base + row * pitch + at, T.swizzle)
            copy(j.staging_at + row * row_bytes + at, source, min(16, row_bytes - at))


@compiled
def write_box(S: Any, W: Any, k: int) -> None:
    """Write a staged box to global memory; elements outside the tensor are dropped."""
    j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
    row_bytes = inner_count(T) * T.elem
    first, count = inner_range(j, T)
    for row in range(outer_rows(T)):
        address, inside = source_row(j, T, row)
        if not inside or count <= 0:
            continue
        start = address + first * T.elem * T.estride[0]
        host = segment_host(S, start, ((count - 1) * T.estride[0] + 1) * T.elem, 1)
        if host <= 0:
            fault(S, W, F_READ_ONLY if host < 0 else F_GLOBAL_RANGE, j.lane, start, count * T.elem)
            return
        source = j.staging_at + row * row_bytes + first * T.elem
        for e in range(count):
            if T.estride[0] == 1:
                copy(host, source, count * T.elem)
                break
            copy(host + e * T.estride[0] * T.elem, source + e * T.elem, T.elem)


@compiled
def finish(S: Any, C: Any, k: int, t: int) -> None:
    """Take the next step of a job that is due."""
    j = jobs_of(S.job_at, JOBS)[k]
    W = warps_of(S.warp_at, WARP_SLOTS)[j.warp]
    if j.state == LOAD:
        read_box(S, W, k)
        if not ld8(S.live_at + j.mbar):
            fault(S, W, F_TMA_MBAR, j.lane, (j.mbar << 3) - W.smem_base, 0)
        else:
            complete_tx(S, C, W, j.mbar, j.bytes, t)
        j.state = FREE
        S.jobs -= 1
    elif j.state == STORE_READING:
        stage_box(S, W, k)
        j.state = STORE_WRITING
    else:
        write_box(S, W, k)
        j.state = FREE
        S.jobs -= 1
    if S.fault and S.fault_pc != j.pc:
        S.fault_pc = j.pc
    if W.state == LIVE and W.block == BLOCK_BULK_WAIT:
        if not pending(S, W, W.wait_mask, W.wait_aux & 0xFFFFFFFF, (W.wait_aux >> 32) & 1):
            wake(S, W, t + C.bulk_wake_cy)


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
            if j.state == FREE:
                continue
            when = j.read if j.state == STORE_READING else j.finish
            if when <= t and j.seq < seq:
                due, seq = k, j.seq
            look = min(look, when)
        if due < 0:
            return int(look)
        finish(S, C, due, t)
        if S.fault:
            return NEVER

