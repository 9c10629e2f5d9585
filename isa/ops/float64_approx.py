"""Approximations in double precision (PTX ISA 9.7.3): rcp.approx.ftz.f64, rsqrt.approx.f64, rsqrt.approx.ftz.f64.

MUFU.RCP64H and MUFU.RSQ64H work on upper words.  rsqrt.approx.f64 goes on as the code of ptxas does, after which their rounding,
which is not known, hardly shows.
"""

from __future__ import annotations

from fractions import Fraction

from isa import bits
from isa.bits import F64, M32
from isa.ops.compare import ISETP
from isa.ops.division import MUFU_RCP64H, MUFU_RSQ64H
from isa.ops.float64 import DFMA, DMUL, DNEG
from isa.ops.integer import IADD3
from isa.ops.move import MOV
from isa.ops.select import SEL
from isa.registry import Const, Emitter, Match, Value, instruction


@instruction("rcp.approx.ftz.f64 d, a;", "rsqrt.approx.ftz.f64 d, a;")
def upper_word(e: Emitter, m: Match) -> None:
    """d = about 1 / a or 1 / sqrt(a) from a's upper word; d's lower word is 0."""
    e(MUFU_RCP64H if m.form.opcode == "rcp" else MUFU_RSQ64H, e.hi(m.d), e.hi(m.a))
    e(MOV, e.lo(m.d), Const(0))


def _double(value: float) -> Const:
    return Const(bits.from_fraction(F64, Fraction(value)), "d")


def _selected(e: Emitter, p: Value, a: Value, b: Value) -> Value:
    d = e.tmp("d")
    for half in (e.lo, e.hi):
        e(SEL, half(d), half(a), half(b), p)
    return d


@instruction("rsqrt.approx.f64 d, a;")
def rsqrt(e: Emitter, m: Match) -> None:
    """d = 1 / sqrt(a): one step of the third order behind MUFU.RSQ64H, subnormals scaled by 2^54, as ptxas has it."""
    small, size, up = e.tmp("p"), e.tmp(), e.tmp("d")
    e(ISETP["lt", "u32"], small, e.hi(m.a), Const(0x00100000))
    e(DMUL, up, m.a, _double(2.0**54))
    x, y = _selected(e, small, up, m.a), e.tmp("d")
    e(MUFU_RSQ64H, e.hi(y), e.hi(x))
    e(MOV, e.lo(y), Const(0))
    minus, square, error, factor, step, better = (e.tmp("d") for _ in range(6))
    e(DNEG, minus, y)
    e(DMUL, square, y, minus)
    e(DFMA, error, x, square, _double(1.0))
    e(DFMA, factor, error, _double(0.375), _double(0.5))
    e(DMUL, step, y, error)
    e(DFMA, better, factor, step, y)
    special = e.tmp("p")  # zero, infinity, NaN and below zero: what MUFU.RSQ64H says of them is exact
    e(IADD3, size, e.hi(x), Const(-0x00100000 & M32))
    e(ISETP["ge", "u32"], special, size, Const(0x7FE00000))
    result, down = _selected(e, special, y, better), e.tmp("d")
    e(DMUL, down, result, _double(2.0**27))
    found = _selected(e, small, down, result)
    for half in (e.lo, e.hi):
        e(MOV, half(m.d), half(found))
