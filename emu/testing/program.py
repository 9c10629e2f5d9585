"""Barrier programs as data: what several warps do to mbarriers, named barriers and slots of shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

MBARRIERS, SLOTS, WARPS = 8, 16, 16  # most of each
COPY_BYTES = 128  # of a bulk copy: 32 words into a slot


class Op(NamedTuple):
    """One operation of a warp.

    kind            barrier     value       amount
    arrive, drop    mbarrier    count                   mbarrier.arrive, .arrive_drop by one lane
    expect          mbarrier    bytes                   mbarrier.expect_tx
    complete        mbarrier    bytes                   mbarrier.complete_tx
    arrive_expect   mbarrier    bytes                   mbarrier.arrive.expect_tx
    wait            mbarrier    parity                  until the phase of that parity is complete
    test            mbarrier    parity                  test_wait.parity; its answer is recorded
    keep            mbarrier    count                   mbarrier.arrive whose state is kept ...
    wait_kept       mbarrier                            ... until the phase of that state is complete
    copy            mbarrier    slot        word        a bulk copy of COPY_BYTES that fills a slot with a word
    sync, signal    0 .. 14     warps                   bar.sync, bar.arrive with so many warps
    put             slot        word                    st.shared by one lane
    get             slot                                ld.shared; the word is recorded
    pause                       nanoseconds             nanosleep
    """

    kind: str
    barrier: int = 0
    value: int = 0
    amount: int = 0


KINDS = (
    "end", "arrive", "drop", "expect", "complete", "arrive_expect", "wait", "test", "keep", "wait_kept", "copy", "sync",
    "signal", "put", "get", "pause",
)  # fmt: skip
ANSWERS = ("test", "get")


class Word(NamedTuple):
    """What an mbarrier's word holds."""

    expected: int
    pending: int
    tx: int
    parity: int


class Outcome(NamedTuple):
    """How a program ends: `done`, `stuck` (a deadlock) or `fault`.

    `at` is the operation where each warp is (its length: finished), `words` the mbarriers, `answers` what was recorded, as
    (warp, operation, value).  A fault has its rule, and nothing else.
    """

    how: str
    rule: str = ""
    at: tuple[int, ...] = ()
    words: tuple[Word, ...] = ()
    answers: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class BarrierProgram:
    """`counts` initialise the mbarriers; `warps` are the operations of each warp."""

    counts: tuple[int, ...]
    warps: tuple[tuple[Op, ...], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.warps) <= WARPS or len(self.counts) > MBARRIERS:
            raise ValueError(f"a barrier program has 1 to {WARPS} warps and at most {MBARRIERS} mbarriers")
        for op in (op for warp in self.warps for op in warp):
            if op.kind not in KINDS[1:]:
                raise ValueError(f"unknown operation '{op.kind}'; there are {', '.join(KINDS[1:])}")

    def change(self, warp: int, position: int, *ops: Op) -> BarrierProgram:
        """The program with one operation replaced by others (none: dropped)."""
        changed = list(self.warps)
        changed[warp] = (*changed[warp][:position], *ops, *changed[warp][position + 1 :])
        return replace(self, warps=tuple(changed))

    def __str__(self) -> str:
        lines = [f"mbarriers {self.counts}"]
        for w, ops in enumerate(self.warps):
            lines.append(f"warp {w}: " + "; ".join(" ".join(map(str, op)) for op in ops))
        return "\n".join(lines)
