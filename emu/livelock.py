"""Livelock: warps that poll what nobody can change any more are recognised instead of run to the limit.

While no instruction with an effect is executed, memory and barriers do not change, so that each warp's future depends
on its own registers alone: a warp that comes back to the same registers at the same place repeats itself for
ever.  When all warps that still move do, and all others wait for them, nothing will change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.instruction import SPIN
from emu.stalls import Reason
from emu.state import BLOCK_MBAR, DEADLOCK, LIVE, NEVER, QUANTUM, RUNNING, WARP_SLOTS
from isa.micro import MICROS
from isa.program import Program

if TYPE_CHECKING:
    from emu.sm import StreamingMultiprocessor

# Unit routines that change nothing but the warp's registers and do not depend on time.
PURE = frozenset(
    [
        "bra",
        "nop",
        "nanosleep",
        "fence",
        "warpsync",
        "elect",
        "vote",
        "shfl",
        "activemask",
        "s2r",
        "mbar_wait",
        "mbar_wait_state",
        "tma_prefetch",
        "ld_shared",
        "ld_local",
        "ldsm",
    ]
)
READS = frozenset({"ld_global", "ld_generic"})  # pure, when no other SM writes
STEPS = 4096  # core calls that a look may take


class Watch:
    """Looks for a livelock after stretches of a run without effects, and once some time before the limit."""

    def __init__(self, sm: StreamingMultiprocessor, max_cycles: int, alone: bool) -> None:
        self.sm, self.effects = sm, effects(sm.program, alone)
        self.max_cycles, self.last_look = max_cycles, max_cycles - max_cycles // 4
        self.before = sm.stalls[:, Reason.SELECTED].copy()

    def until(self, wanted: int) -> int:
        """The end of a stretch that is to last until `wanted`."""
        S = self.sm.sm[0]
        ahead = S["now"] < self.last_look and S["status"] in (RUNNING, QUANTUM)
        return min(wanted, self.last_look if ahead else self.max_cycles)

    def quiet(self) -> bool:
        """Whether no instruction with an effect has issued since the last time."""
        counts = self.sm.stalls[:, Reason.SELECTED]
        quiet = not (counts - self.before)[self.effects].any()
        self.before = counts.copy()
        return bool(quiet)

    def look(self) -> None:
        """End the run as a deadlock when all its warps repeat themselves."""
        if self.quiet() or int(self.sm.sm[0]["now"]) == self.last_look:
            self.find()
            self.end()

    def find(self) -> None:
        """See whether all warps of the SM that still move repeat themselves."""
        self.sm.spinning = repeating(self.sm, self.effects, self.max_cycles)

    def end(self) -> None:
        """End the run where they do."""
        if self.sm.spinning:
            self.sm.advance(int(self.sm.sm[0]["now"]), DEADLOCK)  # the core charges what warps have waited
        self.sm.collect_stalls()


def look_together(watches: list[Watch]) -> None:
    """`Watch.look` at the SMs of a team, whose clusters could still free each other: all must stand still or repeat themselves."""
    active = [w for w in watches if w.sm.sm["status"][0] == QUANTUM and w.sm.sm["live_warps"][0]]
    calm = [w.quiet() for w in watches]  # each of them starts a new stretch
    if not all(calm) or not active:
        return
    for watch in active:
        if not watch.sm.sm["idle"][0]:
            watch.find()
    repeated = any(w.sm.spinning for w in active)
    if repeated and all(w.sm.spinning or w.sm.sm["idle"][0] for w in active):
        for watch in active:
            watch.sm.advance(int(watch.sm.sm[0]["now"]), DEADLOCK)
    for watch in watches:
        watch.sm.collect_stalls()


def effects(program: Program, alone: bool) -> np.ndarray:
    """Which instructions change what others see, or depend on time."""
    pure = PURE | (READS if alone else set())
    return np.array([bool(unit) and unit not in pure for unit in (MICROS[name].unit for name in program.micro_names)])


def repeating(sm: StreamingMultiprocessor, effect: np.ndarray, end: int) -> dict[int, list[int]]:
    """Warp slots that repeat a loop -> its instructions, when nothing else can ever happen; else nothing.

    Runs the SM on while it looks, at most to cycle `end`.
    """
    S = sm.sm[0]
    live = [k for k in range(WARP_SLOTS) if sm.warps[k]["state"] == LIVE]
    moving = {k for k in live if not _waits_for_ever(sm, k)}
    if not moving or S["jobs"] or S["mma_wg"] >= 0 or S["fly_head"] < S["fly_tail"] or S["copy_head"] < S["copy_tail"]:
        return {}
    launched, since = int(S["launched"]), int(S["now"])
    start = {k: _registers(sm, k) for k in moving}
    seen: dict[int, set[int]] = {k: set() for k in moving}
    away = set(moving)
    for step in range(STEPS):
        soonest = min(int(S["next_event"]), *(int(x) for x in S["sub_next"]))
        following = max(int(S["now"]) + 1, soonest)
        if following > end or sm.advance(following) != QUANTUM or int(S["now"]) < following:
            return {}  # the last: it waits for an answer that needs the other SMs
        for k in moving:
            seen[k].add(int(sm.warps["pc"][k]))
        away -= {k for k in away if sm.warps["last"][k] >= since and _registers(sm, k) == start[k]}
        if step % 64 == 63 or not away:
            if sm.selected_since_collect()[effect].any() or int(S["launched"]) != launched:
                return {}
            if not away:
                return {k: sorted(pcs) for k, pcs in seen.items()}
    return {}


def _waits_for_ever(sm: StreamingMultiprocessor, k: int) -> bool:
    """Whether a warp is parked on what only others can end."""
    W = sm.warps[k]
    spins = bool(sm.linked.instrs[int(W["wait_pc"])]["flags"] & SPIN)
    return bool(sm.ready[k] == NEVER) and (W["block"] != BLOCK_MBAR or spins)


def _registers(sm: StreamingMultiprocessor, k: int) -> tuple[object, ...]:
    """Everything that a warp's future depends on while nothing else changes."""
    W, program = sm.warps[k], sm.program
    depth = int(W["depth"])
    first = k * (program.rows + 1) * 32
    rows = sm.windows[first : first + program.registers * 32].tobytes()
    predicates = sm.predicates[k * program.predicates : (k + 1) * program.predicates].tobytes()
    stack = tuple(W[name][:depth].tobytes() for name in ("stack_pc", "stack_rpc", "stack_mask"))
    return int(W["pc"]), int(W["active"]), int(W["exited"]), int(W["rpc"]), stack, predicates, rows
