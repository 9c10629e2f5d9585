"""The long sweep, on a few inputs: its statement of the formula is the one that runs execute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from emu.lanes import run_lanes
from tests.isa.ops.cases import EDGES32, same
from tools import sweep_mufu
from tools.record.mufu import INSTRUCTIONS, text


@pytest.mark.parametrize("name", sweep_mufu.FUNCTIONS)
def test_both_statements_of_the_formula_agree(name: str) -> None:
    rng = np.random.default_rng(len(name))
    words = np.concatenate([np.asarray(EDGES32, np.uint32), rng.integers(0, 1 << 32, 1 << 16, np.uint32)])
    words = np.resize(words, len(words) + -len(words) % 32)
    same(run_lanes(f"MUFU.{name.upper()}", words)[0], sweep_mufu.reference(name, words), words)
    wrong, _, away = sweep_mufu.sweep(name, 0x3F7FF000, 1 << 13, formula=True)
    assert wrong == 0 and away <= sweep_mufu.LIMIT


@pytest.mark.parametrize(("name", "part"), [("ex2", 11), ("lg2", 3), ("rcp", 4), ("rsq", 5), ("sqrt", 6), ("tanh", 3)])
def test_a_slice_of_2_to_the_28_inputs_is_the_cards(name: str, part: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep_mufu.main([name, "--slices", str(part)]) == 0
    assert capsys.readouterr().out.endswith(", the card's\n")


def test_another_checksum_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "crc.json"
    file.write_text(json.dumps({"ex2": ["00000000"]}))
    assert sweep_mufu.main(["ex2", "--slices", "0", "--card", str(file)]) == 1


def test_the_card_gets_kernels_that_assemble(ptxas) -> None:
    for instruction in INSTRUCTIONS.values():
        accepted, messages = ptxas(text(instruction), "sm_90a")
        assert accepted, messages
