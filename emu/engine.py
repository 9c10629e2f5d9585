"""The cycle loop.  `emu.generate` copies `run` into the generated core file, where `execute` dispatches
unit routines and `lane_dispatch` runs lane micro-operations.

A cycle lets due units act first, then each sub-partition issues at most one instruction.  Cycles in
which nothing can happen are skipped; the result equals stepping (`jump = step` is a test).

Accounting: a warp's cycles since its last issue are charged when it issues again, to the encoded gap
(`wait`), then what its operands waited for, then the busy pipe, then the register-port arbitration,
and what is left to `not_selected`; the issuing cycle is `selected`.  Charges go to the warp and to the
instruction that could not issue.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.dispatch import lane_dispatch
from emu.raw import ld16, ld32, ld64, st32, st64
from emu.stalls import Reason
from emu.state import (
    BLOCK_MBAR,
    BRANCH,
    DEADLOCK,
    DEPS,
    FINISHED,
    HOT,
    LISTS,
    LIVE,
    LOADS,
    NEVER,
    PIPES,
    QUANTUM,
    REASONS,
    REGS,
    RESULTS,
    RUNNING,
    SPIN,
    SUBPARTITIONS,
    WARP_SLOTS,
)
from emu.units import launch, mbarrier, tensor, tma
from emu.units.common import F_PC, PARK, RETRY, fault, instrs_of, warps_of
from emu.units.control import pop
from emu.units.sharing import steal, tensor_busy

R_SELECTED, R_NOT_SELECTED = int(Reason.SELECTED), int(Reason.NOT_SELECTED)
R_WAIT, R_DISPATCH, R_MATH = int(Reason.WAIT), int(Reason.DISPATCH_STALL), int(Reason.MATH_PIPE_THROTTLE)


@compiled
def advance(S: Any, C: Any, t: int) -> None:
    """Let every unit do what is due at cycle `t` and find the next cycle of interest."""
    S.next_event = NEVER
    look = min(tensor.advance(S, C, t), tma.advance(S, C, t))
    look = min(look, launch.advance(S, C, t))
    if t >= S.give_up:
        S.give_up = mbarrier.give_up(S, C, t)
    look = min(look, S.give_up)
    S.next_event = min(look, S.next_event)


@njit(inline="always")
def charge(S: Any, W: Any, pc: int, reason: int, cycles: int) -> None:
    """Charge warp-cycles to a reason, per warp and per instruction."""
    W.stalls[reason] += cycles
    at = S.hot_at + (pc * HOT + reason) * 4
    if reason >= HOT:
        at = S.cold_at + (pc * (REASONS - HOT) + reason - HOT) * 4
    st32(at, ld32(at) + cycles)


@njit(inline="always")
def within(x: int, low: int, high: int) -> int:
    """`x`, at least `low` and at most `high`."""
    return min(max(x, low), high)


@compiled
def settle(S: Any, W: Any, pc: int, t: int, pipe_until: int, port_until: int, interval: int) -> None:
    """Charge the cycles since the last issue, up to `t` (exclusive).  Free of branches: they would not predict.

    A pipe of `interval` (cycles * 256) that others keep busy took one of them in each interval's first
    cycle, which was a matter of selection (H200: half and half on a half-rate pipe, no throttle at full rate).
    """
    n = min(W.last + 1, t)
    gap = within(W.gap_until, n, t)
    ready = within(S.ready[W.slot], gap, t)
    pipe = within(pipe_until, ready, t)
    port = within(port_until, pipe, t)
    charge(S, W, pc, R_WAIT, gap - n)
    charge(S, W, pc, W.reason, ready - gap)
    taken = ((pipe - ready) << 8) // max(interval, 256) * int(W.nthrottle == R_MATH or W.nthrottle == R_DISPATCH)
    charge(S, W, pc, W.nthrottle, pipe - ready - taken)
    charge(S, W, pc, R_DISPATCH if W.streak > 0 else R_WAIT, port - pipe)
    charge(S, W, pc, R_NOT_SELECTED, t - port + taken)


@compiled
def operands(S: Any, C: Any, W: Any, J: Any, gap_until: int) -> None:
    """When, and because of what, the warp's next instruction J has its operands."""
    latest = ld64(W.time_at + J.more * 8)
    for k in range(DEPS):
        latest = max(latest, ld64(W.time_at + J.dep[k] * 8))
    if J.flags & LISTS:
        for k in range(J.nd + J.ns):
            latest = max(latest, ld64(W.time_at + ld16(S.list_at + 2 * (J.list + k)) * 8))
    ready, reason = latest >> 8, latest & 255
    if J.flags & BRANCH and J.guard:
        x = (ld64(W.time_at + (S.const_first + J.guard) * 8) >> 8) + C.branch_guard_cy
        if x > ready and x > gap_until:
            ready, reason = x, R_WAIT
    W.dep_ready = max(ready, gap_until)
    W.dep_reason = reason
    W.nthrottle = J.throttle
    S.next_pipe[W.slot], S.next_ports[W.slot] = W.sub * PIPES + J.pipe, J.flags & REGS


@compiled
def result_times(S: Any, W: Any, I: Any, when: int) -> None:
    """Set the ready times of an instruction's results."""
    stamp = (when << 8) | I.reason
    for k in range(RESULTS):
        st64(W.time_at + I.res[k] * 8, stamp)
    if I.flags & LOADS:
        for k in range(I.nd):
            st64(W.time_at + ld16(S.list_at + 2 * (I.list + k)) * 8, stamp)


@compiled
def stuck(S: Any) -> bool:
    """Whether nothing can move any more: no unit has work, and no suspended try_wait leads elsewhere."""
    if S.jobs or S.mma_wg >= 0 or S.fly_head < S.fly_tail:
        return False
    warps, instrs = warps_of(S.warp_at, WARP_SLOTS), instrs_of(S.instr_at, S.npc)
    for k in range(WARP_SLOTS):
        W = warps[k]
        if W.state != LIVE:
            continue
        if S.ready[k] != NEVER:
            return False
        if W.block == BLOCK_MBAR and not instrs[W.wait_pc].flags & SPIN:
            return False
    return True


@compiled
def close(S: Any, t: int) -> None:
    """Charge what live warps have waited so far (at a deadlock, limit or fault)."""
    warps = warps_of(S.warp_at, WARP_SLOTS)
    for k in range(WARP_SLOTS):
        W = warps[k]
        if W.state == LIVE:
            settle(S, W, min(max(W.pc, 0), S.npc - 1), t, 0, 0, 0)
            W.last = t - 1


@compiled
def pick(S: Any, C: Any, s: int, t: int) -> int:
    """The warp that sub-partition `s` issues from in cycle `t`: the last one if it can, else the youngest.

    While the tensor core runs, an instruction that uses the register file's ports needs their next free
    slot, and the warp that has waited longest goes first, except that an unbroken stream keeps the ports.
    Returns its slot, or -1; `sub_next` becomes the next cycle in which one of the others might issue.
    Written with minima instead of branches, which would not predict.
    """
    last = S.sub_last[s]
    busy = tensor_busy(S, t)
    port = min(S.grant_next[s], S.mma_busy_end) if busy else 0
    stream = busy and last >= 0 and streams(S, C, s, last, t)
    best, best_at, soonest = NEVER, NEVER, NEVER
    count = S.sub_count[s]
    for k in range(count):
        slot = S.sub_warps[s * 16 + k]
        ready = S.ready[slot]
        g = max(ready, (S.pipe_free[S.next_pipe[slot]] + 255) >> 8)
        keeps = slot == last and (stream or not busy)
        if S.next_ports[slot] and not (keeps and stream):
            g = max(g, port)
        order = ready + 1 if busy else count - k
        key = ((0 if keeps else order) << 8 | slot) if g <= t else NEVER
        first = key < best
        soonest = min(soonest, best_at if first else g)
        best_at = g if first else best_at
        best = min(best, key)
    S.sub_next[s] = max(soonest, t + 1)
    return best & 255 if best < NEVER else -1


@compiled
def streams(S: Any, C: Any, s: int, slot: int, t: int) -> bool:
    """Whether a warp is in an unbroken stream of one instruction a cycle, which keeps the ports."""
    W = warps_of(S.warp_at, WARP_SLOTS)[slot]
    return bool(W.last == t - 1 and W.streak >= C.stream_length)


def run(S: Any, C: Any) -> None:
    """Advance one SM until it finishes, cannot progress, faults, or reaches `S.limit`."""
    t = S.now
    warps = warps_of(S.warp_at, WARP_SLOTS)
    instrs = instrs_of(S.instr_at, S.npc)
    while S.status == RUNNING:
        if t >= S.next_event:
            advance(S, C, t)
        if S.fault:
            break
        for s in range(SUBPARTITIONS):
            if S.sub_next[s] <= t:
                slot = pick(S, C, s, t)
                if slot >= 0:
                    issue(S, C, warps[slot], instrs, s, t)
        if S.live_warps == 0 and S.ctas_left == 0 and S.jobs == 0:
            S.status = FINISHED
            t += 1
            break
        following = min(min(S.sub_next[0], S.sub_next[1]), min(S.sub_next[2], S.sub_next[3]))
        following = min(following, S.next_event)
        if (following >= S.give_up and stuck(S)) or following >= NEVER:
            S.status = DEADLOCK
            break
        t = max(following, t + 1)
        if t >= S.limit:
            t = S.limit
            S.status = QUANTUM
    if S.status != FINISHED and S.status != QUANTUM:
        close(S, t)
    S.now = t


@njit(inline="always")
def issue(S: Any, C: Any, W: Any, instrs: Any, s: int, t: int) -> None:
    """Issue a warp's next instruction in cycle `t`."""
    pc = W.pc
    if pc < 0 or pc >= S.npc:
        fault(S, W, F_PC, 0, pc, 0)
        return
    I = instrs[pc]
    m = W.active
    if I.guard:
        p = ld32(W.pred_at + I.guard * 4)
        if I.flip & 1:
            p = ~p
        m &= p
    pipe_at = s * PIPES + I.pipe
    pipe_until = (S.pipe_free[pipe_at] + 255) >> 8
    port_until = 0
    busy = tensor_busy(S, t) and I.flags & REGS
    if busy:
        port_until = min(S.grant_next[s], t)
    latency = int(I.latency)
    if I.kind == 0:
        settle(S, W, pc, t, pipe_until, port_until, int(I.interval))
        lane_dispatch(
            I.op, W.row_at, I.d, I.a, I.b, I.c, W.pred_at, I.pd, I.pd2, I.pa, I.pb, I.flip, I.imm, m
        )  # fmt: skip
        W.pc = pc + 1
        finish_issue(S, C, W, I, s, t, pc, pipe_at, busy, latency)
    else:
        before_ready, before_reason = S.ready[W.slot], W.reason
        W.dep_ready, W.dep_reason, S.hold = 0, I.reason, 0
        code = execute(S, C, W, I, t, m)
        after_ready, after_reason = S.ready[W.slot], W.reason
        S.ready[W.slot], W.reason = before_ready, before_reason
        settle(S, W, pc, t, pipe_until, port_until, int(I.interval))
        S.ready[W.slot], W.reason = after_ready, after_reason
        if code == RETRY:
            W.last = t - 1
            W.gap_until = 0
            W.dep_ready = 0
            S.sub_next[s] = min(S.sub_next[s], max(after_ready, t + 1))
            return
        if not I.flags & BRANCH:
            W.pc = pc + 1
        held, held_reason, hold = W.dep_ready, W.dep_reason, S.hold << 8
        if code >= 0:
            latency = code
        finish_issue(S, C, W, I, s, t, pc, pipe_at, busy, latency)
        S.pipe_free[pipe_at] = max(S.pipe_free[pipe_at], hold)
        if W.state != LIVE:
            return
        if held > W.dep_ready:
            W.dep_ready, W.dep_reason = held, held_reason
        if code == PARK and W.block:
            S.ready[W.slot], W.reason = NEVER, after_reason
            return
    ready = W.dep_ready
    S.ready[W.slot], W.reason = ready, W.dep_reason
    S.sub_next[s] = min(S.sub_next[s], max(ready, t + 1))


@compiled
def finish_issue(
    S: Any, C: Any, W: Any, I: Any, s: int, t: int, pc: int, pipe_at: int, busy: bool, latency: int
) -> None:
    """Book-keeping of an issued instruction: counters, pipe, ports, results, and the next operands."""
    charge(S, W, pc, R_SELECTED, 1)
    W.last = t
    S.issued += 1
    S.pipe_issued[I.pipe] += 1
    interval = I.slowed if busy else I.interval
    S.pipe_busy[I.pipe] += I.interval
    S.pipe_free[pipe_at] = (t << 8) + interval
    if busy:
        if t >= S.grant_next[s]:
            S.grant_next[s] = t + C.grant_period_cy
        else:
            steal(S, C, s)
    S.sub_last[s] = W.slot
    result_times(S, W, I, t + latency)
    W.streak = W.streak + 1 if I.stall == 1 else 0
    gap = t + I.stall
    while W.pc == W.rpc and W.pc >= 0:
        if not pop(W):
            break
    if W.pc < 0:
        launch.retire(S, C, W, t)
        return
    if W.pc >= S.npc:
        fault(S, W, F_PC, 0, W.pc, 0)
        return
    W.gap_until = gap
    operands(S, C, W, instrs_of(S.instr_at, S.npc)[W.pc], gap)
