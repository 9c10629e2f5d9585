"""Text listings of an encoded program: operations, their rows, and where they came from."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from isa.micro import MICROS
from isa.program import NO_ROW, Program
from isa.words import readable


def listing(program: Program) -> str:
    """One line an operation: pc, guard, micro-operation, rows, timing class, source line."""
    lines = [summary(program), ""]
    targets = {int(t) for t in program.instrs["target"] if t >= 0}
    for pc, record in enumerate(program.instrs):
        if pc in targets:
            lines.append(f"L{pc}:")
        pos = program.lines[pc]
        text = f"{_guard(record):5}{program.micro_names[pc]:<20} {', '.join(_operands(program, pc, record))}"
        timing = program.timing_names[int(record["timing"])]
        lines.append(f"{pc:6}  {text:<72} // {timing:<12} {pos.line}")
    return "\n".join(lines)


def summary(program: Program) -> str:
    """Resources and warnings in a few lines."""
    head = (
        f"{program.name} ({program.target}): {len(program.instrs)} micro-operations, {program.registers} registers, "
        f"{program.predicates - 1} predicates, {len(program.const_bits)} constants, "
        f"{program.shared_static} bytes of static shared memory, {program.param_bytes} bytes of parameters"
    )
    return "\n".join([head, *(f"warning: {w}" for w in (*program.warnings, *program.unwritten))])


def counts(program: Program) -> dict[str, int]:
    """Static operations by timing class, most frequent first."""
    found = Counter(program.timing_names[int(t)] for t in program.instrs["timing"])
    return dict(found.most_common())


def _guard(record: Any) -> str:
    if not record["guard"] and not record["flip"] & 1:
        return ""
    return f"@{'!' if record['flip'] & 1 else ''}P{int(record['guard']) - 1}"


def _operands(program: Program, pc: int, record: Any) -> list[str]:
    op = MICROS[program.micro_names[pc]]
    start, split = int(record["list"]), int(record["list"]) + int(record["nd"])
    lists = [program.lists[start:split], program.lists[split : split + int(record["ns"])]]
    out = []
    outputs = iter(("pd", "pd2"))
    for letter in op.results:
        if letter == "L":
            out.append(_vector(program, lists[0]))
        else:
            out.append(_predicate(record[next(outputs)], 0) if letter == "p" else _row(program, record["d"], letter))
    registers, predicates = iter("abc"), iter((("pa", 2), ("pb", 4)))
    for letter in op.sources:
        if letter == "L":
            out.append(_vector(program, lists[1]))
        elif letter == "p":
            name, bit = next(predicates)
            out.append(_predicate(record[name], record["flip"] & bit))
        elif letter != "i":
            out.append(_row(program, record[next(registers)], letter))
    if "i" in op.sources or record["imm"]:
        text = readable(op, int(record["imm"]))
        out += [text] if text else []
    if record["target"] >= 0:
        out.append(f"L{int(record['target'])}")
    return out


def _row(program: Program, row: int, letter: str) -> str:
    if row == NO_ROW:
        return "RZ"
    index = int(row) - program.registers
    wide = letter in "UD"
    if index < 0:
        return f"R{int(row)}{'.64' if wide else ''}"
    if letter == "f" and program.const_param[index] < 0:
        # as cuobjdump shows them; the shortest that is this number
        return str(np.uint32(program.const_bits[index]).view(np.float32))
    parts = [
        f"c[{program.const_param[i]:#x}]" if program.const_param[i] >= 0 else hex(int(program.const_bits[i]))
        for i in ((index, index + 1) if wide else (index,))
    ]
    return ":".join(reversed(parts))


def _vector(program: Program, rows: Any) -> str:
    return "{" + ", ".join(_row(program, r, "u") for r in rows) + "}"


def _predicate(slot: int, flipped: int) -> str:
    return f"{'!' if flipped else ''}P{int(slot) - 1 if slot else 'T'}"
