"""What the words of an operand stand for: registers, variables, constants and their types; complaints about them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

from isa.errors import nearest
from isa.registry import Const, Quad, Value, VReg
from isa.syntax import Addr, Float, Int, Neg, Not, Operand, Pos, Reg, Sink, Sym, TensorAddr, Vec

WIDTHS = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "e4m3": 8, "e5m2": 8, "e4m3x2": 16, "e5m2x2": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "tf32": 32, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32,
    "b64": 64, "u64": 64, "s64": 64, "f64": 64, "f32x2": 64, "b128": 128,
}  # fmt: skip
# Types whose registers are declared as plain bits; ptxas takes .f16 registers only where the type is f16 or f16x2.
PACKED = frozenset(("tf32", "bf16", "bf16x2", "e4m3", "e5m2", "e4m3x2", "e5m2x2", "u16x2", "s16x2", "f32x2"))


class OperandError(Exception):
    """Why an operand does not fit; `rank` raises errors that surely name the author's mistake.

    `word` is the name that is wrong, whatever the instruction around it; `unsupported` marks what is PTX, but not
    implemented.
    """

    def __init__(self, message: str, hint: str = "", rank: int = 0, word: str = "", unsupported: bool = False) -> None:
        super().__init__(message)
        self.unsupported = unsupported
        self.hint = hint
        self.rank = rank
        self.word = word


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable or parameter: its state space and its byte address there."""

    name: str
    space: str  # "shared", "global", "const", "local", "param"
    address: int
    words: tuple[VReg, ...] = ()  # of a parameter of a function: where it is instead


class Names(Protocol):
    """The scope of an instruction."""

    target: str

    def register(self, name: str) -> tuple[VReg | Quad, str] | None: ...
    def symbol(self, name: str) -> Symbol | None: ...
    def label(self, name: str) -> str | None: ...
    def targets(self, name: str) -> list[str] | None: ...
    def function(self, name: str) -> bool: ...
    def special(self, name: str) -> bool: ...
    def known(self) -> list[str]: ...
    def source_line(self, pos: Pos) -> str: ...
    def shared(self, address: int) -> Value: ...
    def wide(self, low: Value) -> Value: ...


def named(node: Operand, names: Names) -> Operand:
    """A register that was declared without a percent sign looks like a name to the parser; WARP_SZ is a constant."""
    if isinstance(node, Sym) and node.name == "WARP_SZ" and names.symbol(node.name) is None:
        return Int(32)
    return (
        Reg(node.name) if isinstance(node, Sym) and not node.offset and names.register(node.name) is not None else node
    )


def describe(node: Operand) -> str:
    """A few words for messages."""
    match node:
        case Reg(name):
            return f"the register {name}"
        case Sym(name):
            return f"the name '{name}'"
        case Int(value):
            return f"the constant {value}"
        case Float(value):
            return f"the constant {value}"
        case Addr() | TensorAddr():
            return "an address in brackets"
        case Vec(items):
            return f"a vector of {len(items)}"
        case Not() | Neg():
            return "a negated operand"
        case Sink():
            return "'_'"
        case _:
            return "a pair" if hasattr(node, "second") else "a string"


def word_of(node: Operand | None) -> str:
    """The word that an operand, or the base of an address, is written with; empty when it has none of its own."""
    match node:
        case Reg(name) | Sym(name):
            return name
        case Int(value):
            return str(value)
        case Addr(base) | TensorAddr(base):
            return word_of(base)
        case Not(item) | Neg(item):
            return word_of(item)
        case _:
            return ""


def not_hidden(node: Reg, names: Names) -> None:
    """As ptxas: where a register is called %tid, `%tid.x` is no component of the special register any more."""
    base, dot, _ = node.name.partition(".")
    if dot and names.register(base) is not None:
        message = f"{node.name} cannot be read where a register is declared as {base}"
        raise OperandError(message, f"give the register {base} another name", 200, node.name)


def undeclared(name: str, kind: str, names: Names) -> OperandError:
    """A register that does not exist where the operand is a `.kind`."""
    declared = f"b{WIDTHS[kind]}" if kind in PACKED else kind
    hint = nearest(name, names.known()) or f"declare it: .reg .{declared} {name};"
    return OperandError(f"{name} is not declared", hint, 100, name)


def register_of(node: Reg, names: Names, kind: str, destination: bool = False) -> tuple[VReg | Quad, str]:
    found = names.register(node.name)
    if found is not None:
        return found
    if names.special(node.name):
        if destination:
            raise OperandError(f"the special register {node.name} cannot be written", "", 50)
        raise OperandError(f"{node.name} can only be read by mov", "mov it to a register first", 50)
    raise undeclared(node.name, kind, names)


def symbol_of(node: Sym, names: Names) -> Symbol:
    symbol = names.symbol(node.name)
    if symbol is None:
        hint = nearest(node.name, names.known()) or "declare the variable"
        raise OperandError(f"'{node.name}' is not declared", hint, 100, node.name)
    return symbol


def compatible(kind: str, declared: str, relaxed: bool) -> bool:
    """Whether a register declared `.declared` may stand where `.kind` is wanted."""
    if declared == "pred" or kind == "pred":
        return declared == kind
    if WIDTHS[declared] != WIDTHS[kind]:
        floats = declared[0] == "f" and kind[0] == "f"
        if not relaxed or floats or WIDTHS[declared] < WIDTHS[kind] or declared == "b128":
            return False
    if declared[0] == "b" or kind[0] == "b" and kind not in PACKED:
        return True
    if kind in PACKED:
        return False
    return (declared[0] == "f") == (kind[0] == "f")


def constant(node: Int | Float, kind: str) -> Const:
    """A constant as bits of `kind`; integers wrap to the width."""
    width = WIDTHS[kind]
    row = "d" if width == 64 else "r"
    if isinstance(node, Int):
        if kind in ("f32", "f64"):
            raise OperandError(f"a .{kind} operand wants a floating constant", f"write {node.value}.0", 1)
        return Const(node.value & ((1 << width) - 1), row)
    if kind == "f64":
        return Const(struct.unpack("<Q", struct.pack("<d", node.value))[0], "d")
    if kind == "f32":
        bits = node.bits if node.width == 32 and node.bits is not None else _f32_bits(node.value)
        return Const(bits, "r")
    if kind in ("b32", "b64") and node.bits is not None and node.width == width:
        return Const(node.bits, row)
    raise OperandError(f"a .{kind} operand takes no floating constant", rank=1)


def _f32_bits(value: float) -> int:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return int(struct.unpack("<I", packed)[0])
