"""wgmma numerics against a plain statement of the layouts and of the arithmetic, in NumPy."""

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.units.tensor_math import FAULT_A, FAULT_B, OK, SCRATCH_BYTES, wgmma

F16, BF16, TF32, E4M3, E5M2, S8, U8 = range(7)
B1 = 10
NONE, SW128, SW64, SW32 = range(4)
BYTES = {F16: 2, BF16: 2, TF32: 4, E4M3: 1, E5M2: 1, S8: 1, U8: 1}
TYPES = {
    F16: np.float16,
    BF16: ml_dtypes.bfloat16,
    E4M3: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
    S8: np.int8,
    U8: np.uint8,
}
ROWS = 256  # register rows of a warp's window


# --- layouts (PTX ISA: matrix descriptor, canonical layouts, swizzling modes, register fragments) ----


def descriptor(start, lbo=0, sbo=0, mode=NONE, base=0):
    bits = start >> 4 | (lbo >> 4) << 16 | (sbo >> 4) << 32 | base << 49 | mode << 62
    return bits - (1 << 64 if bits >> 63 else 0)


def address(desc, mn_major, es, r, k):
    """Shared-memory byte of element (r, k) of an operand: r is a row of A or a column of B."""
    start, lbo, sbo = ((desc >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    base, mode = desc >> 49 & 7, desc >> 62 & 3
    span = (16, 128, 64, 32)[mode]
    if mn_major:
        if mode == NONE:
            lin = start + r * es // 16 * sbo + k // 8 * lbo + k % 8 * 16 + r * es % 16
        else:
            lin = start + r * es // span * lbo + k // 8 * sbo + k % 8 * span + r * es % span
    elif mode == NONE:
        lin = start + r % 8 * 16 + r // 8 * sbo + k * es // 16 * lbo + k * es % 16
    else:
        lin = start + r % 8 * span + r // 8 * sbo + k * es
    return lin ^ ((lin >> 7) - base & (span // 16 - 1)) << 4


def values(raw, kind):
    """Exact float64 values of raw little-endian operand bits."""
    if kind == TF32:
        return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return raw.view(TYPES[kind]).astype(np.float64)


def decode(smem, desc, kind, mn_major, rows):
    """An operand as a float64 matrix [rows][K]."""
    es = BYTES[kind]
    r, k = np.mgrid[:rows, : 32 // es]
    at = address(desc, mn_major, es, r, k)
    raw = np.stack([smem[at + i] for i in range(es)], axis=-1)
    return values(np.ascontiguousarray(raw).reshape(rows, -1), kind)


def d_element(thread, i):
    """(row, column) of register i of D, 32-bit accumulators."""
    w, g, q = thread // 32, thread % 32 // 4, thread % 4
    return 16 * w + g + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * q + (i & 1)


def a_element(thread, i, es):
    """(row, column) of element i of an A fragment (4 registers, 4 / es elements each)."""
    w, g, q, packed = thread // 32, thread % 32 // 4, thread % 4, 4 // es
    register, e = i // packed, i % packed
    return 16 * w + g + 8 * (register & 1), packed * q + e + 4 * packed * (register >> 1)


@pytest.mark.parametrize(
    "desc, mn_major, r, k, expected",
    [
        (descriptor(96, sbo=1024, mode=SW128), 0, 5, 4, 696),
        (descriptor(0, sbo=1024, mode=SW128), 0, 5, 52, 696),
        (descriptor(0, sbo=512, mode=SW64), 0, 5, 20, 328),
        (descriptor(0, sbo=256, mode=SW32), 0, 5, 12, 168),
        (descriptor(0, lbo=128, sbo=256), 0, 13, 12, 472),
        (descriptor(0, lbo=8192, sbo=1024, mode=SW128), 1, 20, 3, 408),
        (descriptor(0, lbo=8192, sbo=1024, mode=SW128), 1, 70, 11, 9660),
        (descriptor(0, lbo=2048, sbo=512, mode=SW64), 1, 40, 9, 2640),
    ],
)
def test_reference_addresses(desc, mn_major, r, k, expected):
    assert address(desc, mn_major, 2, r, k) == expected


def test_reference_fragments():
    assert [d_element(5, 3), d_element(77, 21), d_element(0, 0)] == [(9, 3), (35, 43), (0, 0)]
    assert [a_element(77, 5, 2), a_element(77, 13, 1), a_element(5, 3, 4)] == [(35, 11), (43, 21), (9, 5)]


# --- arithmetic ---------------------------------------------------------------------------------------


def fma32(a, b, c):
    """float32(a * b + c) for exact float64 products: the sum is rounded to odd in float64, then once to float32."""
    product, c = a * b, c.astype(np.float64)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    bits = total.view(np.int64)
    inexact = (error != 0) & (bits & 1 == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, bits + step, bits).view(np.float64).astype(np.float32)


def dot(a, b, c):
    """C + A B^T, one float32 fused multiply-add for each k, ascending."""
    for k in range(a.shape[1]):
        c = fma32(a[:, k, None], b[None, :, k], c)
    return c


# --- one instruction ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    kind_a: int = F16
    kind_b: int = F16
    n: int = 64
    desc_a: int = descriptor(0, sbo=1024, mode=SW128)
    desc_b: int = descriptor(16384, lbo=4096, sbo=1024, mode=SW128)
    trans_a: int = 0
    trans_b: int = 0
    rs: int = 0
    f16_d: int = 0
    negate_a: int = 0
    negate_b: int = 0
    satfinite: int = 0
    scale_d: int = 1
    smem_bytes: int = 65536
    seed: int = 0

    @property
    def word(self):
        other = self.kind_b if self.kind_b != self.kind_a else 0
        flags = (self.f16_d, self.negate_a, self.negate_b, self.trans_a, self.trans_b, self.rs, self.satfinite)
        return self.n | self.kind_a << 12 | sum(f << 16 + i for i, f in enumerate(flags)) | other << 24


def aligned(nbytes):
    raw = np.zeros(nbytes + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][:nbytes]


class Machine:
    """Shared memory, registers and a row list, filled at random for a case."""

    def __init__(self, case):
        rng = np.random.default_rng(case.seed)
        self.case = case
        self.smem = aligned(case.smem_bytes)
        kind = E5M2 if E5M2 in (case.kind_a, case.kind_b) else case.kind_a  # finite as either
        self.smem[:] = self.operand(rng, kind, self.smem.size)
        self.registers = aligned(4 * ROWS * 128).view(np.uint32).reshape(4, ROWS, 32)
        self.registers[:] = rng.standard_normal(self.registers.shape).astype(np.float32).view(np.uint32)
        self.nd = case.n // 4 if case.f16_d else case.n // 2
        self.rows = rng.permutation(ROWS)[: self.nd + 4].astype(np.uint16)
        if case.f16_d:
            half = rng.standard_normal((4, self.nd, 64)).astype(np.float16)
            self.registers[:, self.rows[: self.nd]] = half.view(np.uint32)
        if case.kind_a >= S8:
            extreme = rng.choice([0, 1, -(2**31), 2**31 - 1, -(2**31) + 9999, 2**31 - 9999], (4, self.nd, 32))
            self.registers[:, self.rows[: self.nd]] = extreme.astype(np.int32).view(np.uint32)
        if case.rs:
            a = self.operand(rng, kind, 4 * 4 * 128).view(np.uint32)
            self.registers[:, self.rows[self.nd :]] = a.reshape(4, 4, 32)
        self.before = self.registers.copy()

    @staticmethod
    def operand(rng, kind, nbytes):
        """Random bits: finite numbers, subnormals included; wide types with exponents near 1."""
        raw = rng.integers(0, 256, nbytes, np.uint8)
        if kind in (F16, E5M2):
            raw[BYTES[kind] - 1 :: BYTES[kind]] &= 0xBF
        elif kind == E4M3:
            raw[raw & 0x7F == 0x7F] = 0
        elif kind in (BF16, TF32):
            raw[BYTES[kind] - 1 :: BYTES[kind]] = rng.choice(np.array([0x3F, 0xBF, 0x40, 0x3E, 0xC0], np.uint8))
        return raw

    def run(self):
        windows = self.registers.ctypes.data + np.arange(4, dtype=np.int64) * ROWS * 128
        scratch, c = aligned(SCRATCH_BYTES), self.case
        at = [x.ctypes.data for x in (windows, self.rows, self.smem, scratch)]
        return wgmma(
            c.word, at[0], at[1], self.nd, at[2], c.smem_bytes, c.desc_a, c.desc_b, c.scale_d, at[3], 0, 23
        )  # fmt: skip

    def accumulators(self, registers):
        """D as a matrix [64][N] of raw accumulators."""
        c = self.case
        d = registers[:, self.rows[: self.nd]]
        thread, i = np.mgrid[:128, : c.n // 2]
        row, column = d_element(thread, i)
        out = np.zeros((64, c.n), np.uint32)
        if c.f16_d:
            words = d[thread // 32, i // 2, thread % 32]
            out[row, column] = np.where(i % 2, words >> 16, words & 0xFFFF)
        else:
            out[row, column] = d[thread // 32, i, thread % 32]
        return out.astype(np.uint16).view(np.float16) if c.f16_d else out

    def a(self):
        c = self.case
        if not c.rs:
            return decode(self.smem, c.desc_a, c.kind_a, c.trans_a, 64)
        es = BYTES[c.kind_a]
        raw = self.before[:, self.rows[self.nd :]].transpose(0, 2, 1)
        elements = values(np.ascontiguousarray(raw).reshape(128, 4), c.kind_a)
        out = np.zeros((64, 32 // es))
        thread, i = np.mgrid[:128, : 16 // es]
        out[a_element(thread, i, es)] = elements
        return out

    def b(self):
        c = self.case
        return decode(self.smem, c.desc_b, c.kind_b, c.trans_b, c.n)

    def fault(self):
        c = self.case
        for code, desc, kind, trans, rows in (
            (FAULT_A, c.desc_a, c.kind_a, c.trans_a, 64),
            (FAULT_B, c.desc_b, c.kind_b, c.trans_b, c.n),
        ):
            r, k = np.mgrid[:rows, : 32 // BYTES[kind]]
            end = (address(desc, trans, BYTES[kind], r, k) + BYTES[kind]).max()
            if end > c.smem_bytes and not (code == FAULT_A and c.rs):
                return code
        return OK


def check(case):
    """Run a case and compare every accumulator, and everything that must stay, bit for bit."""
    machine = Machine(case)
    expected = machine.fault()
    assert machine.run() == expected
    untouched = np.ones(ROWS, bool)
    if expected == OK:
        untouched[machine.rows[: machine.nd]] = False
        c, got = machine.accumulators(machine.before), machine.accumulators(machine.registers)
        a, b = machine.a(), machine.b()
        c = c if case.scale_d else np.zeros_like(c)
        if case.kind_a >= S8:
            total = c.view(np.int32).astype(np.int64) + (a @ b.T).astype(np.int64)
            if case.satfinite:
                total = total.clip(-(2**31), 2**31 - 1)
            np.testing.assert_array_equal(got, total.astype(np.uint32))
        else:
            compare_floats(case, a, b, c, got)
    np.testing.assert_array_equal(machine.registers[:, untouched], machine.before[:, untouched])


def compare_floats(case, a, b, c, got):
    c = c.astype(np.float32) if case.f16_d else c.view(np.float32)
    got = got if case.f16_d else got.view(np.float32)
    a = -a if case.negate_a != case.negate_b else a
    with np.errstate(over="ignore"):
        ordered = dot(a, b, c).astype(got.dtype)
    np.testing.assert_array_equal(got, ordered)
    exact, size = a @ b.T + c, np.abs(a) @ np.abs(b).T + np.abs(c)
    unit = 2.0**-24 * a.shape[1] + (2.0**-11 if case.f16_d else 0)
    finite = np.isfinite(got)
    assert (np.abs(got - exact)[finite] <= (unit * size + 2.0**-24)[finite]).all()


# --- properties ---------------------------------------------------------------------------------------

PAIRS = [(F16, F16), (BF16, BF16), (TF32, TF32)]
PAIRS += [(a, b) for kinds in ((E4M3, E5M2), (S8, U8)) for a in kinds for b in kinds]


@st.composite
def operands(draw, kind):
    """A descriptor with any swizzle, strides and start, and whether it is MN-major."""
    mode, base = draw(st.sampled_from([NONE, SW128, SW64, SW32])), draw(st.sampled_from([0, 0, 0, 2, 5]))
    lbo, sbo = (16 * draw(st.integers(0, 128)) for _ in range(2))
    start = 16 * draw(st.integers(0, 2048))
    return descriptor(start, lbo, sbo, mode, base), draw(st.integers(0, 1)) if BYTES[kind] == 2 else 0


@st.composite
def cases(draw):
    a, b = draw(st.sampled_from(PAIRS))
    n = 8 * draw(st.integers(1, 32))
    rs, flag = draw(st.integers(0, 1)), st.integers(0, 1)
    desc_a, trans_a = draw(operands(a))
    desc_b, trans_b = draw(operands(b))
    f16_d = draw(flag) if a in (F16, E4M3, E5M2) else 0
    negate = (draw(flag), draw(flag)) if a < S8 else (0, 0)
    satfinite, scale_d = draw(flag) if a >= S8 else 0, draw(flag)
    smem_bytes = 16 * draw(st.integers(4096, 6000))
    return Case(a, b, n, desc_a, desc_b, 0 if rs else trans_a, trans_b, rs, f16_d, *negate, satfinite, scale_d,
                smem_bytes, draw(st.integers(0, 2**32)))  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(cases())
def test_any_instruction(case):
    check(case)


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_n(n):
    check(Case(n=n, seed=n))


@pytest.mark.parametrize("a, b", PAIRS)
@pytest.mark.parametrize("rs", [0, 1])
def test_every_kind(a, b, rs):
    check(Case(a, b, n=48, rs=rs))


def test_operand_that_ends_with_shared_memory():
    """The last byte may be used, and one chunk less is a fault that changes nothing."""
    case = Case(n=8, desc_b=descriptor(32768, sbo=1024, mode=SW128), smem_bytes=32768 + 7 * 128 + 128)
    check(case)
    machine = Machine(case := replace(case, smem_bytes=case.smem_bytes - 16))
    assert machine.run() == FAULT_B
    check(case)
    far = descriptor(0x3FFF0, 0x3FFF0, 0x3FFF0)
    assert Machine(replace(case, desc_a=far)).run() == FAULT_A


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # NumPy says so of signalling NaNs
@pytest.mark.parametrize("kind, one", [(F16, 0x3C00), (BF16, 0x3F80), (TF32, 0x3F800000), (E4M3, 0x38), (E5M2, 0x3C)])
def test_every_operand_pattern(kind, one):
    """pattern x 1 = its value: infinities, NaNs and subnormals too; all of the 8-bit and 16-bit patterns."""
    bits = 8 * BYTES[kind]
    dtype = np.dtype(f"u{BYTES[kind]}")
    patterns = np.arange(1 << min(bits, 16), dtype=np.uint32) << max(bits - 16, 0)
    patterns = (patterns | (0x1FFF if kind == TF32 else 0)).astype(dtype).reshape(-1, 64)
    case = Case(kind, kind, n=8, scale_d=0)
    machine, first = Machine(case), address(case.desc_a, 0, BYTES[kind], np.arange(64), 0)
    machine.smem[:] = 0
    machine.smem.view(dtype)[address(case.desc_b, 0, BYTES[kind], np.arange(8), 0) // BYTES[kind]] = one
    for rows in patterns:
        machine.smem.view(dtype)[first // BYTES[kind]] = rows
        assert machine.run() == OK
        got = machine.accumulators(machine.registers).view(np.float32)
        np.testing.assert_array_equal(got, np.repeat(values(rows, kind)[:, None], 8, 1).astype(np.float32))


def test_a_is_read_before_d_is_written():
    """A fragment may lie in registers of D."""
    machine = Machine(case := Case(rs=1))
    machine.registers[:, machine.rows[:4]] = machine.registers[:, machine.rows[machine.nd :]]
    machine.rows[machine.nd :] = machine.rows[:4]
    machine.before = machine.registers.copy()
    assert machine.run() == OK
    c, got = machine.accumulators(machine.before), machine.accumulators(machine.registers)
    compare_floats(case, machine.a(), machine.b(), c, got)


def test_infinities_and_nans():
    """Infinity times zero is NaN; without scale-d a NaN in D is not read."""
    machine = Machine(case := Case(n=8, scale_d=0))
    halves = machine.smem.view(np.float16)
    halves[:] = 1
    halves[address(case.desc_a, 0, 2, 3, 0) // 2] = np.inf
    halves[address(case.desc_b, 0, 2, 5, 0) // 2] = 0
    machine.registers[:] = 0x7FFFFFFF
    assert machine.run() == OK
    got = machine.accumulators(machine.registers).view(np.float32)
    expected = np.full((64, 8), 16.0)
    expected[:, 5], expected[3], expected[3, 5] = 15, np.inf, np.nan
    np.testing.assert_array_equal(got, expected)


def test_two_runs_agree():
    """The result depends on nothing but the operands."""
    first, second = Machine(Case(n=176)), Machine(Case(n=176))
    first.run(), second.run()
    np.testing.assert_array_equal(first.registers, second.registers)


@pytest.mark.parametrize("rs, scale_d, n", [(0, 1, 8), (0, 0, 48), (1, 1, 24), (1, 0, 256)])
def test_products_of_bits(rs, scale_d, n):
    """b1: D + the ones that a row of A and a column of B share; the bytes lie where those of u8 do."""
    case = Case(U8, U8, n=n, rs=rs, scale_d=scale_d, seed=n)
    machine = Machine(case)
    machine.case = replace(case, kind_a=B1, kind_b=B1)
    assert machine.run() == OK
    machine.case = case
    a, b = (np.unpackbits(x.astype(np.uint8), axis=1).astype(np.int64) for x in (machine.a(), machine.b()))
    before = machine.accumulators(machine.before).view(np.int32).astype(np.int64) * scale_d
    np.testing.assert_array_equal(machine.accumulators(machine.registers), (before + a @ b.T).astype(np.uint32))
