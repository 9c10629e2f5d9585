"""What becomes of mutants of a program's barrier protocol: a report, a wrong result, or nothing under many timings.

`python -m tools.mutants fa3 [--seeds 100] [--write docs/mutants.md]`.  Every shared-memory protocol mistake that
`tools.mutants.sites` knows is made once.  Ends with 1 when a mutant hangs whose report does not name its barrier.
"""

from __future__ import annotations

import argparse
import collections
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import emu
import programs
from emu.api import Kernel
from emu.machine import Machine, load_machine
from emu.result import Result
from isa.assembler import assemble_module
from isa.errors import AssemblyError
from isa.expand import expand
from isa.syntax import Module, Pos
from programs.problem import Problem
from tools.docs.blocks import table, update
from tools.mutants.sites import Mutant, mutants

# Small shapes: two tiles on one SM, some key blocks.
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fa3": ({"KV_TILE": 48}, {"seqlen": 128, "seqlen_k": 192, "heads": 2}),
    "gemm": ({"TILE_N": 64}, {"m": 256, "n": 64, "k": 320}),
}
MAX_CYCLES = 1_000_000


@dataclass(frozen=True)
class Verdict:
    """How a mutant ends: `deadlock`, `livelock`, `fault`, `limit`, `wrong`, `refused`, or `unchanged`.

    `rule` is the report's first; `named`: the report of a hang or fault has the barrier, `blamed`: as a cause; `seed`: the
    chaos seed that shows it (-1: none was needed).
    """

    how: str
    rule: str = ""
    named: bool = True
    blamed: bool = True
    seed: int = -1


class Bench:
    """One program on one SM."""

    def __init__(self, name: str) -> None:
        defines, options = SHAPES[name]
        self.problem: Problem = programs.find(name).from_options(defines, **options)
        self.path = self.problem.kernel_path
        self.machine: Machine = load_machine("h200", ("chip.sms=1",))
        self.module: Module = expand(
            self.path.read_text(), str(self.path), dict(self.problem.defines), (self.path.parent,)
        )
        self.inputs = self.problem.make_inputs(3)

    def mutants(self) -> Iterator[Mutant]:
        """All of them."""
        return mutants(self.module, line_at)

    def run(self, kernel: Kernel, seed: int = -1) -> tuple[Result, bool]:
        """A result, and whether the numbers are right."""
        start = self.problem.launch(self.inputs, 1)
        result = emu.launch(
            kernel, machine=self.machine, grid=start.grid, block=start.block, args=start.args,
            shared_bytes=start.shared_bytes, max_cycles=MAX_CYCLES, chaos=seed if seed >= 0 else None,
        )  # fmt: skip
        ended = result.deadlock is None and not any(f.severity in ("fault", "limit") for f in result.findings)
        right = ended and self.problem.check({n: start.arrays[n] for n in self.problem.outputs}, self.inputs).passed
        return result, right

    def assemble(self, mutant: Mutant) -> Kernel:
        """The mutant's kernel."""
        assembly = assemble_module(mutant.module, self.path.read_text())
        return Kernel(assembly.program(), assembly)

    def judge(self, mutant: Mutant, seeds: int) -> Verdict:
        """Run plainly, then under chaos until something shows."""
        try:
            kernel = self.assemble(mutant)
        except AssemblyError as error:
            return Verdict("refused", error.diagnostics[0].message)
        for seed in range(-1, seeds):
            result, right = self.run(kernel, seed)
            if not right:
                return verdict(result, mutant, seed)
        return Verdict("unchanged")


def verdict(result: Result, mutant: Mutant, seed: int) -> Verdict:
    """The verdict on a run whose numbers are not right, or that did not end."""
    name = mutant.barrier
    if result.deadlock:
        found = result.deadlock
        blamed = [cause for cause in found.causes if name in cause.message]
        named = any(b.name.startswith(name) for b in found.barriers) or bool(blamed)
        return Verdict(found.kind, found.causes[0].rule if found.causes else "", named, bool(blamed), seed)
    for finding in result.findings:
        if finding.severity in ("fault", "limit"):
            named = name in finding.message
            return Verdict(finding.severity, finding.rule, named, named, seed)
    return Verdict("wrong", seed=seed)


@functools.cache
def _text(file: str) -> list[str]:
    return Path(file).read_text().splitlines()


def line_at(pos: Pos) -> str:
    """The source line at a place."""
    lines = _text(pos.file)
    return lines[pos.line - 1] if 0 < pos.line <= len(lines) else ""


def row(mutant: Mutant, found: Verdict) -> tuple[str, str, str, str]:
    """A line of the list."""
    end = {"wrong": "wrong result", "unchanged": "unchanged"}.get(found.how, f"{found.how} {found.rule}".strip())
    if found.seed >= 0:
        end += f", chaos seed {found.seed}"
    if found.how in ("deadlock", "livelock") and not found.blamed:
        end += " (blames others)"
    return mutant.what, mutant.barrier or "?", mutant.place, end


def main(argv: list[str] | None = None) -> int:
    """Judge all mutants of a program; 1 when a hang's report does not name the barrier that was changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", choices=list(SHAPES))
    parser.add_argument("--seeds", type=int, default=100, help="chaos seeds for mutants that change nothing")
    parser.add_argument("--write", metavar="PAGE", help="put the list into the block of this page")
    options = parser.parse_args(argv)
    bench = Bench(options.program)
    rows, counts, silent = [], collections.Counter[str](), []
    for mutant in bench.mutants():
        found = bench.judge(mutant, options.seeds)
        counts[found.how] += 1
        rows.append(row(mutant, found))
        print(" | ".join(rows[-1]), file=sys.stderr)
        if found.how in ("deadlock", "livelock", "limit") and not found.named:
            silent.append(mutant.name)
    summary = f"{len(rows)} mutants: " + ", ".join(f"{n} {how}" for how, n in counts.most_common())
    text = summary + "\n\n" + table(("change", "barrier", "place", "end"), rows, left=4)
    if options.write:
        update(Path(options.write), {f"mutants-{options.program}": text})
    print(summary)
    for name in silent:
        print(f"the report does not name the barrier: {name}")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
