"""Approximate functions: the card's values bit for bit; the true value within the documented error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emu.lanes import run_lanes, run_ptx
from isa import mufu
from isa.micro import MICROS
from tests.isa.ops import recorded
from tests.isa.ops.cases import same, words

UNIT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ex2.approx.ftz.f32": np.exp2,
    "lg2.approx.ftz.f32": np.log2,
    "rcp.approx.ftz.f32": lambda x: 1 / x,
    "rsqrt.approx.ftz.f32": lambda x: 1 / np.sqrt(x),
    "sqrt.approx.ftz.f32": np.sqrt,
}
RELATIVE = {"ex2": 2.0**-22, "lg2": 2.0**-22, "rcp": 2.0**-23, "rsqrt": 2.0**-22.9, "sqrt": 2.0**-23}
TANH_RELATIVE = 2.0**-11  # the unit's own documented error
TURN_ERROR = 2.0**-20.9  # and that of its sine and cosine


def inputs() -> np.ndarray:
    stored = recorded.arrays("mufu_samples")
    return np.concatenate([words(1, 4096), stored["x"]])


def special(x: np.ndarray) -> np.ndarray:
    """Zeros, infinities and NaN."""
    size = x & np.uint32(0x7FFFFFFF)
    return (size == 0) | (size >= 0x7F800000)


@pytest.mark.parametrize("name", UNIT)
def test_within_the_documented_error(name: str) -> None:
    """PTX ISA 9.7.3: relative errors; of lg2 an absolute one between 1/2 and 2."""
    x = inputs()
    got = run_ptx(f"{name} %d, %a;", a=x, d="f32")["d"]
    with np.errstate(all="ignore"):
        true = UNIT[name](x.view(np.float32).astype(np.float64))
        nearest = true.astype(np.float32)
    normal = ~special(got) & np.isfinite(nearest) & (np.abs(nearest) >= 2.0**-126)
    size = np.abs(true[normal])
    if name.startswith("lg2"):
        size = np.maximum(size, 1)
    error = np.abs(got.view(np.float32)[normal].astype(np.float64) - true[normal]) / size
    assert normal.sum() > 500 and error.max() <= RELATIVE[name.split(".")[0]]


SAMPLES = [(name, sample) for name in [*UNIT, "tanh.approx.f32"] for sample in ("", ".dense")]


@pytest.mark.parametrize(("name", "sample"), SAMPLES + [(name.replace(".ftz", ""), "") for name in UNIT])
def test_silicon(name: str, sample: str) -> None:
    stored = recorded.arrays("mufu_samples")
    x, card = stored[f"{name}.dense_x" if sample else "x"], stored[name + sample]
    same(run_ptx(f"{name} %d, %a;", a=x, d="f32")["d"], card, x)


def test_ex2_of_fast_mode_is_two_units_away() -> None:
    x = np.resize(inputs(), 32 * -(-len(inputs()) // 32))
    (fast,), (card,) = run_lanes("MUFU.EX2.FAST", x), run_lanes("MUFU.EX2", x)
    odd = special(card) | special(fast)
    same(fast[odd], card[odd], x[odd])
    assert recorded.ulps(fast, card).max() <= 2


def test_every_segment_at_its_ends() -> None:
    """Each segment of each table at its first and last arguments: the emission is the formula in integers."""
    for name, table in (
        ("EX2", mufu.EX2),
        ("LG2", mufu.LG2),
        ("RCP", mufu.RCP),
        ("RSQ", mufu.RSQ),
        ("SQRT", mufu.SQRT),
    ):
        starts = np.arange(len(table.rows), dtype=np.int64) << table.bits
        m = np.concatenate([starts + k for k in (0, 1, 2, 3, (1 << table.bits) - 1, (1 << table.bits) - 4, 0x5555)])
        words = (
            (m + (126 << 23)).astype(np.uint32)
            if name != "EX2"
            else (1 + m * 2.0**-23).astype(np.float32).view(np.uint32)
        )
        words = np.resize(words, 32 * -(-len(words) // 32))
        meaning = MICROS[f"MUFU.{name}"].meaning
        assert meaning is not None
        (got,) = run_lanes(f"MUFU.{name}", words)
        same(got, [meaning(int(x)) for x in words], words)


@pytest.mark.parametrize(
    "name", ["tanh", *(op + ftz for op in ("ex2", "lg2", "rcp", "rsqrt", "sqrt") for ftz in ("", "_ftz"))]
)
def test_recorded_edges(name: str) -> None:
    """Without .ftz subnormals count."""
    op, *ftz = name.split("_")
    recorded.replay("scalar_f32", name, f"{'.'.join([op, 'approx', *ftz])}.f32 %d, %a;")


@pytest.mark.parametrize("qualifiers", ["full", "full.ftz", "approx", "approx.ftz", "rn"])
def test_division(qualifiers: str) -> None:
    stored = recorded.arrays("scalar_f32")
    card = stored["div_" + qualifiers.replace(".", "_")]
    same(recorded.run("scalar_f32", f"div.{qualifiers}.f32 %d, %a, %b;"), card, stored["a"], stored["b"])


def test_tanh() -> None:
    x = inputs()
    value = run_ptx("tanh.approx.f32 %d, %a;", a=x, d="f32")["d"]
    odd = special(value)
    true = np.tanh(x.view(np.float32)[~odd].astype(np.float64))
    error = np.abs(value.view(np.float32)[~odd] / true - 1)
    assert (error < TANH_RELATIVE).all()


def test_sine_far_out() -> None:
    """Arguments over all exponents: NaN as on the card, the rest within the unit's error of it."""
    stored = recorded.arrays("mufu_samples")
    x, card = stored["x"], stored["sin.approx.ftz.f32"]
    got = run_ptx("sin.approx.ftz.f32 %d, %a;", a=x, d="f32")["d"]
    nan = (card & np.uint32(0x7FFFFFFF)) > 0x7F800000
    same(got[nan], card[nan], x[nan])
    assert np.abs(got.view(np.float32)[~nan] - card.view(np.float32)[~nan]).max() < TURN_ERROR


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


def test_powers_of_two() -> None:
    exponents = np.arange(-126, 128, dtype=np.float32)
    got = run_ptx("ex2.approx.ftz.f32 %d, %a;", a=exponents.view(np.uint32), d="f32")["d"]
    same(got.view(np.float32), np.ldexp(np.float32(1), exponents.astype(int)))
    back = run_ptx("lg2.approx.ftz.f32 %d, %a;", a=got, d="f32")["d"].view(np.float32)
    same(back[exponents >= 0], exponents[exponents >= 0])
    below = exponents < -1  # a complement of what is a little above the logarithm: truncated, a unit nearer to zero
    same(back[below], np.nextafter(exponents[below], np.float32(0)))
    assert back[exponents == -1].view(np.uint32) == 0xBF7FFFFE  # recorded
