"""Global memory from one SM and from all of them: streams of loads, of stores, and of both.

One CTA an SM; a turn is `unroll` instructions of every thread, all in flight at once for loads.  Sources: `own`, a part of L2
for each SM; `shared`, one for all; `new`, lines that were not touched before.  A value is the median over the SMs of bytes a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tools.calibrate.bench import Bench, Row, Tables
from tools.calibrate.text import kernel, loop, registers

TURNS = (8, 24)
REGION = 1 << 17  # bytes of an SM's part of L2, or of the part for all
OWN, SHARED, NEW = "L2-hot-own", "L2-hot-shared", "HBM-stream"
VECTOR = {4: ".b32", 16: ".v4.b32"}

DECLARE = """    .reg .b64 %base, %mine, %at, %first;
    .reg .b32 %cta, %step, %here;
"""


def _values(i: int, width: int) -> str:
    names = [f"%v{i * width // 4 + k}" for k in range(width // 4)]
    return names[0] if width == 4 else "{" + ", ".join(names) + "}"


def stream(kind: str, threads: int, width: int, unroll: int, source: str) -> str:
    """`turns` turns of loads, stores, or a load and a store of each piece (`copy`: the store to the other half)."""
    piece, turn = threads * width, threads * width * unroll
    region = turn * (TURNS[1] + 1) if source == NEW else max(REGION, turn)
    body = "    add.u64 %at, %first, 0;\n    cvt.u64.u32 %base, %here;\n    add.u64 %at, %at, %base;\n"
    if kind != "store":
        for i in range(unroll):
            body += f"    ld.volatile.global{VECTOR[width]} {_values(i, width)}, [%at+{i * piece}];\n"
    if kind != "load":
        shift = region if kind == "copy" else 0
        for i in range(unroll):
            body += f"    st.global{VECTOR[width]} [%at+{shift + i * piece}], {_values(i, width)};\n"
    wrap = "" if source == NEW else f"    and.b32 %here, %here, {region - 1};\n"
    body += f"    add.u32 %here, %here, {turn};\n{wrap}"  # while the loads are on their way, as ptxas has it
    if kind == "load":
        body += "".join(f"    xor.b32 %sink, %sink, %v{k};\n" for k in range(unroll * width // 4))
    own = 0 if source == SHARED else region * (2 if kind == "copy" else 1)
    values = unroll * width // 4
    timed = "    mov.u32 %here, 0;\n    mov.u64 %start, %clock64;\n" + loop(body) + "    mov.u64 %end, %clock64;\n"
    timed += """    mul.wide.u32 %row, %cta, %step;
    mad.wide.u32 %row, %warp, 16, %row;
    add.u64 %row, %out, %row;
    @%first_lane st.global.u64 [%row], %start;
    @%first_lane st.global.u64 [%row+8], %end;
"""
    setup = f"""    mov.u32 %cta, %ctaid.x;
    mov.u32 %step, {threads // 32 * 16};
    mul.wide.u32 %first, %cta, {own};
    add.u64 %first, %first, %data;
    mul.wide.u32 %mine, %thread, {width};
    add.u64 %first, %first, %mine;
""" + "".join(f"    mov.b32 %v{k}, %thread;\n" for k in range(values))
    passes = 1 if source == NEW else 2
    declare = DECLARE + registers("v", values)
    return kernel(timed, declare=declare, setup=setup, sinks=("%sink",), clocks=False, passes=passes)


def median_rate(warps: int, per_turn: int) -> Callable[[Tables], float]:
    """Bytes a cycle of the middle SM, by the difference of two lengths."""

    def span(table: np.ndarray) -> float:
        rows = table.astype(np.int64).reshape(-1, warps, 2)
        return float(np.median(rows[:, :, 1].max(1) - rows[:, :, 0].min(1)))

    return lambda tables: (TURNS[1] - TURNS[0]) * per_turn / (span(tables[1]) - span(tables[0]))


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for sms in (1, 132):
        for source in (OWN, SHARED):
            for threads, unroll in ((32, 1), (128, 1), (128, 4), (512, 1), (512, 4), (1024, 1), (1024, 4)):
                yield _bench("load", sms, source, threads, 16, unroll)
        for threads, unroll in ((128, 4), (1024, 1), (1024, 4)):
            yield _bench("load", sms, OWN, threads, 4, unroll)
        for threads, unroll in ((128, 1), (128, 4), (512, 1), (512, 4), (1024, 4)):
            yield _bench("load", sms, NEW, threads, 16, unroll)
        for width in (4, 16):
            for threads, unroll in ((32, 1), (32, 4), (128, 4), (1024, 1), (1024, 4)):
                yield _bench("store", sms, OWN, threads, width, unroll)
        yield _bench("store", sms, NEW, 1024, 16, 4)
        for width, unroll in ((4, 1), (4, 4), (16, 1), (16, 4)):
            yield _bench("copy", sms, OWN, 1024, width, unroll)
        yield _bench("copy", sms, NEW, 512, 16, 4)


def _bench(kind: str, sms: int, source: str, threads: int, width: int, unroll: int) -> Bench:
    turn = threads * width * unroll
    region = turn * (TURNS[1] + 1) if source == NEW else max(REGION, turn)
    room = region * (2 if kind == "copy" else 1) * (1 if source == SHARED else sms)
    params = f"threads={threads};bytes={width};unroll={unroll};src={source};sms={sms}"
    row = Row(f"global_{kind}_throughput", params, median_rate(threads // 32, turn * (2 if kind == "copy" else 1)))
    text = stream(kind, threads, width, unroll, source)
    data = np.zeros(room // 4, np.float32)
    return Bench("memory", text, threads // 32, TURNS, (row,), 2, data=data, ctas=sms)
