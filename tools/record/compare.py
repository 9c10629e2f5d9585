"""Compares outputs recorded on a GPU with the emulator's in silicon mode, bit for bit.

    python -m tools.record.compare DIR [--only NAME]

DIR holds what `run_kernel` wrote for the jobs of `export --bits` (results.json, outputs.npz).  Each job is run here on the
recorded inputs.  For every output: how many elements differ and the first of them; the exit code is 1 when any does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import emu
import programs


@dataclass(frozen=True)
class Difference:
    """One output: its elements that differ, and the first of them with both values and bits."""

    output: str
    elements: int
    differ: int
    first: str = ""

    def __str__(self) -> str:
        if not self.differ:
            return f"{self.output}: {self.elements} elements equal"
        return f"{self.output}: {self.differ} of {self.elements} differ, first {self.first}"


def bits(array: Any) -> Any:
    """The raw bits of an array's elements."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def difference(name: str, card: Any, here: Any) -> Difference:
    """`card`: recorded elements (bits, or a type of NumPy); `here`: the emulator's, same shape."""
    a, b = bits(card), bits(here)
    places = np.argwhere(a != b)
    if not len(places):
        return Difference(name, a.size, 0)
    at = tuple(int(x) for x in places[0])
    width = 2 * a.dtype.itemsize
    theirs, ours = bits(card).view(here.dtype)[at], here[at]
    text = f"at {list(at)}: card {float(theirs):.9g} ({int(a[at]):#0{width + 2}x}), here {float(ours):.9g} ({int(b[at]):#0{width + 2}x})"
    return Difference(name, a.size, len(places), text)


def outputs(job: dict[str, Any], recorded: dict[str, Any], sms: int) -> dict[str, Any]:
    """The job's outputs by the emulator, in silicon mode, on the recorded inputs; RuntimeError when the run fails."""
    problem = programs.find(job["problem"]).from_options(defines=job["defines"], **job["options"])
    inputs = problem.make_inputs(0)
    for name, array in inputs.items():
        if name in recorded:
            array.view(f"u{array.dtype.itemsize}")[...] = bits(recorded[name])
    start = problem.launch(inputs, sms)
    kernel = emu.load(problem.kernel_path, defines=problem.defines)
    result = emu.launch(
        kernel, grid=start.grid, block=start.block, args=start.args, shared_bytes=start.shared_bytes, numerics="silicon"
    )
    if result.exit_code():
        raise RuntimeError(f"{job['name']}: {result.findings or result.deadlock}")
    return {name: start.arrays[name] for name in problem.outputs}


def compare(folder: Path, only: str = "") -> Iterator[tuple[str, list[Difference]]]:
    """(job, its outputs' differences) for every job that ran on the card and whose name contains `only`."""
    results = json.loads((folder / "results.json").read_text())
    with np.load(folder / "outputs.npz") as stored:
        for result in results:
            job = result["job"]
            if not result["ok"] or not job["save"] or only not in job["name"]:
                continue
            start = f"{job['name']}/"
            recorded = {n.removeprefix(start): stored[n] for n in stored.files if n.startswith(start)}
            here = outputs(job, recorded, int(result["device"]["multiprocessors"]))
            yield job["name"], [difference(name, recorded[name], array) for name, array in here.items()]


def main(argv: list[str] | None = None) -> int:
    """Command line; the exit code is 1 when a bit differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what run_kernel wrote")
    parser.add_argument("--only", default="", help="jobs whose name contains this")
    args = parser.parse_args(argv)
    wrong = jobs = 0
    for name, found in compare(args.folder, args.only):
        jobs += 1
        bad = any(d.differ for d in found)
        wrong += bad
        print(f"{'DIFFER' if bad else 'equal '} {name}: {'; '.join(map(str, found))}", flush=True)
    print(f"{jobs - wrong} of {jobs} jobs equal in every bit")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
