"""The whole suite: families of benchmarks, and the measured rows that they reproduce."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tools.calibrate.bench import Bench

MEASURED = Path(__file__).with_name("measured.csv")
REMEASURED = Path(__file__).with_name("remeasured.csv")

FAMILIES = {
    "alu": "tools.calibrate.alu",
    "shared": "tools.calibrate.shared_memory",
    "barriers": "tools.calibrate.barriers",
    "tma": "tools.calibrate.tma",
    "wgmma": "tools.calibrate.wgmma",
    "mixed": "tools.calibrate.mixed",
    "bursts": "tools.calibrate.bursts",
    "groups": "tools.calibrate.groups",
    "chip": "tools.calibrate.chip",
    "memory": "tools.calibrate.memory",
    "state": "tools.calibrate.state",
    "l1": "tools.calibrate.l1",
    "launch": "tools.calibrate.launch",
    "mma": "tools.calibrate.mma",
    "streams": "tools.calibrate.streams",
    "cluster": "tools.calibrate.cluster",
    "atomics": "tools.calibrate.atomics",
    "fetch": "tools.calibrate.fetch",
}


def measured() -> dict[tuple[str, str], float]:
    """(name, parameters) -> the value on the card."""
    return _values(MEASURED)


def remeasured() -> dict[tuple[str, str], float]:
    """(name, parameters) -> the value of this suite's own PTX, assembled by ptxas, on the card."""
    return _values(REMEASURED)


def _values(path: Path) -> dict[tuple[str, str], float]:
    with path.open() as file:
        lines = [line for line in file if not line.startswith("#")]
    return {(row["name"], row["params"]): float(row["value"]) for row in csv.DictReader(lines)}


def benches(family: str, every: bool = False) -> Iterator[Bench]:
    """The family's benchmarks, with the rows that were measured (or `every` one); those without any are left out."""
    known = measured()
    for bench in importlib.import_module(FAMILIES[family]).benches():
        rows = tuple(row for row in bench.rows if every or (row.name, row.params) in known)
        if rows:
            yield replace(bench, rows=rows)
