"""The abstract syntax of mini-PTX: what the parser builds, the expander rewrites and the printer prints.

Nodes are frozen and know only where they came from (`Pos`).  Instruction knowledge lives in
`isa.registry`; the tree is the same for plain PTX and for the assembler layer on top of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Pos:
    """A place in a source file (1-based line and column; line 0: the file as a whole).

    `via` holds the call sites, innermost first, when the text came through macros, loops or
    includes; the place itself is always one that the author wrote.
    """

    file: str
    line: int
    col: int
    via: tuple[Pos, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}" if self.line else self.file


# ---- operands -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reg:
    """A register or special register, with its percent sign: `%r1`, `%tid.x`, `%p3`."""

    name: str


@dataclass(frozen=True, slots=True)
class Sym:
    """A bare identifier: label, variable, parameter or, before expansion, a define; `offset` bytes behind it."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Int:
    """An integer constant (any size; the instruction's type decides the width)."""

    value: int


@dataclass(frozen=True, slots=True)
class Float:
    """A floating constant.  `bits` is set for `0f`/`0d` literals, `width` is 32 or 64 then."""

    value: float
    bits: int | None = None
    width: int = 0


@dataclass(frozen=True, slots=True)
class Addr:
    """`[base + offset]`; `base` is a Reg, a Sym or an Int; `offset` a byte count."""

    base: Operand
    offset: int = 0


@dataclass(frozen=True, slots=True)
class TensorAddr:
    """`[map, {c0, c1, ...}]`: the tensor operand of bulk tensor copies."""

    base: Operand
    coords: Vec
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vec:
    """`{a, b, c}`; ranges are already written out."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """`!p`: a negated predicate source."""

    item: Operand


@dataclass(frozen=True, slots=True)
class Neg:
    """`-x` on something that is not a constant (rejected later with a clear message)."""

    item: Operand


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: the two destinations of setp, shfl, elect and others."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a destination that is thrown away."""


@dataclass(frozen=True, slots=True)
class Str:
    """A quoted string (directives only)."""

    value: str


Operand = Reg | Sym | Int | Float | Addr | TensorAddr | Vec | Not | Neg | Pair | Sink | Str


# ---- statements (after expansion) --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p`."""

    reg: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction.  `opcode` is the whole dotted spelling as written."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None
    pos: Pos
    role: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """`name:`"""

    name: str
    pos: Pos


@dataclass(frozen=True, slots=True)
class RegDecl:
    """`.reg .type names;` - `count` is n of `%r<n>` or None for a single register."""

    type: str
    names: tuple[tuple[str, int | None], ...]
    pos: Pos


@dataclass(frozen=True, slots=True)
class VarDecl:
    """A variable in `.shared`, `.global`, `.const`, `.local`: `count` elements of `type`.

    `count` None means an unsized extern array (dynamic shared memory).  `init` is the
    initialiser list or empty.
    """

    space: str
    type: str
    name: str
    count: int | None
    align: int
    linkage: str
    init: tuple[Operand, ...]
    pos: Pos


@dataclass(frozen=True, slots=True)
class Block:
    """`{ ... }`: a scope for registers, variables and labels."""

    body: tuple[Stmt, ...]
    pos: Pos


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter: `count` elements of `type` (None: a scalar)."""

    type: str
    name: str
    count: int | None
    align: int
    pos: Pos
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Directive:
    """Any other directive inside a body or at module level, kept for printing (`.pragma`, `.loc`)."""

    name: str
    args: tuple[Operand, ...]
    pos: Pos


@dataclass(frozen=True, slots=True)
class Kernel:
    """An `.entry`."""

    name: str
    params: tuple[Param, ...]
    performance: tuple[tuple[str, tuple[int, ...]], ...]  # ("reqntid", (384, 1, 1)), ("maxnreg", (168,))
    body: tuple[Stmt, ...]
    linkage: str
    pos: Pos


@dataclass(frozen=True, slots=True)
class Function:
    """A `.func`; `body` None: a prototype."""

    name: str
    results: tuple[Param, ...]
    params: tuple[Param, ...]
    body: tuple[Stmt, ...] | None
    linkage: str
    pos: Pos


Stmt = Instr | Label | RegDecl | VarDecl | Block | Directive


@dataclass(frozen=True, slots=True)
class Module:
    """One expanded source: plain PTX, nothing of the assembler layer left."""

    version: str
    target: str
    address_size: int
    items: tuple[VarDecl | Kernel | Function | Directive, ...]
    file: str
    defines: dict[str, int | float | str] = field(default_factory=dict)
    target_at: Pos | None = field(default=None, compare=False)  # of the `.target` line

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(item for item in self.items if isinstance(item, Kernel))
