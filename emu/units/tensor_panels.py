"""Operands of the tensor core: shared-memory tiles and register fragments become float32 panels.

A **panel** is [group of 8 rows of A (or columns of B)][k][8] float32.  The eight values stand in the
order 0 2 4 6 1 3 5 7: so four columns of one D register (2q + parity, q = lane % 4) are neighbours, and
an in-lane shuffle spreads two neighbouring rows of A over a 256-bit vector.

Layouts: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout" and "Matrix Descriptor
Format"; swizzles act on absolute shared-memory address bits.
"""

from functools import partial

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from emu.llvm import F16, F32, I8, I16, I32, I64, call, load, offset, pick, shuffle, splat, store, vector

KIND_F16, KIND_BF16, KIND_TF32, KIND_E4M3, KIND_E5M2, KIND_S8, KIND_U8 = range(7)
KIND_E2M3, KIND_E3M2, KIND_E2M1, KIND_B1 = range(7, 11)
KINDS = (*range(7), KIND_B1)  # those of wgmma; the others are tcgen05's
PLANES = 8  # KIND_B1 + i: bit i of every byte
ELEMENT = {kind: I8 for kind in range(11)} | {KIND_F16: I16, KIND_BF16: I16, KIND_TF32: I32}
# Bits of magnitude, by how much they are too small as the upper bits of an f16, and their place there.
SMALL = {KIND_E2M3: (5, 14, 7), KIND_E3M2: (5, 12, 8), KIND_E2M1: (3, 14, 9)}
PANEL_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def widen(b, x, kind):
    """Emit the exact float32 values of a vector of raw operand bits."""
    n = x.type.count
    i16, i32, f16, f32 = vector(I16, n), vector(I32, n), vector(F16, n), vector(F32, n)
    if kind == KIND_F16:
        return b.fpext(b.bitcast(x, f16), f32)
    if kind == KIND_BF16:
        return b.bitcast(b.shl(b.zext(x, i32), splat(i32, 16)), f32)
    if kind == KIND_TF32:  # the hardware drops the low 13 bits, of infinities and NaNs too
        return b.bitcast(b.and_(x, splat(i32, 0xFFFFE000)), f32)
    if kind == KIND_E5M2:  # the upper half of an f16
        return b.fpext(b.bitcast(b.shl(b.zext(x, i16), splat(i16, 8)), f16), f32)
    if kind == KIND_E4M3:  # as an f16 pattern it is 2^8 too small; 0x7f is the only NaN
        raw = b.zext(x, i16)
        magnitude = b.and_(raw, splat(i16, 0x7F))
        isnan = b.icmp_unsigned("==", magnitude, splat(i16, 0x7F))
        half = b.select(isnan, splat(i16, 0x7E00), b.shl(magnitude, splat(i16, 7)))
        half = b.or_(half, b.shl(b.and_(raw, splat(i16, 0x80)), splat(i16, 8)))
        return b.fmul(b.fpext(b.bitcast(half, f16), f32), splat(f32, 256.0))
    if kind in SMALL:  # 4 or 6 bits: no infinity, no NaN
        bits, scale, place = SMALL[kind]
        raw = b.zext(x, i16)
        magnitude = b.shl(b.and_(raw, splat(i16, (1 << bits) - 1)), splat(i16, place))
        half = b.or_(magnitude, b.shl(b.and_(raw, splat(i16, 1 << bits)), splat(i16, 15 - bits)))
        return b.fmul(b.fpext(b.bitcast(half, f16), f32), splat(f32, 2.0**scale))
    return b.sitofp(b.sext(x, i32) if kind == KIND_S8 else b.zext(x, i32), f32)


def switch_on(b, selector, cases):
    """Emit a switch: `cases` maps an integer to a function that emits its block."""
    end = b.append_basic_block("end")
    switch = b.switch(selector, end)
    for value, emit in cases.items():
        block = b.append_basic_block(f"case{value}")
        switch.add_case(ir.Constant(I64, value), block)
        b.position_at_end(block)
        emit()
        b.branch(end)
    b.position_at_end(end)


# --- shared memory -> panel ------------------------------------------------------------------------


@intrinsic
def _group_offsets(typing, table, first, row, half, base, mask):
    """Write the 16 chunk offsets (int32) of one group; return the largest."""

    def emit(ctx, b, sig, args):
        table, *scalars = args
        v16 = vector(I32, 16)

        def spread(x):
            return pick(b, b.insert_element(ir.Constant(v16, ir.Undefined), b.trunc(x, I32), I32(0)), [0] * 16)

        first, row, half, base, mask = (spread(x) for x in scalars)
        linear = b.add(first, b.mul(row, ir.Constant(v16, [t % 8 for t in range(16)])))
        linear = b.add(linear, b.mul(half, ir.Constant(v16, [t // 8 for t in range(16)])))
        line = b.and_(b.sub(b.lshr(linear, splat(v16, 7)), base), mask)
        physical = b.xor(linear, b.shl(line, splat(v16, 4)))
        store(b, physical, table, 4)
        return b.zext(call(b, "llvm.vector.reduce.umax.v16i32", I32, physical), I64)

    i = types.int64
    return i(i, i, i, i, i, i), emit


@njit(error_model="numpy")
def chunk_offsets(desc: int, mn_major: int, groups: int, table: int) -> int:
    """Locate an operand: every group of 8 rows (columns) is 16 chunks of 16 bytes.

    K-major: chunk t is row t % 8, bytes 16 * (t // 8) of its 32 bytes of K.  MN-major: chunk t is k = t,
    8 rows.  Writes int32 offsets [groups][16] at `table`; returns the operand's end (exclusive), in bytes.
    """
    start, lbo, sbo = (desc & 0x3FFF) << 4, (desc >> 16 & 0x3FFF) << 4, (desc >> 32 & 0x3FFF) << 4
    base, mode = desc >> 49 & 7, desc >> 62 & 3
    row = 256 >> mode if mode else 16
    chunks = row >> 4  # 16-byte chunks across the swizzle span
    half, outer, shift = lbo, sbo, 0  # 2^shift groups share a span
    if mode and mn_major:
        half, outer, shift = sbo, lbo, 4 - mode
    elif mode:
        half = 16
    end = 0
    for j in range(groups):
        first = start + (j >> shift) * outer + (j & (1 << shift) - 1) * 16
        end = max(end, _group_offsets(table + 64 * j, first, row, half, base, chunks - 1))
    return end + 16


def _interleave(lane, high, lanes=2):
    """Lane numbers that interleave one half of each 16-byte lane (`lane` elements) of two vectors."""
    return [at * lane + high * lane // 2 + i // 2 + i % 2 * lane * lanes for at in range(lanes) for i in range(lane)]


def _chunks(b, smem, table):
    """A function that emits the address of chunk t."""
    return lambda t: b.add(smem, b.zext(load(b, offset(b, table, 4 * t), I32, 4), I64))


def _emit_k_major(b, width, raw, chunk, order):
    """8 rows x 32 bytes: three perfect shuffles of the 8 vectors transpose each 16-byte lane."""
    element, lane = ir.IntType(width), 128 // width
    rows = []
    for row in order:
        low, high = (load(b, chunk(row + 8 * half), vector(element, lane), 16) for half in (0, 1))
        rows.append(shuffle(b, low, high, range(2 * lane)))
    for _ in range(3):
        rows = [shuffle(b, rows[i // 2], rows[i // 2 + 4], _interleave(lane, i % 2)) for i in range(8)]
    for i in range(16):  # lane by lane, the values of one k now follow each other
        store(b, pick(b, rows[i % 8], range(i // 8 * lane, (i // 8 + 1) * lane)), offset(b, raw, 16 * i), 16)


def group_gatherer(order):
    """`gather(width, raw, smem, table)`: the 16 chunks of one K-major group, transposed to [k][8 rows in `order`] raw
    elements; width in bits."""

    @intrinsic
    def gather_group(typing, width, raw, smem, table):
        def emit(ctx, b, sig, args):
            width, raw, smem, table = args
            chunk = _chunks(b, smem, table)
            cases = {width: lambda width=width: _emit_k_major(b, width, raw, chunk, order) for width in (8, 16, 32)}
            switch_on(b, width, cases)
            return ctx.get_dummy_value()

        i = types.int64
        return types.void(i, i, i, i), emit

    return gather_group


_gather_group = group_gatherer(PANEL_ORDER)


# --- registers -> panel ----------------------------------------------------------------------------


def _emit_register(b, width, raw, register):
    """Two perfect shuffles of the register's four 32-byte parts, each 2 rows x 16 bytes of K."""
    element, lane = ir.IntType(width), 128 // width
    rows = [load(b, offset(b, register, 32 * i), vector(element, 2 * lane), 32) for i in range(4)]
    for _ in range(2):
        rows = [shuffle(b, rows[i // 2], rows[i // 2 + 2], _interleave(lane, i % 2)) for i in range(4)]
    for k in range(lane):
        vec, at = divmod(k * 4, lane)
        values = pick(b, rows[vec], [part * lane + at + i for part in (0, 1) for i in range(4)])
        store(b, values, offset(b, raw, k * width), width)


@intrinsic
def _gather_register(typing, width, raw, register):
    """One A register of a warp: 8 rows x 16 bytes of K, transposed to [k][8] raw elements."""

    def emit(ctx, b, sig, args):
        width, raw, register = args
        cases = {width: lambda width=width: _emit_register(b, width, raw, register) for width in (8, 16, 32)}
        switch_on(b, width, cases)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i), emit


# --- raw elements -> float32 -----------------------------------------------------------------------


def step_widener(kinds):
    """`widen(kind, raw, panel)`: 8 steps of K, 8 values each."""

    @intrinsic
    def widen_steps(typing, kind, raw, panel):
        def emit(ctx, b, sig, args):
            kind, raw, panel = args

            def case(kind):
                store(b, widen(b, load(b, raw, vector(ELEMENT[kind], 64), 16), kind), panel, 32)

            def bits():
                bytes_ = load(b, raw, vector(I8, 64), 16)
                plane = b.insert_element(splat(bytes_.type, 0), b.trunc(b.sub(kind, I64(KIND_B1)), I8), I32(0))
                ones = b.and_(b.lshr(bytes_, pick(b, plane, [0] * 64)), splat(bytes_.type, 1))
                store(b, widen(b, ones, KIND_U8), panel, 32)

            cases = {kind: bits if kind == KIND_B1 else partial(case, kind) for kind in kinds}
            switch_on(b, call(b, "llvm.umin.i64", I64, kind, I64(KIND_B1)), cases)
            return ctx.get_dummy_value()

        i = types.int64
        return types.void(i, i, i), emit

    return widen_steps


_widen_steps = step_widener(KINDS)


def mn_converter(order):
    """`convert(kind, panel, smem, table)`: one MN-major group of a 16-bit kind, of which a chunk is one step of K."""

    @intrinsic
    def convert_mn_major(typing, kind, panel, smem, table):
        def emit(ctx, b, sig, args):
            kind, panel, smem, table = args
            chunk = _chunks(b, smem, table)

            def case(kind):
                for k in range(16):
                    values = pick(b, load(b, chunk(k), vector(I16, 8), 16), order)
                    store(b, widen(b, values, kind), offset(b, panel, 32 * k), 32)

            switch_on(b, kind, {kind: lambda kind=kind: case(kind) for kind in (KIND_F16, KIND_BF16)})
            return ctx.get_dummy_value()

        i = types.int64
        return types.void(i, i, i, i), emit

    return convert_mn_major


_convert_mn_major = mn_converter(PANEL_ORDER)


@njit(error_model="numpy")
def convert_panel(kind: int, mn_major: int, groups: int, k: int, smem: int, table: int, raw: int, panel: int) -> None:
    """Convert the chunks listed at `table` (see chunk_offsets) to a panel of `groups` x k x 8 float32.

    raw: 256 bytes of work space, 32-byte aligned.
    """
    width = 256 // k
    for j in range(groups):
        if mn_major:
            _convert_mn_major(kind, panel + 32 * j * k, smem, table + 64 * j)
            continue
        _gather_group(width, raw, smem, table + 64 * j)
        for i in range(0, k, 8):
            _widen_steps(kind, raw + width * i, panel + 32 * (j * k + i))


@njit(error_model="numpy")
def convert_fragment(kind: int, k: int, low: int, high: int, raw: int, panel: int) -> None:
    """Convert 8 rows of A held in registers: row `low` is the first half of K, row `high` the second.

    `low` and `high` are addresses (PTX ISA, wgmma register fragments of A: registers 0 and 2 are rows
    g, registers 1 and 3 rows g + 8).  raw: 256 bytes of work space, 32-byte aligned.
    """
    width = 256 // k
    _gather_register(width, raw, low)
    _gather_register(width, raw + 128, high)
    for i in range(0, k, 8):
        _widen_steps(kind, raw + width * i, panel + 32 * i)


@intrinsic
def _negate_values(typing, panel):
    """Flip the signs of 8 values."""

    def emit(ctx, b, sig, args):
        store(b, b.fneg(load(b, args[0], vector(F32, 8), 32)), args[0], 32)
        return ctx.get_dummy_value()

    return types.void(types.int64), emit


@njit(error_model="numpy")
def negate_panel(steps: int, panel: int) -> None:
    """Flip the sign of every value of a panel of `steps` x 8 float32."""
    for i in range(steps):
        _negate_values(panel + 32 * i)


# --- places -------------------------------------------------------------------------------------------


@intrinsic
def row_at(typing, window, offsets, v):
    """Address of the register row of column vector v."""

    def emit(ctx, b, sig, args):
        window, offsets, v = args
        return b.add(window, b.zext(load(b, b.add(offsets, b.shl(v, I64(2))), I32, 4), I64))

    return types.int64(types.int64, types.int64, types.int64), emit


@intrinsic
def column_at(typing, panel, k, v):
    """Address of column vector v (block of 8 columns, parity) in a panel."""

    def emit(ctx, b, sig, args):
        panel, k, v = args
        block = b.mul(b.lshr(v, I64(1)), b.mul(k, I64(32)))
        return b.add(panel, b.add(block, b.mul(b.and_(v, I64(1)), I64(16))))

    return types.int64(types.int64, types.int64, types.int64), emit
