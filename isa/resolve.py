"""Operands: raw tree in, `isa.syntax` operands out; constants in them are evaluated (`isa.expressions`)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from isa import tree
from isa.expressions import Constant, ExpressionError, Scope, Value, evaluate, integer, place, splice, symbolic, truth
from isa.parser import float_of_bits
from isa.ptx import operand_text
from isa.syntax import Addr, Float, Int, Neg, Not, Operand, Pair, Reg, Sink, Str, Sym, TensorAddr, Vec
from isa.tree import Expr

_TYPE = re.compile(r"[fbsu](\d+)$")
# What may be an address plus a constant: operands of these instructions, initial values of these types.
ADDRESSES = frozenset(("mov", "cvta", "u64", "b64", "s64", "u32", "b32", "s32"))


def operand(node: Expr, scope: Scope, opcode: str = "") -> Operand:
    """The operand that `node` stands for; `opcode`'s last type decides how wide a float is."""
    if isinstance(node, Reg | Int | Sink | Str | Addr | Vec):
        return node
    if not symbolic(node, scope):
        return constant(evaluate(node, scope), node, opcode)
    match node:
        case tree.Name(name):
            return _bound(name, scope)
        case tree.Word():
            text = splice(node, scope)
            return Reg(text) if text.startswith("%") else _bound(text, scope)
        case tree.Vector(items):
            return Vec(tuple(_items(items, scope, opcode)))
        case tree.Address():
            return _address(node, scope)
        case tree.Group(items):
            inner = tuple(operand(item, scope, opcode) for item in items)
            return inner[0] if len(inner) == 1 else Vec(inner)
        case tree.Unary("!", item):
            return Not(operand(item, scope, opcode))
        case tree.Unary("-", item):
            return Neg(operand(item, scope, opcode))
        case tree.Call("generic", (item,)):
            return operand(item, scope, opcode)
        case tree.Binary("+" | "-") if opcode.split(".")[0] in ADDRESSES:
            base, offset = _linear(node, scope)
            if isinstance(base, Sym):
                return Sym(base.name, base.offset + offset)
        case tree.Binary("|", left, right):
            return Pair(operand(left, scope, opcode), operand(right, scope, opcode))
        case tree.Choice(test, yes, no):
            return operand(yes if truth(test, scope) else no, scope, opcode)
    evaluate(node, scope)  # an expression on something that is not constant: it says what
    raise ExpressionError(place(node), "this is not an operand")


def argument(node: Expr, scope: Scope) -> Value:
    """A macro argument: a constant where it is one, else an operand."""
    return operand(node, scope) if symbolic(node, scope) else evaluate(node, scope)


def _bound(name: str, scope: Scope) -> Operand:
    value = scope.find(name)
    assert not isinstance(value, int | float | str)
    return Sym(name) if value is None else value


def constant(value: Constant, node: Expr, opcode: str = "") -> Operand:
    """A constant as an operand: floats get the bits of the instruction's last type."""
    if isinstance(value, int):
        return Int(value)
    if isinstance(value, str):
        return Str(value) if isinstance(node, Str) else Sym(value)
    if isinstance(node, Float) and node.bits is not None:
        return node
    types = [found[1] for part in opcode.split(".") if (found := _TYPE.match(part))]
    wide = bool(types) and types[-1] == "64"
    try:
        return float_of_bits(struct.pack(">d" if wide else ">f", value))
    except OverflowError:
        raise ExpressionError(place(node), f"{value} does not fit in a 32-bit float") from None


def _items(items: tuple[Expr, ...], scope: Scope, opcode: str) -> Iterator[Operand]:
    for item in items:
        if isinstance(item, tree.Range):
            yield from _range(item, scope)
        else:
            yield operand(item, scope, opcode)


def _range(node: tree.Range, scope: Scope) -> Iterator[Operand]:
    """`%s0..%s63`: the registers of one array between two indices, both included."""
    ends = [operand_text(operand(end, scope)) for end in (node.first, node.last)]
    first, last = (re.fullmatch(r"(.*?)(0|[1-9]\d*)", end) for end in ends)
    if not first or not last or first[1] != last[1]:
        raise ExpressionError(node.at, f"'{ends[0]}..{ends[1]}' is not a range of registers", "write {%r0..%r7}")
    low, high = int(first[2]), int(last[2])
    if low > high or high - low >= 4096:
        raise ExpressionError(node.at, f"the range '{ends[0]}..{ends[1]}' is empty or too long")
    for index in range(low, high + 1):
        name = f"{first[1]}{index}"
        yield Reg(name) if name.startswith("%") else Sym(name)


def _address(node: tree.Address, scope: Scope) -> Operand:
    base, offset = _linear(node.base, scope)
    if base is None:
        base, offset = Int(offset), 0
    if node.coords is None:
        return Addr(base, offset)
    coords = operand(node.coords, scope)
    if not isinstance(coords, Vec):
        raise ExpressionError(node.at, "the coordinates of a tensor must be a vector", "write [map, {c0, c1}]")
    return TensorAddr(base, coords, offset)


def _linear(node: Expr, scope: Scope) -> tuple[Operand | None, int]:
    """Base (a register, a symbol, or None) and byte offset of an address."""
    if not symbolic(node, scope):
        return None, integer(node, scope, "an address")
    if isinstance(node, tree.Group) and len(node.items) == 1:
        return _linear(node.items[0], scope)
    if isinstance(node, tree.Binary) and node.op in "+-":
        left, low = _linear(node.left, scope)
        right, high = _linear(node.right, scope)
        if right is not None and (left is not None or node.op == "-"):
            raise ExpressionError(node.at, "an address is one register or symbol, plus or minus a constant")
        return left or right, low + high if node.op == "+" else low - high
    base = operand(node, scope)
    if not isinstance(base, Reg | Sym):
        raise ExpressionError(place(node), f"an address cannot start with {operand_text(base)}")
    return base, 0
