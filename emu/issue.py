"""The hot half of the cycle loop: selection, accounting, operands and results of one issue.

Counted in instructions: what is written here runs for every warp instruction, so small state lies in
plain memory that is reached by address, and rare cases leave early.

Accounting: a warp's cycles since its last issue are charged when it issues again, to the encoded gap
(`wait`), then what its operands waited for, then the busy pipe, then the register-port arbitration,
and what is left to `not_selected`; the issuing cycle is `selected`.  Charges go to the warp and to the
instruction that could not issue.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.instruction import BRANCH, DEPS, LOADS, REGS
from emu.raw import ld16, ld32, ld64, st32, st64
from emu.stalls import Reason
from emu.state import HOT, NEVER, PIPES, REASONS, WARP_SLOTS
from emu.units.common import warps_of
from emu.units.sharing import tensor_busy

R_SELECTED, R_NOT_SELECTED = int(Reason.SELECTED), int(Reason.NOT_SELECTED)
R_WAIT, R_DISPATCH, R_MATH = int(Reason.WAIT), int(Reason.DISPATCH_STALL), int(Reason.MATH_PIPE_THROTTLE)


# ---- accounting ------------------------------------------------------------------------------------


@njit(inline="always")
def charge(S: Any, W: Any, pc: int, reason: int, cycles: int) -> None:
    """Charge warp-cycles to a reason, per warp and per instruction."""
    at = W.stall_at + reason * 8
    st64(at, ld64(at) + cycles)
    at = S.hot_at + (pc * HOT + reason) * 4
    if reason >= HOT:
        at = S.cold_at + (pc * (REASONS - HOT) + reason - HOT) * 4
    st32(at, ld32(at) + cycles)


@njit(inline="always")
def settle(S: Any, W: Any, I: Any, pc: int, t: int, ready: int, pipe_until: int, port_until: int) -> None:
    """Charge the cycles since the last issue, up to `t` (exclusive); most are the encoded gap's."""
    n = W.last + 1
    if n < t:
        gap = max(min(W.gap_until, t), n)
        if gap > n:
            charge(S, W, pc, R_WAIT, gap - n)
        if gap < t:
            settle_rest(S, W, pc, t, gap, ready, pipe_until, port_until, I.interval)


@compiled
def settle_rest(
    S: Any, W: Any, pc: int, t: int, n: int, ready: int, pipe_until: int, port_until: int, interval: int
) -> None:
    """Charge cycles from `n` on, which lie behind the encoded gap.

    A pipe of `interval` cycles that others keep busy took one of them in each interval's first cycle,
    which was a matter of selection (H200: half and half on a half-rate pipe, no throttle at full rate).
    """
    x = min(ready, t)
    if x > n:
        charge(S, W, pc, W.reason, x - n)
        n = x
    x = min(pipe_until, t)
    if x > n:
        taken = 0
        if W.nthrottle == R_MATH or W.nthrottle == R_DISPATCH:
            taken = (x - n) // max(interval, 1)
            charge(S, W, pc, R_NOT_SELECTED, taken)
        charge(S, W, pc, W.nthrottle, x - n - taken)
        n = x
    x = min(port_until, t)
    if x > n:
        charge(S, W, pc, R_DISPATCH if W.streak > 0 else R_WAIT, x - n)
        n = x
    if t > n:
        charge(S, W, pc, R_NOT_SELECTED, t - n)


# ---- operands and results --------------------------------------------------------------------------


@njit(inline="always")
def operands(S: Any, W: Any, J: Any, gap_until: int) -> None:
    """What selection looks at: the warp's next instruction J, its operands there after the encoded gap."""
    W.dep_ready = gap_until
    W.nthrottle = J.throttle
    st64(S.next_at + W.slot8, (W.sub * PIPES + J.pipe) * 8 + (1 if J.flags & REGS else 0))


@compiled
def gated_operands(S: Any, C: Any, W: Any, J: Any, gap_until: int) -> None:
    """When, and because of what, J has operands that encoded gaps do not cover."""
    latest = ld64(W.time_at + J.dep[0] * 8)
    for k in range(1, DEPS):
        latest = max(latest, ld64(W.time_at + J.dep[k] * 8))
    if J.ng:
        for k in range(J.nd + J.ns, J.nd + J.ns + J.ng):
            latest = max(latest, ld64(W.time_at + ld16(S.list_at + 2 * (J.list + k)) * 8))
    if J.flags & BRANCH and J.guard:  # which must be there earlier
        x = (ld64(W.time_at + (S.const_first + J.guard) * 8) >> 8) + C.branch_guard_cy
        if x > latest >> 8 and x > gap_until:
            latest = x << 8 | R_WAIT
    W.dep_ready = max(latest >> 8, gap_until)
    W.dep_reason = latest & 255


@compiled
def result_times(S: Any, W: Any, I: Any, when: int) -> None:
    """Set the ready times of an instruction's results."""
    stamp = (when << 8) | I.reason
    st64(W.time_at + I.res[0] * 8, stamp)
    st64(W.time_at + I.res[1] * 8, stamp)
    if I.flags & LOADS:
        for k in range(I.nd):
            st64(W.time_at + ld16(S.list_at + 2 * (I.list + k)) * 8, stamp)
    elif I.pd2:
        st64(W.time_at + I.res[2] * 8, stamp)
        st64(W.time_at + I.res[3] * 8, stamp)


# ---- selection -------------------------------------------------------------------------------------


@njit(inline="always")
def pick(S: Any, C: Any, s: int, t: int) -> int:
    """The warp that sub-partition `s` issues from in cycle `t`: of those that can, the one that has waited longest.

    While the tensor core runs, an instruction that uses the register file's ports needs their next free
    slot; an unbroken stream keeps the ports and goes first.  (Greedy selection, which simulators assume, lets
    one of two softmax warps hold the special-function unit: kernels with two warpgroups then come out up to
    22 % off an H200, all within 14 % so.)

    Returns 8 times its slot, or -1; `sub_next` becomes the next cycle in which one of the others might issue.
    """
    last = S.sub_last[s]
    busy = tensor_busy(S, t)
    if S.sub_others[s] > t:
        return alone(S, C, s, t, last, min(S.grant_next[s], S.mma_busy_end) if busy else 0)
    return scan(S, C, s, t, last, min(S.grant_next[s], S.mma_busy_end) if busy else S.port_next[s], busy)


@njit(inline="always")
def alone(S: Any, C: Any, s: int, t: int, last: int, port: int) -> int:
    """`pick` where only the warp that issued last can be ready."""
    following = ld64(S.next_at + last)
    g = max(ld64(S.ready_at + last), ld64(S.free_at + (following & -8)))
    if following & 1 and port > t and not streams(S, C, last >> 3):
        g = max(g, port)
    others = S.sub_others[s]
    S.sub_next[s] = others if g <= t else min(others, g)
    return last if g <= t else -1


@njit(inline="always")
def scan(S: Any, C: Any, s: int, t: int, last: int, port: int, busy: bool) -> int:
    """`pick` among all warps; with minima instead of branches, which would not predict."""
    stream = last >= 0 and (port > 0 and streams(S, C, last >> 3) if busy else port > t)
    barred = 0 if busy or last < 0 else starved(S, C, s, t, last)
    was_free = ld64(barred) if barred else 0
    if barred:
        st64(barred, max(was_free, t + 1))
    best, best_at, soonest = NEVER, NEVER, NEVER
    at = S.order_at + s * (WARP_SLOTS // 4 * 8)
    for k in range(S.sub_count[s]):
        slot8 = ld64(at + k * 8)
        ready = ld64(S.ready_at + slot8)
        following = ld64(S.next_at + slot8)
        g = max(ready, ld64(S.free_at + (following & -8)))
        keeps = slot8 == last and stream
        if following & 1 and not keeps:
            g = max(g, port)
        key = ((0 if keeps else ready + 1) << 10 | slot8) if g <= t else NEVER
        first = key < best
        soonest = min(soonest, best_at if first else g)
        best_at = g if first else best_at
        best = min(best, key)
    if barred:
        st64(barred, was_free)
    S.sub_next[s] = S.sub_others[s] = max(soonest, t + 1)
    return best & 1023 if best < NEVER else -1


@compiled
def streams(S: Any, C: Any, slot: int) -> bool:
    """Whether a warp is in a long stream of one instruction a cycle, which keeps the ports."""
    return bool(warps_of(S.warp_at, WARP_SLOTS)[slot].streak >= C.stream_length)


@njit(inline="always")
def starved(S: Any, C: Any, s: int, t: int, last: int) -> int:
    """Where the tensor core's pipe says when it is free, while the warp that issued last goes on with a stream that
    leaves no ports to mma.sync of others; else 0."""
    if warps_of(S.warp_at, WARP_SLOTS)[last >> 3].streak < C.mma_stream or ld64(S.ready_at + last) > t:
        return 0
    pipe = s * PIPES * 8 + S.tensor_pipe
    following = ld64(S.next_at + last) & -8
    return int(S.free_at + pipe) if following != pipe and ld64(S.free_at + following) <= t else 0
