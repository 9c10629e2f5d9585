"""The instruction registry: one declaration per PTX form family, in `isa/ops/<family>.py`.

    @instruction(
        "add{.sat}.s32 d, a, b;",
        "add.{u32,s32} d, a, b;",
        targets=("sm_90",),  # and all later ones; see `HEIRS`
    )
    def add_int(e: Emitter, m: Match) -> None:
        '''d = a + b (PTX ISA 9.7.1.1). ...contract...'''
        e(IADD3, m.d, m.a, m.b)

Syntax lines follow the manual: `{.x}` optional, `{.a|.b}` an optional choice, `.{a,b}` a required
choice, `.NAME` with NAME in `sets=` a required named choice, `{.NAME}` an optional one, `{.a.b}` an
optional sequence.  Required qualifiers stand in order, optional ones anywhere (as ptxas accepts).

Operands are named (`imm-scale-a` becomes `m.imm_scale_a`); a trailing `{, x}` is optional (`m.x` is
None when left out); `d|p` is a destination pair whose second half may be left out (None), as may
`_`; `[a]` is an address, `[map, coords]` a tensor address, `{d}` a vector.  A first operand called
d, d0.., p, q, r, state, pred or waitComplete is a destination (register or `_`), all others are sources.
Forms with the same opcode are told apart by operand kinds and counts (`mov.b64 d, a;` with
`types=dict(a="vec:b32:2")` beside the plain one), in the order of their declaration.

Operand kinds in `types=` (default: from the opcode's type suffix; of two suffixes the first is the
destination's, the last the sources'; u32 without one) and what `m.name` then is:

==================  ==============================================================================
"u32" "b64" "f16"   register or constant of that type: VReg, Const (floats as bits), or for the
...                 address of a variable Const, of a parameter a 64-bit Const in the parameter window
a name in `sets`    the type that the chosen member names
"pred" ("d|p": p)   VReg of kind p, NotPred, PredConst
"addr" "global"     `[..]`: `Address(base, offset)` with a 64-bit base; default of `[a]`: the opcode's
"local" "const"     state spaces in order, generic ("addr") without one
"shared"            `Address` with a 32-bit base (the low half of a 64-bit register)
"tmem"              `Address` in Tensor Memory, with a 32-bit register
"param"             `[name+off]`: ParamWord; kind d when the instruction's type has 64 bits; with a register `Address` as in "shared"
"tensor"            `[map, coords]`: `m.map` a 64-bit value, `m.coords` a list of 32-bit values
"vec" "vec:T"       list of values of type T (default: the instruction's), any length or N; operands of
"vec:T:N"           an opcode with .v2/.v4/.v8 are "vec:T:N" by default; elements `_` are None
"imm"               a constant: Python int
"label"             str, for `e(BRA, None, label=m.target)`
"labels"            the list of labels of a .branchtargets, by its name
"function"          str, the name of a .func;  "arguments": a list of LocalParam and values
"desc"              "b64"
"any"               register or constant of any type (constants are 32 bits wide)
"part"              32 bits with a selector or a minus (`%r1.h1`, `-%r1`): `Part(value, selector, negated)`
"special"           a special register: `Special(name)`; every other kind refuses those
==================  ==============================================================================
8- and 16-bit registers are VReg kind r, 64-bit ones kind d, 128-bit ones a Quad (kind q) whose halves are kind d.  For ld, st and cvt a register may be
wider than the type: a wider source arrives as its low half, a wider destination too, and lowering
extends the 32-bit result into the rest.  `m.types` are the type suffixes,
`m.mods` all qualifiers in the order written, `m.has(".sat")` tests one, `m["sem"]` is the chosen
member of a set ('' without), `m.operand("a")` the syntax node for `e.error(..., operand=...)`.

Copies that allocation may coalesce are the micro-operations named `MOV` (`u->u`) and `PLOP3.MOV`
(`p->p`).  Write moves of 64-bit registers and pack/unpack as MOVs on `e.lo(x)`, `e.hi(x)`.

What a declaration drives: matching and errors, target check, lowering, `explain`, the docs table,
and the enumeration of forms in tests.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Protocol

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
class LocalParam:
    """A place in a `.param` variable of a function or a call: its words in registers, and a byte offset."""

    words: tuple[VReg, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class PredConst:
    """The constant predicate."""

    value: bool


@dataclass(frozen=True, slots=True)
class NotPred:
    """A negated predicate source."""

    reg: VReg


@dataclass(frozen=True, slots=True)
class Special:
    """A special register by its name with the percent sign (`%tid.x`)."""

    name: str


class Address(NamedTuple):
    """`[base + offset]`: `base` a 32-bit (shared) or 64-bit value, `offset` signed bytes."""

    base: Value
    offset: int


class Part(NamedTuple):
    """An operand of a video instruction: a 32-bit value, which bytes or halves of it (`b0`, `h10`, '' all), and its sign."""

    value: Value
    selector: str = ""
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Quad:
    """A 128-bit register: two 64-bit ones, the low half first."""

    lo: VReg
    hi: VReg
    kind = "q"


Value = VReg | Quad | Half | Const | ParamWord | PredConst | NotPred


class Match(Protocol):
    """A matched instruction: `m.d`, `m.a`, ... are operand values, `m.has(".sat")` asks for a
    qualifier, `m["sem"]` returns the chosen member of a named set (without its dot) or ''."""

    instr: Instr
    form: Form
    types: tuple[str, ...]
    mods: tuple[str, ...]

    def operand(self, name: str) -> Operand | None: ...
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

    @property
    def guard(self) -> VReg | NotPred | PredConst | None: ...
    @property
    def leave(self) -> str | None: ...  # inside a function the label behind it

    @property
    def param_bytes(self) -> int: ...  # of the kernel
    @property
    def constants(self) -> list[tuple[int, int]]: ...  # address and bytes of each .const variable
    def __call__(self, op: Micro, results: Any, *sources: Any, imm: int = 0, label: str | None = None) -> None: ...
    def tmp(self, kind: str = "r") -> VReg: ...
    def quad(self) -> Quad: ...
    def carry(self) -> VReg: ...  # the carry flag of the kernel
    def stack(self) -> VReg: ...  # the top of the thread's stack in local memory
    @property
    def clustered(self) -> bool: ...  # whether shared addresses carry the CTA's rank
    def written(self, word: Value) -> Value: ...  # a register's value, zero when nothing before wrote it
    def branch(self, guard: VReg | NotPred | PredConst, label: str) -> None: ...  # whatever the instruction's guard
    def under(self, guard: VReg | NotPred | PredConst | None) -> AbstractContextManager[None]: ...
    def call(self, name: str, results: list[Any], arguments: list[Any]) -> None: ...  # a function in place
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
        return re.split(r"[.\s{;]", self.syntax, maxsplit=1)[0]


FORMS: dict[str, list[Form]] = {}
HOPPER = ("sm_90a",)
ALL_TARGETS = ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_100a", "sm_103f", "sm_103a")
# What has the instructions of a target (PTX ISA 11.1.2): of a plain one all later ones, of a family its members and
# what comes later in it; an `a` target is alone.
HEIRS = {
    "sm_80": ALL_TARGETS,
    "sm_90": ALL_TARGETS[1:],
    "sm_100": ALL_TARGETS[3:],
    "sm_100f": ALL_TARGETS[4:],
    "sm_103f": ALL_TARGETS[6:],
}


def heirs(targets: tuple[str, ...]) -> tuple[str, ...]:
    """The implemented targets that have a form declared for `targets`, oldest first."""
    there = {heir for target in targets for heir in HEIRS.get(target, (target,))}
    return tuple(target for target in ALL_TARGETS if target in there)


def least(targets: tuple[str, ...]) -> str:
    """The shortest declaration of what `heirs` gives: "sm_90 or later", "sm_90a", "sm_90a, sm_100f"."""
    implied = {heir for target in targets for heir in HEIRS.get(target, ()) if heir != target}
    names = [target for target in targets if target not in implied]
    return f"{names[0]} or later" if len(names) == 1 and names[0][-1].isdigit() else ", ".join(names)


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
        family, text = lower.__module__.rsplit(".", 1)[-1], lower.__doc__ or ""
        for line in syntax:
            form = Form(line, lower, heirs(targets), sets or {}, types or {}, family, text, ignored or {})
            FORMS.setdefault(form.opcode, []).append(form)
        return lower

    return wrap


@cache
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
