"""Boxes of tensor maps: what the 128 bytes say, and moving a box between global and shared memory.

Geometry, swizzles and out-of-bounds rules: PTX ISA 5.5.3 and 5.5.7, and what an H200 was seen to do with
boxes narrower than the swizzle.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.raw import chunk16, copy, ld8, ld32, ld64, st8
from emu.state import JOBS
from emu.units.atomic_values import SIZES, combined, load, store
from emu.units.common import (
    F_GLOBAL_RANGE,
    F_READ_ONLY,
    F_TMAP,
    fault,
    jobs_of,
    segment_host,
    tmaps_of,
)
from emu.units.memory import touch

ELEMENT_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4)  # by PTX element code (ISA 9.7.9.28)


@compiled
def decode(S: Any, W: Any, lane: int, address: int, T: Any) -> bool:
    """Decode the 128 bytes of a tensor map (layout: programs.tensormap); False after a fault."""
    host = segment_host(S, address, 128, 0)
    if host <= 0 or address & 63:
        fault(S, W, F_TMAP, lane, address, 0)
        return False
    code = ld8(host + 9)
    if code >= len(ELEMENT_BYTES) or ld8(host + 10) or ld8(host + 11) > 3 or ld8(host + 12) or ld8(host + 8) > 4:
        fault(S, W, F_TMAP, lane, address, code)
        return False
    T.base = ld64(host)
    T.rank = ld8(host + 8) + 1
    T.elem = ELEMENT_BYTES[code]
    T.etype = code
    swizzle = ld8(host + 11)
    T.swizzle = 0 if swizzle == 0 else 16 << swizzle
    T.fill_nan = ld8(host + 13)
    T.strides[0] = T.elem
    for d in range(5):
        used = d < T.rank
        T.dims[d] = ld32(host + 16 + 4 * d) if used else 1
        T.box[d] = ld32(host + 36 + 4 * d) if used else 1
        T.estride[d] = max(ld32(host + 56 + 4 * d), 1) if used and d else 1  # dimension 0: ignored (driver API)
        if d:
            T.strides[d] = ld64(host + 80 + 8 * (d - 1)) if used else 0
        if used and (T.box[0] * T.elem % 16 or T.base & 15 or T.box[d] < 1 or T.box[d] > 256 or T.dims[d] < 1):
            fault(S, W, F_TMAP, lane, address, d)
            return False
    return True


@njit(inline="always")
def pitch_of(T: Any) -> int:
    """Bytes between rows in shared memory: a box narrower than the swizzle keeps its width (H200)."""
    return max(T.box[0] * T.elem, T.swizzle)


@njit(inline="always")
def outer_rows(T: Any) -> int:
    """Inner rows of a box."""
    rows = 1
    for d in range(1, T.rank):
        rows *= (T.box[d] + T.estride[d] - 1) // T.estride[d]
    return rows


@njit(inline="always")
def swizzled(address: int, swizzle: int) -> int:
    """XOR the 16-byte chunk number with the line number inside the pattern (ptx: 32B, 64B, 128B modes)."""
    if swizzle == 0:
        return address
    mask = (swizzle >> 4) - 1
    return address ^ (((address >> 7) & mask) << 4)


# ---- movement --------------------------------------------------------------------------------


@compiled
def source_row(j: Any, T: Any, row: int) -> tuple[int, bool]:
    """Global address of an inner row's first element, and whether the row lies inside dimensions 1 and up."""
    address = T.base + j.coords[0] * T.elem
    inside = True
    rest = row
    for d in range(1, T.rank):
        c = j.coords[d]
        if rest:
            n = (T.box[d] + T.estride[d] - 1) // T.estride[d]
            c += (rest % n) * T.estride[d]
            rest //= n
        inside = inside and c >= 0 and c < T.dims[d]
        address += c * T.strides[d]
    return address, inside


@compiled
def inner_range(j: Any, T: Any) -> tuple[int, int]:
    """Which elements (first, count) of every inner row lie inside dimension 0."""
    first = max(-j.coords[0], 0)
    last = min(T.dims[0] - j.coords[0], T.box[0])
    return first, max(last - first, 0)


@compiled
def next_row(j: Any, T: Any, row: int, address: int, inside: bool) -> tuple[int, bool]:
    """`source_row` of the row behind `row`: a step in dimension 1 while that lasts."""
    n = (T.box[1] + T.estride[1] - 1) // T.estride[1] if T.estride[1] > 1 else T.box[1]
    k = row % n if row >= n else row
    if k + 1 == n or not inside:
        return source_row(j, T, row + 1)
    c = j.coords[1] + (k + 1) * T.estride[1]
    return address + T.estride[1] * T.strides[1], c < T.dims[1]


@compiled
def read_box(S: Any, W: Any, k: int) -> None:
    """Copy a box from global to shared memory with swizzle and out-of-bounds fill."""
    j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
    row_bytes, pitch = T.box[0] * T.elem, pitch_of(T)
    base, window = j.smem - W.smem_base, S.smem_at + W.smem_base
    first, count = inner_range(j, T)
    low, high = first * T.elem, (first + count) * T.elem
    address, inside = source_row(j, T, 0)
    rows = outer_rows(T)
    for row in range(rows):
        host = 0
        if inside and count > 0:
            start = address + first * T.elem
            host = segment_host(S, start, count * T.elem, 0)
            if host <= 0:
                fault(S, W, F_GLOBAL_RANGE, j.lane, start, count * T.elem)
                return
        if host and low == 0 and high == row_bytes:
            copy_row(window, base + row * pitch, host, row_bytes, T.swizzle)
        else:
            partial_row(T, window, base + row * pitch, host, row_bytes, low, high if host else low)
        if row + 1 < rows:
            address, inside = next_row(j, T, row, address, inside)
    touch(S, window + base, rows * pitch)


@compiled
def copy_row(window: int, at_row: int, host: int, row_bytes: int, swizzle: int) -> None:
    """Copy a whole inner row, 16 bytes at a time."""
    for at in range(0, row_bytes, 16):
        chunk16(window + swizzled(at_row + at, swizzle), host + at)


@compiled
def partial_row(T: Any, window: int, at_row: int, host: int, row_bytes: int, low: int, high: int) -> None:
    """Write an inner row of which only bytes [low, high) come from the tensor."""
    for at in range(0, row_bytes, 16):
        target = window + swizzled(at_row + at, T.swizzle)
        if host and at >= low and at + 16 <= high:
            chunk16(target, host + at - low)
        else:
            partial_chunk(T, target, host, at, low, high)


@compiled
def partial_chunk(T: Any, target: int, host: int, at: int, low: int, high: int) -> None:
    """Write 16 bytes of a row of which only [low, high) comes from the tensor."""
    for b in range(16):
        x = at + b
        if x >= low and x < high:
            st8(target + b, ld8(host + x - low))
        else:
            st8(target + b, fill_byte(T, x % T.elem))


@njit(inline="always")
def fill_byte(T: Any, b: int) -> int:
    """A byte of the out-of-bounds value: zero, or the all-ones NaN with a clear sign bit."""
    if not T.fill_nan:
        return 0
    return 0x7F if b == T.elem - 1 else 0xFF


@compiled
def stage_box(S: Any, W: Any, k: int) -> None:
    """Read a store's source out of shared memory (end of its read window)."""
    j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
    row_bytes, pitch = T.box[0] * T.elem, pitch_of(T)
    window, base = S.smem_at + W.smem_base, j.smem - W.smem_base
    for row in range(outer_rows(T)):
        for at in range(0, row_bytes, 16):
            source = window + swizzled(base + row * pitch + at, T.swizzle)
            chunk16(j.staging_at + row * row_bytes + at, source)


@compiled
def write_box(S: Any, W: Any, k: int) -> None:
    """Write a staged box to global memory; elements outside the tensor are dropped."""
    j, T = jobs_of(S.job_at, JOBS)[k], tmaps_of(S.tmap_at, JOBS)[k]
    row_bytes = T.box[0] * T.elem
    first, count = inner_range(j, T)
    for row in range(outer_rows(T)):
        address, inside = source_row(j, T, row)
        if not inside or count <= 0:
            continue
        start = address + first * T.elem
        host = segment_host(S, start, count * T.elem, 1)
        if host <= 0:
            fault(S, W, F_READ_ONLY if host < 0 else F_GLOBAL_RANGE, j.lane, start, count * T.elem)
            return
        staged = j.staging_at + row * row_bytes + first * T.elem
        if j.code:
            combine(host, staged, count * T.elem, j.code, 1)
        else:
            copy(host, staged, count * T.elem)


@compiled
def combine(host: int, staged: int, size: int, code: int, ftz: int) -> None:
    """Apply an atomic operation (a job's `code`) to every element of a range."""
    op, kind = (code & 255) - 1, code >> 8
    width = SIZES[kind]
    for at in range(0, size, width):
        store(host + at, width, combined(op, kind, load(host + at, width), load(staged + at, width), 0, ftz))


@compiled
def deliver(S: Any, k: int) -> None:
    """Write what st.async or red.async brought to shared memory."""
    j = jobs_of(S.job_at, JOBS)[k]
    host = S.smem_at + j.smem
    if j.code:
        combine(host, j.staging_at, j.bytes, j.code, 0)
    else:
        copy(host, j.staging_at, j.bytes)
    touch(S, host, j.bytes)
