"""mbarrier objects (PTX ISA 9.7.13.15) with the words that an H200 stores.

A live mbarrier is invisible to ordinary loads (seen on an H200); its word lives beside shared memory,
one per 8-byte cell, and goes back to memory at `inval`.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.chip_state import P_ARRIVE, P_TX
from emu.compiled import compiled
from emu.instruction import HAS_D
from emu.raw import ld8, ld32, ld64, st8, st32, st64, view
from emu.stalls import Reason
from emu.state import BLOCK_MBAR, CELL, LIVE, NEVER, WARP_SLOTS
from emu.units.chaos import C_ANSWER, C_WAKE, at, perturb
from emu.units.common import (
    DEFAULT,
    F_MBAR_ALIGN,
    F_MBAR_ARRIVALS,
    F_MBAR_COUNT,
    F_MBAR_INVALID,
    F_MBAR_NO_COMPLETE,
    F_MBAR_TX,
    F_SHARED_RANGE,
    PARK,
    RETRY,
    ctas_of,
    event,
    fault,
    get32,
    get64,
    instrs_of,
    park,
    signed32,
    wake,
    warps_of,
)
from emu.units.history import E_ARRIVE, E_DROP, E_EXPECT, E_INIT, E_PHASE, E_WAITED, record
from emu.units.mbarrier_word import M20, expected_of, make_word, pending_of, phase_of, tx_of
from emu.units.peers import lanes_elsewhere, room, signal

cells_of = view(CELL)
FULL = 0xFFFFFFFF
R_LONG, R_SLEEP, R_BRANCH = int(Reason.LONG_SCOREBOARD), int(Reason.SLEEPING), int(Reason.BRANCH_RESOLVING)


@compiled
def cell(S: Any, W: Any, lane: int, address: int, live: int) -> int:
    """The cell number of an mbarrier operand, or -1 after a fault."""
    offset = (address - W.window) & FULL
    if offset & 7:
        fault(S, W, F_MBAR_ALIGN, lane, offset, 8)
        return -1
    if offset + 8 > S.smem_per_cta:
        fault(S, W, F_SHARED_RANGE, lane, offset, 8)
        return -1
    k = (W.smem_base + offset) >> 3
    if live and not ld8(S.live_at + k):
        fault(S, W, F_MBAR_INVALID, lane, offset, 0)
        return -1
    return int(k)


@compiled
def record_waits(S: Any, W: Any, I: Any, pc: int, m: int, state: int, t: int) -> None:
    """The log's entries of lanes whose wait is over, one a barrier."""
    last = -1
    for lane in range(32):
        if (m >> lane) & 1:
            address = (get32(W, I.a, lane) + signed32(I.imm) - W.window) & FULL
            if address != last:
                parity = (get64(W, I.b, lane) >> 63) & 1 if state else get32(W, I.b, lane) & 1
                record(S, W, E_WAITED, pc, address, parity, t)
                last = address


@compiled
def test(S: Any, W: Any, I: Any, m: int, state: int) -> int:
    """Lanes of `m` whose awaited phase is complete; parks nothing, remembers one cell that is not.

    By parity: the phase with that parity is the one just completed.  By state: the phase of the state
    has passed.
    """
    done = 0
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        k = cell(S, W, lane, get32(W, I.a, lane) + signed32(I.imm), 1)
        if k < 0:
            return m
        parity = (get64(W, I.b, lane) >> 63) & 1 if state else get32(W, I.b, lane) & 1
        if phase_of(ld64(S.mbar_at + k * 8)) != parity:
            done |= 1 << lane
        else:
            W.wait_slot = k
            W.wait_aux = parity
    return done


@njit(inline="always")
def answer(W: Any, I: Any, m: int, done: int) -> None:
    """Write the predicate result."""
    if I.pd:
        at = W.pred_at + I.pd * 4
        st32(at, (ld32(at) & ~m) | (done & m))


@compiled
def wake_waiters(S: Any, C: Any, cta: int, k: int, t: int) -> None:
    """Wake the warps of a CTA that wait on cell `k`, one after the other.

    Diverged lanes are not suspended on silicon: they poll, and the next poll after the end of the phase sees it.
    """
    warps = warps_of(S.warp_at, WARP_SLOTS)
    c = ctas_of(S.cta_at, S.cta_slots)[cta]
    when = t + C.mbar_wake_cy
    for i in range(c.first_warp, c.first_warp + c.warps):
        W = warps[i]
        if W.state == LIVE and W.block == BLOCK_MBAR and W.wait_slot == k:
            I = instrs_of(S.instr_at, S.npc)[W.wait_pc]
            done = test(S, W, I, W.wait_mask, W.wait_state)
            answer(W, I, W.wait_mask, done)
            if done == W.wait_mask:
                record_waits(S, W, I, W.wait_pc, done, W.wait_state, t)
                ready = when
                if W.reason == R_LONG:
                    when += C.mbar_wake_next_cy
                else:
                    polls = (t - W.park_since + C.mbar_poll_cy - 1) // C.mbar_poll_cy
                    ready = W.park_since + polls * C.mbar_poll_cy + I.latency
                wake(S, W, at(S, W, C_WAKE, W.wait_pc, t, ready, t + 1))


@compiled
def settle(S: Any, C: Any, W: Any, k: int, word: int, t: int) -> None:
    """Store a word; when nothing is pending the phase completes, re-arms, and waiters of W's CTA wake."""
    if pending_of(word) == 0 and tx_of(word) == 0:
        expected = expected_of(word)
        word = make_word(expected, 0, expected, 1 - phase_of(word))
        st64(S.mbar_at + k * 8, word)
        cells_of(S.cell_at, S.smem_bytes >> 3)[k].phases += 1
        record(S, W, E_PHASE, W.pc, (k << 3) - W.smem_base, phase_of(word), t)
        wake_waiters(S, C, W.cta, k, t)
    else:
        st64(S.mbar_at + k * 8, word)


@compiled
def complete_tx(S: Any, C: Any, W: Any, k: int, count: int, t: int) -> None:
    """Bytes have arrived: lower tx_count (a bulk copy's signal, or mbarrier.complete_tx)."""
    word = ld64(S.mbar_at + k * 8)
    tx = tx_of(word) - count
    if tx < -M20:
        fault(S, W, F_MBAR_TX, 0, (k << 3) - W.smem_base, tx)
        return
    settle(S, C, W, k, make_word(expected_of(word), tx, pending_of(word), phase_of(word)), t)


@compiled
def mbar_init(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """mbarrier.init: counts 1 .. 2^20-1 (0 and 2^20 store the word 0 on silicon and are refused here)."""
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        k = cell(S, W, lane, get32(W, I.a, lane) + signed32(I.imm), 0)
        if k < 0:
            return DEFAULT
        count = get32(W, I.b, lane)
        if count < 1 or count > M20:
            fault(S, W, F_MBAR_COUNT, lane, (k << 3) - W.smem_base, count)
            return DEFAULT
        st64(S.mbar_at + k * 8, make_word(count, 0, count, 0))
        st8(S.live_at + k, 1)
        beside = cells_of(S.cell_at, S.smem_bytes >> 3)[k]
        beside.init_pc, beside.phases = W.pc, 0
        record(S, W, E_INIT, W.pc, (k << 3) - W.smem_base, count, t)
    return DEFAULT


@compiled
def mbar_inval(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """mbarrier.inval: the word becomes visible memory."""
    for lane in range(32):
        if (m >> lane) & 1:
            k = cell(S, W, lane, get32(W, I.a, lane) + signed32(I.imm), 1)
            if k < 0:
                return DEFAULT
            st8(S.live_at + k, 0)
            st64(S.smem_at + k * 8, ld64(S.mbar_at + k * 8))
    return DEFAULT


@compiled
def arrive_on(S: Any, C: Any, W: Any, k: int, lane: int, amount: int, imm: int, t: int) -> bool:
    """One arrival of `amount`, or with .expect_tx of one after so many bytes; False after a fault."""
    drop, open_end, expect = (imm >> 32) & 1, (imm >> 33) & 1, (imm >> 34) & 1
    word, address = ld64(S.mbar_at + k * 8), (k << 3) - W.smem_base
    count, tx = amount, tx_of(word)
    if expect:
        tx += count
        count = 1
    pending, expected = pending_of(word), expected_of(word)
    if count < 1 or count > pending:
        fault(S, W, F_MBAR_ARRIVALS, lane, address, count)
        return False
    if tx > M20:
        fault(S, W, F_MBAR_TX, lane, address, tx)
        return False
    if open_end and count == pending and tx == 0:
        fault(S, W, F_MBAR_NO_COMPLETE, lane, address, count)
        return False
    if drop:
        expected -= count
    if expect:
        record(S, W, E_EXPECT, W.pc, address, tx - tx_of(word), t)
    record(S, W, E_DROP if drop else E_ARRIVE, W.pc, address, count, t)
    settle(S, C, W, k, make_word(expected, tx, pending - count, phase_of(word)), t)
    return True


@compiled
def signal_elsewhere(S: Any, C: Any, W: Any, I: Any, kind: int, sign: int, m: int, t: int, when: int) -> int:
    """Signal the mbarriers of m's lanes that lie in other CTAs; returns the lanes that are left, or RETRY, DEFAULT after a fault."""
    if not ((I.imm >> 35) & 1 and S.peers):
        return m
    elsewhere = lanes_elsewhere(S, W, I.a, signed32(I.imm), m, 0)
    if elsewhere < 0:
        return DEFAULT
    if elsewhere:
        if not room(S, W, S.peers, t):
            return RETRY
        signal(S, C, W, I, kind, elsewhere, signed32(I.imm), sign, t, when)
    return m & ~elsewhere


@compiled
def mbar_arrive(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """mbarrier.arrive, .arrive_drop, .expect_tx, .noComplete: once per lane, in lane order.

    With .noComplete an arrival that completes the phase is undefined (9.7.13.15.13), here a fault.
    """
    served = max(t + C.mbar_arrive_cy, S.sync_free) + C.mbar_serve_cy
    m = signal_elsewhere(S, C, W, I, P_ARRIVE, 1, m, t, served + C.peer_arrive_cy)
    if m < 0:
        return m
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        k = cell(S, W, lane, get32(W, I.a, lane) + signed32(I.imm), 1)
        if k < 0:
            return DEFAULT
        word = ld64(S.mbar_at + k * 8)
        if not arrive_on(S, C, W, k, lane, get32(W, I.b, lane), I.imm, served):
            return DEFAULT
        if I.flags & HAS_D:
            st32(W.row_at + I.d * 128 + lane * 4, word & FULL)
            st32(W.row_at + I.d * 128 + 128 + lane * 4, (word >> 32) & FULL)
    S.sync_free = served
    S.hold = served - C.mbar_arrive_cy  # the port of all sub-partitions takes one arrival at a time
    return DEFAULT


@compiled
def change_tx(S: Any, C: Any, W: Any, I: Any, t: int, m: int, sign: int) -> int:
    """mbarrier.expect_tx (+) and .complete_tx (-)."""
    m = signal_elsewhere(S, C, W, I, P_TX, sign, m, t, t + C.mbar_arrive_cy + C.peer_arrive_cy)
    if m < 0:
        return m
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        k = cell(S, W, lane, get32(W, I.a, lane) + signed32(I.imm), 1)
        if k < 0:
            return DEFAULT
        if not tx_on(S, C, W, k, lane, sign * get32(W, I.b, lane), t):
            return DEFAULT
    return DEFAULT


@compiled
def tx_on(S: Any, C: Any, W: Any, k: int, lane: int, amount: int, t: int) -> bool:
    """Change the tx-count; False after a fault."""
    word, address = ld64(S.mbar_at + k * 8), (k << 3) - W.smem_base
    tx = tx_of(word) + amount
    if tx > M20 or tx < -M20:
        fault(S, W, F_MBAR_TX, lane, address, tx)
        return False
    record(S, W, E_EXPECT, W.pc, address, amount, t)
    settle(S, C, W, k, make_word(expected_of(word), tx, pending_of(word), phase_of(word)), t)
    return True


@compiled
def mbar_expect_tx(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """mbarrier.expect_tx; one that brings tx_count to 0 with nothing pending completes the phase (H200)."""
    return change_tx(S, C, W, I, t, m, 1)


@compiled
def mbar_complete_tx(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """mbarrier.complete_tx: the signal of a copy without the copy."""
    return change_tx(S, C, W, I, t, m, -1)


@njit(inline="always")
def limit_of(C: Any, W: Any, I: Any, m: int) -> int:
    """Cycles after which a try_wait gives up: its longest hint (nanoseconds), or the machine's own limit."""
    if not (I.imm >> 33) & 1:
        return C.try_wait_limit_cy
    longest = 0
    for lane in range(32):
        if (m >> lane) & 1:
            longest = max(longest, get32(W, I.c, lane))
    return max(longest * C.clock_mhz // 1000, 1)


@compiled
def wait(S: Any, C: Any, W: Any, I: Any, t: int, m: int, state: int) -> int:
    """test_wait answers at once; try_wait suspends until the phase completes or its time is over.

    The result is written when the warp goes on.  Reasons as on silicon: long_scoreboard for a converged warp,
    sleeping for a diverged one with a time hint, branch_resolving for a diverged one that polls.
    """
    if m == 0:
        return DEFAULT
    done = test(S, W, I, m, state)
    test_only = (I.imm >> 32) & 1
    if S.chaos and not test_only and perturb(S, W, C_ANSWER, W.pc, t):
        answer(W, I, m, 0)  # try_wait may return false at any time
        return DEFAULT
    answer(W, I, m, done)
    if done == m or test_only:
        record_waits(S, W, I, W.pc, done, state, t)
        return DEFAULT
    reason = R_LONG
    if (m | W.exited) & FULL != FULL:
        reason = R_SLEEP if (I.imm >> 33) & 1 else R_BRANCH
    park(S, W, BLOCK_MBAR, reason, t)
    W.wait_pc, W.wait_mask, W.wait_state = W.pc, m, state
    W.deadline = t + limit_of(C, W, I, m)
    S.give_up = min(S.give_up, W.deadline)
    event(S, W.deadline)
    return PARK


@compiled
def give_up(S: Any, C: Any, t: int) -> int:
    """Let suspended try_waits whose time is over go on with a false answer; returns the next deadline."""
    nearest = NEVER
    warps = warps_of(S.warp_at, WARP_SLOTS)
    for i in range(WARP_SLOTS):
        W = warps[i]
        if W.state == LIVE and W.block == BLOCK_MBAR:
            if W.deadline <= t:
                wake(S, W, t + 1)
            else:
                nearest = min(nearest, W.deadline)
    return nearest


@compiled
def mbar_wait(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """mbarrier.test_wait.parity and .try_wait.parity."""
    return wait(S, C, W, I, t, m, 0)


@compiled
def mbar_wait_state(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """mbarrier.test_wait and .try_wait with a state."""
    return wait(S, C, W, I, t, m, 1)
