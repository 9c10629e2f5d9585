"""A scalar `VectorBuilder`: the operations of an emission on exact single values.

Where an operation *is* its formula - the polynomials behind MUFU - the emission is the specification, and
`meaning_of(emit)` evaluates it on one lane with the correctly rounded arithmetic of `isa.bits`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from isa import bits
from isa.bits import F32, M32, signed


@dataclass(frozen=True, slots=True)
class Lane:
    """One value: its type ("u32", "f32" or "pred") and its bits."""

    type: str
    value: int


class ScalarLanes:
    """The f32, u32 and predicate part of `isa.micro.VectorBuilder` on one lane."""

    def const(self, value: float, type: str = "u32") -> Lane:
        if type == "f32":
            return Lane(type, int.from_bytes(struct.pack("<f", value), "little"))
        return Lane(type, int(value) & M32)

    def bits(self, x: Lane, type: str) -> Lane:
        return Lane(type, x.value)

    def add(self, x: Lane, y: Lane) -> Lane:
        return Lane(x.type, x.value + y.value & M32)

    def sub(self, x: Lane, y: Lane) -> Lane:
        return Lane(x.type, x.value - y.value & M32)

    def and_(self, x: Lane, y: Lane) -> Lane:
        return Lane(x.type, x.value & y.value)

    def or_(self, x: Lane, y: Lane) -> Lane:
        return Lane(x.type, x.value | y.value)

    def xor(self, x: Lane, y: Lane) -> Lane:
        return Lane(x.type, x.value ^ y.value)

    def shl(self, x: Lane, n: Lane) -> Lane:
        return Lane(x.type, x.value << n.value & M32)

    def lshr(self, x: Lane, n: Lane) -> Lane:
        return Lane(x.type, x.value >> n.value)

    def ashr(self, x: Lane, n: Lane) -> Lane:
        return Lane(x.type, signed(x.value, 32) >> n.value & M32)

    def icmp(self, cmp: str, x: Lane, y: Lane, signed: bool = False) -> Lane:
        p, q = (bits.signed(z.value, 32) if signed else z.value for z in (x, y))
        return Lane("pred", int({"==": p == q, "!=": p != q, "<": p < q, "<=": p <= q, ">": p > q, ">=": p >= q}[cmp]))

    def fcmp(self, cmp: str, x: Lane, y: Lane, ordered: bool = True) -> Lane:
        outcome = bits.compare(F32, x.value, y.value)
        wanted = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}[cmp]
        return Lane("pred", int(outcome in wanted + ("" if ordered else "?")))

    def isnan(self, x: Lane) -> Lane:
        return Lane("pred", int(bits.is_nan(F32, x.value)))

    def select(self, p: Lane, x: Lane, y: Lane) -> Lane:
        return x if p.value else y

    def fadd(self, x: Lane, y: Lane) -> Lane:
        return Lane("f32", bits.add(F32, x.value, y.value))

    def fsub(self, x: Lane, y: Lane) -> Lane:
        return Lane("f32", bits.sub(F32, x.value, y.value))

    def fmul(self, x: Lane, y: Lane) -> Lane:
        return Lane("f32", bits.mul(F32, x.value, y.value))

    def fdiv(self, x: Lane, y: Lane) -> Lane:
        return Lane("f32", bits.div(F32, x.value, y.value))

    def fma(self, x: Lane, y: Lane, z: Lane) -> Lane:
        return Lane("f32", bits.fma(F32, x.value, y.value, z.value))

    def fabs(self, x: Lane) -> Lane:
        return Lane("f32", bits.magnitude(F32, x.value))

    def fneg(self, x: Lane) -> Lane:
        return Lane("f32", x.value ^ F32.sign)

    def from_int(self, x: Lane, type: str, signed: bool) -> Lane:
        return Lane(type, bits.from_integer(F32, bits.signed(x.value, 32) if signed else x.value))

    def call(self, name: str, x: Lane) -> Lane:
        if name == "sqrt":
            return Lane("f32", bits.sqrt(F32, x.value))
        value = bits.round_integral(F32, x.value, {"rint": "rn", "floor": "rm", "ceil": "rp", "trunc": "rz"}[name])
        if value is None:
            return x
        return Lane("f32", bits.from_integer(F32, value) | (x.value & F32.sign))


def meaning_of(emit: Callable[..., Any]) -> Callable[..., int]:
    """The scalar meaning of an emission on f32 operands with an f32 result."""
    builder = ScalarLanes()
    return lambda *xs: int(emit(builder, *(Lane("f32", x) for x in xs)).value)
