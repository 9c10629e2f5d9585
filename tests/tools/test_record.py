"""Recording: PTX parsing, clock instrumentation, jobs that fail alone."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu
import programs
from tools.record import compare, export, run_kernel, sweep, vectors
from tools.record.entry import SCALARS, Parameter, entries, scalar_bytes
from tools.record.export import export_sweep, label, ptx
from tools.record.instrument import InstrumentError, SmTimes, with_clocks
from tools.record.kernel import CLOCK_PTX
from tools.record.lists import BITS, LISTS, Case, numerics
from tools.record.problems import launch_of

TEXT = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry first(
    .param .u64 out,
    .param .align 64 .b8 map[128],
    .param .f32 scale // a comment with ret;
) .reqntid 64, 1, 1
{
    .reg .pred %p;
    .reg .b32 %r<3>;
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p, %r0, 40;
    @%p ret;
    @!%p bra NEXT;
    { .reg .b32 %x; mov.u32 %x, 1; }
NEXT:
    ret;
}
.visible .entry second() { ret; }
"""

Assemble = Callable[[str, str], tuple[bool, str]]


def test_entries_are_read() -> None:
    first, second = entries(TEXT)
    assert first.name == "first" and first.block == (64, 1, 1)
    assert [(p.type, p.size) for p in first.parameters] == [(".u64", 8), (".b8", 128), (".f32", 4)]
    assert second.parameters == () and second.block is None


@given(st.sampled_from(sorted(SCALARS)), st.integers(0, 100))
def test_scalars_keep_their_value(type_: str, value: int) -> None:
    size = np.dtype(SCALARS[type_]).itemsize
    raw = scalar_bytes(Parameter("x", type_, size), value)
    assert len(raw) == size and np.frombuffer(raw, SCALARS[type_])[0] == value


def test_a_scalar_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="takes 4 bytes"):
        scalar_bytes(Parameter("x", ".u32", 4), np.float64(1))


def test_every_exit_records_and_ptxas_agrees(ptxas: Assemble) -> None:
    text = with_clocks(TEXT, "first")
    assert text.count("%clock64") == 3  # the entry and two exits
    assert text.count("ret;") == TEXT.count("ret;") - 1  # the comment is gone
    accepted, messages = ptxas(text, "sm_90a")
    assert accepted, messages
    assert ptxas(CLOCK_PTX, "sm_90a")[0]


def test_an_unknown_kernel_is_an_error() -> None:
    with pytest.raises(InstrumentError, match="no kernel third"):
        with_clocks(TEXT, "third")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1))
def test_the_busiest_sm_decides(warps: list[tuple[int, int, int]]) -> None:
    table = np.array([(sm, start, start + length) for sm, start, length in warps], np.uint64)
    times = SmTimes.of(np.vstack([table, np.zeros((2, 3), np.uint64)]))
    spans = [max(s + n for m, s, n in warps if m == sm) - min(s for m, s, _ in warps if m == sm) for sm, _, _ in warps]
    assert times.cycles_max == max(spans)
    assert times.sms == len({sm for sm, _, _ in warps}) and times.warps == len(warps)


@pytest.mark.parametrize("case", [list(numerics())[k] for k in (22, 43, -2)], ids=str)
def test_cases_of_the_sweep_run(case: Case) -> None:
    """What the card gets is what the problem checks: the archive's text, launched as it will be there."""
    program, options, defines = case
    text = ptx(program, options, defines)
    launch, check, _ = launch_of(program, text, 3, options, defines)
    kernel = emu.load(text=text, order="source")
    machine = emu.load_machine("h200", ("chip.sms=3",))
    emu.launch(
        kernel, machine=machine, grid=launch.grid, block=launch.block, args=launch.args, shared_bytes=launch.shared
    )
    assert check()["passed"]


def test_some_tiles_are_checked() -> None:
    options = {"m": 300, "n": 600, "k": 8}
    _, check, arrays = launch_of("gemm", ptx("gemm", options, {}), 3, options, {}, check_tiles=2)
    arrays["c"][:] = arrays["a"] @ arrays["b"]
    arrays["c"][200, 0] = 9.0  # in the second of six tiles; the first and the last are looked at
    assert check()["tiles_checked"] == 2 and check()["passed"]


def test_lists_can_be_exported(tmp_path: Path) -> None:
    for cases in LISTS.values():
        assert len({label(*case) for case in cases}) == len(cases)
    cases = [("gemm", {"m": 64}, {}), ("fa3", {"heads": 1}, {"STAGES": 9}), ("gemm", {"m": 65}, {})]
    assert export_sweep(tmp_path / "s.zip", cases) == 2  # nine stages are refused
    with zipfile.ZipFile(tmp_path / "s.zip") as archive:
        listing = json.loads(archive.read("sweep.json"))
        assert [c["options"] for c in listing] == [{"m": 64}, {"m": 65}]
        assert archive.read(listing[0]["ptx"]).decode() == ptx("gemm", {"m": 64}, {})


def test_a_sweep_without_a_card_stops(tmp_path: Path) -> None:
    export_sweep(tmp_path / "s.zip", [("gemm", {"m": 64 + i}, {}) for i in range(5)])
    with pytest.raises(RuntimeError, match="3 processes in a row without a result"):
        sweep.main([str(tmp_path / "s.zip"), "--out", str(tmp_path / "out")])


def test_a_failing_job_leaves_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [{"name": name, "ptx": str(tmp_path / "missing.ptx"), "problem": "softmax"} for name in ("a", "b")]
    listing = tmp_path / "jobs.json"
    listing.write_text(json.dumps(jobs))
    assert run_kernel.main(["--jobs", str(listing), "--out", str(tmp_path / "out")]) == 1
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [r["job"]["name"] for r in results] == ["a", "b"]
    assert all(not r["ok"] and r["error"] for r in results)
    assert capsys.readouterr().out.count("FAIL") == 2


def test_recorded_outputs_are_compared_bit_for_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Outputs of silicon mode stand for the card's; then one bit of one of them is flipped."""
    options = {"m": 40, "n": 64, "k": 24, "dtype": "bf16"}
    job = {"name": "g", "problem": "gemm", "options": options, "defines": {}, "save": True}
    stored: dict[str, np.ndarray] = {}
    for flip in (0, 1):
        problem = programs.find("gemm").from_options(**options)
        found = compare.run(problem, problem.make_inputs(1), 2)  # other inputs than those that the program would make
        stored = {f"g/{n}": x.view(f"u{x.itemsize}") for n, x in (problem.make_inputs(1) | found).items()}
        stored["g/c"][7, 3] ^= flip
        np.savez(tmp_path / "outputs.npz", **stored)
        result = {"ok": True, "job": job, "device": {"multiprocessors": 2}}
        (tmp_path / "results.json").write_text(json.dumps([result]))
        assert compare.main([str(tmp_path)]) == flip
    said = capsys.readouterr().out
    assert "1 of 1 jobs equal in every bit" in said and "1 of 2560 differ, first at [7, 3]: card " in said


def test_cases_to_compare_are_saved(tmp_path: Path) -> None:
    export.main(["--bits", "--out", str(tmp_path)])
    jobs = json.loads((tmp_path / "jobs.json").read_text())
    assert len(jobs) == len(BITS) and all(job["save"] and Path(job["ptx"]).is_file() for job in jobs)


def test_vectors_tell_results_from_operands() -> None:
    """The files of tests/golden/numerics; the tests that read them exist."""
    assert all((Path(__file__).parents[1] / name).is_file() for name in vectors.TESTS)
    assert [n for n in ("a", "c", "x", "f16.A", "w_f16.D", "ex2.in", "ex2", "cvt.dense_x") if vectors.is_result(n)] == [
        "w_f16.D",
        "ex2",
    ]
