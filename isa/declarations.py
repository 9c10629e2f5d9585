"""Declarations: `.reg`, variables, kernel parameters and performance directives, evaluated."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator

from isa import tree
from isa.errors import nearest
from isa.expressions import ExpressionError, NotImplementedHere, Scope, integer, splice
from isa.names import WIDTHS
from isa.resolve import operand
from isa.syntax import Operand, Param, Pos, RegDecl, VarDecl, Vec
from isa.tree import At

Place = Callable[[At], Pos]
# Performance directives that the emulator reads: most numbers, and an example of them; others it ignores.
LIMITS = {
    "maxntid": (3, "128, 1, 1"),
    "reqntid": (3, "128, 1, 1"),
    "maxnreg": (1, "168"),
    "minnctapersm": (1, "2"),
    "reqnctapercluster": (3, "2, 1, 1"),
    "maxclusterrank": (1, "8"),
}
OTHER_LIMITS = (
    "maxnctapersm", "noreturn", "pragma", "explicitcluster", "blocksareclusters", "abi_preserve", "abi_preserve_control",
)  # fmt: skip


def registers(raw: tree.Declaration, scope: Scope, pos: Pos) -> RegDecl:
    """`.reg .f32 %s<64>, %x;`"""
    names = []
    for name in raw.names:
        if name.dims or name.init is not None:
            raise ExpressionError(name.at, "a register has no dimensions and no initial value", "write %r<8>")
        count = None if name.many is None else integer(name.many, scope, "the number of registers")
        if count is not None and count < 0:
            raise ExpressionError(name.at, f"the number of registers is {count}")
        names.append((splice(name.name, scope), count))
    return RegDecl(_type(raw, scope), tuple(names), pos)


def variables(raw: tree.Declaration, scope: Scope, place: Place) -> Iterator[VarDecl]:
    """`.shared .align 16 .b8 tile[4096];`; a variable of its own for every name."""
    kind = _type(raw, scope)
    align = _align(raw.words, scope, raw.at) or type_bytes(kind)
    for name in raw.names:
        init = () if name.init is None else tuple(_flat(operand(name.init, scope, kind)))
        count = _count(name, scope, -(-len(init) // int((re.match(r"v(\d)", kind) or "11")[1])))
        yield VarDecl(raw.space, kind, splice(name.name, scope), count, align, raw.linkage, init, place(name.at))


def kernel_params(raws: tuple[tree.Declaration, ...], scope: Scope, place: Place) -> tuple[Param, ...]:
    """`.param .u64 .ptr .global .align 16 p, .param .align 64 .b8 map[128]`; the alignment behind
    `.ptr` is that of what it points to, and stays an attribute."""
    params = []
    for raw in raws:
        name = raw.names[0]
        pointer = raw.words.index("ptr") if "ptr" in raw.words else len(raw.words)
        own, rest = raw.words[:pointer], raw.words[pointer:]
        kind = _type(tree.Declaration("", "param", own, (), raw.at), scope)
        attributes = tuple(
            f"{word[0]} {integer(word[1], scope, 'an alignment')}" if isinstance(word, tuple) else splice(word, scope)
            for word in rest
        )
        count = _count(name, scope, 0) if name.dims else None
        align = _align(own, scope, raw.at) or type_bytes(kind)
        params.append(Param(kind, splice(name.name, scope), count, align, place(name.at), attributes))
    return tuple(params)


def performance(raws: Iterable[tree.RawDirective], scope: Scope) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """`.reqntid 384, 1, 1` and its like."""
    return tuple(_limit(raw, scope) for raw in raws)


def _limit(raw: tree.RawDirective, scope: Scope) -> tuple[str, tuple[int, ...]]:
    """One performance directive; those that the emulator reads have 1 to `LIMITS` positive numbers."""
    name = splice(raw.name, scope)
    values = tuple(integer(arg, scope, f".{name}") for arg in raw.args)
    most, example = LIMITS.get(name, (0, ""))
    if not most and name not in OTHER_LIMITS:
        known = [f".{n}" for n in (*LIMITS, *OTHER_LIMITS)]
        hint = nearest(f".{name}", known) or f"known: {', '.join(known)}"
        raise ExpressionError(raw.at, f"'.{name}' is no directive of a kernel", hint)
    if most and not 1 <= len(values) <= most:
        needed = "1 number" if most == 1 else f"1 to {most} numbers"
        raise ExpressionError(raw.at, f".{name} needs {needed}, found {len(values)}", f"write .{name} {example}")
    if most and min(values) < 1:
        raise ExpressionError(raw.at, f".{name} {min(values)} is not positive", f"write .{name} {example}")
    return name, values


def type_bytes(kind: str) -> int:
    """Bytes of a PTX type, which are its natural alignment: 4 for `f32`, 16 for `v4.f32`."""
    *vector, element = kind.split(".")
    bits = re.search(r"(\d+)(x2)?$", element)
    size = 1 if bits is None else int(bits[1]) // 8 * (2 if bits[2] else 1)
    return max(size, 1) * (int(vector[0][1:]) if vector else 1)


def _type(raw: tree.Declaration, scope: Scope) -> str:
    """The type without dots in front: `f32`, `v4.f32`."""
    words = [splice(word, scope) for word in raw.words if not isinstance(word, tuple)]
    if not words or len(words) > 2 or (len(words) == 2 and words[0] not in ("v2", "v4")):
        raise ExpressionError(raw.at, f".{raw.space} needs one type, found {len(words)}", f"write .{raw.space} .b32 x;")
    if words[-1] in ("texref", "samplerref", "surfref"):
        hint = "use ld.global, or bulk copies with a tensor map (cp.async.bulk.tensor)"
        raise NotImplementedHere(raw.at, "textures and surfaces are not implemented", hint)
    known = [kind for kind in WIDTHS if kind != "pred" or raw.space == "reg"]
    if words[-1] not in known:
        hint = nearest(words[-1], known) or "types are .b32, .u64, .f32, ..."
        raise ExpressionError(raw.at, f".{raw.space} has no type .{words[-1]}", hint)
    return ".".join(words)


def _align(words: tuple[tree.Spelling | tuple[str, tree.Expr], ...], scope: Scope, at: At) -> int:
    for word in words:
        if isinstance(word, tuple):
            value = integer(word[1], scope, "an alignment")
            if value < 1 or value & value - 1:
                raise ExpressionError(at, f"the alignment {value} is not a power of two", "write .align 16")
            return value
    return 0


def _count(name: tree.Declarator, scope: Scope, initial: int) -> int | None:
    """Elements of an array; None for `x[]` without initial values."""
    if name.many is not None:
        raise ExpressionError(name.at, "only registers are declared with <n>", "write x[n] for an array")
    sizes = [None if dim is None else integer(dim, scope, "the size of an array") for dim in name.dims]
    known = [size for size in sizes if size is not None]
    if any(size < 0 for size in known):
        raise ExpressionError(name.at, "the size of an array is negative")
    if len(known) < len(sizes):
        return initial or None
    return math.prod(known)


def _flat(value: Operand) -> Iterator[Operand]:
    if isinstance(value, Vec):
        for item in value.items:
            yield from _flat(item)
    else:
        yield value
