"""Answers of the chip to CTAs of a cluster: messages between them, bulk copies to one another, the barrier of all."""

from __future__ import annotations

from typing import Any

from emu.chip_state import CLUSTER, MESSAGE_BYTES, MESSAGE_DATA, P_COPY, P_LOAD, P_OPEN
from emu.compiled import compiled
from emu.copy_state import JOB, SENT, TMAP
from emu.issue import result_times
from emu.raw import copy, ld64, view
from emu.state import CTA_SLOTS, JOBS, LIVE, WARP_SLOTS
from emu.units import atomic
from emu.units.common import (
    F_PEER_GONE,
    ctas_of,
    fault,
    first_lane,
    instrs_of,
    jobs_of,
    sms_of,
    tmaps_of,
    warps_of,
)
from emu.units.jobs import service_of
from emu.units.memory import move
from emu.units.peers import forward, messages_of, post
from emu.units.requests import answered

clusters_of = view(CLUSTER)
JOB_BYTES, TMAP_BYTES = JOB.itemsize, TMAP.itemsize


@compiled
def peer(H: Any, S: Any, rank: int) -> Any:
    """The SM with the CTA of a rank of the clusters on SM S."""
    return sms_of(H.sm_at, H.sms)[S.place // H.cluster * H.cluster + rank]


@compiled
def gone(S: Any, P: Any, slot: int, warp: int, pc: int, lane: int, address: int) -> bool:
    """Whether the CTA in a slot of SM P has exited, with the fault of the warp that reaches for it."""
    c = ctas_of(P.cta_at, CTA_SLOTS)[slot]
    if c.state == LIVE:
        return False
    W = warps_of(S.warp_at, WARP_SLOTS)[warp]
    fault(S, W, F_PEER_GONE, lane, address, c.id)
    S.fault_pc = pc
    return True


@compiled
def answer_peer(H: Any, S: Any, r: Any, data: int) -> None:
    """A message to another CTA of the cluster."""
    W = warps_of(S.warp_at, WARP_SLOTS)[r.warp]
    P = peer(H, S, int(r.first))
    first = first_lane(r.mask)
    if gone(S, P, W.cta, r.warp, r.pc, first, r.address[first]):
        return
    k = forward(P, S, r, data, MESSAGE_BYTES - MESSAGE_DATA if r.job != P_LOAD else 0)
    m = messages_of(P.message_at, P.inbox_size)[k]
    m.index, m.by, m.slot = W.index, ctas_of(S.cta_at, CTA_SLOTS)[W.cta].id, W.cta
    m.cta = ctas_of(P.cta_at, CTA_SLOTS)[W.cta].id


@compiled
def answer_reply(H: Any, C: Any, r: Any, data: int) -> None:
    """What a load or an atomic found in another CTA, to the warp that asked."""
    P = sms_of(H.sm_at, H.sms)[r.job]
    W = warps_of(P.warp_at, WARP_SLOTS)[r.warp]
    I = instrs_of(P.instr_at, P.npc)[r.pc]
    if W.state != LIVE or ctas_of(P.cta_at, CTA_SLOTS)[W.cta].id != r.bytes:
        return
    for lane in range(32):
        if (r.mask >> lane) & 1 and r.first:
            atomic.results(P, W, I, lane, ld64(data + 16 * lane), ld64(data + 16 * lane + 8))
        elif (r.mask >> lane) & 1:
            move(P, W, I, data + lane * r.width, lane, 0)
    if r.first and not I.nd:
        return
    when = r.time + (C.peer_atom_cy if r.first else C.peer_load_cy) - (C.peer_load_cy >> 1)
    if r.mixed:
        when = max(when, W.mixed)
    result_times(P, W, I, when)
    answered(P, C, W)


@compiled
def answer_send(H: Any, S: Any, k: int) -> None:
    """A bulk copy to another CTA, whose source has been read."""
    j = jobs_of(S.job_at, JOBS)[k]
    for rank in range(S.peers):
        if (j.ranks >> rank) & 1:
            P = peer(H, S, rank)
            if gone(S, P, j.cta, j.warp, j.pc, j.lane, j.target - j.cta * S.smem_per_cta):
                return
            copy_message(S, P, k, j.finish)


@compiled
def copy_to_peer(H: Any, S: Any, C: Any, k: int, rank: int, served: int, late: int) -> None:
    """A bulk load that another CTA of the cluster gets as well: it passes that SM's port behind what is on its way there."""
    j = jobs_of(S.job_at, JOBS)[k]
    P = peer(H, S, rank)
    begin = max((served << 8) - service_of(C, j, tmaps_of(S.tmap_at, JOBS)[k]), P.tma_free)
    P.tma_free = begin + service_of(C, j, tmaps_of(S.tmap_at, JOBS)[k])
    when = max(j.finish, (P.tma_free >> 8) + late + C.tma_latency_cy)
    P.tma_until = max(P.tma_until, when)
    copy_message(S, P, k, when)


@compiled
def copy_message(S: Any, P: Any, k: int, when: int) -> None:
    """Post a job to another SM of the team, to be done there at cycle `when`."""
    j = jobs_of(S.job_at, JOBS)[k]
    n = post(P, when)
    m = messages_of(P.message_at, P.inbox_size)[n]
    c, W = ctas_of(S.cta_at, CTA_SLOTS)[j.cta], warps_of(S.warp_at, WARP_SLOTS)[j.warp]
    m.kind, m.place, m.warp, m.index, m.by, m.pc = P_COPY, S.place, j.warp, W.index, c.id, j.pc
    m.slot, m.cta, m.mask = j.cta, ctas_of(P.cta_at, CTA_SLOTS)[j.cta].id, 1 << j.lane
    copy(P.job_at + JOB_BYTES * (JOBS + n), S.job_at + JOB_BYTES * k, JOB_BYTES)
    other = jobs_of(P.job_at, JOBS)[JOBS + n]
    if j.state == SENT:
        other.smem, other.staged = j.target, 1
    m.address[j.lane] = other.smem - P.smem_per_cta * j.cta
    copy(P.tmap_at + TMAP_BYTES * (JOBS + n), S.tmap_at + TMAP_BYTES * k, TMAP_BYTES)


@compiled
def answer_cluster(H: Any, S: Any, C: Any, r: Any) -> None:
    """A warp has come to the cluster's barrier, or has exited; when none is missing the barrier opens everywhere."""
    team = S.place // H.cluster
    K = clusters_of(H.cluster_at, H.sms // H.cluster * H.slots)[team * H.slots + r.job]
    if r.first:
        K.live -= 1
    if not r.first or r.bytes != K.phase:
        K.pending -= 1
    if K.pending or not K.live:
        return
    K.phase += 1
    K.pending = K.live
    opened = r.time + C.cluster_open_cy + (C.cluster_far_cy if H.cluster > C.tpc_sms else 0)
    for rank in range(H.cluster):
        P = peer(H, S, rank)
        c = ctas_of(P.cta_at, CTA_SLOTS)[r.job]
        if c.state == LIVE:
            m = messages_of(P.message_at, P.inbox_size)[post(P, opened)]
            m.kind, m.slot, m.cta = P_OPEN, r.job, c.id
