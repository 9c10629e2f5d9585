"""Operand nodes against operand kinds: syntax in, `isa.registry` values out.

The kinds are listed in `isa.registry`.  What `ptxas` takes was tried for each rule: bit types go with
every type of their width, integers with integers, floats with floats; integer constants wrap, a
float operand wants a constant with a point or in `0f` form, and 16-bit floats take no constants.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, Protocol

from isa.errors import nearest
from isa.program import PARAM_BASE
from isa.registry import (
    Address,
    Const,
    Half,
    LocalParam,
    NotPred,
    ParamWord,
    Part,
    PredConst,
    Quad,
    Special,
    Value,
    VReg,
)
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


def convert(node: Operand, kind: str, names: Names, *, destination: bool, relaxed: bool, wide: bool) -> Any:
    """The value of `node` as an operand of `kind`.

    `destination`: only registers and `_` fit.  `relaxed`: registers may be wider than the kind.
    `wide`: a parameter is read as 64 bits.  Raises OperandError.
    """
    node = _named(node, names)
    if kind in ("addr", "global", "local", "const", "shared", "param"):
        return _address(node, kind, names, wide)
    if kind == "tmem":
        return _tensor_memory(node, names)
    if kind == "tensor":
        return _tensor(node, names)
    if kind.startswith("vec"):
        return _vector(node, kind, names, destination, relaxed)
    if kind == "label":
        return _label(node, names)
    if kind == "labels":
        return _targets(node, names)
    if kind == "function":
        return _function(node, names)
    if kind == "arguments":
        return [_argument(item, names, destination) for item in (node.items if isinstance(node, Vec) else (node,))]
    if kind == "imm":
        if not isinstance(node, Int):
            raise OperandError(f"expected a constant, found {describe(node)}")
        return node.value
    if kind == "part":
        return _part(node, names, destination)
    if kind == "special":
        if isinstance(node, Reg) and names.register(node.name) is None and names.special(node.name):
            _not_hidden(node, names)
            return Special(node.name)
        raise OperandError(f"expected a special register, found {describe(node)}")
    if isinstance(node, Vec) and len(node.items) == 1:  # ptxas reads {%r1} as %r1
        node = _named(node.items[0], names)
    if destination and isinstance(node, Sink):
        return None
    if kind == "pred":
        return _predicate(node, names, destination)
    return _scalar(node, "b64" if kind == "desc" else kind, names, destination, relaxed)


def _named(node: Operand, names: Names) -> Operand:
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


def _not_hidden(node: Reg, names: Names) -> None:
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


def _register(node: Reg, names: Names, kind: str, destination: bool = False) -> tuple[VReg | Quad, str]:
    found = names.register(node.name)
    if found is not None:
        return found
    if names.special(node.name):
        if destination:
            raise OperandError(f"the special register {node.name} cannot be written", "", 50)
        raise OperandError(f"{node.name} can only be read by mov", "mov it to a register first", 50)
    raise undeclared(node.name, kind, names)


def _predicate(node: Operand, names: Names, destination: bool) -> Value:
    negated = isinstance(node, Not)
    item = _named(node.item, names) if isinstance(node, Not) else node
    if isinstance(item, Int) and not destination:
        return PredConst(bool(item.value) != negated)
    if not isinstance(item, Reg) or (negated and destination):
        raise OperandError(f"expected a predicate, found {describe(node)}")
    reg, declared = _register(item, names, "pred", destination)
    if not isinstance(reg, VReg) or reg.kind != "p":
        raise OperandError(f"expected a predicate, {item.name} is .{declared}")
    return NotPred(reg) if negated else reg


def _scalar(node: Operand, kind: str, names: Names, destination: bool, relaxed: bool) -> Value:
    if kind != "any" and kind not in WIDTHS:
        raise ValueError(f"'{kind}' is no operand kind")
    if isinstance(node, Reg):
        reg, declared = _register(node, names, "b32" if kind == "any" else kind, destination)
        if kind == "any":
            return reg
        if not compatible(kind, declared, relaxed):
            raise OperandError(f"{node.name} is .{declared}, the operand has type .{kind}", rank=1)
        narrow = isinstance(reg, VReg) and reg.kind == "d" and WIDTHS[kind] <= 32
        return Half(reg, 0) if narrow else reg  # type: ignore[arg-type]
    if destination:
        raise OperandError(f"expected a register, found {describe(node)}")
    if isinstance(node, Int | Float):
        return constant(node, "b32" if kind == "any" else kind)
    if isinstance(node, Sym):
        return _symbol_address(node, kind, names)
    raise OperandError(f"expected a register or a constant, found {describe(node)}")


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


def _part(node: Operand, names: Names, destination: bool) -> Part:
    """A 32-bit operand with a selector behind a dot and perhaps a minus before it."""
    negated = isinstance(node, Neg)
    item = node.item if isinstance(node, Neg) else node
    if isinstance(item, Reg | Sym) and "." in item.name and not names.special(item.name):
        name, _, selector = item.name.partition(".")
        if not re.fullmatch(r"b[0-7]{1,4}|h[0-3]{1,2}", selector):
            message = f"'.{selector}' selects no part of {name}"
            raise OperandError(message, "write .b0 to .b3, .h0 or .h1; of two or four lanes .h10, .b3210", 50)
        return Part(_scalar(Reg(name), "b32", names, destination, False), selector, negated)
    if destination and negated:
        raise OperandError("a destination has no sign", rank=50)
    return Part(_scalar(_named(item, names), "b32", names, destination, False), "", negated)


def _symbol(node: Sym, names: Names) -> Symbol:
    symbol = names.symbol(node.name)
    if symbol is None:
        hint = nearest(node.name, names.known()) or "declare the variable"
        raise OperandError(f"'{node.name}' is not declared", hint, 100, node.name)
    return symbol


def _symbol_address(node: Sym, kind: str, names: Names) -> Value:
    if names.symbol(node.name) is None and names.function(node.name):
        message = f"the address of the function '{node.name}': calls by address are not implemented"
        raise OperandError(message, "call it by name, or branch with brx.idx", 100, node.name, True)
    symbol = _symbol(node, names)
    if symbol.words:
        raise OperandError(f"the address of the function parameter '{node.name}' is not supported", "use ld.param", 50)
    if kind[0] == "f" or (kind != "any" and WIDTHS[kind] < 32):
        raise OperandError(f"the address of '{node.name}' cannot be a .{kind} operand")
    address = symbol.address + node.offset + (PARAM_BASE if symbol.space == "param" else 0)
    wide = kind != "any" and WIDTHS[kind] == 64
    if symbol.space == "shared":
        low = names.shared(address)
        return names.wide(low) if wide else low
    return Const(address if wide else address & 0xFFFFFFFF, "d" if wide else "r")


def _address(node: Operand, kind: str, names: Names, wide: bool) -> Address | ParamWord | LocalParam:
    if not isinstance(node, Addr):
        hint = f"write [{node.name}]" if isinstance(node, Reg | Sym) else ""
        raise OperandError(f"expected an address in brackets, found {describe(node)}", hint)
    narrow = kind in ("shared", "param")  # windows of 32 bits
    base = _named(node.base, names)
    if isinstance(base, Sym):
        symbol = _symbol(base, names)
        if kind == "param":
            if symbol.space != "param":
                raise OperandError(f"'{symbol.name}' is a .{symbol.space} variable, not a parameter", rank=1)
            if symbol.words:
                return LocalParam(symbol.words, node.offset)
            return ParamWord(symbol.address + node.offset, "d" if wide else "r")
        if kind != "addr" and symbol.space != kind:
            raise OperandError(f"'{symbol.name}' is in .{symbol.space}, the instruction accesses .{kind}", rank=1)
        if kind == "addr" and symbol.space == "shared":
            raise OperandError(f"'{symbol.name}' needs a .shared instruction or cvta.shared", rank=1)
        address = symbol.address + (PARAM_BASE if symbol.space == "param" else 0) + node.offset
        if kind == "shared":
            return Address(names.shared(address), 0)
        return Address(Const(address & 0xFFFFFFFF) if narrow else Const(address, "d"), 0)
    if isinstance(base, Int) and kind == "shared":
        return Address(names.shared(base.value + node.offset), 0)
    if isinstance(base, Int) and kind != "param":
        return Address(constant(Int(base.value + node.offset), "b32" if narrow else "b64"), 0)
    if not isinstance(base, Reg):
        raise OperandError(f"an address needs a register, a variable or a constant, found {describe(base)}")
    reg, declared = _register(base, names, "b32" if narrow else "b64")
    if not isinstance(reg, VReg) or reg.kind == "p" or declared[0] == "f" or (not narrow and reg.kind != "d"):
        wanted = "32-bit or 64-bit" if narrow else "64-bit"
        raise OperandError(f"{base.name} is .{declared}, the address needs a {wanted} register", rank=1)
    return Address(Half(reg, 0) if narrow and reg.kind == "d" else reg, node.offset)


def _tensor_memory(node: Operand, names: Names) -> Address:
    """An address in Tensor Memory: `ptxas` wants a 32-bit register in it."""
    if isinstance(node, Addr):
        base = _named(node.base, names)
        if not isinstance(base, Reg):
            raise OperandError(f"a Tensor Memory address needs a 32-bit register, found {describe(base)}", rank=1)
        declared = names.register(base.name)
        if declared is not None and WIDTHS[declared[1]] != 32:
            raise OperandError(f"{base.name} is .{declared[1]}, a Tensor Memory address needs a 32-bit register", rank=1)
    address = _address(node, "shared", names, wide=False)
    assert isinstance(address, Address)
    return address


def _tensor(node: Operand, names: Names) -> tuple[Value, list[Value]]:
    if not isinstance(node, TensorAddr):
        raise OperandError(f"expected a tensor address [map, {{c0, ...}}], found {describe(node)}")
    address = _address(Addr(node.base, node.offset), "addr", names, wide=True)
    assert isinstance(address, Address)
    if address.offset:
        raise OperandError("the address of a tensor map takes no offset here", "add it to the register")
    return address.base, [_scalar(_named(c, names), "b32", names, False, False) for c in node.coords.items]


def _vector(node: Operand, kind: str, names: Names, destination: bool, relaxed: bool) -> list[Value | None]:
    _, element, length = kind.split(":")
    if not isinstance(node, Vec):
        count = f" of {length}" if length else ""
        raise OperandError(f"expected a vector{count}, found {describe(node)}")
    if length and len(node.items) != int(length):
        raise OperandError(f"expected a vector of {length}, found {describe(node)}", rank=1)
    values: list[Value | None] = []
    for item in node.items:
        if isinstance(item, Sink):
            if not destination:
                raise OperandError("'_' cannot stand in a source vector")
            values.append(None)
        else:
            values.append(_scalar(_named(item, names), element, names, destination, relaxed))
    return values


def _label(node: Operand, names: Names) -> str:
    if not isinstance(node, Sym):
        raise OperandError(f"expected a label, found {describe(node)}")
    label = names.label(node.name)
    if label is None:
        raise OperandError(f"there is no label '{node.name}' here", nearest(node.name, names.known()), 100)
    return label


def _targets(node: Operand, names: Names) -> list[str]:
    found = names.targets(node.name) if isinstance(node, Sym) else None
    if found is None:
        raise OperandError(f"expected the label of a .branchtargets, found {describe(node)}", "", 100)
    return found


def _function(node: Operand, names: Names) -> str:
    if not isinstance(node, Sym) or not names.function(node.name):
        hint = (
            nearest(node.name, names.known())
            if isinstance(node, Sym)
            else "calls through registers are not implemented"
        )
        raise OperandError(f"expected the name of a function, found {describe(node)}", hint, 100)
    return node.name


def _argument(node: Operand, names: Names, destination: bool) -> LocalParam | Value:
    node = _named(node, names)
    symbol = names.symbol(node.name) if isinstance(node, Sym) else None
    if symbol is not None and symbol.words:
        return LocalParam(symbol.words)
    return _scalar(node, "any", names, destination, False)
