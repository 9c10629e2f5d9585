"""Correctly rounded division and square roots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa import bits
from isa.bits import F32, F64, Format
from tests.isa.ops import recorded
from tests.isa.ops.cases import longs, same, words

MODES = ("rn", "rz", "rm", "rp")


def test_recorded() -> None:
    recorded.replay("scalar_f32", "div_rn", "div.rn.f32 %d, %a, %b;")


def expected(f: Format, function: Callable[..., int], mode: str, ftz: bool, *operands: np.ndarray) -> np.ndarray:
    lanes = zip(*operands, strict=True)
    results = [function(f, *(int(x) for x in lane), mode, ftz) for lane in lanes]
    return np.array(results, np.uint64 if f is F64 else np.uint32)


def reciprocal(f: Format, x: int, mode: str, ftz: bool) -> int:
    return bits.div(f, f.one, x, mode, ftz)


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("mode", MODES)
def test_f32(mode: str, ftz: str) -> None:
    a, b = words(90, 768), words(91, 768)
    got = run_ptx(f"div.{mode}{ftz}.f32 %d, %a, %b;", a=a, b=b, d="f32")["d"]
    same(got, expected(F32, bits.div, mode, bool(ftz), a, b), a, b)
    got = run_ptx(f"rcp.{mode}{ftz}.f32 %d, %a;", a=a, d="f32")["d"]
    same(got, expected(F32, reciprocal, mode, bool(ftz), a), a)
    got = run_ptx(f"sqrt.{mode}{ftz}.f32 %d, %a;", a=a, d="f32")["d"]
    same(got, expected(F32, bits.sqrt, mode, bool(ftz), a), a)


@pytest.mark.parametrize("mode", MODES)
def test_f64(mode: str) -> None:
    a, b = longs(92, 768), longs(93, 768)
    got = run_ptx(f"div.{mode}.f64 %d, %a, %b;", a=a, b=b, d="f64")["d"]
    same(got, expected(F64, bits.div, mode, False, a, b), a, b)
    got = run_ptx(f"rcp.{mode}.f64 %d, %a;", a=a, d="f64")["d"]
    same(got, expected(F64, reciprocal, mode, False, a), a)
    got = run_ptx(f"sqrt.{mode}.f64 %d, %a;", a=a, d="f64")["d"]
    same(got, expected(F64, bits.sqrt, mode, False, a), a)


def test_fast_path_is_already_exact_in_the_middle_of_the_range() -> None:
    """The refinement before the last step does what ptxas's does: it alone rounds ordinary quotients correctly."""
    rng = np.random.default_rng(11)
    a, b = ((rng.standard_normal(1024) + 3).astype(np.float32).view(np.uint32) for _ in range(2))
    line = (
        "rcp.approx.ftz.f32 %r, %b; neg.f32 %m, %b; fma.rn.f32 %e, %m, %r, 0f3F800000; fma.rn.f32 %r, %r, %e, %r; "
        "mul.rn.f32 %q, %a, %r; fma.rn.f32 %e, %m, %q, %a; fma.rn.f32 %q, %r, %e, %q;"
    )
    got = run_ptx(line, a=a, b=b, r="f32", m="f32", e="f32", q="f32")["q"]
    exact = (a.view(np.float32) / b.view(np.float32)).view(np.uint32)
    same(got, exact, a, b)
