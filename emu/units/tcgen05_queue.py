"""The tensor core's queue of tcgen05 commands: products, copies, shifts and commits, in the order of issue (PTX ISA 9.7.16.6).

Each command knows at its issue when it starts, when the next one may, and when it is complete; nothing overtakes anything.
"""

from __future__ import annotations

from typing import Any

from emu.chip_state import ASK_PAIR, REQUESTS
from emu.compiled import compiled
from emu.stalls import Reason
from emu.state import BLOCK_TC_QUEUE, LIVE, NEVER, TC_RING, WARP_SLOTS
from emu.units.chaos import C_MMA, at
from emu.units.common import commands_of, event, park, wake, warps_of
from emu.units.requests import request, requests_of

R_MATH = int(Reason.MATH_PIPE_THROTTLE)


@compiled
def room(S: Any, C: Any, W: Any, t: int, m: int) -> bool:
    """Whether the queue takes commands, then of all lanes; else the warp is parked until one is complete."""
    if S.tc_tail - S.tc_head < C.tc_queue:
        return True
    S.tc_parked += 1
    park(S, W, BLOCK_TC_QUEUE, R_MATH, t)
    return False


@compiled
def command(S: Any, W: Any, what: int, lane: int) -> Any:
    """The next free entry, for a command of a lane; `enter` puts it into the queue."""
    J = commands_of(S.tc_at, TC_RING)[S.tc_tail & (TC_RING - 1)]
    J.what, J.warp, J.lane, J.cta, J.pc, J.pair = what, W.slot, lane, W.cta, W.pc, 0
    return J


@compiled
def enter(S: Any, C: Any, W: Any, J: Any, t: int, interval: int, latency: int, port: int) -> None:
    """Put a command behind all others: it starts when they let it, and `latency` after that it is complete, as they are.

    interval: cycles from its start until the next one may start; port: of them those that it takes of shared memory.
    """
    J.start = max(t, S.tc_free)
    J.leave, J.port = J.start + interval, port
    soonest = C.peer_cy + 2 if J.pair else 1
    J.finish = max(at(S, W, C_MMA, W.pc, t, J.start + latency, J.start + soonest), S.tc_last)
    S.tc_free, S.tc_last = J.leave, J.finish
    S.tc_tail += 1
    event(S, J.start)
    event(S, J.finish)
    if J.pair:
        event(S, J.finish - C.peer_cy)


@compiled
def begin(S: Any, t: int) -> int:
    """Let commands that are due take shared memory's port; returns when the next one starts."""
    commands = commands_of(S.tc_at, TC_RING)
    while S.tc_begun < S.tc_tail:
        J = commands[S.tc_begun & (TC_RING - 1)]
        if J.start > t:
            return int(J.start)
        if J.leave > J.start:
            S.mma_start, S.mma_end = J.start, J.leave
            S.mma_port_num, S.mma_port_den = min(J.port, J.leave - J.start), J.leave - J.start
        S.tc_begun += 1
    return NEVER


@compiled
def ask(S: Any, C: Any, t: int) -> int:
    """Ask the chip to execute commands of pairs of CTAs so early that it is done when they complete; returns when the next is due.

    SMs of a cluster are never further apart than `peer_cy`, so that none has passed the completion by then.
    """
    commands = commands_of(S.tc_at, TC_RING)
    while S.tc_asked < S.tc_tail:
        J = commands[S.tc_asked & (TC_RING - 1)]
        if J.pair:
            if J.finish - C.peer_cy > t:
                return int(J.finish - C.peer_cy)
            r = requests_of(S.log_at, REQUESTS)[request(S, C, ASK_PAIR, t)]
            r.job, r.warp, r.pc = S.tc_asked & (TC_RING - 1), J.warp, J.pc
        S.tc_asked += 1
    return NEVER


@compiled
def retire(S: Any, t: int) -> None:
    """The first command is complete: who waits for room looks again."""
    S.tc_head += 1
    S.last = t
    if not S.tc_parked:
        return
    S.tc_parked = 0
    warps = warps_of(S.warp_at, WARP_SLOTS)
    for i in range(WARP_SLOTS):
        W = warps[i]
        if W.state == LIVE and W.block == BLOCK_TC_QUEUE:
            wake(S, W, t + 1)
