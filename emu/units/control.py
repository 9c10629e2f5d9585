"""Control flow and warp-level operations: branches with reconvergence, exit, votes, shuffles, specials.

Divergence keeps a stack per warp: the two sides of a branch run one after the other and join at the
immediate post-dominator, which the assembler computed.  (Hardware since Volta may interleave them;
programs that need one side to make progress for the other within a warp are outside the model.)
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.instruction import HAS_D, PAIR
from emu.raw import ld16, ld32, st32
from emu.stalls import Reason
from emu.state import STACK, WARP_SLOTS
from emu.units import l1
from emu.units.common import (
    DEFAULT,
    F_STACK,
    F_TRAP,
    ctas_of,
    fault,
    first_lane,
    get32,
    members,
)
from emu.units.hazards import show
from emu.units.history import E_EXIT, record
from emu.units.opening import cluster_came
from emu.units.sharing import return_cost
from isa.ops.special import CLOCK64, SPECIAL
from isa.program import SHARED_BASE

FULL = 0xFFFFFFFF
R_WAIT, R_SLEEP, R_MEMBAR = int(Reason.WAIT), int(Reason.SLEEPING), int(Reason.MEMBAR)


@njit(inline="always")
def push(S: Any, W: Any, pc: int, mask: int, rpc: int) -> None:
    """Remember a path to run later."""
    if W.depth >= STACK:
        fault(S, W, F_STACK, 0, 0, STACK)
        return
    W.stack_pc[W.depth] = pc
    W.stack_mask[W.depth] = mask
    W.stack_rpc[W.depth] = rpc
    W.depth += 1


@compiled
def pop(W: Any) -> bool:
    """Continue with the next remembered path that still has lanes; False when none is left."""
    while W.depth > 0:
        W.depth -= 1
        mask = W.stack_mask[W.depth] & ~W.exited
        if mask != 0:
            W.active = mask
            W.pc = W.stack_pc[W.depth]
            W.rpc = W.stack_rpc[W.depth]
            if W.pc != W.rpc:
                return True
    return False


@compiled
def bra(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """Branch the lanes of `m`; the issue loop advances the others and joins paths."""
    active = int(W.active)
    if m == 0:
        W.pc += 1
    elif m == active:
        W.pc = I.target
    else:
        join = I.reconv
        if join != W.rpc or W.depth == 0:
            push(S, W, join, active, W.rpc)
            W.rpc = join
        if W.pc + 1 != join:
            push(S, W, W.pc + 1, active & ~m, join)
        if I.target == join:
            pop(W)
        else:
            W.pc = I.target
            W.active = m
    return DEFAULT


@compiled
def exit(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """End the lanes of `m`; the issue loop retires the warp when no lane is left."""
    W.exited |= m
    W.active &= ~m
    pc = W.pc
    W.came &= ~m
    if W.came and (W.came | W.exited) & FULL == FULL:
        cluster_came(S, C, W, t)
    if W.active != 0:
        W.pc += 1
    elif not pop(W):
        record(S, W, E_EXIT, pc, 0, 0, t)
        W.pc = -1
    return DEFAULT


@compiled
def nop(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """Nothing (PTX ISA: hints)."""
    return DEFAULT


@compiled
def trap(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """trap, brkpt: stop the program with a fault."""
    if m:
        fault(S, W, F_TRAP, first_lane(m), 0, 0)
    return DEFAULT


@compiled
def nanosleep(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """Suspend for about `a` nanoseconds (PTX ISA 9.7.13.7: between 0 and twice the argument)."""
    if m == 0:
        return DEFAULT
    longest = 0
    for lane in range(32):
        if (m >> lane) & 1:
            longest = max(longest, get32(W, I.a, lane))
    W.dep_reason = R_SLEEP
    W.dep_ready = t + C.nanosleep_min + (longest * C.clock_mhz) // 1000
    return DEFAULT


@compiled
def fence(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """Fences change no value here; they hold the warp for their latency and pass one port of the SM.

    A fence makes as many trips as its class has cycles of interval (fence.proxy.async: MEMBAR and FENCE.VIEW).  One that
    reaches beyond the SM ends when the chip has seen the stores before it, so that what follows does not use old data.
    """
    show(W)
    S.fence_free = max(t << 8, S.fence_free) + I.interval * C.fence_port_cy256
    W.dep_reason = I.reason
    W.dep_ready = max(t + I.latency, (S.fence_free + 255) >> 8)
    if I.reason == R_MEMBAR:
        W.dep_ready = max(W.dep_ready, S.stored + C.answer_cy, S.acknowledged)
    return DEFAULT


@compiled
def membar(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """A fence for others than the CTA: it waits until the SM's last stores are known to have arrived, and empties the L1."""
    fence(S, C, W, I, t, m)
    if m:
        l1.empty(S)
    W.dep_ready = max(W.dep_ready, S.stored + (I.latency * C.fence_stored256 >> 8))
    return DEFAULT


@compiled
def warpsync(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """bar.warp.sync: lanes of the mask must be here together (paths join at post-dominators)."""
    members(S, W, I.a, m)
    return DEFAULT


@compiled
def elect(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """elect.sync: the lowest lane of the mask (seen on an H200)."""
    if not members(S, W, I.a, m):
        return DEFAULT
    mask = get32(W, I.a, first_lane(m))
    leader = first_lane(mask & ~W.exited)
    if I.flags & HAS_D:
        for lane in range(32):
            if (m >> lane) & 1:
                st32(W.row_at + I.d * 128 + lane * 4, leader)
    if I.pd:
        at = W.pred_at + I.pd * 4
        st32(at, (ld32(at) & ~m) | ((1 << leader) & m))
    return DEFAULT


@compiled
def vote(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """vote.sync all, any, uni, ballot over the executing lanes."""
    if not members(S, W, ld16(S.list_at + 2 * I.list), m):
        return DEFAULT
    p = ld32(W.pred_at + I.pa * 4)
    if I.flip & 2:
        p = ~p
    p &= m
    if I.imm == 3:
        for lane in range(32):
            if (m >> lane) & 1:
                st32(W.row_at + I.d * 128 + lane * 4, p)
        return DEFAULT
    value = (I.imm == 0 and p == m) or (I.imm == 1 and p != 0) or (I.imm == 2 and (p == m or p == 0))
    at = W.pred_at + I.pd * 4
    st32(at, (ld32(at) & ~m) | (m if value else 0))
    return DEFAULT


@compiled
def shfl(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """shfl.sync (PTX ISA 9.7.9.6); an inactive source lane gives its register as it is."""
    if not members(S, W, ld16(S.list_at + 2 * I.list), m):
        return DEFAULT
    source = W.row_at + I.a * 128
    got = 0
    values = W.row_at + S.shuffle_row * 128
    for lane in range(32):
        b = get32(W, I.b, lane)
        c = get32(W, I.c, lane)
        segment = (c >> 8) & 31
        clamp = c & 31
        low = lane & segment
        high = low | (clamp & ~segment & 31)
        b &= 31
        if I.imm == 0:
            j = lane - b
            inside = j >= high
        elif I.imm == 1:
            j = lane + b
            inside = j <= high
        elif I.imm == 2:
            j = lane ^ b
            inside = j <= high
        else:
            j = low | (b & ~segment & 31)
            inside = j <= high
        if not inside:
            j = lane
        else:
            got |= 1 << lane
        st32(values + lane * 4, ld32(source + j * 4))
    for lane in range(32):
        if (m >> lane) & 1:
            st32(W.row_at + I.d * 128 + lane * 4, ld32(values + lane * 4))
    if I.pd:
        at = W.pred_at + I.pd * 4
        st32(at, (ld32(at) & ~m) | (got & m))
    return int(I.latency) + return_cost(S, C, t, 1)


def _index(name: str) -> int:
    return SPECIAL.index(name)


TID_X, TID_Y, TID_Z = _index("%tid.x"), _index("%tid.y"), _index("%tid.z")
NTID_X, NTID_Y, NTID_Z = _index("%ntid.x"), _index("%ntid.y"), _index("%ntid.z")
CTAID_X, CTAID_Y, CTAID_Z = _index("%ctaid.x"), _index("%ctaid.y"), _index("%ctaid.z")
NCTAID_X, NCTAID_Y, NCTAID_Z = _index("%nctaid.x"), _index("%nctaid.y"), _index("%nctaid.z")
LANEID, WARPID, NWARPID = _index("%laneid"), _index("%warpid"), _index("%nwarpid")
SMID, NSMID = _index("%smid"), _index("%nsmid")
LM_EQ, LM_LE, LM_LT = _index("%lanemask_eq"), _index("%lanemask_le"), _index("%lanemask_lt")
LM_GE, LM_GT = _index("%lanemask_ge"), _index("%lanemask_gt")
CLOCK_HI = _index("%clock_hi")
DYN_SMEM, TOTAL_SMEM = _index("%dynamic_smem_size"), _index("%total_smem_size")
AGGREGATE_SMEM = _index("%aggr_smem_size")
CLUSTERID, NCLUSTERID = _index("%clusterid.x"), _index("%nclusterid.x")
CLUSTER_CTAID, CLUSTER_NCTAID = _index("%cluster_ctaid.x"), _index("%cluster_nctaid.x")
CLUSTER_RANK, CLUSTER_SIZE = _index("%cluster_ctarank"), _index("%cluster_nctarank")
EXPLICIT_CLUSTER = _index("%is_explicit_cluster")


@compiled
def special(S: Any, W: Any, which: int, lane: int) -> int:
    """The value of a special register in a lane (PTX ISA section 10)."""
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    thread = W.index * 32 + lane
    nx, ny = S.ntid[0], S.ntid[1]
    if which == TID_X:
        return thread % nx
    if which == TID_Y:
        return (thread // nx) % ny
    if which == TID_Z:
        return thread // (nx * ny)
    if which == NTID_X or which == NTID_Y or which == NTID_Z:
        return S.ntid[0 if which == NTID_X else (1 if which == NTID_Y else 2)]
    if which == CTAID_X or which == CTAID_Y or which == CTAID_Z:
        return c.ctaid[0 if which == CTAID_X else (1 if which == CTAID_Y else 2)]
    if which == NCTAID_X or which == NCTAID_Y or which == NCTAID_Z:
        return S.nctaid[0 if which == NCTAID_X else (1 if which == NCTAID_Y else 2)]
    if which == LANEID:
        return lane
    if which == WARPID:
        return W.index
    if which == NWARPID:
        return WARP_SLOTS
    if which == SMID:
        return S.sm_id
    if which == NSMID:
        return S.sms
    if which == LM_EQ:
        return 1 << lane
    if which == LM_LT:
        return (1 << lane) - 1
    if which == LM_LE:
        return (2 << lane) - 1
    if which == LM_GE:
        return FULL & ~((1 << lane) - 1)
    if which == LM_GT:
        return FULL & ~((2 << lane) - 1)
    if which == DYN_SMEM:
        return S.smem_dynamic
    if which == AGGREGATE_SMEM:
        return S.smem_static + S.smem_dynamic + SHARED_BASE
    if which == TOTAL_SMEM:
        return S.smem_static + S.smem_dynamic
    if which == EXPLICIT_CLUSTER:
        return S.explicit_cluster
    if which == CLUSTER_RANK:
        return c.rank
    if which == CLUSTER_SIZE:
        return S.cluster[0] * S.cluster[1] * S.cluster[2]
    for d in range(3):  # the components of a vector follow each other
        if which == CLUSTERID + d:
            return c.ctaid[d] // S.cluster[d]
        if which == NCLUSTERID + d:
            return S.nctaid[d] // S.cluster[d]
        if which == CLUSTER_CTAID + d:
            return c.ctaid[d] % S.cluster[d]
        if which == CLUSTER_NCTAID + d:
            return S.cluster[d]
    return 0


@compiled
def s2r(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """Read a 32-bit special register."""
    for lane in range(32):
        if (m >> lane) & 1:
            st32(W.row_at + I.d * 128 + lane * 4, special(S, W, I.imm, lane))
    return DEFAULT


@compiled
def clock(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """%clock64, %globaltimer (nanoseconds at the machine's clock), or a half of the clock (imm: SPECIAL index)."""
    if not I.flags & PAIR:
        value = t >> 32 if I.imm == CLOCK_HI else t
        for lane in range(32):
            if (m >> lane) & 1:
                st32(W.row_at + I.d * 128 + lane * 4, value)
        return DEFAULT
    value = t if I.imm == CLOCK64 else (t * 1000) // C.clock_mhz
    for lane in range(32):
        if (m >> lane) & 1:
            st32(W.row_at + I.d * 128 + lane * 4, value & FULL)
            st32(W.row_at + I.d * 128 + 128 + lane * 4, (value >> 32) & FULL)
    return DEFAULT


@compiled
def activemask(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """activemask: the executing lanes."""
    for lane in range(32):
        if (m >> lane) & 1:
            st32(W.row_at + I.d * 128 + lane * 4, m)
    return DEFAULT
