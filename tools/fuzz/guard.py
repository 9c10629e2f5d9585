"""Arrays between pages that nobody may touch: an access beyond one ends the process, which the fuzzer notices."""

from __future__ import annotations

import ctypes
import mmap
from types import SimpleNamespace
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
_C = ctypes.CDLL(None, use_errno=True)
_C.mmap.restype = ctypes.c_void_p
_C.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_C.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_C.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
NOTHING = 0  # PROT_NONE


class Guard:
    """Hands out arrays of zeros and gives them all back at once.

    An array ends at an untouchable page, up to the alignment that it needs, and another lies before its first page.
    """

    def __init__(self) -> None:
        self._maps: list[tuple[int, int]] = []
        self._copies: dict[int, np.ndarray] = {}

    def array(self, shape: Any, dtype: Any = np.float64, boundary: int = 16) -> np.ndarray:
        """An array of zeros whose start is a multiple of `boundary` bytes (a power of two, at most a page)."""
        kind = np.dtype(dtype)
        count = int(np.prod(shape))
        size = -(-max(count * kind.itemsize, 1) // boundary) * boundary
        pages = -(-size // PAGE) * PAGE
        base = _C.mmap(
            None, pages + 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
        )
        if base in (None, ctypes.c_void_p(-1).value):
            raise MemoryError
        for edge in (base, base + PAGE + pages):
            _C.mprotect(edge, PAGE, NOTHING)
        self._maps.append((base, pages + 2 * PAGE))
        raw = (ctypes.c_char * (count * kind.itemsize)).from_address(base + PAGE + pages - size)
        found: np.ndarray = np.frombuffer(raw, np.uint8).view(kind).reshape(shape)
        return found

    def copy(self, array: np.ndarray) -> np.ndarray:
        """The same contents between guards, one copy for each array; arrays that may not be written stay so."""
        if id(array) not in self._copies:
            found = self.array(array.shape, array.dtype)
            found[...] = array
            found.flags.writeable = array.flags.writeable
            self._copies[id(array)] = found
        return self._copies[id(array)]

    def release(self) -> None:
        """Unmap everything; no array handed out may be used any more."""
        for base, size in self._maps:
            _C.munmap(base, size)
        self._maps.clear()

    def aligned(self, count: int, dtype: Any, boundary: int = 128) -> np.ndarray:
        """In place of `emu.aligned.aligned`."""
        return self.array(count, dtype, boundary)

    def numpy(self) -> Any:
        """NumPy with `zeros`, `empty` and `full` between guards."""

        def full(shape: Any, value: Any, dtype: Any = None) -> np.ndarray:
            found = self.array(shape, np.asarray(value).dtype if dtype is None else dtype)
            found[...] = value
            return found

        own = {"zeros": self.array, "empty": self.array, "full": full}
        return SimpleNamespace(**{name: getattr(np, name) for name in np.__all__} | own)
