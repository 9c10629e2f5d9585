"""Counters of our own kernels under Nsight Compute, and what its source page says about each SASS opcode.

python -m tools.accuracy.counters results.json               # of `run_kernel --ncu`: tests/golden/h200/counters.csv
python -m tools.accuracy.counters --source NAME source.csv   # of `ncu --page source --csv`: opcodes.csv
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.accuracy.recorded import FOLDER

COUNTERS, OPCODES = FOLDER / "counters.csv", FOLDER / "opcodes.csv"
KEPT = (
    "smsp__inst_executed",
    "sm__inst_executed_pipe_tensor_op_gmma",
    "smsp__average_warps_issue_stalled",
    "sm__cycles_active",
)
STALLED, PER_ISSUE = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
SAMPLED = "stall_"  # columns of the source page


def read(path: Path = COUNTERS) -> dict[str, dict[str, float]]:
    """Metric -> workload -> value of a table with the columns metric, unit and one for each workload."""
    with path.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return {row["metric"]: {k: float(v) for k, v in row.items() if k not in ("metric", "unit") and v} for row in rows}


def stall_shares(counters: dict[str, dict[str, float]], workload: str) -> dict[str, float]:
    """Reason -> share of resident warp-cycles."""
    ratios = {
        name.removeprefix(STALLED).removesuffix(PER_ISSUE): values[workload]
        for name, values in counters.items()
        if name.startswith(STALLED)
    }
    return {reason: ratio / sum(ratios.values()) for reason, ratio in ratios.items()}


def opcodes() -> dict[str, dict[str, float]]:
    """Opcode -> instructions, executed and, by reason, samples of the recorded source page."""
    return read(OPCODES)


def parse(text: str) -> dict[str, tuple[str, str]]:
    """Metric -> (unit, value) of a CSV page of ncu with one launch; its head may be cut off on the left."""
    lines = text.strip().splitlines()[-3:]
    names, units, values = (next(csv.reader([line if line.startswith('"') else f'"{line}'])) for line in lines)
    n = min(map(len, (names, units, values))) - 1
    return {a: (b, c.replace(",", "")) for a, b, c in zip(names[-n:], units[-n:], values[-n:], strict=True)}


def distil(results: Iterable[dict[str, Any]]) -> list[list[str]]:
    """Rows of the table: the metrics in KEPT, a column for each job."""
    pages = {r["job"]["name"]: parse(r["ncu"]) for r in results if r["ok"]}
    metrics = sorted({m: None for page in pages.values() for m in page if m.startswith(KEPT) or m == TENSOR})
    rows = [["metric", "unit", *pages]]
    for metric in (m for m in metrics if not m.endswith((".min", ".avg"))):
        unit = next(page[metric][0] for page in pages.values() if metric in page)
        rows.append([metric, unit, *(page.get(metric, ("", ""))[1] for page in pages.values())])
    return rows


def by_opcode(lines: Iterable[str]) -> list[list[str]]:
    """Rows of the table of opcodes: instructions of the code, executions, samples by reason; rare ones left out.

    `gmma` has no column on the source page: it is what the other reasons leave of a line's samples.
    """
    rows = list(csv.DictReader(lines))
    reasons = [name for name in rows[0] if name.startswith(SAMPLED) and "(" not in name]
    table: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        words = row["Source"].split()
        entry = table[(words[1] if words[0].startswith("@") else words[0]).split(".")[0]]
        entry["instructions"] += 1
        entry["executed"] += float(row["Instructions Executed"])
        samples = {name.removeprefix(SAMPLED): float(row[name] or 0) for name in reasons}
        samples["gmma"] = max(float(row["# Samples"] or 0) - sum(samples.values()), 0)
        for reason, count in samples.items():
            entry[reason] += count
    named = ["instructions", "executed", *(name.removeprefix(SAMPLED) for name in reasons), "gmma"]
    kept = {op: entry for op, entry in table.items() if sum(entry[n] for n in named[2:]) >= 20}
    used = [n for n in named if any(entry[n] for entry in kept.values())]
    return [["metric", *used]] + [[op, *(f"{entry[n]:.0f}" for n in used)] for op, entry in sorted(kept.items())]


def write(path: Path, comment: str, rows: list[list[str]]) -> None:
    """A table with a comment line."""
    with path.open("w", newline="") as file:
        file.write(f"# {comment}\n")
        csv.writer(file, lineterminator="\n").writerows(rows)
    print(f"{len(rows) - 1} rows in {path}")


def main(args: list[str]) -> None:
    """Command line."""
    if args[0] == "--source":
        lines = Path(args[2]).read_text().splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith('"Address"'))
        write(
            OPCODES,
            f"{args[1]}: samples of each SASS opcode by stall reason, Nsight Compute's source page",
            by_opcode(lines[start:]),
        )
        return
    results = [result for file in args for result in json.loads(Path(file).read_text())]
    write(COUNTERS, "Our kernels under Nsight Compute on one H200, `run_kernel --ncu`, warm launches", distil(results))


if __name__ == "__main__":
    main(sys.argv[1:])
