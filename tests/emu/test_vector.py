"""The vector builder: constants, halves, flags, and the speed-critical shape of the generated code."""

from __future__ import annotations

import numpy as np
import pytest
from llvmlite import ir

from emu.lanes import run_lanes
from emu.vector import LANES, LlvmVectors, splat_constant, vector_type
from tests.isa.ops.cases import longs, same, words


def builder() -> LlvmVectors:
    """A builder in an empty function."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)]), "f")
    return LlvmVectors(ir.IRBuilder(function.append_basic_block()))


def test_types() -> None:
    assert str(vector_type("u32")) == "<32 x i32>"
    assert str(vector_type("f16x2")) == "<64 x half>"
    assert str(vector_type("pred")) == "<32 x i1>"


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        ("u32", -1, "splat (i32 4294967295)"),
        ("u64", 7, "splat (i64 7)"),
        ("f32", 1.0, "splat (float 0x3ff0000000000000)"),
    ],
)
def test_constants_are_written_as_splats(type: str, value: float, text: str) -> None:
    assert splat_constant(vector_type(type), value).get_reference() == text


def test_unknown_operations_are_refused() -> None:
    v = builder()
    with pytest.raises(ValueError, match="no vector operation named cosine"):
        v.call("cosine", v.const(0.0, "f32"))


def test_pairs_interleave_halves() -> None:
    v = builder()
    low, high = v.const(1), v.const(2)
    assert str(v.pair(low, high).type) == "<32 x i64>"
    assert str(v.pair(v.const(1, "u16"), v.const(2, "u16")).type) == "<32 x i32>"
    assert [str(x.type) for x in v.halves(v.const(5, "u64"))] == ["<32 x i32>"] * 2


def test_permutation_is_over_lanes() -> None:
    v = builder()
    order = [LANES - 1 - k for k in range(LANES)]
    assert str(v.permute(v.const(3), order).type) == "<32 x i32>"


def test_flags_choose_for_all_lanes() -> None:
    a, b, c = words(1, 64), words(2, 64), words(5, 64)
    for k in range(8):  # one row of the truth table each
        expected = (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
        same(run_lanes("LOP3.LUT", a, b, c, 1 << k)[0], expected, a, b, c)


def test_64_bit_values_survive_the_window() -> None:
    a = longs(3, 64)
    (got,) = run_lanes("DFMA", a, np.full(64, 0x3FF0000000000000, np.uint64), np.full(64, 1 << 63, np.uint64))
    finite = np.isfinite(a.view(np.float64)) & (a != np.uint64(1 << 63))
    same(got[finite], a[finite])
