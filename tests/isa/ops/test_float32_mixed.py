"""f32 with half-precision sources: the exact sum or product, rounded once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa import bits
from isa.bits import BF16, F16, F32
from tests.isa.ops.cases import same, shorts, words

FORMATS = {"f16": F16, "bf16": BF16}


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("type", FORMATS)
def test_one_rounding(type: str, mode: str) -> None:
    a, b, c = shorts(1, 384), shorts(2, 384), words(3, 384)
    for op, scalar, halves in (("add", bits.add, [a]), ("sub", bits.sub, [a]), ("fma", bits.fma, [a, b])):
        for sat in ("", ".sat"):
            sources = "%a, %b, %c" if op == "fma" else "%a, %c"
            got = run_ptx(f"{op}.{mode}{sat}.f32.{type} %d, {sources};", "sm_100a", a=a, b=b, c=c, d="f32")["d"]
            wide = [[bits.convert(FORMATS[type], F32, int(x)) for x in half] for half in halves]
            expected = [scalar(F32, *lane, mode=mode) for lane in zip(*wide, c.tolist(), strict=True)]
            same(got, np.array([bits.saturate(F32, x) if sat else x for x in expected], np.uint32), a, b, c)


def test_what_is_taken(instructions) -> None:
    kinds = itertools.product(("", ".rn", ".rz", ".rm", ".rp"), ("", ".sat"), ("f16", "bf16"))
    texts = []
    for mode, sat, type in kinds:
        texts += [f"{op}{mode}{sat}.f32.{type} %f1, %h2, %f3;" for op in ("add", "sub")]
        texts += [f"fma{mode}{sat}.f32.{type} %f1, %h2, %h3, %f4;"] if mode else []
    instructions.accept(texts, "sm_100a")


@pytest.mark.parametrize(
    "text",
    [
        "add.rn.ftz.f32.f16 %f1, %h2, %f3;",
        "mul.rn.f32.f16 %f1, %h2, %f3;",
        "fma.f32.f16 %f1, %h2, %h3, %f4;",
        "add.rn.f32.f16 %f1, 0x3c00, %f3;",
    ],
)
def test_what_is_not(instructions, text: str) -> None:
    instructions.reject(text, "sm_100a")
