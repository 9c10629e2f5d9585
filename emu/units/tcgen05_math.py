"""The numerics of tcgen05.mma on Tensor Memory as it lies: a column of D is 128 lanes of 32 bits, one after the other.

A step of K multiplies 16 rows of A (two vectors of a panel) with values of B broadcast, one for each column of D.
Arithmetic: as wgmma's fast mode (`emu.units.tensor_math`): every product enters by a float32 fused multiply-add, k ascending,
starting from D; f16 accumulators are rounded to nearest even once an instruction; integers are exact, modulo 2^32 or
clamped once.  Block-scaled kinds: the products of a block are added so from +0, then D + sum * scale A * scale B is computed in
float64 and rounded to float32.  What a Blackwell adds in which order has not been measured.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from emu.llvm import (
    F16,
    F32,
    F64,
    FLOATS,
    I16,
    I32,
    I64,
    call,
    load,
    loop_by_8,
    offset,
    pick,
    shuffle,
    splat,
    store,
    vector,
)
from emu.raw import ld8, st32
from emu.units.tcgen05_operands import COLUMN, WORK_BYTES, depth, shared_panel, tensor_panel
from emu.units.tensor_math import FAULT_A, FAULT_B, OK
from emu.units.tensor_panels import negate_panel

LANES, COLUMNS, K_MOST = 128, 256, 64
D_F16, D_F32, D_S32 = range(3)  # the code of D's type in an instruction descriptor
# scratch, in bytes from its (64-byte aligned) start
_ZERO = 0  # 16 zeros
_RAW = 64
_TABLE = _RAW + WORK_BYTES
_MASK = _TABLE + COLUMNS // 8 * 64  # int32 a row of D: all ones where it is written
_SCALE_A = _MASK + 4 * LANES  # float64 a row of D
_PANEL_A = _SCALE_A + 8 * LANES
_PANEL_B = _PANEL_A + LANES * K_MOST * 4
_TILE = _PANEL_B + COLUMNS * K_MOST * 4  # float32 [columns][rows], where D is not added to in place
SCRATCH_BYTES = _TILE + COLUMNS * COLUMN


# ---- D += A * B ---------------------------------------------------------------------------------------


def _emit_block(b, columns, steps, a_rows, b_columns, c_at, d_at):
    """`columns` columns of 16 rows, over `steps` of K (a multiple of 8).

    a_rows: two addresses, b_columns: one a column; c_at(j), d_at(j): addresses of 16 float32.
    """
    whole, part, halves = vector(F32, 16), vector(F32, FLOATS), range(16 // FLOATS)
    start = [load(b, offset(b, c_at(j), 4 * FLOATS * h), part, 32) for j in range(columns) for h in halves]

    def body(step, sums):
        shift = b.mul(step, I64(32))
        a_at, b_at = ([b.add(x, shift) for x in addresses] for addresses in (a_rows, b_columns))
        new = list(sums)
        for u in range(8):
            rows = [load(b, offset(b, x, 32 * u), vector(F32, 8), 32) for x in a_at]
            if part == whole:
                rows = [shuffle(b, *rows, range(16))]
            for j, at in enumerate(b_at):
                value = load(b, offset(b, at, 32 * u), F32, 4)
                column = pick(b, b.insert_element(ir.Constant(part, ir.Undefined), value, I32(0)), [0] * FLOATS)
                for h in halves:
                    n = len(halves) * j + h
                    new[n] = call(b, f"llvm.fma.v{FLOATS}f32", part, rows[h], column, new[n])
        return new

    new = loop_by_8(b, steps, start, body)
    for n, value in enumerate(new):
        store(b, value, offset(b, d_at(n // len(halves)), 4 * FLOATS * (n % len(halves))), 32)


def _block(columns):
    """`block(steps, k, a, panel_b, first, c, c_column, d)`: a block of D; panels are [group][k][8].

    a: address of a group of A's panel and, 32 k bytes on, of the next; first: its first column in B's panel; c_column: bytes
    from a column of C to the next.
    """

    @intrinsic
    def block(typing, steps, k, a, panel_b, first, c, c_column, d):
        def emit(ctx, b, sig, args):
            steps, k, a, panel_b, first, c, c_column, d = args
            group = b.mul(k, I64(32))
            b_columns = []
            for j in range(columns):
                n = b.add(first, I64(j))
                inside = b.shl(b.and_(n, I64(7)), I64(2))
                b_columns.append(b.add(panel_b, b.add(b.mul(b.lshr(n, I64(3)), group), inside)))
            c_at = [b.add(c, b.mul(c_column, I64(j))) for j in range(columns)]
            d_at = [offset(b, d, COLUMN * j) for j in range(columns)]
            _emit_block(b, columns, steps, [a, b.add(a, group)], b_columns, c_at.__getitem__, d_at.__getitem__)
            return ctx.get_dummy_value()

        i = types.int64
        return types.void(i, i, i, i, i, i, i, i), emit

    return block


# 12 accumulators, a column of A and a value of B in each lane fill 16 vector registers; 8 serve what is left over.
WIDE, NARROW = 3 * FLOATS // 4, FLOATS // 2
_wide_block, _narrow_block = _block(WIDE), _block(NARROW)


@njit(error_model="numpy")
def _multiply(steps, k, pairs, spread, panel_a, panel_b, first, columns, zero, d):
    """D (16 * pairs rows x columns) += A B, or = A B where `zero` is the address of zeros.

    d: address of its first cell; the next 16 rows are `spread` lanes on.  columns: a multiple of 8 from `first` on in B's panel.
    """
    j = 0
    while j < columns:
        left = columns - j
        wide = left != NARROW and left != 2 * NARROW
        for p in range(pairs):
            a, to = panel_a + p * k * 64, d + COLUMN * j + 4 * spread * p
            c, c_column = (zero, 0) if zero else (to, COLUMN)
            if wide:
                _wide_block(steps, k, a, panel_b, first + j, c, c_column, to)
            else:
                _narrow_block(steps, k, a, panel_b, first + j, c, c_column, to)
        j += WIDE if wide else NARROW


# ---- D by way of a tile ---------------------------------------------------------------------------------


@intrinsic
def _fetch(typing, d_type, d, tile, factor):
    """16 cells of D as float32 times a factor."""

    def emit(ctx, b, sig, args):
        d_type, d, tile, factor = args
        f32x16 = vector(F32, 16)
        cells = load(b, d, vector(I32, 16), 4)
        half = b.fpext(b.bitcast(b.trunc(cells, vector(I16, 16)), vector(F16, 16)), f32x16)
        is_half = b.icmp_signed("==", d_type, I64(D_F16))
        values = b.select(is_half, half, b.bitcast(cells, f32x16))
        one = b.insert_element(ir.Constant(f32x16, ir.Undefined), b.fptrunc(factor, F32), I32(0))
        factors = b.shuffle_vector(one, one, ir.Constant(vector(I32, 16), [0] * 16))
        store(b, b.fmul(values, factors), tile, 4)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i, types.float64), emit


@intrinsic
def _put(typing, d_type, d, tile, mask, accumulate, saturate):
    """16 cells of a tile into D where the mask says so; integers are added to D here."""

    def emit(ctx, b, sig, args):
        d_type, d, tile, mask, accumulate, saturate = args
        i32x16, i1 = vector(I32, 16), ir.IntType(1)
        old, values = load(b, d, i32x16, 4), load(b, tile, vector(F32, 16), 4)
        half = b.zext(b.bitcast(b.fptrunc(values, vector(F16, 16)), vector(I16, 16)), i32x16)
        dot = b.fptosi(values, i32x16)
        c = b.select(b.trunc(accumulate, i1), old, splat(i32x16, 0))
        clamped = call(b, "llvm.sadd.sat.v16i32", i32x16, c, dot)
        whole = b.select(b.trunc(saturate, i1), clamped, b.add(c, dot))
        new = b.select(b.icmp_signed("==", d_type, I64(D_F16)), half, b.bitcast(values, i32x16))
        new = b.select(b.icmp_signed("==", d_type, I64(D_S32)), whole, new)
        written = b.icmp_signed("!=", load(b, mask, i32x16, 4), splat(i32x16, 0))
        store(b, b.select(written, new, old), d, 4)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i, i, i, i), emit


@intrinsic
def _add_scaled(typing, d, tile, scales, scale):
    """16 cells of D += those of a tile times the rows' scales and the column's, in float64."""

    def emit(ctx, b, sig, args):
        d, tile, scales, scale = args
        f32x16, f64x16 = vector(F32, 16), vector(F64, 16)
        one = b.insert_element(ir.Constant(f64x16, ir.Undefined), scale, I32(0))
        column = b.shuffle_vector(one, one, ir.Constant(vector(I32, 16), [0] * 16))
        dot = b.fmul(b.fmul(b.fpext(load(b, tile, f32x16, 4), f64x16), load(b, scales, f64x16, 8)), column)
        store(b, b.fptrunc(b.fadd(b.fpext(load(b, d, f32x16, 4), f64x16), dot), f32x16), d, 4)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i, types.float64), emit


@njit(error_model="numpy")
def _by_tile(J, k, pairs, spread, panel_a, panel_b, first, columns, d, lane, scratch):
    """The product of `_multiply` where D is f16 or s32, scaled, or not written in some lanes; `lane`: its first one."""
    tile, mask, zeros = scratch + _TILE, scratch + _MASK, scratch + _ZERO
    integer = J.d_type == D_S32
    for row in range(16 * pairs):
        at = lane + row // 16 * spread + row % 16
        st32(mask + 4 * row, 0 if J.mask[at >> 5] >> (at & 31) & 1 else 0xFFFFFFFF)
    start = J.accumulate and not integer
    if start:
        factor = 1.0 / (1 << J.scale_d)
        for j in range(columns):
            for p in range(pairs):
                _fetch(J.d_type, d + COLUMN * j + 4 * spread * p, tile + COLUMN * j + 64 * p, factor)
    _multiply(k, k, pairs, 16, panel_a, panel_b, first, columns, 0 if start else zeros, tile)
    for j in range(columns):
        for p in range(pairs):
            to = d + COLUMN * j + 4 * spread * p
            _put(J.d_type, to, tile + COLUMN * j + 64 * p, mask + 64 * p, J.accumulate, J.saturate)


# ---- block scales -----------------------------------------------------------------------------------------


@intrinsic
def _from_bits(typing, bits):
    """A float64 by its bits."""

    def emit(ctx, b, sig, args):
        return b.bitcast(args[0], F64)

    return types.float64(types.int64), emit


@njit(error_model="numpy")
def scale_value(byte: int, ue8m0: int) -> float:
    """A scale factor: 2^(byte - 127), 255 NaN (ue8m0), or an e4m3 without sign (ue4m3), 127 NaN."""
    if byte == 255 if ue8m0 else byte & 127 == 127:
        return float("nan")
    if ue8m0:
        return _from_bits(byte - 127 + 1023 << 52)
    exponent, fraction = byte >> 3 & 15, byte & 7
    return _from_bits(exponent - 7 + 1023 << 52 | fraction << 49) if exponent else fraction * 2.0**-9


@njit(error_model="numpy")
def _scale_at(tmem: int, address: int, row: int, byte: int, ue8m0: int) -> float:
    """Scale `byte` of a row of A or a column of B: lane row % 32, column row / 32 (9.7.16.10.7)."""
    cell = tmem + COLUMN * ((address & 0xFFFF) + row // 32) + 4 * (row % 32)
    return scale_value(ld8(cell + byte), ue8m0)


@njit(error_model="numpy")
def _by_blocks(J, k, pairs, spread, panel_a, panel_b, first, columns, d, tmem, scratch):
    """`columns` of D from `first` on (+)= the sum over blocks of K of (A block B block) * scale of A's row * scale of B's column."""
    tile, scales, zeros = scratch + _TILE, scratch + _SCALE_A, scratch + _ZERO
    steps = k // J.blocks
    if not J.accumulate:
        for j in range(columns):
            for p in range(pairs):
                for i in range(16):
                    st32(d + COLUMN * j + 4 * (spread * p + i), 0)
    for block in range(J.blocks):
        at = 32 * steps * block
        _multiply(steps, k, pairs, 16, panel_a + at, panel_b + at, first, columns, zeros, tile)
        for row in range(J.m):
            put_f64(scales + 8 * row, _scale_at(tmem, J.sfa, row, J.sfa_id + block, J.ue8m0))
        for j in range(columns):
            scale = _scale_at(tmem, J.sfb, first + j, J.sfb_id + block, J.ue8m0)
            for p in range(pairs):
                _add_scaled(d + COLUMN * j + 4 * spread * p, tile + COLUMN * j + 64 * p, scales + 128 * p, scale)


@intrinsic
def put_f64(typing, address, value):
    """Store a float64."""

    def emit(ctx, b, sig, args):
        store(b, args[1], args[0], 8)
        return ctx.get_dummy_value()

    return types.void(types.int64, types.float64), emit


# ---- the instruction --------------------------------------------------------------------------------------


@njit(error_model="numpy")
def mma(J: Any, tmem: int, smem: int, smem_bytes: int, scratch: int) -> int:
    """One tcgen05.mma of one CTA: D = A B (+ D where J.accumulate).  Returns OK, FAULT_A or FAULT_B.

    J: a decoded instruction (emu.tmem_state.TC_JOB) whose columns and lanes are known to exist.  tmem: host address of Tensor
    Memory, u32 [512 columns][128 lanes], 64-byte aligned.  smem: host address of the CTA's shared memory, smem_bytes long;
    descriptor addresses are offsets into it.  scratch: SCRATCH_BYTES, 64-byte aligned, zeroed once by its owner.  After a fault
    nothing has been written.
    """
    table, raw = scratch + _TABLE, scratch + _RAW
    if _load_a(J, tmem, smem, smem_bytes, scratch):
        return FAULT_A
    if shared_panel(J.b, J.trans_b, J.kind_b, J.n // 8, smem, smem_bytes, table, raw, scratch + _PANEL_B):
        return FAULT_B
    _into_d(J, tmem, scratch)
    return OK


@njit(error_model="numpy")
def mma_pair(J: Any, even: int, even_smem: int, odd: int, odd_smem: int, smem_bytes: int, scratch: int) -> int:
    """One tcgen05.mma of a pair of CTAs (cta_group::2), as `mma`: Tensor Memory and shared memory of both.

    J.m: rows of each CTA, the even one's first.  Each has half of B's columns.  With 64 rows each (layout B) the second half of D's
    columns lies in lanes 64 to 127, as with .ws.
    """
    k, half = depth(J.kind_b), J.n // 16
    table, raw, panel = scratch + _TABLE, scratch + _RAW, scratch + _PANEL_B
    if _load_a(J, even, even_smem, smem_bytes, scratch):
        return FAULT_A
    if shared_panel(J.b, J.trans_b, J.kind_b, half, even_smem, smem_bytes, table, raw, panel):
        return FAULT_B
    shared_panel(J.b, J.trans_b, J.kind_b, half, odd_smem, smem_bytes, table, raw, panel + 32 * half * k)
    _into_d(J, even, scratch)
    _load_a(J, odd, odd_smem, smem_bytes, scratch)
    for i in range(4):
        J.mask[i] = J.mask_odd[i]
    _into_d(J, odd, scratch)
    return OK


@njit(error_model="numpy")
def _load_a(J, tmem, smem, smem_bytes, scratch):
    """A to its panel; 1 when it reaches outside shared memory."""
    panel = scratch + _PANEL_A
    if J.a_tensor:
        tensor_panel(J.kind_a, J.m // 16, _spread(J), tmem + COLUMN * (J.a & 0xFFFF) + 4 * (J.a >> 16), panel)
    elif shared_panel(J.a, J.trans_a, J.kind_a, J.m // 8, smem, smem_bytes, scratch + _TABLE, scratch + _RAW, panel):
        return 1
    if J.negate:
        negate_panel(J.m // 8 * depth(J.kind_a), panel)
    return 0


@njit(inline="always")
def _spread(J):
    """Lanes from 16 rows to the next 16: layout F has gaps; in all others neighbouring rows have neighbouring lanes."""
    return 32 if J.m == 64 and not J.ws else 16


@njit(error_model="numpy")
def _into_d(J, tmem, scratch):
    """The product of both panels into D."""
    k, pairs, lane, spread = depth(J.kind_a), J.m // 16, J.d >> 16, _spread(J)
    panel_a, panel_b = scratch + _PANEL_A, scratch + _PANEL_B
    d = tmem + COLUMN * (J.d & 0xFFFF) + 4 * lane
    parts = LANES // J.m if J.ws else 1  # layouts B, E and G: D's columns in parts, one below the other in the lanes
    columns = J.n // parts
    masked = J.mask[0] | J.mask[1] | J.mask[2] | J.mask[3]
    for part in range(parts):
        to, first = d + 4 * J.m * part, columns * part
        if J.blocks:
            _by_blocks(J, k, pairs, spread, panel_a, panel_b, first, columns, to, tmem, scratch)
        elif J.d_type == D_F32 and not masked and not (J.scale_d and J.accumulate):
            zero = 0 if J.accumulate else scratch + _ZERO
            _multiply(k, k, pairs, spread, panel_a, panel_b, first, columns, zero, to)
        else:
            _by_tile(J, k, pairs, spread, panel_a, panel_b, first, columns, to, lane + J.m * part, scratch)
