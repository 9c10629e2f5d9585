"""Raw memory access for the compiled core: loads and stores at checked 64-bit host addresses.

Array arguments cost reference counting on every call of a compiled helper; addresses do not.  Every
emulated address is checked by the unit that translates it, so what arrives here is inside an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.numpy_support import carray


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
