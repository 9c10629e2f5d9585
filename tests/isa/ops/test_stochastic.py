"""cvt.rs: always a neighbour, never another of what the format holds, and right on average."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from emu.lanes import run_ptx
from isa import bits
from isa.bits import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, Format
from isa.ops.stochastic import FINITE, rounded
from tests.isa.ops.cases import same, words

PAIRS = {"f16x2": (F16, np.float16), "bf16x2": (BF16, ml_dtypes.bfloat16)}
FOURS = {
    "e4m3x4": (E4M3, ml_dtypes.float8_e4m3fn, 8),
    "e5m2x4": (E5M2, ml_dtypes.float8_e5m2, 8),
    "e2m3x4": (E2M3, ml_dtypes.float6_e2m3fn, 8),
    "e3m2x4": (E3M2, ml_dtypes.float6_e3m2fn, 8),
    "e2m1x4": (E2M1, ml_dtypes.float4_e2m1fn, 4),
}


def four(type: str, values: np.ndarray, random: np.ndarray, relu: str = "") -> np.ndarray:
    """The patterns of four values a lane, shape (4, lanes)."""
    names = dict(zip("abef", values.view(np.uint32), strict=True))
    register = "b16" if type == "e2m1x4" else "b32"
    line = f"cvt.rs{relu}.satfinite.{type}.f32 %d, {{%a, %b, %e, %f}}, %r;"
    got = run_ptx(line, "sm_100a", **names, r=random, d=register)["d"]
    span = FOURS[type][2]
    return np.stack([got >> np.uint32(span * k) & np.uint32((1 << span) - 1) for k in (3, 2, 1, 0)])


@pytest.mark.parametrize("type", FOURS)
def test_neighbours_and_mean(type: str) -> None:
    f, small, _ = FOURS[type]
    rng = np.random.default_rng(3)
    largest = float(bits.to_fraction(f, f.largest))
    values = np.repeat(rng.uniform(-largest, largest, (4, 8)).astype(np.float32), 4096, axis=1)
    got = four(type, values, rng.integers(0, 1 << 32, values.shape[1], dtype=np.uint32))
    back = got.astype(np.uint8).view(small).astype(np.float64)
    table = np.unique(
        np.array(
            [float(bits.to_fraction(f, x)) for x in range(f.sign) if not bits.is_nan(f, x) and not bits.is_inf(f, x)]
        )
    )
    table = np.unique(np.concatenate([-table, table]))
    above = np.searchsorted(table, values, side="left")
    high = table[np.minimum(above, len(table) - 1)]
    low = table[np.maximum(above - 1, 0)]
    assert np.all((back == high) | (back == low))
    step = (high - low).reshape(4, 8, 4096)[:, :, 0]
    off = back.reshape(4, 8, 4096).mean(2) - values.reshape(4, 8, 4096)[:, :, 0]
    assert np.all(np.abs(off) < step * (1 / 256 + 4 * 0.5 / 64))  # 8 random bits, 4096 samples: four deviations


@pytest.mark.parametrize("type", FOURS)
def test_what_the_format_holds_stays(type: str) -> None:
    f, small, _ = FOURS[type]
    every = np.array([x for x in range(2 * f.sign) if not bits.is_nan(f, x) and not bits.is_inf(f, x)], np.uint8)
    values = np.resize(every.view(small).astype(np.float32), (4, 256))
    random = np.random.default_rng(1).integers(0, 1 << 32, 256, dtype=np.uint32)
    same(four(type, values, random).ravel(), np.resize(every, 1024))
    kept = np.where(np.signbit(values), 0, np.resize(every, (4, 256)))
    same(four(type, values, random, ".relu").ravel(), kept.ravel())


@pytest.mark.parametrize("type", PAIRS)
def test_pairs(type: str) -> None:
    f, small = PAIRS[type]
    a, b, r = words(1, 1024), words(2, 1024), words(3, 1024)
    got = run_ptx(f"cvt.rs.{type}.f32 %d, %a, %b, %r;", "sm_100a", a=a, b=b, r=r, d="b32")["d"]
    zero = run_ptx(f"cvt.rs.satfinite.{type}.f32 %d, %a, %b, %r;", "sm_100a", a=a, b=b, r=r * 0, d="b32")["d"]
    truncated = run_ptx(f"cvt.rz.satfinite.{type}.f32 %d, %a, %b;", "sm_100a", a=a, b=b, d="b32")["d"]
    same(zero, truncated, a, b)  # without random bits nothing is ever rounded up
    for x, part in ((a, got >> np.uint32(16)), (b, got & np.uint32(0xFFFF))):
        value, back = x.view(np.float32).astype(np.float64), part.astype(np.uint16).view(small).astype(np.float64)
        down = np.array([bits.convert(F32, f, int(k), "rz") for k in x], np.uint16).view(small).astype(np.float64)
        finite = np.isfinite(value) & np.isfinite(back)
        assert np.all(np.abs(back[finite]) >= np.abs(down[finite]))
        assert np.all((np.abs(back) >= np.abs(value))[finite] | (back == down)[finite])


def test_edges() -> None:
    """Infinity and NaN, and a subnormal far below the format."""
    inf, nan, tiny = F32.inf, F32.nan, 1
    assert (rounded(F16, inf, 0, 13, 0), rounded(F16, inf, 0, 13, FINITE), rounded(F16, nan, 0, 13, 0)) == (
        0x7C00,
        0x7BFF,
        0x7FFF,
    )
    assert rounded(E2M1, inf | 1 << 31, 255, 8, FINITE) == 0xF and rounded(E2M1, nan, 255, 8, FINITE) == 7
    assert rounded(E4M3, tiny, 255, 8, FINITE) == 0 and rounded(BF16, tiny, 0xFFFF, 16, 0) == 1
    assert isinstance(F16, Format)


def test_what_is_taken(instructions) -> None:
    texts = [f"cvt.rs{relu}{sat}.{type}.f32 %r1, %f1, %f2, %r3;" for relu in ("", ".relu") for sat in ("", ".satfinite")
             for type in PAIRS]  # fmt: skip
    for type in FOURS:
        d = "%h1" if type == "e2m1x4" else "%r1"
        texts += [f"cvt.rs{relu}.satfinite.{type}.f32 {d}, {{%f1, %f2, %f3, %f4}}, %r3;" for relu in ("", ".relu")]
    instructions.accept(texts, "sm_100a")


@pytest.mark.parametrize("text", ["cvt.rs.f16.f32 %h1, %f1, %r3;", "cvt.rs.e4m3x4.f32 %r1, {%f1, %f2, %f3, %f4}, %r3;"])
def test_what_is_not(instructions, text: str) -> None:
    instructions.reject(text, "sm_100a")
