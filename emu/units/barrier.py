"""Named barriers (bar.sync, bar.arrive; PTX ISA 9.7.13.1) and the register pool of setmaxnreg (9.7.19.5)."""

from __future__ import annotations

from typing import Any

from emu.compiled import compiled
from emu.stalls import Reason
from emu.state import BLOCK_BAR, BLOCK_REGISTERS, LIVE, WARP_SLOTS
from emu.units.common import (
    DEFAULT,
    F_BAR_COUNT,
    F_BAR_ID,
    F_BAR_OVERFLOW,
    F_SETMAXNREG,
    PARK,
    RETRY,
    ctas_of,
    fault,
    first_lane,
    get32,
    park,
    together,
    wake,
    wake_where,
    warps_of,
)

FULL = 0xFFFFFFFF
R_BARRIER, R_SHORT = int(Reason.BARRIER), int(Reason.SHORT_SCOREBOARD)


@compiled
def arrive(S: Any, C: Any, W: Any, I: Any, t: int, m: int, sync: int) -> int:
    """Count one warp on barrier `a` with `b` expected threads (0: the whole CTA).

    The barrier unit serves one arrival at a time; the last one opens the barrier for all (rule 9:
    a barrier of W warps takes 12.3 + 2 W cycles).
    """
    lane = first_lane(m)
    if not together(S, W, m, FULL):
        return DEFAULT
    slot = get32(W, I.a, lane)
    expected = get32(W, I.b, lane)
    if slot > 15:
        fault(S, W, F_BAR_ID, lane, slot, 0)
        return DEFAULT
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    if expected == 0:
        expected = c.warps * 32
    if expected % 32 != 0 or expected > c.warps * 32:
        fault(S, W, F_BAR_COUNT, lane, slot, expected)
        return DEFAULT
    if c.bar_arrived[slot] != 0 and c.bar_expected[slot] != expected:
        fault(S, W, F_BAR_OVERFLOW, lane, slot, expected)
        return DEFAULT
    c.bar_expected[slot] = expected
    c.bar_arrived[slot] += 32
    served = max(t + (0 if sync else C.bar_hop_cy), S.bar_free + C.bar_serve_cy)
    S.bar_free = served
    if c.bar_arrived[slot] < expected:
        if not sync:
            return DEFAULT
        park(S, W, BLOCK_BAR, R_BARRIER, t)
        W.wait_slot = slot
        return PARK
    c.bar_arrived[slot] = 0
    opened = served + C.bar_open_cy
    wake_where(S, W.cta, BLOCK_BAR, slot, opened)
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
        W.regs = wanted
        W.dep_ready = max(W.dep_ready, t + C.setmaxnreg_inc_cy)
        W.dep_reason = R_SHORT
        return DEFAULT
    if delta > 0:
        fault(S, W, F_SETMAXNREG, 0, wanted, W.regs)
        return DEFAULT
    c.pool -= delta
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
            wake(S, W, t + C.setmaxnreg_wake_cy)
