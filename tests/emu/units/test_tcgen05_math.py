"""tcgen05.mma numerics against `tcgen05_reference`."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.units.tcgen05_math import D_F16, D_F32, D_S32, scale_value
from emu.units.tensor_math import FAULT_A, FAULT_B, OK
from isa.descriptors import matrix_descriptor
from tests.emu.units.tcgen05_reference import (
    FLOAT8,
    SMALL,
    Case,
    Machine,
    address,
    element_places,
    expected,
    half,
    place,
    values,
)
from tests.emu.units.test_tensor_math import dot


@pytest.mark.parametrize(
    "case, expected",
    [((37, 5, 64, 64, 0, 0), (69, 5)), ((37, 5, 64, 64, 0, 16), (85, 5)), ((70, 9, 128, 64, 0, 0), (70, 9)),
     ((5, 200, 64, 256, 1, 0), (69, 72)), ((5, 200, 32, 256, 1, 0), (101, 8))],
)  # fmt: skip
def test_reference_places(case, expected):
    assert place(*case) == expected


def test_reference_addresses():
    tf32 = matrix_descriptor(0, lbo=4096, sbo=512, swizzle="128B with 32B atoms")
    assert address(tf32, 1, 4, 9, 0, 6) == 868
    assert address(matrix_descriptor(0, sbo=1024), 0, 2, 5, 104, 52) == 696


def check(case):
    """Run a case and compare all of D, bit for bit and with float64, and everything that must stay."""
    machine = Machine(case)
    assert machine.run() == OK
    a, b = machine.operands()
    got, before = machine.d(machine.tmem), machine.d(machine.before)
    cells, exact, most = expected(case, machine, a, b, before)
    lane = place(np.arange(case.m)[:, None], np.arange(case.n)[None], case.m, case.n, case.ws, case.first_lane)[0]
    lane = np.broadcast_to(lane, got.shape)
    skipped = (np.array(case.mask, np.uint64)[lane >> 5] >> (lane & 31).astype(np.uint64) & np.uint64(1)).astype(bool)
    np.testing.assert_array_equal(got, np.where(skipped, before, cells))
    if exact is not None and not skipped.any():
        result = half(got).astype(np.float64) if case.d_type == D_F16 else got.view(np.float32).astype(np.float64)
        unit = 2.0**-24 * (a.shape[1] + 2) + (2.0**-11 if case.d_type == D_F16 else 0)
        finite = np.isfinite(result)
        assert (np.abs(result - exact)[finite] <= (unit * most + 2.0**-24)[finite]).all()
    untouched = np.ones(machine.tmem.shape, bool)
    m, n = np.mgrid[: case.m, : case.n]
    lane, column = place(m, n, case.m, case.n, case.ws, case.first_lane)
    untouched[case.D + column, lane] = False
    np.testing.assert_array_equal(machine.tmem[untouched], machine.before[untouched])


# --- properties -----------------------------------------------------------------------------------------

PAIRS = [
    ("f16", "f16"),
    ("bf16", "bf16"),
    ("f16", "bf16"),
    ("tf32", "tf32"),
    ("s8", "s8"),
    ("s8", "u8"),
    ("u8", "s8"),
    ("u8", "u8"),
]
PAIRS += [(a, b) for a in FLOAT8 for b in FLOAT8]


@st.composite
def matrices(draw, kind, rows):
    """A descriptor with any swizzle, strides and start inside shared memory, and whether it is MN-major."""
    transpose = draw(st.integers(0, 1)) if kind not in SMALL else 0
    names = ["128B with 32B atoms"] if transpose and kind == "tf32" else ["none", "128B", "64B", "32B"]
    lbo, sbo = (16 * draw(st.integers(0, 70)) for _ in range(2))
    start, base = 16 * draw(st.integers(0, 1024)), draw(st.sampled_from([0, 0, 0, 2, 5]))
    return matrix_descriptor(start, lbo=lbo, sbo=sbo, swizzle=draw(st.sampled_from(names)), base=base), transpose


@st.composite
def cases(draw):
    a, b = draw(st.sampled_from(PAIRS))
    ws = draw(st.integers(0, 1))
    m = draw(st.sampled_from((32, 64, 128) if ws else (64, 128)))
    n = draw(st.sampled_from((64, 128, 256))) if ws else 8 * draw(st.integers(1, 32))
    flag, tensor = st.integers(0, 1), draw(st.integers(0, 1))
    desc_a, trans_a = draw(matrices(a, m))
    desc_b, trans_b = draw(matrices(b, n))
    integer = a in ("s8", "u8")
    d_type = D_S32 if integer else draw(flag) if a not in ("bf16", "tf32") and b != "bf16" else D_F32
    mask = (
        draw(st.sampled_from([(0, 0, 0, 0), (1, 0, 0x80000000, 7), (0xFFFFFFFF, 0, 0x0F0F0F0F, 0)]))
        if not ws
        else (0, 0, 0, 0)
    )
    return Case(
        a, b, m, n, desc_a, desc_b, tensor, ws, d_type, 0 if tensor else trans_a, trans_b, 0 if integer else draw(flag),
        draw(flag) if integer else 0, draw(flag), draw(st.sampled_from((0, 0, 1, 15))) if a in ("f16", "bf16", "tf32") else 0, mask,
        draw(st.sampled_from((0, 16))) if m == 64 and not ws else 0, seed=draw(st.integers(0, 2**32)),
    )  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(cases())
def test_any_instruction(case):
    check(case)


@st.composite
def scaled_cases(draw):
    blocks = draw(st.sampled_from((1, 2, 4)))
    a, b = (draw(st.sampled_from(FLOAT8)) for _ in range(2)) if blocks == 1 else ("packed", "packed")
    n, flag = 8 * draw(st.integers(1, 32)), st.integers(0, 1)
    desc_a, trans_a = draw(matrices(a, 128))
    desc_b, trans_b = draw(matrices(b, n))
    tensor, ids = draw(flag), st.sampled_from(range(0, 4, blocks))
    return Case(
        a, b, 128, n, desc_a, desc_b, tensor, trans_a=0 if tensor else trans_a, trans_b=trans_b, negate=draw(flag),
        accumulate=draw(flag), blocks=blocks, ue8m0=draw(flag) if blocks == 4 else 1, sfa_id=draw(ids), sfb_id=draw(ids),
        seed=draw(st.integers(0, 2**32)),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(scaled_cases())
def test_any_block_scaled_instruction(case):
    check(case)


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_n(n):
    check(Case(n=n, seed=n))


@pytest.mark.parametrize("tensor", [0, 1])
@pytest.mark.parametrize("a, b", PAIRS)
def test_every_kind(a, b, tensor):
    check(Case(a, b, tensor=tensor, d_type=D_S32 if a in ("s8", "u8") else D_F32))


def test_operand_that_ends_with_shared_memory():
    """The last byte may be used, and one chunk less is a fault that changes nothing."""
    case = Case(n=8, desc_b=matrix_descriptor(32768, sbo=1024), smem_bytes=32768 + 8 * 128)
    check(case)
    for changed, code in ((replace(case, smem_bytes=case.smem_bytes - 16), FAULT_B),
                          (replace(case, desc_a=matrix_descriptor(0x3FFF0, sbo=0x3FFF0)), FAULT_A),
                          (replace(case, a="e4m3", b="e4m3", trans_b=1, desc_b=matrix_descriptor(33600, sbo=1024)), FAULT_B)):  # fmt: skip
        machine = Machine(changed)
        assert machine.run() == code
        np.testing.assert_array_equal(machine.tmem, machine.before)


@pytest.mark.parametrize("kind", ["e2m3", "e3m2", "e2m1", "e4m3", "e5m2"])
def test_every_operand_pattern(kind):
    """pattern x 1 = its value: infinities, NaNs and subnormals too."""
    bits = SMALL.get(kind, 8)
    case = Case(kind, "e4m3", n=8, tensor=1, accumulate=0)
    machine = Machine(case)
    machine.smem[:] = 0
    machine.smem[element_places(case.desc_b, 0, "e4m3", 8)[:, 0, 0]] = 0x38
    machine.tmem[case.A : case.A + 8] = 0
    for first in range(0, 1 << bits, 128):
        raw = (np.arange(first, first + 128) & (1 << bits) - 1).astype(np.uint32)
        machine.tmem[case.A] = raw << 2 if kind == "e2m1" else raw
        assert machine.run() == OK
        got = machine.d(machine.tmem).view(np.float32)
        np.testing.assert_array_equal(got, np.repeat(values(raw, kind)[:, None], 8, 1).astype(np.float32))


def test_scales_that_cancel_or_are_no_numbers():
    """2^127 * 2^-127 stays exact, 255 (ue8m0) makes a row NaN."""
    case = Case("e4m3", "e4m3", blocks=1, accumulate=0)
    machine = Machine(case)
    machine.before[case.SFA : case.SFA + 4, :32] = machine.tmem[case.SFA : case.SFA + 4, :32] = 254
    machine.before[case.SFB : case.SFB + 2, :32] = machine.tmem[case.SFB : case.SFB + 2, :32] = 0
    machine.tmem[case.SFA, 3] = 255
    assert machine.run() == OK
    a, b = machine.operands()
    got = machine.d(machine.tmem).view(np.float32)
    assert np.isnan(got[3]).all()
    rest = np.arange(128) != 3
    np.testing.assert_array_equal(got[rest], dot(a, b, np.zeros((128, case.n), np.float32))[rest])


def test_a_is_read_before_d_is_written():
    """A may lie in D's columns."""
    machine = Machine(Case(tensor=1))
    machine.case = case = Overlapping(tensor=1)
    machine.tmem &= np.uint32(0xBFFFBFFF)  # finite as f16
    machine.before = machine.tmem.copy()
    assert machine.run() == OK
    a, b = machine.operands()
    cells, _, _ = expected(case, machine, a, b, machine.d(machine.before))
    np.testing.assert_array_equal(machine.d(machine.tmem), cells)


class Overlapping(Case):
    A = Case.D


def test_scale_factors():
    """Every byte, as ml_dtypes reads it."""
    raw = np.arange(256, dtype=np.uint8)
    for ue8m0, values_ in ((1, raw.view(ml_dtypes.float8_e8m0fnu)), (0, raw[:128].view(ml_dtypes.float8_e4m3fn))):
        np.testing.assert_array_equal([scale_value(k, ue8m0) for k in range(len(values_))], values_.astype(np.float64))
