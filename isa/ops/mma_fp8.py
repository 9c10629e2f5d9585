"""`mma.sync` of 8-bit floats (PTX ISA 9.7.14.5): no tensor-core kind on Hopper, but what `ptxas` makes of it there.

Operands become f16, exactly; one HMMA adds the products of the lower two bytes of every register from zero, a second one those of
the upper two, and an ordinary addition adds C.  SASS of ptxas 13.0; equal to an H200 in every bit (tests/golden/numerics).
"""

from __future__ import annotations

from isa.ops.float32 import FADD
from isa.ops.fp8 import HOPPER, UNPACK
from isa.ops.half import ARITH
from isa.ops.mma import mma_op, mma_word, operand_types, results
from isa.registry import Const, Emitter, Match, Value, instruction

_TYPES = "{e4m3,e5m2}.{e4m3,e5m2}"
_OPERANDS = "{d}, {a}, {b}, {c};"


def _halves(e: Emitter, type: str, registers: list[Value], high: bool) -> list[Value]:
    """The lower or upper two bytes of registers, as pairs of f16."""
    pairs: list[Value] = []
    for register in registers:
        pairs.append(e.tmp())
        e(UNPACK[type, high], pairs[-1], register)
    return pairs


@instruction(
    f"mma.sync.aligned.m16n8k32.row.col.f32.{_TYPES}.f32 {_OPERANDS}", types=operand_types("f32", 4, 4), targets=HOPPER
)
@instruction(
    f"mma.sync.aligned.m16n8k16.row.col.f32.{_TYPES}.f32 {_OPERANDS}", types=operand_types("f32", 4, 2), targets=HOPPER
)
@instruction(
    f"mma.sync.aligned.m16n8k32.row.col.f16.{_TYPES}.f16 {_OPERANDS}", types=operand_types("b32", 2, 4), targets=HOPPER
)
@instruction(
    f"mma.sync.aligned.m16n8k16.row.col.f16.{_TYPES}.f16 {_OPERANDS}", types=operand_types("b32", 2, 2), targets=HOPPER
)
def mma_fp8(e: Emitter, m: Match) -> None:
    """D (16 x 8) = A (16 x K) * B (K x 8) + C; sums are in the type of D, C is added last."""
    k = int(m.mods[2].split("k")[1]) // 2
    d_type, a_type, b_type, _ = m.types
    half = d_type == "f16"
    word = mma_word(k, "f16", "f16", d_f16=half, c_f16=half)
    total: list[Value] = [Const(0)] * len(m.c)
    for high in (False, True):
        operands = [*_halves(e, a_type, m.a, high), *_halves(e, b_type, m.b, high), *total]
        total = [e.tmp() for _ in m.c]
        e(mma_op(k, "f16"), total, operands, imm=word)
    add = ARITH["add", "f16"][0] if half else FADD
    for d, c, value in zip(results(e, m.d), m.c, total, strict=True):
        e(add, d, c, value)
