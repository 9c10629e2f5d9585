"""The parent of the workers: hands out seeds, watches, counts, and replaces a worker that dies or hangs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BATCH = 50
CPU_SECONDS, WALL_SECONDS = 60.0, 300.0  # of one mutant
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a worker is one of many
TICKS = os.sysconf("SC_CLK_TCK")
Row = dict[str, Any]
FINDINGS = ("internal", "crash", "hang")


@dataclass
class Tally:
    """Counts by verdict and exit code, and the findings."""

    verdicts: Counter[str] = field(default_factory=Counter)
    codes: Counter[int] = field(default_factory=Counter)
    findings: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """One mutant's row."""
        self.verdicts[row["verdict"]] += 1
        if row["verdict"] == "ran":
            self.codes[row["code"]] += 1
        if row["verdict"] in FINDINGS:
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
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - a pipe that nobody reads would stop the worker
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | ONE_THREAD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
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
        self.process.communicate()
        with self._errors as errors:
            errors.seek(0)
            return errors.read()[-2000:]


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, 0 where /proc does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


class Run:
    """A range of seeds worked off by some processes; `found` is called with each finding when it happens."""

    def __init__(self, first: int, count: int, options: list[str], found: Callable[[Row], None]) -> None:
        self.tally = Tally()
        self.options, self.found = options, found
        self._next, self._last = first, first + count
        self._lock = threading.Lock()
        self._stop = float("inf")
        self.wrong: list[BaseException] = []

    def take(self) -> tuple[int, int]:
        """The next seeds as (first, count); nothing after the last one, or when the time is up."""
        with self._lock:
            first = self._next
            size = max(min(BATCH, self._last - first), 0) if time.monotonic() < self._stop else 0
            self._next += size
            return first, size

    def add(self, row: Row) -> None:
        """One mutant's row."""
        with self._lock:
            self.tally.add(row)
            if row["verdict"] in FINDINGS:
                self.found(row)

    def work(self) -> None:
        """What one thread does: batch after batch with a worker of its own."""
        worker = None
        try:
            while (batch := self.take())[1]:
                at, stop = batch[0], sum(batch)
                while at < stop:
                    worker = worker or Worker(self.options)
                    worker.work(at, stop - at)
                    at, worker = watch(worker, self.add, at, stop - at)
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            self.wrong.append(error)
        finally:
            if worker:
                worker.end()

    def go(self, jobs: int, seconds: float, loud: bool) -> Tally:
        """Work with `jobs` processes until all seeds are done, or for about `seconds`."""
        begin = time.monotonic()
        self._stop = begin + seconds
        threads = [threading.Thread(target=self.work, daemon=True) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(10.0 / jobs)
            if loud:
                print(f"{time.monotonic() - begin:8.0f} s  {self.tally}", flush=True)
        if self.wrong:
            raise self.wrong[0]
        return self.tally


def fuzz(
    first: int,
    count: int,
    options: list[str],
    jobs: int = 1,
    seconds: float = float("inf"),
    loud: bool = False,
    found: Callable[[Row], None] = lambda row: None,
) -> Tally:
    """Run the mutants of seeds `first` .. `first + count - 1`, or as many as fit into `seconds`."""
    return Run(first, count, options, found).go(jobs, seconds, loud)


def watch(worker: Worker, add: Callable[[Row], None], at: int, size: int) -> tuple[int, Worker | None]:
    """Follow a batch; the next seed, and the worker unless it had to go."""
    stop = at + size
    while True:
        line = worker.line(5.0)
        if line is None:
            if worker.spent() > CPU_SECONDS or time.monotonic() - worker.started > WALL_SECONDS:
                add({"seed": worker.seed, "verdict": "hang", "trace": worker.end()})
                return max(worker.seed + 1, at), None
            continue
        word, _, rest = line.partition(" ")
        if word == "begin":
            worker.begin(int(rest))
        elif word == "end":
            add(json.loads(rest))
        elif word == "done":
            return stop, worker
        elif not line:
            code = worker.process.wait()
            add({"seed": worker.seed, "verdict": "crash", "code": code, "trace": worker.end()})
            return max(worker.seed + 1, at + (worker.seed < 0)), None
