"""The numerics of wgmma, on the register file as it lies: D stays in its fragment layout.

A D register of a warp is 32 lanes of 32 bits: 8 rows (lane / 4) x 4 columns (2 * (lane % 4) + parity), so
a 256-bit part of it is 2 rows x 4 columns, one of 512 bits 4 rows.  A step of K multiplies A *spread* (each row repeated
for its 4 lanes) with 4 columns of B's *panel* broadcast to all rows (emu.units.tensor_panels).

Arithmetic in fast mode: every product enters by a float32 fused multiply-add, k ascending, starting from C (from
+0 when scale-d is false).  One rounding to nearest a step, hence deterministic and independent of N and of the
layouts; the card truncates instead, as silicon mode does (emu.units.tensor_silicon, docs/numerics.md).  f16 accumulators are rounded to nearest even
once an instruction.  A negated operand flips the sign of every product.  NaN payloads are unspecified.
Integers: a sum of 32 products is below 2^24, hence exact in float32; it is added to C modulo 2^32, or
clamped once with satfinite.
"""

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from emu.llvm import F16, F32, FLOATS, I16, I32, I64, call, load, loop_by_8, offset, pick, splat, store, vector
from emu.raw import ld16, ld64, st16
from emu.units.tensor_panels import (
    KIND_B1,
    KIND_S8,
    KIND_TF32,
    PANEL_ORDER,
    PLANES,
    chunk_offsets,
    column_at,
    convert_fragment,
    convert_panel,
    negate_panel,
    row_at,
)
from emu.units.tensor_silicon import fused_rows, split

OK, FAULT_A, FAULT_B = range(3)  # an operand reaches outside shared memory

ROW = 128  # bytes of a register row
PARTS = 32 // FLOATS  # vectors of a register row
HALF_OFFSETS = 256  # bytes of 64 row offsets
# scratch, in bytes from its (64-byte aligned) start
_ZERO = 0  # a row of zeros
_RAW = _ZERO + ROW  # a group's elements, transposed
_TABLE_A = _RAW + 256  # chunk offsets
_TABLE_B = _TABLE_A + 8 * 64
_IDENTITY = _TABLE_B + 32 * 64  # the list 0, 1, 2, ...
_OFFSETS = _IDENTITY + 256  # rows of D by column vector
_WIDE = _OFFSETS + 2 * HALF_OFFSETS  # float32 accumulators of a warp whose D is not float32
_SPREAD = _WIDE + ROW * 128
_PANEL_A = _SPREAD + 2 * ROW * 32
_PANEL_B = _PANEL_A + 8 * 32 * 32
_EXPONENTS_A = _PANEL_B + 32 * 32 * 32  # silicon mode: beside the panels
_EXPONENTS_B = _EXPONENTS_A + 8 * 32 * 32
SCRATCH_BYTES = _EXPONENTS_B + 32 * 32 * 32


def _emit_step(b, u, rows, columns, sums):
    """One k: sums[PARTS v + i] += rows[i] * columns[v].

    Odd steps start in the middle: on Zen 3 that keeps both FMA pipes busy where one block follows another
    (16 steps: 33 ns a block against 36 ns in plain order; 30 ns at the peak of the pipes).
    """
    for i in ((i + PARTS // 2 * u) % PARTS for i in range(PARTS)):
        row = rows(i)
        for v, column in enumerate(columns):
            sums[PARTS * v + i] = call(b, f"llvm.fma.v{FLOATS}f32", row.type, row, column, sums[PARTS * v + i])


def _emit_block(b, k, spread, panel, b_panels, c_rows, d_rows):
    """d = c + a * b for 8 rows x (4 columns a register row), over k steps (a multiple of 8).

    A comes spread; with `panel` (address of A's panel) it is spread on the way, for later blocks.
    """
    part, nbytes, fours = vector(F32, FLOATS), 4 * FLOATS, FLOATS // 4
    start = [load(b, offset(b, c, nbytes * i), part, 32) for c in c_rows for i in range(PARTS)]

    def body(step, sums):
        at = b.add(spread, b.mul(step, I64(ROW)))
        a_panel, *b_at = (x and b.add(x, b.mul(step, I64(32))) for x in (panel, *b_panels))
        new = list(sums)
        for u in range(8):
            columns = [pick(b, load(b, offset(b, x, 32 * u), vector(F32, 4), 16), [0, 1, 2, 3] * fours) for x in b_at]
            a_rows = a_panel and load(b, offset(b, a_panel, 32 * u), vector(F32, 8), 32)

            def rows(i, u=u, a_rows=a_rows):
                row_at = offset(b, at, ROW * u + nbytes * i)
                if not a_rows:
                    return load(b, row_at, part, 32)
                row = pick(b, a_rows, [PANEL_ORDER.index(fours * i + j // 4) for j in range(FLOATS)])
                store(b, row, row_at, 32)
                return row

            _emit_step(b, u, rows, columns, new)
        return new

    new = loop_by_8(b, k, start, body)
    for n, value in enumerate(new):
        store(b, value, offset(b, d_rows[n // PARTS], nbytes * (n % PARTS)), 32)


@intrinsic
def _block(typing, k, spread, b_panels, c_rows, d_rows):
    """One block; the tuples hold an address for each of 2, 3 or 6 register rows.

    Three rows make 12 accumulators of 256 bits, which with one A and three B vectors fill 16 vector registers; six make as
    many of 512 bits, which hide the latency of two FMA pipes.
    """

    def emit(ctx, b, sig, args):
        k, spread = args[:2]
        _emit_block(b, k, spread, None, *(cgutils.unpack_tuple(b, x) for x in args[2:]))
        return ctx.get_dummy_value()

    return types.void(k, spread, b_panels, c_rows, d_rows), emit


@intrinsic
def _first_block(typing, k, panel, spread, b_panels, c_rows, d_rows):
    """A block of 2 register rows that also writes the spread of A from its panel."""

    def emit(ctx, b, sig, args):
        k, panel, spread = args[:3]
        _emit_block(b, k, spread, panel, *(cgutils.unpack_tuple(b, x) for x in args[3:]))
        return ctx.get_dummy_value()

    return types.void(k, panel, spread, b_panels, c_rows, d_rows), emit


@intrinsic
def _order_block(typing, rows, offsets):
    """The row numbers of one block of 8 columns (4 uint16) as byte offsets: halves apart, parities in turn."""

    def emit(ctx, b, sig, args):
        rows, offsets = args
        i32x4 = vector(I32, 4)
        at = b.mul(b.zext(load(b, rows, vector(I16, 4), 2), i32x4), splat(i32x4, ROW))
        for half in (0, 1):
            store(b, pick(b, at, [2 * half, 2 * half + 1]), offset(b, offsets, HALF_OFFSETS * half), 8)
        return ctx.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@njit(error_model="numpy")
def _order_rows(n, rows, offsets):
    """From the list of D rows (register order: PTX ISA, wgmma fragment of D) to row offsets by column vector.

    offsets: int32 [2 halves: rows g, rows g + 8][64 column vectors].
    """
    for j in range(n // 8):
        _order_block(rows + 8 * j, offsets + 8 * j)


@njit(error_model="numpy")
def _multiply(n, k, panel_a, spread, panel_b, window, offsets, zero):
    """8 rows of one warp, all N columns.  offsets: one half of _order_rows.

    zero: address of the row of zeros that replaces C, or 0.
    """
    d = row_at(window, offsets, 0), row_at(window, offsets, 1)
    b = column_at(panel_b, k, 0), column_at(panel_b, k, 1)
    _first_block(k, panel_a, spread, b, (zero, zero) if zero else d, d)
    vectors = n // 4
    v = 2
    while v < vectors:
        d = row_at(window, offsets, v), row_at(window, offsets, v + 1)
        b = column_at(panel_b, k, v), column_at(panel_b, k, v + 1)
        left = vectors - v
        if left == 2 or left == 4:
            _block(k, spread, b, (zero, zero) if zero else d, d)
            v += 2
            continue
        d3 = d[0], d[1], row_at(window, offsets, v + 2)
        b3 = b[0], b[1], column_at(panel_b, k, v + 2)
        if PARTS == 2:
            d4, b4 = row_at(window, offsets, v + 3), column_at(panel_b, k, v + 3)
            d6 = *d3, d4, row_at(window, offsets, v + 4), row_at(window, offsets, v + 5)
            b6 = *b3, b4, column_at(panel_b, k, v + 4), column_at(panel_b, k, v + 5)
            _block(k, spread, b6, (zero, zero, zero, zero, zero, zero) if zero else d6, d6)
            v += 6
        else:
            _block(k, spread, b3, (zero, zero, zero) if zero else d3, d3)
            v += 3


# --- accumulators that are not float32 -------------------------------------------------------------


@intrinsic
def _unpack_row(typing, wide, row):
    """A register of f16 pairs to two float32 rows (low halves, high halves)."""

    def emit(ctx, b, sig, args):
        wide, row = args
        pairs = load(b, row, vector(F16, 64), 32)
        for part in (0, 1):
            values = b.fpext(pick(b, pairs, range(part, 64, 2)), vector(F32, 32))
            store(b, values, offset(b, wide, ROW * part), 32)
        return ctx.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def _pack_row(typing, row, wide):
    """The inverse of _unpack_row, rounding to nearest even."""

    def emit(ctx, b, sig, args):
        row, wide = args
        i32 = vector(I32, 32)
        low, high = (
            b.zext(b.bitcast(b.fptrunc(load(b, offset(b, wide, at), vector(F32, 32), 32), vector(F16, 32)),
                             vector(I16, 32)), i32)
            for at in (0, ROW)
        )  # fmt: skip
        store(b, b.or_(low, b.shl(high, splat(i32, 16))), row, 32)
        return ctx.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def _add_integers(typing, row, wide, c, satfinite):
    """row = c + the integers held as float32 at wide; modulo 2^32, or clamped once."""

    def emit(ctx, b, sig, args):
        row, wide, c, satfinite = args
        i32 = vector(I32, 32)
        dot = b.fptosi(load(b, wide, vector(F32, 32), 32), i32)
        total = load(b, c, i32, 32)
        clamped = call(b, "llvm.sadd.sat.v32i32", i32, total, dot)
        store(b, b.select(b.trunc(satfinite, ir.IntType(1)), clamped, b.add(total, dot)), row, 32)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i, i), emit


@njit(error_model="numpy")
def _load_wide(nd, window, rows, wide):
    """Bring one warp's f16 accumulators to float32 rows."""
    for i in range(nd):
        _unpack_row(wide + 2 * ROW * i, window + ROW * ld16(rows + 2 * i))


@njit(error_model="numpy")
def _store_wide(f16_d, satfinite, nd, window, rows, wide, zero):
    """Bring one warp's float32 rows to its f16 or s32 accumulators (`zero`: see _multiply)."""
    for i in range(nd):
        row = window + ROW * ld16(rows + 2 * i)
        if f16_d:
            _pack_row(row, wide + 2 * ROW * i)
        else:
            _add_integers(row, wide + ROW * i, zero if zero else row, satfinite)


# --- the instruction -------------------------------------------------------------------------------


@njit(error_model="numpy")
def _panels(word, kind_a, kind_b, k, smem, smem_bytes, desc_a, desc_b, scratch):
    """Bring the operands that lie in shared memory to float32 panels; a fault code when a descriptor leads outside."""
    n, from_registers, transpose_a, transpose_b = word & 0x1FF, word >> 21 & 1, word >> 19 & 1, word >> 20 & 1
    table_a, table_b, raw = scratch + _TABLE_A, scratch + _TABLE_B, scratch + _RAW
    if not from_registers and chunk_offsets(desc_a, transpose_a, 8, table_a) > smem_bytes:
        return FAULT_A
    if chunk_offsets(desc_b, transpose_b, n // 8, table_b) > smem_bytes:
        return FAULT_B
    if not from_registers:
        convert_panel(kind_a, transpose_a, 8, k, smem, table_a, raw, scratch + _PANEL_A)
    convert_panel(kind_b, transpose_b, n // 8, k, smem, table_b, raw, scratch + _PANEL_B)
    return OK


@njit(error_model="numpy")
def _order_columns(n, wide, lists, scratch):
    """Where the columns of D lie: in the registers of `lists`, or one after another in the float32 rows of `wide`."""
    for i in range(n // 2 if wide else 0):
        st16(scratch + _IDENTITY + 2 * i, i)
    _order_rows(n, scratch + _IDENTITY if wide else lists, scratch + _OFFSETS)


@njit(error_model="numpy")
def _load_fragments(kind, k, window, rows, raw, panel):
    """Bring one warp's A registers (`rows`: their numbers) to its float32 panel."""
    for half in range(2):
        low, high = ld16(rows + 2 * half), ld16(rows + 2 * half + 4)
        convert_fragment(kind, k, window + ROW * low, window + ROW * high, raw, panel + half * k * 32)


@njit(error_model="numpy")
def _take_a(word, kind, k, window, rows, a, fused, scratch):
    """Bring one warp's rows of A, from byte a of the panel on, to what is multiplied: it reads registers before D is written."""
    panel = scratch + _PANEL_A + a
    if word >> 21 & 1:
        _load_fragments(kind, k, window, rows, scratch + _RAW, panel)
    if (word >> 17 ^ word >> 18) & 1:
        negate_panel(2 * k, panel)
    if fused:
        split(kind, 2 * k, panel, scratch + _EXPONENTS_A + a)


@njit(error_model="numpy")
def _binary(word, windows, lists, nd, smem, smem_bytes, desc_a, desc_b, zero, scratch):
    """The product of bits: the ones that rows of A and columns of B share (b1, .and.popc), a bit of every byte at a time."""
    n, from_registers, wide = word & 0x1FF, word >> 21 & 1, scratch + _WIDE
    _order_columns(n, 1, lists, scratch)
    for warp in range(4):
        window = ld64(windows + 8 * warp)
        for plane in range(PLANES):
            kind = KIND_B1 + plane
            fault = _panels(word, kind, kind, 32, smem, smem_bytes, desc_a, desc_b, scratch)
            if fault:
                return fault
            panel = scratch + _PANEL_A + 64 * warp * 32
            if from_registers:
                _load_fragments(kind, 32, window, lists + 2 * nd, scratch + _RAW, panel)
            before = 0 if plane else scratch + _ZERO
            for half in range(2):
                d = scratch + _OFFSETS + HALF_OFFSETS * half
                _multiply(n, 32, panel + half * 1024, scratch + _SPREAD, scratch + _PANEL_B, wide, d, before)
        _store_wide(0, 0, nd, window, lists, wide, zero)
    return OK


@njit(error_model="numpy")
def wgmma(
    word: int,
    windows: int,
    lists: int,
    nd: int,
    smem: int,
    smem_bytes: int,
    desc_a: int,
    desc_b: int,
    scale_d: int,
    scratch: int,
    fraction: int,
    kept: int,
) -> int:
    """One wgmma.mma_async of a warpgroup: D = A * B (+ D if scale_d).  Returns OK or a fault code.

    word: the wgmma word (docs/architecture.md, section 3).  windows: address of 4 int64, the warps'
    register windows; row r of a window is 32 x u32 at +128 r, 32-byte aligned.  lists: address of uint16
    row numbers: nd accumulator rows, then the 4 rows of A if A is in registers.  smem: host address of
    shared memory, 16-byte aligned, smem_bytes long; descriptor addresses are offsets into it.  scratch:
    address of SCRATCH_BYTES, 64-byte aligned, zeroed once by its owner; nothing in it outlives the call.
    fraction: bits that the fused dot product keeps below the largest term, 0 for fast mode; kept: fraction bits of its
    float32 results (integers are exact in both modes).

    After a fault no operand has been read and no register written.
    """
    n, kind_a = word & 0x1FF, word >> 12 & 15
    f16_d, integer = word >> 16 & 1, kind_a >= KIND_S8
    zero = 0 if scale_d else scratch + _ZERO
    if kind_a == KIND_B1:
        return _binary(word, windows, lists, nd, smem, smem_bytes, desc_a, desc_b, zero, scratch)
    kind_b = word >> 24 & 15 or kind_a
    k = 32 if kind_a > KIND_TF32 else 8 if kind_a == KIND_TF32 else 16
    panel_b, exponents_b, spread = scratch + _PANEL_B, scratch + _EXPONENTS_B, scratch + _SPREAD
    wide, offsets = scratch + _WIDE, scratch + _OFFSETS
    fused = fraction != 0 and not integer
    fault = _panels(word, kind_a, kind_b, k, smem, smem_bytes, desc_a, desc_b, scratch)
    if fault:
        return fault
    if fused:
        split(kind_b, n // 8 * k, panel_b, exponents_b)
    c_zero = scratch + _ZERO if integer else zero
    _order_columns(n, f16_d or integer, lists, scratch)
    for warp in range(4):
        window = ld64(windows + 8 * warp)
        d_window = wide if f16_d or integer else window
        if f16_d and scale_d:
            _load_wide(nd, window, lists, wide)
        a = 2 * warp * k * 32  # of the panel, in bytes
        _take_a(word, kind_a, k, window, lists + 2 * nd, a, fused, scratch)
        for half in range(2):
            panel, e, d = scratch + _PANEL_A + a, scratch + _EXPONENTS_A + a, offsets + HALF_OFFSETS * half
            if fused:
                fused_rows(n, k, fraction, kept, f16_d, panel, e, panel_b, exponents_b, spread, d_window, d, zero)
            else:
                _multiply(n, k, panel, spread, panel_b, d_window, d, c_zero)
            a += k * 32
        if f16_d or integer:
            _store_wide(f16_d, word >> 22 & 1, nd, window, lists, wide, zero)
    return OK
