"""What an atomic operation makes of one element: integers and floats as bit patterns (PTX ISA 9.7.13.5)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from emu.compiled import compiled
from emu.raw import ld16, ld32, ld64, st16, st32, st64
from emu.units.common import signed32
from isa.bits import BF16, F16, F32, F64
from isa.ops.atomic import BYTES, OPERATIONS, TYPES

LOWEST = -(1 << 63)
INF32, INF64, INF_F16, INF_BF16 = F32.inf, F64.inf, F16.inf, BF16.inf
NAN32, NAN64, NAN16 = F32.nan, F64.nan - (1 << 64), F16.nan  # as int64; bf16 has the same pattern as f16
SIZES = tuple(BYTES[name] for name in TYPES)
ADD, MIN, MAX, INC, DEC, AND, OR, XOR, EXCH, CAS = range(len(OPERATIONS))
U32, S32, U64, S64, TF32, TF64, TF16, TBF16, TF16X2, TBF16X2, B16, B128 = range(len(TYPES))


# ---- floating-point addition on bits ------------------------------------------------------------------


def _adder(bits: int, kind: Any) -> Any:
    """The IEEE sum of two patterns of `bits` bits, round to nearest even, computed in `kind`."""

    @intrinsic
    def add(typing: Any, x: Any, y: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            integer, i64 = ir.IntType(bits), ir.IntType(64)
            x, y = (builder.bitcast(builder.trunc(a, integer) if bits < 64 else a, kind) for a in args)
            wide = ir.FloatType() if bits == 16 else kind  # 24 bits hold a sum's rounding: rounding twice is harmless
            if bits == 16:
                x, y = builder.fpext(x, wide), builder.fpext(y, wide)
            total = builder.fadd(x, y)
            result = builder.bitcast(builder.fptrunc(total, kind) if bits == 16 else total, integer)
            return builder.zext(result, i64) if bits < 64 else result

        return types.int64(types.int64, types.int64), generate

    return add


add16, add32, add64 = _adder(16, ir.HalfType()), _adder(32, ir.FloatType()), _adder(64, ir.DoubleType())


@compiled
def flushed(x: int) -> int:
    """An f32 pattern with subnormals made zero."""
    return x & 0x80000000 if x & 0x7F800000 == 0 else x


@compiled
def sum32(x: int, y: int, ftz: int) -> int:
    """x + y in f32; NaN is canonical."""
    total = add32(flushed(x), flushed(y)) if ftz else add32(x, y)
    if total & 0x7FFFFFFF > INF32:
        return NAN32
    return flushed(total) if ftz else total


@compiled
def sum64(x: int, y: int) -> int:
    """x + y in f64."""
    total = add64(x, y)
    return NAN64 if total & ~LOWEST > INF64 else total


@compiled
def sum_f16(x: int, y: int) -> int:
    """x + y in f16."""
    total = add16(x, y)
    return NAN16 if total & 0x7FFF > INF_F16 else total


@compiled
def sum_bf16(x: int, y: int) -> int:
    """x + y in bf16."""
    total = add32(x << 16, y << 16)
    if total & 0x7FFFFFFF > INF32:
        return NAN16
    return (total + 0x7FFF + ((total >> 16) & 1)) >> 16


@compiled
def half_extremum(x: int, y: int, inf: int, largest: int) -> int:
    """min or max of 16-bit floats: -0 below +0, one NaN gives the other operand."""
    if x & 0x7FFF > inf:
        return NAN16 if y & 0x7FFF > inf else y
    if y & 0x7FFF > inf:
        return x
    p = -1 - (x & 0x7FFF) if x & 0x8000 else x
    q = -1 - (y & 0x7FFF) if y & 0x8000 else y
    return x if (p > q) == (largest != 0) else y


# ---- one element --------------------------------------------------------------------------------------


@compiled
def half(op: int, bf16: int, x: int, y: int) -> int:
    """add, min or max of one 16-bit float."""
    if op == ADD:
        return sum_bf16(x, y) if bf16 else sum_f16(x, y)
    return half_extremum(x, y, INF_BF16 if bf16 else INF_F16, op == MAX)


@compiled
def floating(op: int, kind: int, x: int, y: int, ftz: int) -> int:
    """The operations on floats."""
    if kind == TF32:
        return sum32(x, y, ftz)
    if kind == TF64:
        return sum64(x, y)
    bf16 = kind == TBF16 or kind == TBF16X2
    low = half(op, bf16, x & 0xFFFF, y & 0xFFFF)
    if kind == TF16 or kind == TBF16:
        return low
    return half(op, bf16, x >> 16, y >> 16) << 16 | low


@compiled
def integer(op: int, kind: int, x: int, y: int) -> int:
    """The operations on integers, before the result is cut to the type's width."""
    if op == ADD:
        return x + y
    if op == AND:
        return x & y
    if op == OR:
        return x | y
    if op == XOR:
        return x ^ y
    if op == INC:
        return 0 if x >= y else x + 1
    if op == DEC:
        return y if x == 0 or x > y else x - 1
    p, q = x, y
    if kind == S32:
        p, q = signed32(x), signed32(y)
    elif kind == U64:
        p, q = x ^ LOWEST, y ^ LOWEST
    return x if (p > q) == (op == MAX) else y


@compiled
def combined(op: int, kind: int, old: int, value: int, wanted: int, ftz: int) -> int:
    """What an element becomes."""
    if op == EXCH:
        return value
    if op == CAS:
        return value if old == wanted else old
    if kind >= TF32 and kind <= TBF16X2:
        return floating(op, kind, old, value, ftz)
    return integer(op, kind, old, value)


# ---- an element in memory -----------------------------------------------------------------------------


@compiled
def load(host: int, size: int) -> int:
    """2, 4 or 8 bytes."""
    return ld64(host) if size == 8 else (ld32(host) if size == 4 else ld16(host))


@compiled
def store(host: int, size: int, value: int) -> None:
    """2, 4 or 8 bytes."""
    if size == 8:
        st64(host, value)
    elif size == 4:
        st32(host, value)
    else:
        st16(host, value)


@compiled
def element(low: int, high: int, at: int, size: int) -> int:
    """The `size` bytes at byte `at` of 16."""
    if size == 8:
        return high if at >= 8 else low
    return ((high if at >= 8 else low) >> (8 * (at & 7))) & ((1 << 8 * size) - 1)
