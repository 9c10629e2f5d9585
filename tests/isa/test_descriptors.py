"""Descriptors of tcgen05.mma: worked values, fields, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.descriptors import (
    D_TYPES,
    ELEMENTS,
    KINDS,
    M_ATOM,
    M_NONE,
    M_RESERVED,
    M_SWIZZLE,
    M_VERSION,
    NO,
    P_A,
    P_B,
    P_D,
    P_M,
    P_N,
    P_NEGATE,
    P_RESERVED,
    P_SATURATE,
    P_SCALE_ID,
    P_SCALE_TYPE,
    P_SHIFT,
    P_SPARSE,
    P_TRANSPOSE,
    columns_of,
    d_type_of,
    instruction_descriptor,
    matrix_descriptor,
    matrix_problem,
    problem_of,
    rows_of,
    types_of,
)
from isa.ops.tcgen05_mma import mma_word

TYPES = {
    "f16": ("f16", "bf16"), "tf32": ("tf32",), "f8f6f4": ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1"), "i8": ("u8", "s8"),
    "mxf8f6f4": ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1"), "mxf4": ("e2m1",), "mxf4nvf4": ("e2m1",),
}  # fmt: skip
BLOCKS = {"mxf8f6f4": (1,), "mxf4": (2,), "mxf4nvf4": (2, 4)}


def test_worked_values():
    """Descriptors of a kernel of Triton 3.9: D f32, f16, K-major, 128 x 128; 128B swizzle, SBO 1024."""
    assert instruction_descriptor("f16", "f16", "f16", 128, 128) == 0x08200010
    assert matrix_descriptor(0, sbo=1024) >> 32 == 0x40004040


@st.composite
def descriptors(draw):
    kind = draw(st.sampled_from(KINDS))
    a, b = (draw(st.sampled_from(TYPES[kind])) for _ in range(2))
    scaled, flag = kind in BLOCKS, st.booleans()
    m = 128 if scaled else draw(st.sampled_from((64, 128)))
    n = 16 * draw(st.integers(1, 16)) if kind == "i8" else 8 * draw(st.integers(1, 32))
    d = (
        "s32"
        if kind == "i8"
        else "f32"
        if kind == "tf32" or scaled or "bf16" in (a, b)
        else draw(st.sampled_from(("f16", "f32")))
    )
    wide = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8")
    blocks = draw(st.sampled_from(BLOCKS.get(kind, (1,))))
    options = {
        "d": d, "negate_a": kind != "i8" and draw(flag), "negate_b": kind != "i8" and draw(flag),
        "transpose_a": a in wide and draw(flag), "transpose_b": b in wide and draw(flag), "saturate": kind == "i8" and draw(flag),
        "scale_type": draw(st.sampled_from(("ue8m0", "ue4m3"))) if blocks == 4 else "ue8m0",
        "scale_a": draw(st.sampled_from(range(0, 4, blocks))), "scale_b": draw(st.sampled_from(range(0, 4, blocks))),
    }  # fmt: skip
    return kind, a, b, m, n, blocks, options


@given(descriptors())
def test_fields_come_back(case):
    kind, a, b, m, n, blocks, options = case
    code, word = KINDS.index(kind), mma_word(kind, blocks=blocks)
    idesc = instruction_descriptor(kind, a, b, m, n, **options)
    assert idesc < 1 << 32 and problem_of(word, idesc) == 0
    assert (rows_of(code, idesc), columns_of(idesc)) == (m, n)
    packed = kind in ("mxf4", "mxf4nvf4")
    assert types_of(code, idesc) == tuple(ELEMENTS.index("packed" if packed else x) for x in (a, b))
    assert D_TYPES[d_type_of(code, idesc)] == options["d"]
    flags = [options[x] for x in ("negate_a", "negate_b", "transpose_a", "transpose_b")]
    assert [bool(idesc >> bit & 1) for bit in range(13, 17)] == flags
    if kind in BLOCKS:
        assert (idesc >> 29 & 3, idesc >> 4 & 3, idesc >> 23 & 1) == (
            options["scale_a"], options["scale_b"], options["scale_type"] == "ue8m0",
        )  # fmt: skip


GOOD = instruction_descriptor("f16", "f16", "f16", 128, 128)
I8 = instruction_descriptor("i8", "s8", "s8", 128, 128, d="s32")
F8 = instruction_descriptor("f8f6f4", "e2m1", "e4m3", 128, 128)
MX = instruction_descriptor("mxf4", "e2m1", "e2m1", 128, 128)
NV = instruction_descriptor("mxf4nvf4", "e2m1", "e2m1", 128, 128, scale_type="ue4m3")
WRONG = [
    ("f16", GOOD | 1 << 6, P_RESERVED), ("f16", GOOD | 1 << 23, P_RESERVED), ("f16", GOOD | 1 << 29, P_RESERVED),
    ("mxf4", MX | 1 << 31, P_RESERVED), ("f16", GOOD | 4, P_SPARSE), ("f16", GOOD | 1, P_SPARSE),
    ("f16", GOOD | 0x30, P_D), ("f16", GOOD & ~0x30 | 1 << 7, P_D), ("tf32", GOOD & ~0x30 | 2 << 7 | 2 << 10, P_D), ("i8", I8 & ~0x30, P_D),
    ("f16", GOOD | 2 << 7, P_A), ("f16", GOOD | 2 << 10, P_B), ("f8f6f4", F8 & ~(7 << 7) | 2 << 7, P_A), ("tf32", GOOD, P_A),
    ("f16", GOOD & ~(31 << 24) | 6 << 24, P_M), ("f16", GOOD & ~(31 << 24) | 2 << 24, P_M), ("mxf4", MX & ~(3 << 27), P_M),
    ("f16", GOOD & ~(63 << 17), P_N), ("f16", GOOD | 63 << 17, P_N), ("i8", I8 & ~(63 << 17) | 5 << 17, P_N),
    ("f8f6f4", F8 | 1 << 15, P_TRANSPOSE), ("mxf4", MX | 1 << 16, P_TRANSPOSE), ("i8", I8 | 1 << 13, P_NEGATE),
    ("f16", GOOD | 8, P_SATURATE), ("f16", GOOD | 1 << 30, P_SHIFT), ("mxf4", MX & ~(1 << 23), P_SCALE_TYPE),
    ("mxf4", MX | 1 << 29, P_SCALE_ID), ("mxf4", MX | 1 << 4, P_SCALE_ID), ("mxf4nvf4", NV | 2 << 29, P_SCALE_ID),
]  # fmt: skip


@pytest.mark.parametrize("kind, idesc, problem", WRONG)
def test_what_is_wrong_is_named(kind, idesc, problem):
    blocks = 4 if kind == "mxf4nvf4" else 2 if kind == "mxf4" else 1
    assert problem_of(mma_word(kind, blocks=blocks), idesc) == problem


@given(st.sampled_from(KINDS), st.integers(0, 2**32 - 1), st.booleans())
def test_any_word_is_judged(kind, idesc, ws):
    """What passes has types, rows and columns that exist."""
    code = KINDS.index(kind)
    if problem_of(mma_word(kind, ws=ws and kind not in BLOCKS), idesc) == 0:
        assert NO not in types_of(code, idesc)
        assert rows_of(code, idesc) in (32, 64, 128) and 8 <= columns_of(idesc) <= 256


def test_weight_stationary_shapes():
    word = mma_word("f16", ws=True)
    for m in (32, 64, 128):
        for n in range(8, 257, 8):
            assert (problem_of(word, instruction_descriptor("f16", "f16", "f16", m, n)) == 0) == (n in (64, 128, 256))


TF32 = ELEMENTS.index("tf32")
MATRICES = [
    (matrix_descriptor(0, sbo=1024), 0, 0, M_NONE), (1024 >> 4 << 32 | 1 << 62, 0, 0, M_VERSION),
    (matrix_descriptor(0) | 1 << 61, 0, 0, M_SWIZZLE), (matrix_descriptor(0) | 1 << 52, 0, 0, M_RESERVED),
    (matrix_descriptor(0) | 1 << 60, 0, 0, M_RESERVED), (matrix_descriptor(0, swizzle="128B with 32B atoms"), 0, 1, M_ATOM),
    (matrix_descriptor(0), TF32, 1, M_ATOM), (matrix_descriptor(0, swizzle="128B with 32B atoms"), TF32, 1, M_NONE),
    (matrix_descriptor(0), TF32, 0, M_NONE),
]  # fmt: skip


@pytest.mark.parametrize("desc, element, transpose, problem", MATRICES)
def test_matrix_problems(desc, element, transpose, problem):
    assert matrix_problem(desc, element, transpose) == problem


@pytest.mark.parametrize(
    "bad", [{"start": 8}, {"start": 1 << 18}, {"start": 0, "lbo": 24}, {"start": 0, "swizzle": "256B"}]
)
def test_descriptors_that_cannot_be(bad):
    with pytest.raises(ValueError):
        matrix_descriptor(**bad)
