"""The fused dot product: recorded results of an H200 bit for bit, and any instruction against plain integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.units.tensor_math import OK, SCRATCH_BYTES, wgmma
from tests.emu.units.test_tensor_math import (
    BF16,
    E4M3,
    E5M2,
    F16,
    S8,
    TF32,
    U8,
    a_element,
    aligned,
    d_element,
    descriptor,
)
from tests.isa.ops import recorded

STORED = recorded.arrays("mma")
KINDS = {
    "f16": (F16, F16), "f16h": (F16, F16), "bf16": (BF16, BF16), "tf32": (TF32, TF32), "e4m3": (E4M3, E4M3),
    "e5m2": (E5M2, E5M2), "e4e5": (E4M3, E5M2), "e5e4": (E5M2, E4M3), "e4m3h": (E4M3, E4M3), "e5m2h": (E5M2, E5M2),
    "s8": (S8, S8), "u8": (U8, U8), "s8u8": (S8, U8), "s8sat": (S8, S8),
}  # fmt: skip
FORMATS = {F16: (5, 10), BF16: (8, 7), TF32: (8, 10), E4M3: (4, 3), E5M2: (5, 2), "f32": (8, 23)}
DTYPES = {F16: np.uint16, BF16: np.uint16, TF32: np.uint32, E4M3: np.uint8, E5M2: np.uint8, S8: np.uint8, U8: np.uint8}
ROUNDING = {E4M3: (13, 13), E5M2: (13, 13)}  # others: (25, 23)
A_AT, B_AT, LBO, SBO = 0, 16384, 128, 256


# --- the rule, in integers -----------------------------------------------------------------------------


def decode(raw: np.ndarray, kind: object) -> tuple[np.ndarray, ...]:
    """(sign, significand, exponent of its last bit, is NaN, is infinite) of patterns, as int64 and bool."""
    exponent_bits, fraction_bits = FORMATS[kind]  # type: ignore[index]
    x = raw.astype(np.int64) >> (13 if kind == TF32 else 0)
    fraction, field = x & (1 << fraction_bits) - 1, x >> fraction_bits & (1 << exponent_bits) - 1
    top = (1 << exponent_bits) - 1
    if kind == E4M3:
        nan, inf = (x & 0x7F) == 0x7F, np.zeros(x.shape, bool)
    else:
        nan, inf = (field == top) & (fraction != 0), (field == top) & (fraction == 0)
    significand = np.where(field > 0, fraction | 1 << fraction_bits, fraction)
    exponent = np.maximum(field, 1) - ((1 << exponent_bits - 1) - 1) - fraction_bits
    return x >> exponent_bits + fraction_bits, significand, exponent, nan, inf


def fdot(kind_a: int, kind_b: int, a: np.ndarray, b: np.ndarray, c: np.ndarray, half: bool, negate: bool) -> np.ndarray:
    """D [rows, columns] of A [rows, K] B [columns, K] + C, all raw bits: section 1.1 of the measurements."""
    bits, kept = ROUNDING.get(kind_a, (25, 23))
    (sa, ma, ea, na, ia), (sb, mb, eb, nb, ib) = decode(a[:, None, :], kind_a), decode(b[None, :, :], kind_b)
    sc, mc, ec, nc, ic = (x[..., None] for x in decode(c, F16 if half else "f32"))
    fraction = FORMATS[kind_a][1] + FORMATS[kind_b][1]
    sign = np.concatenate([sa ^ sb ^ int(negate), sc], -1)
    value = np.concatenate([ma * mb, mc], -1)
    unit = np.concatenate([np.broadcast_to(ea + eb, (ma * mb).shape), ec], -1)
    place = np.concatenate(
        [np.broadcast_to(ea + eb + fraction, (ma * mb).shape), ec + FORMATS[F16 if half else "f32"][1]], -1
    )
    top = np.where(value != 0, place, -(1 << 20)).max(-1)
    shift = unit - (top[..., None] - bits)  # of a significand to multiples of 2^(top - bits)
    term = np.where(shift >= 0, value << np.clip(shift, 0, 40), value >> np.clip(-shift, 0, 63))
    total = np.where(sign == 1, -term, term).sum(-1)
    bad_a, bad_b = (ia & (mb == 0)) | (ib & (ma == 0)), ia | ib
    plus = np.concatenate([bad_b, ic], -1) & (sign == 0)
    minus = np.concatenate([bad_b, ic], -1) & (sign == 1)
    nan = (na | nb | bad_a).any(-1) | nc[..., 0] | (plus.any(-1) & minus.any(-1))
    result = np.zeros(total.shape, np.uint32)
    for at in np.ndindex(total.shape):
        result[at] = rounded(int(total[at]), int(top[at]) - bits, kept, half)
    inf = 0x7C00 if half else 0x7F800000
    sign_bit = 0x8000 if half else 0x80000000
    result = np.where(plus.any(-1), inf, np.where(minus.any(-1), inf | sign_bit, result))
    return np.where(nan, 0x7FFF if half else 0x7FFFFFFF, result).astype(np.uint32)


def rounded(total: int, exponent: int, kept: int, half: bool) -> int:
    """Bits of total * 2^exponent: truncated f32 (with `kept` fraction bits), or f16 rounded to nearest even."""
    fraction, least, largest, bias = (10, -24, 15, 15) if half else (23, -149, 127, 127)
    m = abs(total)
    unit = max(m.bit_length() - 1 - fraction + exponent, least)  # of the last place
    drop = unit - exponent
    value = m << -drop if drop < 0 else m >> drop
    if half and drop > 0:
        rest, middle = m & (1 << drop) - 1, 1 << drop - 1
        value += rest > middle or (rest == middle and value & 1)
    if not half:
        value &= -1 << 23 - kept
    if value == 0:
        return 0
    bits = value + ((unit - least) << fraction)
    inf = (largest + 1 + bias) << fraction
    return min(bits, inf) | (total < 0) << (15 if half else 31)


# --- one instruction -----------------------------------------------------------------------------------


def multiply(
    kinds: tuple[int, int], a: np.ndarray, b: np.ndarray, c: np.ndarray, *, half: bool = False, negate_a: bool = False,
    negate_b: bool = False, scale_d: bool = True, registers_a: bool = False, satfinite: bool = False,
) -> np.ndarray:  # fmt: skip
    """D [64, N] after wgmma on A [steps, 64, K], B [steps, N, K], one after another; raw bits."""
    n = b.shape[1]
    nd = n // 4 if half else n // 2
    thread, i = np.mgrid[:128, : n // 2]
    row, column = d_element(thread, i)
    registers = aligned(4 * 256 * 128).view(np.uint32).reshape(4, 256, 32)
    values = c[row, column].astype(np.uint32)
    values = values[:, 0::2] | values[:, 1::2] << 16 if half else values
    registers[:, :nd] = values.reshape(4, 32, nd).transpose(0, 2, 1)
    flags = (half, negate_a, negate_b, 0, 0, registers_a, satfinite)
    word = n | kinds[0] << 12 | sum(int(f) << 16 + k for k, f in enumerate(flags))
    word |= (kinds[1] if kinds[0] != kinds[1] else 0) << 24
    rows, windows = np.arange(nd + 4, dtype=np.uint16), registers.ctypes.data + np.arange(4, dtype=np.int64) * 256 * 128
    smem, scratch = aligned(65536), aligned(SCRATCH_BYTES)
    rounding = ROUNDING.get(kinds[0], (25, 23))
    for left, right in zip(a, b, strict=True):
        for at, matrix in ((A_AT, left), (B_AT, right)):
            r, k = np.mgrid[: len(matrix), :32]
            smem[at + r % 8 * 16 + r // 8 * SBO + k // 16 * LBO + k % 16] = np.ascontiguousarray(matrix).view(np.uint8)
        if registers_a:
            size = left.dtype.itemsize
            lane, e = np.mgrid[:128, : 16 // size]
            fragment = np.ascontiguousarray(left[a_element(lane, e, size)]).view(np.uint32)
            registers[:, nd : nd + 4] = fragment.reshape(4, 32, 4).transpose(0, 2, 1)
        at = [x.ctypes.data for x in (windows, rows, smem, scratch)]
        descriptors = descriptor(A_AT, LBO, SBO), descriptor(B_AT, LBO, SBO)
        done = wgmma(word, at[0], at[1], nd, at[2], smem.size, *descriptors, int(scale_d), at[3], *rounding)
        assert done == OK
    out = registers[:, :nd].transpose(0, 2, 1).reshape(128, nd)
    if half:
        out = np.stack([out & 0xFFFF, out >> 16], -1).reshape(128, 2 * nd)
    d = np.zeros((64, n), np.uint32)
    d[row, column] = out
    return d


def group(name: str) -> tuple[str, list[str]]:
    """(operand group, modifiers) of a recorded result `w_f16_na.D`."""
    kind, *modifiers = name[2:-2].split("_")
    base = "s8" if kind in ("u8", "s8u8", "s8sat") else kind
    return base + "".join(x for x in modifiers if x in ("c4", "n64")), [kind, *modifiers]


@pytest.mark.parametrize("name", [n for n in STORED if n.startswith("w_")])
def test_recorded_wgmma(name: str) -> None:
    """12 sorts of operands a kind, 6 rows of each, which here follow each other over and over."""
    stored, (base, (kind, *modifiers)) = STORED, group(name)
    repeat = np.arange(64) % STORED[f"{base}.A"].shape[2]
    for tile, expected in enumerate(stored[name]):
        got = multiply(
            KINDS[kind], stored[f"{base}.A"][tile][:, repeat], stored[f"{base}.B"][tile], stored[f"{base}.C"][tile][repeat],
            half=kind.endswith("h"), negate_a=bool({"na", "nab"} & set(modifiers)),
            negate_b=bool({"nb", "nab"} & set(modifiers)), scale_d="sd0" not in modifiers, registers_a="rs" in modifiers,
            satfinite=kind.endswith("sat"),
        )  # fmt: skip
        np.testing.assert_array_equal(got, expected[repeat])


@pytest.mark.parametrize(
    "name", ["w_f16.D", "w_bf16_na.D", "w_tf32.D", "w_f16h.D", "w_e4m3.D", "w_e5m2h.D", "w_e4e5.D"]
)
def test_the_reference_is_the_card(name: str) -> None:
    stored, (base, (kind, *modifiers)) = STORED, group(name)
    for tile, expected in enumerate(stored[name]):
        a, b, c = (stored[f"{base}.{x}"][tile] for x in "ABC")
        got = fdot(*KINDS[kind], a[0], b[0], c, kind.endswith("h"), "na" in modifiers)
        np.testing.assert_array_equal(got, expected)


# --- properties ----------------------------------------------------------------------------------------

PAIRS = [(F16, F16), (BF16, BF16), (TF32, TF32), *((x, y) for x in (E4M3, E5M2) for y in (E4M3, E5M2))]


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, int], bool, np.random.Generator, str]:
    pair = draw(st.sampled_from(PAIRS))
    half = draw(st.booleans()) and pair[0] not in (BF16, TF32)
    sort = draw(st.sampled_from(["bits", "near", "zeros", "cancel"]))
    return pair, half, np.random.default_rng(draw(st.integers(0, 2**32))), sort


def operands(pair: tuple[int, int], half: bool, rng: np.random.Generator, sort: str, n: int) -> list[np.ndarray]:
    """A [64, K], B [n, K], C [64, n]: random bits, or exponents near each other, many zeros, or a cancelling C."""
    k = 32 // np.dtype(DTYPES[pair[0]]).itemsize
    shapes = zip((pair[0], pair[1], F16 if half else "f32"), ((64, k), (n, k), (64, n)), strict=True)
    out = []
    for kind, shape in shapes:
        exponent_bits, fraction_bits = FORMATS[kind]
        low = 13 if kind == TF32 else 0
        raw = rng.integers(0, 1 << 1 + exponent_bits + fraction_bits + low, shape)
        if sort != "bits":
            middle, spread = (1 << exponent_bits - 1) - 1, min(6, (1 << exponent_bits - 1) - 2)
            field = middle + rng.integers(-spread, spread + 1, shape)
            keep = ~(((1 << exponent_bits) - 1) << fraction_bits + low)
            raw = raw & keep | field << fraction_bits + low
        if sort == "zeros":
            raw = np.where(rng.random(shape) < 0.5, raw & 1 << exponent_bits + fraction_bits + low, raw)
        out.append(raw.astype(DTYPES.get(kind, np.uint16 if half else np.uint32)))
    if sort == "cancel":
        first = fdot(*pair, out[0], out[1], np.zeros_like(out[2]), half, False)
        out[2] = (first ^ (0x8000 if half else 0x80000000)).astype(out[2].dtype)
    return out


@settings(max_examples=40, deadline=None)
@given(cases(), st.booleans())
def test_any_product(case: tuple[tuple[int, int], bool, np.random.Generator, str], negate: bool) -> None:
    pair, half, rng, sort = case
    a, b, c = operands(pair, half, rng, sort, 8)
    got = multiply(pair, a[None], b[None], c, half=half, negate_b=negate)
    np.testing.assert_array_equal(got, fdot(*pair, a, b, c, half, negate))


@settings(max_examples=25, deadline=None)
@given(cases())
def test_order_of_products_and_number_of_columns_do_not_matter(
    case: tuple[tuple[int, int], bool, np.random.Generator, str],
) -> None:
    pair, half, rng, sort = case
    a, b, c = operands(pair, half, rng, sort, 24)
    order = rng.permutation(a.shape[1])
    whole = multiply(pair, a[None], b[None], c, half=half)
    np.testing.assert_array_equal(multiply(pair, a[None][..., order], b[None][..., order], c, half=half), whole)
    part = multiply(pair, a[None], b[None, 8:16], c[:, 8:16], half=half, registers_a=True)
    np.testing.assert_array_equal(part, whole[:, 8:16])


def test_a_missing_accumulator_is_a_zero_one() -> None:
    rng = np.random.default_rng(3)
    a, b, c = operands((F16, F16), False, rng, "near", 8)
    nan = np.full_like(c, 0x7FC00000)
    zero = multiply((F16, F16), a[None], b[None], np.zeros_like(c))
    np.testing.assert_array_equal(multiply((F16, F16), a[None], b[None], nan, scale_d=False), zero)
