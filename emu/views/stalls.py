"""Where the warps' time went: reasons by role, as Nsight Compute's warp state statistics."""

from __future__ import annotations

from rich.table import Table

from emu.result import Result
from emu.stalls import REASONS
from emu.views.text import count, percent, table


def stalls(result: Result) -> Table:
    """Shares of each role's resident warp-cycles by reason, largest first; `selected` stands on top.

    The last row holds the warp-cycles that the shares refer to.
    """
    roles = list(result.stalls)
    totals = {role: sum(result.stalls[role].values()) for role in roles}
    everything = sum(totals.values())
    by_reason = {name: sum(result.stalls[role].get(name, 0) for role in roles) for name in REASONS}
    order = sorted((name for name in by_reason if by_reason[name]), key=lambda n: (n != "selected", -by_reason[n], n))
    out = table("warp states, share of resident warp-cycles", "reason", *roles, "all")
    for name in order:
        shares = [result.stalls[role].get(name, 0) / max(totals[role], 1) for role in roles]
        out.add_row(name, *map(percent, shares), percent(by_reason[name] / max(everything, 1)))
    out.add_section()
    out.add_row("warp-cycles", *(count(totals[role]) for role in roles), count(everything))
    return out
