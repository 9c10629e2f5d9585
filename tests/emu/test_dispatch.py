"""The lane dispatch: every micro-operation's emission equals its meaning, masks and predicates are respected."""

from __future__ import annotations

import numpy as np
import pytest

from emu.dispatch import lane_ids, lane_micros
from emu.lanes import dispatch, run_lanes
from isa.micro import MICROS
from tests.isa.ops.cases import EDGES32, EDGES64, MAKERS, predicates, same, words

COUNT = 256
NAMES = [micro.name for micro in lane_micros()]


def immediates(name: str) -> list[int]:
    """Values of the immediate that show each of its bits, and any truth table for lop3."""
    if "i" not in MICROS[name].sources:
        return [0]
    rng = np.random.default_rng(len(name))
    return [0, 1, 2, 3, 4, 5, 6, 7, 8, *(int(x) for x in rng.integers(0, 64, 6)), 0x96, 0xE2, 0xE8]


def operands(name: str, seed: int, count: int = COUNT) -> list[np.ndarray]:
    return [MAKERS[k](seed + 17 * n, count) for n, k in enumerate(MICROS[name].sources) if k != "i"]


def with_immediate(name: str, arrays: list[np.ndarray], imm: int) -> list[np.ndarray | int]:
    rest = iter(arrays)
    return [imm if k == "i" else next(rest) for k in MICROS[name].sources]


def meanings(name: str, arrays: list[np.ndarray], imm: int) -> list[np.ndarray]:
    """The results by the scalar specification."""
    meaning = MICROS[name].meaning
    assert meaning is not None
    rows = []
    for lane in zip(*arrays, strict=True):
        values = iter(lane)
        args = [
            imm if k == "i" else bool(next(values)) if k == "p" else int(next(values)) for k in MICROS[name].sources
        ]
        result = meaning(*args)
        rows.append(result if isinstance(result, tuple) else (result,))
    kinds = {"p": bool, "U": np.uint64, "D": np.uint64}
    return [
        np.array(c, kinds.get(k, np.uint32)) for k, c in zip(MICROS[name].results, zip(*rows, strict=True), strict=True)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_emission_equals_meaning(name: str) -> None:
    for seed, imm in enumerate(immediates(name)):
        arrays = operands(name, 100 * seed)
        for got, expected in zip(
            run_lanes(name, *with_immediate(name, arrays, imm)), meanings(name, arrays, imm), strict=True
        ):
            same(got, expected, *arrays)


@pytest.mark.parametrize("name", [n for n in NAMES if MICROS[n].sources.replace("i", "") in ("u", "f", "U", "D")])
def test_emission_equals_meaning_at_every_edge(name: str) -> None:
    edges = EDGES64 if MICROS[name].sources[0] in "UD" else EDGES32
    arrays = [np.resize(edges, 32 * -(-len(edges) // 32))]
    for imm in immediates(name)[:8]:
        for got, expected in zip(
            run_lanes(name, *with_immediate(name, arrays, imm)), meanings(name, arrays, imm), strict=True
        ):
            same(got, expected, *arrays)


@pytest.mark.parametrize("mask", [0, 1, 0x80000000, 0x0F0F1234, 0xFFFFFFFE])
@pytest.mark.parametrize("name", NAMES)
def test_lanes_outside_the_mask_keep_their_values(name: str, mask: int) -> None:
    arrays = with_immediate(name, operands(name, 3, 64), 0)
    previous = [MAKERS[k](77, 64) for k in MICROS[name].results]
    inside = np.resize([bool(mask >> lane & 1) for lane in range(32)], 64)
    full = run_lanes(name, *arrays)
    for old, all_lanes, got in zip(previous, full, run_lanes(name, *arrays, mask=mask, previous=previous), strict=True):
        same(got, np.where(inside, all_lanes, old))


def test_ids_are_dense_in_name_order() -> None:
    assert list(lane_ids()) == sorted(lane_ids())
    assert list(lane_ids().values()) == list(range(len(lane_ids())))


@pytest.mark.parametrize("flip", [0, 2, 4, 6])
def test_flip_negates_predicate_sources(flip: int) -> None:
    a, b = predicates(1, 64), predicates(2, 64)
    (got,) = run_lanes("PLOP3.AND", a, b, flip=flip)
    same(got, (a ^ bool(flip & 2)) & (b ^ bool(flip & 4)))


def _windows() -> tuple[np.ndarray, np.ndarray]:
    raw = np.zeros(16 * 32 + 32, np.uint32)
    rows = raw[(-raw.ctypes.data // 4) % 32 :][: 16 * 32].reshape(16, 32)
    rows[:] = words(5, 16 * 32).reshape(16, 32)
    return rows, np.array([0xFFFFFFFF, 0x12345678, 0x9ABCDEF0, 0], np.uint32)


def test_slot_zero_discards_predicates() -> None:
    rows, preds = _windows()
    dispatch(
        1, lane_ids()["ISETP"], rows.ctypes.data, 0, 0, 1, 2, 3, preds.ctypes.data, 0, 0, 3, 0, 0, 0, 1, 0xFFFFFFFF
    )
    assert preds[:3].tolist() == [0xFFFFFFFF, 0x12345678, 0x9ABCDEF0]
    assert preds[3] == sum(1 << k for k in range(32) if not rows[1].view(np.int32)[k] < rows[2].view(np.int32)[k])


def test_unknown_operation_does_nothing() -> None:
    rows, preds = _windows()
    before = rows.copy(), preds.copy()
    dispatch(1, len(NAMES), rows.ctypes.data, 0, 0, 1, 2, 3, preds.ctypes.data, 0, 1, 2, 0, 0, 0, 0, 0xFFFFFFFF)
    assert (rows == before[0]).all() and (preds == before[1]).all()


def test_64_bit_results_are_row_pairs() -> None:
    rows, preds = _windows()
    address = rows.ctypes.data
    dispatch(1, lane_ids()["IMAD.WIDE.U32"], address, 0, 4, 1, 2, 6, preds.ctypes.data, 0, 0, 0, 0, 0, 0, 0, 0xFFFFFFFF)
    expected = rows[1].astype(np.uint64) * rows[2] + (
        rows[6].astype(np.uint64) | rows[7].astype(np.uint64) << np.uint64(32)
    )
    same(rows[4], expected.astype(np.uint32))
    same(rows[5], (expected >> np.uint64(32)).astype(np.uint32))
