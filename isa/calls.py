"""Calls of device functions (PTX ISA 7.1, 9.7.12.5): the body of the function stands in for the call.

Parameters of functions are words in registers, as the calling convention of `ptxas` has them, so that passing them costs
nothing.  What needs a real call (recursion, pointers to functions, functions without a body) is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isa.declarations import type_bytes
from isa.errors import Diagnostic, UnsupportedError
from isa.micro import MICROS
from isa.names import Symbol
from isa.registry import LocalParam, NotPred, PredConst, Quad, Value, VReg
from isa.syntax import Block, Function, Instr, Param, Stmt, VarDecl

if TYPE_CHECKING:
    from isa.lowering import Lowering

MOST_OPERATIONS = 1_000_000  # of a kernel with all functions in place
STOPS = frozenset(("__assertfail",))  # functions of the system that end the program


@dataclass(frozen=True)
class Call:
    """Where the code of a function stands: its name and the label behind it."""

    name: str
    end: str


def words_of(variable: VarDecl | Param) -> int:
    """32-bit words of a `.param` variable."""
    return -(-type_bytes(variable.type) * (1 if variable.count is None else variable.count) // 4)


def variable(e: Lowering, decl: VarDecl | Param) -> Symbol:
    """A `.param` variable of a function or a call: fresh registers."""
    return Symbol(decl.name, "param", 0, tuple(e.tmp() for _ in range(words_of(decl))))


def call(e: Lowering, name: str, results: list[Any], arguments: list[Any]) -> None:
    """Put a function in place of a call of the current instruction, around which a guard branches."""
    function = e.layout.functions[name]
    if function.body is None and name in STOPS:
        e(MICROS["BPT.TRAP"], None)
        return
    _possible(e, function)
    for what, formal, actual in (("results", function.results, results), ("arguments", function.params, arguments)):
        if len(formal) != len(actual):
            raise e.error(f"'{name}' has {len(formal)} {what}, found {len(actual)}")
    end = e.fresh_label(name)
    if e.guard is not None:
        e.branch(_negated(e.guard), end)
    with e.under(None):
        symbols = {p.name: _bound(e, p, a) for p, a in zip(function.params, arguments, strict=True)}
        outputs = [
            variable(e, p) if not isinstance(a, LocalParam) else _bound(e, p, a)
            for p, a in zip(function.results, results, strict=True)
        ]
        symbols |= {p.name: s for p, s in zip(function.results, outputs, strict=True)}
        top = _saved(e, e.stack()) if _allocates(function.body or ()) else None
        with _inside(e, Call(name, end)):
            e.body(_without_return(function.body or ()), symbols)
        for actual, output in zip(results, outputs, strict=True):
            if not isinstance(actual, LocalParam):
                _copy(e, _rows(e, actual), output.words)
        e.code.labels[end] = len(e.code.ops)
        if top is not None:
            _copy(e, _rows(e, e.stack()), _rows(e, top))


def _allocates(body: tuple[Stmt, ...]) -> bool:
    """Whether a body takes memory of the stack, which its return gives back."""
    return any(
        _allocates(s.body) if isinstance(s, Block) else isinstance(s, Instr) and s.opcode.startswith("alloca.")
        for s in body
    )


def _saved(e: Lowering, value: VReg) -> VReg:
    copy = e.tmp("d")
    _copy(e, _rows(e, copy), _rows(e, value))
    return copy


def _possible(e: Lowering, function: Function) -> None:
    """Refuse what cannot be put in place."""
    name, hint = function.name, ""
    if any(call.name == name for call in e.calls):
        message, hint = f"'{name}' calls itself, which is not implemented", "write a loop"
    elif function.body is None:
        message = f"'{name}' has no body here; of the system's functions there are vprintf and __assertfail"
        hint = "leave the call out"
    elif len(e.code.ops) > MOST_OPERATIONS:
        message = f"the kernel has more than {MOST_OPERATIONS:,} operations with its functions in place"
    else:
        return
    raise UnsupportedError([Diagnostic(e.pos, message, hint, e.source_line(e.pos))])


@contextmanager
def _inside(e: Lowering, here: Call) -> Iterator[None]:
    e.calls.append(here)
    try:
        yield
    finally:
        e.calls.pop()


def _without_return(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """A body without the return at its end, which the code behind the call follows anyway."""
    last = body[-1] if body else None
    return body[:-1] if isinstance(last, Instr) and last.opcode in ("ret", "ret.uni") and last.guard is None else body


def _bound(e: Lowering, formal: Param, actual: Any) -> Symbol:
    """A formal parameter: the words of a `.param` variable themselves, or a copy of a register or constant."""
    if isinstance(actual, LocalParam):
        if len(actual.words) != words_of(formal):
            raise e.error(f"'{formal.name}' has {4 * words_of(formal)} bytes, found {4 * len(actual.words)}")
        return Symbol(formal.name, "param", 0, actual.words)
    symbol = variable(e, formal)
    rows = _rows(e, actual)
    if len(rows) != len(symbol.words):
        raise e.error(f"'{formal.name}' has {4 * words_of(formal)} bytes, found {4 * len(rows)}")
    _copy(e, symbol.words, rows)
    return symbol


def _rows(e: Lowering, value: Value) -> list[Value]:
    if isinstance(value, Quad):
        return [half(x) for x in (value.lo, value.hi) for half in (e.lo, e.hi)]
    wide = getattr(value, "kind", "r") == "d"
    return [e.lo(value), e.hi(value)] if wide else [value]


def _copy(e: Lowering, targets: Any, sources: Any) -> None:
    for target, source in zip(targets, sources, strict=True):
        e(MICROS["MOV"], target, source)


def _negated(guard: VReg | NotPred | PredConst) -> VReg | NotPred | PredConst:
    match guard:
        case PredConst(value):
            return PredConst(not value)
        case NotPred(reg):
            return reg
        case _:
            return NotPred(guard)
