"""The long sweep, on a few inputs: its statement of the formula is the one that runs execute."""

from __future__ import annotations

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
    wrong, _, away = sweep_mufu.sweep(name, 0x3F7FF000, 1 << 13)
    assert wrong == 0 and away <= sweep_mufu.LIMIT


def test_the_card_gets_kernels_that_assemble(ptxas) -> None:
    for instruction in INSTRUCTIONS.values():
        accepted, messages = ptxas(text(instruction), "sm_90a")
        assert accepted, messages
