"""What a microbenchmark is: one kernel, how often to launch it, and how its clocks become rows.

Every kernel of the suite is called `bench`, takes `out` (a table of `%clock64` values, uint64
[warps, slots]), `data` (global memory that it may read), `turns` (how long to run) and, for TMA, a
tensor map.  The same text runs on the emulator (`tools.calibrate.run`) and on a GPU
(`tools.record.bench`); both hand the clock tables to the same readings below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

Tables = list[np.ndarray]  # one clock table [warps, slots] per launch, in the order of `Bench.turns`
START, END = 0, 1  # slots of the usual kernels


@dataclass(frozen=True)
class Row:
    """One measured number: its name and parameters in `measured.csv`, and how to read it."""

    name: str
    params: str
    read: Callable[[Tables], float]


@dataclass(frozen=True)
class Box:
    """The tensor map of a TMA benchmark: a float16 matrix [rows, columns], boxes, swizzle in bytes."""

    columns: int
    rows: int
    box_columns: int
    box_rows: int
    swizzle: int

    def array(self) -> np.ndarray:
        """The matrix; its values do not matter."""
        return np.zeros((self.rows, self.columns), np.float16)

    @property
    def bytes(self) -> int:
        """Bytes of one box."""
        return 2 * self.box_columns * self.box_rows


@dataclass(frozen=True)
class Bench:
    """One microbenchmark.

    `text` is PTX; `warps` the warps of a CTA; `turns` the values of the kernel's third
    parameter, one launch each; `shared` the dynamic shared memory in bytes.
    """

    family: str
    text: str
    warps: int
    turns: tuple[int, ...]
    rows: tuple[Row, ...]
    slots: int = 2
    shared: int = 128  # at least the word that the start clock waits for
    box: Box | None = None
    data: np.ndarray = field(default_factory=lambda: default_data())
    cluster: int = 1  # CTAs of a cluster
    ctas: int = 1  # one an SM; the clock table then has their warps one after the other
    launch: str = "usual"  # "first": of code that no cache has; "again": right after one that does not count


def default_data() -> np.ndarray:
    """float32 values near one: chains of multiplications neither overflow nor get subnormal."""
    return np.linspace(0.999, 1.001, 4096, dtype=np.float32)


Execute = Callable[[Bench, int], np.ndarray]


def measure(bench: Bench, execute: Execute) -> list[tuple[Row, float]]:
    """Launch once per entry of `turns` and read every row."""
    tables = [execute(bench, turns) for turns in bench.turns]
    return [(row, row.read(tables)) for row in bench.rows]


# ---- readings: how clock tables become numbers --------------------------------------------------------


def span(table: np.ndarray, warps: Sequence[int] | None = None) -> int:
    """Last end minus first start over the warps (all of them unless given)."""
    mine = table if warps is None else table[list(warps)]
    return int(mine[:, END].max()) - int(mine[:, START].min())


def interval(turns: tuple[int, ...], per_turn: float, warps: Sequence[int] | None = None) -> Callable[[Tables], float]:
    """Difference row: cycles per event, with `per_turn` events in each turn of the kernel's loop."""

    def read(tables: Tables) -> float:
        return (span(tables[1], warps) - span(tables[0], warps)) / ((turns[1] - turns[0]) * per_turn)

    return read


def rate(turns: tuple[int, ...], per_turn: float, warps: Sequence[int] | None = None) -> Callable[[Tables], float]:
    """Difference row: events (or bytes) per cycle."""
    cycles = interval(turns, per_turn, warps)
    return lambda tables: 1.0 / cycles(tables)


def pair(first: int = START, second: int = END, warp: int = 0) -> Callable[[Tables], float]:
    """Clock pair of one warp: the cycles between two slots of the last launch."""
    return lambda tables: float(int(tables[-1][warp, second]) - int(tables[-1][warp, first]))
