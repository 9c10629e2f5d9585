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
from numba.extending import intrinsic

from emu.compiled import compiled
from emu.llvm import F16, F32, I16, I32, I64, call, load, offset, pick, splat, store, vector
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
    masks = pick(b, b.insert_element(ir.Constant(WORDS, ir.Undefined), mask, I32(0)), [0] * LANES)
    return [b.sitofp(b.and_(x, masks), ROWS) for x in signed]


def _unpack(b: Any, register: Any) -> list[Any]:
    """A register of f16 pairs as float32: the lower halves, the upper ones."""
    return _elements(b, KIND_F16, register, None)


def _pack(b: Any, low: Any, high: Any) -> Any:
    """The inverse of `_unpack`, rounding to nearest even."""
    halves = (b.bitcast(b.fptrunc(x, vector(F16, LANES)), vector(I16, LANES)) for x in (low, high))
    low, high = (b.zext(x, WORDS) for x in halves)
    return b.or_(low, b.shl(high, splat(WORDS, 16)))


def _read_sums(b: Any, kind: int, packed: Any, at: list[Any]) -> list[Any]:
    """C as float32: low rows at both column parities, high rows.  packed: whether it is f16; at: C's rows."""
    if kind == BYTES:
        return [splat(ROWS, 0.0)] * 4
    if kind != KIND_F16:
        return [load(b, row, ROWS, 32) for row in at]
    values, blocks = [], []
    with b.if_else(packed) as branches:
        for branch, is_packed in zip(branches, (True, False), strict=True):
            with branch:
                loads = [load(b, row, WORDS, 32) for row in at[: 2 if is_packed else 4]]
                unpacked = [x for word in loads for x in (_unpack(b, word) if is_packed else [b.bitcast(word, ROWS)])]
                values.append(unpacked)
                blocks.append(b.block)
    sums = []
    for pair in zip(*values, strict=True):
        phi = b.phi(ROWS)
        for value, block in zip(pair, blocks, strict=True):
            phi.add_incoming(value, block)
        sums.append(phi)
    return sums


def _write_sums(b: Any, kind: int, word: Any, sums: list[Any], old: list[Any], at: list[Any]) -> None:
    """D from float32; old: C's rows, to which sums of bytes are added modulo 2^32, or clamped once; at: D's rows."""
    if kind == BYTES:
        c = [load(b, row, WORDS, 32) for row in old]
        dots = [b.fptosi(x, WORDS) for x in sums]
        clamped = [call(b, "llvm.sadd.sat.v32i32", WORDS, x, dot) for x, dot in zip(c, dots, strict=True)]
        totals = [b.add(x, dot) for x, dot in zip(c, dots, strict=True)]
        for row, x, y in zip(at, clamped, totals, strict=True):
            store(b, b.select(_bit(b, word, 18), x, y), row, 32)
        return
    halves = b.if_else(_bit(b, word, 16)) if kind == KIND_F16 else None
    if halves is None:
        for row, value in zip(at, sums, strict=True):
            store(b, value, row, 32)
        return
    with halves as (packed, wide):
        with packed:
            for n, row in enumerate(at[:2]):
                store(b, _pack(b, sums[2 * n], sums[2 * n + 1]), row, 32)
        with wide:
            for row, value in zip(at, sums, strict=True):
                store(b, value, row, 32)


def _bit(b: Any, word: Any, n: int) -> Any:
    return b.trunc(b.lshr(word, I64(n)), ir.IntType(1))


def _emit_product(b: Any, kind: int, k: int, word: Any, row: Any, results: Any, sources: Any) -> None:
    """D = A * B + C; `row`: a function (list, number) to the address of a register."""
    per = PER[kind]
    groups = k // (4 * per)
    c, d = ([row(at, first + n) for n in range(4)] for at, first in ((sources, 3 * groups), (results, 0)))
    masks = [b.select(_bit(b, word, 8 + 4 * n), I32(-1), I32(255)) if kind == BYTES else None for n in (0, 1)]
    sums = _read_sums(b, kind, _bit(b, word, 17), c)
    for group in range(groups):
        numbers = 2 * group, 2 * group + 1, 2 * groups + group
        low, high, columns = (load(b, row(sources, n), WORDS, 32) for n in numbers)
        low, high = (_elements(b, kind, x, masks[0]) for x in (low, high))
        columns = _elements(b, kind, columns, masks[1])
        for q in range(4):
            quad = [lane // 4 * 4 + q for lane in range(LANES)]
            for e in range(per):
                rows = pick(b, low[e], quad), pick(b, high[e], quad)
                for parity in (0, 1):
                    column = pick(b, columns[e], [4 * (2 * (lane % 4) + parity) + q for lane in range(LANES)])
                    for half in (0, 1):
                        n = 2 * half + parity
                        sums[n] = call(b, "llvm.fma.v32f32", ROWS, rows[half], column, sums[n])
    _write_sums(b, kind, word, sums, c, d)


@intrinsic
def _product(typing: Any, word: Any, window: Any, results: Any, sources: Any) -> Any:
    """One product in fast mode; the arguments of `product`."""

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        word, window, results, sources = args

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
            _emit_product(b, kind, k, word, row, results, sources)
            b.branch(end)
        b.position_at_end(end)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i, i), emit


@intrinsic
def _widen(typing: Any, low: Any, high: Any, row: Any) -> Any:
    """A register of f16 pairs to two float32 rows."""

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        low, high, row = args
        for value, at in zip(_unpack(b, load(b, row, WORDS, 32)), (low, high), strict=True):
            store(b, value, at, 32)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i), emit


@intrinsic
def _narrow(typing: Any, row: Any, low: Any, high: Any) -> Any:
    """The inverse of `_widen`, rounding to nearest even."""

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        row, *parts = args
        store(b, _pack(b, *(load(b, at, ROWS, 32) for at in parts)), row, 32)
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
        _product(word, window, results, sources)
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
