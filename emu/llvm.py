"""LLVM phrases for the units that emit their own vector code on raw addresses (int64).

Nothing here checks bounds: a caller proves its addresses first.  Scalar loads and stores for compiled
Python are in emu.raw, the 32-lane vectors of micro-operations in emu.vector.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir
from numba.core import cgutils

I8, I16, I32, I64 = (ir.IntType(width) for width in (8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
# float32 values of the host's widest vector register; with AVX-512 there are 32 of these, else 16.
FLOATS = 16 if binding.get_host_cpu_features().get("avx512f") else 8


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


def loop_by_8(
    b: ir.IRBuilder, k: Any, start: Sequence[Any], body: Callable[[Any, list[Any]], Sequence[Any]]
) -> Sequence[Any]:
    """Emit a loop over steps 0, 8, ... below k; `body(step, values) -> values`; returns the last values."""
    before, loop, end = b.block, b.append_basic_block("steps"), b.append_basic_block("end")
    b.branch(loop)
    b.position_at_end(loop)
    step = b.phi(I64)
    phis = [b.phi(x.type) for x in start]
    new = body(step, phis)
    following = b.add(step, I64(8))
    step.add_incoming(I64(0), before)
    step.add_incoming(following, loop)
    for phi, first, last in zip(phis, start, new, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(last, loop)
    b.cbranch(b.icmp_signed("<", following, k), loop, end)
    b.position_at_end(end)
    return new
