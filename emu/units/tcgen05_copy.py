"""What tcgen05.cp and tcgen05.shift do to Tensor Memory when they are complete (PTX ISA 9.7.16.9).

The source is laid out as a K-major operand, rows of 32 or 16 bytes.  Which lanes a row goes to follows CUTLASS's
copy_traits_sm100.hpp.  .4x256b gives one row to each quarter: it renews the lane that tcgen05.shift leaves as it was, the
last one of each quarter (public notes on sm_100's SASS read that back on a B200).
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.raw import copy, ld32, st32
from emu.state import TMEM_LANES
from emu.units.tmem_layout import cell, column_of, lane_of

CHUNK = 16  # bytes: 4 columns
QUARTER = TMEM_LANES // 4
SHIFT_COLUMNS = 8  # 32 bytes
FULLS, FOURS, HALVES, PAIRS_02, PAIRS_01, QUADS = range(6)  # isa.ops.tcgen05_copy.SHAPES


@njit(inline="always")
def shape_of(word: int) -> int:
    """Shape and multicast of a tcgen05.cp word."""
    return (word >> 32) & 7


@njit(inline="always")
def source_rows(word: int) -> int:
    """Rows that are read."""
    shape = shape_of(word)
    return 4 if shape == FOURS else 32 if shape == QUADS else 64 if shape >= PAIRS_02 else 128


@njit(inline="always")
def source_chunks(word: int) -> int:
    """Chunks of 16 bytes of a row."""
    return 2 if shape_of(word) <= FOURS else 1


@njit(inline="always")
def chunk(desc: int, r: int, c: int) -> int:
    """The shared-memory byte of a chunk of a row, K-major."""
    start, lbo, sbo = (desc & 0x3FFF) << 4, (desc >> 16 & 0x3FFF) << 4, (desc >> 32 & 0x3FFF) << 4
    base, code = desc >> 49 & 7, desc >> 61 & 7
    if code == 0:
        return start + r % 8 * CHUNK + r // 8 * sbo + c * lbo
    span = 256 >> (code >> 1)
    linear = start + r % 8 * span + r // 8 * sbo + c * CHUNK
    return linear ^ ((linear >> 7) - base & (span // CHUNK - 1)) << 4


@njit(inline="always")
def word_of(at: int, format: int, w: int) -> int:
    """The w-th 32 bits of a chunk; elements of 4 bits (format 1) become the middle of a byte, of 6 bits its lower part."""
    if format == 0:
        return ld32(at + 4 * w)
    bits, value = 4 if format == 1 else 6, 0
    for i in range(4):
        place = (4 * w + i) * bits
        x = ld32(at + (place >> 3)) >> (place & 7) & ((1 << bits) - 1)
        value |= (x << 2 if format == 1 else x) << 8 * i
    return value


@njit(inline="always")
def lanes_of(shape: int, r: int, k: int) -> int:
    """The lane of the k-th copy of row r, -1 behind the last one."""
    if shape == FOURS:
        return r * QUARTER if k == 0 else -1
    if shape == PAIRS_02:
        return r + 64 * k if k < 2 else -1
    if shape == PAIRS_01:
        return r % 32 + r // 32 * 64 + 32 * k if k < 2 else -1
    if shape == QUADS:
        return r + 32 * k if k < 4 else -1
    return r if k == 0 else -1


@compiled
def copy_in(S: Any, J: Any, smem: int) -> bool:
    """Complete a copy; False when it reaches outside shared memory at `smem`."""
    word, shape, format = J.word, shape_of(J.word), (J.word >> 35) & 3
    lane, column = lane_of(J.d), column_of(J.d)
    for r in range(source_rows(word)):
        for c in range(source_chunks(word)):
            at = chunk(J.a, r, c)
            if at + CHUNK > S.smem_per_cta:
                return False
            for w in range(4):
                x = word_of(smem + at, format, w)
                for k in range(4):
                    to = lanes_of(shape, r, k)
                    if to >= 0:
                        st32(cell(S, lane + to, column + 4 * c + w), x)
    return True


@compiled
def shift_down(S: Any, J: Any) -> None:
    """Complete a shift: from the address's lane on each lane takes what the next one had, but the last one of a quarter."""
    lane, column = lane_of(J.d), column_of(J.d)
    for k in range(column, column + SHIFT_COLUMNS):
        for first in range(lane, TMEM_LANES, QUARTER):
            copy(cell(S, first, k), cell(S, first + 1, k), 4 * (QUARTER - 1))
