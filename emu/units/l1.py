"""The L1 data cache of an SM: which sectors of global memory it holds, and when they came.

Only time is cached.  An access whose sectors are all there reads memory at issue, which the chip changes in the order of all
SMs' requests: what it finds is at most `answer_cy` older than what an access that misses would find, and nothing of the SM's own is
missing (`settled`).  Everything else goes through the chip as before.  Tags are looked up one 128-byte line after the other.
"""

from __future__ import annotations

from typing import Any

from emu.compiled import compiled
from emu.l1_state import L1_LINE, L1_WAYS
from emu.raw import view
from emu.units.common import get64

LINE, SECTOR = 128, 32  # bytes (CUDA programming guide)
EPOCH = 1 << 40  # of a tag; below it the number of the line

lines_of_cache = view(L1_LINE)


@compiled
def place(S: Any, line: int) -> int:
    """Where a line lies in the tags, -1 when it is not there."""
    first = line % S.l1_sets * L1_WAYS
    tags = lines_of_cache(S.l1_at, S.l1_sets * L1_WAYS)
    for k in range(first, first + L1_WAYS):
        if tags[k].tag == S.l1_epoch + line:
            return first + (k - first)
    return -1


@compiled
def replace(S: Any, line: int) -> int:
    """The place of the line of a set that was not used for longest, for another line."""
    first = line % S.l1_sets * L1_WAYS
    tags = lines_of_cache(S.l1_at, S.l1_sets * L1_WAYS)
    oldest = first
    for k in range(first, first + L1_WAYS):
        if tags[k].tag < S.l1_epoch:
            oldest = k
            break
        if tags[k].used < tags[oldest].used:
            oldest = k
    e = tags[oldest]
    e.tag, e.sectors, e.written, e.when, e.settled = S.l1_epoch + line, 0, 0, 0, 0
    return oldest


@compiled
def sectors_in(line: int, start: int, size: int) -> int:
    """The sectors of a line that a range of bytes touches, a bit each."""
    first, last = max(start - line * LINE, 0), min(start + size - line * LINE, LINE) - 1
    return ((2 << last // SECTOR) - 1) & -(1 << first // SECTOR) if first <= last else 0


@compiled
def count(sectors: int) -> int:
    """How many of four sectors."""
    return (sectors & 1) + (sectors >> 1 & 1) + (sectors >> 2 & 1) + (sectors >> 3 & 1)


@compiled
def read_range(S: Any, C: Any, start: int, size: int, t: int) -> tuple[int, int, int]:
    """Look up a range of bytes for a load, and fetch what is missing: (sectors missing, when the last one is there, settled from when on).

    The arrival of missing ones is that of an idle L2 until the chip says it (`arrive`).
    """
    missing, when, settled = 0, 0, 0
    tags = lines_of_cache(S.l1_at, S.l1_sets * L1_WAYS)
    for line in range(start // LINE, (start + size - 1) // LINE + 1):
        wanted = sectors_in(line, start, size)
        k = place(S, line)
        if k < 0:
            k = replace(S, line)
        e = tags[k]
        lacking = wanted & ~e.sectors
        if lacking:
            missing += count(lacking)
            e.sectors |= lacking
            e.when, e.settled = max(e.when, t + C.l2_latency_cy), max(e.settled, t + C.answer_cy)
        e.used = t
        when, settled = max(when, e.when), max(settled, e.settled)
        S.l1_sectors += count(wanted)
        S.l1_hits += count(wanted) - count(lacking)
    return missing, when, settled


@compiled
def read_lanes(S: Any, C: Any, W: Any, row: int, offset: int, m: int, width: int, t: int) -> tuple[int, int, int]:
    """`read_range` of every lane; lanes that follow one another in a sector look it up once."""
    missing, when, settled, begin, end = 0, 0, 0, 0, 0
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        address = get64(W, row, lane) + offset
        if address >= begin and address + width <= end:
            continue
        begin = address - address % SECTOR
        end = begin + (address % SECTOR + width + SECTOR - 1) // SECTOR * SECTOR
        more, late, sure = read_range(S, C, begin, end - begin, t)
        missing, when, settled = missing + more, max(when, late), max(settled, sure)
    return missing, when, settled


@compiled
def arrive(S: Any, C: Any, r: Any, when: int) -> int:
    """The chip has said when a load's missing sectors come; returns when all of its sectors are there."""
    if r.first:
        return arrive_range(S, C, r, r.first, 32 * r.width, when)
    latest, previous = when, -1
    for lane in range(32):
        if (r.mask >> lane) & 1 and r.address[lane] // LINE != previous:
            previous = r.address[lane] // LINE
            latest = max(latest, arrive_range(S, C, r, r.address[lane], r.width, when))
    return latest


@compiled
def arrive_range(S: Any, C: Any, r: Any, start: int, size: int, when: int) -> int:
    """`arrive` for a range of bytes."""
    tags, latest = lines_of_cache(S.l1_at, S.l1_sets * L1_WAYS), when
    for line in range(start // LINE, (start + size - 1) // LINE + 1):
        k = place(S, line)
        if k >= 0:
            e = tags[k]
            if r.bytes and e.settled == r.time + C.answer_cy:
                e.when = max(e.when, when)
            latest = max(latest, e.when)
    return latest


@compiled
def write_range(S: Any, C: Any, start: int, size: int, t: int) -> None:
    """A store: it passes on to L2, and the sectors that it writes whole are there from now on."""
    tags, first = lines_of_cache(S.l1_at, S.l1_sets * L1_WAYS), -(-start // SECTOR) * SECTOR
    for line in range(start // LINE, (start + size - 1) // LINE + 1):
        written = sectors_in(line, start, size)
        whole = sectors_in(line, first, (start + size) // SECTOR * SECTOR - first)
        k = place(S, line)
        if k < 0:
            k = replace(S, line)
        e = tags[k]
        S.l1_sectors += count(written)
        S.l1_hits += count(written & (e.sectors | e.written))
        e.sectors |= whole
        e.written |= written
        e.used, e.settled = t, t + C.answer_cy


@compiled
def forget(S: Any, start: int, size: int) -> None:
    """An atomic, or a load that goes past the L1: the lines of its bytes are no longer there (`l1_after`)."""
    for line in range(start // LINE, (start + size - 1) // LINE + 1):
        k = place(S, line)
        if k >= 0:
            e = lines_of_cache(S.l1_at, S.l1_sets * L1_WAYS)[k]
            e.tag = 0


@compiled
def empty(S: Any) -> None:
    """Nothing is there any more."""
    S.l1_epoch += EPOCH
