"""fa1 and fa2 beside the H200: recorded values, reduced problems, and bounds that the model must keep."""

from __future__ import annotations

from typing import Any

import pytest

import programs
from emu.solve import solve
from programs.attention import Attention
from tools.accuracy import synchronous

WAVE = {"seqlen": 128, "heads_k": 1}
# Runs that do not wait for the rest of the chip.
BOUNDS: tuple[dict[str, Any], ...] = tuple(
    WAVE | {"seqlen_k": keys, "heads": heads, "head_dim": dim}
    for keys, dim in ((1024, 64), (4096, 128))
    for heads in (132, 264)
)


def test_recorded_runs_can_be_run() -> None:
    entries = synchronous.entries()
    assert len({e.name for e in entries}) == len(entries) == 26
    for e in entries:
        problem = programs.find(e.program).from_options(e.defines, **e.options)
        assert (
            isinstance(problem, Attention)
            and e.cycles > 0
            and e.rel_error < (3e-3 if problem.dtype == "bf16" else 3e-4)
        )


def test_library_has_every_column() -> None:
    columns = set(synchronous.library()[synchronous.ACTIVE])
    shapes = synchronous.SHAPES.values()
    assert columns == {*shapes, *(f"own_{shape}" for shape in shapes)}
    assert set(synchronous.UNITS.values()) <= synchronous.library().keys()


@pytest.mark.parametrize("defines", [{}, {"FTZ": 1, "OVERLAP": 1}], ids=str)
@pytest.mark.parametrize("options", BOUNDS, ids=str)
def test_cycles_stay_near_the_card(options: dict[str, Any], defines: dict[str, int]) -> None:
    entry = synchronous.named("fa2", options, **defines)
    assert synchronous.emulated(entry.name).cycles == pytest.approx(entry.cycles, rel=0.10)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fa2", {"seqlen": 600, "seqlen_k": 128, "heads": 2}),
        ("fa2", {"seqlen": 200, "seqlen_k": 128, "heads": 3, "batch": 3, "causal": True}),
    ],
    ids=str,
)
def test_one_sm_stands_for_the_busiest(name: str, options: dict[str, Any]) -> None:
    whole = solve(programs.find(name).from_options(**options), synchronous.machine(sms=3))
    assert synchronous.share(name, {}, options, synchronous.machine(sms=1), 3).cycles == pytest.approx(
        whole.cycles, rel=0.06
    )


def test_fa1_on_the_whole_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the card; and from two and three key blocks of four, what all four take."""
    (entry,) = (e for e in synchronous.entries() if e.program == "fa1" and e.options["seqlen"] == 200)
    whole = synchronous.keys_outside(entry.name)
    assert whole == pytest.approx(entry.cycles, rel=0.10)
    monkeypatch.setattr(synchronous, "FEW", 3)
    assert synchronous.keys_outside.__wrapped__(entry.name) == pytest.approx(whole, rel=0.03)
