"""redux.sync and match.sync against NumPy, in whole and partial warps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.isa.ops.cases import longs, words

HEAD = "mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 8; add.u64 %d2, %x, %d1; add.u64 %d3, %out, %d1;"
MASKS = [0xFFFFFFFF, 0x0000FFFF, 0x80000001, 0x13579BDF]


def lanes(mask: int) -> np.ndarray:
    return np.array([bool(mask >> k & 1) for k in range(32)])


def run(ptx, line, x, mask):
    """`line` under `mask`; the word that each lane stores (all ones where the lane is not in the mask)."""
    out = np.full(32, 0xFFFFFFFF, np.uint64)
    body = f"""{HEAD} ld.global.u64 %d5, [%d2]; cvt.u32.u64 %r5, %d5; mov.u32 %r9, {mask:#x};
        shr.u32 %r3, %r9, %r1; and.b32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra DONE;
        {line} cvt.u64.u32 %d6, %r6; st.global.u64 [%d3], %d6;
        DONE:"""
    result = ptx.run(body, "u64 x, u64 out", [x, out])
    assert not result.findings
    return out


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "op", ["add.u32", "add.s32", "min.u32", "max.u32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32"]
)
def test_redux(ptx, op, mask):
    x = words(sum(map(ord, op)), 96)[:32].astype(np.uint64)
    name, type = op.split(".")
    values = x.astype(np.uint32)[lanes(mask)]
    values = values.view(np.int32) if type == "s32" else values
    function = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }
    expected = int(function[name].reduce(values, dtype=values.dtype)) & 0xFFFFFFFF
    got = run(ptx, f"redux.sync.{op} %r6, %r5, %r9;", x, mask)
    assert got[lanes(mask)].tolist() == [expected] * len(values)
    assert (got[~lanes(mask)] == 0xFFFFFFFF).all()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("width", [32, 64])
def test_match_any(ptx, width, mask):
    x = np.random.default_rng(1).choice(longs(2, 64)[:5], 32) if width == 64 else np.arange(32, dtype=np.uint64) % 5
    operand = "%d5" if width == 64 else "%r5"
    got = run(ptx, f"match.any.sync.b{width} %r6, {operand}, %r9;", x, mask)
    for lane in np.flatnonzero(lanes(mask)):
        assert got[lane] == sum(1 << k for k in np.flatnonzero(lanes(mask)) if x[k] == x[lane])


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("agree", [True, False])
def test_match_all(ptx, width, agree):
    mask = 0x0F0F0F0F
    x = np.full(32, 1 << 40 | 9, np.uint64)
    x[1] += 0 if agree else 1 << 63 if width == 64 else 1
    operand = "%d5" if width == 64 else "%r5"
    line = f"match.all.sync.b{width} %r6|%p2, {operand}, %r9; selp.u32 %r7, 1, 0, %p2; mad.lo.u32 %r6, %r7, 16, %r6;"
    got = run(ptx, line, x, mask)
    assert (got[lanes(mask)] == (mask + 16 if agree else 0)).all()


def test_a_missing_lane_is_a_fault(ptx):
    body = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; @%p1 redux.sync.add.u32 %r2, %r1, -1;"
    assert [f.severity for f in ptx.run(body).findings] == ["fault"]


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("abs_", ["", ".abs"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
def test_redux_of_f32(ptx, op, abs_, nan):
    """Against NumPy: NaN is left out unless .NaN asks for it, or nothing else is there."""
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((4, 32)).astype(np.float32)
    rows[1, 5], rows[2, :], rows[3, :2] = np.nan, np.nan, (-0.0, 0.0)
    rows[3, 2:] = 0.0 if op == "min" else -0.0
    body = f"""mov.u32 %r1, %laneid; mul.wide.u32 %d1, %r1, 4; mov.u32 %r9, 0;
    AGAIN: add.u64 %d2, %x, %d1; ld.global.f32 %f1, [%d2]; redux.sync.{op}{abs_}{nan}.f32 %f2, %f1, -1;
        add.u64 %d2, %out, %d1; st.global.f32 [%d2], %f2; add.u64 %x, %x, 128; add.u64 %out, %out, 128;
        add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, 4; @%p1 bra AGAIN;"""
    out = np.zeros((4, 32), np.float32)
    assert not ptx.run(body, "u64 x, u64 out", [rows, out], target="sm_100a").findings
    values = np.abs(rows) if abs_ else rows
    with np.errstate(invalid="ignore"):
        ufunc = {"min": (np.fmin, np.minimum), "max": (np.fmax, np.maximum)}[op][bool(nan)]
        expected = np.broadcast_to(ufunc.reduce(values, axis=1)[:, None], (4, 32)).astype(np.float32)
    gone = np.isnan(expected)
    assert (out.view(np.uint32)[gone] == 0x7FFFFFFF).all() and (out[~gone] == expected[~gone]).all()
    if not abs_:
        assert np.signbit(out[3, 0]) == (op == "min")  # -0 lies below +0
