"""The model against measurements, row by row, worst first.

    python -m tools.calibrate.run [--family wgmma] [--only ffma] [--csv out.csv] [--machine h200]

Every row is a microbenchmark that ran on an H200; `ratio` is emulated over measured.  Rows more than
10 % off are marked.  `again` is the same row measured with this suite's own PTX (docs/calibration.md says
when the two differ).  Rows that the emulator cannot run yet are listed with the reason.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import emu
from isa.errors import AssemblyError
from tools.calibrate.bench import Bench, measure
from tools.calibrate.suite import FAMILIES, benches, measured, remeasured

MARK = 0.10
MAX_CYCLES = 3_000_000  # the longest measured row takes 0.8 million


@dataclass(frozen=True)
class Compared:
    """One row: measured, measured again and emulated value, or why there is none."""

    family: str
    name: str
    params: str
    measured: float
    emulated: float = math.nan
    problem: str = ""
    again: float = math.nan

    @property
    def ratio(self) -> float:
        """Emulated over measured."""
        return self.emulated / self.measured

    @property
    def off(self) -> float:
        """Distance from the measurement, alike for too fast and too slow; infinite without a value."""
        return _distance(self.ratio)

    @property
    def off_again(self) -> float:
        """The same from the value that was measured again."""
        return _distance(self.emulated / self.again)


def _distance(ratio: float) -> float:
    return max(ratio, 1 / ratio) - 1 if ratio > 0 and math.isfinite(ratio) else math.inf


class Failed(Exception):
    """The emulator ran the kernel but not to its end."""


class Emulator:
    """Runs benchmarks on the emulator; a kernel's text is assembled once."""

    def __init__(self, machine: str = "h200") -> None:
        self._machine = emu.load_machine(machine)
        self._kernels: dict[str, emu.Kernel] = {}

    def __call__(self, bench: Bench, turns: int) -> np.ndarray:
        if bench.text not in self._kernels:
            self._kernels = {bench.text: emu.load(text=bench.text)}
        table = np.zeros((bench.ctas * bench.warps, bench.slots), np.uint64)
        args: list[object] = [table, bench.data.copy(), np.uint32(turns)]
        if bench.box is not None:
            box = bench.box
            args.append(emu.TensorMap(box.array(), (box.box_columns, box.box_rows), box.swizzle))
        result = emu.launch(
            self._kernels[bench.text],
            machine=self._machine,
            grid=bench.ctas,
            block=32 * bench.warps,
            cluster=bench.cluster,
            args=args,
            shared_bytes=bench.shared,
            max_cycles=MAX_CYCLES,
            warm=bench.launch == "again",
        )
        if result.deadlock is not None:
            raise Failed(f"deadlock: {result.deadlock.message}")
        bad = [f for f in result.findings if f.severity in ("fault", "limit")]
        if bad:
            raise Failed(f"{bad[0].rule}: {bad[0].message}")
        return table


def compare(family: str, only: str, machine: str) -> Iterator[Compared]:
    """Run a family; rows whose name and parameters do not contain `only` are left out."""
    values, again, emulator = measured(), remeasured(), Emulator(machine)
    for bench in benches(family):
        rows = [row for row in bench.rows if only in f"{row.name} {row.params}"]
        if not rows:
            continue
        try:
            read = {id(row): value for row, value in measure(bench, emulator)}
        except (AssemblyError, Failed, emu.LaunchError) as error:
            problem = " ".join(str(error).split())[:160]
            yield from (Compared(family, r.name, r.params, values[r.name, r.params], problem=problem) for r in rows)
            continue
        for row in rows:
            key = row.name, row.params
            yield Compared(family, *key, values[key], read[id(row)], again=again.get(key, math.nan))


def report(rows: list[Compared], limit: int) -> str:
    """The table as text: rows worst first, then a summary per family and the rows that did not run."""
    ran = sorted((r for r in rows if not r.problem), key=lambda r: -r.off)
    lines = [f"{'family':9} {'measured':>10} {'again':>10} {'emulated':>10} {'ratio':>6}   row"]
    for row in ran[:limit]:
        mark = "*" if row.off > MARK else " "
        lines.append(
            f"{row.family:9} {row.measured:10.4g} {row.again:10.4g} {row.emulated:10.4g} {row.ratio:6.2f} {mark} "
            f"{row.name} {row.params}"
        )
    if len(ran) > limit:
        lines.append(f"... {len(ran) - limit} better rows")
    for family in dict.fromkeys(r.family for r in rows):
        mine = [r for r in ran if r.family == family]
        within = sum(r.off <= MARK for r in mine)
        failed = sum(bool(r.problem) for r in rows if r.family == family)
        spread = np.exp(np.mean([abs(np.log(r.ratio)) for r in mine if r.off < math.inf])) if mine else math.nan
        lines.append(
            f"{family}: {within} of {len(mine)} rows within {MARK:.0%}, mean factor {spread:.3f}, {failed} did not run"
        )
    problems: dict[str, int] = {}
    for row in rows:
        if row.problem:
            problems[row.problem] = problems.get(row.problem, 0) + 1
    lines += [f"did not run ({count}): {text}" for text, count in sorted(problems.items(), key=lambda p: -p[1])]
    return "\n".join(lines)


def write(rows: list[Compared], path: Path) -> None:
    """All rows as CSV."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["family", "name", "params", "measured", "again", "emulated", "ratio", "problem"])
        for r in rows:
            numbers = (r.measured, r.again, f"{r.emulated:.6g}", f"{r.ratio:.4f}")
            table.writerow([r.family, r.name, r.params, *numbers, r.problem])


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", choices=list(FAMILIES), help="default: all")
    parser.add_argument("--only", default="", help="rows whose name and parameters contain this")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--limit", type=int, default=60, help="rows to print")
    args = parser.parse_args(argv)
    rows = [row for family in args.family or FAMILIES for row in compare(family, args.only, args.machine)]
    print(report(rows, args.limit))
    if args.csv:
        write(rows, args.csv)


if __name__ == "__main__":
    main()
