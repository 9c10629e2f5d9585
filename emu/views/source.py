"""Which source lines cost the time."""

from __future__ import annotations

from pathlib import PurePath

from rich.table import Table
from rich.text import Text

from emu.result import Line, Result
from emu.views.text import count, percent, table


def source(result: Result, limit: int = 20) -> Table:
    """The `limit` source lines with the most warp-cycles, in source order, with their main reason to wait."""
    cycles = {id(line): sum(line.stalls.values()) for line in result.lines}
    everything = max(sum(cycles.values()), 1)
    costly = sorted(result.lines, key=lambda line: -cycles[id(line)])[:limit]
    title = "source lines by warp-cycles" if len(costly) == len(result.lines) else f"the {limit} costliest source lines"
    out = table(title, "line", "role", "source", "issued", "warp-cycles", "waits most for", left=3)
    for line in sorted(costly, key=lambda line: (line.file, line.line)):
        place = f"{PurePath(line.file).name}:{line.line}"
        share = percent(cycles[id(line)] / everything)
        text = Text(" ".join(line.text.split()), no_wrap=True, overflow="ellipsis")  # a string's brackets are markup
        out.add_row(place, line.role, text, count(line.warp_instructions), share, _main_reason(line))
    return out


def _main_reason(line: Line) -> str:
    waits = {name: cycles for name, cycles in line.stalls.items() if name != "selected" and cycles}
    return min(waits, key=lambda name: (-waits[name], name)) if waits else ""
