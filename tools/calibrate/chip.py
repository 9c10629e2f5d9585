"""The whole chip: rings of bulk loads on many SMs (section C): own data in L2, one region for all, new data from memory.

One CTA an SM, one elected thread each, as in `tools.calibrate.tma`.  A value is the median over the SMs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tools.calibrate.barriers import wait
from tools.calibrate.bench import Bench, Box, Row, Tables
from tools.calibrate.text import kernel, loop
from tools.calibrate.tma import BUFFER, DECLARE, elected, load, setup

TURNS = (16, 48)
SHARED_REGION = 128 << 10  # bytes that every SM walks through in "shared" rows
OWN, SHARED, MEMORY = "L2-hot-own", "L2-hot-shared", "HBM-stream"
ROW = 128  # bytes of a row of the matrix


def ring(box: Box, stages: int, region: int, source: str) -> str:
    """`tma.ring` from the CTA's own `region` rows, or the first ones for all; a stream goes through them once."""

    def refill(stage: int) -> str:
        return f"""    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar+{8 * stage}], {box.bytes};
    add.u32 %at, %base, %row_at;
{load(0, "%at", f"%buffer+{stage * box.bytes}", f"%bar+{8 * stage}")}    add.u32 %row_at, %row_at, {box.box_rows};
    and.b32 %row_at, %row_at, {region - 1};
"""

    steps = "".join(wait(f"%bar+{8 * s}", f"FULL{s}") + refill(s) for s in range(stages))
    drain = "".join(wait(f"%bar+{8 * s}", f"DRAIN{s}") for s in range(stages))
    own = "0" if source == SHARED else f"{region}"
    body = f"""    mov.u32 %row_at, 0;
    mov.u64 %start, %clock64;
{"".join(refill(s) for s in range(stages))}{loop(steps + "    xor.b32 %parity, %parity, 1;" + chr(10))}{drain}    xor.b32 %parity, %parity, 1;
    mov.u64 %end, %clock64;
    mul.wide.u32 %mine, %cta, 16;
    add.u64 %mine, %out, %mine;
    st.global.u64 [%mine], %start;
    st.global.u64 [%mine+8], %end;
"""
    declare = DECLARE + "    .reg .b32 %at, %base, %cta;\n    .reg .b64 %mine;\n"
    start = f"{setup(stages)}    mov.b32 %parity, 0;\n    mov.u32 %cta, %ctaid.x;\n    mul.lo.u32 %base, %cta, {own};\n"
    passes = 1 if source == MEMORY else 2
    return kernel(elected(body), declare=declare, setup=start, clocks=False, tensor_map=True, passes=passes)


def median_rate(per_turn: int) -> Callable[[Tables], float]:
    """Bytes a cycle of the middle SM, by the difference of two lengths."""

    def read(tables: Tables) -> float:
        short, long = (float(np.median(t[:, 1].astype(np.int64) - t[:, 0].astype(np.int64))) for t in tables)
        return (TURNS[1] - TURNS[0]) * per_turn / (long - short)

    return read


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for sms in (66, 132):
        for source in (OWN, SHARED, MEMORY):
            for size in (4096, 8192, 16384, 32768):
                for stages in (1, 2, 4, 6):
                    yield _bench(sms, source, size, stages)


def _bench(sms: int, source: str, size: int, stages: int) -> Bench:
    bytes_each = SHARED_REGION
    if source == MEMORY:
        bytes_each = 1 << (stages * size * (TURNS[1] + 1) - 1).bit_length()
    region = bytes_each // ROW
    box = Box(ROW // 2, region * (1 if source == SHARED else sms), ROW // 2, size // ROW, 128)
    params = f"bytes={size};swizzle=128B;stages={stages};src={source};sms={sms}"
    rows = (Row("tma2d_throughput", params, median_rate(size * stages)),)
    shared = BUFFER + stages * size
    return Bench("chip", ring(box, stages, region, source), 1, TURNS, rows, 2, shared, box, ctas=sms)
