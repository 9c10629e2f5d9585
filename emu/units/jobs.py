"""Jobs of the copy engine: what every bulk copy does at issue, with a tensor map (`emu.units.tma`) or without (`emu.units.bulk`)."""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.chip_state import ASK_COPY_IN, PENDING, REQUESTS
from emu.compiled import compiled
from emu.copy_state import LOAD, STORE_READING
from emu.raw import st64
from emu.stalls import Reason
from emu.state import BLOCK_BULK_QUEUE, FREE, JOBS, NEVER
from emu.units.boxes import outer_rows
from emu.units.chaos import C_STORE, at
from emu.units.common import F_COPY_RANKS, event, fault, jobs_of, park, tmaps_of
from emu.units.history import E_COPY, record
from emu.units.mbarrier import cell
from emu.units.peers import OFFSET, note_copy, one_place, rank_in
from emu.units.requests import request, requests_of

R_MIO = int(Reason.MIO_THROTTLE)


@compiled
def room(S: Any, C: Any, W: Any, t: int, m: int) -> bool:
    """Whether a copy for every lane of `m` fits; otherwise the warp retries when the oldest has been served."""
    jobs = jobs_of(S.job_at, JOBS)
    lanes = 0
    for lane in range(32):
        lanes += (m >> lane) & 1
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


@njit(inline="always")
def enroll(S: Any, W: Any, j: Any, lane: int) -> None:
    """Fill in whose job it is; plain bytes unless more is said."""
    j.warp, j.lane, j.cta, j.pc = W.slot, lane, W.cta, W.pc
    j.group = W.bulk_group[lane]
    j.code, j.staged, j.ranks, j.own, j.signal = 0, 0, 0, 1, 0
    S.job_seq += 1
    j.seq = S.job_seq


@njit(inline="always")
def place_of(S: Any, W: Any, address: int) -> int:
    """The place in its CTA's shared memory of an address, which may name another CTA."""
    return address & OFFSET if S.peers else (address - W.window) & 0xFFFFFFFF


@compiled
def addressed(S: Any, W: Any, j: Any, lane: int, target: int, mbar: int, multicast: int, mask: int) -> bool:
    """Fill in which CTAs get the data of a load and its signal, and where its mbarrier lies; False after a fault."""
    if not S.peers:
        if multicast and mask & ~1:
            fault(S, W, F_COPY_RANKS, lane, mask, 1)
            return False
        j.own = 1 if not multicast else mask & 1
    else:
        if not multicast:
            rank = one_place(S, W, lane, target, mbar)
            if rank < 0:
                return False
            mask = 1 << rank
        elif mask >> S.peers:
            fault(S, W, F_COPY_RANKS, lane, mask, S.peers)
            return False
        me = rank_in(W.window)
        j.own, j.ranks = (mask >> me) & 1, mask & ~(1 << me)
    where = place_of(S, W, mbar)
    j.mbar = cell(S, W, lane, where + W.window, j.own)
    return j.mbar >= 0


@compiled
def note_ranks(S: Any, W: Any, j: Any, t: int) -> None:
    """The sender's record of a copy to other CTAs."""
    for rank in range(S.peers):
        if (j.ranks >> rank) & 1:
            note_copy(S, W, rank, (j.mbar << 3) - W.smem_base, j.bytes, t)


@compiled
def service_of(C: Any, j: Any, T: Any) -> int:
    """How long a load occupies the port into an SM, in cycles * 256."""
    return int(max(j.bytes * C.tma_kb_cy256 >> 10, outer_rows(T) * C.tma_row_cy256))


@compiled
def start_load(S: Any, C: Any, W: Any, k: int, t: int) -> None:
    """Queue a load at the copy engine."""
    j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
    j.state = LOAD
    S.jobs += 1
    S.tma_free = max(t << 8, S.tma_free) + service_of(C, j, T)
    S.tma_bytes += j.bytes
    j.serve = S.tma_free >> 8
    if j.signal:
        note_copy(S, W, j.signal - 1, (j.mbar << 3) - W.smem_base, j.bytes, t)
    elif j.own:
        record(S, W, E_COPY, W.pc, (j.mbar << 3) - W.smem_base, j.bytes, t)
    if j.ranks:
        note_ranks(S, W, j, t)
    j.finish, j.read = PENDING, PENDING
    S.tma_until = max(S.tma_until, j.serve + C.tma_latency_cy)
    ask(S, C, ASK_COPY_IN, k, t)


@compiled
def start_store(S: Any, C: Any, W: Any, k: int, t: int) -> None:
    """Queue a store at the copy engine."""
    j = jobs_of(S.job_at, JOBS)[k]
    j.state = STORE_READING
    S.jobs += 1
    begin = max(t << 8, S.store_free)
    S.store_free = begin + (j.bytes * C.store_kb_cy256 >> 10)
    S.store_bytes += j.bytes
    j.serve = S.store_free >> 8
    j.read = at(S, W, C_STORE, W.pc, t, j.serve + C.store_read_cy, t + 1)
    j.finish = at(S, W, C_STORE, W.pc, t, j.read + C.store_write_cy, j.read + 1)
    event(S, j.read)


@compiled
def ask(S: Any, C: Any, kind: int, k: int, t: int) -> None:
    """Ask the chip for the data of a load, or to write those of a store."""
    requests_of(S.log_at, REQUESTS)[request(S, C, kind, t)].job = k
