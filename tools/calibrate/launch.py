"""CTAs: how fast they start, how fast a grid of short ones passes, what a store at their end costs.

A table has a row for each warp of the grid: start and end clock, and the SM's number plus one (zero: it wrote none).
Clocks of different SMs are not compared: every reading takes an SM's rows together and then the middle SM.  `turns` is the cycles for which a CTA keeps its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tools.calibrate.bench import Bench, Row, Tables
from tools.calibrate.text import HEADER

SMS = 132
START, END, SM = range(3)
HOLD = 40_000  # longer than it takes to fill an SM

DECLARE = """    .reg .b64 %out, %data, %start, %now, %spent, %hold, %row, %sm64, %at;
    .reg .b32 %turns, %thread, %lane, %index, %sm, %threads, %value;
    .reg .pred %more, %first, %stores;
"""
ADD = """    mov.u32 %value, %nctaid.x;
    mul.lo.u32 %value, %value, %threads;
    mul.wide.u32 %spent, %value, 4;
    ld.global.u32 %value, [%at];
    add.u64 %at, %at, %spent;
    ld.global.u32 %sm, [%at];
    add.u64 %at, %at, %spent;
    add.u32 %value, %value, %sm;
    st.global.u32 [%at], %value;
"""


def cta(end: str) -> str:
    """A CTA that waits `turns` cycles.  `end`: "nothing"; "store": every thread stores a word; "add": it loads two first."""
    last = "    st.global.u32 [%at], %lane;\n" if end == "store" else ADD if end == "add" else ""
    return f"""{HEADER}
.visible .entry bench(
    .param .u64 out,
    .param .u64 data,
    .param .u32 turns
)
{{
{DECLARE}    mov.u64 %start, %clock64;
    mov.u64 %now, %start;
    ld.param.u64 %out, [out];
    ld.param.u64 %data, [data];
    ld.param.u32 %turns, [turns];
    cvt.u64.u32 %hold, %turns;
    mov.u32 %thread, %tid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %index, %ctaid.x;
    mov.u32 %sm, %smid;
    add.u32 %sm, %sm, 1;
    cvt.u64.u32 %sm64, %sm;
    and.b32 %lane, %thread, 31;
    mad.lo.u32 %index, %index, %threads, %thread;
    mul.wide.u32 %at, %index, 4;
    add.u64 %at, %data, %at;
    shr.u32 %index, %index, 5;
    mul.wide.u32 %row, %index, 24;
    add.u64 %row, %out, %row;
    setp.eq.u32 %first, %lane, 0;
    setp.eq.u64 %more, %hold, 0;
    @%more bra STAMP;
HOLD:
    .pragma "nounroll";
    mov.u64 %now, %clock64;
    sub.u64 %spent, %now, %start;
    setp.lt.u64 %more, %spent, %hold;
    @%more bra HOLD;
STAMP:
{last}    setp.eq.u32 %stores, %thread, 0;
    setp.ne.or.b64 %stores, %hold, 0, %stores;
    and.pred %stores, %stores, %first;
    @%stores st.global.u64 [%row], %start;
    @%stores st.global.u64 [%row+8], %now;
    @%stores st.global.u64 [%row+16], %sm64;
    ret;
}}
"""


def _of_sms(table: np.ndarray) -> list[np.ndarray]:
    """Rows of warps that wrote them, an array for each SM."""
    rows = table[table[:, SM] != 0].astype(np.int64)
    return [rows[rows[:, SM] == sm] for sm in np.unique(rows[:, SM])]


def start_interval(warps: int) -> Callable[[Tables], float]:
    """Cycles from the start of a CTA to that of the next one, while an SM fills."""

    def read(tables: Tables) -> float:
        table = tables[-1].reshape(-1, warps, 3)
        firsts = np.stack([table[:, :, START].min(1), table[:, 0, END], table[:, 0, SM]], 1)
        spans = [(np.ptp(rows[:, START]), len(rows)) for rows in _of_sms(firsts)]
        return float(np.median([span / (count - 1) for span, count in spans if count > 1]))

    return read


def warp_interval(warps: int) -> Callable[[Tables], float]:
    """Cycles from the start of a warp to that of the next one of its CTA."""

    def read(tables: Tables) -> float:
        starts = tables[-1].reshape(-1, warps, 3)[:, :, START].astype(np.int64)
        return float(np.median(np.ptp(starts, axis=1)) / (warps - 1))

    return read


def passing(tables: Tables) -> float:
    """Cycles an SM for each CTA of a long grid: middle SM, from the first start to the last."""
    return float(np.median([np.ptp(rows[:, START]) / (len(rows) - 1) for rows in _of_sms(tables[-1])]))


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for threads in (32, 64, 128, 256, 512, 1024):
        warps = threads // 32
        resident = min(32, 2048 // threads)
        for each in sorted({1, 2, 4, 8, 16, resident} & set(range(1, resident + 1))):
            params = f"threads={threads};resident={each}"
            rows = []
            if each > 1:
                rows.append(Row("cta_start_interval", params, start_interval(warps)))
            if warps > 1:
                rows.append(Row("warp_start_interval", params, warp_interval(warps)))
            if rows:
                yield _bench("nothing", warps, HOLD, each, tuple(rows))
        for end in ("nothing", "store", "add"):
            for hold in (0, 1000)[: 2 - (end == "add")]:
                row = Row("cta_interval", f"threads={threads};end={end};hold={hold}", passing)
                yield _bench(end, warps, hold, 6 * resident, (row,))


def _bench(end: str, warps: int, hold: int, each: int, rows: tuple[Row, ...]) -> Bench:
    data = np.zeros(SMS * each * warps * 32 * {"nothing": 0, "store": 1, "add": 3}[end] + 4, np.uint32)
    return Bench("launch", cta(end), warps, (hold,), rows, 3, 0, data=data, ctas=SMS * each)
