"""Fuzz the assembler and the core with mutants of programs, in a process that may crash or hang without harm.

    python -m tools.fuzz --count 100000 --corpus ../shared/corpus --out found
    python -m tools.fuzz --seed 4711 --show         # the text of one mutant

The parent watches: a worker that dies, or spends more than the limit on one mutant, is replaced, and the mutant is kept
under --out with what happened. A quarter are single
instructions on random operands. Mutants depend on the seed and the subjects only. Exit code 1 when there was a crash, a
hang or an internal error.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BATCH = 200
CPU_SECONDS, WALL_SECONDS = 60.0, 900.0  # of one mutant; a unit of the machine may be compiled meanwhile
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Tally:
    """Counts by verdict and exit code, and the findings."""

    verdicts: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: dict[str, Any]) -> None:
        """One mutant's row."""
        self.verdicts[row["verdict"]] += 1
        if row["verdict"] == "ran":
            self.codes[row["code"]] += 1
        if row["verdict"] in ("internal", "crash", "hang"):
            self.findings.append(row)

    def __str__(self) -> str:
        total = sum(self.verdicts.values())
        assembled = total - self.verdicts["refused"] - self.verdicts["internal"]
        bad = ", ".join(
            f"{self.verdicts[word]} {name}"
            for word, name in (("crash", "crashes"), ("hang", "hangs"), ("internal", "internal errors"))
        )
        codes = ", ".join(f"{code}: {n}" for code, n in sorted(self.codes.items()))
        return f"{total} mutants, {assembled / max(total, 1):.1%} assembled, {self.verdicts['ran'] / max(total, 1):.1%} ran (exit codes {codes}); {bad}"


class Worker:
    """A process of `tools.fuzz.worker` and the mutant that it is at."""

    def __init__(self, options: list[str]) -> None:
        command = [sys.executable, "-X", "faulthandler", "-m", "tools.fuzz.worker", *options]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._text = ""
        self.seed = -1
        self.started = time.monotonic()
        self.cpu = 0.0

    def work(self, first: int, count: int) -> None:
        """Hand it a range of seeds."""
        assert self.process.stdin
        self.process.stdin.write(f"{first} {count}\n")
        self.process.stdin.flush()

    def line(self, wait: float) -> str | None:
        """Its next line; empty when it is dead, None when there is none within `wait` seconds."""
        assert self.process.stdout
        if "\n" not in self._text:  # what is read is kept here: `select` sees only what is not read yet
            ready, _, _ = select.select([self.process.stdout], [], [], wait)
            if not ready:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16).decode()
            if not more:
                return ""
            self._text += more
        line, newline, rest = self._text.partition("\n")
        if not newline:
            return None
        self._text = rest
        return line + newline

    def spent(self) -> float:
        """CPU seconds of the process since it began the mutant."""
        return cpu_seconds(self.process.pid) - self.cpu

    def begin(self, seed: int) -> None:
        """Note the mutant that it works on."""
        self.seed, self.started, self.cpu = seed, time.monotonic(), cpu_seconds(self.process.pid)

    def end(self) -> str:
        """Kill it; what it had to say."""
        self.process.kill()
        return self.process.communicate()[1][-2000:]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, 0 where /proc does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def fuzz(first: int, count: int, options: list[str], seconds: float = float("inf"), loud: bool = False) -> Tally:
    """Run the mutants of seeds `first` .. `first + count - 1`, or as many as fit into `seconds`."""
    tally, worker = Tally(), None
    begin = time.monotonic()
    at, last = first, first + count
    while at < last and time.monotonic() - begin < seconds:
        worker = worker or Worker(options)
        size = min(BATCH, last - at)
        worker.work(at, size)
        at, worker = watch(worker, tally, at, size)
        if loud:
            print(f"{time.monotonic() - begin:8.0f} s  {tally}", flush=True)
    if worker:
        worker.end()
    return tally


def watch(worker: Worker, tally: Tally, at: int, size: int) -> tuple[int, Worker | None]:
    """Follow a batch; the next seed, and the worker unless it had to go."""
    stop = at + size
    while True:
        line = worker.line(5.0)
        if line is None:
            if worker.spent() > CPU_SECONDS or time.monotonic() - worker.started > WALL_SECONDS:
                tally.add({"seed": worker.seed, "verdict": "hang", "trace": worker.end()})
                return max(worker.seed + 1, at), None
            continue
        word, _, rest = line.partition(" ")
        if word == "begin":
            worker.begin(int(rest))
        elif word == "end":
            tally.add(json.loads(rest))
        elif word == "done":
            return stop, worker
        elif not line:
            code = worker.process.wait()
            tally.add({"seed": worker.seed, "verdict": "crash", "code": code, "trace": worker.end()})
            return max(worker.seed + 1, at + (worker.seed < 0)), None


def keep(tally: Tally, out: Path, corpus: Path | None, largest: int) -> None:
    """Write every finding: the mutant's text and what happened."""
    from tools.fuzz.worker import Bench

    bench = Bench(corpus, largest)
    out.mkdir(parents=True, exist_ok=True)
    for row in tally.findings:
        name, text, *_ = bench.make(row["seed"])
        (out / f"{row['seed']}.ptx").write_text(text)
        (out / f"{row['seed']}.json").write_text(json.dumps(row | {"subject": name}, indent=1))
        print(f"{row['verdict']} with seed {row['seed']} ({name}): {row.get('trace', '').strip().splitlines()[-1:]}")


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after about so long")
    parser.add_argument("--corpus", type=Path, help="a corpus folder; default: the shipped programs only")
    parser.add_argument("--largest", type=int, default=40_000, help="bytes of the largest corpus file to mutate")
    parser.add_argument("--run-share", type=float, default=1.0, help="share of assembled mutants that are run")
    parser.add_argument("--out", type=Path, default=Path("fuzz-found"), help="folder for what went wrong")
    parser.add_argument("--show", action="store_true", help="print the first mutant's text")
    args = parser.parse_args(argv)
    if args.show:
        from tools.fuzz.worker import Bench

        print(Bench(args.corpus, args.largest).make(args.seed)[1])
        return 0
    options = ["--run-share", str(args.run_share), "--largest", str(args.largest)]
    options += ["--corpus", str(args.corpus.resolve())] if args.corpus else []
    tally = fuzz(args.seed, args.count, options, args.seconds, loud=True)
    if tally.findings:
        keep(tally, args.out, args.corpus, args.largest)
    return int(bool(tally.findings))


if __name__ == "__main__":
    raise SystemExit(main())
