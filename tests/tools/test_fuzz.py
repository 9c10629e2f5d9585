"""Mutants do no harm; the fuzzer is deterministic, and notices crashes, hangs and accesses beyond arrays."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tools.fuzz.parent as fuzzer
from emu.api import load
from tools.fuzz.guard import Guard
from tools.fuzz.mutate import NUMBERS, Source, mutant, split
from tools.fuzz.operands import case, forms, kernel
from tools.fuzz.worker import Bench

FOLDER = Path(__file__).parents[1] / "golden" / "corpus"
OPTIONS = ["--corpus", str(FOLDER), "--largest", "7000"]


def test_mutants_do_no_harm() -> None:
    """Most assemble, more than 30 % of those that may run do, and nothing crashes, hangs or is an internal error."""
    tally = fuzzer.fuzz(0, 900, [*OPTIONS, "--run-share", "0.5"], jobs=2)
    assert not tally.findings, tally.findings
    assert sum(tally.verdicts.values()) == 900
    assert tally.verdicts["assembled"] > 200 and tally.verdicts["ran"] > 200, str(tally)
    assert set(tally.codes) <= {0, 1, 3, 5, 6} and tally.codes[6] > 20


def test_mutants_depend_on_the_seed_alone() -> None:
    first, second = Bench(FOLDER, 7000), Bench(FOLDER, 7000)
    texts = [first.make(seed)[1] for seed in range(30)]
    assert texts == [second.make(seed)[1] for seed in reversed(range(30))][::-1] and len(set(texts)) > 25


def test_a_mutant_differs_in_few_lines() -> None:
    text = (FOLDER / "vadd_f32.sm_90a.ptx").read_text()
    source = Source(text)
    assert source.kind("%r5") == "b32" and source.kind("%p1") == "pred" and source.kind("0f3F800000") == "float"
    assert split("\t@!%p1 ld.global.b32 %r1, [%rd1];") == ("\t@!%p1 ", "ld.global.b32", " %r1, [%rd1];")
    for seed in range(200):
        lines = mutant(source, random.Random(seed)).split("\n")
        assert sum(a != b for a, b in zip(lines, text.split("\n"), strict=True)) <= 6
    assert NUMBERS


WORKERS = {
    "crash": "import os, sys; print('ready 1'); sys.stdin.readline(); print('begin 7', flush=True); os.abort()",
    "hang": "import sys; print('ready 1'); sys.stdin.readline(); print('begin 7', flush=True)\nwhile True: pass",
}


@pytest.mark.parametrize("verdict", WORKERS)
def test_the_parent_names_the_mutant(verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started = subprocess.Popen
    monkeypatch.setattr(fuzzer, "CPU_SECONDS", 0.2)
    monkeypatch.setattr(fuzzer.Worker, "line", lambda self, wait, line=fuzzer.Worker.line: line(self, 0.1))
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **rest: started([sys.executable, "-c", WORKERS[verdict]], **rest)
    )
    seen: list[int] = []
    tally = fuzzer.fuzz(7, 1, [], found=lambda row: seen.append(row["seed"]))
    assert [(row["seed"], row["verdict"]) for row in tally.findings] == [(7, verdict)] and seen == [7]


def test_time_and_seeds_end_a_run() -> None:
    """Each seed is handed out once, in batches; none when the time is up."""
    run = fuzzer.Run(10, 120, [], print)
    assert [run.take() for _ in range(4)] == [(10, 50), (60, 50), (110, 20), (130, 0)]
    assert str(fuzzer.fuzz(0, 1000, [], jobs=3, seconds=0)).startswith("0 mutants")


@pytest.mark.parametrize("index", [-1, 4096, 5000])
def test_guards_stop_accesses_beyond_an_array(index: int) -> None:
    """In a process of its own: the byte before the first page, and those behind the array."""
    touch = f"import ctypes; from tools.fuzz.guard import Guard; a = Guard().array(4096, 'u1'); p = a.ctypes.data; ctypes.memset(p, 1, 4096); print(a.sum()); ctypes.memset(p + {index}, 1, 1)"
    done = subprocess.run([sys.executable, "-c", touch], cwd=fuzzer.ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["4096"] or done.stdout == ""
    assert done.returncode == -11


def test_guarded_copies() -> None:
    guard, array = Guard(), np.arange(6, dtype=np.int32).reshape(2, 3)
    array.flags.writeable = False
    copy = guard.copy(array)
    assert np.array_equal(copy, array) and copy is guard.copy(array) and not copy.flags.writeable
    assert guard.array(3, np.float64, 256).ctypes.data % 256 == 0 and not guard.array((2, 2), "u4").any()
    guard.release()


def test_every_form_has_a_case_that_assembles() -> None:
    """On a sample of forms; the registers of the example are loaded, the barrier that it may use is there."""
    for form in random.Random(5).sample(forms(), 40):
        text = kernel(form)
        assert "mbarrier.init" in text and load(text=text).program.name == "k"
    name, _, start = case(random.Random(3))
    assert name and len(start.args) == 2
