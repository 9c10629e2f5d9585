"""The calibration suite: its PTX, its readings, and the measured rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.calibrate import alu, fetch
from tools.calibrate.bench import Bench, interval, measure, pair, rate
from tools.calibrate.composites import FOLDER, recorded
from tools.calibrate.suite import FAMILIES, MEASURED, benches, measured

Assemble = Callable[[str, str], tuple[bool, str]]
SAMPLES = 6


def sample(family: str) -> list[Bench]:
    """A few different kernels of a family, first and last included."""
    distinct = list({bench.text: bench for bench in benches(family)}.values())
    return [distinct[i] for i in np.unique(np.linspace(0, len(distinct) - 1, SAMPLES).astype(int))]


@pytest.mark.parametrize("family", FAMILIES)
def test_ptxas_accepts_the_kernels(family: str, ptxas: Assemble) -> None:
    for bench in sample(family):
        accepted, messages = ptxas(bench.text, "sm_90a")
        assert accepted, messages
        assert "serialized" not in messages


def test_every_measured_row_is_reproduced_once() -> None:
    rows = [(row.name, row.params) for family in FAMILIES for bench in benches(family) for row in bench.rows]
    assert set(rows) == set(measured())


def test_measured_rows_are_unique() -> None:
    lines = [line for line in MEASURED.read_text().splitlines() if not line.startswith("#")]
    keys = [(r["name"], r["params"]) for r in csv.DictReader(lines)]
    assert len(keys) == len(set(keys))


@given(
    fixed=st.integers(0, 10**6),
    cost=st.integers(1, 10**4),
    turns=st.tuples(st.integers(1, 50), st.integers(51, 100)),
    per_turn=st.sampled_from([1, 16, 256]),
)
def test_a_difference_cancels_fixed_costs(fixed: int, cost: int, turns: tuple[int, int], per_turn: int) -> None:
    def execute(_: Bench, n: int) -> np.ndarray:
        return np.array([[7, 7 + fixed + cost * n], [9, 8 + fixed + cost * n]], np.uint64)

    bench = Bench("alu", "", 2, turns, ())
    tables = [execute(bench, n) for n in turns]
    assert interval(turns, per_turn)(tables) == pytest.approx(cost / per_turn)
    assert rate(turns, per_turn)(tables) == pytest.approx(per_turn / cost)


def test_a_pair_reads_one_warp_of_the_last_launch() -> None:
    tables = [np.array([[1, 2, 3]], np.uint64), np.array([[10, 30, 70], [5, 6, 7]], np.uint64)]
    assert pair(0, 2)(tables) == 60 and pair(1, 2, warp=1)(tables) == 1
    assert measure(Bench("alu", "", 1, (), ()), lambda *_: tables[0]) == []


def test_a_body_has_its_instructions() -> None:
    assert alu.single("FFMA", 8).count("fma.rn") == alu.BODY
    two = alu.single("FSETP+FSEL", 8).splitlines()
    assert [line.split(".")[0].strip() for line in two[:16]] == ["setp"] * 8 + ["selp"] * 8
    assert alu.mixed("FFMA*3+MUFU_EX2*1", True).count("ex2") == alu.BODY // 4


def test_composites_fit_their_kernels() -> None:
    for composite in recorded():
        text = (FOLDER / f"{composite.file}.ptx").read_text()
        words = re.search(r"setp\.gt\.s32 \t%p\d+, %r1, (\d+);", text)
        threads = re.search(r"\.maxntid (\d+)", text)
        assert words and 4 * (int(words[1]) + 1) == composite.shared
        assert threads and int(threads[1]) == 32 * composite.warps


def test_of_an_sm_the_slowest_warp_counts_and_of_many_sms_the_middle_one() -> None:
    """Three SMs of two warps, eight jumps between the clocks of slots 1 and 2."""
    spent = np.array([[8, 16], [80, 40], [24, 24]]).reshape(-1)
    table = np.stack([np.zeros(6), np.arange(6), np.arange(6) + spent], 1).astype(np.uint64)
    assert fetch.between(1, 2, 2, 8)([table]) == 3
