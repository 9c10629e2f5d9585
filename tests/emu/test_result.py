"""Result JSON version 1: fields, round trip, refusal of anything else, and the published schema."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import emu.result
from emu.result import Deadlock, Finding, Issue, Numerics, Problem, Result, StuckWarp, schema_text, validate
from emu.stalls import REASONS

# The fields that others rely on.
FIELDS = [
    "schema",
    "warpsmith_version",
    "kernel",
    "machine",
    "mode",
    "problem",
    "cycles",
    "cycles_elapsed",
    "time_us",
    "clock_mhz",
    "tflops",
    "tensor_utilization",
    "pipes",
    "metrics",
    "warp_instructions",
    "instruction_mix",
    "host_seconds",
    "warp_instructions_per_second",
    "numerics",
    "registers_per_thread",
    "shared_bytes",
    "occupancy",
    "stalls",
    "issue",
    "findings",
    "deadlock",
]

counts = st.integers(0, 2**53)
shares = st.floats(0, 1)
names = st.text(min_size=1, max_size=8)


def results() -> st.SearchStrategy[Result]:
    reasons = st.dictionaries(st.sampled_from(list(REASONS)), counts, max_size=4)
    return st.builds(
        Result,
        schema=st.just(1),
        warpsmith_version=names,
        kernel=names,
        machine=names,
        mode=st.sampled_from(["full", "representative"]),
        problem=st.none() | st.builds(Problem, shape=st.dictionaries(names, counts, max_size=3), dtype=names),
        cycles=counts,
        cycles_elapsed=counts,
        time_us=st.floats(0, 1e9),
        clock_mhz=st.floats(1, 1e4),
        tflops=st.none() | st.floats(0, 1e4),
        tensor_utilization=st.none() | shares,
        pipes=st.dictionaries(names, shares, max_size=3),
        warp_instructions=counts,
        instruction_mix=st.dictionaries(names, st.dictionaries(names, counts, max_size=3), max_size=2),
        host_seconds=st.floats(0, 1e4),
        warp_instructions_per_second=st.floats(0, 1e9),
        numerics=st.none() | st.builds(Numerics, max_abs_error=shares, rel_error=shares),
        registers_per_thread=counts,
        shared_bytes=counts,
        occupancy=shares,
        stalls=st.dictionaries(names, reasons, max_size=2),
        issue=st.builds(Issue, selected=counts, idle=counts),
        findings=st.lists(st.builds(Finding), max_size=2),
        deadlock=st.none() | st.builds(Deadlock, warps=st.lists(st.builds(StuckWarp), max_size=2)),
        lines=st.just([]),
    )


def minimal(**changes: object) -> Result:
    fields = {
        "warpsmith_version": "0",
        "kernel": "k",
        "machine": "h200",
        "mode": "full",
        "cycles": 10,
        "cycles_elapsed": 12,
        "time_us": 0.1,
        "clock_mhz": 1980.0,
        "pipes": {},
        "warp_instructions": 5,
        "instruction_mix": {"": {"alu": 5}},
        "host_seconds": 0.0,
        "warp_instructions_per_second": 0.0,
        "registers_per_thread": 8,
        "shared_bytes": 0,
        "occupancy": 0.5,
        "stalls": {"": {"selected": 5, "wait": 3}},
        "issue": Issue(selected=5, idle=35),
    }
    return Result(**{**fields, **changes})


@given(results())
def test_round_trip(result):
    assert Result.from_json(result.to_json()) == result


def test_fields_are_those_that_were_promised():
    names = [field.encode_name for field in msgspec.structs.fields(Result)]
    assert names[: len(FIELDS)] == FIELDS
    assert set(json.loads(minimal().to_json())) == {*FIELDS, "chaos", "lines", "printed"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        minimal().to_json().replace('"schema": 1', '"schema": 2'),
        minimal().to_json().replace('"cycles": 10', '"cycles": 10.5'),
        minimal().to_json().replace('"cycles": 10', '"cycles": "10"'),
        minimal().to_json().replace('"full"', '"half"'),
        minimal().to_json().replace('"machine"', '"machines"'),
    ],
)
def test_other_json_is_refused(text):
    with pytest.raises(ValueError):
        Result.from_json(text)


def test_outputs_stay_beside_the_json():
    result = minimal()
    result.outputs["o"] = object()
    assert list(result.outputs) == ["o"]
    assert "outputs" not in json.loads(result.to_json())


def test_valid_results_have_no_problems():
    assert validate(minimal()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stalls": {"": {"selected": 5, "waiting": 1}}}, "unknown reason"),
        ({"stalls": {"": {"selected": 5, "wait": -1}}}, "negative"),
        ({"stalls": {"": {"selected": 4}}}, "selected"),
        ({"instruction_mix": {"": {"alu": 4}}}, "instruction_mix"),
        ({"pipes": {"xu": 1.2}}, "not a fraction"),
        ({"occupancy": 0.0}, "occupancy"),
        ({"cycles": 13}, "exceed"),
    ],
)
def test_broken_invariants_are_found(changes, message):
    assert any(message in problem for problem in validate(minimal(**changes)))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"findings": [Finding(rule="r", severity="info", location="", message="")]}, 0),
        ({"findings": [Finding(rule="r", severity="error", location="", message="")]}, 1),
        ({"numerics": Numerics(max_abs_error=1, rel_error=1, reference="", tiles_checked=1, passed=False)}, 1),
        ({"deadlock": Deadlock(cycle=1, message="", warps=[])}, 3),
        ({"findings": [Finding(rule="r", severity="limit", location="", message="")]}, 5),
        ({"findings": [Finding(rule="r", severity="fault", location="", message="")]}, 6),
    ],
)
def test_exit_codes(changes, code):
    assert minimal(**changes).exit_code() == code


def test_the_published_schema_is_current():
    published = Path(emu.result.__file__).parent / "schema" / "result-1.json"
    assert published.read_text() == schema_text(), "run: python -m emu.result > emu/schema/result-1.json"


def test_the_command_prints_the_schema():
    run = subprocess.run([sys.executable, "-m", "emu.result"], capture_output=True, text=True, check=True)
    assert run.stdout == schema_text()
