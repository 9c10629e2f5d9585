"""Loads, stores and matrices in shared memory, with its banks and ports; elements in registers.

Values move at issue; the result's ready time carries the latency.  Shared memory (rules 5 and 11 of
the H200 measurements): one 128-byte wavefront per cycle through the first port, which wgmma operand
reads share; stores also need the second port, which bulk-copy fills use; results return through a
port of one register row per cycle, slower while the tensor core runs (rule 4).
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.compiled import compiled
from emu.raw import chunk16, copy, ld8, ld16, ld32, ld64, st8, st16, st32, st64, transpose8
from emu.units.common import (
    DEFAULT,
    F_SHARED_ALIGN,
    F_SHARED_RANGE,
    fault,
    get32,
    signed32,
    together,
)
from emu.units.hazards import check, marked
from emu.units.sharing import port_cost

FULL = 0xFFFFFFFF


@njit(inline="always")
def decode(imm: int) -> tuple[int, int, int, int]:
    """Memory word -> byte offset, bytes of an element, sign extension, elements (docs/architecture.md 3)."""
    return signed32(imm), 1 << ((imm >> 32) & 3), (imm >> 36) & 1, (imm >> 40) & 0xFF


@compiled
def load_element(W: Any, host: int, size: int, sign: int, rows_at: int, k: int, lane: int) -> None:
    """Read one element of a lane into its row(s)."""
    if size == 4:
        st32(W.row_at + ld16(rows_at + 2 * k) * 128 + lane * 4, ld32(host))
    elif size == 8:
        st32(W.row_at + ld16(rows_at + 4 * k) * 128 + lane * 4, ld32(host))
        st32(W.row_at + ld16(rows_at + 4 * k + 2) * 128 + lane * 4, ld32(host + 4))
    elif size == 2:
        x = ld16(host)
        if sign:
            x = ((x ^ 0x8000) - 0x8000) & FULL
        st32(W.row_at + ld16(rows_at + 2 * k) * 128 + lane * 4, x)
    else:
        x = ld8(host)
        if sign:
            x = ((x ^ 0x80) - 0x80) & FULL
        st32(W.row_at + ld16(rows_at + 2 * k) * 128 + lane * 4, x)


@compiled
def store_element(W: Any, host: int, size: int, rows_at: int, k: int, lane: int) -> None:
    """Write one element of a lane from its row(s)."""
    if size == 8:
        st32(host, get32(W, ld16(rows_at + 4 * k), lane))
        st32(host + 4, get32(W, ld16(rows_at + 4 * k + 2), lane))
        return
    x = get32(W, ld16(rows_at + 2 * k), lane)
    if size == 4:
        st32(host, x)
    elif size == 2:
        st16(host, x & 0xFFFF)
    else:
        st8(host, x & 0xFF)


@compiled
def move(S: Any, W: Any, I: Any, host: int, lane: int, write: int) -> None:
    """Move a lane's elements between memory at `host` and the rows of the instruction's list."""
    _, size, sign, count = decode(I.imm)
    rows_at = S.list_at + I.list * 2
    if size == 4:
        for k in range(count):
            at = W.row_at + ld16(rows_at + 2 * k) * 128 + lane * 4
            if write:
                st32(host + 4 * k, ld32(at))
            else:
                st32(at, ld32(host + 4 * k))
        return
    for k in range(count):
        if write:
            store_element(W, host + k * size, size, rows_at, k, lane)
        else:
            load_element(W, host + k * size, size, sign, rows_at, k, lane)


# ---- shared memory -------------------------------------------------------------------------------


@compiled
def shared_host(S: Any, W: Any, lane: int, offset: int, size: int) -> int:
    """Host address of a shared-memory range of the SM, or 0 after a fault."""
    offset = (offset - W.window) & FULL
    low, high = W.smem_base, W.smem_base + S.smem_per_cta
    if offset % size != 0:
        fault(S, W, F_SHARED_ALIGN, lane, offset, size)
        return 0
    if offset + size + low > high:
        fault(S, W, F_SHARED_RANGE, lane, offset, size)
        return 0
    return int(S.smem_at + low + offset)


@compiled
def wavefronts(W: Any, row: int, offset: int, m: int, width: int, store: int) -> int:
    """128-byte wavefronts of an access of `width` bytes a lane: bank conflicts (32 banks of 4 bytes).

    Lanes are served in groups that can fill 128 bytes (32, 16, 8 lanes for 4, 8, 16 bytes); within a
    group the ways are the most distinct words in a bank.
    """
    lanes = 32 if width <= 4 else (16 if width == 8 else 8)
    if not store and broadcast(W, row, m):
        return max(width >> 3, 1)  # measured: one wavefront for 4 and 8 bytes, two for 16
    total = 0
    for first in range(0, 32, lanes):
        base = get32(W, row, first) + offset
        regular = ((m >> first) & ((1 << lanes) - 1)) == (1 << lanes) - 1
        step = get32(W, row, first + 1) + offset - base if regular else 0
        if regular:
            for k in range(1, lanes):
                if get32(W, row, first + k) + offset != base + k * step:
                    regular = False
                    break
        if regular and (step == 0 or step == width):
            total += 1
        else:
            total += group_ways(W, row, offset, m, width, first, lanes)
    return max(total, 1)


@compiled
def broadcast(W: Any, row: int, m: int) -> bool:
    """Whether all lanes have one address."""
    if m != FULL:
        return False
    first = get32(W, row, 0)
    for lane in range(1, 32):
        if get32(W, row, lane) != first:
            return False
    return True


@compiled
def group_ways(W: Any, row: int, offset: int, m: int, width: int, first: int, lanes: int) -> int:
    """The most distinct 4-byte words that one bank must deliver for a group of lanes."""
    words = max(width // 4, 1)
    banks, twice = 0, False
    for k in range(first, first + lanes):
        if (m >> k) & 1:
            bank = ((get32(W, row, k) + offset) >> 2) & 31
            used = ((1 << words) - 1) << bank
            used = (used | used >> 32) & FULL
            twice = twice or banks & used != 0
            banks |= used
    return distinct_words(W, row, offset, m, words, first, lanes) if twice else 1 if banks else 0


@compiled
def distinct_words(W: Any, row: int, offset: int, m: int, words: int, first: int, lanes: int) -> int:
    """`group_ways` where lanes share a bank: eight counters of a byte in a word."""
    c0, c1, c2, c3 = 0, 0, 0, 0
    for k in range(first, first + lanes):
        if not (m >> k) & 1:
            continue
        for word in range((get32(W, row, k) + offset) >> 2, ((get32(W, row, k) + offset) >> 2) + words):
            fresh = True
            for q in range(first, k):
                other = (get32(W, row, q) + offset) >> 2
                fresh = fresh and not ((m >> q) & 1 and word >= other and word < other + words)
            if fresh:
                one = 1 << 8 * (word & 7)
                group = (word >> 3) & 3
                c0, c1 = c0 + (one if group == 0 else 0), c1 + (one if group == 1 else 0)
                c2, c3 = c2 + (one if group == 2 else 0), c3 + (one if group == 3 else 0)
    worst = 0
    for k in range(0, 64, 8):
        for c in (c0, c1, c2, c3):
            worst = max(worst, (c >> k) & 255)
    return worst


@compiled
def ld_shared(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """ld.shared: values at issue; latency grows with the wavefronts (rule 11: 21 + 2 * ways for 4 bytes)."""
    if m == 0:
        return DEFAULT
    offset, size, _, count = decode(I.imm)
    waves = wavefronts(W, I.a, offset, m, size * count, 0)  # a result may overwrite the addresses
    for lane in range(32):
        if (m >> lane) & 1:
            host = shared_host(S, W, lane, get32(W, I.a, lane) + offset, size * count)
            if host == 0:
                return DEFAULT
            if marked(S, host):
                check(S, W, lane, host, size * count)
            move(S, W, I, host, lane, 0)
    ideal = max((size * count) // 4, 1)
    beyond = C.wavefront_cy * (waves - ideal) if waves > ideal else C.merged_cy * (waves - ideal)
    return I.latency + port_cost(S, C, t, waves, min(waves, I.nd), 0) + beyond


@compiled
def st_shared(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """st.shared."""
    if m == 0:
        return DEFAULT
    offset, size, _, count = decode(I.imm)
    for lane in range(32):
        if (m >> lane) & 1:
            host = shared_host(S, W, lane, get32(W, I.a, lane) + offset, size * count)
            if host == 0:
                return DEFAULT
            move(S, W, I, host, lane, 1)
            touch(S, host, size * count)
    port_cost(S, C, t, wavefronts(W, I.a, offset, m, size * count, 1), 0, 1)
    return DEFAULT


@compiled
def touch(S: Any, host: int, size: int) -> None:
    """Count a write to the 1 KB pages of shared memory that it covers."""
    first = (host - S.smem_at) >> 10
    last = (host - S.smem_at + size - 1) >> 10
    for page in range(first, last + 1):
        st64(S.version_at + page * 8, ld64(S.version_at + page * 8) + 1)


# ---- matrices --------------------------------------------------------------------------------------


@compiled
def matrix_wavefronts(W: Any, row: int, offset: int, matrices: int) -> int:
    """Wavefronts of ldmatrix/stmatrix: each 8x8 matrix is 8 rows of 16 bytes given by 8 lanes."""
    total = 0
    for k in range(matrices):
        total += group_ways(W, row, offset, FULL, 16, 8 * k, 8)
    return total


@compiled
def ldsm(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """ldmatrix.m8n8.b16 (PTX ISA 9.7.14.5.15): lane l gets elements 2(l%4), +1 of row l/4 of each matrix."""
    if m == 0 or not together(S, W, m, FULL):
        return DEFAULT
    offset, trans, matrices = signed32(I.imm), (I.imm >> 32) & 1, (I.imm >> 40) & 0xFF
    rows_at = S.list_at + I.list * 2
    waves = matrix_wavefronts(W, I.a, offset, matrices)
    copy(W.row_at + S.shuffle_row * 128, W.row_at + I.a * 128, 128)  # a result may overwrite the addresses
    for k in range(matrices):
        target = W.row_at + ld16(rows_at + 2 * k) * 128
        for r in range(8):
            host = shared_host(S, W, 8 * k + r, get32(W, S.shuffle_row, 8 * k + r) + offset, 16)
            if host == 0:
                return DEFAULT
            if marked(S, host):
                check(S, W, 8 * k + r, host, 16)
            chunk16(target + 16 * r, host)
        if trans:
            transpose8(target, target)
    return I.latency + port_cost(S, C, t, waves, matrices, 0) + C.wavefront_cy * max(waves - matrices, 0)


@compiled
def stsm(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """stmatrix.m8n8.b16 (PTX ISA 9.7.14.5.16): the reverse of ldmatrix."""
    if m == 0 or not together(S, W, m, FULL):
        return DEFAULT
    offset, trans, matrices = signed32(I.imm), (I.imm >> 32) & 1, (I.imm >> 40) & 0xFF
    rows_at = S.list_at + I.list * 2
    for k in range(matrices):
        source = W.row_at + ld16(rows_at + 2 * k) * 128
        if trans:
            transpose8(W.row_at + S.shuffle_row * 128, source)
            source = W.row_at + S.shuffle_row * 128
        for r in range(8):
            host = shared_host(S, W, 8 * k + r, get32(W, I.a, 8 * k + r) + offset, 16)
            if host == 0:
                return DEFAULT
            chunk16(host, source + 16 * r)
            touch(S, host, 16)
    port_cost(S, C, t, matrix_wavefronts(W, I.a, offset, matrices), 0, 1)
    return DEFAULT
