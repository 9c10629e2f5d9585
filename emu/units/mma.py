"""mma.sync: a warp's matrix product at issue (PTX ISA 9.7.14.5; section F of the H200 measurements).

Arithmetic as in emu.units.tensor_math: in fast mode every product enters by a float32 fused multiply-add, k ascending,
starting from C; f16 results are rounded to nearest even once.  In silicon mode it is that of emu.units.tensor_silicon.
Sums of products of bytes are exact and are added to C modulo 2^32, or clamped once with satfinite.

Fragments.  Lane 4 g + q of a 32-bit register of A or B holds the `per` neighbouring elements of K from `per` q on of row (of
B: column) g, one of C and D a column of row g.  Transposes of 4 x 4 words make columns of 16 rows of them; B stays in memory,
where the host's multiplication takes single elements from.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from emu.compiled import compiled
from emu.llvm import F16, F32, I16, I32, I64, call, load, offset, pick, shuffle, splat, store, vector
from emu.raw import ld16, st16
from emu.stalls import Reason
from emu.units.common import DEFAULT, together
from emu.units.mma_silicon import WORK_BYTES as FUSED_BYTES
from emu.units.mma_silicon import fused_product, panels
from emu.units.sharing import take_issue
from emu.units.tensor_panels import KIND_BF16, KIND_F16, KIND_S8, KIND_TF32, KIND_U8

FULL, R_DISPATCH = 0xFFFFFFFF, int(Reason.DISPATCH_STALL)
ROW = 128  # bytes of a register row
LANES = 32
WORK_BYTES = 4 * ROW + FUSED_BYTES
ROWS, WORDS, COLUMN = vector(F32, LANES), vector(I32, LANES), vector(F32, 16)
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


# ---- operands ----------------------------------------------------------------------------------------


def _elements(b: Any, kind: int, words: Any, mask: Any) -> list[Any]:
    """The float32 values of the elements in a vector of registers, one vector for each place.

    Of bytes: pairs of int16, places 0 and 2, then 1 and 3; mask: 255 of unsigned ones, else -1, as an int16.
    """
    n = words.type.count
    floats = vector(F32, n)
    if kind == KIND_TF32:  # the hardware drops the low 13 bits
        return [b.bitcast(b.and_(words, splat(words.type, 0xFFFFE000)), floats)]
    if kind == KIND_BF16:
        halves = b.shl(words, splat(words.type, 16)), b.and_(words, splat(words.type, 0xFFFF0000))
        return [b.bitcast(x, floats) for x in halves]
    if kind == KIND_F16:
        halves = b.bitcast(words, vector(F16, 2 * n))
        return [b.fpext(pick(b, halves, range(place, 2 * n, 2)), floats) for place in (0, 1)]
    pairs = vector(I16, 2 * n)
    words, eight = b.bitcast(words, pairs), splat(pairs, 8)
    masks = pick(b, b.insert_element(ir.Constant(pairs, ir.Undefined), mask, I32(0)), [0] * 2 * n)
    places = b.ashr(b.shl(words, eight), eight), b.ashr(words, eight)
    return [b.bitcast(b.and_(x, masks), vector(I32, n)) for x in places]


def _turn(b: Any, vectors: list[Any]) -> list[Any]:
    """The 4 x 4 transposes of each 128-bit part of four vectors of 16: rows of a fragment become its columns, and back.

    Element 4 i + j of a column is of row i + 4 j.
    """

    def merge(x: Any, y: Any, order: tuple[int, ...]) -> Any:
        return shuffle(b, x, y, [4 * part + i for part in range(4) for i in order])

    low, high = ([merge(*vectors[i : i + 2], order) for i in (0, 2)] for order in ((0, 16, 1, 17), (2, 18, 3, 19)))
    return [merge(*x, order) for x in (low, high) for order in ((0, 1, 16, 17), (2, 3, 18, 19))]


def _halves(b: Any, rows: Sequence[Any]) -> list[Any]:
    """Addresses of the 64-byte halves of registers."""
    return [offset(b, row, at) for row in rows for at in (0, ROW // 2)]


def _columns(b: Any, rows: Sequence[Any]) -> list[Any]:
    """Two registers (rows 0 to 7 and 8 to 15 of a fragment) as four columns of words."""
    return _turn(b, [load(b, at, vector(I32, 16), 32) for at in _halves(b, rows)])


# ---- C and D -----------------------------------------------------------------------------------------


def _read_sums(b: Any, kind: int, packed: Any, rows: list[Any]) -> list[Any]:
    """The eight columns of C as float32 (of bytes: zeros).  packed: whether C is f16; rows: addresses of its registers."""
    if kind == BYTES:
        return [splat(vector(I32, 16), 0)] * 8
    values, blocks = [], []
    with b.if_else(packed) as branches:
        for branch, is_packed in zip(branches, (True, False), strict=True):
            with branch:
                if is_packed:
                    columns = [x for words in _columns(b, rows[:2]) for x in _elements(b, KIND_F16, words, None)]
                else:
                    pairs = zip(*(_columns(b, rows[parity::2]) for parity in (0, 1)), strict=True)
                    columns = [b.bitcast(x, COLUMN) for pair in pairs for x in pair]
                values.append(columns)
                blocks.append(b.block)
    sums = []
    for pair in zip(*values, strict=True):
        phi = b.phi(COLUMN)
        for value, block in zip(pair, blocks, strict=True):
            phi.add_incoming(value, block)
        sums.append(phi)
    return sums


def _write_sums(b: Any, kind: int, word: Any, sums: list[Any], old: list[Any], rows: list[Any]) -> None:
    """D from its columns; old: C's registers, to which sums of bytes are added modulo 2^32, or clamped once."""

    def write(rows: list[Any], values: list[Any]) -> None:
        for at, value in zip(_halves(b, rows), values, strict=True):
            store(b, value, at, 32)

    def wide(rows: list[Any]) -> list[Any]:
        return rows[::2] + rows[1::2]

    values = _turn(b, sums[::2]) + _turn(b, sums[1::2])
    if kind == BYTES:
        c = [load(b, at, values[0].type, 32) for at in _halves(b, wide(old))]  # all of them first: D may lie there
        clamped = [call(b, "llvm.sadd.sat.v16i32", x.type, x, dot) for x, dot in zip(c, values, strict=True)]
        totals = [b.add(x, dot) for x, dot in zip(c, values, strict=True)]
        saturate = _bit(b, word, 18)
        write(wide(rows), [b.select(saturate, *pair) for pair in zip(clamped, totals, strict=True)])
        return
    with b.if_else(_bit(b, word, 16)) as (packed, unpacked):
        with packed:
            halves = [b.fptrunc(x, vector(F16, 16)) for x in sums]
            order = [i // 2 + 16 * (i % 2) for i in range(32)]
            pairs = [shuffle(b, x, y, order) for x, y in zip(halves[::2], halves[1::2], strict=True)]
            write(rows[:2], _turn(b, [b.bitcast(x, vector(I32, 16)) for x in pairs]))
        with unpacked:
            write(wide(rows), values)


def _bit(b: Any, word: Any, n: int) -> Any:
    return b.trunc(b.lshr(word, I64(n)), ir.IntType(1))


# ---- products ----------------------------------------------------------------------------------------


def _multiply_add(b: Any, column: Any, factor: Any, total: Any) -> Any:
    """total + column * factor: float32, or the sum of the products of two int16 each."""
    factor = pick(b, b.insert_element(ir.Constant(column.type, ir.Undefined), factor, I32(0)), [0] * 16)
    if column.type == COLUMN:
        return call(b, "llvm.fma.v16f32", COLUMN, column, factor, total)
    wide = [b.sext(b.bitcast(x, vector(I16, 32)), vector(I32, 32)) for x in (column, factor)]
    products = b.mul(*wide)
    return b.add(total, b.add(*(pick(b, products, range(place, 32, 2)) for place in (0, 1))))


def _keep_factors(b: Any, kind: int, row: Any, mask: Any, at: Any) -> Callable[[int, int, int], Any]:
    """Write the elements of a register of B to `at`: a function (q, place, column) that loads one, of bytes a pair."""
    words = load(b, row, WORDS, 32)
    if kind == KIND_F16:  # neighbours stay neighbours
        store(b, b.fpext(b.bitcast(words, vector(F16, 2 * LANES)), vector(F32, 2 * LANES)), at, 64)
        return lambda q, place, column: load(b, offset(b, at, 32 * column + 8 * q + 4 * place), F32, 4)
    places = _elements(b, kind, words, mask)
    for place, values in enumerate(places):
        store(b, values, offset(b, at, ROW * place), 64)
    element = places[0].type.element
    return lambda q, place, column: load(b, offset(b, at, ROW * place + 16 * column + 4 * q), element, 4)


def _emit_product(b: Any, kind: int, k: int, word: Any, row: Any, results: Any, sources: Any, work: Any) -> None:
    """D = A * B + C; `row`: a function (list, number) to the address of a register."""
    per = PER[kind]
    groups = k // (4 * per)
    c, d = ([row(at, first + n) for n in range(4)] for at, first in ((sources, 3 * groups), (results, 0)))
    masks = [b.select(_bit(b, word, 8 + 4 * n), I16(-1), I16(255)) if kind == BYTES else None for n in (0, 1)]
    factor = [
        _keep_factors(b, kind, row(sources, 2 * groups + n), masks[1], offset(b, work, 2 * ROW * n))
        for n in range(groups)
    ]
    sums = _read_sums(b, kind, _bit(b, word, 17), c)
    for group in range(groups):
        for q, words in enumerate(_columns(b, [row(sources, 2 * group + n) for n in (0, 1)])):
            for place, column in enumerate(_elements(b, kind, words, masks[0])):
                sums = [_multiply_add(b, column, factor[group](q, place, n), total) for n, total in enumerate(sums)]
    _write_sums(b, kind, word, sums, c, d)


@intrinsic
def _product(typing: Any, word: Any, window: Any, results: Any, sources: Any, work: Any) -> Any:
    """One product in fast mode; the arguments of `product`."""

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        word, window, results, sources, work = args

        def row(rows: Any, n: int) -> Any:
            number = b.zext(load(b, offset(b, rows, 2 * n), I16, 2), I64)
            return b.add(window, b.shl(number, I64(7)))

        end = b.append_basic_block("mma.end")
        switch = b.switch(b.and_(word, I64(0xFFF)), end)
        for kind, k in sorted(CASES):
            block = b.append_basic_block(f"mma.{kind}.{k}")
            for name in (kind, KIND_U8) if kind == BYTES else (kind,):
                switch.add_case(I64(name << 8 | k), block)
            b.position_at_end(block)
            _emit_product(b, kind, k, word, row, results, sources, work)
            b.branch(end)
        b.position_at_end(end)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i, i, i), emit


@intrinsic
def _widen(typing: Any, low: Any, high: Any, row: Any) -> Any:
    """A register of f16 pairs to two float32 rows."""

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        low, high, row = args
        for value, at in zip(_elements(b, KIND_F16, load(b, row, WORDS, 32), None), (low, high), strict=True):
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
        store(b, shuffle(b, *halves, [i // 2 + LANES * (i % 2) for i in range(2 * LANES)]), row, 32)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i), emit


@njit(inline="always")
def _row(window: int, rows: int, n: int) -> int:
    """Address of the n-th listed register row."""
    return window + ld16(rows + 2 * n) * ROW


_panels = panels(_elements, PER, CASES)


@compiled
def product(word: int, window: int, results: int, sources: int, work: int, fraction: int) -> None:
    """One mma.sync of a warp.

    word: the mma word (docs/architecture.md 3).  window: the warp's registers.  results, sources: addresses of
    uint16 row numbers of D, and of A, B and C.  work: WORK_BYTES of work space, 64-byte aligned.  fraction: bits that a
    fused dot product keeps below its largest term, 0 for fast mode.
    """
    if fraction == 0 or word >> 8 & 15 >= KIND_S8:
        _product(word, window, results, sources, work)
    else:
        _fused(word, window, results, sources, work, fraction)


@compiled
def _fused(word: int, window: int, results: int, sources: int, work: int, fraction: int) -> None:
    """A product of `product` as the silicon rounds it."""
    k, kind, half_d, half_c = word & 0xFF, word >> 8 & 15, word >> 16 & 1, word >> 17 & 1
    of_a = k * (32 if kind == KIND_TF32 else 16) // 64  # registers
    old = sources + 2 * (of_a + of_a // 2)
    if half_c:
        for n in range(2):
            _widen(work + 2 * n * ROW, work + (2 * n + 1) * ROW, _row(window, old, n))
    else:
        for n in range(4):
            _move(work + n * ROW, _row(window, old, n))
    _panels(kind, k, window, sources, work + 4 * ROW)
    fused_product(kind, k, fraction, half_d, work + 4 * ROW, work)
    if half_d:
        for n in range(2):
            _narrow(_row(window, results, n), work + 2 * n * ROW, work + (2 * n + 1) * ROW)
    else:
        for n in range(4):
            _move(_row(window, results, n), work + n * ROW)


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
    late = max(S.clear_at[W.sub] - t, 0) if S.clear_warp[W.sub] != W.slot else 0
    S.port_next[W.sub] = t + late + C.mma_issue_cy
    S.mma_spare[W.sub] = I.interval * C.mma_spare256 >> 8
    if late == 0:
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
