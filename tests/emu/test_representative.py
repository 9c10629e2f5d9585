"""Representative mode against full mode: within 1.5 %, on grids of one and more waves, ragged, causal, persistent or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
import programs
from emu.machine import load_machine
from emu.representative import LEAST, Pace, Sample, border_classes, choose, replay
from emu.result import validate
from emu.solve import solve

SMS = 24
LOOP = """mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mul.wide.u32 %d0, %r1, 4; add.u64 %d1, %turns, %d0; ld.global.u32 %r2, [%d1];
    mov.f32 %f1, 0f3F800000; TURN: .for k in (0, 32) { fma.rn.f32 %f1, %f1, %f1, %f1; } sub.u32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; @%p1 bra TURN;
    mad.lo.u32 %r3, %r1, 128, %r0; mul.wide.u32 %d0, %r3, 4; add.u64 %d1, %out, %d0; st.global.f32 [%d1], %f1;"""


def machine(sms: int = SMS) -> Any:
    return load_machine("h200", (f"chip.sms={sms}",))


def both(run: Any) -> tuple[Any, Any]:
    """Results of full and representative mode; valid, close in cycles and close in counts."""
    full, part = run("full"), run("representative")
    assert full.mode == "full" and part.mode == "representative" and validate(part) == []
    assert part.cycles == pytest.approx(full.cycles, rel=0.015)
    assert part.warp_instructions == pytest.approx(full.warp_instructions, rel=0.02)
    assert part.pipes == pytest.approx(full.pipes, abs=0.03)
    return full, part


def program(name: str, sms: int = SMS, defines: Any = None, **options: Any) -> tuple[Any, Any]:
    problem = programs.find(name).from_options(defines or {}, **options)
    full, part = both(lambda mode: solve(problem, machine(sms), mode=mode))
    assert part.numerics.passed and part.numerics.tiles_checked < full.numerics.tiles_checked
    return full, part


def test_one_and_a_half_waves_of_loops_of_different_length(ptx: Any) -> None:
    """Trip counts from memory, classes given; 1.5 waves of one CTA an SM."""
    ctas = SMS * 3 // 2
    turns = np.where(np.arange(ctas) % 4 == 0, 700, 400).astype(np.uint32)

    def run(mode: str) -> Any:
        args = [np.zeros(ctas * 128, np.float32), turns]
        return ptx.run(
            LOOP,
            "u64 out, u64 turns",
            args,
            machine=machine(),
            grid=ctas,
            block=128,
            shared_bytes=200_000,
            mode=mode,
            classes=turns.tolist(),
            max_cycles=None,
        )

    full, part = both(run)
    assert len(part.executed) < ctas and set(turns[part.executed].tolist()) == {400, 700}
    assert full.cycles > 1.5 * 128 * 400


def test_many_waves_with_several_ctas_an_sm(ptx: Any) -> None:
    ctas = 4 * SMS * 5

    def run(mode: str) -> Any:
        args = [np.zeros(ctas * 128, np.float32), np.full(ctas, 100, np.uint32)]
        return ptx.run(
            LOOP,
            "u64 out, u64 turns",
            args,
            machine=machine(),
            grid=ctas,
            block=128,
            shared_bytes=50_000,
            mode=mode,
            max_cycles=None,
        )

    both(run)


def test_a_causal_grid() -> None:
    program("fa3", seqlen=1024, heads=16, batch=2, causal=True, sms=60)


def test_a_ragged_persistent_grid() -> None:
    program("fa3", seqlen=600, heads=6, batch=5, sms=60)


def test_a_grid_of_clusters() -> None:
    """Whole clusters are executed, on teams of SMs."""
    full, part = program("fa3", seqlen=1024, heads=16, batch=3, sms=60, defines={"CLUSTER": 2})
    assert len(part.executed) % 2 == 0 and {cta ^ 1 for cta in part.executed} == set(part.executed) and full.cycles


def test_gemm() -> None:
    program("gemm", m=2000, n=3000, k=1024)


# ---- its parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kinds", "slots", "sms"), [([0] * 500, 1, 132), ([0] * 100 + [1] * 400, 2, 132), (list(range(10)) * 100, 4, 132)]
)
def test_a_sample_stands_for_the_grid(kinds: list[int], slots: int, sms: int) -> None:
    sample = choose(kinds, slots, sms)
    assert sample is not None and list(sample.ctas) == sorted(set(sample.ctas))
    for kind in set(kinds):
        mine = [count for cta, count in zip(sample.ctas, sample.stands_for, strict=True) if kinds[cta] == kind]
        assert len(mine) >= LEAST and sum(mine) == pytest.approx(kinds.count(kind))
    assert sum(sample.weights) == pytest.approx(min(sms, len(kinds)), rel=0.2)


@pytest.mark.parametrize("kinds", [[0] * 10, list(range(200))])
def test_small_and_motley_grids_are_executed_whole(kinds: list[int]) -> None:
    assert choose(kinds, 1, 132) is None


def test_replay_deals_out_breadth_first() -> None:
    """Two SMs of one slot: A (30) and B (10) start; each later CTA (10) goes to the SM that is free first, 5 cycles later."""
    sample = Sample((0, 1), (1.0, 4.0), (1, 1))
    assert replay(["A", "B", "B", "B", "B"], sample, [30, 10], 1, 2, Pace(0, 5, 0)) == [45, 40]


def test_borders() -> None:
    assert len(set(border_classes((5, 4, 1)))) == 9 and len(set(border_classes((1, 1, 1)))) == 1


def test_modes_that_do_not_exist(ptx: Any) -> None:
    with pytest.raises(emu.LaunchError, match="mode"):
        ptx.run("", mode="fast")
    with pytest.raises(emu.LaunchError, match="classes"):
        ptx.run("", grid=4, mode="representative", classes=[1, 2])
