"""Tensor Memory: 128 lanes of 512 columns of 32 bits, allocated to CTAs by columns (PTX ISA 9.7.16.1).

`S.tmem_at` is uint32 [columns][128]: the 128 lanes of a column are neighbours, so that a quarter of a column, which is
what one warp may touch, is a register row.  Addresses are those of PTX: lane << 16 | column.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.state import TMEM_LANES
from emu.units.common import F_TMEM_COLUMNS, F_TMEM_RANGE, fault

# ---- addresses and owners ------------------------------------------------------------------------


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


@compiled
def foreign(S: Any, C: Any, cta: int, column: int, width: int) -> int:
    """The first of `width` columns from `column` on (in range) that a CTA slot does not own; -1 when it owns them all."""
    for k in range(column // C.tmem_unit, (column + width - 1) // C.tmem_unit + 1):
        if S.tmem_owner[k] != cta + 1:
            return max(column, k * C.tmem_unit)
    return -1


@compiled
def reachable(S: Any, C: Any, W: Any, taddr: int, lanes: int, width: int) -> bool:
    """Whether `lanes` x `width` cells from an address on exist and belong to the warp's CTA; a fault otherwise."""
    lane, column = lane_of(taddr), column_of(taddr)
    if lane + lanes > TMEM_LANES or column + width > C.tmem_columns:
        fault(S, W, F_TMEM_RANGE, 0, taddr, width)
        return False
    missing = foreign(S, C, W.cta, column, width)
    if missing >= 0:
        fault(S, W, F_TMEM_COLUMNS, 0, taddr, missing)
        return False
    return True
