"""Raw memory for Numba code: loads and stores at int64 addresses, and the LLVM phrases behind them.

Array arguments cost reference counting on every call (docs/speed.md), so the units work on addresses.
Nothing here checks bounds: a caller proves its addresses first.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

I8, I16, I32, I64 = (ir.IntType(width) for width in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()


def vector(element: ir.Type, lanes: int) -> ir.Type:
    return ir.VectorType(element, lanes)


def splat(type: ir.Type, value: float) -> ir.Constant:
    """The constant vector of `type` with `value` in every lane."""
    return ir.Constant(type, [value] * type.count)


def offset(b: ir.IRBuilder, address: Any, nbytes: int) -> Any:
    return b.add(address, ir.Constant(I64, nbytes))


def load(b: ir.IRBuilder, address: Any, type: ir.Type, align: int) -> Any:
    return b.load(b.inttoptr(address, type.as_pointer()), align=align)


def store(b: ir.IRBuilder, value: Any, address: Any, align: int) -> None:
    b.store(value, b.inttoptr(address, value.type.as_pointer()), align=align)


def shuffle(b: ir.IRBuilder, x: Any, y: Any, lanes: Sequence[int]) -> Any:
    """Lanes of x followed by y, picked by number."""
    return b.shuffle_vector(x, y, ir.Constant(vector(I32, len(lanes)), list(lanes)))


def pick(b: ir.IRBuilder, x: Any, lanes: Sequence[int]) -> Any:
    return shuffle(b, x, ir.Constant(x.type, ir.Undefined), lanes)


def call(b: ir.IRBuilder, name: str, result: ir.Type, *operands: Any) -> Any:
    """Call an LLVM intrinsic function by its full name."""
    type = ir.FunctionType(result, [x.type for x in operands])
    return b.call(cgutils.get_or_insert_function(b.module, type, name), operands)


@intrinsic
def load_u16(typing, address):  # type: ignore[no-untyped-def]
    """The uint16 at an address, as int64."""
    return types.int64(types.int64), lambda ctx, b, sig, args: b.zext(load(b, args[0], I16, 2), I64)


@intrinsic
def load_i64(typing, address):  # type: ignore[no-untyped-def]
    """The int64 at an address."""
    return types.int64(types.int64), lambda ctx, b, sig, args: load(b, args[0], I64, 8)


@intrinsic
def store_u16(typing, address, value):  # type: ignore[no-untyped-def]
    """Store the low 16 bits of an int64 at an address."""

    def emit(ctx, b, sig, args):  # type: ignore[no-untyped-def]
        store(b, b.trunc(args[1], I16), args[0], 2)
        return ctx.get_dummy_value()

    return types.void(types.int64, types.int64), emit
