"""The Python API: load a kernel, launch it on a machine, look at the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from emu import clusters
from emu.chaos import Chaos
from emu.chip import Chip, Progress
from emu.collect import Whole, collect
from emu.link import Linked, link
from emu.machine import Machine, load_machine
from emu.memory_map import LaunchError, MemoryMap, must_fit
from emu.numerics import FAST, MODES, SILICON, unknown
from emu.order import scheduling
from emu.representative import PROBE, Sample, border_classes, choose, of_ctas, replay
from emu.result import Result
from emu.sm import Shape, StreamingMultiprocessor, occupancy, shared_window
from isa.assembler import Assembly, assemble
from isa.program import Program

REMEMBERED = 8  # machines that a kernel stays linked for
DEFAULT_MAX_CYCLES = 2_000_000_000
# Extents of a launch (CUDA programming guide, technical specifications per compute capability: the same for all).
MOST_CTAS = (2**31 - 1, 65_535, 65_535)
MOST_THREADS = (1024, 1024, 64)
CTA_RECORD = 24  # host bytes that a chip keeps of every CTA


@dataclass(frozen=True)
class Kernel:
    """An assembled kernel, ready to launch on any machine of its target."""

    program: Program
    assembly: Assembly
    _linked: dict[tuple[int, bool], tuple[Machine, Linked]] = field(default_factory=dict, repr=False, compare=False)

    def linked(self, machine: Machine, silicon: bool = False) -> Linked:
        """The program with a machine's numbers, made once for each machine and mode of numerics."""
        key = id(machine), silicon
        found = self._linked.get(key)
        if found is None:
            if len(self._linked) >= REMEMBERED:
                self._linked.clear()
            found = self._linked[key] = machine, link(self.program, machine, silicon)
        return found[1]

    def __repr__(self) -> str:
        p = self.program
        return f"<Kernel {p.name}: {p.target}, {len(p.instrs):,} operations, {p.registers} registers>"


def load(
    source: str | Path | None = None,
    *,
    text: str | None = None,
    defines: Mapping[str, int | float | str] | None = None,
    kernel: str | None = None,
    order: str | None = None,
) -> Kernel:
    """Assemble a `.mptx`/`.ptx` file, a shipped program's name, or `text`.

    `defines` override the program's `.define`s; `kernel` chooses an entry.  `order` is "source" (operations run
    as written) or "scheduled" (as `ptxas` would order them); by default `.ptx` files are scheduled, all else
    is not.  Raises AssemblyError with every finding, UnsupportedError for instructions that are not
    implemented, ValueError for another order, and unless exactly one of `source` and `text` is given.
    """
    if (source is None) == (text is None):
        raise ValueError("emu.load takes a file or a program's name, or else text=...")
    if isinstance(source, str) and not Path(source).exists():
        import programs

        if source in programs.names():
            source = programs.find(source).from_options().kernel_path
    return load_text(source, text, defines, kernel, order)


def load_text(
    source: str | Path | None,
    text: str | None,
    defines: Mapping[str, int | float | str] | None = None,
    kernel: str | None = None,
    order: str | None = None,
) -> Kernel:
    """As `load`, for `text` that was read from `source` already (None: to be read there)."""
    weights = scheduling(order, source)
    assembly = assemble(source, text=text, defines=dict(defines or {}), kernel=kernel, order=weights)
    return Kernel(assembly.program(kernel), assembly)


def launch(
    kernel: Kernel,
    *,
    machine: str | Path | Machine = "h200",
    grid: int | Sequence[int] = 1,
    block: int | Sequence[int] | None = None,
    cluster: int | Sequence[int] | None = None,
    args: Sequence[Any] = (),
    shared_bytes: int = 0,
    max_cycles: int | None = None,
    chaos: Chaos | int | str | None = None,
    mode: str = "full",
    classes: Sequence[Hashable] | None = None,
    threads: int = 1,
    warm: bool = False,
    progress: Progress | None = None,
    numerics: str = FAST,
) -> Result:
    """Run a grid on an emulated chip and return the result; arrays are updated in place.

    `grid` and `block` count CTAs and threads, `cluster` the CTAs of a cluster (default: what .reqnctapercluster says, or 1);
    `args` follow the kernel's parameters (arrays of anything with `__array_interface__` or DLPack, scalars, TensorMap, Struct or
    bytes for a struct); `shared_bytes` is the dynamic shared memory.  `chaos` (a seed, `SEED:N`, or a Chaos) runs under other timing that PTX allows, with at most N
    perturbations an SM.  `mode` "representative" executes a few CTAs of each class and deals out the others with their
    durations; CTAs of one class do the same work (`classes` by CTA number; default: those at borders of the grid differ), and
    only the executed ones (`result.executed`) write their results.  SMs run on `threads` threads, which changes nothing
    but the time it takes; `warm` starts with the arrays in L2, as after an earlier launch; `progress(ended, all)` is told the CTAs now and then.
    `numerics` is "fast", or "silicon" for results that equal the card's in every bit (docs/numerics.md).
    Raises LaunchError when the launch does not fit the kernel or the machine.  Faults,
    deadlocks and the cycle limit are in the result, not raised.
    """
    if not isinstance(machine, Machine):
        machine = load_machine(machine)
    program = kernel.program
    _check_choices(program, numerics, threads, mode)
    shape = _placed(program, machine, grid, block, cluster, shared_bytes)
    shape = replace(shape, silicon=numerics == SILICON)
    memory = MemoryMap(program)
    memory.bind(args)
    disturbance = Chaos.of(chaos)
    linked, sms = kernel.linked(machine, shape.silicon), int(machine.value("chip.sms"))

    def make(sample: Sample | None) -> Chip:
        return Chip(program, machine, linked, shape, memory, warm, disturbance, sample)

    def run(chip: Chip, most: int) -> list[StreamingMultiprocessor]:
        return chip.run(min(most, max_cycles or DEFAULT_MAX_CYCLES), threads, progress)

    whole = None
    if mode == "representative":
        alike, members = _classes(shape, classes)
        teams = len(clusters.teams(machine, shape.together)) if shape.together > 1 else sms
        chip, done, whole = by_sample(make, run, memory, alike, choose(alike, shape.slots, teams), teams, members)
    else:
        chip = make(None)
        done = run(chip, DEFAULT_MAX_CYCLES)
    result = collect(kernel.program, machine, shape, memory, done, chip.host_seconds, disturbance, whole)
    result.mode = "representative" if mode == "representative" else "full"
    result.executed.extend(chip.order.tolist())
    return result


def _placed(
    program: Program,
    machine: Machine,
    grid: int | Sequence[int],
    block: int | Sequence[int] | None,
    cluster: int | Sequence[int] | None,
    shared_bytes: int,
) -> Shape:
    """The launch's shape with its clusters; LaunchError when it does not fit."""
    counted = _three(grid)
    if program.blocks_are_clusters and program.cluster:
        counted = _three([n * c for n, c in zip(counted, program.cluster, strict=True)])
    shape = _shape(program, machine, counted, _three(block or program.block_hint or 1), shared_bytes)
    asked = None if cluster is None else _three(cluster)
    extent = clusters.extent(program, machine, counted, asked)
    return replace(shape, cluster=extent, explicit_cluster=asked is not None or program.cluster is not None)


def _classes(shape: Shape, classes: Sequence[Hashable] | None) -> tuple[Sequence[Hashable], np.ndarray]:
    """Class of each CTA, or of each cluster when there are such; the CTAs of each."""
    kinds = list(classes or border_classes(shape.grid))
    if len(kinds) != int(np.prod(shape.grid)):
        raise LaunchError(f"{len(kinds)} classes for a grid of {int(np.prod(shape.grid))} CTAs")
    members = clusters.in_order(shape.grid, shape.cluster).reshape(-1, shape.together)
    return ([tuple(kinds[cta] for cta in cluster) for cluster in members] if shape.together > 1 else kinds), members


def _check_choices(program: Program, numerics: str, threads: int, mode: str) -> None:
    """LaunchError for a way to run that does not exist."""
    if numerics not in MODES:
        raise LaunchError(f"numerics are {' or '.join(MODES)}, not {numerics!r}")
    if threads < 1:
        raise LaunchError(f"threads must be 1 or more, not {threads}")
    if mode not in ("full", "representative"):
        raise LaunchError(f"mode is full or representative, not {mode}")
    if numerics == SILICON and (name := unknown(program)):
        raise LaunchError(
            f"silicon numerics of {name} (tcgen05.mma) are not known: no Blackwell was measured; use fast numerics"
        )


def by_sample(
    make: Callable[[Sample | None], Chip],
    run: Callable[[Chip, int], list[StreamingMultiprocessor]],
    memory: MemoryMap,
    kinds: Sequence[Hashable],
    sample: Sample | None,
    teams: int,
    members: np.ndarray,
) -> tuple[Chip, list[StreamingMultiprocessor], Whole | None]:
    """Representative mode: the whole chip for a moment, then the sample, if there is one (`emu.representative`).

    `kinds` and `sample` are of clusters, which `teams` of SMs take; `members` are the CTAs of each.
    """
    before = [array.copy() for array in memory.writable()] if sample else []
    chip = make(None)
    done = run(chip, PROBE if sample else DEFAULT_MAX_CYCLES)
    if sample is None or not chip.running:
        return chip, done, None
    for array, old in zip(memory.writable(), before, strict=True):
        array[...] = old
    sample, seconds = replace(sample, arrays=chip.arrays), chip.host_seconds
    executed = of_ctas(sample, members)
    chip = make(executed)
    chip.host_seconds = seconds
    done = run(chip, DEFAULT_MAX_CYCLES)
    if chip.failed:
        return chip, done, None
    spans = chip.spans[members[list(sample.ctas)]].max(axis=1).tolist()
    ends = replay(kinds, sample, spans, chip.sms[0].shape.slots, teams, chip.pace)
    cycles = [end for end in ends for _ in range(members.shape[1])]
    return chip, done, Whole(cycles, chip.scales(executed))


def _three(extent: int | Sequence[int]) -> tuple[int, int, int]:
    """One to three positive whole numbers; LaunchError for anything else."""
    values = tuple(extent) if isinstance(extent, Sequence | np.ndarray) else (extent,)
    if not 1 <= len(values) <= 3 or not all(isinstance(v, int | np.integer) and v > 0 for v in values):
        raise LaunchError(f"grid and block have one to three positive whole numbers, not {extent!r}")
    x, y, z = (*(int(v) for v in values), 1, 1)[:3]
    return x, y, z


def _within(what: str, extents: tuple[int, int, int], limits: tuple[int, int, int]) -> None:
    """LaunchError for an extent above CUDA's limit."""
    for axis, extent, most in zip("xyz", extents, limits, strict=True):
        if extent > most:
            raise LaunchError(f"{axis} of the {what} is at most {most:,}, not {extent:,}")


def _shape(
    program: Program, machine: Machine, grid: tuple[int, int, int], block: tuple[int, int, int], dynamic: int
) -> Shape:
    """Check a launch against the kernel and the machine."""
    _within("grid", grid, MOST_CTAS)
    _within("block", block, MOST_THREADS)
    threads = math.prod(block)
    must_fit(CTA_RECORD * math.prod(grid), "a grid of so many CTAs")
    if program.target not in machine.targets:
        raise LaunchError(
            f"{program.name} is assembled for {program.target}; {machine.name} runs {', '.join(machine.targets)}"
        )
    if program.block_hint and program.block_hint != block:
        raise LaunchError(f"{program.name} requires blocks of {program.block_hint} (.reqntid), not {block}")
    if threads > 1024:
        raise LaunchError(f"a CTA has at most 1024 threads, not {threads}")
    window = shared_window(program, machine, dynamic)
    need, most = program.shared_static + dynamic, int(machine.value("unit.smem.cta_b"))
    if need > most:
        raise LaunchError(f"{program.name} needs {need} bytes of shared memory, {machine.name} has {most} for a CTA")
    slots = occupancy(program, machine, threads, window)
    if slots < 1:
        raise LaunchError(f"a CTA of {threads} threads does not fit: {program.registers} registers a thread")
    return Shape(grid, block, dynamic, window, min(slots, int(np.prod(grid))))
