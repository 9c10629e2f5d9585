"""Recorded instructions of an H200 (tests/golden/numerics): names to PTX, and comparison bit for bit.

`tools.record.vectors` runs the tests on other recordings of the same form, and counts what they read.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np

from emu.lanes import run_ptx
from tests.isa.ops.cases import same

GOLDEN = Path(__file__).parents[2] / "golden" / "numerics"
FOLDER = Path(os.environ.get("WARPSMITH_VECTORS", GOLDEN))
OPERANDS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "min": 2, "max": 2, "fma": 3}


class Arrays(dict[str, np.ndarray]):
    """A file's arrays; `read` holds the names of those that were looked up."""

    def __init__(self, file: Path) -> None:
        with np.load(file) as stored:
            super().__init__(stored)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        self.read.add(name)
        return super().__getitem__(name)


@cache
def arrays(file: str) -> Arrays:
    """The arrays of a recorded file."""
    return Arrays(FOLDER / f"{file}.npz")


def names(file: str, *starts: str) -> list[str]:
    """The recorded instructions whose name starts with one of `starts`."""
    return [n for n in arrays(file) if n.startswith(starts)]


def run(file: str, line: str, out: str = "b32") -> np.ndarray:
    """`line` on the recorded inputs %a, %b, %c."""
    stored = arrays(file)
    result: np.ndarray = run_ptx(line, a=stored["a"], b=stored["b"], c=stored["c"], d=out)["d"]
    return result


def replay(file: str, name: str, line: str, out: str = "b32") -> None:
    """Assert that `line` gives the recorded results, bit for bit."""
    stored = arrays(file)
    got = run(file, line, out)
    if out == "b16":
        got = got & np.uint32(0xFFFF)
    same(got, stored[name], stored["a"], stored["b"], stored["c"])


def arithmetic(name: str, type: str = "") -> str:
    """`fma_rn_ftz` -> `fma.rn.ftz.f32 %d, %a, %b, %c;` (the type is the name's own when it ends in one)."""
    parts = name.split("_")
    count = OPERANDS.get(parts[0], 1)
    opcode = ".".join([*parts, *([type] if type else [])])
    return f"{opcode} %d, {', '.join(('%a', '%b', '%c')[:count])};"


def ulps(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Distance of f32 patterns in units in the last place, across zero too."""
    keys = [np.where(z >> 31, -(z.astype(np.int64) & 0x7FFFFFFF), z.astype(np.int64)) for z in (x, y)]
    distance: np.ndarray = np.abs(keys[0] - keys[1])
    return distance
