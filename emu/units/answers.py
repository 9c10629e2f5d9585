"""Answers of the chip to what an SM asked: values move, and their times are known from here on."""

from __future__ import annotations

from typing import Any

from emu.chip_state import (
    ASK_ATOMIC,
    ASK_CANCEL,
    ASK_CLUSTER,
    ASK_COPY_ASYNC,
    ASK_COPY_IN,
    ASK_COPY_OUT,
    ASK_CTA,
    ASK_FREE,
    ASK_LOAD,
    ASK_PAIR,
    ASK_PEER,
    ASK_REPLY,
    ASK_SEND,
    ASK_TMEM,
    ATOMIC_WORDS,
    L2,
    REQUESTS,
)
from emu.compiled import compiled
from emu.copy_state import STORE_DONE
from emu.issue import result_times
from emu.raw import copy, ld64, st32, st64
from emu.state import ASKED, COPIES, CTA_SLOTS, FAULT, FINISHED, FREE, GIVEN, JOBS, WARP_SLOTS
from emu.units import atomic
from emu.units.boxes import inner_range, outer_rows, source_row, write_box
from emu.units.chaos import C_ASYNC, C_COPY, at
from emu.units.cluster_answers import (
    answer_cluster,
    answer_peer,
    answer_reply,
    answer_send,
    clusters_of,
    copy_to_peer,
    peer,
)
from emu.units.common import (
    copies_of,
    ctas_of,
    event,
    instrs_of,
    jobs_of,
    segments_of,
    tmaps_of,
    warps_of,
)
from emu.units.global_memory import SECTOR, move_rows
from emu.units.l1 import arrive
from emu.units.memory import decode, move
from emu.units.pairs import answer_free, answer_pair, answer_tmem
from emu.units.requests import answered, data_at, requests_of
from emu.units.supply import LINE, absorb, supply, touch_lines, wait_for


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
    when = r.port
    if r.bytes:
        moved, missed, late = lines_of(H, S, C, r, 0)
        line, late = supply(H, S, r.bytes, min(r.bytes, moved * LINE), missed, late, r.time)
        when = max(r.port, r.time + line) + late + C.l2_latency_cy
    if r.job:
        when = arrive(S, C, r, when)
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
    known(S, C, W, I, r, when)


@compiled
def known(S: Any, C: Any, W: Any, I: Any, r: Any, when: int) -> None:
    """The results of a request are there at cycle `when`; of an instruction that has asked other CTAs too, when those have answered."""
    if r.mixed:
        W.mixed = max(W.mixed, when)
        return
    result_times(S, W, I, when)
    answered(S, C, W)


@compiled
def answer_store(H: Any, S: Any, C: Any, r: Any, data: int) -> None:
    """st.global: memory changes now; a line in front of L2 holds up what the SM's pipe has behind it."""
    _, missed, _ = lines_of(H, S, C, r, 1)
    line = absorb(H, S, r.bytes, missed, r.time)
    S.store_free = max(S.store_free, (r.time + line) << 8)
    S.l2_free = max(S.l2_free, (r.time + line) << 8)
    if r.first:
        copy(host_of(S, r.first), data, 32 * r.width)
        return
    for lane in range(32):
        if (r.mask >> lane) & 1:
            copy(host_of(S, r.address[lane]), data + lane * r.width, r.width)


@compiled
def answer_atomic(H: Any, S: Any, C: Any, r: Any, data: int) -> None:
    """atom, red: lane after lane; those on one address, of any warp, wait for one another in L2."""
    W = warps_of(S.warp_at, WARP_SLOTS)[r.warp]
    I = instrs_of(S.instr_at, S.npc)[r.pc]
    moved, missed, late = lines_of(H, S, C, r, 0)
    line, late = supply(H, S, r.bytes, min(r.bytes, moved * LINE), missed, late, r.time)
    when = max(r.port, r.time + line) + late
    each = atomic.word_cost(C, I)
    held = C.l2_atomic_return_cy256 if I.nd else each
    start = when << 8
    for lane in range(32):
        if (r.mask >> lane) & 1:
            start = max(start, H.atomic_free[(r.address[lane] >> 2) & (ATOMIC_WORDS - 1)])
    for lane in range(32):
        if (r.mask >> lane) & 1:
            word = (r.address[lane] >> 2) & (ATOMIC_WORDS - 1)
            H.atomic_free[word] = max(when << 8, H.atomic_free[word]) + held
            atomic.change(S, W, I, data, host_of(S, r.address[lane]), lane, 1)
    if I.nd:
        crowd, lines = r.job & 255, r.job >> 8
        done = start + each * (crowd - 1) + C.l2_atomic_line_cy256 * (lines - 1)
        known(S, C, W, I, r, (done >> 8) + C.l2_latency_cy)


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
    if j.ranks:
        when += C.multicast_cy
        for rank in range(S.peers):
            if (j.ranks >> rank) & 1:
                wait_for(H, L2, float(size * S.weight) * C.multicast_share256 / 256.0, t)
    W = warps_of(S.warp_at, WARP_SLOTS)[j.warp]
    j.finish = at(S, W, C_COPY, j.pc, t, when, t + C.answer_cy)
    j.read = j.finish
    S.tma_until = max(S.tma_until, j.finish)
    event(S, j.finish)
    for rank in range(S.peers):
        if (j.ranks >> rank) & 1:
            copy_to_peer(H, S, C, k, rank, j.serve, late + C.multicast_cy)


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
    st64(H.where_at + 8 * c.id, S.place)
    if H.cluster > 1:
        K = clusters_of(H.cluster_at, H.sms // H.cluster * H.slots)[S.place // H.cluster * H.slots + slot]
        K.ended += 1
        if K.ended < H.cluster:
            return
        K.phase, K.ended, K.live = 0, 0, H.cluster * S.warps_per_cta
        K.pending = K.live
    more, born = H.next_cta < H.ctas, c.born
    if more:
        start = max(float(born), H.cta_free)
        H.cta_free = start + H.cta_cy * H.cluster * S.weight
        born = int(start)
    for rank in range(H.cluster):
        P = peer(H, S, rank)
        c = ctas_of(P.cta_at, CTA_SLOTS)[slot]
        if more:
            c.id, c.state, c.born = ld64(H.order_at + 8 * H.next_cta), GIVEN, born
            H.next_cta += 1
            event(P, born)
        elif c.state == ASKED:
            c.state = FREE
            P.open -= 1
            at_rest = P.jobs == 0 and P.inbox_head == P.inbox_tail
            if P.open == 0 and P.live_warps == 0 and at_rest and P.status != FAULT:
                P.status, P.now = FINISHED, P.last + 1


@compiled
def answer_cancel(H: Any, S: Any, C: Any, k: int, t: int) -> None:
    """clusterlaunchcontrol.try_cancel: the next CTA of the grid, which nobody launches then, or that there is none."""
    j = jobs_of(S.job_at, JOBS)[k]
    for word in range(4):
        st32(j.staging_at + 4 * word, 0)
    if H.next_cta < H.ctas:
        number = ld64(H.order_at + 8 * H.next_cta)
        H.next_cta += H.cluster
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
    elif r.kind == ASK_PEER:
        answer_peer(H, S, r, data_at(S, k))
    elif r.kind == ASK_REPLY:
        answer_reply(H, C, r, data_at(S, k))
    elif r.kind == ASK_SEND:
        answer_send(H, S, r.job)
    elif r.kind == ASK_CLUSTER:
        answer_cluster(H, S, C, r)
    elif r.kind == ASK_PAIR:
        answer_pair(H, S, C, r)
    elif r.kind == ASK_TMEM:
        answer_tmem(H, S, C, r)
    elif r.kind == ASK_FREE:
        answer_free(H, S, C, r)
    else:
        answer_store(H, S, C, r, data_at(S, k))
