"""Accuracy: recorded values, the reduced problems, and bounds that the model must keep."""

from __future__ import annotations

import pytest

import programs as shipped
from isa.errors import AssemblyError
from tools.accuracy import modes, tables
from tools.accuracy.emulate import emulate, problem_of
from tools.accuracy.recorded import Recorded, distil, flash_attention, programs
from tools.calibrate.suite import measured, remeasured

# Kernels whose SM is not waiting for the rest of the chip, and how far their cycles may be off.
BOUNDS = {
    "gemm": 0.10,
    "fa3-seqlen128-seqlen_k176-heads1": 0.10,
    "fa3-seqlen1024-heads1": 0.10,
    "fa3-seqlen128-seqlen_k4096-heads132-heads_k1": 0.10,
}


def entry(program: str, **options: object) -> Recorded:
    return Recorded(program, program, 1.0, 1.0, 0, 0.0, "", options)


def test_recorded_programs_can_be_run() -> None:
    entries = programs()
    assert len({e.name for e in entries}) == len(entries) > 20
    for e in entries:
        assert e.program in shipped.names() and e.cycles > 0 and e.registers <= 255
        assert problem_of(e).values.keys() >= e.options.keys()


@pytest.mark.parametrize("name", BOUNDS)
def test_cycles_stay_near_the_card(name: str) -> None:
    (e,) = (e for e in programs() if e.name == name)
    assert emulate(e).cycles == pytest.approx(e.cycles, rel=BOUNDS[name])


def test_distil_keeps_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"name": "a", "problem": "vector_add", "options": {"n": 64}, "defines": {}}
    result = {
        "job": job, "ok": True, "time_us_median": 1.23456, "cycles_max_median": 9.0, "registers": 8,
        "check": {"rel_error": 1.23456e-7},
    }  # fmt: skip
    (found,) = distil([{**result, "cycles_max_median": 7.0}, result, {"job": job, "ok": False}])
    assert (found.time_us, found.cycles, found.rel_error, found.program) == (1.235, 9.0, 1.235e-7, "vector_add")
    with pytest.raises(AssemblyError):
        distil([{**result, "job": {**job, "defines": {"NOPE": 1}}}])


def test_every_variant_is_recorded_for_both_lengths() -> None:
    for defines, _ in tables.VARIANTS:
        assert tables.find(tables.ONE_WAVE, defines).cycles > tables.find(tables.SHORT, defines).cycles
    with pytest.raises(KeyError):
        tables.find(tables.SHORT, {"STAGES": 1})


def test_counters_of_the_library_are_there() -> None:
    counters = flash_attention()
    assert counters["sm__cycles_active.max"] == {"one_wave": 87185.0, "full": 1264684.0}
    assert set(tables.UNITS.values()) <= counters.keys()
    assert sum(name.startswith(tables.STALLED) for name in counters) >= 15


def test_stall_shares_sum_to_one() -> None:
    result = emulate(entry("fa3", seqlen=64, seqlen_k=64, heads=1))
    rows = [line.split("|") for line in tables.stalls(result).splitlines()[2:]]
    for column in (2, 3):
        assert sum(float(row[column].strip(" %")) for row in rows) == pytest.approx(100, abs=1)


def test_remeasured_rows_belong_to_the_suite() -> None:
    assert remeasured().keys() <= measured().keys()


def test_errors_of_the_modes_are_current() -> None:
    """Twelve problems were recorded; a row of docs/numerics.md, made again: silicon mode has the card's errors."""
    assert len(list(modes.chosen())) == 12
    row = modes.row(next(modes.chosen()))
    assert (row[3], row[6]) == (row[4], row[7])
    assert f"| {' | '.join(row)} |" in modes.PAGE.read_text()
