"""Recorded programs on the emulator, with their data in L2: the recordings repeat one launch.

`emulate` runs the whole chip, warm.  `emulated` runs the SM with the most work alone, with device memory as near as L2: what
our kernels do inside an SM, without the traffic of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

import emu
import programs
from emu.machine import Machine, load_machine
from emu.result import Result
from emu.solve import solve
from programs.attention import TILE_OVERHEAD, FlashAttention3
from programs.problem import Problem, ceildiv
from tools.accuracy.recorded import Recorded
from tools.accuracy.recorded import programs as recorded

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


def scheduled(problem: FlashAttention3, sms: int) -> Result:
    """Attention whose tiles differ in length: the CTA with the most key blocks of a table for `sms`, alone, unchecked.

    Without a table (SCHEDULE = 0) every CTA runs.
    """
    start = problem.launch(problem.make_inputs(), sms)
    kernel = emu.load(problem.kernel_path, defines=problem.defines)
    grid, args = start.grid, list(start.args)
    if table := int(problem.defines["SCHEDULE"]):
        rounds: np.ndarray = start.arrays["schedule"]
        blocks = ceildiv(problem.seqlen, problem.tile.rows)
        costs = [problem.key_blocks(row) + TILE_OVERHEAD for row in range(blocks)]
        work = [sum(costs[t % blocks] for t in column if t < problem.tiles) for column in rounds.T.tolist()]
        column = np.ascontiguousarray(rounds[:, [int(np.argmax(work))]])
        grid, args = (1, 1, 1), [column if arg is rounds else arg for arg in args]
    on = machine(sms=1 if table else sms)
    result: Result = emu.launch(
        kernel,
        machine=on,
        grid=grid,
        block=start.block,
        args=args,
        shared_bytes=start.shared_bytes,
        cluster=start.cluster,
    )
    return result


@cache
def emulated(key: str) -> Result:
    """`alone` of a recorded program's name, once."""
    (entry,) = (entry for entry in recorded() if entry.name == key)
    result = alone(entry)
    result.outputs.clear()  # of a table nobody looks at them, and they are large
    return result


def alone(entry: Recorded) -> Result:
    """The SM of a recorded program that is busy longest, alone."""
    problem = problem_of(entry)
    sms = int(machine().value("chip.sms"))
    if isinstance(problem, FlashAttention3) and problem.causal:
        return scheduled(problem, sms)
    return solve(problem_of(entry, busiest(entry, sms)), machine(sms=1))


def emulate(entry: Recorded, whole: bool = False) -> Result:
    """Run a recorded program with the recorded inputs; `whole` executes every CTA."""
    mode = "full" if whole else "representative"
    return solve(problem_of(entry), load_machine("h200"), warm=True, mode=mode)
