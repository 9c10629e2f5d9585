"""Minimum and maximum of three: against NumPy's fmax and maximum, and the rules on NaN."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa.bits import F32
from tests.isa.ops.cases import same, words


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
@pytest.mark.parametrize("abs_", ["", ".abs"])
@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_values(op: str, nan: str, abs_: str, ftz: str) -> None:
    a, b, c = (words(k, 768) for k in (1, 2, 3))
    got = run_ptx(f"{op}{ftz}{nan}{abs_}.f32 %d, %a, %b, %c;", "sm_100a", a=a, b=b, c=c, d="f32")["d"]
    x = np.stack([a, b, c]).view(np.float32)
    x = np.where((np.abs(x) < 2.0**-126) & (ftz != ""), np.copysign(0, x), x).astype(np.float32)
    x = np.abs(x) if abs_ else x
    order = np.where(x.view(np.int32) < 0, -1 - (x.view(np.int32) & 0x7FFFFFFF), x.view(np.int32)).astype(np.int64)
    worst = np.int64(1 << 40) * (-1 if op == "max" else 1)
    order = np.where(np.isnan(x), worst, order)
    best = (np.argmax if op == "max" else np.argmin)(order, axis=0)
    expected = np.take_along_axis(x.view(np.uint32), best[None], 0)[0]
    gone = np.isnan(x).any(0) if nan else np.isnan(x).all(0)
    same(got, np.where(gone, np.uint32(F32.nan), expected), a, b, c)


def test_what_is_taken(instructions) -> None:
    kinds = itertools.product(("min", "max"), ("", ".ftz"), ("", ".NaN"), ("", ".abs"))
    instructions.accept([f"{''.join(kind)}.f32 %f1, %f2, %f3, 0f3F800000;" for kind in kinds], "sm_100a")
    assert [name for name, _ in instructions.words("max.f32 %f1, %f2, %f3, %f4;", "sm_100a")] == ["FMNMX3.MAX"]


@pytest.mark.parametrize(
    "text",
    [
        "max.s32 %r1, %r2, %r3, %r4;",
        "max.u32 %r1, %r2, %r3, %r4;",
        "max.f16x2 %r1, %r2, %r3, %r4;",
        "max.xorsign.abs.f32 %f1, %f2, %f3, %f4;",
        "max.abs.f32 %f1, %f2, %f3;",
    ],
)
def test_what_is_not(instructions, text: str) -> None:
    instructions.reject(text, "sm_100a")


def test_needs_blackwell(instructions) -> None:
    instructions.reject("max.f32 %f1, %f2, %f3, %f4;")
