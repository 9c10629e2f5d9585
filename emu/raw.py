"""Raw memory access for the compiled core: loads and stores at checked 64-bit host addresses.

Array arguments cost reference counting on every call of a compiled helper; addresses do not.  Every
emulated address is checked by the unit that translates it, so what arrives here is inside an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

LANES = 32


def _load(bits: int) -> Any:
    """A load of `bits` bits, zero-extended to int64."""
    llvm_type = ir.IntType(bits)

    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[0], llvm_type.as_pointer()))
            value.align = 1
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return types.int64(types.int64), codegen

    return load


def _store(bits: int) -> Any:
    """A store of the low `bits` bits of an int64."""
    llvm_type = ir.IntType(bits)

    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = args[1] if bits == 64 else builder.trunc(args[1], llvm_type)
            st = builder.store(value, builder.inttoptr(args[0], llvm_type.as_pointer()))
            st.align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return store


ld8, ld16, ld32, ld64 = (_load(n) for n in (8, 16, 32, 64))
st8, st16, st32, st64 = (_store(n) for n in (8, 16, 32, 64))


@intrinsic
def copy(typingctx: Any, dst: Any, src: Any, count: Any) -> Any:
    """memmove of `count` bytes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        ptr, i64, i1 = ir.IntType(8).as_pointer(), ir.IntType(64), ir.IntType(1)
        fn = builder.module.declare_intrinsic("llvm.memmove", [ptr, ptr, i64])
        builder.call(fn, [builder.inttoptr(args[0], ptr), builder.inttoptr(args[1], ptr), args[2], ir.Constant(i1, 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def prefetch(typingctx: Any, address: Any) -> Any:
    """Ask the host for a cache line that is needed soon."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        ptr, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        type_ = ir.FunctionType(ir.VoidType(), [ptr, i32, i32, i32])
        fn = cgutils.get_or_insert_function(builder.module, type_, "llvm.prefetch.p0")
        builder.call(fn, [builder.inttoptr(args[0], ptr), i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def fill(typingctx: Any, dst: Any, count: Any) -> Any:
    """Zero `count` bytes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        ptr, i64, i1, i8 = ir.IntType(8).as_pointer(), ir.IntType(64), ir.IntType(1), ir.IntType(8)
        fn = builder.module.declare_intrinsic("llvm.memset", [ptr, i64])
        builder.call(fn, [builder.inttoptr(args[0], ptr), ir.Constant(i8, 0), args[1], ir.Constant(i1, 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def chunk16(typingctx: Any, dst: Any, src: Any) -> Any:
    """Copy 16 unaligned bytes."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vec = ir.VectorType(ir.IntType(8), 16).as_pointer()
        value = builder.load(builder.inttoptr(args[1], vec))
        value.align = 1
        st = builder.store(value, builder.inttoptr(args[0], vec))
        st.align = 1
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def transpose8(typingctx: Any, dst: Any, src: Any) -> Any:
    """Transpose an 8 x 8 matrix of 16-bit elements, 128 bytes row by row; may be in place."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        matrix = ir.VectorType(ir.IntType(16), 64)
        value = builder.load(builder.inttoptr(args[1], matrix.as_pointer()), align=4)
        order = ir.Constant(ir.VectorType(ir.IntType(32), 64), [k % 8 * 8 + k // 8 for k in range(64)])
        turned = builder.shuffle_vector(value, value, order)
        builder.store(turned, builder.inttoptr(args[0], matrix.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def is_ramp(typingctx: Any, low_row: Any, high_row: Any, step: Any) -> Any:
    """Whether 32 lanes' 64-bit values (rows of low and high words) ascend by `step` without a carry; 1 or 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i32, i64 = ir.IntType(32), ir.IntType(64)
        vec = ir.VectorType(i32, LANES)
        low, high = (builder.load(builder.inttoptr(args[k], vec.as_pointer()), align=4) for k in (0, 1))
        zero = ir.Constant(vec, [0] * LANES)
        first = [builder.shuffle_vector(x, ir.Constant(vec, ir.Undefined), zero) for x in (low, high)]
        step = builder.insert_element(ir.Constant(vec, ir.Undefined), builder.trunc(args[2], i32), i32(0))
        steps = builder.mul(
            builder.shuffle_vector(step, ir.Constant(vec, ir.Undefined), zero), ir.Constant(vec, list(range(LANES)))
        )
        same = builder.and_(
            builder.icmp_unsigned("==", low, builder.add(first[0], steps)), builder.icmp_unsigned("==", high, first[1])
        )
        whole = builder.icmp_unsigned("==", builder.bitcast(same, i32), i32(0xFFFFFFFF))
        last = builder.add(
            builder.zext(builder.extract_element(low, i32(0)), i64), builder.mul(args[2], i64(LANES - 1))
        )
        return builder.zext(builder.and_(whole, builder.icmp_unsigned("<", last, i64(1 << 32))), i64)

    return types.int64(types.int64, types.int64, types.int64), codegen


def _interleaved(count: int, store: bool) -> Any:
    """Move `count` rows of 32 words to or from memory in which a lane's words are neighbours."""

    @intrinsic
    def move(typingctx: Any, host: Any, window: Any, rows: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            host, window, rows = args
            i16, i32, i64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
            row, wide = ir.VectorType(i32, LANES), ir.VectorType(i32, LANES * count)

            def mask(lanes: list[int]) -> Any:
                return ir.Constant(ir.VectorType(i32, len(lanes)), lanes)

            def pointer(k: int) -> Any:
                at = builder.inttoptr(builder.add(rows, i64(2 * k)), i16.as_pointer())
                number = builder.zext(builder.load(at, align=2), i64)
                return builder.inttoptr(builder.add(window, builder.shl(number, i64(7))), row.as_pointer())

            whole = builder.inttoptr(host, wide.as_pointer())
            if store:
                parts = [builder.load(pointer(k), align=32) for k in range(count)]
                while len(parts) > 1:  # halves of the rows first, so that the last step interleaves neighbours
                    half = len(parts) // 2
                    parts = [_zip(builder, parts[k], parts[k + half], mask) for k in range(half)]
                builder.store(parts[0], whole, align=4)
            else:
                value = builder.load(whole, align=4)
                for k in range(count):
                    part = builder.shuffle_vector(value, value, mask(list(range(k, LANES * count, count))))
                    builder.store(part, pointer(k), align=32)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return move


def _zip(builder: Any, a: Any, b: Any, mask: Any) -> Any:
    """a0 b0 a1 b1 ..."""
    n = a.type.count
    return builder.shuffle_vector(a, b, mask([x for k in range(n) for x in (k, n + k)]))


load1, load2, load4 = (_interleaved(n, False) for n in (1, 2, 4))
store1, store2, store4 = (_interleaved(n, True) for n in (1, 2, 4))


@intrinsic
def _pointer(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


def view(dtype: np.dtype) -> Any:
    """A compiled function `(address, count) -> array of dtype`, without reference counts."""

    @njit(inline="always")
    def make(address: int, count: int) -> Any:
        return carray(_pointer(address), (count,), dtype)

    return make
