"""Micro-operations on virtual registers: what `isa.lowering` makes of a kernel, and what every later step changes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from isa.micro import Micro
from isa.registry import Const, Half, NotPred, ParamWord, PredConst, Quad, Value, VReg
from isa.syntax import Kernel, Pos

PredSource = VReg | NotPred | PredConst


@dataclass(slots=True)
class MicroOp:
    """One micro-operation on virtual registers.

    `results` and `sources` follow the letters of the signature (an `L` is a tuple; the letter `i` has
    no entry: see `imm`).  `guard` None means always.
    """

    micro: Micro
    results: tuple[Any, ...]
    sources: tuple[Any, ...]
    imm: int
    label: str | None
    guard: PredSource | None
    pos: Pos
    role: str


@dataclass
class Code:
    """A lowered kernel: micro-operations, where labels stand, and how many registers were handed out."""

    kernel: Kernel
    target: str
    ops: list[MicroOp] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # unique label -> index of the next operation
    registers: int = 0  # virtual register ids are below this
    names: dict[int, str] = field(default_factory=dict)  # of virtual registers that the program declares
    clustered: bool = False  # it knows of clusters
    unwritten: list[tuple[Pos, int]] = field(default_factory=list)  # reads of registers that nothing has written

    def drop(self, gone: Collection[int]) -> None:
        """Remove operations by index."""
        moved, kept = [], 0
        for i in range(len(self.ops)):
            moved.append(kept)
            kept += i not in gone
        moved.append(kept)
        self.labels = {name: moved[i] for name, i in self.labels.items()}
        self.ops = [op for i, op in enumerate(self.ops) if i not in gone]


def half(x: Value, index: int) -> Value:
    """One 32-bit half of a 64-bit value."""
    match x:
        case VReg(kind="d"):
            return Half(x, index)
        case Quad(lo, hi):
            return (lo, hi)[index]
        case Const(bits, "d"):
            return Const((bits >> 32 * index) & 0xFFFFFFFF)
        case ParamWord(offset, "d"):
            return ParamWord(offset + 4 * index)
        case _:
            raise TypeError(f"{x} has no halves")
