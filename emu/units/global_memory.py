"""Global, generic and local memory: values at issue, time through L2 and HBM.

An L1 is not modelled; lines come from HBM once in a launch and from L2 afterwards (docs/machine.md).
"""

from __future__ import annotations

from typing import Any

from emu.compiled import compiled
from emu.raw import is_ramp, ld8, load1, load2, load4, st8, store1, store2, store4
from emu.units.common import (
    DEFAULT,
    F_GLOBAL_ALIGN,
    F_GLOBAL_RANGE,
    F_LOCAL_RANGE,
    F_READ_ONLY,
    fault,
    get64,
    segment_host,
    segments_of,
)
from emu.units.memory import FULL, decode, move, shared_host, touch
from emu.units.sharing import return_cost
from isa.program import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_SIZE

LINE = 128  # bytes of an L2 line (CUDA programming guide)


@compiled
def traffic(S: Any, C: Any, W: Any, row: int, offset: int, m: int, width: int, t: int) -> int:
    """Latency of a global access: 32-byte sectors over the SM's L2 bandwidth, HBM for lines not seen before."""
    sectors, misses, previous = 0, 0, -1
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        address = get64(W, row, lane) + offset
        for sector in range(address >> 5, (address + width + 31) >> 5):
            if sector != previous:
                previous = sector
                sectors += 1
                misses += first_touch(S, sector << 5)
    return fetch(S, C, sectors * 32, misses * LINE, t)


@compiled
def row_traffic(S: Any, C: Any, address: int, size: int, t: int) -> int:
    """`traffic` of one range of `size` bytes."""
    sectors = ((address + size + 31) >> 5) - (address >> 5)
    misses = 0
    for line in range(address // LINE, (address + size + LINE - 1) // LINE):
        misses += first_touch(S, line * LINE)
    return fetch(S, C, sectors * 32, misses * LINE, t)


@compiled
def fetch(S: Any, C: Any, size: int, missing: int, t: int) -> int:
    """Cycles until `size` bytes have come from L2, `missing` of them from HBM first."""
    S.l2_free = max(t << 8, S.l2_free) + (size * C.l2_kb_cy256 >> 10)
    S.l2_bytes += size
    latency = (S.l2_free >> 8) - t + C.l2_latency_cy
    if missing:
        S.hbm_free = max(t << 8, S.hbm_free) + (missing * C.hbm_kb_cy256 >> 10)
        S.hbm_bytes += missing
        latency = max(latency, (S.hbm_free >> 8) - t + C.hbm_latency_cy)
    return latency


@compiled
def first_touch(S: Any, address: int) -> int:
    """1 when a 128-byte line comes from HBM for the first time in this launch; it is in L2 afterwards."""
    segments = segments_of(S.segment_at, S.segments)
    for k in range(S.segments):
        g = segments[k]
        if address + LINE > g.base and address < g.base + g.size:
            at = S.touched_at + g.touched + (address // LINE - g.base // LINE)
            seen = ld8(at)
            st8(at, 1)
            return 1 - seen
    return 0


@compiled
def move_rows(host: int, window: int, rows: int, count: int, write: int) -> bool:
    """Move 1, 2 or 4 words a lane between registers and a range in lane order; False for other counts."""
    if count == 1:
        if write:
            store1(host, window, rows)
        else:
            load1(host, window, rows)
    elif count == 2:
        if write:
            store2(host, window, rows)
        else:
            load2(host, window, rows)
    elif count == 4:
        if write:
            store4(host, window, rows)
        else:
            load4(host, window, rows)
    else:
        return False
    return True


@compiled
def access(S: Any, C: Any, W: Any, I: Any, t: int, m: int, write: int) -> int:
    """ld/st on global addresses of every lane in `m`; returns the latency."""
    offset, size, _, count = decode(I.imm)
    width = size * count
    if m == FULL and is_ramp(W.row_at + I.a * 128, W.row_at + I.a * 128 + 128, width):
        start = get64(W, I.a, 0) + offset
        host = segment_host(S, start, 32 * width, write)
        if host > 0 and start % width == 0:
            latency = row_traffic(S, C, start, 32 * width, t)
            if size != 4 or not move_rows(host, W.row_at, S.list_at + I.list * 2, count, write):
                for lane in range(32):
                    move(S, W, I, host + lane * width, lane, write)
            return latency
    latency = traffic(S, C, W, I.a, offset, m, width, t)
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        address = get64(W, I.a, lane) + offset
        if address % width != 0:
            fault(S, W, F_GLOBAL_ALIGN, lane, address, width)
            return 0
        host = segment_host(S, address, width, write)
        if host <= 0:
            fault(S, W, F_READ_ONLY if host < 0 else F_GLOBAL_RANGE, lane, address, width)
            return 0
        move(S, W, I, host, lane, write)
    return latency


@compiled
def ld_global(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """ld.global through L2 (an L1 is not modelled: docs/machine.md)."""
    return access(S, C, W, I, t, m, 0) if m else DEFAULT


@compiled
def st_global(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """st.global: takes effect at issue; the traffic is accounted."""
    if m:
        access(S, C, W, I, t, m, 1)
    return DEFAULT


@compiled
def generic(S: Any, C: Any, W: Any, I: Any, t: int, m: int, write: int) -> int:
    """ld/st on generic addresses: lanes in the shared and local windows go there, the others to global memory."""
    offset, size, _, count = decode(I.imm)
    rest = 0
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        address = get64(W, I.a, lane) + offset
        if address >= SHARED_WINDOW and address < SHARED_WINDOW + WINDOW_SIZE:
            host = shared_host(S, W, lane, address - SHARED_WINDOW, size * count)
        elif address >= LOCAL_WINDOW and address < LOCAL_WINDOW + WINDOW_SIZE:
            host = local_host(S, W, lane, address - LOCAL_WINDOW, size * count)
        else:
            rest |= 1 << lane
            continue
        if host == 0:
            return DEFAULT
        move(S, W, I, host, lane, write)
        if write and address >= SHARED_WINDOW and address < SHARED_WINDOW + WINDOW_SIZE:
            touch(S, host, size * count)
    latency = int(I.latency)
    if rest != m:
        latency += return_cost(S, C, t, I.nd)
    if rest:
        latency = max(latency, access(S, C, W, I, t, rest, write))
    return latency


@compiled
def ld_generic(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """ld without a space."""
    return generic(S, C, W, I, t, m, 0) if m else DEFAULT


@compiled
def st_generic(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """st without a space."""
    if m:
        generic(S, C, W, I, t, m, 1)
    return DEFAULT


@compiled
def local_host(S: Any, W: Any, lane: int, offset: int, size: int) -> int:
    """Host address of a thread's local memory, or 0 after a fault."""
    if offset < 0 or offset + size > S.local_bytes or offset % size != 0:
        fault(S, W, F_LOCAL_RANGE, lane, offset, size)
        return 0
    thread = (W.slot * 32 + lane) * S.local_bytes
    return int(S.local_at + thread + offset)


@compiled
def local(S: Any, C: Any, W: Any, I: Any, t: int, m: int, write: int) -> int:
    """ld/st.local: per-thread memory, always an L1 hit in this model."""
    offset, size, _, count = decode(I.imm)
    for lane in range(32):
        if (m >> lane) & 1:
            host = local_host(S, W, lane, (get64(W, I.a, lane) + offset) & (WINDOW_SIZE - 1), size * count)
            if host == 0:
                return DEFAULT
            move(S, W, I, host, lane, write)
    return DEFAULT


@compiled
def ld_local(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """ld.local."""
    return local(S, C, W, I, t, m, 0) if m else DEFAULT


@compiled
def st_local(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """st.local."""
    return local(S, C, W, I, t, m, 1) if m else DEFAULT
