"""Accuracy: recorded values, the reduced problems, and bounds that the model must keep."""

from __future__ import annotations

from pathlib import Path

import pytest

import programs as shipped
from emu.solve import solve
from isa.errors import AssemblyError
from programs.attention import FlashAttention3
from tools.accuracy import counters, modes, own, tables
from tools.accuracy.emulate import busiest, emulate, machine, problem_of, scheduled
from tools.accuracy.recorded import Recorded, digest, distil, flash_attention, programs, rates
from tools.calibrate.suite import measured, remeasured

# Kernels whose SM is not waiting for the rest of the chip, and how far their cycles may be off.
BOUNDS = {
    "gemm": 0.10,
    "softmax-rows528-cols1024": 0.10,  # the second pass hits the L1
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


@pytest.mark.parametrize(
    ("program", "options"),
    [("fa3", {"seqlen": 256, "seqlen_k": 176, "heads": 2}), ("gemm", {"m": 256, "n": 512, "k": 128})],
)
def test_one_sm_stands_for_the_busiest(program: str, options: dict[str, object]) -> None:
    e = entry(program, **options)
    whole = solve(problem_of(e), machine(sms=3))
    alone = solve(problem_of(e, busiest(e, 3)), machine(sms=1))
    assert alone.cycles == pytest.approx(whole.cycles, rel=0.02)


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


def test_programs_are_those_that_were_recorded() -> None:
    changed = [e.name for e in programs() if digest(e.program, e.options, e.defines) != e.digest]
    assert changed == []


def test_what_tables_need_is_recorded() -> None:
    names = {e.name for e in programs()}
    assert set(own.PROFILED.values()) <= names and tables.find(tables.ONE_WAVE, {}).name == own.ONE_WAVE
    assert {own.column(w) for w in own.PROFILED} == counters.read()[counters.TENSOR].keys()
    assert sum(own.is_length(e) for e in programs()) == len(rates())
    with pytest.raises(KeyError):
        tables.find(tables.ONE_WAVE, {"STAGES": 1})


def test_busiest_cta_of_a_causal_grid_stands_for_all() -> None:
    e = entry("fa3", seqlen=512, heads=2, causal=True)
    problem = problem_of(e)
    assert isinstance(problem, FlashAttention3)
    assert scheduled(problem, 3).cycles == pytest.approx(solve(problem, machine(sms=3)).cycles, rel=0.02)


def test_counters_are_read_from_pages_cut_off_on_the_left(tmp_path: Path) -> None:
    page = '"x","sm__cycles_active.max","sm__cycles_active.min","smsp__inst_executed.sum","other"\n'
    page += '"","cycle","cycle","inst","%"\n"0","1,000","1","2,000,000","3"\n'
    assert counters.parse(page)["smsp__inst_executed.sum"] == ("inst", "2000000")
    assert counters.parse(page[14:])["sm__cycles_active.min"] == ("cycle", "1")
    rows = counters.distil([{"job": {"name": "a"}, "ok": True, "ncu": page}])
    assert rows == [
        ["metric", "unit", "a"],
        ["sm__cycles_active.max", "cycle", "1000"],
        ["smsp__inst_executed.sum", "inst", "2000000"],
    ]
    counters.write(tmp_path / "c.csv", "about", rows)
    assert counters.read(tmp_path / "c.csv") == {
        "sm__cycles_active.max": {"a": 1000},
        "smsp__inst_executed.sum": {"a": 2e6},
    }


def test_samples_are_summed_by_opcode() -> None:
    page = ["Source,# Samples,Instructions Executed,stall_wait,stall_wait (Not Issued),stall_selected"]
    page += ["@P0 HGMMA.X R1,50,4,20,9,10", "HGMMA.Y R2,10,4,5,9,5", "NOP,2,1,1,1,1"]
    rows = counters.by_opcode(page)
    assert rows == [
        ["metric", "instructions", "executed", "wait", "selected", "gmma"],
        ["HGMMA", "2", "8", "25", "15", "20"],
    ]


def test_counters_of_the_library_are_there() -> None:
    found = flash_attention()
    assert found["sm__cycles_active.max"] == {"one_wave": 87185.0, "full": 1264684.0}
    assert set(tables.UNITS.values()) <= found.keys()
    assert sum(name.startswith(counters.STALLED) for name in found) >= 15


def test_tables_of_our_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    result = emulate(entry("fa3", seqlen=64, seqlen_k=64, heads=1))
    monkeypatch.setattr(own, "emulated", lambda name: result)
    rows = [line.split("|") for line in own.stalls().splitlines()[2:-1]]
    for column in (2, 3, 4, 5):
        assert sum(float(row[column].strip(" %")) for row in rows) == pytest.approx(100, abs=1)
    assert len(own.lengths().splitlines()) == 2 + len(rates()) + 1
    assert own.variants().count("**fa3 ") >= 5 and own.instructions().count("\n") == 1 + len(own.PIPES) + 1
    assert "| MUFU |" in own.opcodes()


def test_remeasured_rows_belong_to_the_suite() -> None:
    assert remeasured().keys() <= measured().keys()


def test_errors_of_the_modes_are_current() -> None:
    """Twelve problems were recorded; a row of docs/numerics.md, made again: silicon mode has the card's errors."""
    assert len(list(modes.chosen())) == 12
    row = modes.row(next(modes.chosen()))
    assert (row[3], row[6]) == (row[4], row[7])
    assert f"| {' | '.join(row)} |" in modes.PAGE.read_text()
