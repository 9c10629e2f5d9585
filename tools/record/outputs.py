"""Outputs of the shipped programs on an H200, as the checkout keeps them: checksums of all, the small ones whole.

    python -m tools.record.outputs DIR        # what run_kernel wrote for the jobs of `export --bits` -> tests/golden/outputs

Jobs that DIR does not hold stay as they are, those that `lists.BITS` does not name go.  Inputs are not kept: a problem makes the recorded ones from seed 0, which distilling checks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import programs
from programs.problem import Problem
from tools.accuracy.recorded import digest
from tools.record.export import label
from tools.record.lists import BITS

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "golden" / "outputs"
JOBS, ARRAYS = FOLDER / "jobs.json", FOLDER / "small.npz"
SMALL = 1 << 14  # bytes of an array that is kept whole
MOST = 240_000  # bytes of all of them


@dataclass(frozen=True)
class Job:
    """One program on the card.  `digest` is that of its PTX, `inputs` and `outputs` are checksums of arrays.

    `rel_error` and `max_abs_error`: of the card's outputs against float64 (`programs.problem.Numerics`).
    """

    name: str
    problem: str
    options: dict[str, Any]
    defines: dict[str, Any]
    multiprocessors: int
    digest: str
    rel_error: float
    max_abs_error: float
    inputs: dict[str, str]
    outputs: dict[str, str]

    def make(self) -> Problem:
        """The problem that the job solved."""
        return programs.find(self.problem).from_options(self.defines, **self.options)


def bits(array: Any) -> Any:
    """The raw bits of an array's elements."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def checksum(array: Any) -> str:
    """SHA-256 of an array's bits, little-endian."""
    raw = bits(array)
    return hashlib.sha256(raw.astype(raw.dtype.newbyteorder("<")).tobytes()).hexdigest()


def checksums(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Those of several arrays by name."""
    return {name: checksum(array) for name, array in arrays.items()}


@cache
def jobs() -> tuple[Job, ...]:
    """Every job that the checkout knows the outputs of."""
    return tuple(Job(**entry) for entry in json.loads(JOBS.read_text()))


@cache
def small() -> dict[str, Any]:
    """The bits of the outputs that are kept whole, by `job/output`."""
    with np.load(ARRAYS) as stored:
        return dict(stored)


def recordings(folder: Path, only: str = "") -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(result, recorded arrays) of every job that ran on the card, saved its arrays and whose name contains `only`."""
    results = json.loads((folder / "results.json").read_text())
    with np.load(folder / "outputs.npz") as stored:
        for result in results:
            job = result["job"]
            if result["ok"] and job["save"] and only in job["name"]:
                start = f"{job['name']}/"
                yield result, {n.removeprefix(start): stored[n] for n in stored.files if n.startswith(start)}


def distil(result: dict[str, Any], recorded: dict[str, Any]) -> Job:
    """What is kept of a job; ValueError when its inputs are not those of seed 0."""
    job, check = result["job"], result["check"]
    problem = programs.find(job["problem"]).from_options(job["defines"], **job["options"])
    inputs = checksums(problem.make_inputs(0))
    if {name: checksum(recorded[name]) for name in inputs} != inputs:
        raise ValueError(f"{job['name']}: the recorded inputs are not those that seed 0 makes")
    return Job(
        **{name: job[name] for name in ("name", "problem", "options", "defines")},
        multiprocessors=int(result["device"]["multiprocessors"]),
        digest=digest(job["problem"], job["options"], job["defines"]),
        rel_error=float(f"{check['rel_error']:.4g}"),
        max_abs_error=float(f"{check['max_abs_error']:.4g}"),
        inputs=inputs,
        outputs=checksums({name: recorded[name] for name in problem.outputs}),
    )


def main(argv: list[str] | None = None) -> None:
    """Command line: rewrite tests/golden/outputs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what run_kernel wrote")
    args = parser.parse_args(argv)
    kept = {job.name: job for job in jobs()}
    whole: dict[str, Any] = {}
    known = small()
    for result, recorded in recordings(args.folder):
        job = distil(result, recorded)
        kept[job.name] = job
        known |= {f"{job.name}/{name}": bits(recorded[name]) for name in job.outputs}
    kept = {name: kept[name] for name in (label(*case) for case in BITS) if name in kept}
    for job in kept.values():
        arrays = {name: known[name] for name in (f"{job.name}/{x}" for x in job.outputs) if name in known}
        fits = len(arrays) == len(job.outputs) and all(x.nbytes <= SMALL for x in arrays.values())
        if fits and _bytes(whole | arrays) <= MOST:
            whole |= arrays
    JOBS.write_text("[\n" + ",\n".join(json.dumps(asdict(job)) for job in kept.values()) + "\n]\n")
    np.savez_compressed(ARRAYS, **whole)
    print(f"{len(kept)} jobs in {JOBS}, {len(whole)} arrays in {ARRAYS}")


def _bytes(arrays: Mapping[str, Any]) -> int:
    return sum(x.nbytes for x in arrays.values())


if __name__ == "__main__":
    main()
