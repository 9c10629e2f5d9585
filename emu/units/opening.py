"""Barriers of CTAs and clusters that open, because the last warp has come or because one that is missing has exited."""

from __future__ import annotations

from typing import Any

from emu.chip_state import ASK_CLUSTER, REQUESTS
from emu.compiled import compiled
from emu.state import BLOCK_BAR, BLOCK_CLUSTER, LIVE, WARP_SLOTS
from emu.units.chaos import C_OPEN, at
from emu.units.common import ctas_of, wake, warps_of
from emu.units.history import E_BAR_OPEN, E_CLUSTER_OPEN, record
from emu.units.requests import request, requests_of


@compiled
def open_for(S: Any, C: Any, W: Any, slot: int, served: int, t: int) -> int:
    """Open a barrier of W's CTA for those that wait at it; returns when it is open."""
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    warps = warps_of(S.warp_at, WARP_SLOTS)
    c.bar_arrived[slot] = 0
    result = int(c.bar_true[slot]) | int(c.bar_false[slot]) << 32
    c.bar_true[slot], c.bar_false[slot] = 0, 0
    W.bar_result = result
    opened = served + C.bar_open_cy
    record(S, W, E_BAR_OPEN, W.pc, slot, c.bar_expected[slot], t)
    for i in range(c.first_warp, c.first_warp + c.warps):
        V = warps[i]
        if V.state == LIVE and V.block == BLOCK_BAR and V.wait_slot == slot:
            V.bar_result = result
            wake(S, V, at(S, V, C_OPEN, V.pc, t, opened, opened))
    return opened


@compiled
def left(S: Any, C: Any, W: Any, t: int) -> None:
    """A warp has exited: barriers that wait for all of the CTA wait for one warp less."""
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    for slot in range(16):
        if c.bar_arrived[slot] and c.bar_all[slot]:
            c.bar_expected[slot] -= 32
            if c.bar_arrived[slot] >= c.bar_expected[slot]:
                open_for(S, C, W, slot, t, t)


@compiled
def open_cluster(S: Any, C: Any, slot: int, when: int) -> None:
    """The cluster's barrier opens for the CTA of a slot at cycle `when`."""
    c = ctas_of(S.cta_at, S.cta_slots)[slot]
    warps = warps_of(S.warp_at, WARP_SLOTS)
    c.cluster_phase += 1
    for i in range(c.first_warp, c.first_warp + c.warps):
        V = warps[i]
        if V.state == LIVE and V.block == BLOCK_CLUSTER and V.came_phase >= 0 and V.came_phase < c.cluster_phase:
            V.came_phase = -1
            record(S, V, E_CLUSTER_OPEN, V.pc, 16, 0, when)
            wake(S, V, at(S, V, C_OPEN, V.pc, when, when, when))


@compiled
def cluster_came(S: Any, C: Any, W: Any, t: int) -> None:
    """A warp has come to its cluster's barrier."""
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    W.came, W.came_phase = 0, c.cluster_phase
    if S.peers:
        r = requests_of(S.log_at, REQUESTS)[request(S, C, ASK_CLUSTER, t)]
        r.job, r.first, r.bytes = W.cta, 0, c.cluster_phase
        return
    c.cluster_came += 1
    if c.cluster_came == c.live:
        c.cluster_came = 0
        open_cluster(S, C, W.cta, t + C.cluster_open_cy)


@compiled
def cluster_left(S: Any, C: Any, W: Any, t: int) -> None:
    """A warp has exited: the cluster's barrier waits for one warp less."""
    c = ctas_of(S.cta_at, S.cta_slots)[W.cta]
    if S.peers:
        r = requests_of(S.log_at, REQUESTS)[request(S, C, ASK_CLUSTER, t)]
        r.job, r.first, r.bytes = W.cta, 1, W.came_phase
        return
    if W.came_phase == c.cluster_phase:
        c.cluster_came -= 1
    if c.live and c.cluster_came == c.live:
        c.cluster_came = 0
        open_cluster(S, C, W.cta, t + C.cluster_open_cy)
