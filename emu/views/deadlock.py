"""Why a program cannot go on, and what else is wrong with it."""

from __future__ import annotations

from emu.result import Result, StuckWarp


def deadlock(result: Result) -> str:
    """Every stuck warp with its place and what it waits for; equal ones share a line.  Empty without a deadlock."""
    if result.deadlock is None:
        return ""
    lines = [f"deadlock at cycle {result.deadlock.cycle:,}: {result.deadlock.message}"]
    groups: dict[tuple[str, ...], list[StuckWarp]] = {}
    for warp in result.deadlock.warps:
        groups.setdefault((warp.role, warp.location, warp.instruction, warp.waits_for), []).append(warp)
    for (role, location, instruction, waits_for), warps in groups.items():
        lines += [f"  {_who(warps)}{f' ({role})' if role else ''} at {location}", f"    {instruction.strip()}"]
        lines.append(f"    waits for {waits_for}")
    return "\n".join(lines) + "\n"


def _who(warps: list[StuckWarp]) -> str:
    """`CTA 0 warps 0-3, CTA 1 warp 5`."""
    parts = []
    for cta in dict.fromkeys(w.cta for w in warps):
        numbers = sorted(w.warp for w in warps if w.cta == cta)
        runs: list[list[int]] = []
        for n in numbers:
            if runs and runs[-1][1] == n - 1:
                runs[-1][1] = n
            else:
                runs.append([n, n])
        spans = ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in runs)
        parts.append(f"CTA {cta} warp{'s' if len(numbers) > 1 else ''} {spans}")
    return "; ".join(parts)


def findings(result: Result) -> str:
    """One paragraph a finding: `location: severity: message [rule]`."""
    return "".join(f"{f.location}: {f.severity}: {f.message} [{f.rule}]\n" for f in result.findings)
