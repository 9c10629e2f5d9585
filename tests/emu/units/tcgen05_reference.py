"""A plain statement in NumPy of the layouts and of the arithmetic of tcgen05.mma."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numba import njit

from emu.tmem_state import TC_JOB
from emu.units.tcgen05_math import D_F16, D_F32, D_S32, SCRATCH_BYTES, mma
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
