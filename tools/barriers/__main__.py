"""Random barrier programs on the machine against the reference model: a long job.

`python -m tools.barriers --programs 100000 --seed 1 [--seconds 600]`.  Half of the programs run under chaos.  Ends with 1
at the first program that ends in a way that the model does not know, which it prints.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import time

from emu.testing import BarrierProgram, Op, Pipeline, execute, faults, outcomes
from emu.testing.program import COPY_BYTES

BYTES = (1, 16, COPY_BYTES, COPY_BYTES, COPY_BYTES, 1000, 2**19, 2**20 - 1)
MOST_STATES = 20_000  # of the model; programs with more are left out


def operation(rng: random.Random, warps: int, bars: int) -> Op:
    """One operation, more often one that can fit."""
    kinds = "arrive arrive arrive keep drop expect complete arrive_expect wait wait wait test wait_kept copy copy sync signal put get pause"
    kind = rng.choice(kinds.split())
    bar = rng.randrange(bars)
    if kind in ("arrive", "keep", "drop"):
        return Op(kind, bar, rng.choice((1, 1, 1, 2, 3)))
    if kind in ("expect", "complete", "arrive_expect"):
        return Op(kind, bar, rng.choice(BYTES))
    if kind in ("wait", "test", "wait_kept"):
        return Op(kind, bar, rng.randrange(2))
    if kind == "copy":
        return Op(kind, bar, rng.randrange(3), rng.randrange(1, 9))
    if kind in ("sync", "signal"):
        return Op(kind, rng.randrange(2), rng.randint(1, warps))
    return Op(kind, 0, rng.randrange(2000)) if kind == "pause" else Op(kind, rng.randrange(3), rng.randrange(1, 9))


def program(rng: random.Random) -> BarrierProgram:
    """Anything, or a small pipeline, or one with a mistake."""
    if rng.random() < 0.3:
        ring = Pipeline(rng.randint(1, 2), rng.randint(1, 3), 1, rng.randint(1, 2), rng.random() < 0.5).program()
        return ring if rng.random() < 0.2 else rng.choice(faults(ring)).program
    warps, bars = rng.randint(1, 4), rng.randint(1, 3)
    longest = 14 // warps
    lists = tuple(tuple(operation(rng, warps, bars) for _ in range(rng.randint(0, longest))) for _ in range(warps))
    return BarrierProgram(tuple(rng.choice((1, 1, 2, 2, 3, 4)) for _ in range(bars)), lists)


def check(seed: int) -> str:
    """Run one program; how it ended, or `skipped`.  AssertionError when the model does not know that end."""
    rng = random.Random(seed)
    made = program(rng)
    try:
        allowed = outcomes(made, MOST_STATES)
    except RuntimeError:
        return "skipped"
    found = execute(made, rng.randrange(1 << 30) if seed % 2 else None)
    if found not in allowed:
        raise AssertionError(f"program {seed}:\n{made}\nended as {found}\nthe model knows {sorted(allowed)[:5]}")
    return f"{found.how} {found.rule}".strip()


def main(argv: list[str] | None = None) -> int:
    """Run the job; 1 when a program ends as the model does not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first program")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args(argv)
    os.nice(19)
    counts: collections.Counter[str] = collections.Counter()
    begin = time.monotonic()
    for seed in range(options.seed, options.seed + options.programs):
        try:
            counts[check(seed)] += 1
        except AssertionError as error:
            print(error)
            return 1
        if time.monotonic() - begin > options.seconds:
            break
    took = time.monotonic() - begin
    print(
        f"{sum(counts.values()):,} programs in {took:.0f} s: {', '.join(f'{n:,} {how}' for how, n in sorted(counts.items()))}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
