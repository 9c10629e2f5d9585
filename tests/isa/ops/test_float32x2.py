"""Packed f32x2: each half is the scalar instruction, in every mode; what ptxas takes."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa import bits
from isa.bits import F32
from tests.isa.ops.cases import longs, same, words

OPS = (("add", bits.add, 2), ("sub", bits.sub, 2), ("mul", bits.mul, 2), ("fma", bits.fma, 3))


def packed(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_each_half_is_rounded_once(mode: str, ftz: str) -> None:
    low, high = [words(k, 256) for k in (1, 2, 3)], [words(k, 256) for k in (4, 5, 6)]
    a, b, c = (packed(x, y) for x, y in zip(low, high, strict=True))
    for op, scalar, count in OPS:
        line = f"{op}.{mode}{ftz}.f32x2 %d, %a, %b{', %c' if count == 3 else ''};"
        got = run_ptx(line, "sm_100a", a=a, b=b, c=c, d="b64")["d"]
        expected = [
            [scalar(F32, *(int(x) for x in lane), mode=mode, ftz=bool(ftz)) for lane in zip(*half[:count], strict=True)]
            for half in (low, high)
        ]
        same(got, packed(*(np.array(half, np.uint32) for half in expected)), a, b, c)


def test_nearest_is_what_numpy_computes() -> None:
    a, b = (longs(k, 512).view(np.float32) for k in (8, 9))
    with np.errstate(all="ignore"):
        for line, expected in (("add", a + b), ("sub", a - b), ("mul", a * b)):
            got = run_ptx(f"{line}.f32x2 %d, %a, %b;", "sm_100a", a=a.view(np.uint64), b=b.view(np.uint64), d="b64")[
                "d"
            ]
            expected = np.where(np.isnan(expected), np.uint32(F32.nan), expected.view(np.uint32))
            same(got.view(np.uint32), expected, a.view(np.uint32), b.view(np.uint32))


def test_what_is_taken(instructions) -> None:
    forms = [f"{op}{mode}{ftz}.f32x2 %rd1, %rd2, %rd3;" for op in ("add", "sub", "mul") for mode in ("", ".rn", ".rm")
             for ftz in ("", ".ftz")]  # fmt: skip
    instructions.accept([*forms, "fma.rp.ftz.f32x2 %rd1, %rd2, %rd3, %rd4;"], "sm_100a")


@pytest.mark.parametrize(
    "text",
    [
        "fma.f32x2 %rd1, %rd2, %rd3, %rd4;",
        "add.rn.sat.f32x2 %rd1, %rd2, %rd3;",
        "add.f32x2 %rd1, %rd2, 0x3f8000003f800000;",
        "add.f32x2 %fd1, %fd2, %fd3;",
        "max.f32x2 %rd1, %rd2, %rd3;",
        "neg.f32x2 %rd1, %rd2;",
    ],
)
def test_what_is_not(instructions, text: str) -> None:
    instructions.reject(text, "sm_100a")


def test_needs_blackwell(instructions) -> None:
    assert "sm_100" in str(instructions.reject("add.f32x2 %rd1, %rd2, %rd3;"))
