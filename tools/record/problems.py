"""Shipped programs as launches: arguments and check come from `programs`, the PTX from an export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

import programs
from tools.record.entry import entries
from tools.record.kernel import Launch


def launch_of(
    name: str, text: str, sms: int, options: dict[str, Any], defines: dict[str, Any], check_tiles: int = 0
) -> tuple[Launch, Callable[[], dict[str, Any]], dict[str, np.ndarray]]:
    """The launch of a program's problem, its check (call it when the outputs are back), all arrays by name.

    `text` is the program's PTX, exported with the same options and defines; `check_tiles` tiles, evenly spread, are
    compared (0: all).
    """
    problem = programs.find(name).from_options(defines=defines, **options)
    inputs = problem.make_inputs()
    start = problem.launch(inputs, sms)
    kernel = entries(text)[0].name

    def check() -> dict[str, Any]:
        tiles = getattr(problem, "tiles", 0)
        chosen = np.linspace(0, tiles - 1, check_tiles).astype(int).tolist() if 0 < check_tiles < tiles else None
        found = problem.check({n: start.arrays[n] for n in problem.outputs}, inputs, chosen)
        return asdict(found) | {"passed": found.passed}

    launch = Launch(text, kernel, start.grid, start.block, start.args, start.shared_bytes, start.cluster)
    return launch, check, start.arrays
