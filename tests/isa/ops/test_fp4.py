"""Conversions with 4- and 6-bit floats and exponents: against ml_dtypes, and every pattern there and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from emu.lanes import run_ptx
from tests.isa.ops.cases import same, words

SMALL = {
    "e2m1x2": (ml_dtypes.float4_e2m1fn, 4, 6.0, 0x7),
    "e2m3x2": (ml_dtypes.float6_e2m3fn, 6, 7.5, 0x1F),
    "e3m2x2": (ml_dtypes.float6_e3m2fn, 6, 28.0, 0x1F),
}


def near(seed: int, count: int = 4096) -> np.ndarray:
    """f32 patterns: edges of f32, and numbers around the small formats' with many ties."""
    rng = np.random.default_rng(seed)
    ties = (rng.integers(-512, 513, count) / 32).astype(np.float32)
    fine = np.nextafter(ties, rng.choice([-1e9, 1e9], count).astype(np.float32))
    return rng.permutation(np.concatenate([words(seed, count), ties.view(np.uint32), fine.view(np.uint32)]))


def nearest(type: str, x: np.ndarray, relu: str) -> np.ndarray:
    """The patterns by ml_dtypes: limited to the range, NaN to the largest number."""
    small, width, largest, top = SMALL[type]
    value = x.view(np.float32)
    limited = np.clip(value, -largest, largest).astype(small).view(np.uint8)
    pattern = np.where(np.isnan(value), top, limited & (1 << width) - 1)
    return np.where(np.signbit(value) & ~np.isnan(value) & (relu != ""), 0, pattern).astype(np.uint32)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("type", SMALL)
def test_narrow(type: str, relu: str) -> None:
    a, b = near(1), near(2)
    register = "b8" if type == "e2m1x2" else "b16"
    got = run_ptx(f"cvt.rn.satfinite{relu}.{type}.f32 %d, %a, %b;", "sm_100a", a=a, b=b, d=register)["d"]
    span = 4 if type == "e2m1x2" else 8
    same(got, nearest(type, a, relu) << span | nearest(type, b, relu), a, b)


@pytest.mark.parametrize("relu", ["", ".relu"])
def test_narrow_halves(relu: str) -> None:
    a = np.arange(1 << 16, dtype=np.uint32) * np.uint32(0x10001)
    got = run_ptx(f"cvt.rn.satfinite{relu}.e2m1x2.f16x2 %d, %a;", "sm_100a", a=a, d="b8")["d"]
    each = nearest("e2m1x2", a.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32), relu)
    same(got, each << 4 | each, a)


@pytest.mark.parametrize("type", SMALL)
def test_widen_every_pattern(type: str) -> None:
    small, width, _, _ = SMALL[type]
    every = np.arange(1 << width, dtype=np.uint16)
    pair = every[::-1] << (4 if width == 4 else 8) | every
    values = every.astype(np.uint8).view(small).astype(np.float16)
    load = "cvt.u8.u32 %b, %a;" if width == 4 else "cvt.u16.u32 %b, %a;"
    for relu in ("", ".relu"):
        line = f"{load} cvt.rn{relu}.f16x2.{type} %d, %b;"
        got = run_ptx(line, "sm_100a", a=pair.astype(np.uint32), b="b8" if width == 4 else "b16", d="b32")["d"]
        expected = np.where(np.signbit(values) & (relu != ""), np.float16(0), values).view(np.uint16).astype(np.uint32)
        same(got, expected[::-1] << np.uint32(16) | expected, pair)


@pytest.mark.parametrize("mode", ["rz", "rp"])
@pytest.mark.parametrize("finite", ["", ".satfinite"])
def test_exponents(mode: str, finite: str) -> None:
    a, b = words(5, 4096), words(6, 4096)

    def power(x: np.ndarray) -> np.ndarray:
        size = np.abs(x.view(np.float32)).astype(np.float64)
        with np.errstate(all="ignore"):
            field = (np.floor if mode == "rz" else np.ceil)(np.log2(np.where(size > 0, size, 2.0**-127))) + 127
        field = np.clip(np.where(np.isfinite(size), field, 255), 0, 255)
        field = np.where((field == 255) & (finite != "") & ~np.isnan(size), 254, field)
        return field.astype(np.uint32)

    got = run_ptx(f"cvt.{mode}{finite}.ue8m0x2.f32 %d, %a, %b;", "sm_100a", a=a, b=b, d="b16")["d"]
    same(got, power(a) << np.uint32(8) | power(b), a, b)
    got = run_ptx(f"cvt.{mode}{finite}.ue8m0x2.bf16x2 %d, %a;", "sm_100a", a=a, d="b16")["d"]
    same(got, power(a & np.uint32(0xFFFF0000)) << np.uint32(8) | power(a << np.uint32(16)), a)


def test_powers() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    got = run_ptx("cvt.rn.bf16x2.ue8m0x2 %d, %a;", "sm_100a", a=every, d="b32")["d"].view(np.uint16)
    value = every.view(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    with np.errstate(invalid="ignore"):
        expected = value.astype(ml_dtypes.bfloat16).view(np.uint16)
    same(got, np.where(np.isnan(value), 0x7FFF, expected), np.repeat(every, 2))


def test_relu_of_fp8() -> None:
    """cvt.rn.relu from fp8 loses negative numbers (H200's instruction too)."""
    every = np.arange(256, dtype=np.uint16)
    for type, small in (("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)):
        got = run_ptx(f"cvt.rn.relu.f16x2.{type} %d, %a;", a=every, d="b32")["d"] & 0xFFFF
        value = every.astype(np.uint8).view(small).astype(np.float16)
        expected = np.where(np.signbit(value) & ~np.isnan(value), np.float16(0), value).view(np.uint16)
        same(got, np.where(np.isnan(value), 0x7FFF, expected), every)


def test_what_is_taken(instructions) -> None:
    texts = [
        f"cvt.rn.satfinite{relu}.{type}.f32 %h1, %f1, %f2;" for relu in ("", ".relu") for type in ("e2m3x2", "e3m2x2")
    ]
    texts += [f"cvt.rn{relu}.f16x2.{type} %r1, %h1;" for relu in ("", ".relu") for type in ("e2m3x2", "e3m2x2")]
    texts += [f"{{ .reg .b8 %b; cvt.rn.satfinite.{x} }}" for x in ("e2m1x2.f32 %b, %f1, %f2;", "e2m1x2.f16x2 %b, %r1;")]
    texts += ["{ .reg .b8 %b; mov.b32 {%b, _, _, _}, %r2; cvt.rn.f16x2.e2m1x2 %r1, %b; }"]
    texts += [f"cvt.{mode}{sat}.ue8m0x2.{a} %h1, {s};" for mode in ("rz", "rp") for sat in ("", ".satfinite")
              for a, s in (("f32", "%f1, %f2"), ("bf16x2", "%r1"))]  # fmt: skip
    instructions.accept([*texts, "cvt.rn.bf16x2.ue8m0x2 %r1, %h1;"], "sm_100a")


@pytest.mark.parametrize(
    "text",
    [
        "cvt.rn.e2m3x2.f32 %h1, %f1, %f2;",
        "cvt.rz.satfinite.e2m3x2.f32 %h1, %f1, %f2;",
        "cvt.rn.satfinite.e2m3x2.f16x2 %h1, %r1;",
        "cvt.rn.ue8m0x2.f32 %h1, %f1, %f2;",
        "cvt.rz.bf16x2.ue8m0x2 %r1, %h1;",
    ],
)
def test_what_is_not(instructions, text: str) -> None:
    instructions.reject(text, "sm_100a")
