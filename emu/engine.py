"""The cycle loop.  `emu.generate` copies `run` into the generated core file; `lane_dispatch` runs lane micro-operations,
units are called by the address of their compiled code.

A cycle lets due units act first, then each sub-partition issues at most one instruction.  Cycles in
which nothing can happen are skipped; the result equals stepping (`jump = step` is a test).
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import call_unit, compiled
from emu.dispatch import lane_dispatch
from emu.instruction import BRANCH, GATED, REGS, SPIN, STAMPED
from emu.issue import R_SELECTED, charge, gated_operands, operands, pick, result_times, settle
from emu.raw import ld32, ld64, st64
from emu.state import (
    BLOCK_MBAR,
    DEADLOCK,
    FINISHED,
    LIVE,
    NEVER,
    PIPES,
    QUANTUM,
    RING,
    RUNNING,
    SUBPARTITIONS,
    WARP_SLOTS,
    WARPGROUPS,
)
from emu.units import launch, mbarrier
from emu.units.chaos import C_ISSUE, at
from emu.units.common import ADVANCE, DEFAULT, F_PC, PARK, RETRY, fault, instrs_of, may_issue, warps_of, wgroups_of
from emu.units.control import pop
from emu.units.sharing import drag, steal, tensor_busy


@compiled
def advance(S: Any, C: Any, t: int) -> None:
    """Let every unit do what is due at cycle `t` and find the next cycle of interest."""
    S.next_event = NEVER
    look = NEVER
    warps, instrs = warps_of(S.warp_at, WARP_SLOTS), instrs_of(S.instr_at, S.npc)
    for k in range(S.advancing):
        look = min(look, call_unit(S.advance_at[k], S, C, warps[0], instrs[0], ADVANCE, t, 0))
    look = min(look, launch.advance(S, C, t))
    if t >= S.give_up:
        S.give_up = mbarrier.give_up(S, C, t)
    look = min(look, S.give_up)
    S.next_event = min(look, S.next_event)


@njit(inline="always")
def working(S: Any) -> bool:
    """Whether copies of cp.async or commands of tcgen05 are in flight."""
    return bool(S.copy_head < S.copy_tail or S.tc_head < S.tc_tail)


@compiled
def stuck(S: Any) -> bool:
    """Whether nothing can move any more: no unit has work, and no suspended try_wait leads elsewhere."""
    flying = S.mma_wg >= 0 or S.fly_head < S.fly_tail or working(S)
    if S.jobs or flying or launch.starting(S):
        return False
    groups = wgroups_of(S.wg_at, WARPGROUPS)
    for k in range(WARPGROUPS):  # a complete wgmma that waits for its start
        g = groups[k]
        if g.started < g.issued and g.arrived[g.started & (RING - 1)] == 4:
            return False
    warps, instrs = warps_of(S.warp_at, WARP_SLOTS), instrs_of(S.instr_at, S.npc)
    for k in range(WARP_SLOTS):
        W = warps[k]
        if W.state != LIVE:
            continue
        if ld64(S.ready_at + k * 8) != NEVER:
            return False
        if W.block == BLOCK_MBAR and not instrs[W.wait_pc].flags & SPIN:
            return False
    return True


@compiled
def close(S: Any, t: int) -> None:
    """Charge what live warps have waited so far (at a deadlock, limit or fault)."""
    warps, instrs = warps_of(S.warp_at, WARP_SLOTS), instrs_of(S.instr_at, S.npc)
    for k in range(WARP_SLOTS):
        W = warps[k]
        if W.state == LIVE:
            pc = min(max(W.pc, 0), S.npc - 1)
            settle(S, W, instrs[pc], pc, t, ld64(S.ready_at + k * 8), 0, 0)
            W.last = t - 1


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
                slot8 = pick(S, C, s, t)
                if slot8 >= 0:
                    issue(S, C, warps[slot8 >> 3], instrs, s, t)
        if S.fault:
            t += 1
            break
        at_rest = S.jobs == 0 and not working(S) and S.inbox_head == S.inbox_tail
        if S.live_warps == 0 and S.open == 0 and at_rest:
            S.status = FINISHED
            t += 1
            break
        following = min(min(S.sub_next[0], S.sub_next[1]), min(S.sub_next[2], S.sub_next[3]))
        following = min(following, S.next_event)
        if S.log_head == S.log_tail and S.peers == 0 and ((following >= S.give_up and stuck(S)) or following >= NEVER):
            S.status = DEADLOCK
            t += 1
            break
        t = max(following, t + 1)
        if t >= S.limit:
            t = S.limit
            S.status = QUANTUM
    if S.status != FINISHED and S.status != QUANTUM:
        close(S, t)
    if S.peers:
        S.idle = 1 if stuck(S) else 0
    S.now = t


@njit(inline="always")
def issue(S: Any, C: Any, W: Any, instrs: Any, s: int, t: int) -> None:
    """Issue a warp's next instruction in cycle `t`."""
    pc = W.pc
    I = instrs[pc]
    m = W.active
    if I.guard:
        p = ld32(W.pred_at + I.guard * 4)
        m &= ~p if I.flip & 1 else p
    free_at = S.free_at + (s * PIPES + I.pipe) * 8
    running = tensor_busy(S, t)
    busy = running and I.flags & REGS != 0
    code, held, held_reason = DEFAULT, 0, 0
    if I.kind == 0:
        settle(S, W, I, pc, t, ld64(S.ready_at + W.slot8), ld64(free_at), S.grant_next[s] if busy else 0)
        lane_dispatch(
            I.op, W.row_at, I.d, I.a, I.b, I.c, W.pred_at, I.pd, I.pd2, I.pa, I.pb, I.flip, I.imm, m
        )  # fmt: skip
        W.pc = pc + 1
        st64(free_at, t + (I.slowed if running else I.interval))
    else:
        code = issue_unit(S, C, W, I, t, m, free_at, S.grant_next[s] if busy else 0)
        if code == RETRY:
            may_issue(S, s, max(ld64(S.ready_at + W.slot8), t + 1))
            return
        st64(free_at, max(t + (I.slowed if running else I.interval), S.hold))
        held, held_reason = W.dep_ready, W.dep_reason
    if I.drag:
        drag(S, C, W, I, t)
    charge(S, W, pc, R_SELECTED, 1)
    W.last = t
    if busy:
        if t >= S.grant_next[s]:
            S.grant_next[s] = t + (C.grant_period_cy if W.streak < C.stream_start else C.stream_period_cy)
        else:
            steal(S, C, s)
    S.sub_last[s] = W.slot8
    if I.flags & STAMPED:
        result_times(S, W, I, t + (code if code >= 0 else I.latency))
    W.streak = min(W.streak + 1, C.stream_length) if I.stall == 1 else max(W.streak - C.stream_decay, 0)
    gap = t + I.stall
    if (W.pc == W.rpc or W.pc < 0 or W.pc >= S.npc) and not following_path(S, C, W, t):
        return
    W.gap_until = gap
    J = instrs[W.pc]
    operands(S, W, J, gap)
    if J.flags & GATED:
        gated_operands(S, C, W, J, gap)
    if held > W.dep_ready:
        W.dep_ready, W.dep_reason = held, held_reason
    if code == PARK and W.block:
        return
    st64(S.ready_at + W.slot8, W.dep_ready)
    W.reason = W.dep_reason
    look_again(S, C, W, s, t)


@njit(inline="always")
def look_again(S: Any, C: Any, W: Any, s: int, t: int) -> None:
    """The earliest cycle in which the warp could issue again, for the sub-partition."""
    following = ld64(S.next_at + W.slot8)
    at = max(max(W.dep_ready, t + 1), ld64(S.free_at + (following & -8)))
    if following & 1 and at < S.grant_next[s] and tensor_busy(S, t) and W.streak < C.stream_length:
        at = max(at, min(S.grant_next[s], S.mma_busy_end))
    S.sub_next[s] = min(S.sub_next[s], at)


@compiled
def issue_unit(S: Any, C: Any, W: Any, I: Any, t: int, m: int, free_at: int, port_until: int) -> int:
    """Execute a unit routine and settle the warp's account; the routine's code, RETRY with the warp parked.

    A routine that holds the warp says so in `dep_ready` and `dep_reason`; `hold` is for its pipe.
    """
    pc = W.pc
    before, before_reason = ld64(S.ready_at + W.slot8), W.reason
    W.dep_ready, W.dep_reason, S.hold = 0, I.reason, 0
    code: int = call_unit(S.unit_at[I.kind], S, C, W, I, I.op, t, m)
    if S.chaos and code != RETRY and code != PARK:
        W.dep_ready = max(W.dep_ready, at(S, W, C_ISSUE, pc, t, t, t))
    W.held, W.held_reason = W.dep_ready, W.dep_reason
    after_reason = W.reason
    W.reason = before_reason
    settle(S, W, I, pc, t, before, ld64(free_at), port_until)
    W.reason = after_reason
    if code == RETRY:
        W.last, W.gap_until, W.dep_ready = t - 1, 0, 0
    elif not I.flags & BRANCH:
        W.pc = pc + 1
    return code


@compiled
def following_path(S: Any, C: Any, W: Any, t: int) -> bool:
    """At a join or an end: go on with another path, retire, or fault; False when the warp issues no more."""
    while W.pc == W.rpc and W.pc >= 0:
        if not pop(W):
            break
    if W.pc < 0:
        launch.retire(S, C, W, t)
        return False
    if W.pc >= S.npc:
        fault(S, W, F_PC, 0, W.pc, 0)
        return False
    return True
