"""Errors of fa3 against float64 in both modes of numerics, beside the card's, and the table of docs/numerics.md.

    python -m tools.accuracy.modes            # about a minute; rewrites the table

The problems are those of tests/golden/outputs, so all three compute on the same inputs.
"""

from __future__ import annotations

from collections.abc import Iterator

from emu.machine import load_machine
from emu.numerics import MODES
from emu.solve import solve
from tools.docs.blocks import ROOT, table, update
from tools.record.outputs import Job, jobs

PAGE = ROOT / "docs" / "numerics.md"
PLAIN: tuple[dict[str, int], ...] = ({}, {"P_SHARED": 1})  # head dim 64 was recorded when that was the default
HEADER = ("inputs", "type", "head dim", "H200", "silicon", "fast", "largest: H200", "silicon", "fast")


def chosen() -> Iterator[Job]:
    """fa3 on normal inputs (300 rows, 427 keys) and outliers (200 of each), by inputs, type and head dim."""
    normal, outlier = {"seqlen": 300, "seqlen_k": 427, "heads": 2}, {"seqlen": 200, "heads": 2, "inputs": "outlier"}
    for shape in (normal, outlier):
        for dtype in ("fp16", "bf16"):
            for head_dim in (64, 128, 256):
                options = shape | {"head_dim": head_dim, "dtype": dtype}
                yield next(
                    job for job in jobs() if (job.problem, job.options) == ("fa3", options) and job.defines in PLAIN
                )


def row(job: Job) -> tuple[str, ...]:
    """One problem: relative Frobenius errors, then the largest absolute ones."""
    found = {mode: solve(job.make(), load_machine("h200"), numerics=mode).numerics for mode in MODES}
    fast, silicon = found["fast"], found["silicon"]
    assert fast is not None and silicon is not None, job.name
    relative = (job.rel_error, silicon.rel_error, fast.rel_error)
    largest = (job.max_abs_error, silicon.max_abs_error, fast.max_abs_error)
    labels = (job.options.get("inputs", "normal"), job.options["dtype"], str(job.options["head_dim"]))
    return (*labels, *(f"{x:.3e}" for x in (*relative, *largest)))


def errors() -> str:
    """The table."""
    return table(HEADER, [row(job) for job in chosen()], left=2)


if __name__ == "__main__":
    made = errors()
    print(made)
    update(PAGE, {"errors": made})
