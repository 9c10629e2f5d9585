"""Operands for tests of arithmetic: values at the edges of every format, and random bits."""

from __future__ import annotations

import numpy as np

EDGES32 = np.array(
    [0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000]
    + [0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000, 0x33000000, 0x33000001, 0x33800000, 0x34000000]
    + [0x387FC000, 0x38800000, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x40000000, 0x42FC0000, 0x43000000]
    + [0x477FDFFF, 0x477FE000, 0x477FF000, 0x47800000, 0x4AFFFFFF, 0x4B000000, 0x4B800001, 0x4EFFFFFF, 0x4F000000]
    + [0x4F7FFFFF, 0x4F800000, 0x5EFFFFFF, 0x5F000000, 0x5F800000, 0x7E800000, 0x7E800001, 0x7F000000, 0x7F7FFFFF]
    + [0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF, 0x7C007BFF, 0x7C017C00, 0x3C008400, 0x04000001],
    np.uint32,
)
EDGES32 = np.concatenate([EDGES32, EDGES32 | np.uint32(0x80000000)])
EDGES64 = np.array(
    [0, 1, 2, 63, 64, 0xFFFFFFFF, 1 << 32, (1 << 52) - 1, 1 << 52, (1 << 52) + 1, (1 << 63) - 1]
    + [0x3FF << 52, (0x3FF << 52) + 1, (0x3FF << 52) - 1, 0x7FE << 52, (0x7FF << 52) - 1, 0x7FF << 52]
    + [(0x7FF << 52) + 1, 0x7FF8 << 48, 0x381 << 52, 0x380FFFFFF0000000, 0x36A << 52, 0x369FFFFFFFFFFFFF]
    + [0x41DFFFFFFFC00000, 0x41E0000000000000, 0x41EFFFFFFFE00000, 0x43E0000000000000, 0x43F0000000000000]
    + [0x3FE << 52, 0x4004000000000000, 0x47EFFFFFE0000000, 0x47EFFFFFF0000000, 0x40EFFFC000000000],
    np.uint64,
)
EDGES64 = np.concatenate([EDGES64, EDGES64 | np.uint64(1 << 63)])


def words(seed: int, count: int = 2048) -> np.ndarray:
    """uint32: a third edges, a third random bits, a third f32 (or pairs of f16) of ordinary size."""
    rng = np.random.default_rng(seed)
    part = count // 3
    ordinary = (rng.standard_normal(part) * 2.0 ** rng.integers(-12, 12, part)).astype(np.float32).view(np.uint32)
    pairs = (rng.standard_normal(2 * part) * 2.0 ** rng.integers(-9, 9, 2 * part)).astype(np.float16).view(np.uint32)
    mixed = np.where(rng.random(part) < 0.5, ordinary, pairs)
    random = rng.integers(0, 1 << 32, count - 2 * part, dtype=np.uint64).astype(np.uint32)
    result = np.concatenate([rng.choice(EDGES32, part), mixed, random])
    return rng.permutation(result)


def longs(seed: int, count: int = 2048) -> np.ndarray:
    """uint64: edges, f64 of ordinary size, small integers, random bits, a quarter each."""
    rng = np.random.default_rng(seed)
    part = count // 4
    ordinary = (rng.standard_normal(part) * 2.0 ** rng.integers(-40, 40, part)).view(np.uint64)
    small = rng.integers(-(1 << 20), 1 << 20, part).view(np.uint64)
    random = rng.integers(0, 1 << 64, count - 3 * part, dtype=np.uint64)
    return rng.permutation(np.concatenate([rng.choice(EDGES64, part), ordinary, small, random]))


def shorts(seed: int, count: int = 2048) -> np.ndarray:
    """uint16: the halves of `words`."""
    return (words(seed, count) >> np.uint32(seed % 2 * 16)).astype(np.uint16)


def predicates(seed: int, count: int = 2048) -> np.ndarray:
    """bool at random."""
    return np.random.default_rng(seed).random(count) < 0.5


MAKERS = {"u": words, "f": words, "U": longs, "D": longs, "p": predicates}


def same(got: np.ndarray, expected: np.ndarray, *operands: np.ndarray) -> None:
    """Assert equality bit for bit, showing operands of the first differences in hexadecimal."""
    got, expected = np.asarray(got), np.asarray(expected).astype(np.asarray(got).dtype)
    bad = np.flatnonzero(got != expected)
    rows = [[hex(int(x[k])) for x in (*operands, got, expected)] for k in bad[:5]]
    assert not len(bad), f"{len(bad)} of {len(got)} differ; operands, got, expected: {rows}"
