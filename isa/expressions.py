"""Constant expressions: raw tree in, numbers and words out.

Integers are exact and follow C: `/` truncates, `%` has the sign of the dividend, comparisons and
logic give 0 or 1.  Words (`f16`) compare with `==` and `!=` only.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from isa import tree
from isa.errors import nearest
from isa.ptx import operand_text
from isa.syntax import Addr, Float, Int, Operand, Reg, Sink, Str, Sym, Vec
from isa.tree import At, Expr, Spelling

Constant = int | float | str
Value = Constant | Operand
_LIMIT = 1 << 128  # of intermediate integers: shifts cannot exhaust memory


class ExpressionError(Exception):
    """What is wrong with an expression; the expander knows the file and adds it."""

    def __init__(self, at: At, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.at, self.message, self.hint = at, message, hint


class NotImplementedHere(ExpressionError):
    """The same for what is PTX but not implemented (exit code 4)."""


@dataclass
class Scope:
    """Names that expressions see: those of the module and, in a macro, its own."""

    module: dict[str, Value] = field(default_factory=dict)
    local: dict[str, Value] | None = None

    def find(self, name: str) -> Value | None:
        if self.local is not None and name in self.local:
            return self.local[name]
        return self.module.get(name)

    def assign(self, name: str, value: Value) -> None:
        """`.let`: sets the name where it exists, otherwise makes it in the innermost scope."""
        if self.local is not None and (name in self.local or name not in self.module):
            self.local[name] = value
        else:
            self.module[name] = value

    def names(self) -> Iterator[str]:
        yield from self.local or ()
        yield from self.module


# ---- constants ----------------------------------------------------------------------------------


def evaluate(node: Expr, scope: Scope) -> Constant:
    """The value of a constant expression; raises ExpressionError."""
    match node:
        case Int(value):
            return value
        case Float(real):
            return real
        case Str(text):
            return text
        case tree.Name(name, at):
            return _named(name, at, scope)
        case tree.Word(_, at):
            return _named(splice(node, scope), at, scope)
        case tree.Group(items) if len(items) == 1:
            return evaluate(items[0], scope)
        case tree.Choice(test, yes, no):
            return evaluate(yes if truth(test, scope) else no, scope)
        case tree.Unary(op, item, at):
            return _unary(op, evaluate(item, scope), at)
        case tree.Binary():
            return _binary(node, scope)
        case tree.Call(name, args, at):
            return _call(name, [evaluate(arg, scope) for arg in args], at)
    raise ExpressionError(place(node), f"expected a constant, found {describe(node)}")


def truth(node: Expr, scope: Scope) -> bool:
    """The condition `node`, which must be a number."""
    value = evaluate(node, scope)
    if isinstance(value, str):
        raise ExpressionError(place(node), f"a condition must be a number, found the word '{value}'")
    return bool(value)


def integer(node: Expr, scope: Scope, what: str) -> int:
    """The value of `node`, which must be an integer; `what` names it in the error."""
    value = evaluate(node, scope)
    if not isinstance(value, int):
        raise ExpressionError(place(node), f"{what} must be an integer, found {value}")
    return value


def place(node: Expr) -> At:
    """Where an expression stands; (0, 0) for plain constants, whose statement is the place."""
    return getattr(node, "at", (0, 0))


def describe(node: Expr) -> str:
    """An expression in an error message."""
    match node:
        case Reg(name):
            return f"the register {name}"
        case Sink():
            return "'_'"
        case Addr() | tree.Address():
            return "an address"
        case Vec() | tree.Vector():
            return "a vector"
        case tree.Group():
            return "a list"
    return "an operand"


def _named(name: str, at: At, scope: Scope) -> Constant:
    value = scope.find(name)
    if value is None:
        if name.startswith("%"):
            raise ExpressionError(at, f"expected a constant, found the register {name}")
        hint = nearest(name, scope.names()) or "only defines, lets, loop variables and macro parameters have values"
        raise ExpressionError(at, f"'{name}' is not defined", hint)
    if isinstance(value, int | float | str):
        return value
    raise ExpressionError(at, f"'{name}' is the operand {operand_text(value)}, not a constant")


def _numbers(at: At, op: str, *values: Constant, whole: bool = False) -> None:
    for value in values:
        if isinstance(value, str):
            raise ExpressionError(at, f"'{op}' needs numbers, found the word '{value}'")
        if whole and not isinstance(value, int):
            raise ExpressionError(at, f"'{op}' needs integers, found {value}")


def _unary(op: str, value: Constant, at: At) -> Constant:
    _numbers(at, op, value, whole=op == "~")
    assert not isinstance(value, str)
    if op == "!":
        return int(not value)
    if op == "~":
        return ~int(value)
    return -value if op == "-" else value


_ARITHMETIC: dict[str, Callable[..., int | float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_INTEGER: dict[str, Callable[[int, int], int]] = {
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def _binary(node: tree.Binary, scope: Scope) -> Constant:
    op, at = node.op, node.at
    if op in ("&&", "||"):
        first = truth(node.left, scope)
        return int(truth(node.right, scope) if first == (op == "&&") else first)
    if op in ("==", "!="):
        return int((_compared(node.left, node.right, scope) == _compared(node.right, node.left, scope)) == (op == "=="))
    left, right = _side(node.left, at, scope), _side(node.right, at, scope)
    _numbers(at, op, left, right, whole=op in _INTEGER)
    assert not isinstance(left, str) and not isinstance(right, str)
    if op in ("/", "%"):
        return _divide(op, left, right, at)
    if op in _INTEGER:
        if op in ("<<", ">>") and not 0 <= right <= 128:
            raise ExpressionError(at, f"shift by {right}: the count must be 0..128")
        result: int | float = _INTEGER[op](int(left), int(right))
    else:
        try:
            result = _ARITHMETIC[op](left, right)
        except OverflowError:
            raise ExpressionError(at, f"'{op}' overflows") from None
    if isinstance(result, int) and abs(result) >= _LIMIT:
        raise ExpressionError(at, f"the result of '{op}' does not fit in 128 bits")
    return int(result) if isinstance(result, bool) else result


def _side(node: Expr, at: At, scope: Scope) -> Constant:
    """An operand of the operator at `at`, which is the place to show for a register."""
    if place(node) == (0, 0) and symbolic(node, scope):
        raise ExpressionError(at, f"expected a constant, found {describe(node)}")
    return evaluate(node, scope)


def _compared(node: Expr, other: Expr, scope: Scope) -> Constant:
    """A side of `==`; an unknown name is a word when the other side is a word (`T == f16`)."""
    if isinstance(node, tree.Name) and scope.find(node.name) is None:
        known = not isinstance(other, tree.Name) or scope.find(other.name) is not None
        if known and isinstance(evaluate(other, scope), str):
            return node.name
    return evaluate(node, scope)


def _divide(op: str, left: float, right: float, at: At) -> float:
    if right == 0:
        raise ExpressionError(at, "division by zero")
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if op == "/" else left - quotient * right
    return left / right if op == "/" else math.fmod(left, right)


FUNCTIONS = {"min": 2, "max": 2, "ceildiv": 2, "log2": 1}


def _call(name: str, args: list[Constant], at: At) -> Constant:
    if name not in FUNCTIONS:
        raise ExpressionError(at, f"there is no function '{name}'", nearest(name, FUNCTIONS) or "min max ceildiv log2")
    if len(args) != FUNCTIONS[name]:
        raise ExpressionError(at, f"{name} takes {FUNCTIONS[name]} arguments, found {len(args)}")
    _numbers(at, name, *args, whole=name == "ceildiv")
    numbers = [arg for arg in args if not isinstance(arg, str)]
    if name == "ceildiv":
        if numbers[1] == 0:
            raise ExpressionError(at, "division by zero")
        return -(-numbers[0] // numbers[1])
    if name == "log2":
        return _log2(numbers[0], at)
    return min(numbers) if name == "min" else max(numbers)


def _log2(value: float, at: At) -> float:
    if value <= 0:
        raise ExpressionError(at, f"log2 of {value}")
    if isinstance(value, float):
        return math.log2(value)
    if value & (value - 1):
        raise ExpressionError(at, f"log2 of {value}, which is not a power of two")
    return value.bit_length() - 1


# ---- names ----------------------------------------------------------------------------------------


def splice(word: Spelling, scope: Scope) -> str:
    """The text of an identifier with its spliced values."""
    if isinstance(word, str):
        return word
    return "".join(part if isinstance(part, str) else _spliced(part, word, scope) for part in word.parts)


def _spliced(part: Expr, word: tree.Word, scope: Scope) -> str:
    value = scope.find(part.name) if isinstance(part, tree.Name) else None
    if isinstance(value, Sym):
        return value.name
    if isinstance(value, Reg):
        return value.name.removeprefix("%")
    constant = evaluate(part, scope)
    if isinstance(constant, float) or (isinstance(constant, int) and constant < 0):
        raise ExpressionError(word.at, f"{constant} cannot be part of a name")
    return str(constant)


def symbolic(node: Expr, scope: Scope) -> bool:
    """Whether `node` stands for a register, an address, a symbol, ..., and not for a constant."""
    match node:
        case tree.Name(name):
            value = scope.find(name)
            return value is None or not isinstance(value, int | float | str)
        case tree.Word():
            return not isinstance(scope.find(splice(node, scope)), int | float | str)
        case tree.Group(items):
            return len(items) != 1 or symbolic(items[0], scope)
        case tree.Unary(_, item):
            return symbolic(item, scope)
        case tree.Binary("+" | "-" | "|", left, right):
            return symbolic(left, scope) or symbolic(right, scope)
        case tree.Choice(test, yes, no):
            return symbolic(yes if truth(test, scope) else no, scope)
        case tree.Call("generic", _):
            return True
        case tree.Binary() | tree.Call() | Int() | Float() | Str():
            return False
    return True
