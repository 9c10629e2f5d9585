"""L2 and HBM: what serves the requests of all SMs, how long that takes, and which lines lie in L2.

L2, its writes and HBM are servers: each passes what it is asked at its rate in the order of the requests, and a busy one costs
`knee * (sqrt(load / (1 - load)) - slack)` cycles more, which is what slices and channels that are hit unevenly cost on
an H200.  A request for a line that another one has just fetched, or that is on its way from HBM, joins it.  L2 holds a line until as many other lines
have been filled since its last use as L2 has room for: exact for streams, generous where lines are reused in between.  Lines that were
written go to HBM when L2 needs their room.
"""

from __future__ import annotations

import math
from typing import Any

from emu.chip_state import ARRAY, DIRTY, FILL, HBM, L2, RING, SERVER, WRITES
from emu.compiled import compiled
from emu.raw import ld32, ld64, st32, st64, view
from emu.units.common import segments_of, signed32

LINE = 128  # bytes of an L2 line (CUDA programming guide)
LONGEST = 1 << 16  # cycles that a line may be on its way; times are modulo 2^32
MIXED_B = 1 << 20  # bytes over which the mix of reads and writes is taken
MOST = 0.95  # load of a server beyond which waiting in line says it all

servers_of = view(SERVER)
arrays_of = view(ARRAY)


@compiled
def wait_for(H: Any, which: int, size: float, t: int) -> tuple[int, int]:
    """Pass `size` bytes through a server at cycle `t`: cycles in its line, and cycles that unevenness costs."""
    Q = servers_of(H.server_at, 3)[which]
    Q.work = Q.work * max(1.0 - (t - Q.at) / Q.window, 0.0)
    Q.at = t
    load = min(Q.work / Q.window, MOST)
    line = max(Q.free - t, 0.0)
    cost = size / Q.rate
    Q.free = t + line + cost
    Q.work += cost
    uneven = Q.knee * max(math.sqrt(load / (1.0 - load)) - Q.slack, 0.0)
    return int(line), int(uneven)


@compiled
def state_of(H: Any, S: Any, address: int) -> tuple[int, int, int]:
    """Of a line: its array, host address of its LINE_STATE, lines of the array from there on; zeros outside all arrays."""
    segments = segments_of(S.segment_at, S.segments)
    for k in range(S.segments):
        g = segments[k]
        if address + LINE > g.base and address < g.base + g.size:
            skipped = address // LINE - g.base // LINE
            return (
                k,
                int(H.line_at + 8 * (g.line + skipped)),
                int((g.base + g.size - 1) // LINE - g.base // LINE + 1 - skipped),
            )
    return 0, 0, 0


@compiled
def touch_lines(H: Any, S: Any, start: int, size: int, t: int, write: int, extra: int) -> tuple[int, int, int]:
    """Use every line of a range: (lines that L2 has to move, lines that come from HBM, cycles until all are in L2).

    A line from HBM is there `extra` cycles later; whoever asks for it before waits for it.
    """
    moved, missed, late = 0, 0, 0
    window = int(H.merge + H.merge_share * max(servers_of(H.server_at, 3)[L2].free - t, 0.0))
    first, last = start // LINE, (start + size - 1) // LINE
    H.array, at, there = state_of(H, S, first * LINE)
    count = min(last - first + 1, there)
    for k in range(count):
        state = ld32(at + 8 * k)
        fill, dirty = state & FILL, state & DIRTY
        since = signed32(t - ld32(at + 8 * k + 4))
        when = t
        if fill == 0 or ((H.fills + 1 - fill) & FILL) > H.capacity:
            if fill:
                arrays_of(H.array_at, S.segments)[H.array].budget += S.weight
            H.fills += S.weight
            missed, dirty = missed + 1, 0
            if not write:
                when, late = t + extra, extra
        elif since < 0 and -since <= LONGEST:
            late = max(late, -since)
            if write and not dirty:
                mark(H, fill, S.weight)
                st32(at + 8 * k, fill | DIRTY)
            continue
        elif since >= 0 and since < window and not write:
            continue
        moved += 1
        used = (H.fills + 1) & FILL
        if dirty:
            mark(H, fill, -S.weight)
        if dirty or write:
            mark(H, used, S.weight)
            used |= DIRTY
        st32(at + 8 * k, used)
        st32(at + 8 * k + 4, when)
    H.requests += count + H.far_share * (count if write else missed)
    return moved, missed, late


@compiled
def pass_slices(H: Any, S: Any, size: int, t: int) -> tuple[int, int]:
    """`wait_for` L2: a slice takes one request of the lines touched last a cycle, however few bytes it asks for."""
    least, H.requests = H.requests * H.request_b, 0.0
    return wait_for(H, L2, max(float(size), least) * S.weight, t)


@compiled
def mark(H: Any, fill: int, lines: int) -> None:
    """So many more dirty lines were last used at a fill."""
    at = H.dirty_at + 8 * ((fill >> H.ring_shift) & (RING - 1))
    st64(at, ld64(at) + lines)


@compiled
def pass_hbm(H: Any, size: float, write: int, t: int) -> tuple[int, int]:
    """`wait_for` HBM, whose rate falls where reads and writes take turns."""
    H.written += (write - H.written) * min(size / MIXED_B, 1.0)
    return wait_for(H, HBM, size * (1.0 + H.turns * H.written * (1.0 - H.written)), t)


@compiled
def write_back(H: Any, S: Any, t: int) -> None:
    """Write to HBM the dirty lines that L2 has no room for any more."""
    each = 1 << H.ring_shift
    while H.kept + each + H.capacity <= H.fills:
        at = H.dirty_at + 8 * ((H.kept >> H.ring_shift) & (RING - 1))
        size = float(max(ld64(at), 0) * LINE)
        st64(at, 0)
        H.kept += each
        if size:
            pass_hbm(H, size, 1, t)
            S.hbm_bytes += int(size / S.weight)


@compiled
def supply(H: Any, S: Any, asked: int, moved: int, missed: int, late: int, t: int) -> tuple[int, int]:
    """Bring `asked` bytes to an SM: L2 moves `moved`, `missed` lines come from HBM, the last is there after `late` cycles.

    Returns cycles in line, and cycles beyond an L2 hit's.  SMs that stand for others do not see what the others share, so
    that the parts of L2 and HBM, and of loads that wait for HBM, are those of the whole chip, array by array (`emu.representative`).
    """
    A = arrays_of(H.array_at, S.segments)[H.array]
    if H.sampled:
        moved = int(asked * A.moved_share)
        A.credit, A.patience = A.credit + asked * A.missed_share, A.patience + asked * A.waited_share
        missed = max(min(missed, int(min(A.credit / LINE, A.budget / S.weight))), 0)
        if asked > A.patience or A.budget <= 0:
            late = 0
        A.budget -= missed * S.weight
        A.credit, A.patience = A.credit - missed * LINE, A.patience - (asked if late else 0)
    A.asked, A.moved, A.missed = A.asked + asked, A.moved + moved, A.missed + missed * LINE
    A.waited += asked if late else 0
    line, uneven = pass_slices(H, S, moved, t)
    S.l2_bytes += moved
    write_back(H, S, t)
    late += uneven
    if missed:
        queue, uneven = pass_hbm(H, float(missed * LINE * S.weight), 0, t)
        S.hbm_bytes += missed * LINE
        line, late = max(line, queue), late + uneven
    return line, late


@compiled
def absorb(H: Any, S: Any, size: int, missed: int, t: int) -> int:
    """Take `size` bytes from an SM into L2; returns the cycles in line.  New lines in a full L2 wait for those that make room."""
    line, _ = wait_for(H, WRITES, float(size * S.weight), t)
    slices, _ = pass_slices(H, S, size, t)
    line = max(line, slices)
    S.l2_bytes += size
    write_back(H, S, t)
    if missed and H.fills > H.capacity:
        line = max(line, int(servers_of(H.server_at, 3)[HBM].free - t))
    return line
