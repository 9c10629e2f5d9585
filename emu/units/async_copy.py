"""cp.async: copies by threads from global to shared memory (PTX ISA 9.7.9.25.3).

A warp instruction is one entry of the SM's queue, which the L1 serves in order.  Read window and
write moment: its sources are read, and shared memory changes, when it completes, which the chip says; whoever reads
before a wait sees the old data.
cp.async.mbarrier.arrive is an entry behind the copies that it waits for.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.chip_state import ASK_COPY_ASYNC, PENDING, REQUESTS
from emu.compiled import compiled
from emu.raw import chunk16, copy, fill, ld8, ld32, ld64, st64
from emu.stalls import Reason
from emu.state import BLOCK_COPY_QUEUE, BLOCK_COPY_WAIT, COPIES, LIVE, NEVER, WARP_SLOTS
from emu.units.chaos import C_ASYNC, C_COMMIT, at
from emu.units.common import (
    DEFAULT,
    F_GLOBAL_ALIGN,
    F_GLOBAL_RANGE,
    F_MBAR_ARRIVALS,
    F_TMA_MBAR,
    PARK,
    RETRY,
    copies_of,
    event,
    fault,
    get32,
    get64,
    park,
    segment_host,
    signed32,
    wake,
    warps_of,
)
from emu.units.global_memory import ask, lines_of, sectors_of
from emu.units.hazards import H_SIZE, mark, note, wait_for
from emu.units.history import E_ARRIVE, record
from emu.units.mbarrier import cell, settle
from emu.units.mbarrier_word import M20, expected_of, make_word, pending_of, phase_of, tx_of
from emu.units.memory import shared_host, touch
from emu.units.requests import requests_of

R_LONG, R_MIO = int(Reason.LONG_SCOREBOARD), int(Reason.MIO_THROTTLE)


@njit(inline="always")
def signed24(x: int) -> int:
    """Read the low 24 bits as a signed integer."""
    return ((x & 0xFFFFFF) ^ 0x800000) - 0x800000


# ---- issue -----------------------------------------------------------------------------------------


@compiled
def room(S: Any, W: Any, t: int) -> bool:
    """Whether the queue takes one more entry; otherwise the warp retries when the oldest is done."""
    if S.copy_tail - S.copy_head < COPIES:
        return True
    park(S, W, BLOCK_COPY_QUEUE, R_MIO, t)
    return False


@compiled
def enter(S: Any, W: Any, m: int, finish: int) -> None:
    """Complete the entry at the queue's tail: whose it is, and when it is done."""
    E = copies_of(S.copy_at, COPIES)[S.copy_tail & (COPIES - 1)]
    E.warp, E.cta, E.pc, E.mask = W.slot, W.cta, W.pc, m
    E.low, E.high = NEVER, -1
    for lane in range(32):
        E.group[lane] = W.copy_group[lane]
        if (m >> lane) & 1:
            E.low, E.high = min(E.low, W.copy_group[lane]), max(E.high, W.copy_group[lane])
    E.finish = finish if finish == PENDING else at(S, W, C_ASYNC, W.pc, finish, finish, finish)
    S.copy_tail += 1
    event(S, max(E.finish, S.copy_last))


@compiled
def copy_async(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """cp.async: 4, 8 or 16 bytes a lane, of which the first ones are read and the rest are zeros."""
    if m == 0:
        return DEFAULT
    if not room(S, W, t):
        return RETRY
    to, start, size = signed24(I.imm), signed24(I.imm >> 24), 4 << ((I.imm >> 48) & 3)
    ignore = ld_mask(W, I)
    E = copies_of(S.copy_at, COPIES)[S.copy_tail & (COPIES - 1)]
    reading = 0
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        target = shared_host(S, W, lane, get32(W, I.a, lane) + to, size)
        if target == 0:
            return DEFAULT
        count = 0 if (ignore >> lane) & 1 else get32(W, I.c, lane)
        if count > size:
            note(S, W, H_SIZE, lane, count, W.slot, W.pc, 0)
            count = size
        source, address = 0, get64(W, I.b, lane) + start
        if count:
            if address % size != 0:
                fault(S, W, F_GLOBAL_ALIGN, lane, address, size)
                return DEFAULT
            source = segment_host(S, address, count, 0)
            if source <= 0:
                fault(S, W, F_GLOBAL_RANGE, lane, address, count)
                return DEFAULT
            reading |= 1 << lane
        E.target[lane], E.source[lane], E.count[lane] = target, source, count
        mark(S, W, lane, target, size)
    E.size, W.copies = size, 1
    if not reading:
        enter(S, W, m, t + C.copy_latency_cy)
        return DEFAULT
    sectors, lines = sectors_of(W, I.b, start, reading, size), lines_of(W, I.b, start, reading)
    r = requests_of(S.log_at, REQUESTS)[ask(S, C, W, ASK_COPY_ASYNC, reading, size, sectors, lines, t)]
    r.job = S.copy_tail & (COPIES - 1)
    for lane in range(32):
        if (reading >> lane) & 1:
            r.address[lane] = get64(W, I.b, lane) + start
    enter(S, W, m, PENDING)
    return DEFAULT


@njit(inline="always")
def ld_mask(W: Any, I: Any) -> int:
    """The lanes in which the instruction's predicate source holds."""
    mask = ld32(W.pred_at + I.pa * 4)
    return mask ^ 0xFFFFFFFF if I.flip & 2 else mask


@compiled
def copy_commit(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """cp.async.commit_group: per thread.

    Under chaos the warp may go on late, so that copies which it does not wait for are there when it reads.
    """
    W.dep_ready = at(S, W, C_COMMIT, W.pc, t, t, t)
    close_group(W, m)
    return DEFAULT


@compiled
def close_group(W: Any, m: int) -> None:
    """What the lanes copy from now on belongs to their next group."""
    for lane in range(32):
        if (m >> lane) & 1:
            W.copy_group[lane] += 1


@compiled
def waiting(S: Any, W: Any, m: int, newest: int) -> bool:
    """Whether entries of all but the warp's `newest` groups are not done yet."""
    low, high = NEVER, -NEVER
    for lane in range(32):
        if (m >> lane) & 1:
            low, high = min(low, W.copy_group[lane] - newest), max(high, W.copy_group[lane] - newest)
    entries = copies_of(S.copy_at, COPIES)
    for k in range(S.copy_head, S.copy_tail):
        E = entries[k & (COPIES - 1)]
        if E.warp != W.slot or E.arrive or E.low >= high or not E.mask & m:
            continue
        if E.high < low:
            return True
        for lane in range(32):
            if ((E.mask & m) >> lane) & 1 and E.group[lane] < W.copy_group[lane] - newest:
                return True
    return False


@compiled
def copy_wait(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """cp.async.wait_group N: until the entries of all but the N newest groups are done.  wait_all closes a group and waits for all."""
    newest = I.imm & 0xFFFFFFFF
    if (I.imm >> 32) & 1:
        close_group(W, m)
    wait_for(W, m, newest)
    W.dep_ready = t + I.latency
    if m == 0 or not waiting(S, W, m, newest):
        return DEFAULT
    park(S, W, BLOCK_COPY_WAIT, R_LONG, t)
    W.wait_mask, W.wait_aux = m, newest
    return PARK


@compiled
def copy_arrive(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """cp.async.mbarrier.arrive: an arrival of each lane behind its copies; counted beforehand without .noinc."""
    if m == 0:
        return DEFAULT
    if not room(S, W, t):
        return RETRY
    E = copies_of(S.copy_at, COPIES)[S.copy_tail & (COPIES - 1)]
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        k = cell(S, W, lane, get32(W, I.a, lane) + signed32(I.imm), 1)
        if k < 0:
            return DEFAULT
        if not (I.imm >> 32) & 1:
            word = ld64(S.mbar_at + k * 8)
            if pending_of(word) == M20:
                fault(S, W, F_MBAR_ARRIVALS, lane, (k << 3) - W.smem_base, 1)
                return DEFAULT
            word = make_word(expected_of(word), tx_of(word), pending_of(word) + 1, phase_of(word))
            st64(S.mbar_at + k * 8, word)
        E.target[lane] = k
    E.arrive = 1
    enter(S, W, m, t + C.mbar_arrive_cy)
    return DEFAULT


# ---- advance ---------------------------------------------------------------------------------------


@compiled
def arrive(S: Any, C: Any, E: Any, t: int) -> None:
    """The arrivals of an entry whose copies are done."""
    W = warps_of(S.warp_at, WARP_SLOTS)[E.warp]
    for lane in range(32):
        if not (E.mask >> lane) & 1:
            continue
        k = E.target[lane]
        word = ld64(S.mbar_at + k * 8)
        if not ld8(S.live_at + k):
            fault(S, W, F_TMA_MBAR, lane, (k << 3) - W.smem_base, 0)
        elif pending_of(word) == 0:
            fault(S, W, F_MBAR_ARRIVALS, lane, (k << 3) - W.smem_base, 1)
        else:
            left = make_word(expected_of(word), tx_of(word), pending_of(word) - 1, phase_of(word))
            W.copy_waited[lane] = max(W.copy_waited[lane], E.group[lane] + 1)
            record(S, W, E_ARRIVE, E.pc, (k << 3) - W.smem_base, 1, t)
            settle(S, C, W, k, left, t)
        if S.fault:
            S.fault_pc = E.pc
            return


@compiled
def land(S: Any, E: Any) -> None:
    """Write an entry's bytes and zeros to shared memory."""
    for lane in range(32):
        if not (E.mask >> lane) & 1:
            continue
        target, count = E.target[lane], E.count[lane]
        if count == 16:
            chunk16(target, E.source[lane])
        else:
            copy(target, E.source[lane], count)
            fill(target + count, E.size - count)
        touch(S, target, E.size)


@compiled
def release(S: Any, C: Any, owner: int, t: int) -> None:
    """After an entry: its warp may have nothing to wait for any more, and the queue has room."""
    warps = warps_of(S.warp_at, WARP_SLOTS)
    for k in range(WARP_SLOTS):
        W = warps[k]
        if W.state != LIVE:
            continue
        if W.block == BLOCK_COPY_QUEUE:
            wake(S, W, t + 1)
        elif k == owner and W.block == BLOCK_COPY_WAIT and not waiting(S, W, W.wait_mask, W.wait_aux):
            wake(S, W, t + C.copy_wake_cy)


@compiled
def advance(S: Any, C: Any, t: int) -> int:
    """Complete the entries that are due; returns the next cycle of interest."""
    entries = copies_of(S.copy_at, COPIES)
    while S.copy_head < S.copy_tail:
        E = entries[S.copy_head & (COPIES - 1)]
        due = max(E.finish, S.copy_last)
        if due > t:
            return int(due)
        S.copy_head += 1
        S.copy_last, S.last = due, t
        if E.arrive:
            E.arrive = 0
            arrive(S, C, E, t)
            if S.fault:
                return NEVER
        else:
            land(S, E)
        release(S, C, E.warp, t)
    return NEVER
