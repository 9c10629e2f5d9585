"""Approximations in double precision: bounds of the manual, special values, subnormals."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lanes import run_ptx
from tests.isa.ops.cases import longs

ACCEPTED = ["rcp.approx.ftz.f64 %fd1, %fd2;", "rsqrt.approx.ftz.f64 %fd1, %fd2;", "rsqrt.approx.f64 %fd1, %fd2;"]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", ["rcp.approx.f64 %fd1, %fd2;", "sqrt.approx.ftz.f64 %fd1, %fd2;"])
def test_rejected(instructions, text):
    instructions.reject(text)


def run(line: str, x: np.ndarray) -> np.ndarray:
    return run_ptx(f"{line} %d, %a;", a=x.view(np.uint64), d="b64")["d"].view(np.float64)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 5e-324, 1e-310, -1e-310])


@pytest.mark.parametrize("line, root", [("rcp.approx.ftz.f64", False), ("rsqrt.approx.ftz.f64", True)])
def test_upper_words(line, root):
    x = np.abs(longs(1, 2048).view(np.float64)) if root else longs(1, 2048).view(np.float64)
    x = x[np.isfinite(x) & (np.abs(x) > 1e-300) & (np.abs(x) < 1e300)]
    got, expected = run(line, x), 1 / (np.sqrt(x) if root else x)
    assert (np.abs(got / expected - 1) < 2.0**-19).all()
    assert not (got.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
    with np.errstate(divide="ignore", invalid="ignore"):
        flushed = np.where(np.abs(SPECIAL) < 2.3e-308, SPECIAL * 0.0, SPECIAL)
        same_class = 1 / (np.sqrt(flushed) if root else flushed)
    assert np.array_equal(run(line, SPECIAL)[[0, 1, 2, 3, 4]], same_class[[0, 1, 2, 3, 4]], equal_nan=True)
    assert np.array_equal(run(line, SPECIAL)[6:], same_class[6:], equal_nan=True)


def test_rsqrt_is_right_to_the_last_place():
    x = np.abs(longs(2, 4096).view(np.float64))
    x = np.concatenate([x[np.isfinite(x) & (x > 0)], [5e-324, 1e-310, 2.2e-308, 1.7e308]])
    got, expected = run("rsqrt.approx.f64", x), 1 / np.sqrt(x.astype(np.longdouble))
    assert (np.abs(got - expected) <= np.spacing(got)).all()
    got = run("rsqrt.approx.f64", SPECIAL[:6])
    assert got[:3].tolist() == [np.inf, -np.inf, 0.0] and np.isnan(got[3:]).all()
