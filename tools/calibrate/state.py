"""What SMs keep in global memory and go through again and again, as FlashAttention-1 does with its outputs.

One CTA an SM, which owns `kb` KB; a round reads them (`load`), writes them (`store`), reads and rewrites every piece
(`update`), or reads one half and writes the other (`copy`), a tile of 32 KB at a time.  What counts are rounds that find in L2
what the earlier ones left: all, a part, or nothing of it, and lines that have to be written back.  Access: `lines`, 16
bytes a lane side by side, 16 warps; `rows`, that of fa1: four warps, 8 rows of 32 bytes a warp.  Rows of a tile are 512
bytes, one behind the other or (`heads`) with those of all other CTAs between them.  Loads go past L1.
A value is the median over the SMs of bytes read and written a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tools.calibrate.bench import Bench, Row, Tables
from tools.calibrate.text import kernel, loop, registers

ROUNDS = (1, 5)
TILE = 1 << 15  # bytes
ROW = 512  # bytes of a tile's row
LINES, ROWS, HEADS = "lines", "rows", "heads"
Sizes = tuple[tuple[int, tuple[int, ...]], ...]  # (SMs, KB of each)
WHOLE: Sizes = ((1, (64, 8192)), (33, (256, 2048, 4096)), (66, (128, 1024, 2048)), (132, (64, 256, 384, 512, 1024)))
PIECES: Sizes = ((1, (512, 8192)), (66, (256, 1024)), (132, (64, 256, 512, 1024)))
KINDS = ("load", "store", "update", "copy")


@dataclass(frozen=True)
class Access:
    """How a CTA's threads go through a tile: byte offsets of a thread's accesses, `width` bytes each."""

    threads: int
    width: int
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, name: str, pitch: int) -> Access:
        """That of LINES, or of rows that lie `pitch` bytes apart."""
        if name == LINES:
            return cls(512, 16, tuple(range(0, TILE, 512 * 16)))
        return cls(128, 8, tuple(half * 8 * pitch + at for half in range(2) for at in range(0, ROW, 32)))

    def values(self, i: int) -> str:
        """Registers of access `i`."""
        words = self.width // 4
        return "{" + ", ".join(f"%v{i * words + k}" for k in range(words)) + "}"


DECLARE = """    .reg .b64 %mine, %at, %to, %first;
    .reg .b32 %cta, %left, %line, %part, %none;
    .reg .pred %more;
"""
# Stores come behind all loads of the tile: their address depends on the values (%none is zero, which ptxas does not know).
BEHIND = """    and.b32 %part, %sink, %none;
    cvt.u64.u32 %mine, %part;
    add.u64 %to, %at, %mine;
"""


def place(name: str, pitch: int) -> str:
    """%first of a thread: from its CTA's first byte to its own."""
    if name == LINES:
        return "    mul.wide.u32 %mine, %thread, 16;\n    add.u64 %first, %first, %mine;\n"
    return f"""    shr.u32 %line, %lane, 2;
    mad.lo.u32 %line, %warp, 16, %line;
    mul.wide.u32 %mine, %line, {pitch};
    add.u64 %first, %first, %mine;
    and.b32 %part, %lane, 3;
    mul.wide.u32 %mine, %part, 8;
    add.u64 %first, %first, %mine;
"""


def rounds(kind: str, tiles: int, name: str, sms: int) -> str:
    """`turns` rounds over the CTA's `tiles` tiles."""
    pitch = ROW * sms if name == HEADS else ROW
    access = Access.of(name, pitch)
    vector = f".v{access.width // 4}.b32"
    count = len(access.offsets) * access.width // 4
    apart = tiles * TILE * (sms if name == HEADS else 1)  # a copy's other half
    body = "    add.u64 %to, %at, 0;\n"
    if kind != "store":
        for i, offset in enumerate(access.offsets):
            body += f"    ld.global.cg{vector} {access.values(i)}, [%at+{offset}];\n"
        body += "".join(f"    xor.b32 %sink, %sink, %v{k};\n" for k in range(count)) + BEHIND
    if kind == "load":
        body += "    @!%never bra NEVER;\n"  # the values stay alive together
    for i, offset in enumerate(access.offsets):
        body += f"    st.global{vector} [%to+{offset + (apart if kind == 'copy' else 0)}], {access.values(i)};\n"
    body += "NEVER:\n"
    walk = f"""    add.u64 %at, %first, 0;
    mov.u32 %left, {tiles};
TILE:
    .pragma "nounroll";
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
{body}    add.u64 %at, %at, {TILE // ROW * pitch};
    @%more bra TILE;
"""
    timed = f"""    mov.u64 %start, %clock64;
{loop(walk)}    mov.u64 %end, %clock64;
    mul.wide.u32 %row, %cta, {access.threads // 32 * 16};
    mad.wide.u32 %row, %warp, 16, %row;
    add.u64 %row, %out, %row;
    @%first_lane st.global.u64 [%row], %start;
    @%first_lane st.global.u64 [%row+8], %end;
"""
    own = ROW if name == HEADS else tiles * TILE * (2 if kind == "copy" else 1)
    setup = f"""    mov.u32 %cta, %ctaid.x;
    mov.u32 %sink, 0;
    shr.u32 %none, %turns, 31;
    setp.ne.u32 %never, %none, 0;
    mul.wide.u32 %first, %cta, {own};
    add.u64 %first, %first, %data;
{place(name, pitch)}"""
    setup += "".join(f"    mov.b32 %v{k}, %thread;\n" for k in range(count))
    declare = DECLARE + registers("v", count)
    return kernel(timed, declare=declare, setup=setup, clocks=False, passes=1)


def later_rate(warps: int, size: int) -> Callable[[Tables], float]:
    """Bytes a cycle of the middle SM in all rounds but the first, of `size` bytes each."""
    return lambda tables: (ROUNDS[1] - ROUNDS[0]) * size / (_span(tables[1], warps) - _span(tables[0], warps))


def _span(table: np.ndarray, warps: int) -> float:
    rows = table.astype(np.int64).reshape(-1, warps, 2)
    return float(np.median(rows[:, :, 1].max(1) - rows[:, :, 0].min(1)))


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for kind in KINDS:
        for sms, sizes in WHOLE:
            for kb in sizes:
                yield bench(kind, kb, LINES, sms)
    for kind in KINDS[:3]:
        for name in (ROWS, HEADS):
            for sms, sizes in PIECES:
                for kb in sizes:
                    yield bench(kind, kb, name, sms)


def bench(kind: str, kb: int, name: str, sms: int) -> Bench:
    """`kb` KB of an SM, which for a copy are both halves."""
    tiles = kb * 1024 // TILE // (2 if kind == "copy" else 1)
    access = Access.of(name, ROW)
    warps, size = access.threads // 32, tiles * TILE * (2 if kind in ("update", "copy") else 1)
    params = f"kb={kb};access={name};sms={sms}"
    rows = (Row(f"state_{kind}", params, later_rate(warps, size)),)
    data = np.zeros(kb * 256 * sms, np.float32)
    return Bench("state", rounds(kind, tiles, name, sms), warps, ROUNDS, rows, 2, data=data, ctas=sms)
