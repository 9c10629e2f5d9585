"""A shipped program's problem on a machine: inputs, launch, check against the reference, rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.api import launch, load
from emu.machine import Machine
from emu.memory_map import LaunchError, must_fit
from emu.numerics import FAST, SILICON, bound, unknown
from emu.result import Numerics, Problem, Result

if TYPE_CHECKING:
    import programs.problem

# Operand types whose products run on the tensor cores -> the machine's peak.
PEAK = {"fp16": "f16", "bf16": "f16", "fp8": "f8", "tf32": "tf32"}


def solve(
    problem: programs.problem.Problem,
    machine: Machine,
    inputs: Mapping[str, Any] | None = None,
    max_cycles: int | None = None,
    numerics: str = FAST,
    **options: Any,
) -> Result:
    """Run `problem` on `machine` with `inputs` (default: random ones, seed 0) and check the outputs.

    `options` are `emu.launch`'s: chaos, threads, warm, progress, numerics.

    Raises AssemblyError, and LaunchError when the problem's defines or sizes do not fit, or its arrays in memory.
    `tensor_utilization` counts the problem's own operations; padding and masked work do not.
    """
    must_fit(problem.array_bytes, "inputs and outputs")
    kernel = load(problem.kernel_path, defines=problem.defines)
    arrays = problem.make_inputs(0) if inputs is None else dict(inputs)
    try:
        start = problem.launch(arrays, sms=int(machine.value("chip.sms")))
    except (ValueError, ArithmeticError) as error:
        raise LaunchError(f"{problem.kernel} cannot be launched with these defines: {error}") from error
    work = problem.work(start.grid[0] * start.grid[1] * start.grid[2])
    if options.get("mode") == "representative":
        last = max(max(tiles) for tiles in work if tiles)  # often a part of a tile
        options["classes"] = [(problem.alike(tiles), last in tiles) for tiles in work]
    result = launch(
        kernel,
        machine=machine,
        grid=start.grid,
        block=start.block,
        cluster=start.cluster,
        args=start.args,
        shared_bytes=start.shared_bytes,
        max_cycles=max_cycles,
        numerics=numerics,
        **options,
    )
    result.kernel = problem.kernel
    result.problem = described(problem.shape)
    result.outputs.update(start.arrays)
    if result.deadlock is None and not any(f.severity in ("fault", "limit") for f in result.findings):
        rate(result, problem.flops, machine)
        tiles = [tile for cta in result.executed for tile in work[cta]] if result.mode == "representative" else None
        with np.errstate(all="ignore"):  # NaN and infinities of the user's are compared like numbers
            found = problem.check({name: start.arrays[name] for name in problem.outputs}, arrays, tiles)
        result.numerics = Numerics(
            max_abs_error=found.max_abs_error,
            rel_error=found.rel_error,
            reference=found.reference,
            tiles_checked=found.tiles_checked,
            passed=found.passed,
            failed=list(found.failed),
            mode="silicon" if numerics == SILICON else "fast",
            bound=None if numerics == SILICON or unknown(kernel.program) else bound(kernel.program, machine),
        )
    return result


def described(shape: Mapping[str, Any]) -> Problem:
    """A problem's `shape` as the result has it: extents apart from type and mask."""
    extents = {name: int(n) for name, n in shape.items() if name not in ("dtype", "causal")}
    return Problem(shape=extents, dtype=str(shape.get("dtype", "")), causal=bool(shape.get("causal", False)))


def rate(result: Result, flops: int, machine: Machine) -> None:
    """Set `tflops`, and `tensor_utilization` where tensor cores ran."""
    if result.time_us > 0:
        result.tflops = flops / result.time_us / 1e6
    kind = PEAK.get(result.problem.dtype if result.problem else "")
    if kind and result.cycles and result.pipes.get("tensor"):
        peak = machine.value(f"unit.tensor.{kind}_flop_per_cy") * machine.value("chip.sms")
        result.tensor_utilization = flops / (peak * result.cycles)
