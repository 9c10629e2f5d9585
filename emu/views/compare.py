"""The generations side by side: rates, what bounds a block, what warps wait for, and what others found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from emu.views.text import count, percent, table

if TYPE_CHECKING:
    from emu.compared import Comparison, Removal, Row

SIZES = ("batch", "heads", "seqlen", "seqlen_k", "head_dim")


def comparison(found: Comparison) -> Iterator[Table | str]:
    """Every table of a comparison; the figures' sources as text below it."""
    shapes: dict[str, list[Row]] = {}
    for row in found.rows:
        shapes.setdefault(title(row), []).append(row)
    for name, rows in shapes.items():
        yield rates(name, rows)
        if any(row.bounds for row in rows):
            yield blocks(rows)
        yield from beside(rows)
    if found.losses:
        yield losses(found.losses_of, found.losses)


def title(row: Row) -> str:
    """The shape in words."""
    words = [f"{name} {row.shape[name]}" for name in SIZES if name in row.shape]
    return "  ".join([*words, str(row.shape.get("dtype", "")), *(["causal"] if row.shape.get("causal") else [])])


def rates(name: str, rows: list[Row]) -> Table:
    """What each kernel reaches on each machine, or why it does not run there."""
    out = table(
        name, "kernel", "machine", "what most warps wait for", "utilization", "TFLOP/s", "MHz", "cycles", left=3
    )
    for row in rows:
        if row.cycles is None:
            out.add_row(row.kernel, row.machine, escape(f"cannot run: {row.reason}"))
            continue
        waits = ", ".join(f"{role}: {text}" for role, text in row.waits.items())
        assert row.tflops is not None and row.clock_mhz is not None
        numbers = (percent(row.utilization or 0), f"{row.tflops:,.0f}", f"{row.clock_mhz:,.0f}", count(row.cycles))
        out.add_row(row.kernel, row.machine, waits, *numbers)
    return out


def blocks(rows: list[Row]) -> Table:
    """Cycles for a block, and those that each unit alone would need."""
    columns = ("rows x keys", "cycles a block", "tensor", "exp", "SMEM", "issue")
    out = table("cycles for a block, and bounds of its units", "kernel", "machine", *columns, left=2)
    for row in rows:
        if row.bounds is None or row.cycles_per_block is None:
            continue
        b = row.bounds
        numbers = (count(round(x)) for x in (row.cycles_per_block, b.tensor, b.exp, b.shared, b.issue))
        out.add_row(row.kernel, row.machine, f"{row.block[0]} x {row.block[1]}", *numbers)
    return out


def beside(rows: list[Row]) -> Iterator[Table]:
    """What others published or measured for these rows, with the sources."""
    out = table("published and measured elsewhere", "kernel", "beside", "figure", "source", left=4)
    for row in rows:
        for figure in row.figures:
            out.add_row(row.kernel, row.machine, escape(figure.text), escape(figure.source))
    if out.row_count:
        yield out


def losses(kernel: str, removals: list[Removal]) -> Table:
    """What each bottleneck costs: runs without it."""
    out = table(
        f"what {kernel} loses, one bottleneck taken away at a time",
        "without",
        "--set",
        "cycles",
        "gain",
        "utilization",
        left=2,
    )
    for r in removals:
        out.add_row(r.removed, " ".join(r.settings), count(r.cycles), f"{r.gain:.2f}", percent(r.utilization or 0))
    return out
