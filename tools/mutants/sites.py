"""Where a program's barrier protocol can be changed: every mutant of an expanded module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from isa.syntax import Addr, Block, Instr, Int, Kernel, Module, Operand, Pos, Reg, RegDecl, Stmt

WORD = re.compile(r"(?<![%\w])[A-Z][A-Z_0-9]+")
SLOT = 8  # bytes from one mbarrier of a ring to the next


@dataclass(frozen=True)
class Mutant:
    """A changed module: `what` was done, to which `barrier` (its name; empty: unknown), at which `place`."""

    what: str
    barrier: str
    place: str
    module: Module

    @property
    def name(self) -> str:
        """`drop the arrival: K_EMPTY, ring.mptx:29 (fa3_tile.mptx:24)`."""
        return f"{self.what}: {self.barrier or '?'}, {self.place}"


Change = tuple[str, tuple[Stmt, ...]]


def mutants(module: Module, lines: Callable[[Pos], str]) -> Iterator[Mutant]:
    """Every single change of a module with one kernel; `lines` gives the source text at a place."""
    (kernel,) = module.kernels
    code = list(_instructions(kernel.body))
    names = barrier_names(code, lines)
    for number, instr in enumerate(code):
        for what, statements in changes(instr):
            body = _replaced(kernel.body, [number], statements)
            items = tuple(replace(kernel, body=body) if item is kernel else item for item in module.items)
            yield Mutant(what, concerns(instr, names), place(instr.pos), replace(module, items=items))


def without(module: Module, drop: Callable[[list[Instr], int], bool]) -> Module:
    """A module with one kernel, less the instructions that `drop(all of them, number)` chooses."""
    (kernel,) = module.kernels
    code = list(_instructions(kernel.body))
    body = kernel.body
    for number in reversed([k for k in range(len(code)) if drop(code, k)]):
        body = _replaced(body, [number], ())
    return replace(module, items=tuple(replace(kernel, body=body) if item is kernel else item for item in module.items))


def barrier_names(code: list[Instr], lines: Callable[[Pos], str]) -> dict[int, str]:
    """Offset of an mbarrier -> the name that its mbarrier.init gives it (of a ring: with its number)."""
    found: dict[int, str] = {}
    for instr in code:
        if instr.opcode.startswith("mbarrier.init") and isinstance(instr.operands[0], Addr):
            words = [w for w in WORD.findall(lines(instr.pos)) if w not in ("BARS_AT",)]
            found[instr.operands[0].offset] = words[0] if words else f"+{instr.operands[0].offset}"
    return found


def concerns(instr: Instr, names: dict[int, str]) -> str:
    """The barrier that an instruction is about."""
    if instr.opcode.startswith("setmaxnreg"):
        return "the register pool"
    if instr.opcode.startswith("bar."):
        return f"barrier {instr.operands[0].value}" if isinstance(instr.operands[0], Int) else "barrier"
    address = next((op for op in reversed(instr.operands) if isinstance(op, Addr)), None)
    return names.get(address.offset, "") if address else ""


def place(pos: Pos) -> str:
    """`ring.mptx:29 (fa3_tile.mptx:24)`: the line, and the call that it came from."""
    text = f"{PurePath(pos.file).name}:{pos.line}"
    return text + (f" ({PurePath(pos.via[0].file).name}:{pos.via[0].line})" if pos.via else "")


def changes(instr: Instr) -> Iterator[Change]:
    """What can be done to one instruction: a description, and the statements in its place."""
    opcode, ops = instr.opcode, instr.operands
    if opcode.startswith("mbarrier.init"):
        count = ops[1]
        assert isinstance(count, Int)
        yield "count one more", (_with(instr, 1, Int(count.value + 1)),)
        if count.value > 1:
            yield "count one less", (_with(instr, 1, Int(count.value - 1)),)
    elif opcode.startswith("mbarrier.arrive"):
        yield "drop the arrival", ()
        yield "double the arrival", (instr, instr)
        yield "arrive at the next slot", (_shifted(instr, 1),)
        if "expect_tx" in opcode and isinstance(ops[2], Int):
            yield "expect 16 bytes more", (_with(instr, 2, Int(ops[2].value + 16)),)
            yield "expect half the bytes", (_with(instr, 2, Int(ops[2].value // 2)),)
    elif opcode.startswith("mbarrier.try_wait.parity"):
        yield "remove the wait", (replace(instr, opcode="setp.eq.u32", operands=(ops[0], Int(0), Int(0))),)
        yield "flip the parity", _flipped(instr)
        yield "wait for the next slot", (_shifted(instr, 1),)
    elif opcode.startswith("cp.async.bulk.tensor") and "mbarrier" in opcode:
        yield "drop the copy", ()
        yield "copy to the next slot's barrier", (_shifted(instr, 2),)
    elif opcode in ("bar.sync", "bar.arrive"):
        yield f"drop the {opcode}", ()
        if len(ops) > 1 and isinstance(ops[1], Int):
            yield "count a warp more", (_with(instr, 1, Int(ops[1].value + 32)),)
            yield "count a warp less", (_with(instr, 1, Int(ops[1].value - 32)),)
        if isinstance(ops[0], Int):
            yield "the barrier behind it", (_with(instr, 0, Int(ops[0].value + 6)),)
    elif opcode.startswith("setmaxnreg"):
        yield "drop the setmaxnreg", ()


def _with(instr: Instr, position: int, operand: Operand) -> Instr:
    ops = instr.operands
    return replace(instr, operands=(*ops[:position], operand, *ops[position + 1 :]))


def _shifted(instr: Instr, position: int) -> Instr:
    address = instr.operands[position]
    assert isinstance(address, Addr)
    return _with(instr, position, replace(address, offset=address.offset + SLOT))


def _flipped(instr: Instr) -> tuple[Stmt, ...]:
    parity = instr.operands[2]
    if isinstance(parity, Int):
        return (_with(instr, 2, Int(1 - parity.value)),)
    flip = replace(instr, opcode="xor.b32", operands=(Reg("%flipped"), parity, Int(1)), guard=None)
    declared = RegDecl("b32", (("%flipped", None),), instr.pos)
    return (Block((declared, flip, _with(instr, 2, Reg("%flipped"))), instr.pos),)


def _instructions(body: tuple[Stmt, ...]) -> Iterator[Instr]:
    for statement in body:
        if isinstance(statement, Block):
            yield from _instructions(statement.body)
        elif isinstance(statement, Instr):
            yield statement


def _replaced(body: tuple[Stmt, ...], left: list[int], statements: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body with one instruction replaced: the one that `left` instructions precede (counted down)."""
    found: list[Stmt] = []
    for statement in body:
        if isinstance(statement, Block):
            found.append(replace(statement, body=_replaced(statement.body, left, statements)))
            continue
        if isinstance(statement, Instr):
            left[0] -= 1
            if left[0] == -1:
                found += statements
                continue
        found.append(statement)
    return tuple(found)


__all__ = ["Kernel", "Mutant", "barrier_names", "changes", "mutants", "place", "without"]
