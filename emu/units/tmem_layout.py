"""Where the cells of Tensor Memory lie, and which of them a load or store moves to which register (PTX ISA 9.7.16.2.3)."""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.raw import copy, ld16, ld32, st32
from emu.state import TMEM_LANES

FULL = 0xFFFFFFFF
NAN, SIGN = 0x7FFFFFFF, 0x80000000


@njit(inline="always")
def cell(S: Any, lane: int, column: int) -> int:
    """The host address of a cell; lane and column are in range."""
    return S.tmem_at + (column * TMEM_LANES + lane) * 4


@njit(inline="always")
def lane_of(taddr: int) -> int:
    """The lane of a Tensor Memory address."""
    return (taddr >> 16) & 0xFFFF


@njit(inline="always")
def column_of(taddr: int) -> int:
    """The column of a Tensor Memory address."""
    return taddr & 0xFFFF


@njit(inline="always")
def parts_of(J: Any) -> int:
    """Parts of the columns of a product's D that lie one below the other in the lanes."""
    return TMEM_LANES // J.m if J.ws else 1


# ---- Tensor Memory words (isa.ops.tcgen05.tmem_word) ------------------------------------------------


@njit(inline="always")
def shape_of(word: int) -> int:
    """The shape of a Tensor Memory word: 0 .32x32b, 1 .16x64b, 2 .16x128b, 3 .16x256b, 4 .16x32bx2."""
    return (word >> 32) & 7


@njit(inline="always")
def step_of(word: int) -> int:
    """Columns of a register: 2 with .pack::16b and .unpack::16b."""
    return 1 + ((word >> 35) & 1)


@njit(inline="always")
def split_of(word: int) -> int:
    """Columns between the halves of .16x32bx2."""
    return (((word >> 36) & 0xFFFFF) ^ 0x80000) - 0x80000


@njit(inline="always")
def width_of(word: int, count: int) -> int:
    """Columns that `count` registers a thread take; of .16x32bx2 each half."""
    shape = shape_of(word)
    return count * step_of(word) * (1 if shape == 0 or shape == 4 else 2)


@njit(inline="always")
def beats(word: int, taddr: int, count: int) -> int:
    """Port cycles of a load or store: two neighbouring columns, from an even one on, in each.

    Shapes of 16 lanes fill half of a beat; .16x256b, whose registers fall on columns of one parity at a time, a quarter.
    (Notes on sm_100's SASS, measured on a B200: N / 2, N, 2 N and 8 N cycles for .xN, twice that with .pack::16b.)
    """
    shape, width, odd = shape_of(word), count * step_of(word), taddr & 1
    if shape == 0:
        return (width + odd + 1) >> 1
    if shape == 4:
        return ((width + odd + 1) >> 1) + ((width + ((taddr + split_of(word)) & 1) + 1) >> 1)
    return 2 * width if shape == 3 else width


@njit(inline="always")
def place(word: int, t: int, r: int) -> Any:
    """The lane and the column, from the address on, of register r of thread t (PTX ISA 9.7.16.2.3)."""
    shape, step = shape_of(word), step_of(word)
    if shape == 0:
        return t, r * step
    if shape == 1:
        return (t >> 2) + 8 * (t & 1), (((t >> 1) & 1) + 2 * r) * step
    if shape == 2:
        return (t >> 2) + 8 * (r & 1), ((t & 3) + 4 * (r >> 1)) * step
    if shape == 3:
        return (t >> 2) + 8 * ((r >> 1) & 1), (2 * (t & 3) + (r & 1) + 8 * (r >> 2)) * step
    return t & 15, r * step + (split_of(word) if t >= 16 else 0)


@njit(inline="always")
def reduces(word: int) -> int:
    """Whether a load also reduces."""
    return (word >> 56) & 1


# ---- moving --------------------------------------------------------------------------------------


@compiled
def read(S: Any, W: Any, E: Any) -> None:
    """Cells to registers, of the load of entry E."""
    rows = S.list_at + 2 * E.list
    lane, column, word, packed = lane_of(E.taddr), column_of(E.taddr), E.word, step_of(E.word) == 2
    whole = shape_of(word) == 0 and not packed and E.mask == FULL
    for r in range(E.count):
        row = W.row_at + ld16(rows + 2 * r) * 128
        if whole:
            copy(row, cell(S, lane, column + r), 128)
            continue
        for t in range(32):
            if (E.mask >> t) & 1:
                down, right = place(word, t, r)
                x = ld32(cell(S, lane + down, column + right))
                if packed:
                    x = x & 0xFFFF | (ld32(cell(S, lane + down, column + right + 1)) & 0xFFFF) << 16
                st32(row + t * 4, x)
    if reduces(word):
        for t in range(32):
            if (E.mask >> t) & 1:
                st32(W.row_at + E.result * 128 + t * 4, reduction(W, E, rows, t))


@compiled
def write(S: Any, E: Any, source: int) -> None:
    """Registers, kept at `source`, to cells; the upper halves of cells are 0 with .unpack::16b."""
    lane, column, word, packed = lane_of(E.taddr), column_of(E.taddr), E.word, step_of(E.word) == 2
    whole = shape_of(word) == 0 and not packed and E.mask == FULL
    for r in range(E.count):
        if whole:
            copy(cell(S, lane, column + r), source + r * 128, 128)
            continue
        for t in range(32):
            if (E.mask >> t) & 1:
                down, right = place(word, t, r)
                x = ld32(source + r * 128 + t * 4)
                if packed:
                    st32(cell(S, lane + down, column + right + 1), x >> 16)
                    x &= 0xFFFF
                st32(cell(S, lane + down, column + right), x)


@compiled
def reduction(W: Any, E: Any, rows: int, t: int) -> int:
    """The least or greatest of the registers that a load has just written, in one lane.

    As min and max: of floats NaN are passed over, or with .NaN win; -0 is below +0; .abs compares and gives absolute values.
    """
    word, best, found = E.word >> 57, 0, False
    greatest, magnitude, nan, signed, float_ = word & 1, word & 2, word & 4, word & 8, word & 16
    for r in range(E.count):
        x = ld32(W.row_at + ld16(rows + 2 * r) * 128 + t * 4)
        if magnitude:
            x &= NAN
        if float_ and x & NAN > 0x7F800000:
            if nan:
                return NAN
            continue
        key = x
        if signed:
            key = x ^ SIGN
        elif float_:
            key = x ^ FULL if x & SIGN else x | SIGN
        better = key > best if greatest else key < best
        best, found = (key, True) if better or not found else (best, True)
    if not found:
        return NAN
    if signed:
        return best ^ SIGN
    if float_:
        return best & NAN if best & SIGN else best ^ FULL
    return best
