"""The one list of stall reasons: Nsight Compute's names, what they mean here, and our finer causes.

Every resident warp-cycle is charged to exactly one reason.  Which reason silicon gives to which cause was
observed on an H200 with Nsight Compute 2025.3; a warp is charged at the instruction that cannot issue, not
at the one that started the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Reason(IntEnum):
    """Why a resident warp did, or did not, issue in a cycle; the frequent ones first (emu.state.HOT)."""

    SELECTED = 0
    NOT_SELECTED = 1
    WAIT = 2
    SHORT_SCOREBOARD = 3
    MATH_PIPE_THROTTLE = 4
    MIO_THROTTLE = 5
    DISPATCH_STALL = 6
    LONG_SCOREBOARD = 7
    BARRIER = 8
    GMMA = 9
    LG_THROTTLE = 10
    WARPGROUP_ARRIVE = 11
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
    "copies and cp.async, completion of CTA-level fences, loads, stores and allocations of Tensor Memory.",
    Reason.SHORT_SCOREBOARD: "A variable-latency result of the SM: MUFU, shuffle, shared memory, special registers.",
    Reason.MATH_PIPE_THROTTLE: "The arithmetic pipe is still busy with another instruction, or the queue of "
    "tcgen05 is full.",
    Reason.MIO_THROTTLE: "The queue of the memory input/output unit is full (MUFU, shuffle, shared memory, mbarrier "
    "arrivals, TMA, wgmma).",
    Reason.LG_THROTTLE: "The queue for local and global memory instructions is full.",
    Reason.BARRIER: "bar.sync has not been reached by all, or wgmma.wait_group has groups outstanding.",
    Reason.GMMA: "The four warps of the warpgroup have not all reached wgmma.fence.",
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
class Cause:
    """A finer cause than Nsight's, as deadlock explanations and `warpsmith explain` name it."""

    name: str
    reason: Reason
    meaning: str


CAUSES: tuple[Cause, ...] = (
    Cause("mbarrier", Reason.LONG_SCOREBOARD, "an mbarrier phase has not completed"),
    Cause("bulk group", Reason.LONG_SCOREBOARD, "cp.async.bulk.wait_group: stores are in flight"),
    Cause("global load", Reason.LONG_SCOREBOARD, "the result of a load from global memory"),
    Cause("fence", Reason.LONG_SCOREBOARD, "a CTA-level or proxy fence has not completed"),
    Cause("Tensor Memory", Reason.LONG_SCOREBOARD, "a tcgen05.ld or .st has not completed"),
    Cause("Tensor Memory columns", Reason.LONG_SCOREBOARD, "tcgen05.alloc: no columns are free"),
    Cause("named barrier", Reason.BARRIER, "bar.sync: other warps have not arrived"),
    Cause("wgmma group", Reason.BARRIER, "wgmma.wait_group: the tensor core has not finished the group"),
    Cause(
        "wgmma queue",
        Reason.MIO_THROTTLE,
        "the tensor core's queue is full; only the first warp of a warpgroup waits for it",
    ),
    Cause("warpgroup", Reason.GMMA, "another warp of the warpgroup has not reached the same wgmma.fence or wgmma"),
    Cause("bulk queue", Reason.MIO_THROTTLE, "the queue of the bulk copy unit is full"),
    Cause("tcgen05 queue", Reason.MATH_PIPE_THROTTLE, "the tensor core has as many commands of tcgen05 as it takes"),
    Cause("register pool", Reason.SHORT_SCOREBOARD, "setmaxnreg.inc: no registers are free"),
    Cause("tensor core ports", Reason.WAIT, "the tensor core holds the register-file ports"),
)
