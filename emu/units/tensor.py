"""The tensor core as wgmma uses it (PTX ISA 9.7.15; rules 1 to 4 of the H200 measurements).

One queue serves all warpgroups, first come, first served; a wgmma enters when the first warp of its warpgroup issues
it, starts when all four have, and leaves when its pass through the tensor core ends.  Only the first warp waits for room;
the others go on and wait at the next wgmma.fence or wgmma.wait_group (clocks of all four in `tools.calibrate.groups`).
(Recorded timelines of two warpgroups: the completions follow the order of issue, also where one warpgroup issued twice in a
row.  Warpgroups that find the queue full take turns, which makes them alternate.)  Read window: operands are
read from shared memory (and, for A fragments, from registers) until completion.  Write moment: D
appears in the registers at completion, in queue order.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.raw import ld32, st64
from emu.stalls import Reason
from emu.state import (
    BLOCK_MMA_FENCE,
    BLOCK_MMA_QUEUE,
    BLOCK_MMA_WAIT,
    FLY,
    GROUPS,
    LIVE,
    NEVER,
    RING,
    WARP_SLOTS,
    WARPGROUPS,
)
from emu.units.chaos import C_MMA, C_OPEN, at
from emu.units.common import (
    DEFAULT,
    F_DESCRIPTOR,
    F_DIVERGED,
    F_WG_MISMATCH,
    PARK,
    RETRY,
    event,
    fault,
    get64,
    park,
    wake,
    warps_of,
    wgroups_of,
)
from emu.units.tensor_math import wgmma
from emu.units.tensor_panels import KIND_E4M3, KIND_E5M2
from emu.units.tensor_silicon import FULL

R_GMMA, R_BARRIER, R_MIO = int(Reason.GMMA), int(Reason.BARRIER), int(Reason.MIO_THROTTLE)


@njit(inline="always")
def columns(word: int) -> int:
    """N of a wgmma word."""
    return word & 0x1FF


@njit(inline="always")
def from_registers(word: int) -> int:
    """1 when A comes from registers."""
    return (word >> 21) & 1


# ---- issue ---------------------------------------------------------------------------------------


@compiled
def wgmma_mma(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """Put one wgmma.mma_async into the warpgroup's queue; the last of its warps makes it ready."""
    if m == 0:
        return DEFAULT
    own = W.slot >> 2
    g = wgroups_of(S.wg_at, WARPGROUPS)[own]
    seq, leads = W.mma_issued, W.slot & 3 == 0
    if (leads and S.mma_queued >= C.mma_queue) or seq - g.done >= RING:
        S.mma_parked = 1
        park(S, W, BLOCK_MMA_QUEUE, R_MIO, t)
        return RETRY
    if m != W.active or (W.active | W.exited) & 0xFFFFFFFF != 0xFFFFFFFF or W.exited:
        fault(S, W, F_DIVERGED, 0, 0, m)
        return DEFAULT
    word, k = I.imm, seq & (RING - 1)
    desc_a, desc_b = 0, get64(W, I.a, 0)
    if not from_registers(word):
        desc_a, desc_b = desc_b, get64(W, I.b, 0)
    p = ld32(W.pred_at + I.pa * 4) & 1
    if I.flip & 2:
        p = 1 - p
    if g.arrived[k] == 0:
        g.word[k], g.desc_a[k], g.desc_b[k], g.scale_d[k] = word, desc_a, desc_b, p
        g.list[k], g.nd[k], g.pc[k] = I.list, I.nd, W.pc
    elif g.pc[k] != W.pc or g.desc_a[k] != desc_a or g.desc_b[k] != desc_b or g.scale_d[k] != p:
        fault(S, W, F_WG_MISMATCH, 0, desc_b, g.pc[k])
        return DEFAULT
    g.arrived[k] += 1
    W.mma_issued = seq + 1
    g.issued = max(g.issued, seq + 1)
    if leads:
        S.mma_queued += 1
    if g.arrived[k] == 4:
        g.ready[k] = at(S, W, C_MMA, W.pc, t, t + C.mma_start_cy, t + 1)
        event(S, g.ready[k])
    S.hold = t + max(C.mma_spacing_min, (columns(word) - C.mma_spacing_less) // C.mma_spacing_per)
    return DEFAULT


@compiled
def wgmma_fence(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """wgmma.fence: a rendezvous of the warpgroup's four warps (seen on an H200)."""
    if m == 0:
        return DEFAULT
    own = W.slot >> 2
    g = wgroups_of(S.wg_at, WARPGROUPS)[own]
    g.fence_count += 1
    if g.fence_count < 4:
        park(S, W, BLOCK_MMA_FENCE, R_GMMA, t)
        return PARK
    g.fence_count = 0
    wake_group(S, own, BLOCK_MMA_FENCE, t + C.mma_fence_cy, NEVER)
    W.dep_ready = max(W.dep_ready, t + C.mma_fence_cy)
    return DEFAULT


@compiled
def wgmma_commit(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """wgmma.commit_group: everything issued so far belongs to closed groups; waits until registers are read."""
    if m:
        W.group_end[W.mma_group & (GROUPS - 1)] = W.mma_issued
        W.mma_group += 1
        last = wgroups_of(S.wg_at, WARPGROUPS)[W.slot >> 2].word[(W.mma_issued - 1) & (RING - 1)]
        W.dep_ready = t + C.mma_commit_cy + (C.mma_rs_commit_cy if from_registers(last) else 0)
    return DEFAULT


@compiled
def wgmma_wait(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """wgmma.wait_group N: until at most the N newest groups are pending."""
    if m == 0 or W.mma_group <= I.imm:
        return DEFAULT
    need = W.group_end[(W.mma_group - 1 - I.imm) & (GROUPS - 1)]
    if wgroups_of(S.wg_at, WARPGROUPS)[W.slot >> 2].done >= need:
        return DEFAULT
    park(S, W, BLOCK_MMA_WAIT, R_BARRIER, t)
    W.wait_aux = need
    return PARK


@compiled
def wake_group(S: Any, group: int, block: int, when: int, limit: int) -> None:
    """Wake the warps of a warpgroup parked on `block` whose `wait_aux` is at most `limit`."""
    warps = warps_of(S.warp_at, WARP_SLOTS)
    for i in range(4 * group, 4 * group + 4):
        W = warps[i]
        if W.state == LIVE and W.block == block and (limit == NEVER or W.wait_aux <= limit):
            wake(S, W, when)


# ---- advance -------------------------------------------------------------------------------------


@compiled
def wake_longest(S: Any, when: int) -> None:
    """Wake the first warp of the warpgroup that has waited longest for room in the queue."""
    if not S.mma_parked:
        return
    warps = warps_of(S.warp_at, WARP_SLOTS)
    since, first = NEVER, -1
    for i in range(0, WARP_SLOTS, 4):
        W = warps[i]
        if W.state == LIVE and W.block == BLOCK_MMA_QUEUE and W.park_since < since:
            since, first = W.park_since, i
    if first >= 0:
        wake(S, warps[first], when)
    else:
        S.mma_parked = 0


@compiled
def start(S: Any, C: Any, t: int) -> int:
    """Give the idle tensor core its next wgmma, the one that was issued first; returns when to look again."""
    groups = wgroups_of(S.wg_at, WARPGROUPS)
    k, when = -1, NEVER
    for i in range(WARPGROUPS):
        g = groups[i]
        j = g.started & (RING - 1)
        if g.started < g.issued and g.arrived[j] == 4 and g.ready[j] < when:
            k, when = i, g.ready[j]
    if when > t:
        return int(when)
    g = groups[k]
    j = g.started & (RING - 1)
    n, rs = columns(g.word[j]), from_registers(g.word[j])
    compute = (n * C.mma_column_cy256) >> 8
    port = (n * C.mma_b_port_cy256 >> 8) + (0 if rs else C.mma_a_port_cy)
    length = max(compute, max(port, C.mma_rs_min_cy if rs else 0))
    S.mma_wg, S.mma_rs = k, rs
    S.mma_start, S.mma_end, S.mma_busy_end = t, t + length, t + compute
    S.mma_port_num, S.mma_port_den, S.mma_delay = port, length, 0
    for s in range(4):
        S.stolen[s] = 0
    S.tensor_cycles += compute
    g.started += 1
    return int(S.mma_end)


@compiled
def rounding(S: Any, C: Any, kind: int) -> Any:
    """What the fused dot product of an operand kind keeps: (bits below the largest term, fraction bits of a result)."""
    if not S.silicon:
        return 0, FULL
    if kind == KIND_E4M3 or kind == KIND_E5M2:
        return C.mma_f8_fraction, C.mma_f8_kept
    return C.mma_fraction, FULL


@compiled
def complete(S: Any, C: Any, group: int, t: int) -> None:
    """Compute and write D of a warpgroup's oldest wgmma, then wake who waits for it."""
    g = wgroups_of(S.wg_at, WARPGROUPS)[group]
    k = g.done & (RING - 1)
    warps = warps_of(S.warp_at, WARP_SLOTS)
    W = warps[4 * group]
    for i in range(4):
        st64(S.window_at + i * 8, warps[4 * group + i].row_at)
    code = wgmma(
        g.word[k], S.window_at, S.list_at + 2 * g.list[k], g.nd[k], S.smem_at + W.smem_base, S.smem_per_cta,
        g.desc_a[k], g.desc_b[k], g.scale_d[k], S.scratch_at, *rounding(S, C, g.word[k] >> 12 & 15),
    )  # fmt: skip
    if code != 0:
        fault(S, W, F_DESCRIPTOR, 0, g.desc_b[k], code)
        S.fault_pc = g.pc[k]
    g.arrived[k] = 0
    g.done += 1
    S.mma_count += 1
    if g.issued - g.done == RING - 1:
        wake_group(S, group, BLOCK_MMA_QUEUE, t, NEVER)  # its own ring has room again
    wake_group(S, group, BLOCK_MMA_WAIT, at(S, W, C_OPEN, W.pc, t, t + C.mma_wake_cy, t + 1), g.done)


@compiled
def advance(S: Any, C: Any, t: int) -> int:
    """End, complete and start wgmma that are due; returns the next cycle of interest."""
    if S.mma_wg >= 0 and t >= S.mma_end:
        k = S.fly_tail & (FLY - 1)
        W = warps_of(S.warp_at, WARP_SLOTS)[4 * S.mma_wg]
        end = S.mma_busy_end + (C.mma_rs_latency_cy if S.mma_rs else C.mma_latency_cy)
        S.fly_time[k] = at(S, W, C_MMA, W.pc, t, end, S.mma_busy_end)
        S.fly_wg[k] = S.mma_wg
        S.fly_tail += 1
        S.mma_wg = -1
        S.mma_queued -= 1
        wake_longest(S, t)
    while S.fly_head < S.fly_tail and S.fly_time[S.fly_head & (FLY - 1)] <= t:
        complete(S, C, S.fly_wg[S.fly_head & (FLY - 1)], t)
        S.fly_head += 1
    look = S.mma_end if S.mma_wg >= 0 else start(S, C, t)
    if S.fly_head < S.fly_tail:
        look = min(look, S.fly_time[S.fly_head & (FLY - 1)])
    return int(look)
