"""Tensor Memory: 128 lanes of 512 columns of 32 bits, allocated to CTAs by columns (PTX ISA 9.7.16.1).

`S.tmem_at` is uint32 [columns][128]: the 128 lanes of a column are neighbours, so that a quarter of a column, which is
what one warp may touch, is a register row.  Addresses are those of PTX: lane << 16 | column.

Loads and stores of a sub-partition go through its quarter's port in order.  Read window and write moment: a load
reads the cells when it completes; a store reads its registers at issue and writes the cells when it completes.  So a load
that does not wait for a product, or a product that does not wait for a store, finds what was there before.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.chip_state import ASK_FREE, ASK_TMEM, REQUESTS
from emu.compiled import compiled
from emu.raw import copy, ld16, st32, st64
from emu.stalls import Reason
from emu.state import (
    BLOCK_TMEM_ALLOC,
    BLOCK_TMEM_QUEUE,
    LIVE,
    NEVER,
    SUBPARTITIONS,
    TMEM_LANES,
    TMEM_RING,
    TMEM_RINGS,
    WARP_SLOTS,
)
from emu.tmem_state import TMEM_STAGE
from emu.units.chaos import C_ASYNC, at
from emu.units.common import (
    DEFAULT,
    F_PAIR,
    F_TMEM_ADDRESS,
    F_TMEM_BUSY,
    F_TMEM_COLUMNS,
    F_TMEM_FREE,
    F_TMEM_LANES,
    F_TMEM_PERMIT,
    F_TMEM_RANGE,
    F_TMEM_SIZE,
    RETRY,
    ctas_of,
    event,
    fault,
    first_lane,
    get32,
    moves_of,
    park,
    signed32,
    together,
    wake,
    warps_of,
)
from emu.units.hazards import check_products
from emu.units.history import E_DEALLOC, record
from emu.units.memory import FULL, shared_host, touch
from emu.units.requests import request, requests_of
from emu.units.tmem_layout import beats, cell, column_of, lane_of, read, shape_of, split_of, width_of, write
from isa.ops.tcgen05 import PAIR

LEAVING = -1  # owner of columns that a CTA of a pair has given back, until the chip has seen it
R_LONG, R_MATH = int(Reason.LONG_SCOREBOARD), int(Reason.MATH_PIPE_THROTTLE)

# ---- owners --------------------------------------------------------------------------------------


@compiled
def foreign(S: Any, C: Any, cta: int, column: int, width: int) -> int:
    """The first of `width` columns from `column` on (in range) that a CTA slot does not own; -1 when it owns them all."""
    for k in range(column // C.tmem_unit, (column + width - 1) // C.tmem_unit + 1):
        if S.tmem_owner[k] != cta + 1:
            return max(column, k * C.tmem_unit)
    return -1


@compiled
def reachable(S: Any, C: Any, W: Any, taddr: int, lanes: int, width: int) -> bool:
    """Whether `lanes` x `width` cells from an address on exist and belong to the warp's CTA; a fault otherwise."""
    lane, column = lane_of(taddr), column_of(taddr)
    if lane + lanes > TMEM_LANES or column + width > C.tmem_columns:
        fault(S, W, F_TMEM_RANGE, 0, taddr, width)
        return False
    missing = foreign(S, C, W.cta, column, width)
    if missing >= 0:
        fault(S, W, F_TMEM_COLUMNS, 0, taddr, missing)
        return False
    return True


# ---- allocation ----------------------------------------------------------------------------------


@compiled
def tmem_alloc(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """tcgen05.alloc: look for free columns when the time of the way there is over, and at every retry after that."""
    if m == 0 or not together(S, W, m, FULL):
        return DEFAULT
    lane = first_lane(m)
    columns = get32(W, I.b, lane)
    host = shared_host(S, W, lane, get32(W, I.a, lane) + signed32(I.imm), 4)
    if host == 0:
        return DEFAULT
    if columns < C.tmem_unit or columns > C.tmem_columns or columns & (columns - 1):
        fault(S, W, F_TMEM_SIZE, lane, 0, columns)
        return DEFAULT
    if ctas_of(S.cta_at, S.cta_slots)[W.cta].tmem_closed:
        fault(S, W, F_TMEM_PERMIT, lane, 0, 0)
        return DEFAULT
    if I.imm & PAIR:
        return pair_alloc(S, C, W, lane, columns, host, t)
    if W.tmem_due == 0:
        W.tmem_due = t + C.tmem_alloc_cy
        park(S, W, BLOCK_TMEM_ALLOC, R_LONG, t)
        wake(S, W, W.tmem_due)
        return RETRY
    first = find(S, C, columns // C.tmem_unit)
    if first < 0:
        park(S, W, BLOCK_TMEM_ALLOC, R_LONG, t)  # asleep until somebody frees columns: polls in between find nothing
        W.wait_aux = columns
        S.tmem_parked += 1
        return RETRY
    for k in range(first, first + columns // C.tmem_unit):
        S.tmem_owner[k] = W.cta + 1
    S.tmem_size[first], S.tmem_pc[first], W.tmem_due = columns, W.pc, 0
    start = cell(S, 0, first * C.tmem_unit)
    for k in range(0, columns * TMEM_LANES * 4, 8):  # what is there is undefined: NaN shows whoever reads it
        st64(start + k, -1)
    st32(host, first * C.tmem_unit)
    touch(S, host, 4)
    return DEFAULT


@compiled
def pair_alloc(S: Any, C: Any, W: Any, lane: int, columns: int, host: int, t: int) -> int:
    """tcgen05.alloc of a pair of CTAs: the chip gives both the same columns when both have asked (emu.units.pairs)."""
    if S.peers % 2 or not S.peers:
        fault(S, W, F_PAIR, lane, 0, max(S.peers, 1))
        return DEFAULT
    if W.tmem_due < 0:
        st32(host, (-1 - W.tmem_due) * C.tmem_unit)
        touch(S, host, 4)
        W.tmem_due = 0
        return DEFAULT
    park(S, W, BLOCK_TMEM_ALLOC, R_LONG, t)
    W.wait_aux = columns
    if W.tmem_due == 0:
        W.tmem_due = t + C.tmem_alloc_cy
        r = requests_of(S.log_at, REQUESTS)[request(S, C, ASK_TMEM, t)]
        r.warp, r.pc, r.job, r.width = W.slot, W.pc, W.cta, columns
    return RETRY


@compiled
def find(S: Any, C: Any, parts: int) -> int:
    """The first free place for an allocation, aligned to its size, or -1 (SASS: UTCATOMSWS.FIND_AND_SET.ALIGN)."""
    for first in range(0, C.tmem_columns // C.tmem_unit, parts):
        free = True
        for k in range(first, first + parts):
            if S.tmem_owner[k]:
                free = False
        if free:
            return first
    return -1


@compiled
def tmem_dealloc(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """tcgen05.dealloc: what one alloc gave is free again, and warps that wait for columns look at their next retry."""
    if m == 0 or not together(S, W, m, FULL):
        return DEFAULT
    lane = first_lane(m)
    taddr, columns = get32(W, I.a, lane), get32(W, I.b, lane)
    first = taddr // C.tmem_unit
    if (
        taddr % C.tmem_unit
        or taddr >= C.tmem_columns
        or S.tmem_owner[first] != W.cta + 1
        or S.tmem_size[first] != columns
    ):
        fault(S, W, F_TMEM_FREE, lane, taddr, columns)
        return DEFAULT
    user = using(S, W.cta, taddr, columns)
    if user >= 0:
        fault(S, W, F_TMEM_BUSY, lane, taddr, user)
        return DEFAULT
    record(S, W, E_DEALLOC, W.pc, taddr, columns, t)
    S.tmem_size[first] = 0
    for k in range(first, first + columns // C.tmem_unit):
        S.tmem_owner[k] = LEAVING if I.imm & PAIR else 0
    if I.imm & PAIR:
        r = requests_of(S.log_at, REQUESTS)[request(S, C, ASK_FREE, t)]
        r.warp, r.pc, r.first, r.width = W.slot, W.pc, first, columns // C.tmem_unit
    if S.tmem_parked:
        retry(S, C, t)
    return DEFAULT


@compiled
def retry(S: Any, C: Any, t: int) -> None:
    """Let the warps that wait for columns look again, each when its sleep ends."""
    warps = warps_of(S.warp_at, WARP_SLOTS)
    for k in range(WARP_SLOTS):
        W = warps[k]
        if W.state == LIVE and W.block == BLOCK_TMEM_ALLOC:
            slept = t + 1 - W.tmem_due
            wake(S, W, W.tmem_due + (slept + C.tmem_retry_cy - 1) // C.tmem_retry_cy * C.tmem_retry_cy)
    S.tmem_parked = 0


@compiled
def using(S: Any, cta: int, column: int, columns: int) -> int:
    """A warp of a CTA whose load or store of some of these columns is in flight, -1: none is."""
    moves = moves_of(S.tmem_move_at, TMEM_RINGS * TMEM_RING)
    warps = warps_of(S.warp_at, WARP_SLOTS)
    for ring in range(TMEM_RINGS):
        for k in range(S.tmem_head[ring], S.tmem_tail[ring]):
            E = moves[ring * TMEM_RING + (k & (TMEM_RING - 1))]
            at = column_of(E.taddr)
            if E.cta == cta and at < column + columns and at + width_of(E.word, E.count) > column:
                return int(warps[E.warp].index)
    return -1


@compiled
def tmem_relinquish(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """tcgen05.relinquish_alloc_permit."""
    if m and together(S, W, m, FULL):
        ctas_of(S.cta_at, S.cta_slots)[W.cta].tmem_closed = 1
    return DEFAULT


# ---- loads and stores ----------------------------------------------------------------------------


@compiled
def address(S: Any, C: Any, W: Any, I: Any, m: int, count: int) -> int:
    """The Tensor Memory address of a load or store that its warp may touch; -1 after a fault."""
    first = first_lane(m)
    base, word = get32(W, I.a, first), I.imm
    for lane in range(first + 1, 32):
        if (m >> lane) & 1 and get32(W, I.a, lane) != base:
            fault(S, W, F_TMEM_ADDRESS, lane, base, 0)
            return -1
    taddr = (base + signed32(word)) & FULL
    lanes, width, quarter = 32 if shape_of(word) == 0 else 16, width_of(word, count), (W.index & 3) * 32
    if not reachable(S, C, W, taddr, lanes, width):
        return -1
    if shape_of(word) == 4:
        other = column_of(taddr) + split_of(word)
        if other < 0 or other > 0xFFFF:
            fault(S, W, F_TMEM_RANGE, 0, taddr, split_of(word) + width)
            return -1
        if not reachable(S, C, W, (taddr & ~0xFFFF) | other, lanes, width):
            return -1
    if lane_of(taddr) < quarter or lane_of(taddr) + lanes > quarter + 32:
        fault(S, W, F_TMEM_LANES, 0, taddr, quarter)
        return -1
    check_products(S, W, taddr, width)
    return taddr


@compiled
def enter(S: Any, C: Any, W: Any, I: Any, t: int, m: int, ring: int, taddr: int, count: int) -> int:
    """Put a load or store behind the others of its sub-partition; the cycle in which it is complete.

    The port serves loads and stores of its sub-partition in order.
    """
    stores, sub = ring >= SUBPARTITIONS, ring % SUBPARTITIONS
    S.tmem_port[sub] = max(S.tmem_port[sub], t << 8) + beats(I.imm, taddr, count) * C.tmem_beat_cy256
    finish = ((S.tmem_port[sub] + 255) >> 8) + (C.tmem_store_cy if stores else C.tmem_load_cy)
    finish = at(S, W, C_ASYNC, W.pc, t, finish, t + 1)
    moves = moves_of(S.tmem_move_at, TMEM_RINGS * TMEM_RING)
    if S.tmem_tail[ring] > S.tmem_head[ring]:  # in order
        finish = max(finish, moves[ring * TMEM_RING + ((S.tmem_tail[ring] - 1) & (TMEM_RING - 1))].finish)
    E = moves[ring * TMEM_RING + (S.tmem_tail[ring] & (TMEM_RING - 1))]
    E.finish, E.order, E.word, E.taddr, E.mask = finish, W.order, I.imm, taddr, m
    E.warp, E.cta, E.list, E.count, E.result, E.pc = W.slot, W.cta, I.list, count, I.d, W.pc
    S.tmem_tail[ring] += 1
    event(S, finish)
    return int(finish)


@compiled
def full(S: Any, W: Any, ring: int, t: int) -> bool:
    """Whether the ring has no room; the warp then retries when the oldest entry is complete."""
    if S.tmem_tail[ring] - S.tmem_head[ring] < TMEM_RING:
        return False
    oldest = moves_of(S.tmem_move_at, TMEM_RINGS * TMEM_RING)[ring * TMEM_RING + (S.tmem_head[ring] & (TMEM_RING - 1))]
    park(S, W, BLOCK_TMEM_QUEUE, R_MATH, t)
    wake(S, W, oldest.finish)
    return True


@compiled
def tmem_load(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """tcgen05.ld: cells are read, and registers written, at completion."""
    if m == 0 or not together(S, W, m, FULL):
        return DEFAULT
    if full(S, W, W.sub, t):
        return RETRY
    taddr = address(S, C, W, I, m, I.nd)
    if taddr < 0:
        return DEFAULT
    finish = enter(S, C, W, I, t, m, W.sub, taddr, I.nd)
    W.tmem_loaded = max(W.tmem_loaded, finish)
    return finish - t


@compiled
def tmem_store(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """tcgen05.st: registers are read at issue, cells written at completion."""
    ring = SUBPARTITIONS + W.sub
    if m == 0 or not together(S, W, m, FULL):
        return DEFAULT
    if full(S, W, ring, t):
        return RETRY
    taddr = address(S, C, W, I, m, I.ns)
    if taddr < 0:
        return DEFAULT
    to = stage(S, W.sub, S.tmem_tail[ring])
    for r in range(I.ns):
        copy(to + r * 128, W.row_at + ld16(S.list_at + 2 * (I.list + r)) * 128, 128)
    W.tmem_stored = max(W.tmem_stored, enter(S, C, W, I, t, m, ring, taddr, I.ns))
    return DEFAULT


@njit(inline="always")
def stage(S: Any, sub: int, k: int) -> int:
    """Where the registers of a sub-partition's k-th store are kept."""
    return S.tmem_stage_at + (sub * TMEM_RING + (k & (TMEM_RING - 1))) * TMEM_STAGE


@compiled
def tmem_wait(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """tcgen05.wait::ld and ::st: until all of the warp's are complete."""
    if m:
        W.dep_ready = W.tmem_stored if I.imm else W.tmem_loaded
    return DEFAULT


# ---- completion ----------------------------------------------------------------------------------


@compiled
def advance(S: Any, C: Any, t: int) -> int:
    """Complete the loads and stores that are due; returns the next cycle of interest."""
    moves, warps = moves_of(S.tmem_move_at, TMEM_RINGS * TMEM_RING), warps_of(S.warp_at, WARP_SLOTS)
    look = NEVER
    for ring in range(TMEM_RINGS):
        while S.tmem_head[ring] < S.tmem_tail[ring]:
            k = S.tmem_head[ring]
            E = moves[ring * TMEM_RING + (k & (TMEM_RING - 1))]
            if E.finish > t:
                look = min(look, E.finish)
                break
            W = warps[E.warp]
            if ring >= SUBPARTITIONS:
                write(S, E, stage(S, ring - SUBPARTITIONS, k))
            elif W.state == LIVE and W.order == E.order:  # a warp that has exited has no registers
                read(S, W, E)
            S.tmem_head[ring] += 1
    return int(look)
