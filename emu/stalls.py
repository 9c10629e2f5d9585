"""The one list of stall reasons: Nsight Compute's names, what they mean here, and our finer causes.

Every resident warp-cycle is charged to exactly one cause, and through it to exactly one reason.
Which reason silicon gives to which cause was observed on an H200 with Nsight Compute 2025.3; a warp
is charged at the instruction that cannot issue, not at the one that started the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Reason(IntEnum):
    """Why a resident warp did, or did not, issue in a cycle."""

    SELECTED = 0
    NOT_SELECTED = 1
    WAIT = 2
    LONG_SCOREBOARD = 3
    SHORT_SCOREBOARD = 4
    MATH_PIPE_THROTTLE = 5
    MIO_THROTTLE = 6
    LG_THROTTLE = 7
    BARRIER = 8
    GMMA = 9
    WARPGROUP_ARRIVE = 10
    DISPATCH_STALL = 11
    BRANCH_RESOLVING = 12
    NO_INSTRUCTION = 13
    IMC_MISS = 14
    SLEEPING = 15
    MEMBAR = 16
    DRAIN = 17
    MISC = 18

    @property
    def label(self) -> str:
        """Nsight Compute's spelling."""
        return self.name.lower()


REASONS: dict[str, Reason] = {reason.label: reason for reason in Reason}

MEANINGS: dict[Reason, str] = {
    Reason.SELECTED: "The warp issued an instruction.",
    Reason.NOT_SELECTED: "The warp could have issued, but its scheduler chose another warp.",
    Reason.WAIT: "A fixed number of cycles after the warp's previous instruction: its encoded stall count, or a "
    "fixed-latency result.",
    Reason.LONG_SCOREBOARD: "A result from outside the SM's core: global memory, mbarrier tests, group waits of bulk "
    "copies and cp.async, completion of CTA-level fences.",
    Reason.SHORT_SCOREBOARD: "A variable-latency result of the SM: MUFU, shuffle, shared memory, special registers.",
    Reason.MATH_PIPE_THROTTLE: "The arithmetic pipe is still busy with another instruction.",
    Reason.MIO_THROTTLE: "The queue of the memory input/output unit is full (MUFU, shuffle, shared memory, mbarrier "
    "arrivals, TMA and wgmma hand-over).",
    Reason.LG_THROTTLE: "The queue for local and global memory instructions is full.",
    Reason.BARRIER: "bar.sync has not been reached by all, or wgmma.wait_group has groups outstanding.",
    Reason.GMMA: "The wgmma queue is full, or the four warps of the warpgroup have not all reached wgmma.fence.",
    Reason.WARPGROUP_ARRIVE: "Nsight's sampling name for `gmma`; never charged here.",
    Reason.DISPATCH_STALL: "Register-file ports: full-rate FP32 streams against each other or against the tensor core.",
    Reason.BRANCH_RESOLVING: "The target of a branch is not known yet, or lanes wait at a reconvergence point.",
    Reason.NO_INSTRUCTION: "The next instruction has not been fetched.",
    Reason.IMC_MISS: "A constant operand missed the immediate constant cache.",
    Reason.SLEEPING: "nanosleep, or an mbarrier wait with a suspend hint by a part of the warp.",
    Reason.MEMBAR: "A fence at GPU or system scope, or a proxy fence over all spaces.",
    Reason.DRAIN: "The warp has exited, its stores have not left the SM.",
    Reason.MISC: "None of the above.",
}


@dataclass(frozen=True, slots=True)
class CauseInfo:
    """A finer cause than Nsight's: the reason that it belongs to, and its meaning."""

    reason: Reason
    meaning: str


class Cause(IntEnum):
    """What exactly a warp waits for.  `CAUSES` gives reason and meaning; the first causes are the
    reasons themselves, so that `Cause(reason)` is always the unspecific one."""

    SELECTED = 0
    NOT_SELECTED = 1
    WAIT = 2
    LONG_SCOREBOARD = 3
    SHORT_SCOREBOARD = 4
    MATH_PIPE_THROTTLE = 5
    MIO_THROTTLE = 6
    LG_THROTTLE = 7
    BARRIER = 8
    GMMA = 9
    WARPGROUP_ARRIVE = 10
    DISPATCH_STALL = 11
    BRANCH_RESOLVING = 12
    NO_INSTRUCTION = 13
    IMC_MISS = 14
    SLEEPING = 15
    MEMBAR = 16
    DRAIN = 17
    MISC = 18
    MBARRIER = 19
    BULK_GROUP = 20
    GLOBAL_LOAD = 21
    NAMED_BARRIER = 22
    WGMMA_GROUP = 23
    WGMMA_QUEUE = 24
    WARPGROUP_RENDEZVOUS = 25
    TMA_QUEUE = 26
    REGISTER_POOL = 27
    TENSOR_PORTS = 28


CAUSES: dict[Cause, CauseInfo] = {Cause(r): CauseInfo(r, MEANINGS[r]) for r in Reason} | {
    Cause.MBARRIER: CauseInfo(Reason.LONG_SCOREBOARD, "An mbarrier phase has not completed."),
    Cause.BULK_GROUP: CauseInfo(Reason.LONG_SCOREBOARD, "cp.async.bulk.wait_group: stores are still in flight."),
    Cause.GLOBAL_LOAD: CauseInfo(Reason.LONG_SCOREBOARD, "The result of a load from global memory."),
    Cause.NAMED_BARRIER: CauseInfo(Reason.BARRIER, "bar.sync: other warps have not arrived."),
    Cause.WGMMA_GROUP: CauseInfo(Reason.BARRIER, "wgmma.wait_group: the tensor core has not finished the group."),
    Cause.WGMMA_QUEUE: CauseInfo(Reason.GMMA, "The tensor core's queue is full."),
    Cause.WARPGROUP_RENDEZVOUS: CauseInfo(Reason.GMMA, "Another warp of the warpgroup has not reached the wgmma."),
    Cause.TMA_QUEUE: CauseInfo(Reason.MIO_THROTTLE, "The TMA's queue is full."),
    Cause.REGISTER_POOL: CauseInfo(Reason.SHORT_SCOREBOARD, "setmaxnreg.inc: the register pool is empty."),
    Cause.TENSOR_PORTS: CauseInfo(Reason.WAIT, "The tensor core holds the register-file ports."),
}
