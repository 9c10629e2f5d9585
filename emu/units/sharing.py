"""What units of the SM share: shared-memory ports and the register file's ports.

Rule 4 of the H200 measurements: while the tensor core runs, a sub-partition issues about one
instruction in four cycles, and the tensor core keeps its rate; but a warp in a long stream of instructions with an
encoded gap of one cycle (four or more independent FP32 chains) is not held back, and the tensor core
loses.  Both follow from one arbitration: the running wgmma needs the register file's ports in three
cycles of four, the fourth is granted to issue; a warp in an unbroken stream keeps the port and takes
the tensor core's cycles, and each cycle taken makes its pass longer by 1 / (3/4) cycles.  In the
measured pairs (issue rate x, tensor rate y) y = (1 - x) / 0.75 within a few points.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.raw import ld64, st64
from emu.state import PIPES


@njit(inline="always")
def tensor_busy(S: Any, t: int) -> bool:
    """Whether a wgmma holds the register file's ports in cycle `t`."""
    return bool(t < S.mma_busy_end and t >= S.mma_start)


@njit(inline="always")
def steal(S: Any, C: Any, sub: int) -> None:
    """An issue took a port slot of the running wgmma: its pass ends later when this is the slowest."""
    S.stolen[sub] += 1
    delay = (S.stolen[sub] << 8) // C.mma_share256
    if delay > S.mma_delay:
        longer = delay - S.mma_delay
        S.mma_delay = delay
        S.mma_end += longer
        S.mma_busy_end += longer


@compiled
def drag(S: Any, C: Any, W: Any, I: Any, t: int) -> None:
    """An issue beside a running mma.sync takes some of the register file's ports from it: its pipe is free later.

    Other warps wait for the ports too, unless this one streams.
    """
    at = S.free_at + W.sub * PIPES * 8 + S.tensor_pipe
    until = ld64(at)
    if I.linger:
        S.clear_at[W.sub], S.clear_warp[W.sub] = t + I.linger, W.slot
    if until > t:
        S.mma_spare[W.sub] -= I.drag
        if S.mma_spare[W.sub] < 0:
            st64(at, until - S.mma_spare[W.sub])
            S.mma_spare[W.sub] = 0
        if W.streak < C.mma_stream:
            S.port_next[W.sub] = t + C.mma_issue_cy


@compiled
def take_issue(S: Any, sub: int, until: int) -> None:
    """Keep the sub-partition's dispatch port until a cycle: no pipe takes an instruction before."""
    at = S.free_at + sub * PIPES * 8
    for k in range(PIPES):
        st64(at + 8 * k, max(ld64(at + 8 * k), until))


@compiled
def port_cost(S: Any, C: Any, t: int, waves: int, rows: int, store: int) -> int:
    """Pass `waves` wavefronts through the shared-memory ports; returns the cycles of queueing.

    wgmma operand reads have priority on the first port, bulk-copy fills on the second (rule 5), so an
    access beside them takes `1 / (1 - their share)` as long.  All go through one pipe with the accesses of global memory, in order
    but for those that are about to leave it.  Loads then return `rows` register rows.
    Past the queue's depth, taken as so many instructions like this one, the sub-partition's next one has to wait (`hold`).
    """
    S.smem_waves += waves
    cost = waves << 8
    if t < S.mma_end and t >= S.mma_start:
        free = S.mma_port_den - S.mma_port_num
        if free * 16 < S.mma_port_den:
            free = max(S.mma_port_den // 16, 1)
        cost = (cost * S.mma_port_den) // free
    if store:
        S.hold = max(S.hold, t + waves * C.store_wavefront_cy)  # data leave a sub-partition at half the port's width
        if t < S.tma_until:
            cost = max(cost, (waves << 16) // max(C.fill_share256, 1))
    start = max(max(t << 8, S.port_free), max(S.l2_free, S.line_free) - C.overtake256)
    S.port_free = start + cost
    S.hold = max(S.hold, (S.port_free >> 8) - C.mio_queue * max(waves, 1))
    queued = (S.port_free >> 8) - t - waves
    if rows:
        queued = max(queued, return_cost(S, C, t, rows))
    return max(queued, 0)


@compiled
def return_cost(S: Any, C: Any, t: int, rows: int) -> int:
    """Return register rows through the shared-memory pipe; returns the cycles of queueing."""
    each = C.return_cy256
    if tensor_busy(S, t):
        each = C.return_mma_cy256
    start = max(t << 8, S.return_free)
    S.return_free = start + rows * each
    S.hold = max(S.hold, (S.return_free >> 8) - C.mio_queue * rows)
    return max((S.return_free >> 8) - t - rows, 0)
