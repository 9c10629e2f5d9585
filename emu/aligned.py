"""Arrays at cache-line boundaries, for memory that the core reaches by address."""

from __future__ import annotations

from typing import Any

import numpy as np


def aligned(count: int, dtype: Any, boundary: int = 128) -> np.ndarray:
    """A zeroed array that starts at a multiple of `boundary` bytes."""
    dtype = np.dtype(dtype)
    raw = np.zeros(count * dtype.itemsize + boundary, np.uint8)
    skip = -raw.ctypes.data % boundary
    return raw[skip : skip + count * dtype.itemsize].view(dtype)
