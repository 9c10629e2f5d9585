"""What all SMs share: global memory behind L2 and HBM, and the queue of CTAs.

SMs run ahead until they could need an answer; `merge` then answers what they asked, in the order (cycle, SM, sequence),
up to the cycle that every SM has reached.  The order in which SMs run, or on which threads, changes nothing.

Times.  L2, its writes and HBM are servers: each passes what it is asked at its rate in that order, and a busy one costs
`knee * (sqrt(load / (1 - load)) - slack)` cycles more, which is what slices and channels that are hit unevenly cost on
an H200.  A request for a line that another one has just fetched, or that is on its way from HBM, joins it.  L2 holds a line until as many other lines
have been filled since its last use as L2 has room for: exact for streams, generous where lines are reused in between.
"""

from __future__ import annotations

import math
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from emu.chip_state import (
    ARRAY,
    ASK_ATOMIC,
    ASK_COPY_ASYNC,
    ASK_COPY_IN,
    ASK_COPY_OUT,
    ASK_CTA,
    ASK_LOAD,
    HBM,
    L2,
    REQUESTS,
    SERVER,
    WRITES,
)
from emu.compiled import compiled
from emu.issue import result_times
from emu.raw import copy, ld32, ld64, st32, st64, view
from emu.state import (
    ASKED,
    COPIES,
    CTA_SLOTS,
    FAULT,
    FINISHED,
    FREE,
    GIVEN,
    JOBS,
    NEVER,
    QUANTUM,
    RUNNING,
    SM,
    STORE_DONE,
    WARP_SLOTS,
)
from emu.units import atomic
from emu.units.boxes import inner_range, outer_rows, source_row, write_box
from emu.units.chaos import C_ASYNC, C_COPY, at
from emu.units.common import copies_of, ctas_of, event, instrs_of, jobs_of, segments_of, signed32, tmaps_of, warps_of
from emu.units.global_memory import SECTOR, move_rows
from emu.units.memory import decode, move
from emu.units.requests import answered, data_at, requests_of

LINE = 128  # bytes of an L2 line (CUDA programming guide)
LONGEST = 1 << 16  # cycles that a line may be on its way; times are modulo 2^32
MOST = 0.95  # load of a server beyond which waiting in line says it all

sms_of = view(SM)
servers_of = view(SERVER)
arrays_of = view(ARRAY)


# ---- time --------------------------------------------------------------------------------------------


@compiled
def wait_for(H: Any, which: int, size: float, t: int) -> tuple[int, int]:
    """Pass `size` bytes through a server at cycle `t`: cycles in its line, and cycles that unevenness costs."""
    Q = servers_of(H.server_at, 3)[which]
    Q.work = Q.work * max(1.0 - (t - Q.at) / Q.window, 0.0)
    Q.at = t
    load = min(Q.work / Q.window, MOST)
    line = max(Q.free - t, 0.0)
    cost = size / Q.rate
    Q.free = t + line + cost
    Q.work += cost
    uneven = Q.knee * max(math.sqrt(load / (1.0 - load)) - Q.slack, 0.0)
    return int(line), int(uneven)


@compiled
def state_of(H: Any, S: Any, address: int) -> tuple[int, int, int]:
    """Of a line: its array, host address of its LINE_STATE, lines of the array from there on; zeros outside all arrays."""
    segments = segments_of(S.segment_at, S.segments)
    for k in range(S.segments):
        g = segments[k]
        if address + LINE > g.base and address < g.base + g.size:
            skipped = address // LINE - g.base // LINE
            return (
                k,
                int(H.line_at + 8 * (g.line + skipped)),
                int((g.base + g.size - 1) // LINE - g.base // LINE + 1 - skipped),
            )
    return 0, 0, 0


@compiled
def touch_lines(H: Any, S: Any, start: int, size: int, t: int, write: int, extra: int) -> tuple[int, int, int]:
    """Use every line of a range: (lines that L2 has to move, lines that come from HBM, cycles until all are in L2).

    A line from HBM is there `extra` cycles later; whoever asks for it before waits for it.
    """
    moved, missed, late = 0, 0, 0
    window = int(H.merge + H.merge_share * max(servers_of(H.server_at, 3)[L2].free - t, 0.0))
    first, last = start // LINE, (start + size - 1) // LINE
    H.array, at, there = state_of(H, S, first * LINE)
    for k in range(min(last - first + 1, there)):
        fill = ld32(at + 8 * k)
        since = signed32(t - ld32(at + 8 * k + 4))
        when = t
        if fill == 0 or ((H.fills + 1 - fill) & 0xFFFFFFFF) > H.capacity:
            H.fills += S.weight
            missed += 1
            if not write:
                when, late = t + extra, extra
        elif since < 0 and -since <= LONGEST:
            late = max(late, -since)
            continue
        elif since >= 0 and since < window and not write:
            continue
        moved += 1
        st32(at + 8 * k, H.fills + 1)
        st32(at + 8 * k + 4, when)
    return moved, missed, late


@compiled
def supply(H: Any, S: Any, asked: int, moved: int, missed: int, late: int, t: int) -> tuple[int, int]:
    """Bring `asked` bytes to an SM: L2 moves `moved`, `missed` lines come from HBM, the last is there after `late` cycles.

    Returns cycles in line, and cycles beyond an L2 hit's.  SMs that stand for others do not see what the others share, so
    that the parts of L2 and HBM, and of loads that wait for HBM, are those of the whole chip, array by array (`emu.representative`).
    """
    A = arrays_of(H.array_at, S.segments)[H.array]
    if H.sampled:
        moved = int(asked * A.moved_share)
        A.credit, A.patience = A.credit + asked * A.missed_share, A.patience + asked * A.waited_share
        missed = max(min(missed, int(min(A.credit / LINE, A.budget / S.weight))), 0)
        if asked > A.patience or A.budget <= 0:
            late = 0
        A.budget -= missed * S.weight
        A.credit, A.patience = A.credit - missed * LINE, A.patience - (asked if late else 0)
    A.asked, A.moved, A.missed = A.asked + asked, A.moved + moved, A.missed + missed * LINE
    A.waited += asked if late else 0
    line, uneven = wait_for(H, L2, float(moved * S.weight), t)
    S.l2_bytes += moved
    late += uneven
    if missed:
        queue, uneven = wait_for(H, HBM, float(missed * LINE * S.weight), t)
        S.hbm_bytes += missed * LINE
        line, late = max(line, queue), late + uneven
    return line, late


@compiled
def absorb(H: Any, S: Any, size: int, missed: int, t: int) -> int:
    """Take `size` bytes from an SM into L2; returns the cycles in line.  A full L2 passes new lines on to HBM."""
    line, _ = wait_for(H, WRITES, float(size * S.weight), t)
    S.l2_bytes += size
    if H.fills > H.capacity and missed:
        wait_for(H, HBM, float(missed * LINE * S.weight), t)
        S.hbm_bytes += missed * LINE
    return line


# ---- answers -----------------------------------------------------------------------------------------


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
    elif r.kind == ASK_COPY_ASYNC:
        answer_copy_async(H, S, C, r)
    elif r.kind == ASK_ATOMIC:
        answer_atomic(H, S, C, r, data_at(S, k))
    else:
        answer_store(H, S, C, r, data_at(S, k))


# ---- rounds ------------------------------------------------------------------------------------------


@compiled
def first_time(S: Any) -> int:
    """The cycle of an SM's first request without an answer."""
    if S.log_head == S.log_tail:
        return NEVER
    return int(requests_of(S.log_at, REQUESTS)[int(S.log_head & (REQUESTS - 1))].time)


@compiled
def merge(H: Any, C: Any) -> None:
    """Answer every request of cycles that all SMs have passed, in order; see how far the SMs are."""
    sms = sms_of(H.sm_at, H.sms)
    H.horizon = NEVER
    for k in range(H.sms):
        if sms[k].status == RUNNING or sms[k].status == QUANTUM:
            H.horizon = min(H.horizon, sms[k].now)
    while True:
        best, who = H.horizon, -1
        for k in range(H.sms):
            S = sms[k]
            if S.log_head < S.log_tail:
                at = first_time(S)
                if at < best:
                    best, who = at, k
        if who < 0:
            break
        answer(H, sms[who], C)
    H.stop = 1
    for k in range(H.sms):
        S = sms[k]
        if S.log_head == S.log_tail:
            S.log_head, S.log_tail = 0, 0  # an empty log begins anew: its first places are in the host's cache
        if S.status == RUNNING or S.status == QUANTUM:
            H.stop = 0
        elif S.status != FINISHED:
            H.stop = 1
            return


@compiled
def advance(H: Any, C: Any, first: int, step: int) -> None:
    """Let every `step`-th SM run until it could need an answer."""
    sms = sms_of(H.sm_at, H.sms)
    for k in range(first, H.sms, step):
        S = sms[k]
        S.limit = min(H.limit, first_time(S) + C.answer_cy)
        if (S.status == RUNNING or S.status == QUANTUM) and S.now < S.limit:
            S.status = RUNNING
            call_core(H.core_at, S, C)


@intrinsic
def call_core(typing: Any, address: Any, S: Any, C: Any) -> Any:
    """Call the cycle loop `run(S, C)` at the address of its machine code."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function_type = context.call_conv.get_function_type(types.none, (S, C))
        result, error = (cgutils.alloca_once(builder, kind.pointee) for kind in function_type.args[:2])
        builder.call(builder.inttoptr(args[0], function_type.as_pointer()), [result, error, *args[1:]])
        return context.get_dummy_value()

    return types.none(types.int64, S, C), generate


def run(H: Any, C: Any, first: int, step: int) -> None:
    """With step 1 some rounds of everything; with step 0 only the answers; else every `step`-th SM from `first` on.

    With a negative step only the answers to SM `first`, while no other one moves.
    """
    if step == 0:
        merge(H, C)
    elif step < 0:
        S = sms_of(H.sm_at, H.sms)[first]
        while first_time(S) < S.now:
            answer(H, S, C)
    elif step > 1:
        advance(H, C, first, step)
    else:
        for _ in range(H.rounds):
            advance(H, C, 0, 1)
            merge(H, C)
            if H.stop or H.horizon >= H.limit:
                break
