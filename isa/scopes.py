"""PTX scoping: the registers, variables and labels that a `{ }` block declares, and those around it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from isa.names import Symbol
from isa.registry import Quad, VReg
from isa.syntax import Pos, RegDecl


class Scope:
    """One `{ }` block: its registers, labels and variables, then those outside."""

    def __init__(self, outer: Scope | None, serial: int) -> None:
        self.outer = outer
        self.serial = serial
        self.declared: dict[str, str] = {}
        self.ranges: dict[str, tuple[int, str]] = {}
        self.registers: dict[str, tuple[VReg | Quad, str]] = {}
        self.labels: dict[str, str] = {}
        self.targets: dict[str, tuple[str, ...]] = {}  # of .branchtargets
        self.symbols: dict[str, Symbol] = {}
        self.taken: dict[str, Pos] = {}  # every name declared here and where, ranges as `%r<`

    def chain(self) -> Iterator[Scope]:
        """This scope and the ones around it, innermost first."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def claim(self, name: str, pos: Pos) -> Pos | None:
        """Enter a name; where it was declared before in this very scope, if it was."""
        first = self.taken.setdefault(name, pos)
        return None if first is pos else first

    def declare(self, decl: RegDecl) -> tuple[str, Pos] | None:
        """Enter the names of a `.reg` directive; the first one that is declared already, and where."""
        for name, count in decl.names:
            one = count is None
            inside = next((p for p in self.ranges if one and name.startswith(p) and self.type_of(name)), "")
            first = self.taken[f"{inside}<"] if inside else self.claim(name if one else f"{name}<", decl.pos)
            if first is not None:
                return name if one else f"{name}<{count}>", first
            if count is None:
                self.declared[name] = decl.type
            else:
                self.ranges[name] = (count, decl.type)
        return None

    def type_of(self, name: str) -> str | None:
        """The declared type of a register of this very scope."""
        if name in self.declared:
            return self.declared[name]
        tail = re.search(r"(0|[1-9]\d*)$", name)
        while tail:
            count, kind = self.ranges.get(name[: tail.start()], (0, ""))
            if int(tail[1]) < count:
                return kind
            tail = re.compile(r"(0|[1-9]\d*)$").search(name, tail.start() + 1)
        return None
