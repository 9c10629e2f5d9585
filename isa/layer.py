"""The assembler layer: the walk over the raw tree, with defines, loops, conditions, macros, includes and roles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from isa import tree
from isa.errors import AssemblyError, Diagnostic, UnsupportedError, nearest
from isa.expressions import Constant, ExpressionError, NotImplementedHere, Scope, Value, evaluate, integer, truth
from isa.resolve import argument
from isa.sources import Sources
from isa.syntax import Directive, Function, Kernel, Pos, Stmt, VarDecl
from isa.tree import At

MAX_STATEMENTS = 2_000_000
MAX_DEPTH = 64  # of macro calls, includes and short spellings inside each other

Defines = Mapping[str, Constant]
Handlers = Mapping[type, Callable[[Any, Any], None]]


class Layer:
    """Walks the raw tree and appends statements to `out`; statements of PTX itself are its subclass's (`isa.expand`)."""

    def __init__(self, sources: Sources, overrides: Defines, handlers: Handlers) -> None:
        self.sources = sources
        self.file = sources.main.file
        self.overrides = overrides
        self.handlers = {**handlers, **_HANDLERS}
        self.scope = Scope()
        self.macros: dict[str, tuple[tree.Macro, str]] = {}
        self.defines: dict[str, Constant] = {}
        self.out: list[Any] = []
        self.inside_kernel = False
        self.role = ""
        self.via: tuple[Pos, ...] = ()
        self.author: Pos | None = None  # of the short spelling that is being expanded
        self.count = self.depth = 0

    # ---- errors and places ----

    def pos(self, at: At) -> Pos:
        return self.author or Pos(self.file, at[0], at[1], self.via)

    def error(self, at: At, message: str, hint: str = "") -> AssemblyError:
        return AssemblyError([Diagnostic(self.pos(at), message, hint)])

    # ---- statements ----

    def statements(self, body: Iterable[tree.Raw]) -> None:
        for raw in body:
            try:
                self.handlers[type(raw)](self, raw)
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


_HANDLERS: Handlers = {
    tree.Define: Layer.define,
    tree.Let: Layer.let,
    tree.Assert: Layer.assertion,
    tree.Include: Layer.include,
    tree.For: Layer.loop,
    tree.If: Layer.conditional,
    tree.Macro: Layer.macro,
    tree.Role: Layer.set_role,
}
