"""The machine against the reference model: random programs, pipelines, single mistakes, the state machine."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.testing import (
    BarrierProgram,
    Fault,
    MbarrierMachine,
    Op,
    Pipeline,
    barrier_programs,
    execute,
    faults,
    mutants,
    outcomes,
    pipelines,
)
from emu.testing.interpreter import run

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.one_of(st.none(), st.integers(0, 1000))


@settings(FEW, max_examples=150)
@given(barrier_programs(), SEEDS)
def test_programs_end_as_the_model_says(program: BarrierProgram, seed: int | None) -> None:
    """Any program, under any timing: done, stuck or faulting as some interleaving of the model does, words and answers too."""
    assert execute(program, seed) in outcomes(program), program


@FEW
@given(pipelines(), SEEDS)
def test_pipelines_deliver(pipeline: Pipeline, seed: int | None) -> None:
    outcome = execute(pipeline.program(), seed)
    assert outcome.how == "done" and outcome.answers == pipeline.answers()


@settings(FEW, max_examples=30)
@given(pipelines(stages=2, items=4, producers=1, consumers=1))
def test_pipelines_have_one_outcome(pipeline: Pipeline) -> None:
    """All interleavings of a program that is right end the same."""
    assert outcomes(pipeline.program()) == {execute(pipeline.program())}


@FEW
@given(mutants(), SEEDS)
def test_mistakes_end_as_the_model_says(fault: Fault, seed: int | None) -> None:
    assert execute(fault.program, seed) in outcomes(fault.program), fault.name


def test_hanging_mistakes_are_reported_at_the_barrier() -> None:
    """Every mistake in a small ring: a hang's report knows the mbarrier that the mistake concerns."""
    hangs = 0
    for fault in faults(Pipeline(2, 4, 1, 1, copies=True).program()):
        outcome, result = run(fault.program)
        if outcome.how == "stuck" and fault.barrier >= 0:
            hangs += 1
            offset = f"bars + {8 * fault.barrier}" if fault.barrier else "bars"
            assert offset in {b.name for b in result.deadlock.barriers}, fault.name
            assert result.deadlock.causes, fault.name
    assert hangs > 15


TestMbarrier = MbarrierMachine.TestCase
TestMbarrier.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_programs_and_pipelines_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="unknown operation 'leave'"):
        BarrierProgram((1,), ((Op("leave"),),))
    with pytest.raises(ValueError, match="1 to 16 warps"):
        BarrierProgram((1,), ())
    with pytest.raises(ValueError, match="do not divide"):
        Pipeline(3, 4, 2)
    with pytest.raises(RuntimeError, match="more than 10 states"):
        outcomes(Pipeline(2, 4).program(), 10)
