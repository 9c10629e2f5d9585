"""Register caps: what the directives and `setmaxnreg` leave each part of a kernel, and what it needs."""

from __future__ import annotations

import math

from isa.cfg import Graph, immediate_dominators, reverse_postorder
from isa.code import Code, MicroOp
from isa.liveness import Liveness, walk
from isa.program import Program
from isa.syntax import Kernel

REGISTER_FILE = 65536  # 32-bit registers an SM (PTX ISA: compute capability 8.0 and later)
MAX_REGISTERS = 255  # a thread, by the encoding of instructions
ENTRY = 0  # the part of a kernel that no setmaxnreg dominates
COUNT = 0xFFFFFFFF  # the register count in the immediate of setmaxnreg


def launch_registers(kernel: Kernel) -> int | None:
    """Registers a thread at launch where the directives fix them, as `ptxas` sees it: `.maxnreg`, or
    `.minnctapersm` with `.reqntid` or `.maxntid`."""
    limits = dict(kernel.performance)
    if "maxnreg" in limits:
        return limits["maxnreg"][0]
    threads = limits.get("reqntid", limits.get("maxntid"))
    if threads is None or "minnctapersm" not in limits:
        return None
    return min(MAX_REGISTERS, REGISTER_FILE // (math.prod(threads) * limits["minnctapersm"][0]) // 8 * 8)


def ignore_setmaxnreg(code: Code) -> list[str]:
    """Drop every setmaxnreg of a kernel whose registers at launch are not known, as `ptxas` does; the warnings."""
    found = [i for i, op in enumerate(code.ops) if op.micro.unit == "setmaxnreg"]
    if not found or launch_registers(code.kernel) is not None:
        return []
    first = code.ops[found[0]].pos
    code.drop(set(found))
    why = "is ignored, as ptxas does (C7508): the register count at entry is not known"
    return [f"{code.kernel.name}: setmaxnreg ({first}) {why}; add .maxnreg, or .minnctapersm beside .reqntid"]


def part_caps(code: Code, g: Graph) -> list[int]:
    """Registers a thread that each operation may count on."""
    limits = dict(code.kernel.performance)
    threads = math.prod(limits.get("reqntid", limits.get("maxntid", (1,)))) * max(1, *limits.get("minnctapersm", (1,)))
    entry = min(limits.get("maxnreg", (MAX_REGISTERS,))[0], REGISTER_FILE // threads // 8 * 8, MAX_REGISTERS)
    return [entry if cap == ENTRY else min(cap, MAX_REGISTERS) for cap in _caps(code.ops, g)]


def live_under(ops: list[MicroOp], g: Graph, live: Liveness) -> dict[int, int]:
    """Register cap -> words live in the code that it rules (bit sets): for each `setmaxnreg` count the code
    that it dominates (the nearest one counts), for `ENTRY` the rest."""
    caps = _caps(ops, g)
    found = {ENTRY: 0}
    for b in range(g.count):
        for i, held in walk(ops, g, live, b):
            access = live.access[i]
            found[caps[i]] = found.get(caps[i], 0) | held | access.uses | access.defs
    return found


def _caps(ops: list[MicroOp], g: Graph) -> list[int]:
    """The count of the nearest dominating setmaxnreg of each operation."""
    idom = immediate_dominators(g)
    after = [ENTRY] * g.count
    caps = [ENTRY] * len(ops)
    for b in reverse_postorder(g.successors, 0):
        cap = after[idom[b]] if b else ENTRY
        for i in g.span(b):
            caps[i] = cap
            if ops[i].micro.unit == "setmaxnreg":
                cap = ops[i].imm & COUNT
        after[b] = cap
    return caps


def entry_cap(program: Program) -> int:
    """Registers a thread at launch: .maxnreg, or what .reqntid and .minnctapersm leave of the register file."""
    if program.max_registers is not None:
        return min(program.max_registers, MAX_REGISTERS)
    if program.block_hint is None:
        return MAX_REGISTERS
    threads = math.prod(program.block_hint) * max(1, program.min_ctas)
    return min(MAX_REGISTERS, REGISTER_FILE // max(threads, 1) // 8 * 8)


def judge(program: Program, needed: dict[int, int], predicates: int) -> None:
    """Record spills and predicate overflow on the program, in words like those of `ptxas -v`."""
    caps = {ENTRY: entry_cap(program)} | {cap: min(cap, MAX_REGISTERS) for cap in needed if cap != ENTRY}
    for part, rows in sorted(needed.items()):
        over = rows - caps[part]
        if over > 0:
            place = f"after setmaxnreg {part}" if part != ENTRY else "at entry"
            program.spilled = max(program.spilled, over)
            program.warnings.append(
                f"{program.name}: {rows} registers needed {place}, {caps[part]} allowed: {over} would be spilled, "
                f"{4 * over} bytes of stack frame (modelled without spills)"
            )
    used = program.predicates - 1
    if used > predicates:
        program.warnings.append(
            f"{program.name}: {used} predicates are needed, the hardware has {predicates}: ptxas keeps the others in registers, by a P2R "
            "behind each definition and an ISETP before each use, whose cycles are not counted here"
        )
