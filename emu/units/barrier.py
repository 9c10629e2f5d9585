"""Named barriers (bar, barrier; PTX ISA 9.7.13.1) and the register pool of setmaxnreg (9.7.19.5)."""

from __future__ import annotations

from typing import Any

from emu.compiled import compiled
from emu.raw import ld32, st32, st64
from emu.stalls import Reason
from emu.state import BLOCK_BAR, BLOCK_REGISTERS, LIVE, WARP_SLOTS
from emu.units.chaos import C_OPEN, at
from emu.units.common import (
    DEFAULT,
    F_BAR_COUNT,
    F_BAR_ID,
    F_BAR_OVERFLOW,
    F_DIVERGED,
    F_SETMAXNREG,
    PARK,
    RETRY,
    ctas_of,
    fault,
    first_lane,
    get32,
    may_issue,
    park,
    together,
    wake,
    warps_of,
)
from emu.units.history import E_BAR_ARRIVE, E_BAR_SYNC, E_REGISTERS, record
from emu.units.opening import open_for

FULL = 0xFFFFFFFF
R_BARRIER, R_SHORT = int(Reason.BARRIER), int(Reason.SHORT_SCOREBOARD)
R_WAIT = int(Reason.WAIT)


@compiled
def meet(S: Any, W: Any, slot: int, m: int, t: int) -> int:
    """A barrier without .aligned counts a warp when all its lanes that have not exited have come, each from where it is.

    1: they have; 0: another path of the warp goes on meanwhile; -1: a fault, none of the others can come.  A path that
    has to wait stands at the instruction, and passes it later when the warp has been counted.
    """
    W.met |= m
    if (W.met | W.exited) & FULL == FULL:
        W.passed |= W.met & ~m
        W.met = 0
        return 1
    d = W.depth - 1
    other = W.stack_mask[d] & ~W.exited if d >= 0 else 0
    if other == 0 or other & W.met or m != W.active or (W.met != m and W.met_slot != slot):
        fault(S, W, F_DIVERGED, first_lane(m), 0, m)
        return -1
    W.met_slot = slot
    pc, rpc = W.pc, W.rpc
    W.pc, W.active, W.rpc = W.stack_pc[d], other, W.stack_rpc[d]
    W.stack_pc[d], W.stack_mask[d], W.stack_rpc[d] = pc, m, rpc
    W.reason = R_WAIT
    st64(S.ready_at + W.slot8, t + 1)
    may_issue(S, W.sub, t + 1)
    return 0


@compiled
def arrive(S: Any, C: Any, W: Any, I: Any, t: int, m: int, sync: int) -> int:
    """Count one warp on barrier `a` with `b` expected threads (0: all of the CTA that have not exited).

    The barrier unit serves one arrival at a time; the last one opens the barrier for all (rule 9:
    a barrier of W warps takes 12.3 + 2 W cycles).
    """
    lane = first_lane(m)
    slot = get32(W, I.a, lane)
    expected = get32(W, I.b, lane)
    if slot > 15:
        fault(S, W, F_BAR_ID, lane, slot, 0)
        return DEFAULT
    if not I.imm and m & W.passed:
        W.passed &= ~m
        return DEFAULT
    if not I.imm:
        met = meet(S, W, slot, m, t)
        if met < 1:
            return RETRY if met == 0 else DEFAULT
    elif not together(S, W, m, FULL):
        return DEFAULT
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    every = expected == 0
    if every:
        expected = c.live * 32
    if expected % 32 != 0 or expected > c.warps * 32:
        fault(S, W, F_BAR_COUNT, lane, slot, expected)
        return DEFAULT
    if c.bar_arrived[slot] != 0 and c.bar_expected[slot] != expected:
        fault(S, W, F_BAR_OVERFLOW, lane, slot, expected)
        return DEFAULT
    c.bar_expected[slot], c.bar_all[slot] = expected, every
    c.bar_arrived[slot] += 32
    record(S, W, E_BAR_SYNC if sync else E_BAR_ARRIVE, W.pc, slot, 32, t)
    served = max(t + (0 if sync else C.bar_hop_cy), S.bar_free + C.bar_serve_cy)
    S.bar_free = served
    if c.bar_arrived[slot] < expected:
        if not sync:
            return DEFAULT
        park(S, W, BLOCK_BAR, R_BARRIER, t)
        W.wait_slot = slot
        return PARK
    opened = open_for(S, C, W, slot, served, t)
    if sync:
        W.dep_ready = max(W.dep_ready, opened)
        W.dep_reason = R_BARRIER
    return DEFAULT


@compiled
def bar_sync(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """bar.sync / barrier.sync."""
    return arrive(S, C, W, I, t, m, 1) if m else DEFAULT


@compiled
def bar_arrive(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """bar.arrive / barrier.arrive."""
    return arrive(S, C, W, I, t, m, 0) if m else DEFAULT


@compiled
def bar_red(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """bar.red: the predicates of the lanes are counted, then a sync."""
    if m == 0:
        return DEFAULT
    slot = get32(W, I.a, first_lane(m))
    if slot < 16 and (I.imm or not m & W.passed):
        p = ld32(W.pred_at + I.pa * 4)
        if I.flip & 2:
            p = ~p
        c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
        for lane in range(32):
            if (m >> lane) & 1:
                c.bar_true[slot] += (p >> lane) & 1
                c.bar_false[slot] += 1 - ((p >> lane) & 1)
    return arrive(S, C, W, I, t, m, 1)


@compiled
def barrier_result(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """What bar.red found: the count (imm 0), whether it held for all (1) or any (2)."""
    held, failed = W.bar_result & FULL, W.bar_result >> 32
    if I.imm == 0:
        for lane in range(32):
            if (m >> lane) & 1:
                st32(W.row_at + I.d * 128 + lane * 4, held)
        return DEFAULT
    value = failed == 0 if I.imm == 1 else held != 0
    at = W.pred_at + I.pd * 4
    st32(at, (ld32(at) & ~m) | (m if value else 0))
    return DEFAULT


@compiled
def setmaxnreg(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """setmaxnreg.dec gives registers to the CTA's pool at once; .inc waits until the pool has enough."""
    wanted = I.imm & 0xFFFF
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    delta = (wanted - W.regs) * 32
    if (I.imm >> 32) & 1:
        if delta < 0:
            fault(S, W, F_SETMAXNREG, 0, wanted, W.regs)
            return DEFAULT
        if c.pool < delta:
            park(S, W, BLOCK_REGISTERS, R_SHORT, t)
            W.wait_slot = 0
            W.wait_aux = delta
            return RETRY
        c.pool -= delta
        record(S, W, E_REGISTERS, W.pc, wanted, delta, t)
        W.regs = wanted
        W.dep_ready = max(W.dep_ready, t + C.setmaxnreg_inc_cy)
        W.dep_reason = R_SHORT
        return DEFAULT
    if delta > 0:
        fault(S, W, F_SETMAXNREG, 0, wanted, W.regs)
        return DEFAULT
    c.pool -= delta
    record(S, W, E_REGISTERS, W.pc, wanted, delta, t)
    W.regs = wanted
    W.dep_ready = max(W.dep_ready, t + C.setmaxnreg_dec_cy)
    W.dep_reason = R_SHORT
    release_registers(S, C, W.cta, t + C.setmaxnreg_dec_cy)
    return DEFAULT


@compiled
def release_registers(S: Any, C: Any, cta: int, t: int) -> None:
    """Let warps that wait for registers try again, oldest first, as far as the pool goes."""
    c = ctas_of(S.cta_at, S.cta_slots)[cta]
    warps = warps_of(S.warp_at, WARP_SLOTS)
    left = c.pool
    for i in range(c.first_warp, c.first_warp + c.warps):
        W = warps[i]
        if W.state == LIVE and W.block == BLOCK_REGISTERS and W.wait_aux <= left:
            left -= W.wait_aux
            wake(S, W, at(S, W, C_OPEN, W.pc, t, t + C.setmaxnreg_wake_cy, t + 1))
