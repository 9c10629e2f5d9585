"""The reference: mbarriers, named barriers and bulk copies as the PTX manual defines them, in a page of Python.

`outcomes` takes a barrier program through all interleavings and all moments at which copies may end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from emu.testing.program import COPY_BYTES, BarrierProgram, Op, Outcome, Word

MOST = 2**20 - 1  # counts and bytes (PTX ISA 9.7.13.15.2)


class Trap(Exception):
    """Silicon stops the program; the argument is the rule that reports it."""


@dataclass(frozen=True)
class Mbarrier:
    """An mbarrier object (PTX ISA 9.7.13.15.1); operations return the next state."""

    expected: int
    pending: int
    tx: int = 0
    parity: int = 0

    @classmethod
    def init(cls, count: int) -> Mbarrier:
        """mbarrier.init (9.7.13.15.9)."""
        if not 1 <= count <= MOST:
            raise Trap("MB105")
        return cls(count, count)

    def arrive(self, count: int = 1, drop: int = 0, expect: int = 0) -> Mbarrier:
        """mbarrier.arrive, .arrive_drop (`drop`), .expect_tx (9.7.13.15.13-14)."""
        if not 1 <= count <= self.pending:
            raise Trap("MB106")
        if self.tx + expect > MOST:
            raise Trap("MB107")
        return replace(
            self, expected=self.expected - drop, pending=self.pending - count, tx=self.tx + expect
        )._settled()

    def change(self, tx: int) -> Mbarrier:
        """mbarrier.expect_tx, .complete_tx (negative) and the end of a bulk copy (9.7.13.15.11-12)."""
        if abs(self.tx + tx) > MOST:
            raise Trap("MB107")
        return replace(self, tx=self.tx + tx)._settled()

    def _settled(self) -> Mbarrier:
        """The phase ends when no arrival and no byte is pending, and the next one begins (9.7.13.15.5)."""
        if self.pending or self.tx:
            return self
        return replace(self, pending=self.expected, parity=1 - self.parity)

    def over(self, parity: int) -> bool:
        """test_wait.parity: whether the phase of that parity is the one just completed (9.7.13.15.16)."""
        return self.parity != parity

    @property
    def word(self) -> Word:
        """Its fields, as in the word."""
        return Word(self.expected, self.pending, self.tx, self.parity)


class State(NamedTuple):
    """A program between two steps."""

    at: tuple[int, ...]
    bars: tuple[Mbarrier, ...]
    named: tuple[tuple[int, int, tuple[int, ...]], ...]  # (number, arrived, warps that wait); open ones are absent
    limits: tuple[tuple[int, int], ...]  # (number, warps expected) of the same
    flying: tuple[tuple[int, int, int], ...]  # (mbarrier, slot, word) of copies
    memory: tuple[tuple[int, int], ...]
    kept: tuple[int, ...]  # parity of the state that each warp keeps
    answers: tuple[tuple[int, int, int], ...]


def outcomes(program: BarrierProgram, most_states: int = 200_000) -> set[Outcome]:
    """All ways in which a program may end; RuntimeError when there are more than `most_states` states."""
    try:
        bars = tuple(Mbarrier.init(count) for count in program.counts)
    except Trap as trap:
        return {Outcome("fault", str(trap))}
    warps = len(program.warps)
    start = State((0,) * warps, bars, (), (), (), (), (0,) * warps, ())
    found: set[Outcome] = set()
    seen, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        moved = False
        for w in range(warps):
            moved |= _try(program, state, w, seen, waiting, found)
        for k in range(len(state.flying)):
            moved |= _try(program, state, -1 - k, seen, waiting, found)
        if not moved:
            over = all(a == len(ops) for a, ops in zip(state.at, program.warps, strict=True))
            words = tuple(bar.word for bar in state.bars)
            found.add(Outcome("done" if over else "stuck", "", state.at, words, tuple(sorted(state.answers))))
        if len(seen) > most_states:
            raise RuntimeError(f"more than {most_states} states")
    return found


def _try(
    program: BarrierProgram, state: State, actor: int, seen: set[State], waiting: list[State], found: set[Outcome]
) -> bool:
    """Let a warp, or (negative) a copy, take its step; whether it can."""
    try:
        after = _land(state, -1 - actor) if actor < 0 else step(program, state, actor)
    except Trap as trap:
        found.add(Outcome("fault", str(trap)))
        return True
    if after is None:
        return False
    if after not in seen:
        seen.add(after)
        waiting.append(after)
    return True


def _land(state: State, k: int) -> State:
    """The end of a copy: its word is there and its bytes are counted, in one step."""
    bar, slot, word = state.flying[k]
    memory = dict(state.memory) | {slot: word}
    rest = state.flying[:k] + state.flying[k + 1 :]
    bars = _put(state.bars, bar, state.bars[bar].change(-COPY_BYTES))
    return state._replace(flying=rest, memory=tuple(sorted(memory.items())), bars=bars)


def _put(values: tuple[Mbarrier, ...], k: int, value: Mbarrier) -> tuple[Mbarrier, ...]:
    return (*values[:k], value, *values[k + 1 :])


def step(program: BarrierProgram, state: State, w: int) -> State | None:
    """The state after warp w's next operation; None when it must wait or has finished."""
    if state.at[w] == len(program.warps[w]) or any(w in waiters for _, _, waiters in state.named):
        return None
    op = program.warps[w][state.at[w]]
    moved = state._replace(at=(*state.at[:w], state.at[w] + 1, *state.at[w + 1 :]))
    if op.kind in ("sync", "signal"):
        return _named(program, moved, state, w, op)
    if op.kind in ("put", "get", "copy", "pause"):
        return _slots(moved, state, w, op)
    bar = state.bars[op.barrier]
    if op.kind in ("wait", "wait_kept"):
        return moved if bar.over(op.value if op.kind == "wait" else state.kept[w]) else None
    if op.kind == "test":
        return moved._replace(answers=(*state.answers, (w, state.at[w], int(bar.over(op.value)))))
    if op.kind == "keep":
        moved = moved._replace(kept=(*state.kept[:w], bar.parity, *state.kept[w + 1 :]))
    return moved._replace(bars=_put(state.bars, op.barrier, _changed(bar, op)))


def _changed(bar: Mbarrier, op: Op) -> Mbarrier:
    if op.kind == "arrive_expect":
        return bar.arrive(1, expect=op.value)
    if op.kind in ("expect", "complete"):
        return bar.change(op.value if op.kind == "expect" else -op.value)
    return bar.arrive(op.value, drop=op.value if op.kind == "drop" else 0)


def _slots(moved: State, state: State, w: int, op: Op) -> State:
    memory = dict(state.memory)
    if op.kind == "put":
        return moved._replace(memory=tuple(sorted((memory | {op.barrier: op.value}).items())))
    if op.kind == "get":
        return moved._replace(answers=(*state.answers, (w, state.at[w], memory.get(op.barrier, 0))))
    if op.kind == "copy":
        return moved._replace(flying=tuple(sorted((*state.flying, (op.barrier, op.value, op.amount)))))
    return moved


def _named(program: BarrierProgram, moved: State, state: State, w: int, op: Op) -> State:
    """bar.sync and bar.arrive (PTX ISA 9.7.13.1): the last warp opens the barrier for all that wait."""
    if not 1 <= op.value <= len(program.warps):
        raise Trap("BA102")
    limits = dict(state.limits)
    if limits.setdefault(op.barrier, op.value) != op.value:
        raise Trap("BA103")
    others = [entry for entry in state.named if entry[0] != op.barrier]
    arrived, waiters = next(((a, ws) for number, a, ws in state.named if number == op.barrier), (0, ()))
    arrived += 1
    if arrived == op.value:
        del limits[op.barrier]
        at = tuple(a + (v in waiters) for v, a in enumerate(moved.at))
        return moved._replace(at=at, named=tuple(others), limits=tuple(sorted(limits.items())))
    if op.kind == "sync":
        moved, waiters = moved._replace(at=state.at), tuple(sorted((*waiters, w)))
    named = tuple(sorted([*others, (op.barrier, arrived, waiters)]))
    return moved._replace(named=named, limits=tuple(sorted(limits.items())))
