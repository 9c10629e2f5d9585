"""Why a program cannot go on, and what else is wrong with it."""

from __future__ import annotations

from emu.result import BarrierState, Result, StuckWarp


def deadlock(result: Result) -> str:
    """Causes, every stuck warp with its place and what it waits for (equal ones share a line), the barriers.

    Empty without a deadlock.
    """
    found = result.deadlock
    if found is None:
        return ""
    lines = [f"{found.kind} at cycle {found.cycle:,}: {found.message}"]
    lines += [f"  {cause.rule}: {cause.message}" for cause in found.causes]
    groups: dict[tuple[str, ...], list[StuckWarp]] = {}
    for warp in found.warps:
        groups.setdefault((warp.role, warp.location, warp.instruction, warp.waits_for), []).append(warp)
    for (role, location, instruction, waits_for), warps in groups.items():
        lines += [f"  {_who(warps)}{f' ({role})' if role else ''} at {location}", f"    {instruction.strip()}"]
        lines.append(f"    waits for {waits_for}")
    for state in found.barriers:
        if state.asked or state.sources or state.kind != "mbarrier":
            lines += _barrier(state)
    others = [state for state in found.barriers if state.kind == "mbarrier" and not state.asked]
    if others:
        lines.append("  mbarriers that nobody waits for")
        lines += [f"    {state.name}, CTA {state.cta}: {_phase(state)}" for state in others]
    return "\n".join(lines) + "\n"


def _barrier(state: BarrierState) -> list[str]:
    """A barrier that is waited for: state, what came, who could still deliver, the first difference."""
    head = f"  {state.name}, CTA {state.cta}"
    if state.kind == "mbarrier" and state.phase is not None:
        asked = f"; asked for parity {' and '.join(map(str, state.asked))}" if state.asked else ""
        head += f": {_phase(state)}{asked}"
    elif state.kind == "barrier":
        head += f": {state.expected - state.pending} of {state.expected} threads"
    lines = [head]
    lines += [f"    has {given}" for given in state.given]
    for source in state.sources:
        wait = f", which waits for {source.waits_for}"
        wait += f" and {source.waits} more after it" if source.waits else ""
        lines.append(f"    could still get {source.what} from {source.who} at {source.location}{wait}")
    if not state.sources and state.kind in ("mbarrier", "barrier", "registers"):
        lines.append("    nobody is left to deliver what it lacks")
    if state.difference:
        lines.append(f"    first difference from the phase before: {state.difference}")
    return lines


def _phase(state: BarrierState) -> str:
    bytes_ = f", {state.bytes:,} bytes pending" if state.bytes else ""
    return f"phase {state.phase} (parity {state.parity}), {state.expected - state.pending} of {state.expected} arrivals{bytes_}"


def _who(warps: list[StuckWarp]) -> str:
    """`CTA 0 warps 0-3; CTA 1 warp 5`."""
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
