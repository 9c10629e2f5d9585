"""Machine files: what they hold agrees with the measurements, and wrong ones are refused with a remedy."""

import ast
import csv
import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.machine import (
    STATUSES,
    MachineError,
    differences,
    evaluate,
    load_machine,
    machine_names,
    parameters,
)
from emu.stalls import REASONS
from isa import registry
from isa.micro import MICROS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str, str], float]:
    """The recorded rows: (section, name, params) -> value."""
    with (ROOT / "tests/golden/h200/microbench-used.csv").open() as file:
        return {(r["section"], r["name"], r["params"]): float(r["value"]) for r in csv.DictReader(file)}


def recorded(source: str, rows: dict[tuple[str, str, str], float]) -> float | None:
    """The row that a source cites: `h200-microbench: SECTION name params` or `h200-stalls: name params`."""
    if source.startswith("h200-microbench: "):
        section, name, params = source.split(" ", 3)[1:]
    elif source.startswith("h200-stalls: "):
        section, (name, params) = "S", source.split(" ", 2)[1:]
    else:
        return None
    return rows[next(key for key in rows if key[:2] == (section, name) and key[2].startswith(params))]


def write(tmp_path: Path, text: str, base: str = 'extends = "h200"\nname = "mine"\n') -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(base + text)
    return path


@pytest.mark.parametrize("name", machine_names())
def test_shipped_machines_load_and_say_where_numbers_come_from(name):
    machine = load_machine(name)
    assert machine.name == name
    lacking = set() if machine.has("tcgen05") else {c for c in parameters().classes if c.startswith("tcgen05_")}
    assert set(machine.timing) == set(parameters().classes) - lacking
    for path, number in machine.numbers.items():
        assert number.source, path
        assert number.status in STATUSES, path


def test_measured_values_equal_the_rows_that_they_cite(rows):
    numbers = load_machine("h200").numbers
    measured = {path: n for path, n in numbers.items() if n.status == "measured"}
    assert len(measured) > 50
    for path, number in measured.items():
        row = recorded(number.source, rows)
        assert row is not None, f"{path}: a measured value cites its row"
        assert abs(number.value - row) <= max(0.5, 0.002 * row), path


def test_every_number_is_read():
    """A number that no code and no formula reads would change nothing with --set."""
    read = []
    for folder in ("emu", "tools"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
                    read.append(re.escape(node.value))
                elif isinstance(node, ast.JoinedStr):
                    parts = [re.escape(v.value) if isinstance(v, ast.Constant) else r"\w+" for v in node.values]
                    read.append("".join(parts) if parts[0] != r"\w+" else "")
    known = re.compile("|".join(read))
    machines = [load_machine(name) for name in machine_names()]
    formulas = " ".join(number.formula for machine in machines for number in machine.numbers.values())
    read_there = set(re.findall(r"[a-z][\w.]+", formulas))
    paths = {path for machine in machines for path in machine.numbers if not path.startswith("timing.")}
    unread = {path for path in paths - read_there if not known.fullmatch(path)}
    assert not unread


def test_every_recorded_row_is_used(rows):
    sources = [n.source for n in load_machine("h200").numbers.values()]
    used = {recorded(source, rows) for source in sources}
    assert set(rows.values()) <= used


def test_timing_classes_are_those_of_the_contract():
    text = (ROOT / "docs/architecture.md").read_text()
    block = re.search(r"Timing classes \(names; numbers in machine files\): `([^`]*)`", text)
    assert block is not None
    assert set(block.group(1).split()) == set(parameters().classes)


def test_micro_operations_use_known_timing_classes():
    registry.load()
    assert {op.timing for op in MICROS.values()} <= set(parameters().classes)


def test_reasons_and_pipes_of_timing_are_known():
    for timing in load_machine("h200").timing.values():
        assert timing.reason in REASONS
        assert timing.throttle in REASONS
        assert timing.pipe in parameters().pipes


def test_lanes_give_the_issue_intervals():
    machine = load_machine("h200")
    intervals = {c: machine.timing[c].interval for c in ("fma", "imad", "alu", "fp64", "mufu", "shfl")}
    assert intervals == {"fma": 1, "imad": 2, "alu": 2, "fp64": 2, "mufu": 8, "shfl": 4}


def test_h100_is_an_h200_with_other_memory():
    changed = {path for path, _, _ in differences(load_machine("h200"), load_machine("h100"))}
    assert changed == {"unit.l2.capacity_b", "unit.hbm.gb_per_s", "unit.hbm.b_per_cy", "unit.hbm.latency_cy"}


def test_a_feature_is_given_whole_or_not_at_all(tmp_path):
    assert [name for name in machine_names() if load_machine(name).has("tcgen05")] == ["b200", "b300"]
    with pytest.raises(MachineError) as caught:
        load_machine(write(tmp_path, '[unit.tmem]\ncolumns = { value = 512, source = "x", status = "assumed" }\n'))
    for path in ("unit.tmem.port_b_per_cy", "timing.tcgen05_ld.pipe"):
        assert f"missing: {path}" in str(caught.value)


def test_b300_has_twice_the_exponentials():
    one, two = load_machine("b200").timing, load_machine("b300").timing
    assert (one["ex2"].interval, two["ex2"].interval, two["mufu"].interval) == (8, 4, 8)


def test_machines_are_frozen():
    machine = load_machine("h200")
    with pytest.raises(dataclasses.FrozenInstanceError):
        machine.name = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        machine.numbers["chip.sms"] = machine.numbers["sm.ctas"]  # type: ignore[index]


def test_unknown_path_names_the_nearest():
    with pytest.raises(MachineError, match="did you mean 'unit.tma.queue'"):
        load_machine("h200").value("unit.tma.queu")


# ---- overrides ------------------------------------------------------------------------------------


@given(st.sampled_from([4, 8, 16, 32, 64, 128]))
def test_overrides_reach_formulas(lanes):
    machine = load_machine("h200", [f"unit.sfu.lanes={lanes}"])
    assert machine.timing["mufu"].interval == 128 / lanes
    assert machine.timing["xu"].interval == 128 / lanes
    assert machine.provenance("unit.sfu.lanes").status == "assumed"
    assert machine.overrides == (f"unit.sfu.lanes={lanes}",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("unit.sfu.lane=32", "did you mean 'unit.sfu.lanes'"),
        ("unit.sfu.lanes", "write path=number"),
        ("unit.sfu.lanes=many", "not a number"),
        ("unit.sfu.lanes=inf", "not a number"),
        ("unit.sfu.lanes=nan", "not a number"),
        ("unit.sfu.lanes=0", "at least 1"),
        ("unit.sfu.lanes=1.5", "whole number"),
        ("timing.fma.latency=-1", "not be negative"),
        ("unit.smem.store_share=1.5", "between 0 and 1"),
        ("clock.boost_mhz=0", "must be positive"),
    ],
)
def test_bad_overrides(text, message):
    with pytest.raises(MachineError, match=message):
        load_machine("h200", [text])


# ---- wrong files ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[unit.sfu]\nlane = { value = 1, source = 's', status = 'assumed' }",
            "unknown key 'unit.sfu.lane'.*'unit.sfu.lanes'",
        ),
        ("[unit.sfu]\nlanes = 16", "write { value = 16"),
        ("[unit.sfu]\nlanes = { value = 16, status = 'assumed' }", "missing source"),
        ("[unit.sfu]\nlanes = { value = 16, source = 's', status = 'guess' }", "status must be one of"),
        ("[unit.sfu]\nlanes = { value = 16, source = 's' }", "status must be one of"),
        (
            "[unit.sfu]\nlanes = { value = 16, formula = '1', source = 's', status = 'derived' }",
            "either value or formula",
        ),
        ("[unit.sfu]\nlanes = { value = 'x', source = 's', status = 'assumed' }", "not a number"),
        ("[unit.sfu]\nlanes = { value = true, source = 's', status = 'assumed' }", "not a number"),
        ("[unit.sfu]\nlanes = { value = 16, sourse = 's', source = 's', status = 'assumed' }", "did you mean 'source'"),
        ("[unit.sfu]\nlanes = { formula = 'unit.sfu.lanes', source = 's', status = 'derived' }", "runs in a circle"),
        (
            "[unit.sfu]\nlanes = { formula = 'unit.alu.lane', source = 's', status = 'derived' }",
            "did you mean 'unit.alu.lanes'",
        ),
        ("[unit.sfu]\nlanes = { formula = '1 / 0', source = 's', status = 'derived' }", "division by zero"),
        ("[unit.sfu]\nlanes = { formula = 'open(1)', source = 's', status = 'derived' }", "not arithmetic"),
        ("[timing.fmaa]\nlike = 'fma'", "unknown key 'timing.fmaa.pipe'"),
        ("[timing.fma]\nlike = 'alu'", "like runs in a circle"),
        ("[timing.fma]\nlike = 'alux'", "did you mean 'alu'"),
        ("[timing.fma]\npipe = 'fmaa'", "did you mean 'fma'"),
        ("[timing.fma]\nreason = 'waiting'", "did you mean 'wait'"),
        ("targets = []", "missing: targets"),
        ("x = [", "Invalid"),
    ],
)
def test_bad_files(tmp_path, text, message):
    with pytest.raises(MachineError, match=re.compile(message, re.DOTALL)):
        load_machine(write(tmp_path, text))


def test_all_findings_come_at_once(tmp_path):
    with pytest.raises(MachineError) as error:
        load_machine(write(tmp_path, "[unit.sfu]\nlanes = 16\n[unit.alu]\nlanes = { value = 64, status = 'assumed' }"))
    assert "unit.sfu.lanes" in str(error.value) and "unit.alu.lanes: missing source" in str(error.value)


def test_a_machine_without_a_base_must_give_everything(tmp_path):
    with pytest.raises(MachineError) as error:
        load_machine(write(tmp_path, "", base='name = "bare"\ntargets = ["sm_90a"]\n'))
    assert "missing: timing.fma.latency" in str(error.value)
    assert "missing: unit.tma.queue" in str(error.value)


def test_extends_in_a_circle(tmp_path):
    (tmp_path / "a.toml").write_text('extends = "b.toml"')
    (tmp_path / "b.toml").write_text('extends = "a.toml"')
    with pytest.raises(MachineError, match="circle: a -> b -> a"):
        load_machine(tmp_path / "a.toml")


def test_unknown_machine_names_the_nearest():
    with pytest.raises(MachineError, match="did you mean 'h200'"):
        load_machine("h2000")
    with pytest.raises(MachineError, match="known machines: a100, b200, b300, h100, h200"):
        load_machine("zzz")


def test_a_file_extends_by_name_and_keeps_the_rest(tmp_path):
    path = write(tmp_path, "[chip]\nsms = { value = 1, source = 'one SM', status = 'assumed' }")
    changed = differences(load_machine("h200"), load_machine(path))
    assert [path for path, _, _ in changed] == ["chip.sms"]


# ---- formulas -------------------------------------------------------------------------------------

numbers = st.integers(1, 1000)


@given(numbers, numbers, numbers)
def test_formulas_are_arithmetic(a, b, c):
    values = {"unit.a": a, "b_cy": b, "x.y.c": c}
    assert evaluate("unit.a + b_cy * x.y.c", values.__getitem__) == a + b * c
    assert evaluate("-(unit.a - b_cy) // x.y.c", values.__getitem__) == -(a - b) // c
    assert evaluate("max(unit.a / b_cy, min(x.y.c, 2.5))", values.__getitem__) == max(a / b, min(c, 2.5))
    assert evaluate("ceil(unit.a / b_cy)", values.__getitem__) == -(-a // b)


@pytest.mark.parametrize(
    "text", ["a ** 2", "__import__('os')", "a if b else c", "[1]", "a(", "'x'", "", "True", "a.b()"]
)
def test_other_python_is_refused(text):
    with pytest.raises(ValueError):
        evaluate(text, lambda _: 1)
