"""Half precision: recorded silicon bit for bit, and every modifier against the scalar arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa import bits
from isa.bits import BF16, F16
from isa.ops.half import by_half
from tests.isa.ops import recorded
from tests.isa.ops.cases import same, words

STARTS = ("fma_", "add_", "mul_", "sub_", "min_", "max_", "neg_", "abs_")
FORMATS = {"f16": F16, "bf16": BF16}


@pytest.mark.parametrize("name", recorded.names("packed_half", *STARTS))
def test_recorded(name: str) -> None:
    recorded.replay("packed_half", name, recorded.arithmetic(name))


@pytest.mark.parametrize("name", recorded.names("unary_half", "ex2", "tanh"))
def test_recorded_special_functions(name: str) -> None:
    if name.endswith(".in"):
        return
    stored = recorded.arrays("unary_half")
    a = stored[f"{name}.in"].astype(np.uint32) * np.uint32(0x10001)
    got = run_ptx(f"{name.removesuffix('.all').replace('_', '.')} %d, %a;", a=a, d="b32")["d"]
    same(got >> np.uint32(16), got & np.uint32(0xFFFF), a)
    same(got & np.uint32(0xFFFF), stored[name], a)


ARITHMETIC = [
    ("add{}.f16x2", ("", ".ftz", ".sat", ".ftz.sat"), 2, bits.add),
    ("sub{}.f16x2", ("", ".ftz", ".sat", ".ftz.sat"), 2, bits.sub),
    ("mul{}.f16x2", ("", ".ftz", ".sat", ".ftz.sat"), 2, bits.mul),
    ("fma.rn{}.f16x2", ("", ".ftz", ".sat", ".ftz.sat", ".relu", ".ftz.relu", ".oob", ".oob.relu"), 3, bits.fma),
    ("add{}.bf16x2", ("",), 2, bits.add),
    ("sub{}.bf16x2", ("",), 2, bits.sub),
    ("mul{}.bf16x2", ("",), 2, bits.mul),
    ("fma.rn{}.bf16x2", ("", ".relu", ".oob.relu"), 3, bits.fma),
]


@pytest.mark.parametrize(("opcode", "modifiers", "count", "function"), ARITHMETIC)
def test_every_modifier(opcode: str, modifiers: tuple[str, ...], count: int, function: object) -> None:
    f = BF16 if "bf16" in opcode else F16
    operands = [words(40 + k, 1024) for k in range(count)]
    for modifier in modifiers:

        def one(*x: int, modifier: str = modifier) -> int:
            r = function(f, *x, ftz="ftz" in modifier)  # type: ignore[operator]
            r = bits.saturate(f, r) if "sat" in modifier else r
            return bits.relu(f, r) if "relu" in modifier else r

        line = f"{opcode.format(modifier)} %d, {', '.join(('%a', '%b', '%c')[:count])};"
        got = run_ptx(line, **dict(zip("abc", operands, strict=False)), d="b32")["d"]
        same(got, [by_half(one, *(int(x) for x in lane)) for lane in zip(*operands, strict=True)], *operands)


def test_fused_bf16_sums_round_once() -> None:
    """a * b is a tie of bf16 and c lies far below: rounding a wider sum to nearest first would lose it."""
    a = np.full(64, 0x3F81, np.uint32)  # 1 + 2^-7
    b = np.full(64, 0x3F82, np.uint32)  # 1 + 2^-6
    c = np.resize(np.array([0x0080, 0x8080, 0x0001, 0x8001], np.uint32), 64)
    got = run_ptx(
        "fma.rn.bf16 %d, %x, %y, %z;", x=a.astype(np.uint16), y=b.astype(np.uint16), z=c.astype(np.uint16), d="b16"
    )
    lanes = zip(a, b, c, strict=True)
    same(got["d"] & 0xFFFF, [bits.fma(BF16, *(int(x) for x in lane)) for lane in lanes], a, b, c)


@pytest.mark.parametrize("type", FORMATS)
@pytest.mark.parametrize("place", "xyz")
def test_the_fill_of_tensor_copies_is_no_factor(type: str, place: str) -> None:
    """fma.rn.oob, all patterns as one operand, the others 1: +0 for 0x7ff7 and 0xfff7 as a factor, as on an H200."""
    every, f = np.arange(65536, dtype=np.uint16), FORMATS[type]
    operands = {name: every if name == place else np.full(65536, f.one, np.uint16) for name in "xyz"}
    got = run_ptx(f"fma.rn.oob.{type} %d, %x, %y, %z;", **operands, d="b16")["d"] & 0xFFFF
    plain = run_ptx(f"fma.rn.{type} %d, %x, %y, %z;", **operands, d="b16")["d"] & 0xFFFF
    fills = [0x7FF7, 0xFFF7] if place != "z" else []
    assert np.flatnonzero(got != plain).tolist() == fills
    assert np.flatnonzero(got == 0).tolist() == sorted([*fills, f.one | 0x8000])


@pytest.mark.parametrize("type", FORMATS)
@pytest.mark.parametrize("op", ["min", "max"])
def test_min_max(op: str, type: str) -> None:
    a, b, f = words(46, 1024), words(47, 1024), FORMATS[type]
    for qualifiers in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
        got = run_ptx(f"{op}{qualifiers}.{type}x2 %d, %a, %b;", a=a, b=b, d="b32")["d"]

        def one(x: int, y: int, qualifiers: str = qualifiers) -> int:
            return bits.extremum(f, x, y, op == "max", "NaN" in qualifiers, "xorsign" in qualifiers)

        same(got, [by_half(one, int(x), int(y)) for x, y in zip(a, b, strict=True)], a, b)


def test_scalar_halves_use_the_low_half() -> None:
    a, b = words(48).astype(np.uint16), words(49).astype(np.uint16)
    got = run_ptx("mul.bf16 %d, %a, %b;", a=a, b=b, d="b16")["d"]
    same(got & 0xFFFF, [bits.mul(BF16, int(x), int(y)) for x, y in zip(a, b, strict=True)], a, b)
