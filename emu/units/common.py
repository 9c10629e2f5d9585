"""What the unit routines share.

A routine has the signature `(S, C, W, I, t, m) -> int`: the SM, the machine's numbers, the warp, the
instruction, the cycle, and the lanes that execute.  It returns the cycles until the result can be
used, or one of:

* `DEFAULT`  the latency of the timing class;
* `RETRY`    nothing happened: the warp is parked and issues the same instruction again when woken;
* `PARK`     the instruction has issued and the warp is parked until it is woken.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from emu.chip_state import SEGMENT
from emu.compiled import compiled
from emu.copy_state import COPY, JOB, TMAP
from emu.instruction import RT_INSTR
from emu.raw import ld32, st64, view
from emu.state import BLOCK_NONE, CTA, FAULT, NEVER, SM, WARP, WARP_SLOTS, WGROUP
from emu.tmem_state import TC_JOB, TMOVE

DEFAULT, RETRY, PARK = -1, -2, -3
ADVANCE = -1  # instead of a routine's number: the unit does what is due (emu/generate.py)
PAIRED = -2  # the same: a command of two SMs, which the chip has it execute

sms_of = view(SM)
warps_of = view(WARP)
ctas_of = view(CTA)
wgroups_of = view(WGROUP)
jobs_of = view(JOB)
copies_of = view(COPY)
instrs_of = view(RT_INSTR)
segments_of = view(SEGMENT)
tmaps_of = view(TMAP)
commands_of = view(TC_JOB)
moves_of = view(TMOVE)

# Fault kinds; emu.explain.rules has their words.
(
    F_NONE,
    F_TRAP,
    F_SHARED_RANGE,
    F_SHARED_ALIGN,
    F_GLOBAL_RANGE,
    F_GLOBAL_ALIGN,
    F_READ_ONLY,
    F_STACK,
    F_PC,
    F_MBAR_INVALID,
    F_MBAR_COUNT,
    F_MBAR_ARRIVALS,
    F_MBAR_TX,
    F_BAR_ID,
    F_BAR_COUNT,
    F_BAR_OVERFLOW,
    F_DIVERGED,
    F_OUTSIDE,
    F_WG_MISMATCH,
    F_DESCRIPTOR,
    F_TMAP,
    F_TMAP_RANK,
    F_TMA_ALIGN,
    F_SETMAXNREG,
    F_LOCAL_RANGE,
    F_MBAR_ALIGN,
    F_TMA_MBAR,
    F_MBAR_NO_COMPLETE,
    F_BULK_SIZE,
    F_TMEM_COLUMNS,
    F_TMEM_RANGE,
    F_TMEM_LANES,
    F_TMEM_SIZE,
    F_TMEM_PERMIT,
    F_TMEM_FREE,
    F_TMEM_LEAK,
    F_TMEM_ADDRESS,
    F_TMEM_BUSY,
    F_TMEM_ALIGN,
    F_TC_IDESC,
    F_TC_MATRIX,
    F_TC_RANGE,
    F_TC_LANE,
    F_RANK,
    F_PEER_GONE,
    F_CLUSTER_TWICE,
    F_COPY_RANKS,
    F_PAIR,
    F_PAIR_COLUMNS,
    F_LOCAL_ALIGN,
) = range(50)


@compiled
def fault(S: Any, W: Any, kind: int, lane: int, address: int, aux: int) -> int:
    """Record the first fault and stop the SM after this cycle."""
    if S.fault == F_NONE:
        S.fault = kind
        S.fault_warp = W.cta * WARP_SLOTS + W.index
        S.fault_lane = lane
        S.fault_pc = S.by_pc if S.by else W.pc
        S.fault_by = S.by
        if S.by:
            S.fault_warp = W.cta * WARP_SLOTS + S.by_warp
        S.fault_address = address
        S.fault_aux = aux
        S.status = FAULT
    return 0


@njit(inline="always")
def get32(W: Any, row: int, lane: int) -> int:
    """The unsigned 32-bit value of a register row in a lane."""
    return ld32(W.row_at + row * 128 + lane * 4)


@njit(inline="always")
def get64(W: Any, row: int, lane: int) -> int:
    """A 64-bit value of a register pair in a lane."""
    low = ld32(W.row_at + row * 128 + lane * 4)
    high = ld32(W.row_at + row * 128 + 128 + lane * 4)
    return low | (high << 32)


@njit(inline="always")
def signed32(x: int) -> int:
    """Read the low 32 bits as a signed integer."""
    return ((x & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


@njit(inline="always")
def first_lane(m: int) -> int:
    """The lowest lane of a mask (32 when empty)."""
    lane = 0
    while lane < 32 and not (m >> lane) & 1:
        lane += 1
    return lane


@compiled
def together(S: Any, W: Any, m: int, mask: int) -> bool:
    """Whether all lanes of `mask` that have not exited are in `m`; a fault when a collective lacks some."""
    if mask & ~W.exited & ~m & 0xFFFFFFFF:
        fault(S, W, F_DIVERGED, first_lane(m), 0, m)
        return False
    return True


@compiled
def members(S: Any, W: Any, row: int, m: int) -> bool:
    """`together` for the membership masks in a register row, in which every executing lane finds itself, too; a fault when not."""
    if m == 0 or not together(S, W, m, get32(W, row, first_lane(m))):
        return False
    if m & ~get32(W, row, first_lane(m)):  # other lanes may have another mask
        for lane in range(32):
            if (m >> lane) & 1 and not (get32(W, row, lane) >> lane) & 1:
                fault(S, W, F_OUTSIDE, lane, 0, get32(W, row, lane))
                return False
    return True


@njit(inline="always")
def may_issue(S: Any, sub: int, when: int) -> None:
    """Let a sub-partition look at all its warps again at cycle `when`."""
    S.sub_next[sub] = min(S.sub_next[sub], when)
    S.sub_others[sub] = min(S.sub_others[sub], when)


@njit(inline="always")
def wake(S: Any, W: Any, when: int) -> None:
    """Let a parked warp issue from cycle `when` on (and not before its operands are there)."""
    W.block = BLOCK_NONE
    ready = when
    ready = max(ready, W.dep_ready)
    W.held, W.held_reason = max(W.held, when), W.reason
    st64(S.ready_at + W.slot8, ready)
    may_issue(S, W.sub, ready)


@njit(inline="always")
def park(S: Any, W: Any, block: int, reason: int, t: int) -> None:
    """Stop a warp until something wakes it; the time is charged to `reason`."""
    W.block = block
    W.reason = reason
    st64(S.ready_at + W.slot8, NEVER)
    W.park_since = t
    W.deadline = NEVER


@njit(inline="always")
def event(S: Any, when: int) -> None:
    """Make sure that the SM looks at its units at cycle `when`."""
    S.next_event = min(S.next_event, when)


@compiled
def segment_host(S: Any, address: int, size: int, write: int) -> int:
    """Translate an emulated global address range; 0 when it is not inside one array, -1 when read-only."""
    segments = segments_of(S.segment_at, S.segments)
    g = segments[S.segment_last]
    if not (address >= g.base and address - g.base <= g.size - size):
        found = -1
        for k in range(S.segments):
            h = segments[k]
            if address >= h.base and address - h.base <= h.size - size:  # the sum might overflow
                found = k
                break
        if found < 0:
            return 0
        S.segment_last = found
        g = segments[found]
    if write and not g.writable:
        return -1
    return int(g.host_at + address - g.base)
