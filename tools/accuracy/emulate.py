"""Recorded programs on the emulator: the whole chip, with the data in L2.

The recordings repeat one launch, after which inputs lie in L2, so these runs start warm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import programs
from emu.machine import load_machine
from emu.result import Result
from emu.solve import solve
from programs.problem import Problem
from tools.accuracy.recorded import Recorded


def problem_of(entry: Recorded, options: Mapping[str, Any] | None = None) -> Problem:
    """The recorded problem, or the same program with other options."""
    return programs.find(entry.program).from_options(entry.defines, **(entry.options if options is None else options))


def emulate(entry: Recorded, whole: bool = False) -> Result:
    """Run a recorded program with the recorded inputs; `whole` executes every CTA."""
    mode = "full" if whole else "representative"
    return solve(problem_of(entry), load_machine("h200"), warm=True, mode=mode)
