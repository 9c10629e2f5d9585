"""The raw tree: what the parser builds and only `isa.expand` and `isa.expressions` read.

Plain constants and registers are already nodes of `isa.syntax`; everything that needs names,
splices or the assembler layer has a node here.  `at` is (line, column), 1-based; the file is the
one that was parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from isa.syntax import Addr, Float, Int, Reg, Sink, Str, Vec

At = tuple[int, int]

# ---- expressions and operands -----------------------------------------------------------------


@dataclass(slots=True)
class Name:
    """A bare identifier: a define, a loop variable, a macro parameter, or a symbol of the program."""

    name: str
    at: At


@dataclass(slots=True)
class Word:
    """An identifier, register, label or opcode with spliced values: `%s{2*i+1}`."""

    parts: tuple[str | Expr, ...]
    at: At


@dataclass(slots=True)
class Unary:
    """`-x`, `+x`, `!x`, `~x`."""

    op: str
    item: Expr
    at: At


@dataclass(slots=True)
class Binary:
    """`left op right`; `|` between operands is a pair of destinations."""

    op: str
    left: Expr
    right: Expr
    at: At


@dataclass(slots=True)
class Choice:
    """`test ? yes : no`."""

    test: Expr
    yes: Expr
    no: Expr
    at: At


@dataclass(slots=True)
class Call:
    """`min(a, b)` and the other functions of constant expressions."""

    name: str
    args: tuple[Expr, ...]
    at: At


@dataclass(slots=True)
class Group:
    """`(a, b)`: a parenthesised expression, macro arguments, or the bounds of a loop."""

    items: tuple[Expr, ...]
    at: At


@dataclass(slots=True)
class Range:
    """`%s0..%s63` inside a vector."""

    first: Expr
    last: Expr
    at: At


@dataclass(slots=True)
class Vector:
    """`{a, b..c}` that is not just registers."""

    items: tuple[Expr, ...]
    at: At


@dataclass(slots=True)
class Address:
    """`[base + offset]` or `[map, {c0, c1}]`, unevaluated."""

    base: Expr
    coords: Expr | None
    at: At


Expr = (
    Name | Word | Unary | Binary | Choice | Call | Group | Range | Vector | Address
    | Reg | Int | Float | Str | Sink | Addr | Vec
)  # fmt: skip
Spelling = str | Word

# ---- statements -------------------------------------------------------------------------------


@dataclass(slots=True)
class RawInstr:
    """An instruction, a short spelling, or (one parenthesised operand) a macro call."""

    opcode: Spelling
    operands: tuple[Expr, ...]
    guard: tuple[Spelling, bool] | None
    at: At


@dataclass(slots=True)
class RawLabel:
    name: Spelling
    at: At


@dataclass(slots=True)
class Declarator:
    """One declared name: `%r<8>`, `smem[1024]`, `x = 5`; a dimension None is `[]`."""

    name: Spelling
    many: Expr | None
    dims: tuple[Expr | None, ...]
    init: Expr | None
    at: At


@dataclass(slots=True)
class Declaration:
    """`.reg`, `.shared`, ... `words` are the dotted words between the space and the first name,
    without dots; an alignment is a pair ("align", expression)."""

    linkage: str
    space: str
    words: tuple[Spelling | tuple[str, Expr], ...]
    names: tuple[Declarator, ...]
    at: At


@dataclass(slots=True)
class RawDirective:
    name: Spelling
    args: tuple[Expr, ...]
    at: At


@dataclass(slots=True)
class RawBlock:
    body: tuple[Raw, ...]
    at: At


@dataclass(slots=True)
class RawKernel:
    linkage: str
    name: Spelling
    params: tuple[Declaration, ...]
    performance: tuple[RawDirective, ...]
    body: RawBlock
    at: At


@dataclass(slots=True)
class RawFunction:
    """`.func (results) name (params)`; without a body a prototype."""

    linkage: str
    name: Spelling
    results: tuple[Declaration, ...]
    params: tuple[Declaration, ...]
    body: RawBlock | None
    at: At


@dataclass(slots=True)
class Header:
    """`.version`, `.target`, `.address_size`."""

    kind: str
    value: str
    at: At


@dataclass(slots=True)
class Define:
    name: str
    value: Expr
    at: At


@dataclass(slots=True)
class Let:
    name: str
    value: Expr
    at: At


@dataclass(slots=True)
class Assert:
    test: Expr
    message: str
    at: At


@dataclass(slots=True)
class Include:
    path: str
    at: At


@dataclass(slots=True)
class For:
    name: str
    bounds: Group
    body: RawBlock
    at: At


@dataclass(slots=True)
class If:
    """Arms in order; the `.else` arm has no test."""

    arms: tuple[tuple[Expr | None, RawBlock], ...]
    at: At


@dataclass(slots=True)
class Macro:
    """`params` are (name, default or None)."""

    name: str
    params: tuple[tuple[str, Expr | None], ...]
    body: RawBlock
    at: At


@dataclass(slots=True)
class Role:
    name: str
    at: At


Raw = (
    RawInstr | RawLabel | Declaration | RawDirective | RawBlock | RawKernel | RawFunction
    | Header | Define | Let | Assert | Include | For | If | Macro | Role
)  # fmt: skip


@dataclass(slots=True)
class Source:
    """One parsed file; `lines` serve the carets of diagnostics."""

    file: str
    body: tuple[Raw, ...]
    lines: list[str]


def walk(body: Iterable[Raw]) -> Iterator[Raw]:
    """Every statement of `body`, also those inside blocks, conditions, loops and macros."""
    for raw in body:
        yield raw
        if isinstance(raw, RawBlock):
            yield from walk(raw.body)
        elif isinstance(raw, RawKernel | For | Macro | RawFunction):
            yield from walk(raw.body.body if raw.body else ())
        elif isinstance(raw, If):
            for _, arm in raw.arms:
                yield from walk(arm.body)
