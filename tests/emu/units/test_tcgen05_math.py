"""tcgen05.mma numerics against a plain statement of the layouts and of the arithmetic, in NumPy."""

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from emu.tmem_state import TC_JOB
from emu.units.tcgen05_math import D_F16, D_F32, D_S32, SCRATCH_BYTES, mma, scale_value
from emu.units.tensor_math import FAULT_A, FAULT_B, OK
from isa.descriptors import ELEMENTS, matrix_descriptor
from tests.emu.units.test_tensor_math import aligned, dot

TYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn, "packed": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
SMALL = {"e2m3": 6, "e3m2": 6, "e2m1": 4, "packed": 4}  # bits
FLOAT8 = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
COLUMNS = 512


def size(kind):
    """Bytes of an element's container."""
    return {"tf32": 4, "f16": 2, "bf16": 2}.get(kind, 1)


def depth(kind):
    return 64 if kind == "packed" else 32 // size(kind)


def values(raw, kind):
    """Exact float64 values of raw operand bits."""
    if kind == "tf32":
        return (raw.astype(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    width = np.dtype(f"u{size(kind)}")
    return raw.astype(width).view(TYPES[kind]).astype(np.float64)


# --- layouts: where element (r, k) of an operand lies ---------------------------------------------------


def address(desc, transpose, es, r, byte, k):
    """Shared-memory byte of a K-major operand's byte `byte` of row r, or of element (r, k) of an MN-major one."""
    start, lbo, sbo = ((desc >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    base, code = desc >> 49 & 7, desc >> 61 & 7
    if code == 1:
        x = r * es
        lin = start + x // 128 * lbo + k // 4 * sbo + k % 4 * 128 + x % 128
        return lin ^ ((lin >> 7) - base & 3) << 5
    span = {0: 16, 2: 128, 4: 64, 6: 32}[code]
    if transpose:
        x = r * es
        outer, inner = (sbo, lbo) if code == 0 else (lbo, sbo)
        lin = start + x // span * outer + k // 8 * inner + k % 8 * span + x % span
    elif code == 0:
        lin = start + r % 8 * 16 + r // 8 * sbo + byte // 16 * lbo + byte % 16
    else:
        lin = start + r % 8 * span + r // 8 * sbo + byte
    return lin ^ ((lin >> 7) - base & (span // 16 - 1)) << 4


def element_places(desc, transpose, kind, rows):
    """Byte addresses [rows][K][bytes of the container] of an operand whose elements have bytes of their own."""
    es = size(kind)
    r, k = np.mgrid[:rows, : depth(kind)]
    at = address(desc, transpose, es, r, k * es, k)
    return at[..., None] + np.arange(es)


def shared_bits(smem, desc, transpose, kind, rows):
    """An operand in shared memory as raw elements [rows][K]."""
    if kind in SMALL:
        r, byte = np.mgrid[:rows, :32]
        line = np.unpackbits(smem[address(desc, 0, 1, r, byte, byte)], axis=1, bitorder="little")
        bits = SMALL[kind]
        first = np.arange(64) * 4 if kind == "packed" else np.arange(32) // 16 * 128 + np.arange(32) % 16 * bits
        parts = line[:, first[:, None] + np.arange(bits)]
        return (parts << np.arange(bits, dtype=np.uint8)).sum(-1).astype(np.uint32)
    raw = smem[element_places(desc, transpose, kind, rows)].astype(np.uint32)
    return (raw << (8 * np.arange(raw.shape[-1], dtype=np.uint32))).sum(-1).astype(np.uint32)


def tensor_bits(tmem, taddr, kind, lanes):
    """A in Tensor Memory as raw elements [rows][K]: lanes[m] is row m's."""
    column = taddr & 0xFFFF
    words = tmem[column : column + 8, lanes].T
    bits = 4 if kind == "packed" else 8 * size(kind)
    parts = words[..., None] >> (bits * np.arange(32 // bits, dtype=np.uint32)) & np.uint32(2**bits - 1)
    raw = parts.reshape(len(lanes), -1)
    return raw >> 2 & 15 if kind == "e2m1" else raw & 63 if kind in ("e2m3", "e3m2") else raw


def place(m, n, rows, columns, ws, first_lane):
    """Lane and column of element (m, n) of D (PTX ISA 9.7.16.10.5: layouts D, F, E, G)."""
    if ws:
        part = columns * rows // 128
        return m + rows * (n // part), n % part
    return (32 * (m // 16) + m % 16 + first_lane, n) if rows == 64 else (m, n)


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


# --- one instruction ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    a: str = "f16"
    b: str = "f16"
    m: int = 128
    n: int = 64
    desc_a: int = matrix_descriptor(0, sbo=1024)
    desc_b: int = matrix_descriptor(16384, lbo=4096, sbo=1024)
    tensor: int = 0  # A in Tensor Memory
    ws: int = 0
    d_type: int = D_F32
    trans_a: int = 0
    trans_b: int = 0
    negate: int = 0
    saturate: int = 0
    accumulate: int = 1
    scale_d: int = 0
    mask: tuple[int, ...] = (0, 0, 0, 0)
    first_lane: int = 0
    blocks: int = 0
    ue8m0: int = 1
    sfa_id: int = 0
    sfb_id: int = 0
    smem_bytes: int = 98304
    seed: int = 0

    D, A, SFA, SFB = 32, 300, 320, 340  # columns of Tensor Memory


def operand(rng, kind, nbytes):
    """Random bits: finite numbers, subnormals included; wide types with exponents near 1."""
    raw = rng.integers(0, 256, nbytes, np.uint8)
    if kind in ("f16", "e5m2"):
        raw[size(kind) - 1 :: size(kind)] &= 0xBF
    elif kind == "e4m3":
        raw[raw & 0x7F == 0x7F] = 0
    elif kind in ("bf16", "tf32"):
        raw[size(kind) - 1 :: size(kind)] = rng.choice(np.array([0x3F, 0xBF, 0x40, 0x3E, 0xC0], np.uint8))
    return raw


class Machine:
    """Shared and Tensor Memory, filled at random for a case."""

    def __init__(self, case):
        self.case, rng = case, np.random.default_rng(case.seed)
        kinds = [k for k in (case.a, case.b) if k in ("e5m2", "e4m3")]
        kind = "e4m3" if set(kinds) == {"e4m3", "e5m2"} else kinds[0] if kinds else case.a
        self.smem = aligned(case.smem_bytes)
        self.smem[:] = operand(rng, kind, self.smem.size)
        if set(kinds) == {"e4m3", "e5m2"}:
            self.smem &= 0xBF  # finite as either
        self.tmem = aligned(COLUMNS * 512).view(np.uint32).reshape(COLUMNS, 128)
        self.tmem[:] = operand(rng, case.a, self.tmem.nbytes).view(np.uint32).reshape(self.tmem.shape)
        d = self.tmem[case.D : case.D + 256]
        if case.d_type == D_S32:
            edges = [0, 1, -(2**31), 2**31 - 1, -(2**31) + 9999, 2**31 - 9999]
            d[:] = rng.choice(edges, d.shape).astype(np.int32).view(np.uint32)
        elif case.d_type == D_F16:
            d[:] = rng.standard_normal(d.shape).astype(np.float16).view(np.uint16) | np.uint32(0xABCD0000)
        else:
            d[:] = rng.standard_normal(d.shape).astype(np.float32).view(np.uint32)
        scales = (
            rng.integers(118, 136, (2, 8, 128, 4), np.uint8)
            if case.ue8m0
            else rng.integers(0, 127, (2, 8, 128, 4), np.uint8)
        )
        for at, part in zip((case.SFA, case.SFB), scales, strict=True):
            self.tmem[at : at + 8] = part.view(np.uint32)[..., 0]
        self.before = self.tmem.copy()

    def run(self):
        c, jobs = self.case, np.zeros(1, TC_JOB)
        J = jobs[0]
        J["m"], J["n"], J["ws"], J["d_type"], J["a_tensor"] = c.m, c.n, c.ws, c.d_type, c.tensor
        J["kind_a"], J["kind_b"] = ELEMENTS.index(c.a), ELEMENTS.index(c.b)
        J["d"], J["a"] = c.first_lane << 16 | c.D, c.first_lane << 16 | c.A if c.tensor else signed(c.desc_a)
        J["b"], J["sfa"], J["sfb"] = signed(c.desc_b), c.SFA, c.SFB
        for name in (
            "trans_a",
            "trans_b",
            "negate",
            "saturate",
            "accumulate",
            "scale_d",
            "blocks",
            "ue8m0",
            "sfa_id",
            "sfb_id",
        ):
            J[name] = getattr(c, name)
        J["mask"] = c.mask
        return call(jobs, self.tmem.ctypes.data, self.smem.ctypes.data, c.smem_bytes, SCRATCH.ctypes.data)

    def d(self, tmem):
        """D as a matrix of raw cells."""
        c = self.case
        m, n = np.mgrid[: c.m, : c.n]
        lane, column = place(m, n, c.m, c.n, c.ws, c.first_lane)
        return tmem[c.D + column, lane]

    def operands(self):
        c = self.case
        lanes = [place(m, 0, c.m, c.n, c.ws, c.first_lane)[0] for m in range(c.m)]
        a = (
            tensor_bits(self.before, c.A, c.a, lanes)
            if c.tensor
            else shared_bits(self.smem, c.desc_a, c.trans_a, c.a, c.m)
        )
        return values(a, c.a), values(shared_bits(self.smem, c.desc_b, c.trans_b, c.b, c.n), c.b)

    def scales(self, at, first, rows):
        """[rows][blocks] float64."""
        c, r = self.case, np.arange(rows)
        cells = self.before[at + r // 32, r % 32]
        raw = np.stack([(cells >> (8 * (first + k)) & 255).astype(np.uint8) for k in range(c.blocks)], axis=1)
        return raw.view(ml_dtypes.float8_e8m0fnu if c.ue8m0 else ml_dtypes.float8_e4m3fn).astype(np.float64)


def signed(desc):
    return desc - (1 << 64) if desc >> 63 else desc


SCRATCH = aligned(SCRATCH_BYTES)


@njit
def call(jobs, tmem, smem, smem_bytes, scratch):
    return mma(jobs[0], tmem, smem, smem_bytes, scratch)


def half(cells):
    return cells.astype(np.uint16).view(np.float16)


def expected(case, machine, a, b, raw):
    """(D's cells, a float64 result or None, the sum of magnitudes)."""
    a = -a if case.negate else a
    if case.d_type == D_S32:
        c = raw.view(np.int32).astype(np.int64) * case.accumulate
        total = c + (a @ b.T).astype(np.int64)
        return (total.clip(-(2**31), 2**31 - 1) if case.saturate else total).astype(np.uint32), None, None
    c = half(raw).astype(np.float32) if case.d_type == D_F16 else raw.view(np.float32)
    c = c * np.float32(case.accumulate) * np.float32(2.0**-case.scale_d)
    if case.blocks:
        k = a.shape[1] // case.blocks
        sa, sb = machine.scales(case.SFA, case.sfa_id, case.m), machine.scales(case.SFB, case.sfb_id, case.n)
        exact, most, result = c.astype(np.float64), np.abs(c).astype(np.float64), c
        for i in range(case.blocks):
            part, scale = slice(i * k, i * k + k), sa[:, i, None] * sb[None, :, i]
            sums = dot(a[:, part], b[:, part], np.zeros_like(c))
            result = (result + sums.astype(np.float64) * scale).astype(np.float32)
            exact, most = (
                exact + a[:, part] @ b[:, part].T * scale,
                most + np.abs(a[:, part]) @ np.abs(b[:, part]).T * scale,
            )
        return result.view(np.uint32), exact, most
    with np.errstate(over="ignore"):
        sums = dot(a, b, c)
        cells = (
            sums.astype(np.float16).view(np.uint16).astype(np.uint32) if case.d_type == D_F16 else sums.view(np.uint32)
        )
    return cells, a @ b.T + c, np.abs(a) @ np.abs(b).T + np.abs(c)


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
