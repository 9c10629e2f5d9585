"""In which order a source's operations run: as written, or as `ptxas` would order them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from emu.machine import Timing, load_machine
from emu.state import SUBPARTITIONS

ORDERS = ("source", "scheduled")
MACHINE, BLACKWELL = "h200", "b200"
# Wavefronts of 128 bytes that an access of a warp takes whatever its addresses.  Shared memory serves one a cycle, four
# sub-partitions in turn: a warp that asks faster waits (ptxas 13.0 puts an ldmatrix.x4 among every two or three products, not all
# in front).
WAVEFRONTS = {f"{access}{count}": count for access in ("ldsm", "stsm") for count in (2, 4)}


def scheduling(order: str | None, source: str | Path | None) -> Mapping[str, Timing] | None:
    """The timing classes to schedule `source` for (see `isa.schedule`), None to leave it as it is written.

    `order` is one of `ORDERS`; None stands for "scheduled" for a `.ptx` file, which a compiler wrote
    and leaves to `ptxas`, and for "source" for all else.  The numbers are always those of one machine,
    and of another one for the classes that it lacks: `ptxas` knows targets, not chips, and a kernel is loaded before its machine is chosen.  ValueError
    for other orders.
    """
    if order is None:
        order = "scheduled" if source is not None and Path(source).suffix == ".ptx" else "source"
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}, expected one of {', '.join(ORDERS)}")
    return weights() if order == "scheduled" else None


@cache
def weights() -> Mapping[str, Timing]:
    """The timing classes that compiled programs are scheduled for."""
    timing = load_machine(MACHINE).timing
    shared = {name: replace(timing[name], interval=SUBPARTITIONS * n) for name, n in WAVEFRONTS.items()}
    return {**load_machine(BLACKWELL).timing, **timing, **shared}
