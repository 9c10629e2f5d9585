"""Tensor maps: layout of the 128 bytes, round trip, limits."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from programs.tensormap import BYTES, TensorMap, decode, encode

DTYPES = [np.uint8, np.int32, np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]


@st.composite
def maps(draw: st.DrawFn) -> TensorMap:
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rank = draw(st.integers(1, 4))
    unit = 16 // dtype.itemsize
    shape = [draw(st.integers(1, 3)) for _ in range(rank - 1)] + [unit * draw(st.integers(1, 4))]
    swizzle = draw(st.sampled_from([0, 32, 64, 128]))
    width = unit if swizzle == 0 else swizzle // dtype.itemsize
    axes = draw(st.permutations(range(rank - 1)))
    return TensorMap(
        np.zeros(shape, dtype),
        (width, *(draw(st.integers(1, 256)) for _ in range(rank - 1))),
        swizzle,
        (rank - 1, *axes),
        tuple(draw(st.integers(1, 8)) for _ in range(rank)) if draw(st.booleans()) else (),
        fill=draw(st.sampled_from(["zeros", "nan"])),
    )


@given(maps(), st.integers(0, 2**40))
def test_round_trip(tensor_map: TensorMap, address: int) -> None:
    data = encode(tensor_map, address)
    fields = decode(data)
    assert len(data) == BYTES
    assert fields.address == address
    assert fields.element_code == tensor_map.element_code
    assert fields.dims == tensor_map.dims
    assert fields.strides == tensor_map.strides
    assert fields.box == tensor_map.box
    assert fields.element_strides == (tensor_map.element_strides or (1,) * len(tensor_map.dims))
    assert {0: 0, 1: 32, 2: 64, 3: 128}[fields.swizzle] == tensor_map.swizzle
    assert (fields.interleave, fields.atom) == (0, 0)
    assert fields.fill == (tensor_map.fill == "nan")


def test_zero_bytes_are_the_defaults() -> None:
    fields = decode(bytes(BYTES))
    assert (fields.interleave, fields.swizzle, fields.atom, fields.fill) == (0, 0, 0, 0)
    assert fields.element_strides == (1,)


def test_field_places() -> None:
    """The offsets that the module's table promises."""
    array = np.zeros((3, 5, 7, 64), np.float16)
    data = np.frombuffer(encode(TensorMap(array, (64, 2, 1, 1), 128, (3, 1, 2, 0)), 0x1122334455667788), np.uint8)
    assert data[:8].view("<u8")[0] == 0x1122334455667788
    assert list(data[8:14]) == [3, 6, 0, 3, 0, 0]
    assert list(data[16:36].view("<u4")) == [64, 5, 7, 3, 0]
    assert list(data[36:56].view("<u4")) == [64, 2, 1, 1, 0]
    assert list(data[56:76].view("<u4")) == [1, 1, 1, 1, 0]
    assert list(data[80:112].view("<u8")) == [7 * 128, 128, 35 * 128, 0]
    assert not data[112:].any()


HALVES = np.zeros((8, 64), np.float16)


@pytest.mark.parametrize(
    ("array", "box", "swizzle", "axes", "message"),
    [
        (np.zeros((8, 64), np.complex64), (64, 8), 128, (), "have no code"),
        (HALVES, (64,), 128, (), "box has 1"),
        (HALVES, (64, 257), 128, (), "1 to 256"),
        (HALVES, (64, 0), 128, (), "1 to 256"),
        (HALVES[:, ::2], (8, 8), 128, (), "contiguous"),
        (HALVES, (8, 8), 128, (0, 1), "last axis"),
        (HALVES, (8, 8), 128, (1, 1), "permutation"),
        (HALVES, (64, 8), 96, (), "swizzle must be"),
        (HALVES, (64, 8), 64, (), "more than the swizzle"),
        (HALVES, (4, 8), 0, (), "multiples of 16 bytes"),
        (np.zeros((8, 12), np.float16), (8, 8), 0, (), "strides must be"),
        (np.zeros((0, 64), np.float16), (64, 8), 128, (), "array sizes"),
    ],
)
def test_limits(array: np.ndarray, box: tuple[int, ...], swizzle: int, axes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TensorMap(array, box, swizzle, axes)
