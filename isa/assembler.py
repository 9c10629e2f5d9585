"""The driver: source text to programs.

assembly = assemble("fa3.mptx", defines={"HEAD_DIM": 128})
program = assembly.program()
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from isa import registry
from isa.advice import wgmma_advice
from isa.advice_tmem import tmem_advice
from isa.budget import ignore_setmaxnreg, judge
from isa.encode import encode
from isa.errors import AssemblyError, Diagnostic, UnsupportedError, nearest
from isa.expand import expand
from isa.layout import Layout
from isa.lowering import Lowering
from isa.printf import with_printf
from isa.program import Program
from isa.registers import PREDICATES, allocate
from isa.schedule import Weights, schedule
from isa.simplify import simplify
from isa.syntax import Kernel, Module, Pos, VarDecl
from isa.tidy import tidy
from isa.uniform import move_uniform

Define = int | float | str
# `.target` -> the implemented target.  sm_7x lacks what all forms assume; sm_12x is no superset of sm_100.
TARGETS = {name: name for name in registry.ALL_TARGETS}
TARGETS |= {f"sm_{n}": "sm_80" for n in (86, 87, 88, 89)}
TARGETS |= {f"sm_{n}{variant}": f"sm_100{variant}" for n in (101, 110) for variant in ("", "a", "f")}
TARGETS["sm_103"] = "sm_100"


@dataclass
class Assembly:
    """An expanded module and its encoded kernels by name, in the order of the source."""

    module: Module
    programs: dict[str, Program]

    def program(self, name: str | None = None) -> Program:
        """The named kernel, or the only one; AssemblyError with the choices otherwise."""
        if name is None and len(self.programs) == 1:
            return next(iter(self.programs.values()))
        if name is None or name not in self.programs:
            raise _not_named(self.module, name)
        return self.programs[name]


class _Sources:
    """Lines of the source files, for messages and reports."""

    def __init__(self, file: str, text: str) -> None:
        self.lines = {file: text.removeprefix("\ufeff").splitlines()}

    def line(self, pos: Pos) -> str:
        """The author's line at `pos`, empty when the file cannot be read."""
        lines = self.of(pos.file)
        return lines[pos.line - 1] if 0 < pos.line <= len(lines) else ""

    def of(self, file: str) -> list[str]:
        """All lines of a file."""
        if file not in self.lines:
            path = Path(file)
            self.lines[file] = path.read_text("utf-8-sig").splitlines() if path.is_file() else []
        return self.lines[file]


def assemble(
    source: str | Path | None = None,
    *,
    text: str | None = None,
    defines: dict[str, Define] | None = None,
    kernel: str | None = None,
    order: Weights | None = None,
) -> Assembly:
    """Assemble a file, or `text` (then `source` only names it in messages).

    `kernel` restricts the work to one entry.  Operations stand in the order of the source, or are
    scheduled for the timing classes in `order` (`isa.schedule`).  Raises AssemblyError with every
    finding of the module, UnsupportedError when all that is wrong are instructions that are not implemented.
    """
    registry.load()
    path = Path(source) if source is not None else Path("<text>")
    text = path.read_text("utf-8-sig") if text is None else text
    return assemble_module(expand(text, str(path), defines or {}, (path.parent,)), text, kernel=kernel, order=order)


def assemble_module(module: Module, text: str, *, kernel: str | None = None, order: Weights | None = None) -> Assembly:
    """As `assemble`, for a module that is expanded already (and perhaps changed); `text` is that of its main file."""
    registry.load()
    sources = _Sources(module.file, text)
    try:
        return Assembly(module, _programs(with_printf(module), kernel, sources, order))
    except AssemblyError as error:
        error.diagnostics = [replace(d, source=d.source or sources.line(d.pos)) for d in error.diagnostics]
        raise


def _programs(module: Module, kernel: str | None, sources: _Sources, order: Weights | None) -> dict[str, Program]:
    """Every kernel of a module, or the named one; one error with all that is wrong."""
    aim = _target(module)
    _check_names(module)
    if kernel is not None and all(entry.name != kernel for entry in module.kernels):
        raise _not_named(module, kernel)
    programs: dict[str, Program] = {}
    errors: list[AssemblyError] = []
    for entry in module.kernels:
        if kernel is None or entry.name == kernel:
            try:
                programs[entry.name] = _kernel(module, entry, aim, sources, order)
            except AssemblyError as error:
                errors.append(error)
    if errors:
        findings = [d for e in errors for d in e.diagnostics]
        unsupported = all(isinstance(e, UnsupportedError) for e in errors)
        raise UnsupportedError(findings) if unsupported else AssemblyError(findings)
    return programs


def only(module: Module, kernel: str) -> Module:
    """The module with one of its kernels, all its functions and variables; AssemblyError when there is no such kernel."""
    if all(entry.name != kernel for entry in module.kernels):
        raise _not_named(module, kernel)
    items = tuple(item for item in module.items if not isinstance(item, Kernel) or item.name == kernel)
    return replace(module, items=items)


def _not_named(module: Module, name: str | None) -> AssemblyError:
    """The error of a kernel that is not in the module, or (None) of several of which none was named."""
    names = [kernel.name for kernel in module.kernels]
    wrong = f"there is no kernel '{name}'" if name else f"the program has {len(names)} kernels"
    hint = f"name one of {', '.join(names)} with --kernel (in Python kernel=). {nearest(name or '', names)}".rstrip()
    return AssemblyError([Diagnostic(module.kernels[0].pos, wrong, hint)])


def _kernel(module: Module, kernel: Kernel, aim: str, sources: _Sources, order: Weights | None) -> Program:
    layout = Layout(module, kernel)
    layout.limit_shared(aim)
    code = Lowering(kernel, aim, layout, sources.line).run()
    ignored = [*ignore_setmaxnreg(code), *wgmma_advice(code), *tmem_advice(code)]
    simplify(code)
    move_uniform(code)
    if order is not None:
        tidy(code)
        schedule(code, order)
    allocation, g = allocate(code)
    files = dict.fromkeys(op.pos.file for op in code.ops)
    program = encode(code, g, allocation, layout, {f: sources.of(f) for f in files})
    program.warnings += ignored
    first: dict[int, Pos] = {}
    for pos, register in code.unwritten:
        if register in code.names and register not in first:
            first[register] = pos
            program.unwritten.append(f"{pos}: {code.names[register]} is read, but nothing has written it")
    judge(program, allocation.demand, PREDICATES)
    return program


def target(text: str) -> str:
    """The implemented target that a `.target` line means: sm_86 is read as sm_80, sm_110a as sm_100a.

    KeyError for targets that are none, or whose instructions are not those of an implemented one.
    """
    return TARGETS[text.split(",")[0].strip()]


def _check_names(module: Module) -> None:
    """Kernels there are, and names of the module are declared once, but for `.extern` ones; addresses have 64 bits."""
    if not module.kernels:
        pos = Pos(module.file, 1, 1)
        hint = "write .visible .entry name() { ... ret; }"
        raise AssemblyError([Diagnostic(pos, "the program has no kernel", hint)])
    if module.address_size != 64:
        pos = module.target_at or Pos(module.file, 1, 1)
        raise UnsupportedError([Diagnostic(pos, f".address_size {module.address_size} is not supported", "write 64")])
    first: dict[str, Pos] = {}
    for item in module.items:
        named = isinstance(item, Kernel | VarDecl) and item.linkage != "extern"
        if named and first.setdefault(item.name, item.pos) is not item.pos:
            message = f"'{item.name}' is already declared at {first[item.name]}"
            raise AssemblyError([Diagnostic(item.pos, message, "rename one")])


def _target(module: Module) -> str:
    """The target of a module; one error at its `.target` line when it is not implemented."""
    try:
        return target(module.target)
    except KeyError:
        pos = module.target_at or Pos(module.file, 1, 1)
        known = ", ".join(registry.ALL_TARGETS)
        others = "sm_86 to sm_89 as sm_80, sm_103 as sm_100, sm_101 and sm_110 with their variants as those of sm_100"
        hint = f"write .target sm_90a; supported are {known}, and {others}"
        raise AssemblyError([Diagnostic(pos, f"the target '{module.target}' is not supported", hint)]) from None
