"""mma.sync: a warp's matrix product at issue (PTX ISA 9.7.14.5; section F of the H200 measurements).

Arithmetic as in emu.units.tensor_math: in fast mode every product enters by a float32 fused multiply-add, k ascending,
starting from C; f16 results are rounded to nearest even once.  In silicon mode it is that of emu.units.tensor_silicon.
Sums of products of bytes are exact and are added to C modulo 2^32, or clamped once with satfinite.

Fragments.  Lane 4 g + q of a 32-bit register of A or B holds the `per` neighbouring elements of K from
`per` q on of row (of B: column) g; so D's lane needs, for each k, an element of its own quad of A and one
of four lanes of B: shuffles of whole registers.
"""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from emu.compiled import compiled
from emu.llvm import F16, F32, I16, I32, I64, call, load, offset, pick, splat, store, vector
from emu.raw import ld16, st16
from emu.stalls import Reason
from emu.units.common import DEFAULT, together
from emu.units.mma_silicon import WORK_BYTES as FUSED_BYTES
from emu.units.mma_silicon import fused_product, panels
from emu.units.sharing import take_issue
from emu.units.tensor_panels import KIND_BF16, KIND_F16, KIND_S8, KIND_TF32

FULL, R_DISPATCH = 0xFFFFFFFF, int(Reason.DISPATCH_STALL)
ROW = 128  # bytes of a register row
LANES = 32
WORK_BYTES = 12 * ROW + FUSED_BYTES
ROWS, WORDS = vector(F32, LANES), vector(I32, LANES)
BYTES = KIND_S8  # stands for s8 and u8
CASES = {
    (KIND_F16, 16),
    (KIND_F16, 8),
    (KIND_BF16, 16),
    (KIND_BF16, 8),
    (KIND_TF32, 8),
    (KIND_TF32, 4),
    (BYTES, 32),
    (BYTES, 16),
}
PER = {KIND_F16: 2, KIND_BF16: 2, KIND_TF32: 1, BYTES: 4}  # elements of a register


def _elements(b: Any, kind: int, register: Any, mask: Any) -> list[Any]:
    """The float32 values of the elements of a register, one vector for each place; `mask`: 255 of unsigned bytes."""
    if kind == KIND_TF32:  # the hardware drops the low 13 bits
        return [b.bitcast(b.and_(register, splat(WORDS, 0xFFFFE000)), ROWS)]
    if kind == KIND_BF16:
        halves = b.shl(register, splat(WORDS, 16)), b.and_(register, splat(WORDS, 0xFFFF0000))
        return [b.bitcast(x, ROWS) for x in halves]
    if kind == KIND_F16:
        parts = register, b.lshr(register, splat(WORDS, 16))
        return [b.fpext(b.bitcast(b.trunc(x, vector(I16, LANES)), vector(F16, LANES)), ROWS) for x in parts]
    signed = (b.ashr(b.shl(register, splat(WORDS, 24 - 8 * e)), splat(WORDS, 24)) for e in range(4))
    return [b.sitofp(b.and_(x, mask), ROWS) for x in signed]


def _emit_product(
    b: Any, kind: int, k: int, registers: list[Any], masks: list[Any], c: list[Any], d: list[Any]
) -> None:
    """D = A * B + C; `registers`: functions that load A's registers, then B's; c, d: addresses of four float32 rows."""
    per = PER[kind]
    groups = k // (4 * per)
    sums = [load(b, at, ROWS, 32) for at in c]
    for group in range(groups):
        low, high = (_elements(b, kind, registers[2 * group + half](), masks[0]) for half in (0, 1))
        columns = _elements(b, kind, registers[2 * groups + group](), masks[1])
        for q in range(4):
            quad = [lane // 4 * 4 + q for lane in range(LANES)]
            for e in range(per):
                rows = pick(b, low[e], quad), pick(b, high[e], quad)
                for parity in (0, 1):
                    column = pick(b, columns[e], [4 * (2 * (lane % 4) + parity) + q for lane in range(LANES)])
                    for half in (0, 1):
                        n = 2 * half + parity
                        sums[n] = call(b, "llvm.fma.v32f32", ROWS, rows[half], column, sums[n])
    for value, at in zip(sums, d, strict=True):
        store(b, value, at, 32)


@intrinsic
def _product(typing: Any, kind: Any, k: Any, signs: Any, window: Any, rows: Any, c: Any, d: Any) -> Any:
    """One product.  rows: address of the row numbers of A and B; c, d: tuples of four addresses of float32 rows.

    signs: bit 0 A, bit 1 B has unsigned bytes.
    """

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        kind, k, signs, window, rows, c, d = args
        c, d = cgutils.unpack_tuple(b, c), cgutils.unpack_tuple(b, d)

        def register(n: int) -> Any:
            def at() -> Any:
                number = b.zext(load(b, offset(b, rows, 2 * n), I16, 2), I64)
                return load(b, b.add(window, b.shl(number, I64(7))), WORDS, 32)

            return at

        def mask(bit: int) -> Any:
            unsigned = b.trunc(b.lshr(signs, I64(bit)), ir.IntType(1))
            word = b.select(unsigned, I32(255), I32(-1))
            return pick(b, b.insert_element(ir.Constant(WORDS, ir.Undefined), word, I32(0)), [0] * LANES)

        end = b.append_basic_block("mma.end")
        switch = b.switch(b.or_(b.shl(kind, I64(8)), k), end)
        for case in sorted(CASES):
            block = b.append_basic_block(f"mma.{case[0]}.{case[1]}")
            switch.add_case(I64(case[0] << 8 | case[1]), block)
            b.position_at_end(block)
            masks = [mask(0), mask(1)] if case[0] == BYTES else [None, None]
            _emit_product(b, *case, [register(n) for n in range(6)], masks, c, d)
            b.branch(end)
        b.position_at_end(end)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i, i, i, c, d), emit


@intrinsic
def _widen(typing: Any, low: Any, high: Any, row: Any) -> Any:
    """A register of f16 pairs to two float32 rows."""

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        low, high, row = args
        values = _elements(b, KIND_F16, load(b, row, WORDS, 32), None)
        for value, at in zip(values, (low, high), strict=True):
            store(b, value, at, 32)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i), emit


@intrinsic
def _narrow(typing: Any, row: Any, low: Any, high: Any) -> Any:
    """The inverse of `_widen`, rounding to nearest even."""

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        row, *parts = args
        halves = (b.fptrunc(load(b, at, ROWS, 32), vector(F16, LANES)) for at in parts)
        low, high = (b.zext(b.bitcast(x, vector(I16, LANES)), WORDS) for x in halves)
        store(b, b.or_(low, b.shl(high, splat(WORDS, 16))), row, 32)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i), emit


@intrinsic
def _add_integers(typing: Any, row: Any, wide: Any, c: Any, satfinite: Any) -> Any:
    """row = c + the integers held as float32 at `wide`: modulo 2^32, or clamped once."""

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        row, wide, c, satfinite = args
        dot = b.fptosi(load(b, wide, ROWS, 32), WORDS)
        total = load(b, c, WORDS, 32)
        clamped = call(b, "llvm.sadd.sat.v32i32", WORDS, total, dot)
        store(b, b.select(b.trunc(satfinite, ir.IntType(1)), clamped, b.add(total, dot)), row, 32)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i, i), emit


@njit(inline="always")
def _row(window: int, rows: int, n: int) -> int:
    """Address of the n-th listed register row."""
    return window + ld16(rows + 2 * n) * ROW


_panels = panels(_elements, PER, CASES)


@compiled
def product(word: int, window: int, results: int, sources: int, wide: int, fraction: int) -> None:
    """One mma.sync of a warp.

    word: the mma word (docs/architecture.md 3).  window: the warp's registers.  results, sources: addresses of
    uint16 row numbers of D, and of A, B and C.  wide: WORK_BYTES of work space, 64-byte aligned; the first four rows are
    zero.  fraction: bits that a fused dot product keeps below its largest term, 0 for fast mode.
    """
    k, kind_a, kind_b = word & 0xFF, word >> 8 & 15, word >> 12 & 15
    half_d, half_c = word >> 16 & 1, word >> 17 & 1
    integer = kind_a >= KIND_S8
    bits = 8 if integer else 32 if kind_a == KIND_TF32 else 16
    of_a = k * bits // 64  # registers
    kind = KIND_S8 if integer else kind_a
    signs = (kind_a > KIND_S8) | (kind_b > KIND_S8) << 1
    old = sources + 2 * (of_a + of_a // 2)
    into = wide + 4 * ROW
    c = (wide, wide + ROW, wide + 2 * ROW, wide + 3 * ROW)  # zeros, for bytes
    w = (into, into + ROW, into + 2 * ROW, into + 3 * ROW)
    if half_c:
        _widen(into, into + ROW, _row(window, old, 0))
        _widen(into + 2 * ROW, into + 3 * ROW, _row(window, old, 1))
        c = w
    elif not integer:
        c = (_row(window, old, 0), _row(window, old, 1), _row(window, old, 2), _row(window, old, 3))
    d = w
    if not (half_d or integer):
        d = (_row(window, results, 0), _row(window, results, 1), _row(window, results, 2), _row(window, results, 3))
    if fraction != 0 and not integer:
        if not half_c:
            for n in range(4):
                _move(into + n * ROW, _row(window, old, n))
        _panels(kind, k, window, sources, wide + 12 * ROW)
        fused_product(kind, k, fraction, half_d, wide + 12 * ROW, into)
        if not half_d:
            for n in range(4):
                _move(_row(window, results, n), into + n * ROW)
    else:
        _product(kind, k, signs, window, sources, c, d)
    if half_d:
        _narrow(_row(window, results, 0), into, into + ROW)
        _narrow(_row(window, results, 1), into + 2 * ROW, into + 3 * ROW)
    elif integer:
        for n in range(4):
            _add_integers(into + n * ROW, into + n * ROW, _row(window, old, n), word >> 18 & 1)
        for n in range(4):
            _move(_row(window, results, n), into + n * ROW)


@intrinsic
def _move(typing: Any, target: Any, source: Any) -> Any:
    """Copy a register row."""

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        store(b, load(b, args[1], WORDS, 32), args[0], 32)
        return ctx.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@compiled
def mma(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """mma.sync by all lanes of a warp."""
    if m == 0 or not together(S, W, m, FULL):
        return DEFAULT
    results = S.list_at + 2 * I.list
    fraction = C.mma_fraction if S.silicon else 0
    product(I.imm, W.row_at, results, results + 2 * I.nd, S.fragment_at, fraction)
    late = S.clear_at[W.sub] - t
    if late <= 0:
        return DEFAULT
    take_issue(S, W.sub, t + late)
    S.hold = t + late + I.interval
    W.dep_ready, W.dep_reason = t + late + I.stall, R_DISPATCH
    return int(I.latency) + late


@compiled
def movmatrix(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """movmatrix.trans: lane l gets elements 2(l%4), +1 of row l/4 of the transpose."""
    if m == 0 or not together(S, W, m, FULL):
        return DEFAULT
    target, source = S.shuffle_row * ROW + W.row_at, W.row_at + I.a * ROW
    for r in range(8):
        for c in range(8):  # element (c, r) of the source
            st16(target + 16 * r + 2 * c, ld16(source + 16 * c + 2 * r))
    _move(W.row_at + I.d * ROW, target)
    return DEFAULT
