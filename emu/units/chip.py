"""The rounds of the chip: SMs run ahead until they could need an answer, then what they asked is answered.

`merge` answers requests in the order (cycle, SM, sequence), up to the cycle that every SM has reached.  The order in which SMs
run, or on which threads, changes nothing.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from emu.chip_state import REQUESTS
from emu.compiled import compiled
from emu.state import DEADLOCK, FINISHED, NEVER, QUANTUM, RUNNING
from emu.units.answers import answer
from emu.units.common import sms_of
from emu.units.requests import requests_of


@compiled
def first_time(S: Any) -> int:
    """The cycle of an SM's first request without an answer."""
    if S.log_head == S.log_tail:
        return NEVER
    return int(requests_of(S.log_at, REQUESTS)[int(S.log_head & (REQUESTS - 1))].time)


@compiled
def merge(H: Any, C: Any) -> None:
    """Answer every request of cycles that all SMs have passed, in order; see how far the SMs are."""
    sms = sms_of(H.sm_at, H.sms)
    H.horizon = NEVER
    for k in range(H.sms):
        if sms[k].status == RUNNING or sms[k].status == QUANTUM:
            H.horizon = min(H.horizon, sms[k].now)
    while True:
        best, who = H.horizon, -1
        for k in range(H.sms):
            S = sms[k]
            if S.log_head < S.log_tail:
                at = first_time(S)
                if at < best:
                    best, who = at, k
        if who < 0:
            break
        answer(H, sms[who], C)
    if H.peers:
        for team in range(0, H.sms, H.cluster):
            end_team(H, team)
    H.stop = 1
    for k in range(H.sms):
        S = sms[k]
        if S.log_head == S.log_tail:
            # An empty log begins anew: its first places are in the host's cache.
            S.log_head, S.log_tail, S.due = 0, 0, NEVER
        if S.status == RUNNING or S.status == QUANTUM:
            H.stop = 0
        elif S.status != FINISHED:
            H.stop = 1
            return


@compiled
def end_team(H: Any, first: int) -> None:
    """End the SMs of a team whose warps all wait, when no message is under way: a deadlock."""
    sms = sms_of(H.sm_at, H.sms)
    waiting = 0
    for k in range(first, first + H.cluster):
        S = sms[k]
        at_rest = S.log_head == S.log_tail and S.inbox_head == S.inbox_tail
        if S.status != FINISHED and (S.status != QUANTUM or not S.idle or not at_rest):
            return
        waiting += S.live_warps
    for k in range(first, first + H.cluster):
        if waiting and sms[k].live_warps:
            sms[k].status = DEADLOCK


@compiled
def advance(H: Any, C: Any, first: int, step: int) -> None:
    """Let every `step`-th SM run until it could need an answer."""
    sms = sms_of(H.sm_at, H.sms)
    for k in range(first, H.sms, step):
        S = sms[k]
        S.limit = min(H.limit, min(first_time(S) + C.answer_cy, S.due))
        if H.peers:
            S.limit = min(S.limit, H.horizon + C.peer_cy)
        if (S.status == RUNNING or S.status == QUANTUM) and S.now < S.limit:
            S.status = RUNNING
            call_core(H.core_at, S, C)


@intrinsic
def call_core(typing: Any, address: Any, S: Any, C: Any) -> Any:
    """Call the cycle loop `run(S, C)` at the address of its machine code."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function_type = context.call_conv.get_function_type(types.none, (S, C))
        result, error = (cgutils.alloca_once(builder, kind.pointee) for kind in function_type.args[:2])
        builder.call(builder.inttoptr(args[0], function_type.as_pointer()), [result, error, *args[1:]])
        return context.get_dummy_value()

    return types.none(types.int64, S, C), generate


def run(H: Any, C: Any, first: int, step: int) -> None:
    """With step 1 some rounds of everything; with step 0 only the answers; else every `step`-th SM from `first` on.

    With a negative step only the answers to SM `first`, while no other one moves.
    """
    if step == 0:
        merge(H, C)
    elif step < 0:
        S = sms_of(H.sm_at, H.sms)[first]
        while first_time(S) < S.now:
            answer(H, S, C)
        if S.log_head == S.log_tail:
            S.due = NEVER
    elif step > 1:
        advance(H, C, first, step)
    else:
        for _ in range(H.rounds):
            advance(H, C, 0, 1)
            merge(H, C)
            if H.stop or H.horizon >= H.limit:
                break
