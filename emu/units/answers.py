"""Answers of the chip to what an SM asked: values move, and their times are known from here on."""

from __future__ import annotations

from typing import Any

from emu.chip_state import (
    ASK_ATOMIC,
    ASK_CANCEL,
    ASK_COPY_ASYNC,
    ASK_COPY_IN,
    ASK_COPY_OUT,
    ASK_CTA,
    ASK_LOAD,
    REQUESTS,
)
from emu.compiled import compiled
from emu.issue import result_times
from emu.raw import copy, ld64, st32, st64
from emu.state import (
    ASKED,
    COPIES,
    CTA_SLOTS,
    FAULT,
    FINISHED,
    FREE,
    GIVEN,
    JOBS,
    STORE_DONE,
    WARP_SLOTS,
)
from emu.units import atomic
from emu.units.boxes import inner_range, outer_rows, source_row, write_box
from emu.units.chaos import C_ASYNC, C_COPY, at
from emu.units.common import copies_of, ctas_of, event, instrs_of, jobs_of, segments_of, tmaps_of, warps_of
from emu.units.global_memory import SECTOR, move_rows
from emu.units.memory import decode, move
from emu.units.requests import answered, data_at, requests_of
from emu.units.supply import LINE, absorb, supply, touch_lines


@compiled
def lines_of(H: Any, S: Any, C: Any, r: Any, write: int) -> tuple[int, int, int]:
    """`touch_lines` of an access."""
    extra = C.hbm_latency_cy - C.l2_latency_cy
    if r.first:
        return touch_lines(H, S, r.first, 32 * r.width, r.time, write, extra)
    moved, missed, late, previous = 0, 0, 0, -1
    for lane in range(32):
        if (r.mask >> lane) & 1 and r.address[lane] // LINE != previous:
            previous = r.address[lane] // LINE
            more, away, wait = touch_lines(H, S, r.address[lane], r.width, r.time, write, extra)
            moved, missed, late = moved + more, missed + away, max(late, wait)
    return moved, missed, late


@compiled
def answer_load(H: Any, S: Any, C: Any, r: Any) -> None:
    """ld.global: values now, their time into the scoreboard."""
    W = warps_of(S.warp_at, WARP_SLOTS)[r.warp]
    I = instrs_of(S.instr_at, S.npc)[r.pc]
    moved, missed, late = lines_of(H, S, C, r, 0)
    line, late = supply(H, S, r.bytes, min(r.bytes, moved * LINE), missed, late, r.time)
    if r.first:
        _, size, _, count = decode(I.imm)
        host = host_of(S, r.first)
        if size != 4 or not move_rows(host, W.row_at, S.list_at + I.list * 2, count, 0):
            for lane in range(32):
                move(S, W, I, host + lane * r.width, lane, 0)
    else:
        for lane in range(32):
            if (r.mask >> lane) & 1:
                move(S, W, I, host_of(S, r.address[lane]), lane, 0)
    result_times(S, W, I, max(r.port, r.time + line) + late + C.l2_latency_cy)
    answered(S, C, W)


@compiled
def answer_store(H: Any, S: Any, C: Any, r: Any, data: int) -> None:
    """st.global: memory changes now; a line in front of L2 holds up the SM's next stores."""
    _, missed, _ = lines_of(H, S, C, r, 1)
    line = absorb(H, S, r.bytes, missed, r.time)
    S.store_free = max(S.store_free, (r.time + line) << 8)
    if r.first:
        copy(host_of(S, r.first), data, 32 * r.width)
        return
    for lane in range(32):
        if (r.mask >> lane) & 1:
            copy(host_of(S, r.address[lane]), data + lane * r.width, r.width)


@compiled
def answer_atomic(H: Any, S: Any, C: Any, r: Any, data: int) -> None:
    """atom, red: lane after lane; lanes with one address wait for one another in L2."""
    W = warps_of(S.warp_at, WARP_SLOTS)[r.warp]
    I = instrs_of(S.instr_at, S.npc)[r.pc]
    moved, missed, late = lines_of(H, S, C, r, 0)
    line, late = supply(H, S, r.bytes, min(r.bytes, moved * LINE), missed, late, r.time)
    for lane in range(32):
        if (r.mask >> lane) & 1:
            atomic.change(S, W, I, data, host_of(S, r.address[lane]), lane, 1)
    if I.nd:
        latency = C.l2_latency_cy + C.l2_atomic_cy * (r.job - 1)
        result_times(S, W, I, max(r.port, r.time + line) + late + latency)
        answered(S, C, W)


@compiled
def answer_copy_async(H: Any, S: Any, C: Any, r: Any) -> None:
    """cp.async: when it completes; the SM reads the data then."""
    E = copies_of(S.copy_at, COPIES)[r.job]
    moved, missed, late = lines_of(H, S, C, r, 0)
    line, late = supply(H, S, r.bytes, min(r.bytes, moved * LINE), missed, late, r.time)
    when = max(r.port, r.time + line) + late + C.copy_latency_cy
    E.finish = at(S, warps_of(S.warp_at, WARP_SLOTS)[E.warp], C_ASYNC, E.pc, r.time, when, r.time + C.answer_cy)
    event(S, max(E.finish, S.copy_last))


@compiled
def host_of(S: Any, address: int) -> int:
    """Host address of a global address that was checked at issue."""
    segments = segments_of(S.segment_at, S.segments)
    for k in range(S.segments):
        g = segments[k]
        if address >= g.base and address < g.base + g.size:
            return int(g.host_at + address - g.base)
    return 0


@compiled
def box_lines(H: Any, S: Any, C: Any, k: int, t: int, write: int) -> tuple[int, int, int]:
    """`touch_lines` of a bulk copy's box, the first part in bytes."""
    j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
    size, missed, late = 0, 0, 0
    first, count = inner_range(j, T)
    width = count * T.elem
    for row in range(outer_rows(T) if count else 0):
        address, inside = source_row(j, T, row)
        if inside:
            start = address + first * T.elem
            moved, away, wait = touch_lines(H, S, start, width, t, write, C.tma_hbm_cy)
            sectors = (start + width + SECTOR - 1) // SECTOR - start // SECTOR
            size, missed, late = size + min(moved * LINE, sectors * SECTOR), missed + away, max(late, wait)
    return size, missed, late


@compiled
def answer_copy_in(H: Any, S: Any, C: Any, k: int, t: int) -> None:
    """A bulk load: when it completes.  The copy engine waits while L2 or HBM are behind."""
    j = jobs_of(S.job_at, JOBS)[k]
    size, missed, late = box_lines(H, S, C, k, t, 0)
    line, late = supply(H, S, j.bytes, size, missed, late, t)
    if t + line > j.serve:
        j.serve = t + line
        S.tma_free = max(S.tma_free, j.serve << 8)
    when = j.serve + late + C.tma_latency_cy
    W = warps_of(S.warp_at, WARP_SLOTS)[j.warp]
    j.finish = at(S, W, C_COPY, j.pc, t, when, t + C.answer_cy)
    j.read = j.finish
    S.tma_until = max(S.tma_until, j.finish)
    event(S, j.finish)


@compiled
def answer_copy_out(H: Any, S: Any, C: Any, k: int, t: int) -> None:
    """A bulk store whose source has been read: memory changes now; a line in front of L2 holds up the next ones."""
    j = jobs_of(S.job_at, JOBS)[k]
    size, missed, _ = box_lines(H, S, C, k, t, 1)
    S.store_free = max(S.store_free, (t + absorb(H, S, size, missed, t)) << 8)
    before = S.fault
    write_box(S, warps_of(S.warp_at, WARP_SLOTS)[j.warp], k)
    if S.fault and not before:
        S.fault_pc = j.pc
    j.written = 1
    if j.state == STORE_DONE:
        j.state = FREE


@compiled
def answer_cta(H: Any, S: Any, slot: int, t: int) -> None:
    """A CTA has ended: the next one of the grid for its slot, if there is one."""
    c = ctas_of(S.cta_at, CTA_SLOTS)[slot]
    st64(H.span_at + 8 * c.id, t + 1 - c.began)
    st64(H.where_at + 8 * c.id, S.sm_id)
    if H.next_cta < H.ctas:
        c.id, c.state = ld64(H.order_at + 8 * H.next_cta), GIVEN
        H.next_cta += 1
        event(S, c.born)
    elif c.state == ASKED:
        c.state = FREE
        S.open -= 1
        if S.open == 0 and S.live_warps == 0 and S.jobs == 0 and S.status != FAULT:
            S.status, S.now = FINISHED, S.last + 1


@compiled
def answer_cancel(H: Any, S: Any, C: Any, k: int, t: int) -> None:
    """clusterlaunchcontrol.try_cancel: the next CTA of the grid, which nobody launches then, or that there is none."""
    j = jobs_of(S.job_at, JOBS)[k]
    for word in range(4):
        st32(j.staging_at + 4 * word, 0)
    if H.next_cta < H.ctas:
        number = ld64(H.order_at + 8 * H.next_cta)
        H.next_cta += 1
        nx, ny = S.nctaid[0], S.nctaid[1]
        st32(j.staging_at, number % nx)
        st32(j.staging_at + 4, number // nx % ny)
        st32(j.staging_at + 8, number // (nx * ny))
        st32(j.staging_at + 12, 1)
    W = warps_of(S.warp_at, WARP_SLOTS)[j.warp]
    j.finish = at(S, W, C_COPY, j.pc, t, t + C.cancel_cy, t + C.answer_cy)
    j.read = j.finish
    event(S, j.finish)


@compiled
def answer(H: Any, S: Any, C: Any) -> None:
    """Answer an SM's first request."""
    k = int(S.log_head & (REQUESTS - 1))
    r = requests_of(S.log_at, REQUESTS)[k]
    S.log_head += 1
    if r.kind == ASK_LOAD:
        answer_load(H, S, C, r)
    elif r.kind == ASK_COPY_IN:
        answer_copy_in(H, S, C, r.job, r.time)
    elif r.kind == ASK_COPY_OUT:
        answer_copy_out(H, S, C, r.job, r.time)
    elif r.kind == ASK_CTA:
        answer_cta(H, S, r.job, r.time)
    elif r.kind == ASK_CANCEL:
        answer_cancel(H, S, C, r.job, r.time)
    elif r.kind == ASK_COPY_ASYNC:
        answer_copy_async(H, S, C, r)
    elif r.kind == ASK_ATOMIC:
        answer_atomic(H, S, C, r, data_at(S, k))
    else:
        answer_store(H, S, C, r, data_at(S, k))
