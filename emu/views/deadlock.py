"""Why a program cannot go on, and what else is wrong with it."""

from __future__ import annotations

from emu.result import BarrierState, Deadlock, Finding, Result, StuckWarp


def deadlock(result: Result) -> str:
    """Causes, every stuck warp with its place and what it waits for (equal ones share a line), the barriers.

    Empty without a deadlock.
    """
    found = result.deadlock
    if found is None:
        return ""
    lines = _headline(found)
    groups: dict[tuple[str, ...], list[StuckWarp]] = {}
    for warp in found.warps:
        groups.setdefault((warp.role, warp.location, warp.instruction, warp.waits_for), []).append(warp)
    for (role, location, instruction, waits_for), warps in groups.items():
        lines += [
            f"  {_who(warps)}{f' ({role})' if role not in ('', 'main') else ''} at {location}",
            f"    {instruction.strip()}",
        ]
        lines.append(f"    waits for {waits_for}")
    here = {(warp.cta, warp.on) for warp in found.warps}
    idle = [s for s in found.barriers if _is_idle(s, here)]
    waited = [s for s in found.barriers if s not in idle]
    for text, ctas in _alike([(_barrier(state), state.cta) for state in waited]).items():
        lines += [text[0].replace("{}", _ctas(ctas)), *text[1:]]
    if idle:
        lines.append("  barriers that nobody waits for")
        others = _alike([([f"    {_own_name(s)}, {{}}: {_came(s)}"], s.cta) for s in idle])
        lines += [text[0].replace("{}", _ctas(ctas)) for text, ctas in others.items()]
    return "\n".join(lines) + "\n"


def _own_name(state: BarrierState) -> str:
    """The name without its CTA, which stands beside it."""
    return state.name.removesuffix(f" of CTA {state.cta}")


def _is_idle(state: BarrierState, waited: set[tuple[int, str]]) -> bool:
    """Whether no warp waits for an mbarrier or a named barrier."""
    if state.kind == "barrier":
        return (state.cta, _own_name(state)) not in waited
    return state.kind == "mbarrier" and not state.asked and not state.sources


def _came(state: BarrierState) -> str:
    """How far a barrier is."""
    if state.kind == "mbarrier":
        return state.progress
    threads = f"{state.expected - state.pending} of {state.expected} threads"
    return f"{threads}: {', '.join(state.given)}" if state.given else threads


def _alike(states: list[tuple[list[str], int]]) -> dict[tuple[str, ...], list[int]]:
    """Texts with `{}` for the CTA, and the CTAs that each is true of."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for text, cta in states:
        groups.setdefault(tuple(text), []).append(cta)
    return groups


def _barrier(state: BarrierState) -> list[str]:
    """A barrier that is waited for: state, what came, who could still deliver, the first difference."""
    head = f"  {_own_name(state)}, {{}}"
    if state.kind == "mbarrier" and state.phase is not None:
        asked = f"; asked for parity {' and '.join(map(str, state.asked))}" if state.asked else ""
        head += f": {state.progress}{asked}"
    elif state.kind in ("barrier", "cluster"):
        head += f": {state.expected - state.pending} of {state.expected} threads"
    lines = [head]
    lines += [f"    has {given}" for given in state.given]
    for source in state.sources:
        wait = f", which waits for {source.waits_for}"
        wait += f" and {source.waits} more after it" if source.waits else ""
        lines.append(f"    could still get {source.what} from {source.who} at {source.location}{wait}")
    if not state.sources and state.kind in ("mbarrier", "barrier", "cluster", "registers", "tmem"):
        lines.append("    nobody is left to deliver what it lacks")
    if state.difference:
        lines.append(f"    first difference from the phase before: {state.difference}")
    return lines


def _span(numbers: list[int]) -> str:
    """`0-3, 5`."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in runs)


def _ctas(numbers: list[int]) -> str:
    """`CTA 0` or `CTAs 0-3`."""
    return f"CTA{'s' if len(numbers) > 1 else ''} {_span(numbers)}"


def _who(warps: list[StuckWarp]) -> str:
    """`CTA 0 warps 0-3; CTA 1 warp 5`; CTAs with the same warps together."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for cta in dict.fromkeys(w.cta for w in warps):
        groups.setdefault(tuple(sorted(w.warp for w in warps if w.cta == cta)), []).append(cta)
    return "; ".join(
        f"{_ctas(ctas)} warp{'s' if len(own) > 1 else ''} {_span(list(own))}" for own, ctas in groups.items()
    )


def ending(result: Result) -> str:
    """What kept a run from its end, a line each: faults and limits, a deadlock with its causes.  Empty for a run that ended."""
    lines = [_finding(f) for f in result.findings if f.severity in ("fault", "limit")]
    if found := result.deadlock:
        lines += _headline(found)
    return "".join(f"{line}\n" for line in lines)


def _headline(found: Deadlock) -> list[str]:
    """Where it stopped and why."""
    return [
        f"{found.kind} at cycle {found.cycle:,}: {found.message}",
        *(f"  {'which leads to ' if cause.consequence else ''}{cause.rule}: {cause.message}" for cause in found.causes),
    ]


def findings(result: Result) -> str:
    """One paragraph a finding: `location: severity: message [rule]`."""
    return "".join(f"{_finding(f)}\n" for f in result.findings)


def _finding(found: Finding) -> str:
    return f"{found.location}: {found.severity}: {found.message} [{found.rule}]"
