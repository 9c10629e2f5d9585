"""From one expanded kernel to micro-operations on virtual registers.

Walks the body with PTX scoping (registers, variables and labels of a block are seen inside it only),
matches every instruction and runs its declared lowering.  All findings of a kernel are reported
together.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from isa import calls, clusters
from isa.code import Code, MicroOp, PredSource, half
from isa.errors import AssemblyError, Diagnostic, UnsupportedError
from isa.layout import Layout
from isa.matching import at_operand, at_word, match
from isa.micro import MICROS, Micro
from isa.names import Symbol, undeclared
from isa.program import CLUSTER_WORD
from isa.registry import Const, Half, NotPred, ParamWord, PredConst, Quad, Value, VReg
from isa.scopes import Scope
from isa.syntax import Block, Directive, Guard, Instr, Kernel, Label, Operand, Pos, RegDecl, Stmt, Sym, VarDecl

KINDS = {"pred": "p"} | {f"{c}{w}": "r" for c in "bus" for w in (8, 16, 32)} | {f"{c}64": "d" for c in "busf"}
KINDS |= {"b128": "q", "f16": "r", "f16x2": "r", "f32": "r", "bf16": "r", "bf16x2": "r"}


class Lowering:
    """The walk; it is the `Emitter` of lowerings and the `Names` of matching."""

    def __init__(self, kernel: Kernel, target: str, layout: Layout, source_line: Callable[[Pos], str]) -> None:
        self.target = target
        self.pos = kernel.pos
        self.code = Code(kernel, target, clustered=clusters.known(kernel, layout.functions))
        self.layout = layout
        self.source_line = source_line
        self._scope = Scope(None, 0)
        self._scopes = 0
        self._guard: PredSource | None = None
        self._role = ""
        self._errors: list[AssemblyError] = []
        self._carry: VReg | None = None
        self._stack: VReg | None = None
        self.calls: list[calls.Call] = []  # functions that the walk is inside, outermost first

    # ---- Emitter ----

    def __call__(self, op: Micro, results: Any, *sources: Any, imm: int = 0, label: str | None = None) -> None:
        """Append a micro-operation under the instruction's guard (see `isa.registry.Emitter`)."""
        wanted = op.results
        given = () if results is None and not wanted else results if isinstance(results, tuple) else (results,)
        letters = op.sources.replace("i", "")
        if len(given) != len(wanted) or len(sources) != len(letters):
            raise TypeError(f"{op.name} is {op.sig}: {len(given)} results and {len(sources)} sources given")
        self.code.ops.append(
            MicroOp(
                op,
                tuple(map(_shaped, wanted, given)),
                tuple(map(_shaped, letters, sources)),
                imm,
                label,
                self._guard,
                self.pos,
                self._role,
            )
        )

    @property
    def param_bytes(self) -> int:
        """Bytes of the kernel's parameters."""
        return self.layout.param_bytes

    @property
    def constants(self) -> list[tuple[int, int]]:
        """Address and bytes of each .const variable."""
        return self.layout.constants

    def quad(self) -> Quad:
        """A fresh 128-bit register."""
        return Quad(self.tmp("d"), self.tmp("d"))

    def tmp(self, kind: str = "r") -> VReg:
        """A fresh virtual register of kind r, d or p."""
        self.code.registers += 1
        return VReg(self.code.registers - 1, kind)

    @property
    def guard(self) -> PredSource | None:
        """The guard of the current instruction."""
        return self._guard

    @property
    def leave(self) -> str | None:
        """The label behind the function that the walk is inside."""
        return self.calls[-1].end if self.calls else None

    @contextmanager
    def under(self, guard: PredSource | None) -> Iterator[None]:
        """Operations under another guard than the instruction's."""
        before, self._guard = self._guard, guard
        try:
            yield
        finally:
            self._guard = before

    def branch(self, guard: PredSource, label: str) -> None:
        """A branch of the lanes where `guard` holds, whatever the instruction's own guard."""
        with self.under(guard):
            self(MICROS["BRA"], None, label=label)

    def fresh_label(self, stem: str) -> str:
        """A label that no program can write."""
        self._scopes += 1
        return f"{stem}@{self._scopes}@"

    def call(self, name: str, results: list[Any], arguments: list[Any]) -> None:
        """The body of a function in place (`isa.calls`)."""
        calls.call(self, name, results, arguments)

    def body(self, body: tuple[Stmt, ...], symbols: dict[str, Symbol]) -> None:
        """The body of a function, which sees the module and its parameters."""
        self._scopes += 1
        scope = Scope(None, self._scopes)
        scope.symbols |= symbols
        self._block(body, scope)

    def written(self, word: Value) -> Value:
        """A register, or zero when no operation before this one writes it."""
        return word if any(word in op.results for op in self.code.ops) else Const(0)

    @property
    def clustered(self) -> bool:
        """Whether the kernel knows of clusters, so that its shared addresses carry the CTA's rank."""
        return self.code.clustered

    def shared(self, address: int) -> Value:
        """An address in the CTA's shared memory as 32 bits, which carry the CTA's rank where clusters are known of."""
        if not self.clustered:
            return Const(address & 0xFFFFFFFF)
        whole = self.tmp()
        with self.under(None):
            self(MICROS["IADD3"], whole, Const(address & 0xFFFFFFFF), ParamWord(CLUSTER_WORD))
        return whole

    def wide(self, low: Value) -> Value:
        """32 bits as 64."""
        if isinstance(low, Const):
            return Const(low.bits, "d")
        whole = self.tmp("d")
        with self.under(None):
            self(MICROS["MOV"], Half(whole, 0), low)
            self(MICROS["MOV"], Half(whole, 1), Const(0))
        return whole

    def carry(self) -> VReg:
        """The carry flag of the condition code."""
        if self._carry is None:
            self._carry = self.tmp("p")
        return self._carry

    def stack(self) -> VReg:
        """The top of the thread's stack in local memory."""
        if self._stack is None:
            self._stack = self.tmp("d")
        return self._stack

    def lo(self, x: Value) -> Value:
        """The low 32 bits of a 64-bit value."""
        return half(x, 0)

    def hi(self, x: Value) -> Value:
        """The high 32 bits of a 64-bit value."""
        return half(x, 1)

    def error(self, message: str, hint: str = "", operand: Operand | None = None) -> AssemblyError:
        """An error at the current instruction, or at one of its operands, to be raised."""
        line = self.source_line(self.pos)
        return AssemblyError([Diagnostic(at_operand(self.pos, operand, line), message, hint, line)])

    # ---- Names ----

    def register(self, name: str) -> tuple[VReg | Quad, str] | None:
        """The virtual register and declared type of a name in scope."""
        for scope in self._scope.chain():
            found = scope.registers.get(name)
            if found is not None:
                return found
            declared = scope.type_of(name)
            if declared is not None:
                kind = KINDS.get(declared)
                if kind is None:
                    raise self.error(f"registers of type .{declared} are not supported")
                first = self.code.registers
                scope.registers[name] = (self.quad() if kind == "q" else self.tmp(kind), declared)
                self.code.names |= dict.fromkeys(range(first, self.code.registers), name)
                return scope.registers[name]
        return None

    def symbol(self, name: str) -> Symbol | None:
        """A variable or parameter in scope."""
        for scope in self._scope.chain():
            if name in scope.symbols:
                return scope.symbols[name]
        return self.layout.symbols.get(name)

    def label(self, name: str) -> str | None:
        """The unique spelling of a label in scope."""
        return next((s.labels[name] for s in self._scope.chain() if name in s.labels), None)

    def targets(self, name: str) -> list[str] | None:
        """The unique spellings of the labels of a .branchtargets in scope; None when there is none."""
        listed = next((s.targets[name] for s in self._scope.chain() if name in s.targets), None)
        if listed is None:
            return None
        found = [self.label(item) for item in listed]
        if None in found:
            raise self.error(f"there is no label '{listed[found.index(None)]}' here")
        return [label for label in found if label is not None]

    def function(self, name: str) -> bool:
        """Whether a name is a .func of the module."""
        return name in self.layout.functions

    def special(self, name: str) -> bool:
        """Whether a name is a special register."""
        return name in importlib.import_module("isa.ops.special").SPECIAL

    def known(self) -> list[str]:
        """Every name in scope, for suggestions."""
        names: list[str] = [
            *self.layout.symbols,
            *self.layout.functions,
            *importlib.import_module("isa.ops.special").SPECIAL,
        ]
        for scope in self._scope.chain():
            names += [*scope.declared, *scope.symbols, *scope.labels]
            names += [f"{p}{i}" for p, (count, _) in scope.ranges.items() for i in range(min(count, 512))]
        return names

    # ---- the walk ----

    def run(self) -> Code:
        """Lower the whole body; raises one error with every finding."""
        for param in self.code.kernel.params:
            self._once(f"'{param.name}'", self._scope.claim(param.name, param.pos), param.pos)
        self._block(self.code.kernel.body, self._scope)
        if self._errors:
            findings = [d for e in self._errors for d in e.diagnostics]
            if all(isinstance(e, UnsupportedError) for e in self._errors):
                raise UnsupportedError(findings)
            raise AssemblyError(findings)
        self._end()
        if self._stack is not None:
            self._begin_stack(self._stack)
        return self.code

    def _begin_stack(self, top: VReg) -> None:
        """Set the top of the stack before everything else."""
        body, self.code.ops = self.code.ops, []
        with self.under(None):
            start = Const(self.layout.add_stack(), "d")
            for word in (self.lo, self.hi):
                self(MICROS["MOV"], word(top), word(start))
        self.code.labels = {name: at + len(self.code.ops) for name, at in self.code.labels.items()}
        self.code.ops += body

    def _end(self) -> None:
        """Let a body that runs off its end return, and give labels there an operation."""
        ops = self.code.ops
        closed = bool(ops) and ops[-1].guard is None and ops[-1].micro.flags & {"exit", "branch"}
        if not closed or len(ops) in self.code.labels.values():
            self._guard = None
            self(MICROS["EXIT"], None)

    def _block(self, body: tuple[Stmt, ...], scope: Scope) -> None:
        outer, self._scope = self._scope, scope
        for statement in body:
            if isinstance(statement, Label):
                self._once(f"label '{statement.name}'", scope.claim(statement.name, statement.pos), statement.pos)
                scope.labels[statement.name] = f"{statement.name}@{scope.serial}"
            elif isinstance(statement, VarDecl):
                self._once(f"'{statement.name}'", scope.claim(statement.name, statement.pos), statement.pos)
                own = statement.space == "param"
                scope.symbols[statement.name] = calls.variable(self, statement) if own else self.layout.place(statement)
        for label, table in pairwise(body):
            if isinstance(label, Label) and isinstance(table, Directive) and table.name == "branchtargets":
                scope.targets[label.name] = tuple(item.name for item in table.args if isinstance(item, Sym))
        for statement in body:
            self._statement(statement)
        self._scope = outer

    def _statement(self, statement: Stmt) -> None:
        try:
            if isinstance(statement, Instr):
                self._instruction(statement)
            elif isinstance(statement, RegDecl):
                if again := self._scope.declare(statement):
                    self._once(f"'{again[0]}'", again[1], statement.pos)
            elif isinstance(statement, Label):
                self.code.labels[self._scope.labels[statement.name]] = len(self.code.ops)
            elif isinstance(statement, Block):
                self._scopes += 1
                self._block(statement.body, Scope(self._scope, self._scopes))
        except AssemblyError as error:
            self._errors.append(error)

    def _once(self, what: str, first: Pos | None, pos: Pos) -> None:
        """Record a second declaration of a name in one scope."""
        if first is not None:
            hint = "rename one, or put the code around it in { }"
            message = f"{what} is already declared at {first}"
            self._errors.append(AssemblyError([Diagnostic(pos, message, hint, self.source_line(pos))]))

    def _instruction(self, instr: Instr) -> None:
        self.pos, self._role = instr.pos, instr.role
        self._guard = self._guard_of(instr.guard)
        matched = match(instr, self)
        matched.form.lower(self, matched)
        for wide in matched.widened:
            self._extend(wide, matched.types[0])

    def _extend(self, wide: VReg, kind: str) -> None:
        """Fill the upper half of a destination wider than the result (PTX ISA 9.4.1: by the sign of s types)."""
        if kind[0] == "s":
            self(MICROS["SHF.R.S32"], Half(wide, 1), Half(wide, 0), Const(31))
        else:
            self(MICROS["MOV"], Half(wide, 1), Const(0))

    def _guard_of(self, guard: Guard | None) -> PredSource | None:
        if guard is None:
            return None
        found = self.register(guard.reg)
        if found is None:
            raise AssemblyError([at_word(self.pos, undeclared(guard.reg, "pred", self), self)])
        reg, declared = found
        if not isinstance(reg, VReg) or reg.kind != "p":
            raise self.error(f"a guard is a predicate, {guard.reg} is .{declared}")
        return NotPred(reg) if guard.negated else reg


def _shaped(letter: str, value: Any) -> Any:
    """Check a value against its signature letter; lists become tuples."""
    if letter == "L":
        return tuple(value)
    kind = "p" if letter == "p" else "d" if letter in "UD" else "r"
    if value is not None and _kind_of(value) != kind:
        raise TypeError(f"{value} where the signature has '{letter}'")
    return value


def _kind_of(value: Value) -> str:
    if isinstance(value, Half):
        return "r"
    if isinstance(value, NotPred | PredConst):
        return "p"
    return value.kind
