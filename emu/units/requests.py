"""What an SM asks of the chip.

Global memory and the queue of CTAs belong to all SMs.  An SM writes down what it wants of them, and the chip answers
in the order (cycle, SM, sequence) once every SM has got that far (`emu/units/answers.py`).  Until then the results are
PENDING.  No answer takes effect earlier than `answer_cy` after its request, so an SM goes on for that long without it.
Values move when the chip answers: a load sees what was stored in earlier cycles by any SM, whatever ran first here.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.chip_state import ASK_ATOMIC, ASK_COPY_OUT, ASK_STORE, PENDING, REQUEST, REQUEST_BYTES, REQUEST_DATA, REQUESTS
from emu.compiled import compiled
from emu.instruction import GATED
from emu.issue import gated_operands, operands
from emu.raw import st64, view
from emu.state import LIVE
from emu.units.common import instrs_of, may_issue

requests_of = view(REQUEST)
SPARE = 128  # requests that one cycle may add


@compiled
def request(S: Any, C: Any, kind: int, t: int) -> int:
    """Write down a request of cycle `t`; returns its place in the log.  The SM stops when it could need the answer."""
    k = int(S.log_tail & (REQUESTS - 1))
    r = requests_of(S.log_at, REQUESTS)[k]
    S.log_tail += 1
    S.limit = min(S.limit, t + C.answer_cy)
    if S.log_tail - S.log_head > REQUESTS - SPARE:
        S.limit = min(S.limit, t + 1)
    if kind == ASK_COPY_OUT:
        S.l1_settled = t + C.answer_cy
    if kind == ASK_STORE or kind == ASK_ATOMIC or kind == ASK_COPY_OUT:
        S.stored = t
    r.time, r.kind, r.first, r.mixed = t, kind, 0, 0
    return k


@compiled
def soon(S: Any, due: int) -> None:
    """The SM needs all answers by cycle `due`, where it stops for them."""
    S.due = min(S.due, due)
    S.limit = min(S.limit, due)


@njit(inline="always")
def data_at(S: Any, k: int) -> int:
    """Host address of a request's data."""
    return S.log_at + k * REQUEST_BYTES + REQUEST_DATA


@compiled
def answered(S: Any, C: Any, W: Any) -> None:
    """After an answer: when the warp's next instruction has its operands, if that was not known."""
    if W.state != LIVE or W.dep_ready < PENDING or W.pc < 0 or W.pc >= S.npc:
        return
    waited = W.dep_reason
    J = instrs_of(S.instr_at, S.npc)[W.pc]
    operands(S, W, J, W.gap_until)
    if J.flags & GATED:
        gated_operands(S, C, W, J, W.gap_until)
    if W.held > W.dep_ready:
        W.dep_ready, W.dep_reason = W.held, W.held_reason
    if not W.block:
        st64(S.ready_at + W.slot8, W.dep_ready)
        if W.reason == waited:
            W.reason = W.dep_reason
        may_issue(S, W.sub, W.dep_ready)
