"""What a run under chaos shows: whether results change, and the fewest perturbations that change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from emu.chaos import Chaos
from emu.explain.places import role, short
from emu.result import Finding, Result
from emu.sm import StreamingMultiprocessor
from emu.state import PERTURBATIONS
from emu.units import chaos as unit

KINDS = {
    unit.C_COPY: "bulk load",
    unit.C_STORE: "bulk store",
    unit.C_MMA: "wgmma",
    unit.C_WAKE: "wake-up from try_wait",
    unit.C_OPEN: "wake-up",
    unit.C_ANSWER: "try_wait that answers false",
    unit.C_ISSUE: "instruction after this one",
    unit.C_START: "start of the warp",
    unit.C_ASYNC: "cp.async",
    unit.C_COMMIT: "instruction after this one",
}
Run = Callable[[Chaos | None], Result]
Trial = Callable[[Chaos], "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """One run under chaos: whether it failed, and what was perturbed, as (name, words) in order of time."""

    failed: bool
    made: Sequence[tuple[int, str]]


@dataclass(frozen=True)
class Shrunk:
    """The fewest perturbations found that still fail: a Chaos of them, each in words, and the runs that it took."""

    chaos: Chaos
    events: tuple[str, ...]
    runs: int


def perturbations(sms: Sequence[StreamingMultiprocessor]) -> list[tuple[int, str]]:
    """What chaos changed, by SM and in order of time: the decision point's name, and words."""
    found = []
    for sm in sms:
        count = int(sm.sm[0]["chaos_done"])
        for n in range(max(0, count - PERTURBATIONS), count):
            e = sm.perturbations[n & (PERTURBATIONS - 1)]
            found.append((int(e["name"]), _words(sm, e)))
    return found


def _words(sm: StreamingMultiprocessor, e: Sequence[int]) -> str:
    name, cycle, pc, kind, amount = (int(x) for x in e)
    cta, warp = name >> 38, name >> 32 & 63
    if kind == unit.C_ANSWER:
        how = ""
    else:
        how = " as early as can be" if amount == unit.EARLY else f" {amount:,} cycles late"
    owner = role(sm, pc)
    actor = f"{owner} warp" if owner != "main" else "warp"
    return f"cycle {cycle:,}: {KINDS[kind]}{how}, CTA {cta}, {actor} {warp}, {short(sm, pc)}"


def differs(plain: Result, other: Result) -> str:
    """How a result differs from that of the plain run, in words; empty when it does not."""
    if other.deadlock:
        return f"{other.deadlock.kind}: {other.deadlock.causes[0].message if other.deadlock.causes else other.deadlock.message}"
    bad = [f for f in other.findings if f.severity in ("fault", "limit")]
    if bad:
        return f"{bad[0].location}: {bad[0].message}"
    changed = [name for name, array in plain.outputs.items() if array.tobytes() != other.outputs[name].tobytes()]
    return f"{', '.join(changed)} changed" if changed else ""


def compare(run: Run, chaos: Chaos, note: Callable[[str], None] = lambda text: None) -> Result:
    """The result of `run(chaos)`, with a finding when it is not that of `run(None)`.

    `run` starts from the same inputs every time.  The finding names the fewest perturbations that show the
    difference.  A plain run that does not come to its end, or has wrong numbers, is returned as it is.
    """
    plain = run(None)
    if plain.exit_code() > 1 or (plain.numerics and not plain.numerics.passed):
        note(f"the run without chaos fails already: chaos {chaos} was not tried")
        return plain
    result = run(chaos)
    difference = differs(plain, result)
    if not difference:
        return result

    note(f"results differ under chaos {chaos}: looking for the fewest perturbations that show it")

    def trial(tried: Chaos) -> Outcome:
        again = run(tried)
        return Outcome(bool(differs(plain, again)), again.perturbations)

    shrunk = shrink(trial, chaos)
    if result.chaos:
        result.chaos.events = list(shrunk.events)
    count = len(shrunk.events)
    many = f"{count} perturbations show it" if count != 1 else "1 perturbation shows it"
    message = f"under chaos {chaos} the result differs: {difference}; {many}: " + "; ".join(shrunk.events)
    result.findings.append(Finding(rule="CHAOS", severity="error", location=result.kernel, message=message))
    return result


def shrink(trial: Trial, chaos: Chaos, most_runs: int = 60) -> Shrunk:
    """The fewest perturbations under which `trial` still fails; ValueError when it does not fail under `chaos`.

    First the shortest prefix, by bisection; then subsets of it (delta debugging), since most of a prefix only
    happens to come before what matters.  About `most_runs` runs at most.
    """
    best = trial(chaos)
    if not best.failed:
        raise ValueError(f"the program does not fail under chaos {chaos}")
    runs, low, high = 1, 0, len(best.made)
    while high - low > 1 and runs < most_runs // 2:
        middle, runs = (low + high) // 2, runs + 1
        tried = trial(replace(chaos, limit=middle))
        low, high, best = (low, middle, tried) if tried.failed else (middle, high, best)
    words, kept, parts = dict(best.made), [name for name, _ in best.made], 2
    while len(kept) > 1 and runs < most_runs:
        size = -(-len(kept) // parts)
        chunks = [kept[i : i + size] for i in range(0, len(kept), size)]
        rests = [[name for chunk in chunks if chunk is not out for name in chunk] for out in chunks]
        for rest in [*chunks, *rests] if parts == 2 else rests:
            runs += 1
            tried = trial(Chaos(chaos.seed, None, tuple(rest)))
            if tried.failed:
                words.update(tried.made)
                kept, parts = rest, max(parts - 1, 2)
                break
            if runs >= most_runs:
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(kept))
    return Shrunk(Chaos(chaos.seed, None, tuple(kept)), tuple(words[name] for name in kept), runs)
