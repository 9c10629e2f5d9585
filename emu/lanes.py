"""Run single lane micro-operations on arrays: what tests, `explain` and interactive exploration use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from emu.dispatch import ALL_LANES, LANES, lane_dispatch, lane_ids
from isa.micro import MICROS, Micro

FIRST = {"d": 0, "a": 4, "b": 8, "c": 12}  # rows of the scratch window


@njit(nogil=True)  # type: ignore[untyped-decorator]
def dispatch(count, op, row_base, step, d, a, b, c, pred_base, pred_step, pd, pd2, pa, pb, flip, imm, mask):  # type: ignore[no-untyped-def]
    """Execute one operation on `count` windows that lie `step` bytes apart (predicates: `pred_step`)."""
    for k in range(count):
        lane_dispatch(
            op, row_base + k * step, d, a, b, c, pred_base + k * pred_step, pd, pd2, pa, pb, flip, imm, mask
        )


def run_lanes(name: str, *sources: Any, mask: int = ALL_LANES, flip: int = 0, previous: Any = None) -> tuple[Any, ...]:
    """The results of micro-operation `name` on arrays of lanes.

    `sources` follow the signature: uint32 or uint64 bit patterns (u f U D) and bools (p) of one length that is a
    multiple of 32, an int for the immediate (i).  Returns one array per result, uint32, uint64 or bool.  Lanes
    outside `mask` keep `previous`, a list of arrays like the result (default: zeros).
    """
    op = lane_ids()[name]
    micro = MICROS[name]
    length = max(len(x) for x in sources if not isinstance(x, int))
    warps = length // LANES
    raw = np.zeros((warps * 16 * LANES + 32,), np.uint32)
    rows = raw[(-raw.ctypes.data // 4) % 32 :][: warps * 16 * LANES].reshape(warps, 16, LANES)
    preds = np.zeros((warps, 5), np.uint32)
    preds[:, 0] = ALL_LANES
    imm = _fill(micro, sources, rows, preds)
    if previous is not None:
        _write(micro.results, previous, rows, preds)
    dispatch(
        warps,
        op,
        rows.ctypes.data,
        rows.strides[0],
        *FIRST.values(),
        preds.ctypes.data,
        preds.strides[0],
        1,
        2,
        3,
        4,
        flip,
        imm,
        mask,
    )
    return tuple(_read(micro.results, rows, preds))


def _fill(micro: Micro, sources: Any, rows: Any, preds: Any) -> int:
    slots, names, imm = iter((3, 4)), iter("abc"), 0
    for kind, value in zip(micro.sources, sources, strict=True):
        if kind == "i":
            imm = int(value)
        elif kind == "p":
            preds[:, next(slots)] = _masks(value)
        else:
            _put(rows, FIRST[next(names)], kind, value)
    return imm


def _masks(lanes: Any) -> Any:
    return np.packbits(np.asarray(lanes, bool), bitorder="little").view(np.uint32)


def _put(rows: Any, at: int, kind: str, value: Any) -> None:
    if kind in "UD":
        words = np.asarray(value, np.uint64).reshape(-1, LANES)
        rows[:, at], rows[:, at + 1] = words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)
    else:
        rows[:, at] = np.asarray(value, np.uint32).reshape(-1, LANES)


def _write(results: str, values: Any, rows: Any, preds: Any) -> None:
    slots = iter((1, 2))
    for kind, value in zip(results, values, strict=True):
        if kind == "p":
            preds[:, next(slots)] = _masks(value)
        else:
            _put(rows, FIRST["d"], kind, value)


def _read(results: str, rows: Any, preds: Any) -> Any:
    slots = iter((1, 2))
    for kind in results:
        if kind == "p":
            packed = np.ascontiguousarray(preds[:, next(slots)]).view(np.uint8)
            yield np.unpackbits(packed, bitorder="little").astype(bool)
        elif kind in "UD":
            low, high = rows[:, 0].astype(np.uint64), rows[:, 1].astype(np.uint64)
            yield (low | high << np.uint64(32)).reshape(-1)
        else:
            yield rows[:, 0].reshape(-1).copy()
