"""Recorded programs on the emulator: the busiest SM with its data in L2, as the recordings had them.

SMs do not compete in the model, so the SM with the most CTAs decides about the cycles, and the others need not run.
The recordings repeat one launch, after which inputs lie in L2; the emulator starts with a cold L2, so device memory gets
the latency of L2 and no limit of its rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import programs
from emu.machine import Machine, load_machine
from emu.result import Result
from emu.solve import solve
from programs.attention import FlashAttention3
from programs.problem import Problem, ceildiv
from tools.accuracy.recorded import Recorded

UNLIMITED = 1e6  # GB/s


@cache
def machine(name: str = "h200", sms: int = 0) -> Machine:
    """The machine whose device memory is as near as L2; with `sms` it has that many SMs."""
    l2 = load_machine(name).value("unit.l2.hit_cy")
    overrides = ["unit.tma.hbm_extra_cy=0", f"unit.hbm.latency_cy={l2}", f"unit.hbm.gb_per_s={UNLIMITED:g}"]
    return load_machine(name, overrides + ([f"chip.sms={sms}"] if sms else []))


def problem_of(entry: Recorded, options: Mapping[str, Any] | None = None) -> Problem:
    """The recorded problem, or the same program with other options."""
    return programs.find(entry.program).from_options(entry.defines, **(entry.options if options is None else options))


def busiest(entry: Recorded, sms: int) -> dict[str, Any]:
    """Options of a problem for one SM that does what the busiest of `sms` SMs does in the recorded one."""
    problem = problem_of(entry)
    values: dict[str, Any] = dict(problem.values)
    if isinstance(problem, FlashAttention3):
        keys = values["seqlen_k"] or values["seqlen"]
        rows = min(values["seqlen"], problem.tile.rows) * ceildiv(problem.tiles, sms)
        return values | {"seqlen": rows, "seqlen_k": keys, "heads": 1, "heads_k": 1, "batch": 1}
    grid = problem.launch(problem.make_inputs(), sms).grid[0]
    if entry.program == "gemm":
        blocks = ceildiv(values["m"], 128)
        tiles = ceildiv(blocks * ceildiv(values["n"], int(problem.defines["TILE_N"])), sms)
        return values | {"m": 128 * tiles, "n": min(values["n"], int(problem.defines["TILE_N"]))}
    name = {"softmax": "rows", "vector_add": "n"}[entry.program]
    return values | {name: values[name] // grid * ceildiv(grid, sms)}


def emulate(entry: Recorded, whole: bool = False) -> Result:
    """Run a recorded program; `whole` runs every CTA on every SM, with the recorded inputs."""
    if whole:
        return solve(problem_of(entry), machine())
    sms = int(machine().value("chip.sms"))
    return solve(problem_of(entry, busiest(entry, sms)), machine(sms=1))
