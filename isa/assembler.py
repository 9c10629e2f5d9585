"""The driver: source text to programs.

    assembly = assemble("fa3.mptx", defines={"HEAD_DIM": 128})
    program = assembly.program()
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isa import registry
from isa.budget import judge
from isa.encode import encode
from isa.errors import AssemblyError, UnsupportedError, nearest
from isa.expand import expand
from isa.layout import Layout
from isa.lowering import Lowering
from isa.program import Program
from isa.registers import PREDICATES, allocate
from isa.schedule import Weights, schedule
from isa.simplify import simplify
from isa.syntax import Kernel, Module, Pos
from isa.tidy import tidy
from isa.uniform import move_uniform

Define = int | float | str


@dataclass
class Assembly:
    """An expanded module and its encoded kernels by name, in the order of the source."""

    module: Module
    programs: dict[str, Program]

    def program(self, name: str | None = None) -> Program:
        """The named kernel, or the only one; KeyError with the choices otherwise."""
        if name is None and len(self.programs) == 1:
            return next(iter(self.programs.values()))
        if name not in self.programs:
            names = [kernel.name for kernel in self.module.kernels]
            raise KeyError(f"name one of the kernels {', '.join(names)} {nearest(name or '', names)}".rstrip())
        return self.programs[name]


class _Sources:
    """Lines of the source files, for messages and reports."""

    def __init__(self, file: str, text: str) -> None:
        self.lines = {file: text.splitlines()}

    def line(self, pos: Pos) -> str:
        """The author's line at `pos`, empty when the file cannot be read."""
        lines = self.of(pos.file)
        return lines[pos.line - 1] if 0 < pos.line <= len(lines) else ""

    def of(self, file: str) -> list[str]:
        """All lines of a file."""
        if file not in self.lines:
            path = Path(file)
            self.lines[file] = path.read_text().splitlines() if path.is_file() else []
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
    text = path.read_text() if text is None else text
    module = expand(text, str(path), defines or {}, (path.parent,))
    sources = _Sources(str(path), text)
    programs: dict[str, Program] = {}
    errors: list[AssemblyError] = []
    for entry in module.kernels:
        if kernel is None or entry.name == kernel:
            try:
                programs[entry.name] = _kernel(module, entry, sources, order)
            except AssemblyError as error:
                errors.append(error)
    if errors:
        findings = [d for e in errors for d in e.diagnostics]
        unsupported = all(isinstance(e, UnsupportedError) for e in errors)
        raise UnsupportedError(findings) if unsupported else AssemblyError(findings)
    return Assembly(module, programs)


def _kernel(module: Module, kernel: Kernel, sources: _Sources, order: Weights | None) -> Program:
    layout = Layout(module, kernel)
    code = Lowering(kernel, target(module.target), layout, sources.line).run()
    simplify(code)
    move_uniform(code)
    if order is not None:
        tidy(code)
        schedule(code, order)
    allocation, g = allocate(code)
    files = dict.fromkeys(op.pos.file for op in code.ops)
    program = encode(code, g, allocation, layout, {f: sources.of(f) for f in files})
    judge(program, allocation.demand, PREDICATES)
    return program


def target(text: str) -> str:
    """The implemented target that a `.target` line means: sm_86 is read as sm_80, sm_103a as sm_100a."""
    name = text.split(",")[0].strip()
    if name in registry.ALL_TARGETS:
        return name
    digits = "".join(c for c in name if c.isdigit())
    if digits.startswith("8"):
        return "sm_80"
    return "sm_100a" if digits.startswith("1") else name
