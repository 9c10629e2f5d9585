"""Tensor maps: what a TMA unit needs to know about an array, and their 128-byte form.

The form is private, as the hardware's is: programs pass it on and never look inside.  All-zero
bytes mean the defaults, so that `tensormap.replace` can be an edit of single fields
(PTX ISA 9.7.9.28, whose codes are used here).  Little-endian:

====== ========= ====================================================================
offset type      field
====== ========= ====================================================================
0      u64       global address
8      u8        rank - 1
9      u8        element type (`ELEMENTS`)
10     u8        interleave: 0 none, 1 16B, 2 32B
11     u8        swizzle: 0 none, 1 32B, 2 64B, 3 128B
12     u8        swizzle atom: 0 16B, 1 32B, 2 32B with 8B flip, 3 64B
13     u8        out-of-bounds fill: 0 zeros, 1 NaN
14..15           zero
16     u32 x 5   sizes in elements, innermost first
36     u32 x 5   box sizes in elements
56     u32 x 5   element strides (0 counts as 1)
76..79           zero
80     u64 x 4   byte strides of dimensions 1..4 (dimension 0 is contiguous)
112..127         zero
====== ========= ====================================================================
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BYTES = 128
LAYOUT = struct.Struct("<Q6B2x5I5I5I4x4Q16x")

# NumPy's name of an element type -> PTX's name and code.  8-bit floats travel as bytes.
ELEMENTS = {
    "uint8": ("u8", 0),
    "float8_e4m3fn": ("u8", 0),
    "float8_e5m2": ("u8", 0),
    "uint16": ("u16", 1),
    "uint32": ("u32", 2),
    "int32": ("s32", 3),
    "uint64": ("u64", 4),
    "int64": ("s64", 5),
    "float16": ("f16", 6),
    "float32": ("f32", 7),
    "float64": ("f64", 9),
    "bfloat16": ("bf16", 10),
}
SWIZZLE_CODES = {0: 0, 32: 1, 64: 2, 128: 3}
INTERLEAVE_CODES = {"none": 0, "16B": 1, "32B": 2}
FILL_CODES = {"zeros": 0, "nan": 1}


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A tiled map over a C-contiguous `array`.

    Dimension i of the map is axis `axes[i]` of the array; without `axes` the last axis comes first
    (maps count from the innermost dimension).  `box` counts elements, in the map's order; `swizzle` is
    0, 32, 64 or 128 bytes.  The limits are those of `cuTensorMapEncodeTiled` (CUDA driver API);
    ValueError says which one is broken.
    """

    array: NDArray[Any]
    box: tuple[int, ...]
    swizzle: int = 128
    axes: tuple[int, ...] = ()
    element_strides: tuple[int, ...] = ()
    interleave: str = "none"
    fill: str = "zeros"

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise ValueError(f"tensor map: {problem}")

    @property
    def dims(self) -> tuple[int, ...]:
        """Sizes in elements, innermost first."""
        return tuple(self.array.shape[axis] for axis in self._order)

    @property
    def strides(self) -> tuple[int, ...]:
        """Byte strides of all dimensions but the innermost."""
        return tuple(self.array.strides[axis] for axis in self._order[1:])

    @property
    def dtype(self) -> str:
        """The element type as PTX names it: f16, bf16, f32, ..."""
        return ELEMENTS[self.array.dtype.name][0]

    @property
    def _order(self) -> tuple[int, ...]:
        return self.axes or tuple(range(self.array.ndim))[::-1]

    @property
    def element_code(self) -> int:
        """The element type as `tensormap.replace` numbers it."""
        return ELEMENTS[self.array.dtype.name][1]

    @property
    def box_bytes(self) -> int:
        """Bytes that one load signals: the whole box, whatever of it is out of bounds."""
        return int(np.prod(self.box)) * self.array.itemsize

    def _problem(self) -> str:
        rank, size = self.array.ndim, self.array.itemsize
        if self.array.dtype.name not in ELEMENTS:
            return f"elements of type {self.array.dtype} have no code"
        if not 1 <= rank <= 5:
            return f"the array has {rank} dimensions, 1 to 5 are possible"
        if sorted(self._order) != list(range(rank)):
            return f"axes must be a permutation of the array's {rank} axes, not {self.axes}"
        if len(self.box) != rank:
            return f"the box has {len(self.box)} dimensions, the array {rank}"
        if not all(1 <= n <= 256 for n in self.box):
            return f"box sizes must be 1 to 256, not {self.box}"
        if not all(1 <= n < 2**32 for n in self.dims):
            return f"array sizes must be 1 to 2^32 - 1, not {self.dims}"
        if not self.array.flags.c_contiguous or self._order[0] != rank - 1:
            return "the array must be C-contiguous and its last axis the innermost dimension"
        if not all(s % 16 == 0 and 0 <= s < 2**40 for s in self.strides):
            return f"strides must be multiples of 16 bytes below 2^40, not {self.strides}"
        if self.swizzle not in SWIZZLE_CODES:
            return f"swizzle must be 0, 32, 64 or 128, not {self.swizzle}"
        if self.interleave not in INTERLEAVE_CODES or self.fill not in FILL_CODES:
            return f"interleave {self.interleave} or fill {self.fill} is unknown"
        if self.interleave == "none" and self.box[0] * size % 16:
            return f"the box's rows must be multiples of 16 bytes, not {self.box[0] * size}"
        if self.swizzle and self.interleave == "none" and self.box[0] * size > self.swizzle:
            return f"the box's rows have {self.box[0] * size} bytes, more than the swizzle's {self.swizzle}; swizzle=0 sets no limit"
        if self.element_strides and not (
            len(self.element_strides) == rank and all(1 <= n <= 8 for n in self.element_strides)
        ):
            return f"there must be {rank} element strides of 1 to 8, not {self.element_strides}"
        return ""


def _fields(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    return values + (0,) * (count - len(values))


def encode(map: TensorMap, address: int) -> bytes:
    """The 128 bytes of `map` for an array whose first element lies at `address` in global memory."""
    rank = len(map.dims)
    return LAYOUT.pack(
        address,
        rank - 1,
        map.element_code,
        INTERLEAVE_CODES[map.interleave],
        SWIZZLE_CODES[map.swizzle],
        0,
        FILL_CODES[map.fill],
        *_fields(map.dims, 5),
        *_fields(map.box, 5),
        *_fields(map.element_strides or (1,) * rank, 5),
        *_fields(map.strides, 4),
    )


@dataclass(frozen=True)
class Fields:
    """A decoded map; tuples have `rank` members (`strides` one less)."""

    address: int
    element_code: int
    interleave: int
    swizzle: int
    atom: int
    fill: int
    dims: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    strides: tuple[int, ...]


def decode(data: bytes) -> Fields:
    """The fields of 128 encoded bytes (the inverse of `encode`)."""
    values = LAYOUT.unpack(data)
    rank = values[1] + 1
    dims, box, steps, strides = values[7:12], values[12:17], values[17:22], values[22:26]
    return Fields(
        address=values[0],
        element_code=values[2],
        interleave=values[3],
        swizzle=values[4],
        atom=values[5],
        fill=values[6],
        dims=dims[:rank],
        box=box[:rank],
        element_strides=tuple(max(step, 1) for step in steps[:rank]),
        strides=strides[: rank - 1],
    )
