"""Raw tree -> plain PTX: defines, loops, conditions, macros, includes, roles and short spellings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from isa import registry, shorthand, tree
from isa.declarations import kernel_params, performance, registers, variables
from isa.errors import AssemblyError, Diagnostic, UnsupportedError, nearest
from isa.expressions import (
    Constant,
    ExpressionError,
    NotImplementedHere,
    Scope,
    Value,
    argument,
    evaluate,
    integer,
    operand,
    splice,
    truth,
)
from isa.parser import parse
from isa.sources import Sources
from isa.syntax import (
    Block,
    Directive,
    Function,
    Guard,
    Instr,
    Kernel,
    Label,
    Module,
    Pos,
    Reg,
    Stmt,
    Sym,
    VarDecl,
    Vec,
)
from isa.tree import At

MAX_STATEMENTS = 2_000_000
MAX_DEPTH = 64  # of macro calls, includes and short spellings inside each other

Defines = Mapping[str, Constant]


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


class _Expander:
    """Walks the raw tree and appends statements to `out`."""

    def __init__(self, sources: Sources, overrides: Defines) -> None:
        self.sources = sources
        self.file = sources.main.file
        self.overrides = overrides
        self.scope = Scope()
        self.macros: dict[str, tuple[tree.Macro, str]] = {}
        self.defines: dict[str, Constant] = {}
        self.header: dict[str, str] = {}
        self.header_at: dict[str, Pos] = {}
        self.out: list[Any] = []
        self.inside_kernel = False
        self.role = ""
        self.via: tuple[Pos, ...] = ()
        self.author: Pos | None = None  # of the short spelling that is being expanded
        self.count = self.labels = self.depth = 0
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

    # ---- errors and places ----

    def pos(self, at: At) -> Pos:
        return self.author or Pos(self.file, at[0], at[1], self.via)

    def error(self, at: At, message: str, hint: str = "") -> AssemblyError:
        return AssemblyError([Diagnostic(self.pos(at), message, hint)])

    # ---- statements ----

    def statements(self, body: Iterable[tree.Raw]) -> None:
        for raw in body:
            try:
                _HANDLERS[type(raw)](self, raw)
            except ExpressionError as error:
                at = error.at if error.at != (0, 0) else raw.at
                found = self.error(at, error.message, error.hint)
                raise UnsupportedError(found.diagnostics) if isinstance(error, NotImplementedHere) else found from None

    def tick(self, at: At) -> None:
        self.count += 1
        if self.count > MAX_STATEMENTS:
            raise self.error(at, f"the program expands to more than {MAX_STATEMENTS} statements")

    def emit(self, statement: Stmt | Kernel | Function, at: At) -> None:
        self.tick(at)
        if not self.inside_kernel and not isinstance(statement, VarDecl | Kernel | Function | Directive):
            raise self.error(at, "this statement must stand inside a kernel", "put it between the { } of an .entry")
        self.out.append(statement)

    @contextmanager
    def nested(self, at: At, what: str) -> Iterator[None]:
        """One level of calls deeper; restores file, scope and call sites."""
        saved = self.file, self.scope, self.via, self.author
        if self.depth >= MAX_DEPTH:
            self.via = (*self.via[:2], *self.via[-1:])  # the others only repeat
            raise self.error(at, f"{what} is nested deeper than {MAX_DEPTH}: does it use itself without an end?")
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            self.file, self.scope, self.via, self.author = saved

    def collect(self, body: Iterable[tree.Raw]) -> tuple[Stmt, ...]:
        """The statements that `body` expands to."""
        outer, self.out = self.out, []
        try:
            self.statements(body)
            return tuple(self.out)
        finally:
            self.out = outer

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

    # ---- the assembler layer ----

    def define(self, raw: tree.Define) -> None:
        if raw.name in self.scope.module or raw.name in self.defines:
            raise self.error(raw.at, f"'{raw.name}' is defined twice")
        lone = isinstance(raw.value, tree.Name) and self.scope.find(raw.value.name) is None
        value: Constant = raw.value.name if lone else evaluate(raw.value, self.scope)  # type: ignore[union-attr]
        if raw.name in self.overrides:
            value = self.overridden(raw, value)
        self.defines[raw.name] = self.scope.module[raw.name] = value

    def overridden(self, raw: tree.Define, default: Constant) -> Constant:
        given = self.overrides[raw.name]
        if isinstance(default, float) and isinstance(given, int):
            return float(given)
        if type(given) is not type(default):
            kind = {int: "an integer", float: "a number", str: "a word"}[type(default)]
            raise self.error(raw.at, f"the define {raw.name} is {kind} (default {default}), given '{given}'")
        return given

    def let(self, raw: tree.Let) -> None:
        self.unprotected(raw.name, raw.at)
        self.scope.assign(raw.name, evaluate(raw.value, self.scope))

    def unprotected(self, name: str, at: At) -> None:
        if name in self.defines:
            raise self.error(at, f"'{name}' is a define and cannot be set here", "choose another name")

    def assertion(self, raw: tree.Assert) -> None:
        if not truth(raw.test, self.scope):
            # A message that names defines is about those, not about what was computed from them.
            defines = [name for name in re.findall(r"\b\w+\b", raw.message or "") if name in self.defines]
            names = dict.fromkeys(defines or _names(raw.test))
            shown = ", ".join(f"{name} = {value}" for name in names if (value := self.scope.find(name)) is not None)
            message = re.sub(r"\{(\w+)\}", lambda m: f"{self.scope.find(m[1])}", raw.message or "")
            raise self.error(raw.at, message or "the assertion does not hold", shown and f"here {shown}")

    def include(self, raw: tree.Include) -> None:
        path = self.sources.find(raw.path, self.file)
        if not path:
            looked = ", ".join(dict.fromkeys(map(str, self.sources.places(self.file))))
            raise self.error(raw.at, f"cannot find the include '{raw.path}'", f"looked in {looked}")
        with self.nested(raw.at, f"the include '{raw.path}'"):
            source = self.sources.load(path)
            self.via = (Pos(self.file, *raw.at), *self.via)
            self.file = path
            self.statements(source.body)

    def loop(self, raw: tree.For) -> None:
        self.unprotected(raw.name, raw.at)
        bounds = [integer(bound, self.scope, "a loop bound") for bound in raw.bounds.items]
        if len(bounds) not in (2, 3):
            raise self.error(raw.at, "a loop has two bounds and perhaps a step", "write .for i in (0, 8) { ... }")
        if len(bounds) == 3 and bounds[2] == 0:
            raise self.error(raw.at, "the step of a loop cannot be 0")
        names = self.scope.module if self.scope.local is None else self.scope.local
        before = names.get(raw.name)
        for value in range(*bounds):
            self.tick(raw.at)
            names[raw.name] = value
            self.statements(raw.body.body)
        names.pop(raw.name, None)
        if before is not None:
            names[raw.name] = before

    def conditional(self, raw: tree.If) -> None:
        for test, body in raw.arms:
            if test is None or truth(test, self.scope):
                return self.statements(body.body)

    def macro(self, raw: tree.Macro) -> None:
        if raw.name in self.macros:
            raise self.error(raw.at, f"the macro '{raw.name}' is defined twice")
        self.macros[raw.name] = (raw, self.file)

    def macro_call(self, name: str, given: tuple[tree.Expr, ...], raw: tree.RawInstr) -> None:
        if name not in self.macros:
            hint = nearest(name, self.macros) or f"define it first: .macro {name}(...) {{ ... }}"
            raise self.error(raw.at, f"there is no macro '{name}'", hint)
        if raw.guard:
            raise self.error(raw.at, "a macro call cannot have a guard", "guard the instructions inside, or branch")
        macro, file = self.macros[name]
        required = sum(default is None for _, default in macro.params)
        if not required <= len(given) <= len(macro.params):
            counts = str(required) if required == len(macro.params) else f"{required} to {len(macro.params)}"
            spelled = ", ".join(param for param, _ in macro.params)
            message = f"the macro '{name}' takes {counts} arguments, found {len(given)}"
            raise self.error(raw.at, message, f"it is {name}({spelled})")
        values: dict[str, Value] = {}
        for (param, _), node in zip(macro.params, given, strict=False):
            values[param] = argument(node, self.scope)
        with self.nested(raw.at, f"the macro '{name}'"):
            self.via = (Pos(self.file, *raw.at), *self.via)
            self.file = file
            self.scope = Scope(self.scope.module, values)
            for param, default in macro.params[len(given) :]:
                assert default is not None
                values[param] = argument(default, self.scope)
            self.statements(macro.body.body)

    def set_role(self, raw: tree.Role) -> None:
        self.role = raw.name


def _names(node: object) -> Iterator[str]:
    """The names in an expression, in order."""
    if isinstance(node, tree.Name):
        yield node.name
    for part in ("test", "left", "right", "item", "yes", "no"):
        if hasattr(node, part):
            yield from _names(getattr(node, part))
    for part in ("items", "args"):
        for item in getattr(node, part, ()):
            yield from _names(item)


_HANDLERS: dict[type, Callable[[_Expander, Any], None]] = {
    tree.RawInstr: _Expander.instr,
    tree.RawLabel: _Expander.label,
    tree.RawBlock: _Expander.block,
    tree.RawDirective: _Expander.directive,
    tree.Declaration: _Expander.declaration,
    tree.RawKernel: _Expander.kernel,
    tree.RawFunction: _Expander.function,
    tree.Header: _Expander.head,
    tree.Define: _Expander.define,
    tree.Let: _Expander.let,
    tree.Assert: _Expander.assertion,
    tree.Include: _Expander.include,
    tree.For: _Expander.loop,
    tree.If: _Expander.conditional,
    tree.Macro: _Expander.macro,
    tree.Role: _Expander.set_role,
}
