"""The process that runs mutants: reads seeds, writes a line when it begins a mutant and one when it is done.

python -m tools.fuzz.worker [--corpus FOLDER] < "first count" lines
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import emu.sm
from emu import api
from emu.machine import Machine, load_machine
from emu.memory_map import LaunchError
from isa.errors import AssemblyError
from tools.fuzz.guard import Guard
from tools.fuzz.mutate import mutant
from tools.fuzz.operands import case
from tools.fuzz.subjects import Start, Subject, corpus, disturbed, mapped, shipped

MAX_CYCLES = 20_000
OPERANDS = 0.25  # share of single instructions on random operands
LARGEST = 40_000  # bytes of a corpus file


class Bench:
    """Subjects and the machine that their mutants run on."""

    def __init__(self, folder: Path | None = None, largest: int = LARGEST, run_share: float = 1.0) -> None:
        self.subjects = shipped() + (corpus(folder, largest) if folder else [])
        # Large programs take longer: how often a subject is drawn falls with its size.
        self.weights = [1 / max(len(s.source.code), 40) for s in self.subjects]
        self.starts: dict[str, Start] = {}
        self.machine: Machine = load_machine("h200", ("chip.sms=1",))
        self.run_share = run_share

    def make(self, seed: int) -> tuple[str, str, Callable[[], Start], random.Random]:
        """Name and text of the mutant of a seed, its launch, and the generator for what follows."""
        rng = random.Random(seed)
        if rng.random() < OPERANDS:
            name, text, start = case(rng)
            return name, text, lambda: start, rng
        subject = rng.choices(self.subjects, self.weights)[0]
        return subject.name, mutant(subject.source, rng), lambda: disturbed(self.start(subject), rng), rng

    def start(self, subject: Subject) -> Start:
        """The launch of a subject, made once."""
        if subject.name not in self.starts:
            self.starts[subject.name] = subject.begin()
        return self.starts[subject.name]

    def attempt(self, seed: int) -> dict[str, Any]:
        """Assemble and run one mutant; every exception but the expected ones is a finding."""
        try:
            name, text, launch, rng = self.make(seed)
        except Exception:  # noqa: BLE001 - an example that does not lower, a bug of the fuzzer
            return {"seed": seed, "verdict": "internal", "trace": traceback.format_exc()}
        row: dict[str, Any] = {"seed": seed, "subject": name}
        try:
            kernel = api.load(text=text, order=rng.choice(("source", "source", "scheduled")))
        except AssemblyError as error:
            return row | {"verdict": "refused", "code": error.exit_code}
        except Exception:  # noqa: BLE001 - what the fuzzer looks for
            return row | {"verdict": "internal", "trace": traceback.format_exc()}
        if rng.random() >= self.run_share:
            return row | {"verdict": "assembled"}
        return row | self.run(kernel, launch())

    def run(self, kernel: api.Kernel, start: Start) -> dict[str, Any]:
        """Launch between guard pages."""
        guard = Guard()
        args = [mapped(arg, guard.copy) for arg in start.args]
        vars(emu.sm).update(aligned=guard.aligned, np=guard.numpy())  # the arrays of the machine lie there too
        try:
            result = api.launch(
                kernel,
                machine=self.machine,
                grid=start.grid,
                block=start.block,
                args=args,
                shared_bytes=start.shared_bytes,
                max_cycles=MAX_CYCLES,
            )
            return {"verdict": "ran", "code": result.exit_code()}
        except LaunchError:
            return {"verdict": "refused", "code": 2}
        except Exception:  # noqa: BLE001 - what the fuzzer looks for
            return {"verdict": "internal", "trace": traceback.format_exc()}
        finally:
            guard.release()


def say(word: str, value: object) -> None:
    """One line to the parent."""
    sys.stdout.write(f"{word} {value}\n")
    sys.stdout.flush()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--largest", type=int, default=LARGEST)
    parser.add_argument("--run-share", type=float, default=1.0)
    options = parser.parse_args()
    bench = Bench(options.corpus, options.largest, options.run_share)
    say("ready", len(bench.subjects))
    for line in sys.stdin:
        first, count = map(int, line.split())
        for seed in range(first, first + count):
            say("begin", seed)
            say("end", json.dumps(bench.attempt(seed)))
        say("done", first)


if __name__ == "__main__":
    main()
