"""Matrix products of a warp: `mma.sync` (PTX ISA 9.7.14.5) and `movmatrix`."""

from __future__ import annotations

from isa.micro import Micro, unit
from isa.ops.wgmma import KINDS
from isa.registry import Emitter, Match, Value, instruction

_DOC = "[A, B, C] -> [D]; imm: mma word"
# SASS names by the depth of K in bytes: 32 and 16.
HMMA = {
    32: unit("HMMA.16816", "L->L", "mma32", "mma", f"16-bit or tf32 products, 32 bytes deep: {_DOC}", "collective", "loads"),
    16: unit("HMMA.1688", "L->L", "mma16", "mma", f"16-bit or tf32 products, 16 bytes deep: {_DOC}", "collective", "loads"),
}  # fmt: skip
IMMA = {
    32: unit("IMMA.16832", "L->L", "mma32", "mma", f"products of bytes, 32 deep: {_DOC}", "collective", "loads"),
    16: unit("IMMA.16816", "L->L", "mma16", "mma", f"products of bytes, 16 deep: {_DOC}", "collective", "loads"),
}
MOVM = unit(
    "MOVM.16.MT88", "u->u", "movm", "movmatrix", "the transpose of an 8x8 matrix of 16-bit elements", "collective"
)

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8}


def mma_word(k: int, a: str, b: str, *, d_f16: bool = False, c_f16: bool = False, satfinite: bool = False) -> int:
    """The immediate of HMMA and IMMA (docs/architecture.md 3): bits 0..7 K, 8..11 kind of A, 12..15 of B."""
    return k | KINDS[a] << 8 | KINDS[b] << 12 | d_f16 << 16 | c_f16 << 17 | satfinite << 18


def mma_op(k: int, a: str) -> Micro:
    """The micro-operation of a product of depth `k` on elements of type `a`."""
    return (IMMA if BITS[a] == 8 else HMMA)[k * BITS[a] // 8]


def results(e: Emitter, values: list[Value | None]) -> list[Value]:
    """The registers of D, made up where `_` stands."""
    return [x if x is not None else e.tmp() for x in values]


def operand_types(element: str, count: int, a: int) -> dict[str, str]:
    """Operand kinds: `count` registers of C and D, `a` of A, half as many of B."""
    return dict.fromkeys("dc", f"vec:{element}:{count}") | {"a": f"vec:b32:{a}", "b": f"vec:b32:{a // 2}"}


_OPERANDS = "{d}, {a}, {b}, {c};"


@instruction(
    f"mma.sync.aligned.m16n8k16.row.col.f32.{{f16,bf16}}.{{f16,bf16}}.f32 {_OPERANDS}",
    f"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {_OPERANDS}",
    types=operand_types("f32", 4, 4),
)
@instruction(
    f"mma.sync.aligned.m16n8k8.row.col.f32.{{f16,bf16}}.{{f16,bf16}}.f32 {_OPERANDS}",
    f"mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {_OPERANDS}",
    types=operand_types("f32", 4, 2),
)
@instruction(f"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {_OPERANDS}", types=operand_types("b32", 2, 4))
@instruction(f"mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {_OPERANDS}", types=operand_types("b32", 2, 2))
@instruction(
    f"mma.sync.aligned.m16n8k32.row.col{{.satfinite}}.s32.{{s8,u8}}.{{s8,u8}}.s32 {_OPERANDS}",
    types=operand_types("s32", 4, 4),
)
@instruction(
    f"mma.sync.aligned.m16n8k16.row.col{{.satfinite}}.s32.{{s8,u8}}.{{s8,u8}}.s32 {_OPERANDS}",
    types=operand_types("s32", 4, 2),
)
def mma(e: Emitter, m: Match) -> None:
    """D (16 x 8) = A (16 x K) * B (K x 8) + C, with the fragments of PTX ISA 9.7.14.5.7 to .10."""
    k = int(m.mods[2].split("k")[1])
    d_type, a_type, b_type, _ = m.types
    if a_type != b_type and BITS[a_type] != 8:
        raise e.error(f"A is .{a_type} and B .{b_type}: they must have one type")
    half = d_type == "f16"
    word = mma_word(k, a_type, b_type, d_f16=half, c_f16=half, satfinite=m.has(".satfinite"))
    e(mma_op(k, a_type), results(e, m.d), [*m.a, *m.b, *m.c], imm=word)


@instruction("movmatrix.sync.aligned.m8n8.trans.b16 d, a;", types={"d": "b32", "a": "b32"})
def movmatrix(e: Emitter, m: Match) -> None:
    """d = the transpose of the 8x8 matrix in `a`: lane l has elements 2(l%4), +1 of row l/4 (PTX ISA 9.7.14.5.17)."""
    e(MOVM, m.d, m.a)
