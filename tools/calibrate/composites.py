"""Composite kernels: compiled PTX with recorded H200 cycles, on the emulator.

    python -m tools.calibrate.composites [--only pipe] [--machine h200] [--order source]

The kernels and their recordings are in `tests/golden/composites`; they check the model, nothing is
fitted to them.  `per turn` compares the cost of one iteration: the difference of the long and the short run.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import emu
from emu.order import ORDERS
from isa.errors import AssemblyError

FOLDER = Path(__file__).parents[2] / "tests" / "golden" / "composites"
BOX_ROWS, BOX_COLUMNS = 128, 64
TILE_BYTES = 8192  # a tile of k_fa2
MAX_CYCLES = 2_000_000


@dataclass(frozen=True)
class Composite:
    """One recorded configuration: PTX file, launch, and the recorded cycles."""

    name: str
    params: str
    file: str
    consumers: int  # warps whose end clock counts
    warps: int
    shared: int
    iterations: int
    measured: float


def _configuration(name: str, params: str, measured: float) -> Composite:
    p = dict(pair.split("=") for pair in params.split(";"))
    iterations = int(p["iters"])
    if name == "fa2_like":
        warps = int(p["warps"])
        return Composite(name, params, f"k_fa2_{warps}", warps, warps, 2 * TILE_BYTES, iterations, measured)
    if name.startswith("pipe"):
        groups, stages = int(name[5]), int(p["stages"])
        shared = groups * 8192 + stages * 16384  # resident A tiles, ring
        file = f"k_pipe_{groups}_{stages}_{p['lag']}"
        return Composite(name, params, file, 4 * groups, 4 * groups + 1, shared, iterations, measured)
    groups = int(p["wgs"])
    kind, tile = ("k_soft", 16384) if name == "wgmma_softmax" else ("k_fa3", 8192)
    file = f"{kind}_{groups}_{p['pingpong']}"
    return Composite(name, params, file, 4 * groups, 4 * groups, groups * tile + 32768, iterations, measured)


def recorded() -> list[Composite]:
    """Every recorded configuration."""
    with (FOLDER / "measured.csv").open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [_configuration(r["name"], r["params"], float(r["value"])) for r in rows]


def cycles(composite: Composite, machine: str = "h200", order: str = "scheduled") -> int:
    """Run it; cycles between the first start clock and the last consumer's end clock.

    Raises AssemblyError when it uses instructions that are not implemented, RuntimeError when the run
    does not end well.
    """
    kernel = emu.load(FOLDER / f"{composite.file}.ptx", order=order)
    clocks = np.zeros((composite.warps, 2), np.uint32)
    sink = np.zeros(4, np.float32)
    args: list[object] = [clocks]
    if composite.name.startswith("pipe"):
        matrix = np.ones((composite.iterations * BOX_ROWS, BOX_COLUMNS), np.float16)
        args.append(emu.TensorMap(matrix, (BOX_COLUMNS, BOX_ROWS), 128))
    elif composite.name == "fa2_like":
        args.append(np.zeros((composite.iterations + 2) * TILE_BYTES, np.uint8))
    args += [np.uint32(composite.iterations), sink]
    result = emu.launch(
        kernel,
        machine=machine,
        grid=1,
        warm=True,  # the recorded launches found their data in L2
        block=32 * composite.warps,
        args=args,
        shared_bytes=composite.shared,
        max_cycles=MAX_CYCLES,
    )
    if result.deadlock is not None:
        raise RuntimeError(f"deadlock: {result.deadlock.message}")
    if bad := [f for f in result.findings if f.severity in ("fault", "limit")]:
        raise RuntimeError(f"{bad[0].rule}: {bad[0].message}")
    return int(clocks[: composite.consumers, 1].max()) - int(clocks[:, 0].min())


def compare(only: str, machine: str, order: str) -> Iterator[tuple[Composite, int | str]]:
    """Every configuration with its cycles, or why it did not run."""
    for composite in recorded():
        if only in f"{composite.name} {composite.params}":
            try:
                yield composite, cycles(composite, machine, order)
            except (AssemblyError, RuntimeError, emu.LaunchError) as error:
                yield composite, " ".join(str(error).split())[:120]


def report(done: list[tuple[Composite, int | str]]) -> str:
    """Model against measurement, and per iteration where both lengths ran."""
    lines = [f"{'measured':>9} {'emulated':>9} {'ratio':>6}   kernel"]
    previous: tuple[Composite, int] | None = None
    for composite, value in done:
        label = f"{composite.name} {composite.params}"
        if isinstance(value, str):
            lines.append(f"{composite.measured:9.0f} {'-':>9} {'-':>6}   {label}: {value}")
            continue
        lines.append(f"{composite.measured:9.0f} {value:9d} {value / composite.measured:6.3f}   {label}")
        if previous and previous[0].file == composite.file:
            turns = composite.iterations - previous[0].iterations
            here, there = (value - previous[1]) / turns, (composite.measured - previous[0].measured) / turns
            lines.append(f"{there:9.1f} {here:9.1f} {here / there:6.3f}     per turn")
        previous = (composite, value)
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="configurations whose name and parameters contain this")
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--order", choices=ORDERS, help="default: both")
    args = parser.parse_args(argv)
    for order in (args.order,) if args.order else ORDERS:
        print(f"{order} order\n{report(list(compare(args.only, args.machine, order)))}")


if __name__ == "__main__":
    main()
