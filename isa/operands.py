"""Operand nodes against operand kinds: syntax in, `isa.registry` values out.

The kinds are listed in `isa.registry`.  What `ptxas` takes was tried for each rule: bit types go with
every type of their width, integers with integers, floats with floats; integer constants wrap, a
float operand wants a constant with a point or in `0f` form, and 16-bit floats take no constants.
"""

from __future__ import annotations

import re
from typing import Any

from isa.errors import nearest
from isa.names import (
    WIDTHS,
    Names,
    OperandError,
    compatible,
    constant,
    describe,
    named,
    not_hidden,
    register_of,
    symbol_of,
)
from isa.program import PARAM_BASE
from isa.registry import Address, Const, Half, LocalParam, NotPred, ParamWord, Part, PredConst, Special, Value, VReg
from isa.syntax import Addr, Float, Int, Neg, Not, Operand, Reg, Sink, Sym, TensorAddr, Vec


def convert(node: Operand, kind: str, names: Names, *, destination: bool, relaxed: bool, wide: bool) -> Any:
    """The value of `node` as an operand of `kind`.

    `destination`: only registers and `_` fit.  `relaxed`: registers may be wider than the kind.
    `wide`: a parameter is read as 64 bits.  Raises OperandError.
    """
    node = named(node, names)
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
            not_hidden(node, names)
            return Special(node.name)
        raise OperandError(f"expected a special register, found {describe(node)}")
    if isinstance(node, Vec) and len(node.items) == 1:  # ptxas reads {%r1} as %r1
        node = named(node.items[0], names)
    if destination and isinstance(node, Sink):
        return None
    if kind == "pred":
        return _predicate(node, names, destination)
    return _scalar(node, "b64" if kind == "desc" else kind, names, destination, relaxed)


def _predicate(node: Operand, names: Names, destination: bool) -> Value:
    negated = isinstance(node, Not)
    item = named(node.item, names) if isinstance(node, Not) else node
    if isinstance(item, Int) and not destination:
        return PredConst(bool(item.value) != negated)
    if not isinstance(item, Reg) or (negated and destination):
        raise OperandError(f"expected a predicate, found {describe(node)}")
    reg, declared = register_of(item, names, "pred", destination)
    if not isinstance(reg, VReg) or reg.kind != "p":
        raise OperandError(f"expected a predicate, {item.name} is .{declared}")
    return NotPred(reg) if negated else reg


def _scalar(node: Operand, kind: str, names: Names, destination: bool, relaxed: bool) -> Value:
    if kind != "any" and kind not in WIDTHS:
        raise ValueError(f"'{kind}' is no operand kind")
    if isinstance(node, Reg):
        reg, declared = register_of(node, names, "b32" if kind == "any" else kind, destination)
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
    return Part(_scalar(named(item, names), "b32", names, destination, False), "", negated)


def _symbol_address(node: Sym, kind: str, names: Names) -> Value:
    if names.symbol(node.name) is None and names.function(node.name):
        message = f"the address of the function '{node.name}': calls by address are not implemented"
        raise OperandError(message, "call it by name, or branch with brx.idx", 100, node.name, True)
    symbol = symbol_of(node, names)
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
    base = named(node.base, names)
    if isinstance(base, Sym):
        symbol = symbol_of(base, names)
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
    reg, declared = register_of(base, names, "b32" if narrow else "b64")
    if not isinstance(reg, VReg) or reg.kind == "p" or declared[0] == "f" or (not narrow and reg.kind != "d"):
        wanted = "32-bit or 64-bit" if narrow else "64-bit"
        raise OperandError(f"{base.name} is .{declared}, the address needs a {wanted} register", rank=1)
    return Address(Half(reg, 0) if narrow and reg.kind == "d" else reg, node.offset)


def _tensor_memory(node: Operand, names: Names) -> Address:
    """An address in Tensor Memory: `ptxas` wants a 32-bit register in it."""
    if isinstance(node, Addr):
        base = named(node.base, names)
        if not isinstance(base, Reg):
            raise OperandError(f"a Tensor Memory address needs a 32-bit register, found {describe(base)}", rank=1)
        declared = names.register(base.name)
        if declared is not None and WIDTHS[declared[1]] != 32:
            raise OperandError(
                f"{base.name} is .{declared[1]}, a Tensor Memory address needs a 32-bit register", rank=1
            )
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
    return address.base, [_scalar(named(c, names), "b32", names, False, False) for c in node.coords.items]


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
            values.append(_scalar(named(item, names), element, names, destination, relaxed))
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
    node = named(node, names)
    symbol = names.symbol(node.name) if isinstance(node, Sym) else None
    if symbol is not None and symbol.words:
        return LocalParam(symbol.words)
    return _scalar(node, "any", names, destination, False)
