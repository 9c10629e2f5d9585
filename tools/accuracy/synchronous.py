"""fa1 and fa2 beside the H200 and beside the FlashAttention-2 library: cycles, units, stalls, and what each generation gains."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import cache
from typing import Any

from emu.machine import Machine, load_machine
from emu.result import Result
from emu.solve import solve
from programs import find
from programs.attention import Attention, FlashAttention3
from programs.problem import ceildiv
from tools.accuracy.counters import PER_ISSUE, STALLED
from tools.accuracy.recorded import FOLDER, SYNCHRONOUS, Recorded, load, programs
from tools.accuracy.tables import UNITS, label
from tools.docs.blocks import table

LIBRARY, CYCLES = FOLDER / "flash-attention-2.csv", FOLDER / "attention-cycles.csv"
FULL: dict[str, Any] = {"seqlen": 4096, "heads": 16, "batch": 4}
LONG: dict[str, Any] = {"seqlen": 4096, "heads": 1}
ACTIVE = "sm__cycles_active.max"
FEW = 8  # key blocks of fa1
CHEAP_FLOPS = 4_000_000_000  # causal masks, where many SMs have to run
# What the library ran, as (head dim, query rows, keys, heads, batch) -> column of LIBRARY.
SHAPES = {
    (64, 128, 1024, 132, 1): "d64_one",
    (64, 128, 1024, 264, 1): "d64_two",
    (128, 128, 4096, 132, 1): "d128_one",
    (128, 128, 4096, 264, 1): "d128_two",
    (128, 4096, 4096, 16, 4): "full",
}


@cache
def machine(name: str = "h200", sms: int = 0) -> Machine:
    """The machine whose device memory is as near as L2, where the recorded launches found their data; with `sms` so many SMs."""
    l2 = load_machine(name).value("unit.l2.hit_cy")
    near = ["unit.tma.hbm_extra_cy=0", f"unit.hbm.latency_cy={l2}", "unit.hbm.gb_per_s=1e6"]
    return load_machine(name, near + ([f"chip.sms={sms}"] if sms else []))


def entries() -> list[Recorded]:
    """Every recorded run of fa1 and fa2."""
    return load(SYNCHRONOUS)


@cache
def library() -> dict[str, dict[str, float]]:
    """Metric -> column -> value, of FlashAttention-2 and, in the `own` columns, of our fa2 on the card."""
    with LIBRARY.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return {row["metric"]: {k: float(v) for k, v in row.items() if k != "metric" and v} for row in rows}


def shape(problem: Attention) -> tuple[int, int, int, int, int]:
    """Key of SHAPES."""
    return (problem.head_dim, problem.seqlen, problem.seqlen_k, problem.heads, problem.batch)


def share(name: str, defines: dict[str, Any], options: dict[str, Any], on: Machine, sms: int) -> Result:
    """One SM with the CTAs of the SM of `sms` that gets the most, one head's K and V for all of them.

    Not for fa1 (`keys_outside`).  With a causal mask, where CTAs differ, the heads of one batch on its part of the SMs.
    """
    problem = find(name).from_options(defines, **options)
    assert isinstance(problem, Attention)
    if problem.causal:
        batch = problem.batch if sms % problem.batch else 1
        alone = find(name).from_options(defines, **(options | {"batch": batch}))
        return solve(alone, machine(sms=sms * batch // problem.batch))
    rows = problem.tile.rows if isinstance(problem, FlashAttention3) else problem.query_tile
    ctas = ceildiv(ceildiv(problem.seqlen, rows) * problem.heads * problem.batch, sms)
    one = {
        "seqlen": min(problem.seqlen, rows) * ctas,
        "seqlen_k": problem.seqlen_k,
        "heads": 1,
        "heads_k": 1,
        "batch": 1,
    }
    return solve(find(name).from_options(defines, **(options | one)), on)


@cache
def keys_outside(name: str, on: str = "h200") -> int:
    """Cycles of a recorded run of fa1 on a whole chip, whose L2 does not hold what the passes rewrite.

    Of more key blocks than FEW from runs of two and of FEW: each further block takes as long.
    """
    (entry,) = (entry for entry in entries() if entry.name == name)
    problem = find("fa1").from_options(entry.defines, **entry.options)
    assert isinstance(problem, Attention)
    blocks = ceildiv(problem.seqlen_k, problem.block.keys)

    def of(count: int) -> int:
        shorter = {"seqlen_k": min(count * problem.block.keys, problem.seqlen_k)}
        part = find("fa1").from_options(entry.defines, **(entry.options | shorter))
        return solve(part, load_machine(on), mode="representative").cycles

    few = of(min(blocks, FEW))
    return few if blocks <= FEW else few + (blocks - FEW) * (few - of(2)) // (FEW - 2)


@cache
def emulated(name: str) -> Result:
    """The recorded run of this name, not of fa1, on the busiest SM."""
    (entry,) = (entry for entry in entries() if entry.name == name)
    return share(entry.program, entry.defines, entry.options, machine(sms=1), int(machine().value("chip.sms")))


def named(program: str, options: dict[str, Any], **defines: Any) -> Recorded:
    """The recorded run with these options and defines."""
    (entry,) = (e for e in entries() if (e.program, e.options, e.defines) == (program, options, defines))
    return entry


def cycles() -> str:
    """Cycles of fa1 and fa2: on the card, here, and the library's."""
    rows = []
    for entry in entries():
        problem = find(entry.program).from_options(entry.defines, **entry.options)
        assert isinstance(problem, Attention)
        if problem.causal and problem.flops > CHEAP_FLOPS:
            rows.append((label(entry), f"{entry.cycles:,.0f}", "not run", "", "", ""))
            continue
        here = keys_outside(entry.name) if entry.program == "fa1" else emulated(entry.name).cycles
        theirs = library()[ACTIVE].get(
            "" if problem.causal or entry.program != "fa2" else SHAPES.get(shape(problem), "")
        )
        row = (label(entry), f"{entry.cycles:,.0f}", f"{here:,}", f"{here / entry.cycles:.3f}")
        rows.append((*row, f"{theirs:,.0f}" if theirs else "", f"{here / theirs:.3f}" if theirs else ""))
    return table(
        ("program", "H200 cycles", "emulated cycles", "ratio", "library on the H200", "emulated / library"), rows
    )


def units() -> str:
    """Busy units of fa2, batch 4, 16 heads, 4096 rows and keys."""
    counters, result = library(), emulated(named("fa2", FULL).name)
    rows = [
        (
            unit,
            *(f"{counters[name][column]:.1f} %" for column in ("full", "own_full")),
            f"{100 * result.pipes[unit]:.1f} %",
        )
        for unit, name in UNITS.items()
    ]
    return table(("unit", "library on the H200", "fa2 on the H200", "fa2 on the emulator"), rows)


def stalls() -> str:
    """Warps a stall reason holds for each issued instruction, same runs."""
    result = emulated(named("fa2", FULL).name)
    here: dict[str, int] = {}
    for reasons in result.stalls.values():
        for reason, count in reasons.items():
            here[reason] = here.get(reason, 0) + count
    there = {
        name.removeprefix(STALLED).removesuffix(PER_ISSUE): values
        for name, values in library().items()
        if name.startswith(STALLED)
    }
    values = [
        (
            name,
            there.get(name, {}).get("full", 0.0),
            there.get(name, {}).get("own_full", 0.0),
            here.get(name, 0) / here["selected"],
        )
        for name in {*there, *here}
    ]
    values = sorted((v for v in values if max(v[1:]) >= 0.005), key=lambda v: (-v[2], v[0]))
    header = ("reason", "library on the H200", "fa2 on the H200", "fa2 on the emulator")
    return table(header, [(v[0], *(f"{x:.2f}" for x in v[1:])) for v in values])


def own(program: str, options: dict[str, Any]) -> float:
    """Cycles of our fa2 or fa3 on the card for a shape, fp16, as it ships."""
    wanted = find(program).from_options(**options).shape
    for entry in [*entries(), *programs()]:
        if (
            entry.program == program
            and not entry.defines
            and find(program).from_options(**entry.options).shape == wanted
        ):
            return entry.cycles
    raise KeyError(f"{program} was not recorded for {options}")


def gain() -> Iterator[tuple[int, int, float, float, float]]:
    """(head dim, length, cycles of -2 over those of -3: the libraries on the card, our programs on the card, and here)."""
    with CYCLES.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    sms = int(machine().value("chip.sms"))
    for row in rows:
        options: dict[str, Any] = {name: int(row[name]) for name in ("head_dim", "heads", "batch", "seqlen")}
        two, three = (share(name, {}, options, machine(sms=1), sms).cycles for name in ("fa2", "fa3"))
        ours = own("fa2", options) / own("fa3", options)
        yield options["head_dim"], options["seqlen"], float(row["fa2"]) / float(row["fa3"]), ours, two / three


def generations() -> str:
    """How many times faster FlashAttention-3 is than -2."""
    rows = [
        (
            str(dim),
            f"{length:,}",
            *(f"{x:.2f}" for x in (there, ours, here)),
            f"{here / there:.3f}",
            f"{here / ours:.3f}",
        )
        for dim, length, there, ours, here in gain()
    ]
    header = ("head dim", "rows and keys", "libraries, H200", "fa2 / fa3, H200", "emulated", "to libraries", "to ours")
    return table(header, rows)


def busy(name: str, on: str, **defines: Any) -> float:
    """Products of the FULL problem over what a machine's tensor cores could make meanwhile."""
    sms = int(machine(on).value("chip.sms"))
    if name != "fa1":
        used = share(name, defines, FULL, machine(on, sms=1), sms).tensor_utilization
        assert used is not None
        return used
    cycles = keys_outside(named(name, FULL).name, on)
    return find(name).from_options(**FULL).flops / (machine(on).value("unit.tensor.f16_flop_per_cy") * sms * cycles)


def utilization() -> str:
    """Products a cycle over the machine's dense peak: every generation on every machine."""
    rows = []
    for name, defines in (("fa1", {}), ("fa2", {}), ("fa2", {"FTZ": 1}), ("fa3", {})):
        cells = []
        for on in ("a100", "h200"):
            if (name, on) == ("fa3", "a100"):
                cells.append("")
                continue
            cells.append(f"{100 * busy(name, on, **defines):.1f} %")
        rows.append((" ".join((name, *(f"`{k}={v}`" for k, v in defines.items()))), *cells))
    return table(("program", "a100", "h200"), rows)
