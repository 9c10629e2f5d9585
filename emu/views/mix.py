"""What was issued: warp instructions by role and pipe."""

from __future__ import annotations

from rich.table import Table

from emu.result import Result
from emu.views.text import count, table


def mix(result: Result) -> Table:
    """Warp instructions of each role on each pipe, the busiest pipe first."""
    roles = list(result.instruction_mix)
    pipes = {pipe for row in result.instruction_mix.values() for pipe in row}
    total = {pipe: sum(row.get(pipe, 0) for row in result.instruction_mix.values()) for pipe in pipes}
    out = table("warp instructions by pipe", "pipe", *roles, "all")
    for pipe in sorted(pipes, key=lambda p: (-total[p], p)):
        out.add_row(pipe, *(_number(result.instruction_mix[role].get(pipe, 0)) for role in roles), count(total[pipe]))
    out.add_section()
    sums = [sum(result.instruction_mix[role].values()) for role in roles]
    out.add_row("all", *map(count, sums), count(sum(sums)))
    return out


def _number(value: int) -> str:
    return count(value) if value else ""
