"""Global, generic and local memory: accesses are checked at issue; the chip moves the values and knows the time.

A load whose sectors lie in the L1 needs no answer (emu/units/l1.py).
"""

from __future__ import annotations

from typing import Any

from emu.chip_state import ASK_LOAD, ASK_STORE, P_LOAD, P_STORE, PENDING, REQUESTS
from emu.compiled import compiled
from emu.raw import is_ramp, load1, load2, load4, prefetch, store1, store2, store4
from emu.units import l1, peers
from emu.units.common import (
    DEFAULT,
    F_GLOBAL_ALIGN,
    F_GLOBAL_RANGE,
    F_LOCAL_ALIGN,
    F_LOCAL_RANGE,
    F_READ_ONLY,
    RETRY,
    fault,
    get64,
    segment_host,
)
from emu.units.memory import FULL, decode, move, shared_host, touch
from emu.units.peers import lanes_elsewhere, mark_mixed, room
from emu.units.requests import data_at, request, requests_of, soon
from emu.units.sharing import return_cost
from isa.ops.memory import PAST_L1
from isa.program import LOCAL_WINDOW, SHARED_WINDOW, WINDOW_SIZE

SECTOR = l1.SECTOR


@compiled
def sectors_of(W: Any, row: int, offset: int, m: int, width: int) -> int:
    """32-byte sectors of an access; neighbouring lanes share them."""
    sectors, previous = 0, 0
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        address = get64(W, row, lane) + offset
        for sector in range(address // SECTOR, (address + width + SECTOR - 1) // SECTOR):
            if sector != previous:
                previous = sector
                sectors += 1
    return sectors


@compiled
def lines_of(W: Any, row: int, offset: int, m: int) -> int:
    """128-byte lines of an access; neighbouring lanes share them."""
    lines, previous = 0, -1
    for lane in range(32):
        if (m >> lane) & 1:
            line = (get64(W, row, lane) + offset) >> 7
            lines += line != previous
            previous = line
    return lines


@compiled
def look_up(S: Any, C: Any, lines: int, t: int) -> None:
    """The tags of an access: one line after the other."""
    S.line_free = max(t << 8, S.line_free) + lines * C.line_cy256


@compiled
def ask(S: Any, C: Any, W: Any, kind: int, m: int, width: int, sectors: int, lines: int, t: int) -> int:
    """Pass an access through the SM's port to L2 and write it down; returns its place in the log.

    Loads and stores take turns in one port (`global_copy_throughput`, one SM) and look up their lines one after the
    other.  Past the port's queue the sub-partition's next one has to wait (`hold`); accesses of shared memory go behind them all (`port_cost`).
    """
    size = sectors * SECTOR
    look_up(S, C, lines, t)
    if kind == ASK_STORE:
        S.store_free = max(t << 8, max(S.store_free, S.l2_free)) + (size * C.store_kb_cy256 >> 10)
        S.l2_free = S.store_free
        port = max(S.store_free, S.line_free) >> 8
        S.hold = max(S.hold, port - C.store_queue_cy)
    else:
        S.l2_free = max(t << 8, S.l2_free) + (size * C.l2_kb_cy256 >> 10)
        port = max(S.l2_free, S.line_free) >> 8
        S.hold = max(S.hold, port - C.load_queue * lines)
    k = request(S, C, kind, t)
    r = requests_of(S.log_at, REQUESTS)[k]
    r.warp, r.pc, r.mask = W.slot, W.pc, m
    r.width, r.bytes, r.port = width, size, port
    return k


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
def checked(S: Any, W: Any, row: int, offset: int, m: int, width: int, write: int) -> bool:
    """Whether every lane's address is aligned and inside an array; a fault when not."""
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        address = get64(W, row, lane) + offset
        if address % width != 0:
            fault(S, W, F_GLOBAL_ALIGN, lane, address, width)
            return False
        host = segment_host(S, address, width, write)
        if host <= 0:
            fault(S, W, F_READ_ONLY if host < 0 else F_GLOBAL_RANGE, lane, address, width)
            return False
    return True


@compiled
def access(S: Any, C: Any, W: Any, I: Any, t: int, m: int, write: int) -> int:
    """ld/st on global addresses of every lane in `m`; returns the latency of a load, PENDING where only the chip knows it."""
    offset, size, _, count = decode(I.imm)
    width = size * count
    whole = m == FULL and is_ramp(W.row_at + I.a * 128, W.row_at + I.a * 128 + 128, width)
    first = get64(W, I.a, 0) + offset
    host = segment_host(S, first, 32 * width, write) if whole and first % width == 0 else 0
    if host <= 0:
        if not checked(S, W, I.a, offset, m, width, write):
            return 0
        first = 0
    if write:
        store(S, C, W, I, t, m, first)
        return DEFAULT
    return load(S, C, W, I, t, m, first, host)


@compiled
def extent(W: Any, I: Any, m: int, first: int) -> tuple[int, int]:
    """Sectors and lines of an access, whose bytes follow one another from `first` on unless that is 0."""
    offset, size, _, count = decode(I.imm)
    width = size * count
    if not first:
        return sectors_of(W, I.a, offset, m, width), lines_of(W, I.a, offset, m)
    last = first + 32 * width - 1
    return last // SECTOR - first // SECTOR + 1, (last >> 7) - (first >> 7) + 1


@compiled
def load(S: Any, C: Any, W: Any, I: Any, t: int, m: int, first: int, host: int) -> int:
    """ld of checked addresses, from the L1 when all sectors are there; returns the latency."""
    offset, size, _, count = decode(I.imm)
    width, cached = size * count, not (I.imm >> PAST_L1) & 1
    sectors, lines = extent(W, I, m, first)
    when = 0
    if cached:
        if first:
            sectors, when, settled = l1.read_range(S, C, first, 32 * width, t)
        else:
            sectors, when, settled = l1.read_lanes(S, C, W, I.a, offset, m, width, t)
        if not sectors and max(settled, S.l1_settled) <= t:
            look_up(S, C, max(lines, width >> 2), t)  # no more than a register row a cycle comes back
            load_values(S, W, I, m, first, host)
            return max((S.line_free >> 8) + C.l1_latency_cy, when) - t
    else:
        S.l1_sectors += sectors
        if first:
            l1.forget(S, first, 32 * width)
    k = ask(S, C, W, ASK_LOAD, m, width, sectors, lines, t)
    r = requests_of(S.log_at, REQUESTS)[k]
    r.first, r.job = first, cached
    if first:
        for n in range(0, 32 * width, 64):
            prefetch(host + n)  # the answer comes later: by then the host has its lines
    else:
        note_addresses(W, I, r, m)
        for lane in range(32 * (not cached)):
            if (m >> lane) & 1:
                l1.forget(S, r.address[lane], width)
    if not sectors:
        r.port = max((S.line_free >> 8) + C.l1_latency_cy, when)
        soon(S, r.port)
    return PENDING - t


@compiled
def note_addresses(W: Any, I: Any, r: Any, m: int) -> None:
    """Write the lanes' addresses into a request."""
    offset, _, _, _ = decode(I.imm)
    for lane in range(32):
        if (m >> lane) & 1:
            r.address[lane] = get64(W, I.a, lane) + offset


@compiled
def load_values(S: Any, W: Any, I: Any, m: int, first: int, host: int) -> None:
    """Read checked addresses at once."""
    offset, size, _, count = decode(I.imm)
    if first and size == 4 and move_rows(host, W.row_at, S.list_at + I.list * 2, count, 0):
        return
    for lane in range(32):
        if (m >> lane) & 1:
            move(S, W, I, segment_host(S, get64(W, I.a, lane) + offset, size * count, 0), lane, 0)


@compiled
def store(S: Any, C: Any, W: Any, I: Any, t: int, m: int, first: int) -> None:
    """st to checked addresses: the chip writes the values, and lines of the L1 follow."""
    _, size, _, count = decode(I.imm)
    width = size * count
    sectors, lines = extent(W, I, m, first)
    k = ask(S, C, W, ASK_STORE, m, width, sectors, lines, t)
    r = requests_of(S.log_at, REQUESTS)[k]
    r.first = first
    if first:
        l1.write_range(S, C, first, 32 * width, t)
        if size == 4 and move_rows(data_at(S, k), W.row_at, S.list_at + I.list * 2, count, 1):
            return
    else:
        note_addresses(W, I, r, m)
    for lane in range(32):
        if (m >> lane) & 1:
            move(S, W, I, data_at(S, k) + lane * width, lane, 1)
            if not first:
                l1.write_range(S, C, r.address[lane], width, t)


@compiled
def cctl_ivall(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """What acquires beyond the CTA empties the L1."""
    if m:
        l1.empty(S)
    return DEFAULT


@compiled
def ld_global(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """ld.global."""
    return access(S, C, W, I, t, m, 0) if m else DEFAULT


@compiled
def st_global(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """st.global."""
    if m:
        access(S, C, W, I, t, m, 1)
    return DEFAULT


@compiled
def generic(S: Any, C: Any, W: Any, I: Any, t: int, m: int, write: int) -> int:
    """ld/st on generic addresses: lanes in the shared and local windows go there, the others to global memory."""
    offset, size, _, count = decode(I.imm)
    rest, first = 0, -1
    elsewhere = lanes_elsewhere(S, W, I.a, offset, m, 1)
    if elsewhere < 0:
        return 0
    if elsewhere:
        if not room(S, W, S.peers, t):
            return RETRY
        first = access_elsewhere(S, C, W, I, t, elsewhere, write)
        m &= ~elsewhere
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
    if elsewhere:
        mark_mixed(S, first, rest)
        return PENDING - t
    return latency


@compiled
def access_elsewhere(S: Any, C: Any, W: Any, I: Any, t: int, m: int, write: int) -> int:
    """ld/st of lanes whose address lies in another CTA of the cluster; returns the first message's place in the log."""
    offset, size, _, count = decode(I.imm)
    width = size * count
    first = peers.access(S, C, W, I, P_STORE if write else P_LOAD, m, I.a, offset, width, 1, t)
    for n in range((S.log_tail - first) & (REQUESTS - 1) if write else 0):
        k = (first + n) & (REQUESTS - 1)
        mask = requests_of(S.log_at, REQUESTS)[k].mask
        for lane in range(32):
            if (mask >> lane) & 1:
                move(S, W, I, data_at(S, k) + lane * width, lane, 1)
    return first


@compiled
def ld_generic(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """ld without a space."""
    return generic(S, C, W, I, t, m, 0) if m else DEFAULT


@compiled
def st_generic(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """st without a space."""
    code = generic(S, C, W, I, t, m, 1) if m else DEFAULT
    return RETRY if code == RETRY else DEFAULT


@compiled
def local_host(S: Any, W: Any, lane: int, offset: int, size: int) -> int:
    """Host address of a thread's local memory, or 0 after a fault."""
    outside = offset < 0 or offset + size > S.local_bytes
    if outside or offset % size != 0:
        fault(S, W, F_LOCAL_RANGE if outside else F_LOCAL_ALIGN, lane, offset, size)
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
