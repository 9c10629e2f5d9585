"""From the state of finished SMs to a Result."""

from __future__ import annotations

import functools
import importlib.metadata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.chaos import Chaos
from emu.explain import explain_deadlock, explain_fault
from emu.explain.chaos import perturbations
from emu.explain.hazards import explain_hazards
from emu.machine import Machine
from emu.memory_map import MemoryMap
from emu.printed import printed
from emu.result import ChaosRun, Finding, Issue, Line, Result
from emu.sm import Shape, StreamingMultiprocessor
from emu.stalls import Reason
from emu.state import DEADLOCK, FAULT, LIMIT
from isa.micro import MICROS
from isa.program import Program

NAMES = [reason.label for reason in Reason]


@dataclass(frozen=True)
class Whole:
    """What the executed part of a grid says about all of it: cycles of every SM; for each executed SM, the factor of its counts."""

    cycles: Sequence[int]
    scales: Sequence[float]


def collect(
    program: Program,
    machine: Machine,
    shape: Shape,
    memory: MemoryMap,
    sms: Sequence[StreamingMultiprocessor],
    host: float,
    chaos: Chaos | None = None,
    whole: Whole | None = None,
) -> Result:
    """The Result of a launch whose SMs have run (the last one may have stopped early) in `host` seconds."""
    ends = whole.cycles if whole else [int(sm.sm["now"][0]) for sm in sms]
    scales = whole.scales if whole else [1.0] * len(sms)
    stalls = np.zeros_like(sms[0].stalls)
    for sm, scale in zip(sms, scales, strict=True):
        stalls += sm.stalls if scale == 1.0 else np.rint(sm.stalls * scale).astype(np.int64)
    cycles, active = max(ends), sum(ends)
    selected = int(stalls[:, Reason.SELECTED].sum())
    clock = float(machine.value("clock.boost_mhz"))
    elapsed = cycles + round(machine.value("chip.launch_cy"))
    result = Result(
        warpsmith_version=_version(),
        kernel=program.name,
        machine=machine.name,
        mode="full",
        cycles=cycles,
        cycles_elapsed=elapsed,
        time_us=elapsed / clock,
        clock_mhz=clock,
        pipes=_pipes(machine, sms, scales, stalls[:, Reason.SELECTED], max(active, 1)),
        metrics=_metrics(sms, scales),
        warp_instructions=selected,
        instruction_mix=_mix(program, machine, stalls),
        host_seconds=host,
        warp_instructions_per_second=selected / host if host > 0 else 0.0,
        registers_per_thread=program.registers,
        shared_bytes=program.shared_static + shape.shared_dynamic,
        occupancy=shape.slots * shape.warps / (machine.value("sm.threads") / machine.value("sm.warp_lanes")),
        stalls=_by_role(program, stalls),
        issue=Issue(selected=selected, idle=int(machine.value("sm.subpartitions")) * active - selected),
        lines=_lines(program, stalls),
    )
    result.findings = [Finding(rule="ASM", severity="info", location=program.name, message=w) for w in program.warnings]
    result.findings += explain_hazards(sms)
    _ending(result, sms[-1], memory)
    result.printed = printed(program, memory)
    result.outputs.update(memory.arrays)
    if chaos:
        result.perturbations.extend(perturbations(sms))
        result.chaos = ChaosRun(seed=chaos.seed, limit=chaos.limit, made=sum(int(sm.sm[0]["chaos_done"]) for sm in sms))
    return result


@functools.cache
def _version() -> str:
    try:
        return importlib.metadata.version("warpsmith")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def _ending(result: Result, sm: StreamingMultiprocessor, memory: MemoryMap) -> None:
    """What stopped the run early, if anything did."""
    status = int(sm.sm["status"][0])
    if status == FAULT:
        result.findings.append(explain_fault(sm, memory))
    elif status == DEADLOCK:
        result.deadlock = explain_deadlock(sm)
    elif status == LIMIT:
        cycle = int(sm.sm["now"][0])
        text = f"stopped after {cycle:,} cycles; {int(sm.sm['live_warps'][0])} warps were still running"
        result.findings.append(Finding(rule="LIMIT", severity="limit", location=sm.program.name, message=text))


def _pipes(
    machine: Machine, sms: Sequence[StreamingMultiprocessor], scales: Sequence[float], issued: np.ndarray, active: int
) -> dict[str, float]:
    """Busy fractions over the active cycles of all SMs; `issued` counts by instruction."""
    linked = sms[0].linked
    lanes = float(machine.value("sm.subpartitions"))
    busy = np.bincount(linked.instrs["pipe"], issued * linked.instrs["interval"].astype(np.int64), len(linked.pipes))
    pipes = {name: min(float(busy[k]) / lanes / active, 1.0) for k, name in enumerate(linked.pipes) if k}
    rate = {name: float(machine.value(f"unit.tma.{name}_b_per_cy")) for name in ("load", "store")}
    moved = sum(
        scale * (int(sm.sm["tma_bytes"][0]) / rate["load"] + int(sm.sm["store_bytes"][0]) / rate["store"])
        for sm, scale in zip(sms, scales, strict=True)
    )
    pipes["tensor"] += (
        sum(scale * int(sm.sm["tensor_cycles"][0]) for sm, scale in zip(sms, scales, strict=True)) / active
    )
    pipes["tma"] = min(moved / active, 1.0)
    return pipes


def _metrics(sms: Sequence[StreamingMultiprocessor], scales: Sequence[float]) -> dict[str, float]:
    """How many of the sectors that loads and stores looked for lay in the L1."""
    names = ("l1_sectors", "l1_hits")
    looked, found = (sum(k * int(sm.sm[name][0]) for sm, k in zip(sms, scales, strict=True)) for name in names)
    return {"l1tex__t_sector_hit_rate.pct": 100 * found / looked} if looked else {}


def _mix(program: Program, machine: Machine, stalls: np.ndarray) -> dict[str, dict[str, int]]:
    mix: dict[str, dict[str, int]] = {role: defaultdict(int) for role in program.roles}
    for k, name in enumerate(program.micro_names):
        count = int(stalls[k, Reason.SELECTED])
        if count:
            mix[program.roles[program.role_of[k]]][machine.timing[MICROS[name].timing].pipe] += count
    return {role: dict(pipes) for role, pipes in mix.items()}


def _by_role(program: Program, stalls: np.ndarray) -> dict[str, dict[str, int]]:
    table = {}
    for r, role in enumerate(program.roles):
        sums = stalls[program.role_of == r].sum(axis=0)
        table[role] = {name: int(sums[k]) for k, name in enumerate(NAMES)}
    return table


def _lines(program: Program, stalls: np.ndarray) -> list[Line]:
    """Counts by source line and role, in program order."""
    groups: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for k, pos in enumerate(program.lines):
        groups[pos.file, pos.line, program.roles[program.role_of[k]]].append(k)
    lines = []
    for (file, number, role), members in groups.items():
        sums = stalls[members].sum(axis=0)
        text = program.source.get(file, [])
        lines.append(
            Line(
                file=file,
                line=number,
                text=text[number - 1] if 0 < number <= len(text) else "",
                role=role,
                warp_instructions=int(sums[Reason.SELECTED]),
                stalls={name: int(sums[k]) for k, name in enumerate(NAMES) if sums[k]},
            )
        )
    return lines
