"""Generations side by side: what a kernel reaches on a machine, what bounds it there, and what others have published or measured.

A block is what the kernel itself works on (`programs.attention.Block`): rows of Q by keys.  Bounds are the cycles of an SM that one unit
alone would need for it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import programs
from emu.machine import Machine, MachineError, load_machine
from emu.memory_map import LaunchError
from emu.result import Result
from emu.solve import solve
from isa.errors import AssemblyError
from programs.attention import Attention
from programs.problem import ceildiv

SCHEMA = 1
FIGURES = Path(__file__).with_name("published.toml")
GENERATIONS = ("fa1", "fa2", "fa3", "fa4")
MACHINES = ("a100", "h200", "b200")
TOKENS, HIDDEN = 16384, 2048  # of a shape, as in the FlashAttention papers: batch * seqlen, heads * head_dim
ONE_TARGET = {"sm_90a": "wgmma exists on sm_90a only", "sm_100": "tcgen05 exists on sm_100 only"}
MMA_FLOP, SUBPARTITIONS = 2 * 16 * 8 * 16, 4  # of an mma.sync m16n8k16
FASTEST = "1e6"  # bytes a cycle, or GB/s: no limit
# Bottlenecks that can be taken away, and how; the machine's other numbers stay.
REMOVALS: dict[str, tuple[str, ...]] = {
    "bandwidth of L2 and HBM": (f"unit.l2.chip_b_per_cy={FASTEST}", f"unit.hbm.gb_per_s={FASTEST}"),
    "wait for copies": ("unit.copy.latency_cy=32", "unit.l2.hit_cy=32", "unit.hbm.latency_cy=32"),
    "softmax": (
        "unit.sfu.lanes=128",
        "unit.alu.lanes=128",
        *(f"timing.{name}.latency=1" for name in ("mufu", "alu", "fma")),
        "unit.tensor.mma_yields_cy=0",
    ),
    "rate of mma.sync": ("timing.mma32.interval=4",),
}  # fmt: skip


class Bounds(msgspec.Struct, kw_only=True):
    """Cycles of an SM for one block: products at the rate of their instruction, exponentials, operands from shared memory, issue."""

    tensor: float
    exp: float
    shared: float
    issue: float


class Figure(msgspec.Struct, kw_only=True):
    """What somebody else found: `text` with its unit, `source`."""

    text: str
    source: str


class Row(msgspec.Struct, kw_only=True):
    """A kernel on a machine; `reason` says why it cannot run there, and then nothing else is known.

    `utilization`: useful operations over those that the tensor cores could do in the cycles; `waits`: role -> reason and share
    of its warp-cycles.
    """

    kernel: str
    machine: str
    shape: dict[str, Any]
    reason: str = ""
    cycles: int | None = None
    clock_mhz: float | None = None
    utilization: float | None = None
    tflops: float | None = None
    block: list[int] = []
    cycles_per_block: float | None = None
    bounds: Bounds | None = None
    waits: dict[str, str] = {}
    figures: list[Figure] = []


class Removal(msgspec.Struct, kw_only=True):
    """A run without one bottleneck: `gain` is how many times faster it is."""

    removed: str
    settings: list[str]
    cycles: int
    gain: float
    utilization: float | None


class Comparison(msgspec.Struct, kw_only=True):
    """What `warpsmith compare` found."""

    schema: int = SCHEMA
    rows: list[Row]
    losses_of: str = ""
    losses: list[Removal] = []

    def to_json(self) -> str:
        """JSON text."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2).decode()


def shape(head_dim: int, seqlen: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """A problem's options: 16,384 tokens and 2048 columns of heads, unless `given` says otherwise."""
    options = {"seqlen": seqlen, "head_dim": head_dim, "heads": max(HIDDEN // head_dim, 1)}
    return options | {"batch": max(TOKENS // seqlen, 1)} | dict(given)


def compare(kernel: str, machine: Machine, options: Mapping[str, Any], clock_mhz: float | None = None) -> Row:
    """Run a kernel on a whole machine, in representative mode with its arrays in L2; ValueError for options it does not know."""
    problem = programs.find(kernel).from_options(**options)
    assert isinstance(problem, Attention), f"{kernel} is none of {attention()}"
    row = Row(kernel=kernel, machine=machine.name, shape=problem.shape, figures=figures(problem, machine.name))
    try:
        result = solve(problem, machine, warm=True, mode="representative")
    except (LaunchError, AssemblyError) as error:
        row.reason = _reason(error)
        return row
    if result.deadlock is not None or result.exit_code() != 0:
        row.reason = (
            result.deadlock.message
            if result.deadlock
            else "; ".join(f.message for f in result.findings) or "wrong numbers"
        )
        return row
    sms = int(machine.value("chip.sms"))
    clock = clock_mhz or result.clock_mhz
    block = problem.block
    row.cycles, row.clock_mhz, row.utilization = result.cycles, clock, result.tensor_utilization
    row.tflops = problem.flops / result.cycles * clock / 1e6
    row.block = [block.rows, block.keys]
    blocks = blocks_of(problem) / min(sms, problem.tiles)
    row.cycles_per_block = result.cycles / blocks
    row.bounds = bounds(problem, machine, result.warp_instructions / blocks_of(problem))
    row.waits = waits(result)
    return row


def attention() -> list[str]:
    """The shipped programs that `compare` knows."""
    return [name for name in programs.names() if issubclass(programs.find(name), Attention)]


def _reason(error: Exception) -> str:
    """Why a kernel cannot run on a machine: its target, in words, or the first line of the error."""
    text = str(error).splitlines()[0]
    needs = [words for target, words in ONE_TARGET.items() if f"assembled for {target}" in text]
    return needs[0] if needs else text


def blocks_of(problem: Attention) -> float:
    """Blocks of the whole problem, those cut by a causal mask in part."""
    pairs = problem.flops / (4 * problem.head_dim)
    if not problem.causal:
        rows = ceildiv(problem.seqlen, problem.block.rows) * problem.heads * problem.batch
        return rows * ceildiv(problem.seqlen_k, problem.block.keys)
    return pairs / (problem.block.rows * problem.block.keys)


def bounds(problem: Attention, machine: Machine, instructions: float) -> Bounds:
    """`Bounds` of a block of which `instructions` warp instructions were issued."""
    block, d = problem.block, problem.head_dim
    peak = machine.value("unit.tensor.f16_flop_per_cy")
    if problem.synchronous:
        peak = SUBPARTITIONS * MMA_FLOP / machine.value("timing.mma32.interval")
    moved = block.rows / block.group * 2 * d * (block.group + 2 * block.keys)
    return Bounds(
        tensor=4 * block.rows * block.keys * d / peak,
        exp=block.rows * block.keys / machine.value("unit.sfu.ex2_lanes"),
        shared=moved / machine.value("unit.smem.port_b_per_cy"),
        issue=instructions / SUBPARTITIONS,
    )


def waits(result: Result) -> dict[str, str]:
    """For every role with a twentieth of all warp-cycles, what most of them waited for."""
    everything = sum(sum(reasons.values()) for reasons in result.stalls.values())
    found = {}
    for role, reasons in result.stalls.items():
        total = sum(reasons.values())
        others = {name: n for name, n in reasons.items() if name != "selected" and n}
        if others and total * 20 >= everything:
            top = min(others, key=lambda name: (-others[name], name))
            found[role] = f"{top} {100 * others[top] / total:.0f} %"
    return found


@cache
def published() -> list[dict[str, Any]]:
    """The figures of `published.toml`."""
    found: list[dict[str, Any]] = tomllib.loads(FIGURES.read_text())["figure"]
    return found


def figures(problem: Attention, machine: str) -> list[Figure]:
    """What is known about a kernel's generation at this head dim, mask and length on this machine or its near relatives."""
    found = []
    for figure in published():
        fits = figure["kernel"] == problem.kernel and machine in figure["beside"]
        fits = fits and figure.get("head_dim", problem.head_dim) == problem.head_dim
        fits = fits and figure.get("causal", problem.causal) == problem.causal
        value = figure.get("text") or figure.get("by_seqlen", {}).get(str(problem.seqlen))
        if not fits or value is None or (figure.get("tokens") and figure["tokens"] != problem.seqlen * problem.batch):
            continue
        if figure.get("unit") == "cycles":
            peak = load_machine(machine).value("unit.tensor.f16_flop_per_cy") * load_machine(machine).value("chip.sms")
            value = f"{value:,} cycles, {100 * problem.flops / (peak * value):.1f} %"
        elif "unit" in figure:
            value = f"{value:,} {figure['unit']}"
        found.append(Figure(text=f"{value} ({figure['what']})", source=figure["source"]))
    return found


def losses(kernel: str, machine: str, overrides: Sequence[str], options: Mapping[str, Any]) -> list[Removal]:
    """The kernel as it is, without each bottleneck of REMOVALS, and without all of them."""
    everything = tuple(setting for settings in REMOVALS.values() for setting in settings)
    found: list[Removal] = []
    for removed, settings in {"nothing": (), **REMOVALS, "all of them": everything}.items():
        row = compare(kernel, load_machine(machine, (*overrides, *settings)), options)
        if row.cycles is None:
            raise MachineError(f"{kernel} on {machine}: {row.reason}")
        gain = found[0].cycles / row.cycles if found else 1.0
        found.append(
            Removal(removed=removed, settings=list(settings), cycles=row.cycles, gain=gain, utilization=row.utilization)
        )
    return found
