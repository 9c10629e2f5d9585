"""Damaged programs and random values: whatever they do, the process lives and the result has an exit code."""

from __future__ import annotations

import ast
import collections
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
TOKEN = re.compile(r"%[\w.]+|\b\d\w*\b")
DECLARED = re.compile(r"\.reg (\.\w+) ([^;]*);")
PROGRAMS = {
    "fa3": ({"KV_TILE": 48}, {"seqlen": 130, "seqlen_k": 100, "heads": 1}),
    "gemm": ({"TILE_N": 64, "STAGES": 2}, {"m": 130, "n": 72, "k": 72}),
    "softmax": ({}, {"rows": 5, "cols": 132}),
    "vector_add": ({}, {"n": 300}),
}
VALUES = ["0", "1", "7", "16", "1024", "65536", "0x7fffffff", "0x80000000", "0x1000000", "0xfffffff0"]


def types(text: str) -> dict[str, str]:
    """Declared type of every register name; ranges (`%r<9>`) by their stem."""
    return {name.strip().partition("<")[0]: kind for kind, names in DECLARED.findall(text) for name in names.split(",")}


def mutate(text: str, rng: random.Random) -> str:
    """Plain PTX with one to three operands replaced (registers by others of their type, numbers by others), or statements swapped or dropped."""
    head, _, body = text.partition("{\n")
    lines, kinds = body.split("\n"), types(body)

    def kind_of(token: str) -> str:
        return kinds.get(token) or kinds.get(token.rstrip("0123456789")) or ("number" if token[0].isdigit() else token)

    code = [k for k, line in enumerate(lines) if line.strip().endswith(";") and ".reg" not in line]
    for _ in range(rng.randint(1, 3)):
        k, j = rng.choice(code), rng.choice(code)
        tokens = list(TOKEN.finditer(lines[k]))
        if rng.random() < 0.2 or not tokens:
            lines[k], lines[j] = (lines[j], lines[k]) if rng.random() < 0.5 else ("", lines[j])
            continue
        place = rng.choice(tokens)
        pool = VALUES
        if place.group()[0] == "%" or rng.random() < 0.5:
            pool = [t for line in lines for t in TOKEN.findall(line) if ".reg" not in line and kind_of(t) == kind_of(place.group())] or VALUES
        lines[k] = lines[k][: place.start()] + rng.choice(pool) + lines[k][place.end() :]
    return head + "{\n" + "\n".join(lines)


def batch(name: str, seeds: range) -> dict[int, int]:
    """Run mutants of a program; exit codes of those that assemble."""
    import emu
    import programs
    from emu.machine import load_machine
    from isa.errors import AssemblyError
    from isa.expand import expand
    from isa.ptx import to_ptx

    defines, options = PROGRAMS[name]
    problem = programs.find(name).from_options(defines, **options)
    path = Path(problem.kernel_path)
    text = to_ptx(expand(path.read_text(), str(path), problem.defines, (path.parent,)), comments=False)
    codes: collections.Counter[int] = collections.Counter()
    for seed in seeds:
        rng = random.Random(seed)
        start = problem.launch(problem.make_inputs(0), 1)
        args = [np.uint32(rng.choice([0, 1, 3, 2**31, 2**32 - 1])) if isinstance(a, np.generic) and rng.random() < 0.05 else a for a in start.args]
        try:
            kernel = emu.load(text=mutate(text, rng))
            result = emu.launch(
                kernel, machine=load_machine("h200", ("chip.sms=1",)), grid=start.grid, block=start.block, args=args,
                shared_bytes=start.shared_bytes, max_cycles=30_000,
            )  # fmt: skip
        except (AssemblyError, emu.LaunchError):
            continue
        codes[result.exit_code()] += 1
    return codes


@pytest.mark.parametrize("name", PROGRAMS)
def test_mutants_do_not_crash(name: str) -> None:
    """A batch runs in a process of its own, so that a crash is a failure of the test and not the end of the run."""
    count = 15 if name == "fa3" else 40
    load = f"import importlib.util as u; s = u.spec_from_file_location('fuzz', {__file__!r}); m = u.module_from_spec(s)"
    code = f"{load}; s.loader.exec_module(m); print(dict(m.batch({name!r}, range({count}))))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, (run.returncode, run.stderr[-3000:])
    codes = ast.literal_eval(run.stdout.splitlines()[-1])
    assert set(codes) <= {0, 1, 3, 5, 6} and sum(codes.values()) > 5, codes
