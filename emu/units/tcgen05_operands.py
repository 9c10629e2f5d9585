"""Operands of tcgen05.mma: matrices in shared memory or Tensor Memory become float32 panels.

A panel is [group of 8 rows of A (or columns of B)][k][8] float32, the eight in order.  Shared-memory layouts are those of wgmma
(`emu.units.tensor_panels`) and two more: 8-bit types MN-major, and tf32 MN-major, whose swizzle moves 32-byte atoms (PTX ISA
9.7.16.4.1, 9.7.16.10).  Types of 4 and 6 bits lie packed in 16-byte chunks of 16 elements (kind::f8f6f4), or two a byte
(kind::mxf4); in Tensor Memory they have a byte each, 4 bits in its middle (9.7.16.9).
"""

from __future__ import annotations

from numba import njit, types
from numba.extending import intrinsic

from emu.llvm import I8, I16, I32, load, offset, splat, store, vector
from emu.raw import ld8, ld32, st8, st32
from emu.units.tensor_panels import (
    ELEMENT,
    KIND_BF16,
    KIND_E2M1,
    KIND_E2M3,
    KIND_TF32,
    chunk_offsets,
    group_gatherer,
    mn_converter,
    step_widener,
    switch_on,
    widen,
)

KIND_PACKED = 10  # e2m1, two a byte: kind::mxf4 and kind::mxf4nvf4 (wgmma has bits under this number)
SMALL_KINDS = range(KIND_E2M3, KIND_PACKED)
COLUMN = 512  # bytes of a column of Tensor Memory: 128 lanes of 32 bits
WORK_BYTES = 1024  # raw elements of a group, before and after unpacking

_gather = group_gatherer(range(8))
_convert_mn = mn_converter(range(8))
_widen = step_widener(range(10))


@njit(inline="always")
def depth(kind: int) -> int:
    """Elements of K of an instruction: 32 bytes (9.7.16.2.1), of 4- and 6-bit types as if they had 8."""
    return 64 if kind == KIND_PACKED else 8 if kind == KIND_TF32 else 16 if kind <= KIND_BF16 else 32


# ---- shared memory ------------------------------------------------------------------------------------


def _emit_packed(b, raw, to, bits, count, places):
    """`count` elements of a chunk of K for 8 rows, each of `bits` bits at `places(i)`, to a byte each."""
    i16x8, i8x8 = vector(I16, 8), vector(I8, 8)
    for i in range(count):
        byte, shift = divmod(places(i), 8)
        word = b.zext(load(b, offset(b, raw, 8 * byte), i8x8, 8), i16x8)
        if shift + bits > 8:
            above = b.zext(load(b, offset(b, raw, 8 * byte + 8), i8x8, 8), i16x8)
            word = b.or_(word, b.shl(above, splat(i16x8, 8)))
        word = b.and_(b.lshr(word, splat(i16x8, shift)), splat(i16x8, (1 << bits) - 1))
        store(b, b.trunc(word, i8x8), offset(b, to, 8 * i), 8)


@intrinsic
def _unpack(typing, kind, raw, to):
    """[32 bytes][8 rows] of packed elements to [k][8 rows] bytes."""

    def emit(ctx, b, sig, args):
        kind, raw, to = args

        def small(bits):  # 16 elements in each 16-byte chunk, from its start (b4x16_p64, b6x16_p32)
            _emit_packed(b, raw, to, bits, 32, lambda i: i // 16 * 128 + i % 16 * bits)

        def case(kind):
            if kind == KIND_PACKED:
                _emit_packed(b, raw, to, 4, 64, lambda i: 4 * i)
            else:
                small(4 if kind == KIND_E2M1 else 6)

        kinds = (*SMALL_KINDS, KIND_PACKED)
        switch_on(b, kind, {kind: lambda kind=kind: case(kind) for kind in kinds})
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i), emit


@njit(inline="always")
def transposed_address(desc: int, bytes_: int, r: int, k: int) -> int:
    """The byte of element (r, k) of an MN-major operand of 8- or 32-bit elements, `r` along M or N."""
    start, lbo, sbo = (desc & 0x3FFF) << 4, (desc >> 16 & 0x3FFF) << 4, (desc >> 32 & 0x3FFF) << 4
    base, code, x = desc >> 49 & 7, desc >> 61 & 7, r * bytes_
    if code == 0:
        return start + x // 16 * sbo + k // 8 * lbo + k % 8 * 16 + x % 16
    if code == 1:  # 128-byte rows of 32-byte atoms: address bits 6..5 ^= 8..7
        linear = start + x // 128 * lbo + k // 4 * sbo + k % 4 * 128 + x % 128
        return linear ^ ((linear >> 7) - base & 3) << 5
    span = 256 >> (code >> 1)
    linear = start + x // span * lbo + k // 8 * sbo + k % 8 * span + x % span
    return linear ^ ((linear >> 7) - base & (span >> 4) - 1) << 4


@njit(error_model="numpy")
def _gather_transposed(
    desc: int, kind: int, groups: int, k: int, smem: int, smem_bytes: int, raw: int, panel: int
) -> int:
    """An MN-major operand of 8- or 32-bit elements to a panel; returns 1 when it reaches outside shared memory."""
    size = 4 if kind == KIND_TF32 else 1
    for j in range(groups):
        for at in range(0, k, 8):
            for i in range(64):
                address = transposed_address(desc, size, 8 * j + i % 8, at + i // 8)
                if address + size > smem_bytes:
                    return 1
                if size == 4:
                    st32(raw + 4 * i, ld32(smem + address))
                else:
                    st8(raw + i, ld8(smem + address))
            _widen(kind, raw, panel + 32 * (j * k + at))
    return 0


@njit(error_model="numpy")
def shared_panel(
    desc: int, transpose: int, kind: int, groups: int, smem: int, smem_bytes: int, table: int, raw: int, panel: int
) -> int:
    """Convert an operand in shared memory to a panel; returns 1 when it reaches outside the `smem_bytes` at `smem`.

    `table`: int32 [groups][16] of work space; `raw`: WORK_BYTES, 32-byte aligned.
    """
    k = depth(kind)
    if transpose and kind > KIND_BF16:
        return _gather_transposed(desc, kind, groups, k, smem, smem_bytes, raw, panel)
    if chunk_offsets(desc, transpose, groups, table) > smem_bytes:
        return 1
    width = 32 if kind == KIND_TF32 else 16 if kind <= KIND_BF16 else 8
    small = kind >= KIND_E2M3
    plain = KIND_E2M1 if kind == KIND_PACKED else kind
    for j in range(groups):
        to = panel + 32 * j * k
        if transpose:
            _convert_mn(kind, to, smem, table + 64 * j)
            continue
        _gather(width, raw, smem, table + 64 * j)
        elements = raw + 256 if small else raw
        if small:
            _unpack(kind, raw, elements)
        for at in range(0, k, 8):
            _widen(plain, elements + width * at, to + 32 * at)
    return 0


# ---- Tensor Memory ------------------------------------------------------------------------------------


@intrinsic
def _widen_cells(typing, kind, cells, panel):
    """One column of 8 lanes: 1, 2, 4 or 8 steps of K."""

    def emit(ctx, b, sig, args):
        kind, cells, panel = args
        i32x8 = vector(I32, 8)
        words = load(b, cells, i32x8, 32)

        def case(kind):
            plain = KIND_E2M1 if kind == KIND_PACKED else kind
            bits = 4 if kind == KIND_PACKED else ELEMENT[kind].width
            low = 2 if kind == KIND_E2M1 else 0
            for i in range(32 // bits):
                x = b.lshr(words, splat(i32x8, bits * i + low))
                x = x if bits == 32 else b.trunc(x, vector(I16 if bits == 16 else I8, 8))
                store(b, widen(b, x, plain), offset(b, panel, 32 * i), 32)

        switch_on(b, kind, {kind: lambda kind=kind: case(kind) for kind in (*range(10), KIND_PACKED)})
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i), emit


@njit(error_model="numpy")
def tensor_panel(kind: int, pairs: int, spread: int, cells: int, panel: int) -> None:
    """Convert A in Tensor Memory to a panel: row m in the lane of row m of D, 8 columns of 32 bits (9.7.16.10.5).

    `cells`: host address of its first lane and column; 16 rows lie in neighbouring lanes, the next 16 `spread` lanes on.
    """
    k = depth(kind)
    for g in range(2 * pairs):
        lanes = cells + 4 * ((g >> 1) * spread + 8 * (g & 1))
        for column in range(8):
            _widen_cells(kind, lanes + COLUMN * column, panel + 32 * (g * k + column * (k >> 3)))
