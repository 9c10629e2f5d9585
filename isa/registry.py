"""The instruction registry: one declaration per PTX form family, in `isa/ops/<family>.py`.

    @instruction(
        "add{.sat}.s32 d, a, b;",
        "add.{u32,s32} d, a, b;",
        targets=("sm_80", "sm_90a"),
    )
    def add_int(e: Emitter, m: Match) -> None:
        '''d = a + b (PTX ISA 9.7.1.1). ...contract...'''
        e(IADD3, m.d, m.a, m.b)

Syntax lines follow the manual: `{.x}` optional, `{.a|.b}` an optional choice, `.{a,b}` a required
choice, `.NAME` with NAME in `sets=` a required named choice, `{.NAME}` an optional one.  Operands are
named; a trailing `{, x}` is optional; `d|p` a pair; `[a]` an address; `{...}` marks a vector by its
type letter in `operands=`.  Qualifiers may be written in any order except types.

What a declaration drives: matching and errors, target check, lowering, `explain`, the docs table,
and the enumeration of forms in tests.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from isa.micro import Micro
from isa.syntax import Instr, Operand, Pos

# ---- values that lowering handles --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VReg:
    """A virtual register: kind 'r' (32 bits), 'd' (64 bits, aligned pair) or 'p' (predicate)."""

    id: int
    kind: str


@dataclass(frozen=True, slots=True)
class Half:
    """The low (0) or high (1) 32-bit half of a 64-bit virtual register."""

    reg: VReg
    index: int


@dataclass(frozen=True, slots=True)
class Const:
    """A constant row: `bits` of a 32-bit ('r') or 64-bit ('d') value."""

    bits: int
    kind: str = "r"


@dataclass(frozen=True, slots=True)
class ParamWord:
    """A 32-bit ('r') or 64-bit ('d') word of the kernel's parameter block at byte `offset`."""

    offset: int
    kind: str = "r"


@dataclass(frozen=True, slots=True)
class PredConst:
    """The constant predicate."""

    value: bool


@dataclass(frozen=True, slots=True)
class NotPred:
    """A negated predicate source."""

    reg: VReg


Value = VReg | Half | Const | ParamWord | PredConst | NotPred


class Match(Protocol):
    """A matched instruction: `m.d`, `m.a`, ... are operand values, `m.has(".sat")` asks for a
    qualifier, `m["sem"]` returns the chosen member of a named set (without its dot) or ''."""

    instr: Instr
    form: "Form"

    def has(self, qualifier: str) -> bool: ...
    def __getitem__(self, name: str) -> str: ...
    def __getattr__(self, name: str) -> Any: ...


class Emitter(Protocol):
    """What a lowering may do.

    `e(OP, results, *sources, imm=..)` appends a micro-operation under the instruction's guard:
    `results` is a value, a tuple of values in the order of the signature, or None; a source for
    `L` is a list of 32-bit values.  `None` as a predicate result is a sink.
    """

    target: str  # "sm_90a"
    pos: Pos

    def __call__(self, op: Micro, results: Any, *sources: Any, imm: int = 0, label: str | None = None) -> None: ...
    def tmp(self, kind: str = "r") -> VReg: ...
    def lo(self, x: Value) -> Value: ...
    def hi(self, x: Value) -> Value: ...
    def error(self, message: str, hint: str = "", operand: Operand | None = None) -> Exception: ...


# ---- declarations ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Form:
    """One syntax line of a family with its lowering."""

    syntax: str
    lower: Callable[[Emitter, Any], None]
    targets: tuple[str, ...]
    sets: dict[str, tuple[str, ...]]
    types: dict[str, str]
    family: str
    doc: str
    ignored: dict[str, str] = field(default_factory=dict)

    @property
    def opcode(self) -> str:
        """The first component of the opcode: `mbarrier`, `add`, `cp`."""
        return self.syntax.split(".")[0].split(" ")[0].split("{")[0]


FORMS: dict[str, list[Form]] = {}
HOPPER = ("sm_90a",)
ALL_TARGETS = ("sm_80", "sm_90", "sm_90a", "sm_100a")


def instruction(
    *syntax: str,
    targets: tuple[str, ...] = ALL_TARGETS,
    sets: dict[str, tuple[str, ...]] | None = None,
    types: dict[str, str] | None = None,
    ignored: dict[str, str] | None = None,
) -> Callable[[Callable[[Any, Any], None]], Callable[[Any, Any], None]]:
    """Declare forms; the decorated function lowers them.

    `sets` names qualifier sets, `types` gives operand kinds where the opcode's type does not
    (`dict(addr="shared", p="pred", hint="u32")`), `ignored` lists qualifiers that change neither
    values nor modelled time, each with the reason.
    """

    def wrap(lower: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        family = lower.__module__.rsplit(".", 1)[-1]
        for line in syntax:
            form = Form(line, lower, targets, sets or {}, types or {}, family, lower.__doc__ or "", ignored or {})
            FORMS.setdefault(form.opcode, []).append(form)
        return lower

    return wrap


def load() -> None:
    """Import every family once, in name order, so that numbering is the same everywhere."""
    package = importlib.import_module("isa.ops")
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
        importlib.import_module(f"isa.ops.{info.name}")


def forms() -> Iterator[Form]:
    """Every declared form, families in name order."""
    load()
    for opcode in sorted(FORMS):
        yield from FORMS[opcode]
