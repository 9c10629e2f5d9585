"""The corpus runner on a few compiled kernels, and what it says when one is not right."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from emu.machine import load_machine
from tools.corpus.__main__ import counted, cycles, machine_of, main
from tools.corpus.launch import Outcome, attempt
from tools.corpus.manifest import Corpus, load

FOLDER = Path(__file__).parents[1] / "golden" / "corpus"
CORPUS = load(FOLDER)


@pytest.mark.parametrize("entry", CORPUS.entries, ids=lambda e: e.file.removesuffix(".ptx"))
def test_compiled_kernels_run_right(entry: Any) -> None:
    outcome = attempt(CORPUS, entry, load_machine(machine_of(entry.target)))
    assert (outcome.verdict, outcome.reason) == ("right", "")
    assert outcome.result is not None and outcome.result.cycles > 0


def changed(tmp_path: Path, *edits: tuple[str, str]) -> Outcome:
    """vadd with its text changed."""
    shutil.copy(FOLDER / "corpus_ref.py", tmp_path)
    entry = next(e for e in CORPUS.entries if e.name == "vadd_f32")
    text = CORPUS.path(entry).read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / entry.file).write_text(text)
    return attempt(Corpus(tmp_path, [entry], CORPUS.rules), entry, load_machine("h200"), max_cycles=10_000)


def test_a_wrong_output_is_counted(tmp_path: Path) -> None:
    outcome = changed(tmp_path, ("add.f32", "sub.f32"))
    assert outcome.verdict == "wrong" and outcome.reason.startswith("o: ") and " of 1,000 elements" in outcome.reason


def test_faults_and_refusals_are_named(tmp_path: Path) -> None:
    assert "outside" in changed(tmp_path, ("mul.wide.s32", "mad.wide.s32"), (", 4;", ", 4, 1048576;")).reason
    outcome = changed(tmp_path, ("add.f32", "vadd.f32"))
    assert outcome.verdict == "refused" and outcome.reason.startswith("vadd.f32")
    assert changed(tmp_path, ("ret;", "bra.uni $L0; $L0: bra.uni $L0;")).verdict == "fault"


def test_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Rows as JSON, beside what the card counted; other targets are left out."""
    card = tmp_path / "card.csv"
    card.write_text("kernel,launch,sm_cycles_active_max,inst_executed\nvadd_f32,one,874,320\n")
    assert main(["--corpus", str(FOLDER), "--recorded", str(card), "--only", "vadd", "--json", "-"]) == 0
    out = capsys.readouterr()
    (row,) = json.loads(out.out)
    assert row["verdict"] == "right" and row["ratio"] == round(row["cycles"] / 874, 3)
    assert "1 kernels: 1 right, 0 refused, 0 wrong, 0 fault" in out.err
    assert main(["--corpus", str(FOLDER), "--target", "sm_103a"]) == 0 and "0 kernels" in capsys.readouterr().out


def test_the_page_counts_and_lists() -> None:
    row = {
        "file": "k.sm_90a.ptx",
        "target": "sm_90a",
        "verdict": "right",
        "reason": "",
        "cycles": 1500,
        "card_cycles": 1000,
    }
    row |= {"ratio": 1.5, "warm_cycles": 900, "warp_instructions": 90, "card_warp_instructions": 100}
    refused = row | {"verdict": "refused", "reason": "tex.2d, vadd.s32", "ratio": None}
    assert counted([row, refused]).splitlines()[2:] == [
        "| sm_90a | 2 | 1 | 1 | 0 | 0 |",
        "",
        "Refused for: `tex.2d`, `vadd.s32`.",
    ]
    assert cycles([row, refused]).splitlines()[2] == "| k | 1,000 | 1,500 | 1.500 | 900 | 0.900 | 100 | 90 |"
