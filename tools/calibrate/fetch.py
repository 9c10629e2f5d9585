"""Instruction fetch and the constant bank: what code and parameters cost when an SM meets them for the first time.

Straight code runs `PASSES` times in one launch.  In the first pass of a first launch no cache has it; the second pass shows which
cache still holds that much of it (the third one was the same); when the kernel is launched `again`, the SMs still have up to 128 KB.
An SM's value is that of its slowest warp; with several CTAs the middle SM counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tools.calibrate.bench import Bench, Box, Row, Tables
from tools.calibrate.text import HEADER, kernel, registers

PASSES = 3
WORDS = (0, 0x10, 0x40, 0x48)  # of the map: a new line of 64 bytes, the same, another one, the same
CONSTANT_READS = (0, 2)  # of those the first ones, which ptxas makes ULDC; it loads the others through LDC
CHAINS = 8
JUMPS = 8
SIZES = (128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
SLOW = (256, 1024, 4096)
WARPS = ((1, 1), (4, 132))  # of a CTA, CTAs
STRIDES = (32, 64, 128, 256, 1024, 4096)  # instructions that a jump passes over


def _filler(count: int, chains: int = CHAINS) -> str:
    """FFMA on eight chains, one a cycle, or on one, one in four cycles."""
    return "".join(f"    fma.rn.f32 %c{i % chains}, %c{i % chains}, %k0, %k1;\n" for i in range(count))


def _clock(index: int) -> str:
    return f"    mov.u64 %t{index}, %clock64;\n"


def _stores(stamps: int, condition: str, row: str) -> str:
    return "".join(f"    @{condition} st.global.u64 [{row}+{8 * i}], %t{i};\n" for i in range(stamps))


def _kernel(timed: str, stamps: int) -> str:
    """A kernel whose timed part reads `stamps` clocks in each pass; a warp's row has those of all passes."""
    values = "".join(f"    add.u32 %wait, %thread, {i};\n    mov.b32 %c{i}, %wait;\n" for i in range(CHAINS))
    setup = f"""    mov.u32 %wait, %ctaid.x;
    mov.u32 %sink, %ntid.x;
    mad.lo.u32 %wait, %wait, %sink, %thread;
    shr.u32 %wait, %wait, 5;
    mad.wide.u32 %row, %wait, {8 * stamps * PASSES}, %out;
    setp.ne.u32 %go, %turns, 0;
    mov.b32 %k0, %turns;
    mov.b32 %k1, %lane;
{values}"""
    return kernel(
        f"{timed}{_stores(stamps, '%first_lane', '%row')}    add.u64 %row, %row, {8 * stamps};\n",
        declare=registers("t", stamps, "b64") + registers("c", CHAINS) + registers("k", 2) + "    .reg .pred %go;\n",
        setup=setup,
        sinks=tuple(f"%c{i}" for i in range(CHAINS)),
        passes=PASSES,
        clocks=False,
    )


def straight(count: int, chains: int = CHAINS) -> str:
    """`count` instructions in one line between two clocks."""
    return _kernel(_clock(0) + _filler(count, chains) + _clock(1), 2)


def jumping(stride: int) -> str:
    """Jumps over `stride` instructions each that nothing else brings into the caches, a clock after each."""
    lines = [_clock(0)]
    for jump in range(JUMPS):
        lines += [f"    @%go bra OVER{jump};\n", _filler(stride), f"OVER{jump}:\n", _clock(jump + 1)]
    return _kernel("".join(lines), JUMPS + 1)


def constants() -> str:
    """A clock before and after the first use of parameters that no other instruction has read.

    Parameters begin at 0x210 of the constant bank, the map lies at 0x240; code before the first clock reads 0x208 and 0x28.
    """
    words = "".join(
        f"    ld.param.u32 %word, [map+{offset}];\n    add.u32 %x, %x, %word;\n{_clock(i + 1)}"
        for i, offset in enumerate(WORDS)
    )
    return f"""{HEADER}
.visible .entry bench(
    .param .u64 out,
    .param .u64 data,
    .param .u32 turns,
    .param .align 64 .b8 map[128]
)
{{
    .reg .b64 %out, %data, %t<{len(WORDS) + 1}>;
    .reg .b32 %x, %word;
    .reg .pred %first, %never;
    mov.u32 %x, %tid.x;
    ld.param.u64 %out, [out];
    ld.param.u64 %data, [data];
    setp.eq.u32 %first, %x, 0;
    bar.sync 0;
{_clock(0)}{words}{_stores(len(WORDS) + 1, "%first", "%out")}    setp.eq.u32 %never, %x, 0x12345678;
    @%never st.global.u32 [%data], %x;
    ret;
}}
"""


def between(first: int, last: int, warps: int, each: int = 1) -> Callable[[Tables], float]:
    """Cycles between two clocks of a warp: an SM's slowest warp, the middle SM; divided by `each`."""

    def read(tables: Tables) -> float:
        spent = (tables[-1][:, last] - tables[-1][:, first]).astype(np.int64)
        return float(np.median(spent.reshape(-1, warps).max(1)) / each)

    return read


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for launch in ("first", "again"):
        for count, chains in (*((n, CHAINS) for n in SIZES), *((n, 1) for n in SLOW)):
            text = straight(count, chains)
            for warps, ctas in WARPS:
                params = f"instructions={count};chains={chains};warps={warps};ctas={ctas};launch={launch}"
                rows = [Row("fetch_pass", f"{params};pass={p}", between(2 * p, 2 * p + 1, warps)) for p in (0, 1)]
                yield _bench(text, warps, rows, 2 * PASSES, ctas, launch)
        for stride in STRIDES:
            params = f"instructions={stride};warps=1;ctas=1;launch={launch}"
            rows = [
                Row("fetch_jump", f"{params};pass={p}", between((JUMPS + 1) * p, (JUMPS + 1) * p + JUMPS, 1, JUMPS))
                for p in (0, 1)
            ]
            yield _bench(jumping(stride), 1, rows, (JUMPS + 1) * PASSES, 1, launch)
        rows = [
            Row("fetch_constant", f"offset={0x240 + at:#x};launch={launch}", between(i, i + 1, 1))
            for i, at in enumerate(WORDS)
            if i in CONSTANT_READS
        ]
        yield replace(_bench(constants(), 1, rows, len(WORDS) + 1, 1, launch), box=Box(64, 64, 64, 8, 128))


def _bench(text: str, warps: int, rows: list[Row], slots: int, ctas: int, launch: str) -> Bench:
    return Bench("fetch", text, warps, (1,), tuple(rows), slots, ctas=ctas, launch=launch)
