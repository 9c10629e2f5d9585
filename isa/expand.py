"""Raw tree -> plain PTX: its statements, kernels and functions, and short spellings; the assembler layer is `isa.layer`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from isa import registry, shorthand, tree
from isa.declarations import kernel_params, performance, registers, variables
from isa.errors import AssemblyError, Diagnostic
from isa.expressions import Constant, NotImplementedHere, Scope, splice
from isa.layer import Defines, Handlers, Layer
from isa.parser import parse
from isa.resolve import operand
from isa.sources import Sources
from isa.syntax import Block, Directive, Function, Guard, Instr, Kernel, Label, Module, Pos, Reg, Sym, Vec


def expand(text: str, file: str, defines: Defines | None = None, search_path: Iterable[str | Path] = ()) -> Module:
    """Parse and expand `text` into plain PTX.

    `defines` override the defaults of `.define` (text that reads as a number is one); a name that
    the program does not define is an error.  Includes are looked up beside the including file,
    then in `search_path`.  `Module.defines` holds every define with its value; each of them can
    be overridden.  Raises AssemblyError.
    """
    sources = Sources(text, file, search_path)
    try:
        overrides = {name: read_constant(value) for name, value in (defines or {}).items()}
        sources.check_defines(overrides)
        return _Expander(sources, overrides).run()
    except AssemblyError as error:
        error.diagnostics = [sources.quoted(d) for d in error.diagnostics]
        raise
    except RecursionError:
        message = "blocks or parentheses are nested too deeply"
        raise AssemblyError([Diagnostic(Pos(file, 1, 1), message)]) from None


def read_constant(value: Constant) -> Constant:
    """A define from the command line: text that spells a number is that number."""
    if not isinstance(value, str):
        return int(value) if isinstance(value, bool) else value
    for read in (lambda text: int(text, 0), float):
        try:
            return read(value)
        except ValueError:
            continue
    return value


class _Expander(Layer):
    """The statements of PTX itself, and the short spellings."""

    def __init__(self, sources: Sources, overrides: Defines) -> None:
        super().__init__(sources, overrides, _HANDLERS)
        self.header: dict[str, str] = {}
        self.header_at: dict[str, Pos] = {}
        self.labels = 0
        self.shorthands: dict[str, shorthand.Shorthand | None] = {}

    def run(self) -> Module:
        self.statements(self.sources.main.body)
        for kind in ("version", "target"):
            if kind not in self.header:
                example = "9.0" if kind == "version" else "sm_90a"
                raise self.error((1, 1), f"the program has no .{kind}", f"begin with .{kind} {example}")
        size = int(self.header.get("address_size", "64"))
        header = self.header["version"], self.header["target"], size
        return Module(*header, tuple(self.out), self.file, dict(self.defines), self.header_at["target"])

    def instr(self, raw: tree.RawInstr) -> None:
        scope = self.scope
        opcode = splice(raw.opcode, scope)
        if len(raw.operands) == 1 and type(raw.operands[0]) is tree.Group and not opcode.startswith("call."):
            return self.macro_call(opcode, raw.operands[0].items, raw)
        if opcode not in self.shorthands:
            registry.load()
            self.shorthands[opcode] = shorthand.find(opcode)
        short = self.shorthands[opcode]
        operands = tuple([operand(node, scope, opcode) for node in raw.operands])
        if opcode.split(".")[0] == "call":  # a list in parentheses stays one, however short
            grouped = zip(operands, raw.operands, strict=True)
            operands = tuple(Vec((o,)) if type(n) is tree.Group and len(n.items) == 1 else o for o, n in grouped)
        instr = Instr(opcode, operands, self.guard(raw), self.pos(raw.at), self.role)
        if short is None:
            self.emit(instr, raw.at)
        else:
            self.short(instr, short, raw)

    def guard(self, raw: tree.RawInstr) -> Guard | None:
        if raw.guard is None:
            return None
        name = splice(raw.guard[0], self.scope)
        bound = self.scope.find(name)
        if bound is None:
            return Guard(name, raw.guard[1])
        if isinstance(bound, Reg | Sym):
            return Guard(bound.name, raw.guard[1])
        raise self.error(raw.at, f"the guard '{name}' is not a predicate register")

    def short(self, instr: Instr, function: shorthand.Shorthand, raw: tree.RawInstr) -> None:
        """Expand a short spelling; its guard goes to the instruction, or around several."""
        with self.nested(raw.at, f"'{instr.opcode}'"):
            expansion = function(replace(instr, guard=None), self.fresh)
            if isinstance(expansion, str):
                self.author, self.scope = instr.pos, Scope()
                expansion = self.collect(parse(expansion, f"<expansion of {instr.opcode}>").body)
        if instr.guard is not None:
            if len(expansion) == 1 and isinstance(expansion[0], Instr) and expansion[0].guard is None:
                expansion = (replace(expansion[0], guard=instr.guard),)
            else:
                skip = self.fresh("SKIP")
                around = Guard(instr.guard.reg, not instr.guard.negated)
                branch = Instr("bra", (Sym(skip),), around, instr.pos, instr.role)
                expansion = (branch, *expansion, Label(skip, instr.pos))
        for statement in expansion:
            self.emit(statement, raw.at)

    def fresh(self, stem: str) -> str:
        self.labels += 1
        return f"$W_{stem}_{self.labels}"

    def label(self, raw: tree.RawLabel) -> None:
        name = splice(raw.name, self.scope)
        bound = self.scope.find(name)
        self.emit(Label(bound.name if isinstance(bound, Sym) else name, self.pos(raw.at)), raw.at)

    def block(self, raw: tree.RawBlock) -> None:
        self.emit(Block(self.collect(raw.body), self.pos(raw.at)), raw.at)

    def directive(self, raw: tree.RawDirective) -> None:
        if raw.name in ("callprototype", "calltargets"):
            raise NotImplementedHere(
                raw.at, "calls by address are not implemented", "call a function by name, or branch with brx.idx"
            )
        args = tuple(operand(arg, self.scope) for arg in raw.args)
        self.emit(Directive(splice(raw.name, self.scope), args, self.pos(raw.at)), raw.at)

    def declaration(self, raw: tree.Declaration) -> None:
        if raw.space == "reg":
            self.emit(registers(raw, self.scope, self.pos(raw.at)), raw.at)
        else:
            for variable in variables(raw, self.scope, self.pos):
                self.emit(variable, raw.at)

    def kernel(self, raw: tree.RawKernel) -> None:
        if self.inside_kernel:
            raise self.error(raw.at, "a kernel cannot stand inside a kernel", "close the kernel above with '}'")
        self.role = ""
        params = kernel_params(raw.params, self.scope, self.pos)
        limits = performance([d for d in raw.performance if d.name != "pragma"], self.scope)
        # A pragma of the kernel means the same at the beginning of its body.
        pragmas = [d for d in raw.performance if d.name == "pragma"]
        self.inside_kernel = True
        body = self.collect([*pragmas, *raw.body.body])
        self.inside_kernel = False
        self.emit(Kernel(splice(raw.name, self.scope), params, limits, body, raw.linkage, self.pos(raw.at)), raw.at)

    def function(self, raw: tree.RawFunction) -> None:
        if self.inside_kernel:
            raise self.error(raw.at, "a function cannot stand inside a kernel", "close the kernel above with '}'")
        self.role = ""
        if strange := next((p for p in (*raw.results, *raw.params) if p.space != "param"), None):
            hint = "write .param, and ld.param or st.param"
            raise self.error(strange.at, f".{strange.space} parameters of a function are not supported", hint)
        results, params = (kernel_params(p, self.scope, self.pos) for p in (raw.results, raw.params))
        self.inside_kernel = True
        body = None if raw.body is None else self.collect(raw.body.body)
        self.inside_kernel = False
        name = splice(raw.name, self.scope)
        self.emit(Function(name, results, params, body, raw.linkage, self.pos(raw.at)), raw.at)

    def head(self, raw: tree.Header) -> None:
        before = self.header.setdefault(raw.kind, raw.value)
        self.header_at.setdefault(raw.kind, self.pos(raw.at))
        if before != raw.value:
            raise self.error(raw.at, f".{raw.kind} is already {before}")


_HANDLERS: Handlers = {
    tree.RawInstr: _Expander.instr,
    tree.RawLabel: _Expander.label,
    tree.RawBlock: _Expander.block,
    tree.RawDirective: _Expander.directive,
    tree.Declaration: _Expander.declaration,
    tree.RawKernel: _Expander.kernel,
    tree.RawFunction: _Expander.function,
    tree.Header: _Expander.head,
}
