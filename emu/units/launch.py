"""CTAs on one SM: a slot each; a slot that is free again asks the chip for the next one."""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.chip_state import ASK_CTA, REQUESTS
from emu.compiled import compiled
from emu.copy_state import LOAD, SEND_READING, STORE_READING
from emu.instruction import REGS
from emu.raw import copy, fill, ld64, st32, st64
from emu.stalls import Reason
from emu.state import (
    ASKED,
    BLOCK_NONE,
    COPIES,
    DONE,
    GIVEN,
    JOBS,
    LIVE,
    NEVER,
    PIPES,
    RING,
    SUBPARTITIONS,
    TC_RING,
    TMEM_PARTS,
    WARP_SLOTS,
    WARPGROUPS,
)
from emu.units import chaos
from emu.units.common import (
    F_TMEM_LEAK,
    commands_of,
    copies_of,
    ctas_of,
    fault,
    instrs_of,
    jobs_of,
    may_issue,
    warps_of,
    wgroups_of,
)
from emu.units.opening import cluster_left, left
from emu.units.requests import request, requests_of
from isa.program import RANK_BIT

R_NO_INSTRUCTION = int(Reason.NO_INSTRUCTION)


@compiled
def start_cta(S: Any, C: Any, slot: int, t: int) -> None:
    """Start the CTA that a slot was given."""
    c = ctas_of(S.cta_at, S.cta_slots)[slot]
    number = c.id
    nx, ny = S.nctaid[0], S.nctaid[1]
    c.state, c.began = LIVE, t
    c.ctaid[0], c.ctaid[1], c.ctaid[2] = number % nx, (number // nx) % ny, number // (nx * ny)
    c.rank, c.cluster_phase, c.cluster_came = rank_of(S, c), 0, 0
    room = (S.warps_per_cta + 3) // 4 * 4
    c.first_warp, c.warps, c.live, c.pool = slot * room, S.warps_per_cta, S.warps_per_cta, 0
    c.smem_base, c.born, c.tmem_closed = slot * S.smem_per_cta, t, 0
    for k in range(16):
        c.bar_arrived[k] = 0
        c.bar_true[k], c.bar_false[k] = 0, 0
    fill(S.live_at + (c.smem_base >> 3), S.smem_per_cta >> 3)
    if S.marked_at:
        fill(S.marked_at + (c.smem_base >> 7), S.smem_per_cta >> 7)
    groups = wgroups_of(S.wg_at, WARPGROUPS)
    for k in range(slot * room // 4, (slot + 1) * room // 4):
        g = groups[k]
        g.issued, g.done, g.started, g.fence_count = 0, 0, 0, 0
        for q in range(len(g.arrived)):
            g.arrived[q] = 0
    for i in range(S.warps_per_cta):
        start_warp(S, slot, i, t + i * C.warp_start_cy)


@njit(inline="always")
def rank_of(S: Any, c: Any) -> int:
    """A CTA's rank in its cluster: x runs first (PTX ISA 10, %cluster_ctarank)."""
    x, y, z = c.ctaid[0] % S.cluster[0], c.ctaid[1] % S.cluster[1], c.ctaid[2] % S.cluster[2]
    return x + S.cluster[0] * (y + S.cluster[1] * z)


@compiled
def start_warp(S: Any, slot: int, index: int, t: int) -> None:
    """Reset a warp: registers zero, constants in place, predicates false, nothing pending."""
    c = ctas_of(S.cta_at, S.cta_slots)[slot]
    W = warps_of(S.warp_at, WARP_SLOTS)[c.first_warp + index]
    W.state, W.pc, W.cta, W.index, W.slot = LIVE, 0, slot, index, c.first_warp + index
    W.sub = W.slot % SUBPARTITIONS
    W.smem_base, W.window = c.smem_base, c.rank << RANK_BIT if S.clustered else 0
    W.came, W.came_phase, W.mixed = 0, -1, 0
    threads = min(S.threads - index * 32, 32)
    W.active = (1 << threads) - 1
    W.exited = 0xFFFFFFFF & ~W.active
    W.depth, W.rpc, W.regs, W.block, W.streak = 0, -1, S.regs_entry, BLOCK_NONE, 0
    W.last, W.born = t - 1, t
    W.gap_until, W.dep_ready, W.slot8 = t, t, 8 * W.slot
    st64(S.ready_at + W.slot8, t)
    W.reason, W.dep_reason = 0, 0
    W.deadline = NEVER
    W.held, W.held_reason = 0, 0
    W.mma_issued, W.mma_group = 0, 0
    W.decisions, W.met, W.passed, W.copies = 0, 0, 0, 0
    W.tmem_due, W.tmem_loaded, W.tmem_stored = 0, 0, 0
    S.launched += 1
    W.order = S.launched
    for lane in range(32):
        W.bulk_group[lane], W.copy_group[lane], W.copy_waited[lane], W.copy_shown[lane] = 0, 0, 0, 0
    fill(W.row_at, S.const_first * 128)
    copy(W.row_at + S.const_first * 128, S.const_at, S.const_rows * 128)
    if S.window_row >= 0:
        for lane in range(32):
            st32(W.row_at + S.window_row * 128 + lane * 4, W.window)
    fill(W.pred_at, S.predicates * 4)
    st32(W.pred_at, 0xFFFFFFFF)
    fill(W.time_at, S.slots * 8)
    first = instrs_of(S.instr_at, S.npc)[0]
    W.nthrottle = first.throttle
    st64(S.next_at + W.slot8, (W.sub * PIPES + first.pipe) * 8 + (1 if first.flags & REGS else 0))
    s = W.sub
    st64(S.order_at + (s * (WARP_SLOTS // SUBPARTITIONS) + S.sub_count[s]) * 8, W.slot8)
    S.sub_count[s] += 1
    S.live_warps += 1
    begin = chaos.at(S, W, chaos.C_START, 0, t, t, t)
    if begin > t:
        st64(S.ready_at + W.slot8, begin)
        W.reason = R_NO_INSTRUCTION
    may_issue(S, s, begin)


@compiled
def retire(S: Any, C: Any, W: Any, t: int) -> None:
    """Remove a finished warp; the last one of a CTA frees its slot."""
    W.state = DONE
    s = W.sub
    at = S.order_at + s * (WARP_SLOTS // SUBPARTITIONS) * 8
    kept = 0
    for k in range(S.sub_count[s]):
        slot8 = ld64(at + k * 8)
        if slot8 != W.slot8:
            st64(at + kept * 8, slot8)
            kept += 1
    S.sub_count[s] = kept
    S.sub_last[s], S.sub_others[s] = -1, 0
    S.live_warps -= 1
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    c.live -= 1
    left(S, C, W, t)
    if S.clustered:
        cluster_left(S, C, W, t)
    S.last = t
    if c.live == 0:
        c.state = ASKED
        c.born = t + ((C.turnaround_cy256 + S.warps_per_cta * C.turnaround_warp_cy256) >> 8)
        S.finished_ctas += 1
        leak(S, C, W)
        k = request(S, C, ASK_CTA, t)
        requests_of(S.log_at, REQUESTS)[k].job = W.cta


@compiled
def leak(S: Any, C: Any, W: Any) -> None:
    """A fault when the CTA that ends with warp W still has columns of Tensor Memory; it names where they were allocated."""
    columns, pc = 0, 0
    for k in range(TMEM_PARTS):
        if S.tmem_owner[k] == W.cta + 1:
            columns += C.tmem_unit
            if S.tmem_size[k]:
                pc = S.tmem_pc[k]
    if columns:
        fault(S, W, F_TMEM_LEAK, 0, 0, columns)
        S.fault_pc = pc


@compiled
def busy(S: Any, slot: int) -> bool:
    """Whether copies, wgmma or tcgen05's commands of an ended CTA still use its memory or registers (their end is an event)."""
    if S.jobs:
        jobs = jobs_of(S.job_at, JOBS)
        for k in range(JOBS):
            state = jobs[k].state
            if jobs[k].cta == slot and (state == LOAD or state == STORE_READING or state == SEND_READING):
                return True
    copies = copies_of(S.copy_at, COPIES)
    for k in range(S.copy_head, S.copy_tail):
        if copies[k & (COPIES - 1)].cta == slot:
            return True
    commands = commands_of(S.tc_at, TC_RING)
    for k in range(S.tc_head, S.tc_tail):
        if commands[k & (TC_RING - 1)].cta == slot:
            return True
    room = (S.warps_per_cta + 3) // 4
    groups = wgroups_of(S.wg_at, WARPGROUPS)
    for k in range(slot * room, (slot + 1) * room):
        j = groups[k].done & (RING - 1)
        if groups[k].issued > groups[k].done and groups[k].arrived[j] == 4:
            return True
    return False


@compiled
def starting(S: Any) -> bool:
    """Whether a slot has a CTA that is yet to start."""
    ctas = ctas_of(S.cta_at, S.cta_slots)
    for k in range(S.cta_slots):
        if ctas[k].state == GIVEN:
            return True
    return False


@compiled
def advance(S: Any, C: Any, t: int) -> int:
    """Start CTAs whose time has come; returns the next cycle of interest."""
    look = NEVER
    ctas = ctas_of(S.cta_at, S.cta_slots)
    for k in range(S.cta_slots):
        if ctas[k].state == GIVEN:
            if ctas[k].born > t:
                look = min(look, ctas[k].born)
            elif not busy(S, k):
                start_cta(S, C, k, t)
    return int(look)
