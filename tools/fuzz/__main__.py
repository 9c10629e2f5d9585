"""Fuzz the assembler and the core with mutants of programs, in processes that may crash or hang without harm.

    python -m tools.fuzz --count 100000 --corpus ../shared/corpus --out found --jobs 16 --minutes 8
    python -m tools.fuzz --seed 4711 --show         # the text of one mutant

The parent watches: a worker that dies, or spends more than the limit on one mutant, is replaced, and the mutant is kept
under --out with what happened, at once. A quarter are single instructions on random operands. Mutants depend on the
seed and the subjects only; all units are compiled before the first one. Exit code 1 when there was a crash, a hang or an internal error.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from emu import generate
from tools.fuzz.parent import Row, fuzz
from tools.fuzz.worker import LARGEST, Bench


def keeper(out: Path, bench: Bench) -> Callable[[Row], None]:
    """Writes a finding under `out`: the mutant's text and what happened."""

    def keep(row: Row) -> None:
        try:
            name, text, *_ = bench.make(row["seed"])
        except Exception:  # noqa: BLE001 - a mutant that cannot even be made is such a finding
            name, text = "", ""
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{row['seed']}.ptx").write_text(text)
        (out / f"{row['seed']}.json").write_text(json.dumps(row | {"subject": name}, indent=1))
        print(
            f"{row['verdict']} with seed {row['seed']} ({name}): {row.get('trace', '').strip().splitlines()[-1:]}",
            flush=True,
        )

    return keep


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="stop after about so long, compiling included"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--corpus", type=Path, help="a corpus folder; default: the shipped programs only")
    parser.add_argument("--largest", type=int, default=LARGEST, help="bytes of the largest corpus file to mutate")
    parser.add_argument("--run-share", type=float, default=1.0, help="share of assembled mutants that are run")
    parser.add_argument("--out", type=Path, default=Path("fuzz-found"), help="folder for what went wrong")
    parser.add_argument("--show", action="store_true", help="print the first mutant's text")
    args = parser.parse_args(argv)
    bench = Bench(args.corpus, args.largest)
    if args.show:
        print(bench.make(args.seed)[1])
        return 0
    options = ["--run-share", str(args.run_share), "--largest", str(args.largest)]
    options += ["--corpus", str(args.corpus.resolve())] if args.corpus else []
    end = time.monotonic() + 60 * args.minutes
    generate.prepare(generate.UNITS)
    keep = keeper(args.out, bench)
    tally = fuzz(args.seed, args.count, options, args.jobs, end - time.monotonic(), True, keep)
    print(f"all: {tally}")
    return int(bool(tally.findings))


if __name__ == "__main__":
    raise SystemExit(main())
