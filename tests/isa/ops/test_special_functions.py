"""Approximate functions: the true value within the documented error, silicon within two units, specials exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emu.lanes import run_ptx
from tests.isa.ops import recorded
from tests.isa.ops.cases import same, words

UNIT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ex2.approx.ftz.f32": np.exp2,
    "lg2.approx.ftz.f32": np.log2,
    "rcp.approx.ftz.f32": lambda x: 1 / x,
    "rsqrt.approx.ftz.f32": lambda x: 1 / np.sqrt(x),
    "sqrt.approx.ftz.f32": np.sqrt,
}
SILICON_ULPS = {"ex2": 2, "lg2": 2, "rcp": 1, "rsqrt": 1, "sqrt": 1}
TANH_RELATIVE = 2.0**-11  # the unit's own documented error
TURN_ERROR = 2.0**-20.9  # and that of its sine and cosine


def inputs() -> np.ndarray:
    stored = recorded.arrays("mufu_samples")
    return np.concatenate([words(1, 4096), stored["x"]])


def special(x: np.ndarray) -> np.ndarray:
    """Zeros, infinities and NaN."""
    size = x & np.uint32(0x7FFFFFFF)
    return (size == 0) | (size >= 0x7F800000)


def close(op: str, got: np.ndarray, card: np.ndarray, factor: int = 1) -> bool:
    """Within the units that the polynomial and the unit's table may differ by; the unit's logarithm has an absolute
    error of up to 2^-22.3, which is many units next to 1."""
    near = recorded.ulps(got, card) <= factor * SILICON_ULPS[op]
    if op == "lg2":
        near |= np.abs(got.view(np.float32) - card.view(np.float32)) < 2.0**-22
    return bool(near.all())


@pytest.mark.parametrize("name", UNIT)
def test_within_one_unit_of_the_true_value(name: str) -> None:
    x = inputs()
    got = run_ptx(f"{name} %d, %a;", a=x, d="f32")["d"]
    with np.errstate(all="ignore"):
        true = UNIT[name](x.view(np.float32).astype(np.float64))
        nearest = true.astype(np.float32)
    normal = ~special(got) & np.isfinite(nearest) & (np.abs(nearest) >= 2.0**-126)
    unit = np.spacing(np.abs(nearest[normal])).astype(np.float64)
    error = np.abs(got.view(np.float32)[normal].astype(np.float64) - true[normal]) / unit
    assert normal.sum() > 500 and error.max() <= 1.0


@pytest.mark.parametrize("name", UNIT)
@pytest.mark.parametrize("sample", ["", ".dense"])
def test_silicon(name: str, sample: str) -> None:
    stored = recorded.arrays("mufu_samples")
    x, card = stored[f"{name}.dense_x" if sample else "x"], stored[name + sample]
    got = run_ptx(f"{name} %d, %a;", a=x, d="f32")["d"]
    odd = special(card) | special(got)
    same(got[odd], card[odd], x[odd])
    assert close(name.split(".")[0], got[~odd], card[~odd])


@pytest.mark.parametrize("op", ["ex2", "lg2", "rcp", "rsqrt", "sqrt"])
def test_without_ftz_subnormals_count(op: str) -> None:
    stored = recorded.arrays("scalar_f32")
    x, card = stored["a"], stored[op]
    got = recorded.run("scalar_f32", f"{op}.approx.f32 %d, %a;")
    odd = special(card) | special(got)
    same(got[odd], card[odd], x[odd])
    assert close(op, got[~odd], card[~odd], 2 if op == "ex2" else 1)  # ex2 squares its error


@pytest.mark.parametrize("qualifiers", ["full", "full.ftz", "approx", "approx.ftz"])
def test_division(qualifiers: str) -> None:
    stored = recorded.arrays("scalar_f32")
    card = stored["div_" + qualifiers.replace(".", "_")]
    got = recorded.run("scalar_f32", f"div.{qualifiers}.f32 %d, %a, %b;")
    odd = special(card) | special(got)
    same(got[odd], card[odd], stored["a"][odd], stored["b"][odd])
    assert recorded.ulps(got, card)[~odd].max() <= 2


def test_tanh() -> None:
    stored = recorded.arrays("mufu_samples")
    for x, card in (
        (stored["x"], stored["tanh.approx.f32"]),
        (stored["tanh.approx.f32.dense_x"], stored["tanh.approx.f32.dense"]),
    ):
        got = run_ptx("tanh.approx.f32 %d, %a;", a=x, d="f32")["d"]
        odd = special(card) | special(got)
        same(got[odd], card[odd], x[odd])
        value = got.view(np.float32)[~odd].astype(np.float64)
        assert (np.abs(value / card.view(np.float32)[~odd] - 1) < TANH_RELATIVE).all()
        true = np.tanh(x.view(np.float32)[~odd].astype(np.float64))
        large = np.abs(true) > 2.0**-120
        assert (np.abs(value / true - 1)[large & (np.abs(true) > 2.0**-8)] < 4 * 2.0**-24).all()


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("op", ["sin", "cos"])
def test_sine_and_cosine(op: str, ftz: str) -> None:
    stored = recorded.arrays("scalar_f32")
    card = stored[op + ftz.replace(".", "_")]
    got = recorded.run("scalar_f32", f"{op}.approx{ftz}.f32 %d, %a;")
    nan = (card & np.uint32(0x7FFFFFFF)) > 0x7F800000
    same(got[nan], card[nan], stored["a"][nan])
    value = got.view(np.float32)[~nan]
    assert np.abs(value - card.view(np.float32)[~nan]).max() < TURN_ERROR
    assert np.abs(value).max() <= 1
    x = np.linspace(-3.2, 3.2, 4096).astype(np.float32)
    got = run_ptx(f"{op}.approx{ftz}.f32 %d, %a;", a=x.view(np.uint32), d="f32")["d"].view(np.float32)
    assert np.abs(got - getattr(np, op)(x.astype(np.float64))).max() < TURN_ERROR


def test_powers_of_two_are_exact() -> None:
    exponents = np.arange(-126, 128, dtype=np.float32)
    got = run_ptx("ex2.approx.ftz.f32 %d, %a;", a=exponents.view(np.uint32), d="f32")["d"]
    same(got.view(np.float32), np.ldexp(np.float32(1), exponents.astype(int)))
    back = run_ptx("lg2.approx.ftz.f32 %d, %a;", a=got, d="f32")["d"]
    same(back.view(np.float32), exponents)
