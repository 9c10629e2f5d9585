"""Hypothesis strategies: barrier programs, pipelines that are right, single mistakes in them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from emu.testing.program import COPY_BYTES, SLOTS, WARPS, BarrierProgram, Op
from emu.testing.rings import Fault, Pipeline, faults

BYTES = st.sampled_from([1, 16, COPY_BYTES, COPY_BYTES, 1000, 2**19, 2**20 - 1])


def _op(*fields: SearchStrategy[Any]) -> SearchStrategy[Op]:
    return st.tuples(*fields).map(lambda values: Op(*values))


def mbarrier_operations(mbarriers: int = 2) -> SearchStrategy[Op]:
    """One operation on one of the first `mbarriers` mbarriers: arrivals, drops, bytes, waits, tests."""
    bars, counts, parity = st.integers(0, mbarriers - 1), st.integers(1, 3), st.integers(0, 1)
    return st.one_of(
        _op(st.sampled_from(["arrive", "arrive", "keep", "drop"]), bars, counts),
        _op(st.sampled_from(["expect", "complete", "arrive_expect"]), bars, BYTES),
        _op(st.sampled_from(["wait", "wait", "test"]), bars, parity),
        _op(st.just("wait_kept"), bars),
        _op(st.just("copy"), bars, st.integers(0, 3), st.integers(1, 9)),
    )


def other_operations(warps: int, named: int) -> SearchStrategy[Op]:
    """Named barriers, slots and pauses."""
    slots, words = st.integers(0, 3), st.integers(1, 9)
    return st.one_of(
        _op(st.sampled_from(["sync", "signal"]), st.integers(0, max(named - 1, 0)), st.integers(1, warps)),
        _op(st.just("put"), slots, words),
        _op(st.just("get"), slots),
        _op(st.just("pause"), st.just(0), st.integers(0, 2000)),
    )


@st.composite
def barrier_programs(
    draw: DrawFn, warps: int = 3, mbarriers: int = 2, named: int = 2, length: int = 4
) -> BarrierProgram:
    """Any barrier program, most of which deadlock or fault somewhere, with up to so many warps, mbarriers, ...

    The reference model goes through all interleavings: with 3 warps of 4 operations these are some hundred states.
    """
    many = draw(st.integers(1, min(warps, WARPS)))
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=mbarriers))
    ops = st.one_of(mbarrier_operations(len(counts)), mbarrier_operations(len(counts)), other_operations(many, named))
    lists = draw(st.lists(st.lists(ops, max_size=length), min_size=many, max_size=many))
    return BarrierProgram(tuple(counts), tuple(tuple(warp) for warp in lists))


def pipelines(**limits: Any) -> SearchStrategy[Pipeline]:
    """Pipelines that are right: `stages`, `items`, `producers`, `consumers` limit them from above."""
    most = {"stages": 4, "items": 12, "producers": 3, "consumers": 3} | limits
    if most["stages"] > SLOTS // 4:
        raise ValueError(f"a pipeline has at most {SLOTS // 4} stages")
    rings = [(s, p) for s in range(1, most["stages"] + 1) for p in range(1, most["producers"] + 1) if s % p == 0]
    return st.builds(
        lambda ring, items, consumers, copies: Pipeline(ring[0], items, ring[1], consumers, copies),
        st.sampled_from(rings),
        st.integers(0, most["items"]),
        st.integers(1, most["consumers"]),
        st.booleans(),
    )


@st.composite
def mutants(draw: DrawFn, of: SearchStrategy[Pipeline] | None = None) -> Fault:
    """A pipeline with a single mistake."""
    small = pipelines(stages=2, items=3, producers=1, consumers=2)
    pipeline = draw((of or small).filter(lambda p: p.items > 0))
    return draw(st.sampled_from(faults(pipeline.program())))
