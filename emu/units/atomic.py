"""Atomic operations on global, generic and shared memory (PTX ISA 9.7.13.5, 9.7.13.7).

Values change lane after lane in ascending order: of shared memory at issue, of global memory when the chip answers.  A
global atomic leaves the SM in a pass for each 128-byte line, or for each lane on one address; L2 serves an address at a time.
In shared memory integers have an instruction of their own; other types are loops of a load and a compare-and-swap, one turn
for each lane in the most crowded bank.
"""

from __future__ import annotations

from typing import Any

from emu.chip_state import ASK_ATOMIC, P_ATOMIC, PENDING, REQUESTS
from emu.compiled import compiled
from emu.raw import copy, ld16, ld32, ld64, st32, st64
from emu.units import l1
from emu.units.atomic_values import B128, CAS, EXCH, S32, SIZES, TBF16X2, TF32, U32, U64, combined, element, load, store
from emu.units.common import DEFAULT, RETRY, get32, get64, signed32
from emu.units.global_memory import SECTOR, checked, lines_of, sectors_of
from emu.units.memory import shared_host, touch
from emu.units.peers import access, lanes_elsewhere, mark_mixed, room
from emu.units.requests import data_at, request, requests_of
from emu.units.sharing import port_cost
from isa.program import SHARED_WINDOW, WINDOW_SIZE

# ---- one lane -----------------------------------------------------------------------------------------


@compiled
def take(S: Any, W: Any, I: Any) -> int:
    """Copy the rows of the source list to the data of the next request; returns their host address."""
    to = data_at(S, int(S.log_tail & (REQUESTS - 1)))
    for k in range(I.ns):
        copy(to + 128 * k, W.row_at + ld16(S.list_at + 2 * (I.list + I.nd + k)) * 128, 128)
    return to


@compiled
def source(taken: int, k: int, size: int, lane: int) -> int:
    """The k-th value of the source rows at host address `taken`."""
    if size == 8:
        return ld32(taken + 256 * k + 4 * lane) | ld32(taken + 256 * k + 128 + 4 * lane) << 32
    return ld32(taken + 128 * k + 4 * lane) & ((1 << 8 * size) - 1)


@compiled
def change(S: Any, W: Any, I: Any, taken: int, host: int, lane: int, ftz: int) -> None:
    """The operation of one lane with its values in the rows at `taken`: all elements, then the results."""
    low, high = contents(I, host)
    combine_with(I, taken, host, lane, ftz, low, high)
    results(S, W, I, lane, low, high)


@compiled
def operate(I: Any, taken: int, host: int, lane: int, ftz: int, found: int) -> None:
    """The same without results: what was there goes to 16 bytes at `found`."""
    low, high = contents(I, host)
    combine_with(I, taken, host, lane, ftz, low, high)
    st64(found, low)
    st64(found + 8, high)


@compiled
def contents(I: Any, host: int) -> tuple[int, int]:
    """What is at an address: 8 bytes at most, and 8 more."""
    width = width_of(I.imm)
    return load(host, min(width, 8)), ld64(host + 8) if width == 16 else 0


@compiled
def results(S: Any, W: Any, I: Any, lane: int, low: int, high: int) -> None:
    """Write what was there to the result rows."""
    width = min(SIZES[(I.imm >> 36) & 15], 4)
    rows = S.list_at + 2 * I.list
    for k in range(I.nd):
        st32(W.row_at + ld16(rows + 2 * k) * 128 + lane * 4, element(low, high, k * width, width))


@compiled
def combine_with(I: Any, taken: int, host: int, lane: int, ftz: int, low: int, high: int) -> None:
    """The operation of one lane on all elements."""
    op, kind, count = (I.imm >> 32) & 15, (I.imm >> 36) & 15, (I.imm >> 40) & 0xFF
    size = SIZES[kind]
    if kind == B128:
        if op == EXCH or (source(taken, 2, 8, lane) == low and source(taken, 3, 8, lane) == high):
            st64(host, source(taken, 0, 8, lane))
            st64(host + 8, source(taken, 1, 8, lane))
    else:
        for k in range(count):
            wanted = source(taken, count + k, size, lane) if op == CAS else 0
            old = element(low, high, k * size, size)
            store(host + k * size, size, combined(op, kind, old, source(taken, k, size, lane), wanted, ftz))


@compiled
def width_of(imm: int) -> int:
    """Bytes that a lane changes."""
    return SIZES[(imm >> 36) & 15] * ((imm >> 40) & 0xFF)


# ---- routines -----------------------------------------------------------------------------------------


@compiled
def crowd(W: Any, row: int, m: int, wide: int) -> int:
    """The most lanes that hit one address."""
    most = 0
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        count = 0
        for other in range(lane, 32):
            if (m >> other) & 1:
                if wide:
                    count += get64(W, row, other) == get64(W, row, lane)
                else:
                    count += get32(W, row, other) == get32(W, row, lane)
        most = max(most, count)
    return most


@compiled
def bank_ways(W: Any, row: int, m: int, offset: int) -> int:
    """The most lanes whose 4-byte words lie in one bank: each is a wavefront of its own."""
    most = 0
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        bank, count = ((get32(W, row, lane) + offset) >> 2) & 31, 0
        for other in range(lane, 32):
            if (m >> other) & 1:
                count += ((get32(W, row, other) + offset) >> 2) & 31 == bank
        most = max(most, count)
    return most


@compiled
def word_cost(C: Any, I: Any) -> int:
    """Cycles, in 256ths, that L2 needs for a lane on an address that another one hits too."""
    kind = (I.imm >> 36) & 15
    return C.l2_atomic_float_cy256 if kind >= TF32 and kind <= TBF16X2 else C.l2_atomic_cy256


@compiled
def atom_shared(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """atom and red on shared memory."""
    if m == 0:
        return DEFAULT
    offset, width = signed32(I.imm), width_of(I.imm)
    ways = bank_ways(W, I.a, m, offset)
    kind, op = (I.imm >> 36) & 15, (I.imm >> 32) & 15
    looped = not (kind == U32 or kind == S32 or (op >= EXCH and kind == U64))
    words = ways - crowd(W, I.a, m, 0) if looped else 0  # others in that bank: the loads of the loop conflict
    taken = take(S, W, I)
    for lane in range(32):
        if (m >> lane) & 1:
            host = shared_host(S, W, lane, get32(W, I.a, lane) + offset, width)
            if host == 0:
                return DEFAULT
            change(S, W, I, taken, host, lane, 0)
            touch(S, host, width)
    if looped:
        spent = I.latency * ways + C.wavefront_cy * (words * (words + 1) // 2)
        spent += port_cost(S, C, t, ways, min(I.nd, 1), 1)
        W.dep_ready = max(W.dep_ready, t + spent)  # the warp itself goes round
        return spent
    waves = 2 * ways if op == CAS else ways  # two operands
    return I.latency + port_cost(S, C, t, waves, min(I.nd, 1), 1) + C.wavefront_cy * (waves - 1)


@compiled
def global_lanes(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """atom and red on global addresses of the lanes of `m`; returns the latency, which only the chip knows."""
    offset, width = signed32(I.imm), width_of(I.imm)
    if not checked(S, W, I.a, offset, m, width, 1):
        return 0
    take(S, W, I)
    most, lines = crowd(W, I.a, m, 1), lines_of(W, I.a, offset, m)
    lanes = 0
    for lane in range(32):
        lanes += (m >> lane) & 1
    values = 4 * int(I.ns) * lanes  # bytes that go out
    each = C.atomic_return_pass_cy256 if I.nd and lines > 1 else 256
    S.store_free = max(t << 8, S.store_free) + max(max(most, lines) * each, values * C.atomic_kb_cy256 >> 10)
    k = request(S, C, ASK_ATOMIC, t)
    r = requests_of(S.log_at, REQUESTS)[k]
    r.port = S.store_free >> 8
    S.hold = max(S.hold, r.port - C.store_queue_cy)
    r.warp, r.pc, r.mask, r.width = W.slot, W.pc, m, width
    r.bytes, r.job = sectors_of(W, I.a, offset, m, width) * SECTOR, most | lines << 8
    for lane in range(32):
        r.address[lane] = get64(W, I.a, lane) + offset
        if (m >> lane) & 1:
            l1.forget(S, r.address[lane], width)
    return PENDING - t


@compiled
def atom_global(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """atom and red on global memory."""
    if m == 0:
        return DEFAULT
    latency = global_lanes(S, C, W, I, t, m)
    return latency if I.nd else DEFAULT


@compiled
def atom_generic(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """atom and red on generic addresses: lanes in the shared window act there, or in their CTA's, the others in L2."""
    if m == 0:
        return DEFAULT
    offset, width = signed32(I.imm), width_of(I.imm)
    elsewhere = lanes_elsewhere(S, W, I.a, offset, m, 1)
    if elsewhere < 0:
        return DEFAULT
    if elsewhere and not room(S, W, S.peers, t):
        return RETRY
    first = -1
    if elsewhere:
        first = atom_elsewhere(S, C, W, I, t, elsewhere, offset, width)
        m &= ~elsewhere
    rest, latency, taken = 0, int(I.latency), take(S, W, I)
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        address = get64(W, I.a, lane) + offset
        if address < SHARED_WINDOW or address >= SHARED_WINDOW + WINDOW_SIZE:
            rest |= 1 << lane
            continue
        host = shared_host(S, W, lane, address - SHARED_WINDOW, width)
        if host == 0:
            return DEFAULT
        change(S, W, I, taken, host, lane, 0)
        touch(S, host, width)
    if rest:
        latency = max(latency, global_lanes(S, C, W, I, t, rest))
    if elsewhere:
        latency = PENDING - t
        mark_mixed(S, first, rest)
    return latency if I.nd else DEFAULT


@compiled
def atom_elsewhere(S: Any, C: Any, W: Any, I: Any, t: int, m: int, offset: int, width: int) -> int:
    """Messages to other CTAs with the values of an atomic; returns the first one's place in the log."""
    first = access(S, C, W, I, P_ATOMIC, m, I.a, offset, width, 1, t)
    for n in range((S.log_tail - first) & (REQUESTS - 1)):
        to = data_at(S, (first + n) & (REQUESTS - 1))
        for k in range(I.ns):
            copy(to + 128 * k, W.row_at + ld16(S.list_at + 2 * (I.list + I.nd + k)) * 128, 128)
    return first
