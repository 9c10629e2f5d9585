"""Bind an encoded program to a machine: every instruction with its numbers.

The encoded gap (`stall`) of an instruction is what ptxas would encode: issued back to back in source
order, how long the next instruction of the block must stay behind it, for its fixed-latency operands
and its pipe.  Variable-latency operands are left to the scoreboard at run time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.aligned import aligned
from emu.dispatch import lane_ids
from emu.gates import Slots, mark_gated
from emu.generate import UNITS, unit_routines
from emu.instruction import BRANCH, DEPS, HAS_D, LOADS, PAIR, REGS, RESULTS, RT_INSTR, SPIN
from emu.machine import Machine, MachineError
from emu.stalls import REASONS
from emu.state import PIPES
from isa.micro import MICROS, Micro
from isa.program import NO_ROW, Program

COPIED = ("op", "kind", "d", "a", "b", "c", "guard", "flip", "pd", "pd2", "pa", "pb", "nd", "ns")
FOLLOW = 8  # instructions that the search for a spinning wait looks ahead
LONGEST = 255  # cycles that `linger` and `drag` of an instruction hold
PORTLESS = frozenset({"none", "tensor", "tc", "tma", "uniform"})  # pipes that leave the register file's ports alone


@dataclass(frozen=True)
class Linked:
    """Instructions for one machine, and the names of its pipes by index."""

    instrs: np.ndarray  # RT_INSTR
    lists: np.ndarray  # uint16: Program.lists, and gates beyond `dep`
    pipes: list[str]
    units: list[str]  # of emu/units that execute some of them


def link(program: Program, machine: Machine, silicon: bool = False) -> Linked:
    """Give every instruction the machine's timing; KeyError when a timing class is missing, MachineError when a time is too long.

    Unless `silicon`, lane operations that have a fast substitute (`Micro.fast`) become it.
    """
    micros = [MICROS[name] for name in program.micro_names]
    rt = aligned(len(program.instrs), RT_INSTR, RT_INSTR.itemsize)
    for name in COPIED:
        rt[name] = program.instrs[name]
    branch = program.instrs["target"] >= 0
    rt["list"] = np.where(branch, program.instrs["target"], program.instrs["list"])
    rt["imm"] = np.where(branch, 0, program.instrs["imm"])
    rt["reconv"] = np.where(branch, program.instrs["reconv"], rt["reconv"])
    pipes, operations = pipe_names(machine), lane_ids()
    multiplies = any(micro.unit == "mma" for micro in micros)
    for k, micro in enumerate(micros):
        timing = machine.timing[micro.timing]
        if micro.fast and not silicon:
            rt["op"][k] = operations[micro.fast]
        rt["pipe"][k] = pipes.index(timing.pipe)
        rt["reason"][k], rt["throttle"][k] = REASONS[timing.reason], REASONS[timing.throttle]
        rt["latency"][k] = round(timing.latency)
        rt["interval"][k] = math.ceil(timing.interval)
        rt["slowed"][k] = math.ceil(_slowed(timing.interval, timing.pipe, machine))
        if multiplies:
            rt["linger"][k], rt["drag"][k] = _beside_mma(timing.pipe, machine)
        # Beside wgmma the special-function unit reads its operands at its own time, beside mma.sync in a slot like the others.
        ported = timing.pipe not in PORTLESS and (multiplies or timing.pipe != "xu")
        rt["flags"][k] = _flags(program, k, micro) | (REGS if ported else 0)
        if micro.unit:
            unit, rt["op"][k] = unit_routines()[micro.unit]
            rt["kind"][k] = 1 + UNITS.index(unit)
    gates, results = slots(program, rt)
    rt["stall"] = encoded_gaps(rt, gates, results, program, [machine.timing[m.timing].stall for m in micros])
    late = mark_gated(
        rt, gates, results, program.instrs["block"], program.registers, _branch_guard(machine), 1 + UNITS.index("mma")
    )
    lists = place(program, rt, late, results)
    used = {unit_routines()[micro.unit][0] for micro in micros if micro.unit}
    return Linked(rt, lists, pipes, sorted(used, key=UNITS.index))


def pipe_names(machine: Machine) -> list[str]:
    """The machine's pipes in a fixed order (`none` is 0)."""
    names = sorted({t.pipe for t in machine.timing.values()} - {"none"})
    if len(names) >= PIPES:
        raise ValueError(f"{machine.name} has more than {PIPES - 1} pipes")
    return ["none", *names]


def _branch_guard(machine: Machine) -> int:
    """Cycles that the guard of a branch must be there before other operands would."""
    return math.ceil(machine.value("unit.branch.predicate_cy") - machine.value("timing.predicate.latency"))


def _slowed(interval: float, pipe: str, machine: Machine) -> float:
    """Interval of a pipe while the tensor core runs: the special-function unit reads its operands more slowly."""
    if pipe == "xu":
        return max(interval, 1 / machine.value("unit.tensor.other_mufu_per_cy"))
    return interval


def _beside_mma(pipe: str, machine: Machine) -> tuple[int, int]:
    """What an instruction costs mma.sync: cycles that operands of other warps wait, and cycles of a running one's pipe."""
    if pipe in PORTLESS:
        return 0, 0
    behind = machine.value("unit.tensor.mma_behind_fma_cy") if pipe in ("fma", "imad") else 0
    yields = machine.value("unit.tensor.mma_yields_cy")
    if max(behind, yields) > LONGEST:
        raise MachineError(
            f"machine {machine.name}: unit.tensor.mma_behind_fma_cy and unit.tensor.mma_yields_cy are at most {LONGEST}"
        )
    return round(behind), round(yields)


def _flags(program: Program, k: int, micro: Micro) -> int:
    flags = 0
    if program.instrs["d"][k] != NO_ROW:
        flags |= HAS_D
        if any(c in "UD" for c in micro.results):
            flags |= PAIR
    if "loads" in micro.flags and program.instrs["nd"][k]:
        flags |= LOADS
    if micro.unit in ("bra", "exit"):
        flags |= BRANCH
    if micro.unit in ("mbar_wait", "mbar_wait_state") and spins(program, k):
        flags |= SPIN
    return flags


def time_slots(program: Program) -> int:
    """Ready-time slots of a warp: registers, predicates, one that is always 0, one that nobody reads.

    Constant rows are always ready and have none.
    """
    return program.registers + program.predicates + 2


def _slot(program: Program, x: int) -> int:
    """The ready-time slot of an entry of `INSTR.dep` (a row, or `rows` plus a predicate)."""
    return x if x < program.registers else x - len(program.const_bits)


def slots(program: Program, rt: np.ndarray) -> tuple[Slots, Slots]:
    """The ready-time slots that each instruction waits for, and of its results; those of lists included."""
    gates: Slots = []
    results: Slots = []
    for k, instr in enumerate(program.instrs):
        first, split = int(instr["list"]), int(instr["list"] + instr["nd"])
        listed = program.lists[first : split + int(instr["ns"])].tolist()
        rows = [row for row in listed if row < program.registers]  # rows of constants are always ready
        named = [_slot(program, int(x)) for x in instr["dep"][: instr["ndep"]]]
        gates.append(list(dict.fromkeys(named + rows)))
        results.append(_results(program, rt[k]) + listed[: int(instr["nd"])])
    return gates, results


def place(program: Program, rt: np.ndarray, gates: Slots, results: Slots) -> np.ndarray:
    """Fill the `dep` and `res` columns of RT_INSTR; returns Program.lists with the gates that found no room.

    Those lie behind the instruction's own list, which is moved.
    """
    zero, unread = time_slots(program) - 2, time_slots(program) - 1
    lists: list[int] = program.lists.tolist()
    for k, (needed, written) in enumerate(zip(gates, results, strict=True)):
        dep, more = needed[:DEPS], needed[DEPS:]
        rt["dep"][k] = dep + [zero] * (DEPS - len(dep))
        direct = written[: len(written) - int(rt["nd"][k])]
        rt["res"][k] = direct + [unread] * (RESULTS - len(direct))
        rt["ng"][k] = len(more)
        if more:
            first = int(rt["list"][k])
            rt["list"][k] = len(lists)
            lists += lists[first : first + int(rt["nd"][k]) + int(rt["ns"][k])] + more
    return np.array(lists or [0], np.uint16)


def spins(program: Program, k: int) -> bool:
    """Whether a false answer of the wait at `k` leads back to it and nowhere else.

    Follows the branches behind it with the answer false; anything but branches and plain lane
    operations ends the search.
    """
    answer = int(program.instrs["pd"][k])
    pc = k + 1
    for _ in range(FOLLOW):
        if pc == k:
            return True
        if pc >= len(program.instrs):
            return False
        instr = program.instrs[pc]
        unit = MICROS[program.micro_names[pc]].unit
        if unit in ("bra", "exit"):
            guard = int(instr["guard"])
            taken = guard == 0 or bool(instr["flip"] & 1)
            if guard not in (0, answer) or (taken and unit == "exit"):
                return False
            pc = int(instr["target"]) if taken else pc + 1
        elif unit or answer in (int(instr["pd"]), int(instr["pd2"])):
            return False
        else:
            pc += 1
    return pc == k


def encoded_gaps(rt: np.ndarray, gates: Slots, results: Slots, program: Program, least: list[float]) -> Any:
    """The encoded gap of every instruction, cycles (see the module's text)."""
    gaps = np.ones(len(rt), np.int64)
    fixed = int(REASONS["wait"])
    ready: dict[int, int] = {}
    pipe_free: dict[int, int] = {}
    block, now = -1, 0
    for k in range(len(rt)):
        r = rt[k]
        if program.instrs["block"][k] != block:
            block, ready, pipe_free, now = program.instrs["block"][k], {}, {}, 0
        else:
            issue = max([now + gaps[k - 1], pipe_free.get(int(r["pipe"]), 0), *(ready.get(s, 0) for s in gates[k])])
            gaps[k - 1] = min(issue - now, 255)
            now = issue
        gaps[k] = max(round(least[k]), 1)
        pipe_free[int(r["pipe"])] = now + int(r["interval"])
        when = now + int(r["latency"]) if int(r["reason"]) == fixed else 0
        written = results[k] if r["flags"] & LOADS else results[k][: len(results[k]) - int(r["nd"])]
        for slot in written:
            ready[slot] = when
    return gaps


def _results(program: Program, r: Any) -> list[int]:
    slots = []
    if r["flags"] & HAS_D:
        slots += [int(r["d"]), int(r["d"]) + 1] if r["flags"] & PAIR else [int(r["d"])]
    slots += [program.registers + int(p) for p in (r["pd"], r["pd2"]) if p]
    return slots
