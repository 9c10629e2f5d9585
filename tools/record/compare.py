"""Outputs recorded on a GPU against the emulator's in silicon mode, bit for bit.

    python -m tools.record.compare [--only NAME]          # the jobs of tests/golden/outputs
    python -m tools.record.compare DIR [--only NAME]      # what run_kernel wrote for the jobs of `export --bits`

A folder's jobs run on its recorded inputs, those of tests/golden/outputs on the same ones made from seed 0.  For every output
that differs: how many elements, where it was kept whole, and the first of them; the exit code is 1 then.  With `--numerics fast`
it says what fast mode gives up.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import emu
import programs
from programs.problem import Problem
from tools.accuracy.recorded import digest
from tools.record.outputs import Job, bits, checksum, checksums, jobs, recordings, small


def difference(card: Any, here: Any) -> str:
    """How many elements differ and the first of them; empty when every bit is equal.

    `card`: recorded elements (bits, or a type of NumPy); `here`: the emulator's, same shape.
    """
    a, b = bits(card), bits(here)
    places = np.argwhere(a != b)
    if not len(places):
        return ""
    at = tuple(int(x) for x in places[0])
    width = 2 * a.dtype.itemsize
    theirs, ours = bits(card).view(here.dtype)[at], here[at]
    text = (
        f"card {float(theirs):.9g} ({int(a[at]):#0{width + 2}x}), here {float(ours):.9g} ({int(b[at]):#0{width + 2}x})"
    )
    return f"{len(places)} of {a.size} differ, first at {list(at)}: {text}"


def run(problem: Problem, inputs: Mapping[str, Any], sms: int, numerics: str = "silicon") -> dict[str, Any]:
    """The problem's outputs on a chip of `sms` SMs; RuntimeError when the run fails."""
    start = problem.launch(inputs, sms)
    kernel = emu.load(problem.kernel_path, defines=problem.defines)
    result = emu.launch(
        kernel,
        grid=start.grid,
        block=start.block,
        cluster=start.cluster,
        args=start.args,
        shared_bytes=start.shared_bytes,
        numerics=numerics,
    )
    if result.exit_code():
        raise RuntimeError(f"{problem.kernel}: {result.findings or result.deadlock}")
    return {name: start.arrays[name] for name in problem.outputs}


def against_recording(result: dict[str, Any], recorded: dict[str, Any], numerics: str = "silicon") -> dict[str, str]:
    """Output -> its difference, of one job of a folder, on the recorded inputs."""
    job = result["job"]
    problem = programs.find(job["problem"]).from_options(job["defines"], **job["options"])
    inputs = problem.make_inputs(0)
    for name, array in inputs.items():
        array.view(f"u{array.dtype.itemsize}")[...] = bits(recorded[name])
    found = run(problem, inputs, int(result["device"]["multiprocessors"]), numerics)
    return {name: difference(recorded[name], array) for name, array in found.items()}


def against_golden(job: Job, numerics: str = "silicon") -> dict[str, str]:
    """Output -> its difference, of a job of tests/golden/outputs; RuntimeError when seed 0 makes other inputs by now."""
    problem = job.make()
    inputs = problem.make_inputs(0)
    if checksums(inputs) != job.inputs:
        raise RuntimeError(f"{job.name}: seed 0 no longer makes the recorded inputs")
    differences = {}
    for name, array in run(problem, inputs, job.multiprocessors, numerics).items():
        same = checksum(array) == job.outputs[name]
        whole = small().get(f"{job.name}/{name}")
        differences[name] = "" if same else "the checksum differs" if whole is None else difference(whole, array)
    changed = any(differences.values()) and digest(job.problem, job.options, job.defines) != job.digest
    return {
        name: f"{text} (the program has changed since)" if text and changed else text
        for name, text in differences.items()
    }


def compare(folder: Path | None, only: str, numerics: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(job, its outputs' differences) of every job whose name contains `only`."""
    if folder:
        for result, recorded in recordings(folder, only):
            yield result["job"]["name"], against_recording(result, recorded, numerics)
        return
    for job in jobs():
        if only in job.name:
            yield job.name, against_golden(job, numerics)


def main(argv: list[str] | None = None) -> int:
    """Command line; the exit code is 1 when a bit differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="what run_kernel wrote (default: tests/golden/outputs)")
    parser.add_argument("--only", default="", help="jobs whose name contains this")
    parser.add_argument("--numerics", choices=("fast", "silicon"), default="silicon")
    args = parser.parse_args(argv)
    wrong = count = 0
    for name, found in compare(args.folder, args.only, args.numerics):
        count += 1
        bad = [f"{output}: {text}" for output, text in found.items() if text]
        wrong += bool(bad)
        print(f"{'DIFFER' if bad else 'equal '} {name}  {'; '.join(bad) or ', '.join(found)}", flush=True)
    print(f"{count - wrong} of {count} jobs equal in every bit")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
