"""Where variables and parameters lie: shared, global, constant and local memory, the parameter block."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from isa.declarations import type_bytes
from isa.errors import AssemblyError, Diagnostic, UnsupportedError
from isa.names import Symbol, constant
from isa.printf import ROOM
from isa.program import GLOBAL_BASE, SHARED_BASE, ArgSlot
from isa.registry import ALL_TARGETS
from isa.syntax import Block, Float, Function, Instr, Int, Kernel, Module, Param, Stmt, Sym, VarDecl

# Bytes of all variables of a space: CUDA programming guide, "Compute Capabilities" (constant, local); the shared window
# of an address; for global memory our own, since its image travels with the program.
MOST = {"global": 1 << 30, "const": 64 << 10, "shared": 16 << 20, "local": 512 << 10}

STACK_BYTES = 1024  # of a thread's stack: CUDA programming guide, cudaLimitStackSize

# Bytes of static shared memory that ptxas 13.0 allows a kernel of an `a` target, and of others; dynamic shared memory has
# the machine's limit.
STATIC_SHARED = {target: (227 if target.endswith("a") else 48) << 10 for target in ALL_TARGETS}


class Layout:
    """Addresses of the module's variables and of one kernel's parameters and variables.

    Static shared variables lie in the order of their declaration from `SHARED_BASE`; unsized extern
    arrays all start after those (PTX ISA 5.1.7, 7.2).  Parameters follow each other with their natural
    alignment.
    """

    def __init__(self, module: Module, kernel: Kernel) -> None:
        self.symbols: dict[str, Symbol] = {}
        self.args: list[ArgSlot] = []
        self.param_bytes = 0
        self.image = bytearray()
        self.constants: list[tuple[int, int]] = []  # address and bytes of .const variables
        self._shared: dict[str, tuple[VarDecl, int]] = {}  # variables and the address behind each
        self._ends = {"shared": SHARED_BASE, "local": 0}
        self._placed: dict[int, Symbol] = {}
        self.functions = _functions(module)
        variables = [item for item in module.items if isinstance(item, VarDecl)]
        bodies = [kernel.body, *(f.body for f in _called(kernel.body, self.functions).values() if f.body)]
        inside = [decl for body in bodies for decl in _variables(body)]
        for decl in sorted([*variables, *inside], key=lambda v: (v.count is None, v.name == ROOM)):
            self._placed[id(decl)] = self._place(decl)
        self.symbols |= {v.name: self.place(v) for v in variables}
        for param in kernel.params:
            self._place_param(param)

    @property
    def shared_end(self) -> int:
        """The first shared address after the static variables placed so far."""
        return self._ends["shared"]

    @property
    def local_bytes(self) -> int:
        """Bytes of local variables a thread."""
        return self._ends["local"]

    def add_stack(self) -> int:
        """Room for a stack behind the local variables; where it begins."""
        start = -(-self._ends["local"] // 16) * 16
        self._ends["local"] = start + STACK_BYTES
        return start

    def in_space(self, *spaces: str) -> dict[str, int]:
        """Addresses of the variables in some state spaces, the kernel's own included."""
        return {s.name: s.address for s in self._placed.values() if s.space in spaces}

    def place(self, decl: VarDecl) -> Symbol:
        """The address of a variable of the module or of the kernel's body."""
        return self._placed[id(decl)]

    def limit_shared(self, target: str) -> None:
        """AssemblyError at the variable with which static shared memory exceeds what `ptxas` allows for a target."""
        most = STATIC_SHARED[target]
        for name, (decl, end) in self._shared.items():
            if end - SHARED_BASE > most:
                message = (
                    f"with '{name}' static shared memory has {end - SHARED_BASE:,} bytes, {target} allows {most:,}"
                )
                hint = "declare .extern .shared .b8 x[]; its size is given at launch"
                raise AssemblyError([Diagnostic(decl.pos, message, hint)])

    def _place(self, decl: VarDecl) -> Symbol:
        size = type_bytes(decl.type)
        align = max(decl.align, size)
        self._fits(decl, (decl.count or 0) * size)
        room = (decl.count or 0) * (size // type_bytes(decl.type.rpartition(".")[2]))
        if len(decl.init) > room:
            message = f"'{decl.name}' has room for {room:,} values, {len(decl.init):,} initial ones are given"
            raise AssemblyError([Diagnostic(decl.pos, message, "give the array more elements")])
        if decl.space in ("global", "const"):
            self.image += bytes(-len(self.image) % align)
            address = GLOBAL_BASE + len(self.image)
            data = b"".join(self._bytes(decl, item) for item in decl.init)
            self.image += data + bytes(max(0, (decl.count or 0) * size - len(data)))
            if decl.space == "const":
                self.constants.append((address, (decl.count or 0) * size))
            return Symbol(decl.name, decl.space, address)
        address = -(-self._ends[decl.space] // align) * align
        self._ends[decl.space] = address + (decl.count or 0) * size
        if decl.space == "shared":
            self._shared[decl.name] = (decl, self._ends["shared"])
        return Symbol(decl.name, decl.space, address)

    def _bytes(self, decl: VarDecl, item: object) -> bytes:
        """An initial value: a constant, or the address of a .global or .const variable declared before."""
        element = decl.type.rpartition(".")[2]
        if isinstance(item, Sym):
            found = next((s for s in self._placed.values() if s.name == item.name), None)
            if found is None and item.name in self.functions:
                message = f"'{decl.name}' holds the address of the function '{item.name}': calls by address are not implemented"
                hint = "call functions by name, or branch with brx.idx"
                raise UnsupportedError([Diagnostic(decl.pos, message, hint)])
            if found is None or found.space not in ("global", "const") or type_bytes(element) != 8:
                hint = "only 64-bit variables hold addresses, of .global and .const variables that are declared before"
                raise AssemblyError(
                    [Diagnostic(decl.pos, f"'{decl.name}' cannot hold the address of '{item.name}'", hint)]
                )
            return struct.pack("<Q", found.address + item.offset)
        if not isinstance(item, Int | Float):
            raise AssemblyError(
                [Diagnostic(decl.pos, f"'{decl.name}' can only be initialised with constants and addresses")]
            )
        return struct.pack("<Q", constant(item, element).bits)[: type_bytes(element)]

    def _fits(self, decl: VarDecl, size: int) -> None:
        if decl.space not in MOST:
            raise AssemblyError([Diagnostic(decl.pos, f".{decl.space} variables are not supported")])
        used = {
            "shared": self._ends["shared"] - SHARED_BASE,
            "local": self._ends["local"],
            "const": sum(size for _, size in self.constants),
        }.get(decl.space, len(self.image))
        if used + size > MOST[decl.space]:
            message = f"'{decl.name}' has {size:,} bytes, .{decl.space} variables have {MOST[decl.space]:,} together"
            raise AssemblyError([Diagnostic(decl.pos, message, "pass large arrays as arguments of the launch")])

    def _place_param(self, param: Param) -> None:
        element = type_bytes(param.type)
        size = element * (1 if param.count is None else param.count)
        align = max(param.align, element)
        offset = -(-self.param_bytes // align) * align
        self.args.append(ArgSlot(param.name, param.type, offset, size, align))
        self.symbols[param.name] = Symbol(param.name, "param", offset)
        self.param_bytes = offset + size


def _variables(body: Iterable[Stmt]) -> Iterator[VarDecl]:
    """Every variable of a body, nested blocks included, in the order of the text."""
    for statement in body:
        if isinstance(statement, VarDecl) and statement.space != "param":
            yield statement
        elif isinstance(statement, Block):
            yield from _variables(statement.body)


def _functions(module: Module) -> dict[str, Function]:
    """The functions of a module by name, those with a body before prototypes."""
    functions = [item for item in module.items if isinstance(item, Function)]
    return {f.name: f for f in sorted(functions, key=lambda f: f.body is not None)}


def _called(body: Iterable[Stmt], functions: dict[str, Function]) -> dict[str, Function]:
    """The functions that a body calls, directly or not."""
    found: dict[str, Function] = {}
    waiting = [body]
    while waiting:
        for statement in waiting.pop():
            if isinstance(statement, Block):
                waiting.append(statement.body)
            elif isinstance(statement, Instr) and statement.opcode.startswith("call"):
                for name in (o.name for o in statement.operands if isinstance(o, Sym)):
                    if name in functions and name not in found:
                        found[name] = functions[name]
                        waiting.append(functions[name].body or ())
    return found
