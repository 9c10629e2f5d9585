"""Dot products of bytes: dp4a, dp2a (PTX ISA 9.7.1.24, 9.7.1.25)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isa.bits import M32, signed
from isa.micro import Micro, VectorBuilder, lane
from isa.registry import Emitter, Match, instruction

SIGNED_A, SIGNED_B, HIGH = 1, 2, 4  # bits of the immediate


def _places(count: int) -> Iterator[tuple[int, int]]:
    """Where the parts of a (of 32 / count bits) and the bytes of b begin."""
    return ((k * 32 // count, 8 * k) for k in range(count))


def _dot(count: int, doc: str) -> Micro:
    width = 32 // count

    def meaning(a: int, b: int, c: int, imm: int) -> int:
        b >>= 16 if imm & HIGH and count == 2 else 0
        for at_a, at_b in _places(count):
            x, y = a >> at_a & (1 << width) - 1, b >> at_b & 255
            x = signed(x, width) if imm & SIGNED_A else x
            c += x * (signed(y, 8) if imm & SIGNED_B else y)
        return c & M32

    def part(v: VectorBuilder, x: Any, at: int, bits: int, is_signed: Any) -> Any:
        top = v.shl(x, v.const(32 - bits - at))
        return v.select(is_signed, v.ashr(top, v.const(32 - bits)), v.lshr(top, v.const(32 - bits)))

    def emit(v: VectorBuilder, a: Any, b: Any, c: Any, imm: Any) -> Any:
        if count == 2:
            b = v.select(v.flag(imm, 2), v.lshr(b, v.const(16)), b)
        for at_a, at_b in _places(count):
            x, y = part(v, a, at_a, width, v.flag(imm, 0)), part(v, b, at_b, 8, v.flag(imm, 1))
            c = v.add(c, v.mul(x, y))
        return c

    return lane(f"IDP.{count}A", "uuui->u", "imad", meaning, emit, doc)


IDP = {
    "dp4a": _dot(4, "c + the products of the bytes of a and b; imm bit 0 a signed, 1 b signed"),
    "dp2a": _dot(2, "c + the halves of a times two bytes of b; imm bit 0 a signed, 1 b signed, 2 b's upper bytes"),
}


@instruction(
    "dp4a.A.B d, a, b, c;",
    "dp2a.HALF.A.B d, a, b, c;",
    sets={"A": ("u32", "s32"), "B": ("u32", "s32"), "HALF": ("lo", "hi")},
    types={"d": "b32", "a": "A", "b": "B", "c": "b32"},
)
def dot(e: Emitter, m: Match) -> None:
    """d = c + the products of the bytes of a and b, or of the halves of a and two bytes of b."""
    imm = (m["A"] == "s32") * SIGNED_A | (m["B"] == "s32") * SIGNED_B | m.has(".hi") * HIGH
    e(IDP[m.form.opcode], m.d, m.a, m.b, m.c, imm=imm)
