"""Arguments in emulated memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import emu
from emu.memory_map import ALIGN, LaunchError, MemoryMap, Struct
from isa.program import GLOBAL_BASE
from programs.tensormap import TensorMap


def bound(ptx: Any, params: str, *args: Any) -> MemoryMap:
    memory = MemoryMap(ptx.assemble("", params).program)
    memory.bind(args)
    return memory


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        ("u8", 255, b"\xff"), ("s8", -1, b"\xff"), ("u16", 65535, b"\xff\xff"), ("s16", -2, b"\xfe\xff"), ("u32", 2**32 - 1, b"\xff" * 4),
        ("s32", -(2**31), b"\0\0\0\x80"), ("u64", 2**64 - 1, b"\xff" * 8), ("s64", -1, b"\xff" * 8), ("b32", 7, b"\7\0\0\0"), ("u32", -1, b"\xff" * 4),
        ("u64", -2, b"\xfe" + b"\xff" * 7), ("b64", -1, b"\xff" * 8), ("f32", 1, b"\0\0\x80\x3f"), ("f64", 0.5, b"\0" * 6 + b"\xe0\x3f"), ("u32", np.uint8(9), b"\x09\0\0\0"),
        ("f32", np.float16(2), b"\0\0\0\x40"), ("u32", True, b"\1\0\0\0"), ("s32", 7.0, b"\7\0\0\0"),
    ],
)  # fmt: skip
def test_scalars(ptx: Any, kind: str, value: Any, data: bytes) -> None:
    memory = bound(ptx, f"{kind} a", value)
    assert memory.params.tobytes()[: len(data)] == data


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("u8", 256),
        ("s8", 128),
        ("s8", -129),
        ("u32", 2**32),
        ("s32", 2**31),
        ("u64", 2**64),
        ("u32", -(2**32)),
        ("u32", "x"),
        ("u32", None),
        ("u32", 1.5),
        ("f32", "pi"),
        ("s64", 2**63),
    ],
)
def test_scalars_that_do_not_fit(ptx: Any, kind: str, value: Any) -> None:
    with pytest.raises(LaunchError, match=r"a is a \.|cannot be given"):
        bound(ptx, f"{kind} a", value)


def test_wrong_arguments(ptx: Any) -> None:
    array = np.zeros(4, np.float32)
    for params, args, words in [
        ("u64 a, u32 n", (array,), "takes 2 arguments"),
        ("u32 n", (array,), "an array needs 8"),
        ("u64 a", (TensorMap(array, (4,), 0),), "a tensor map has 128"),
        ("u64 a", (np.zeros((4, 4))[:, ::2],), "C-contiguous"),
        ("u64 a", (np.zeros(4, ">f4"),), "cannot read dtype >f4"),
        ("u64 a", (np.zeros(4, [("x", "f4")]),), "cannot read dtype"),
        ("u64 a", (np.array(["x"]),), "cannot read dtype <U1"),
        ("tensormap a", (3,), "cannot be given as int"),
    ]:
        with pytest.raises(LaunchError, match=words):
            bound(ptx, params, *args)


def test_arrays_lie_apart_and_the_same_array_lies_once(ptx: Any) -> None:
    a, b = np.zeros(100, np.uint8), np.zeros((3, 5), ml_dtypes.bfloat16)
    memory = bound(ptx, "u64 a, u64 b, u64 again, u64 part", a, b, a, a[50:])
    first, second, third, part = (int(x) for x in memory.params[:4])
    assert first % ALIGN == second % ALIGN == 0 and abs(second - first) >= 2 * ALIGN
    assert third == first and part == first + 50
    table, lines = memory.segments()
    assert len(table) == 4 and lines >= 100 // 128 + 2
    assert memory.describe(first + 7) == "a + 7 bytes" and "past the end of b" in memory.describe(second + 31)
    assert "before b" in memory.describe(second - 3) and memory.describe(12) == "no array is near"


def test_a_view_larger_than_the_first_argument(ptx: Any) -> None:
    """A part first, the whole second: both see the same memory."""
    whole = np.arange(64, dtype=np.uint32)
    body = "ld.global.u32 %r1, [%whole + 128]; add.u32 %r1, %r1, 1; st.global.u32 [%part], %r1; ld.global.u32 %r2, [%whole + 128]; st.global.u32 [%whole], %r2;"
    ptx.run(body, "u64 part, u64 whole", [whole[32:], whole], block=1)
    assert whole[32] == whole[0] == 33


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_arrays_that_overlap_have_one_address_a_byte(ptx: Any, order: tuple[int, int]) -> None:
    """Neither holds the other; what one stores the other loads, also out of the L1."""
    memory = np.arange(64, dtype=np.uint32)
    views = [memory[:40], memory[24:]]
    bound_ = bound(ptx, "u64 a, u64 b", *(views[k] for k in order))
    places = [int(bound_.params[order.index(k)]) for k in (0, 1)]
    assert places[1] - places[0] == 24 * 4 and len({id(v) for v in views}) == 2
    body = "ld.global.u32 %r1, [%b + 32]; add.u32 %r1, %r1, 1; st.global.u32 [%a + 128], %r1; ld.global.u32 %r2, [%b + 32]; st.global.u32 [%a], %r2;"
    ptx.run(body, "u64 a, u64 b", views, block=1)
    assert memory[32] == memory[0] == 33


def test_empty_and_foreign_arrays(ptx: Any) -> None:
    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.array, self.__array_interface__, self.ndim = array, array.__array_interface__, array.ndim

    array = np.zeros(4, np.uint32)
    result = ptx.run(
        "mov.u32 %r1, 5; st.global.u32 [%b + 4], %r1;", "u64 a, u64 b", [np.zeros(0, np.uint8), Foreign(array)], block=1
    )
    assert not result.findings and array.tolist() == [0, 5, 0, 0]
    result = ptx.run("ld.global.u8 %r1, [%a];", "u64 a", [np.zeros(0, np.uint8)], block=1)
    assert [f.rule for f in result.findings] == ["MEM103"]


def test_parameters_are_read_only(ptx: Any) -> None:
    result = ptx.run("mov.b64 %d1, n; cvta.param.u64 %d1, %d1; st.u32 [%d1], %r1;", "u32 n", [3], block=1)
    assert [f.rule for f in result.findings] == ["MEM105"]


STRUCT = ".param .align 8 .b8 s[32]"


def struct(arg: Any) -> MemoryMap:
    text = f".version 8.6 .target sm_90a .address_size 64 .visible .entry k({STRUCT}) {{ ret; }}"
    memory = MemoryMap(emu.load(text=text).program)
    memory.bind([arg])
    return memory


def test_structs_are_laid_out_as_in_c() -> None:
    """A byte, a pointer at 8, an int at 16, a double at 24; the pointer's array is mapped."""
    array = np.arange(4, dtype=np.int64)
    memory = struct(Struct(np.uint8(7), array, np.int32(-2), np.float64(0.5)))
    data = memory.params.tobytes()
    address = int.from_bytes(data[8:16], "little")
    assert data[:8] == b"\7" + bytes(7) and data[16:24] == b"\xfe\xff\xff\xff" + bytes(4)
    assert data[24:32] == np.float64(0.5).tobytes() and memory.describe(address + 8) == "s[1] + 8 bytes"
    assert struct(data).params.tobytes() == data


def test_structs_that_do_not_fit() -> None:
    for arg, words in [
        (Struct(np.int32(1)), "s has 32 bytes, the struct given 8"),
        (bytes(31), "the struct given 31"),
        (Struct(np.zeros(4, ">f4")), "cannot read dtype"),
        (Struct("x"), r"s\[0\]: a field is an array"),
    ]:
        with pytest.raises(LaunchError, match=words):
            struct(arg)


def test_addresses_of_parameters_and_variables_are_described(ptx: Any) -> None:
    result = ptx.run("mov.b64 %d1, n; cvta.param.u64 %d1, %d1; st.u32 [%d1], %r1;", "u32 m, u32 n", [3, 4], block=1)
    (finding,) = [f for f in result.findings if f.severity == "fault"]
    assert "in the parameter n" in finding.message and "may be written" in finding.message
    memory = MemoryMap(
        emu.load(text=".version 8.6 .target sm_90a .address_size 64 .const .u32 c[4]; .entry k() { ret; }").program
    )
    assert memory.describe(GLOBAL_BASE + 15) == "in the program's .const and .global variables"
    assert memory.describe(GLOBAL_BASE + 16) == "no array is near"


def test_addresses_with_the_highest_bit_are_shown_unsigned(ptx: Any) -> None:
    result = ptx.run("mov.u64 %d1, 0x8000000000000010; ld.global.u32 %r1, [%d1];", block=1)
    assert "at 0x8000000000000010 is outside every array" in result.findings[0].message
