"""Kernel arguments in emulated memory: arrays as segments, the parameter block, tensor maps.

Arrays are used where they lie; a program sees them at emulated addresses, each in its own aligned range
with a gap behind it, so that running past an array is a fault and not a neighbour's data.
"""

from __future__ import annotations

import ctypes
import os
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from emu.chip_state import SEGMENT
from isa.program import CLUSTER_WORD, GLOBAL_BASE, PARAM_BASE, ArgSlot, Program
from programs.tensormap import TensorMap, encode

ARRAY_BASE = 0x0000_0200_0000_0000
ALIGN = 1 << 16  # arrays start at multiples of this, with at least this much unmapped behind them
LINE = 128
TYPES: dict[str, Any] = {
    "u8": np.uint8, "s8": np.int8, "b8": np.uint8, "u16": np.uint16, "s16": np.int16, "b16": np.uint16,
    "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u64": np.uint64, "s64": np.int64, "b64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


class LaunchError(ValueError):
    """The launch does not fit the kernel: argument count or type, block size, shared memory."""

    exit_code = 2


@dataclass(frozen=True)
class Struct:
    """A struct passed by value: its fields at their natural alignments, as C lays them out.

    A field is an array (its address), a NumPy scalar, a TensorMap, or bytes as they are.  At the end the
    struct is padded to the parameter's alignment.
    """

    fields: tuple[Any, ...]

    def __init__(self, *fields: Any) -> None:
        object.__setattr__(self, "fields", fields)


def must_fit(size: int, what: str = "") -> None:
    """LaunchError when this computer has not `size` bytes of memory (for `what`)."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > memory:
        wanted = f"{size / 1e9:,.1f} GB{' for ' if what else ''}{what}"
        raise LaunchError(f"{wanted} do not fit in this computer's {memory / 1e9:,.1f} GB of memory")


class MemoryMap:
    """Segments of one launch.  Keeps the arrays alive that the core writes to."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.arrays: dict[str, np.ndarray] = {}
        self.params = np.zeros(-(-max(program.param_bytes, 1) // 8), np.uint64)
        self.image = np.frombuffer(bytearray(program.global_image or b"\0"), np.uint8)
        self._keep: list[np.ndarray] = []
        self._ranges: list[tuple[int, int, int, bool]] = []  # base, size, host, writable
        self._next = ARRAY_BASE
        self._add(PARAM_BASE, self.params.nbytes, self.params.ctypes.data, False)
        self._add(GLOBAL_BASE, self.image.nbytes, self.image.ctypes.data, True)

    def bind(self, args: Sequence[Any]) -> None:
        """Put the arguments in the parameter block; LaunchError names the one that does not fit."""
        slots = self.program.args
        if len(args) != len(slots):
            names = ", ".join(slot.name for slot in slots)
            raise LaunchError(f"{self.program.name} takes {len(slots)} arguments ({names}), not {len(args)}")
        self._join([array for arg in args for array in _arrays_of(arg)])
        block = self.params.view(np.uint8)
        for slot, arg in zip(slots, args, strict=True):
            data = self._bytes(slot, arg)
            block[slot.offset : slot.offset + len(data)] = np.frombuffer(data, np.uint8)

    def _join(self, arrays: Sequence[np.ndarray]) -> None:
        """Give arrays that overlap one segment: a byte of memory has one address, by which the L1 finds it."""
        groups: list[list[np.ndarray]] = []
        end = 0
        for array in sorted(arrays, key=lambda a: a.ctypes.data):
            start = array.ctypes.data
            if groups and start < end:
                groups[-1].append(array)
            else:
                groups.append([array])
            end = max(end, start + array.nbytes)
        for group in groups:
            if len(group) > 1:
                start = group[0].ctypes.data
                size = max(a.ctypes.data + a.nbytes for a in group) - start
                self._segment(start, size, any(a.flags.writeable for a in group))

    def _bytes(self, slot: ArgSlot, arg: Any) -> bytes:
        if isinstance(arg, Struct | bytes | bytearray):
            return self._struct(slot, arg)
        if isinstance(arg, TensorMap):
            if slot.size != 128:
                raise LaunchError(f"{slot.name} has {slot.size} bytes, a tensor map has 128")
            return encode(arg, self._array(slot.name, arg.array))
        if hasattr(arg, "__array_interface__") and getattr(arg, "ndim", None) or hasattr(arg, "__dlpack__"):
            if slot.size != 8:
                raise LaunchError(f"{slot.name} is a .{slot.type} of {slot.size} bytes, an array needs 8")
            array = arg if isinstance(arg, np.ndarray) else _as_array(arg)
            return self._array(slot.name, array).to_bytes(8, "little")
        kind = np.dtype(TYPES.get(slot.type, np.void))
        if slot.size != kind.itemsize:
            raise LaunchError(f"{slot.name} of {slot.size} bytes cannot be given as {type(arg).__name__}")
        try:
            return _integer(kind, arg) if kind.kind in "iu" else np.array(float(arg)).astype(kind).tobytes()
        except (TypeError, ValueError, OverflowError):
            advice = f"; pass an array, as np.asarray({slot.name}, np.float32)" if isinstance(arg, list | tuple) else ""
            raise LaunchError(f"{slot.name} is a .{slot.type}, {reprlib.repr(arg)} does not fit{advice}") from None

    def _struct(self, slot: ArgSlot, arg: Struct | bytes | bytearray) -> bytes:
        """A by-value struct, or the bytes of one; LaunchError when it has not the parameter's size."""
        data = bytearray()
        for k, item in enumerate(arg.fields if isinstance(arg, Struct) else (bytes(arg),)):
            field, align = self._field(f"{slot.name}[{k}]", item)
            data += bytes(-len(data) % align) + field
        if isinstance(arg, Struct):
            data += bytes(-len(data) % slot.align)
        if len(data) != slot.size:
            raise LaunchError(f"{slot.name} has {slot.size} bytes, the struct given {len(data)}")
        return bytes(data)

    def _field(self, name: str, item: Any) -> tuple[bytes, int]:
        """Bytes and alignment of a field."""
        if isinstance(item, bytes):
            return item, 1
        if isinstance(item, TensorMap):
            return encode(item, self._array(name, item.array)), 64
        if isinstance(item, np.generic):
            return item.tobytes(), item.itemsize
        if isinstance(item, np.ndarray):
            return self._array(name, item).to_bytes(8, "little"), 8
        raise LaunchError(
            f"{name}: a field is an array, a NumPy scalar, a TensorMap or bytes, not {type(item).__name__}"
        )

    def _array(self, name: str, array: np.ndarray) -> int:
        """The emulated address of an array; the same memory keeps the same address."""
        if not array.flags.c_contiguous:
            raise LaunchError(f"{name}: the array must be C-contiguous")
        if not _plain(array.dtype):
            raise LaunchError(
                f"{name}: the device cannot read dtype {array.dtype}; give numbers in little-endian order"
            )
        self.arrays.setdefault(name, array)
        host = array.ctypes.data
        for base, size, start, _ in self._ranges:
            if start <= host and host + array.nbytes <= start + size:
                self._keep.append(array)
                return base + host - start
        self._keep.append(array)
        return self._segment(host, array.nbytes, bool(array.flags.writeable))

    def _segment(self, host: int, size: int, writable: bool) -> int:
        """Emulated addresses for so many bytes of the host's memory; the first of them."""
        base = self._next
        self._next += -(-max(size, 1) // ALIGN) * ALIGN + ALIGN
        self._add(base, size, host, writable)
        return base

    def _add(self, base: int, size: int, host: int, writable: bool) -> None:
        self._ranges.append((base, size, host, writable))

    def segments(self) -> tuple[np.ndarray, int]:
        """The SEGMENT table and the lines of all segments."""
        table = np.zeros(len(self._ranges), SEGMENT)
        lines = 0
        for k, (base, size, host, writable) in enumerate(self._ranges):
            table[k] = (base, size, host, writable, lines)
            lines += size // LINE + 2
        return table, lines

    def bytes_at(self, address: int, most: int) -> bytes | None:
        """Up to `most` bytes from an address on, as far as its array goes; None when there is none."""
        for base, size, host, _ in self._ranges:
            if base <= address < base + size:
                return ctypes.string_at(host + address - base, min(most, base + size - address))
        return None

    def writable(self) -> list[np.ndarray]:
        """The bytes of every segment that a program may write."""
        ranges = [(host, size) for _, size, host, writable in self._ranges if writable and size]
        return [np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(host)) for host, size in ranges]

    def describe(self, address: int) -> str:
        """Where an address lies: inside or next to which array."""
        for name, array in self.arrays.items():
            base = self._array(name, array)
            if base <= address < base + array.nbytes:
                return f"{name} + {address - base:,} bytes"
            if base - ALIGN < address < base + array.nbytes + ALIGN:
                gap = address - base
                return f"{gap - array.nbytes:,} bytes past the end of {name}" if gap > 0 else f"{-gap:,} before {name}"
        for slot in self.program.args:
            if 0 <= address - PARAM_BASE - slot.offset < slot.size:
                return f"in the parameter {slot.name}"
        if 0 <= address - GLOBAL_BASE < self.image.nbytes:
            return "in the program's .const and .global variables"
        return "no array is near"

    def constants(self) -> np.ndarray:
        """The constant rows of every warp: immediates and parameter words, 32 equal lanes each."""
        words = self.program.const_bits.copy()
        block = self.params.view(np.uint32)
        mirrored = (self.program.const_param >= 0) & (self.program.const_param != CLUSTER_WORD)
        words[mirrored] = block[self.program.const_param[mirrored] // 4]
        return np.repeat(words, 32).astype(np.uint32)


def _integer(kind: np.dtype[Any], arg: Any) -> bytes:
    """A whole number in two's complement; unsigned types take negative ones down to those of their width."""
    value, bits = int(arg), 8 * kind.itemsize
    if value != arg or not -(1 << bits - 1) <= value < 1 << bits - (kind.kind == "i"):
        raise OverflowError
    return (value & (1 << bits) - 1).to_bytes(kind.itemsize, "little")


def _plain(kind: np.dtype[Any]) -> bool:
    """Whether elements are numbers as the device stores them (ml_dtypes' types are of kind V, but not void)."""
    return kind.isnative and (kind.kind in "biufc" or kind.kind == "V" and kind.type is not np.void)


def _as_array(arg: Any) -> np.ndarray:
    """Anything with DLPack or the array interface, without a copy."""
    return np.from_dlpack(arg) if hasattr(arg, "__dlpack__") else np.asarray(arg)


def _arrays_of(arg: Any) -> Iterator[np.ndarray]:
    """The contiguous arrays of an argument, those of its fields included; empty ones share no memory."""
    if isinstance(arg, Struct):
        for item in arg.fields:
            yield from _arrays_of(item)
    elif isinstance(arg, TensorMap):
        yield from _arrays_of(arg.array)
    elif hasattr(arg, "__array_interface__") and getattr(arg, "ndim", None) or hasattr(arg, "__dlpack__"):
        array = arg if isinstance(arg, np.ndarray) else _as_array(arg)
        if array.nbytes and array.flags.c_contiguous:
            yield array
