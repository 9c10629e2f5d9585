"""The L1 data cache: what hits, how long that takes, how much fits beside shared memory, what empties it.

* `l1_chase`: a ring of pointers over `bytes`, one every `stride`; cycles a load.  With `stride` below a line and a region that no L1 holds: what a miss brings.
* `l1_after`: something (`first`) and then a load of another word of the sector, each dependent on the one before; cycles for both.  `walk`: on a new line each turn.
* `l1_hit_throughput`: loads that hit, bytes or instructions a cycle, by width and by how far the lanes are apart.
* `l1_second_warp`: a warp loads a line, then another one of the same CTA does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tools.calibrate.bench import Bench, Row, interval, rate
from tools.calibrate.text import kernel, loop, registers

KB = 1024
LINE = 128
CHAIN = 8  # loads in a turn of a chase
VECTOR = {4: ".b32", 8: ".v2.b32", 16: ".v4.b32"}


def chase(load: str, stride: int, size: int) -> str:
    """A dependent chain of `load`s around a ring that the kernel writes first."""
    setup = f"""    mul.wide.u32 %from, %thread, {stride};
    mov.u64 %limit, {size};
RING:
    add.u64 %to, %from, {stride};
    setp.ge.u64 %wrap, %to, %limit;
    selp.u64 %to, 0, %to, %wrap;
    add.u64 %to, %to, %data;
    add.u64 %at, %from, %data;
    st.global.u64 [%at], %to;
    add.u64 %from, %from, {32 * stride};
    setp.lt.u64 %wrap, %from, %limit;
    @%wrap bra RING;
    fence.acq_rel.gpu;
    mov.u64 %at, %data;
"""
    declare = "    .reg .b64 %at, %from, %to, %limit;\n    .reg .b32 %low;\n    .reg .pred %wrap;\n"
    timed = loop(f"    {load}.u64 %at, [%at];\n" * CHAIN)
    keep = "    cvt.u32.u64 %low, %at;\n"
    return kernel(timed + keep, declare=declare, setup=setup, sinks=("%low",))


def after(first: str, load: str, walk: bool) -> str:
    """A turn is `first`, which may use [%other], and a load from [%at]; with `walk` the next turn is on the next line."""
    setup = f"""    shr.u32 %none, %turns, 31;
    mov.u32 %value, 0;
    mov.u32 %step, {LINE if walk else 0};
    mov.u32 %here, 0;
"""
    declare = """    .reg .b64 %at, %other, %far, %policy, %wide;
    .reg .b32 %none, %value, %step, %here, %result;
    .reg .pred %odd;
"""
    body = f"""    and.b32 %value, %value, %none;
    add.u32 %here, %here, %step;
    add.u32 %value, %value, %here;
    cvt.u64.u32 %wide, %value;
    add.u64 %at, %data, %wide;
    cvt.u64.u32 %wide, %none;
    add.u64 %other, %at, %wide;
{first}    {load}.b32 %value, [%at];
"""
    return kernel(loop(body), declare=declare, setup=setup, sinks=("%value", "%result"))


FIRST = {
    "nothing": "",
    "st": "    st.global.b32 [%other+4], %none;\n",
    "st_sector": "    st.global.b32 [%other+32], %none;\n",
    "st_line": f"    st.global.b32 [%other+{LINE}], %none;\n",
    "red": "    red.global.add.u32 [%other+4], %none;\n",
    "red_sector": "    red.global.add.u32 [%other+32], %none;\n",
    "atom": "    atom.global.add.u32 %result, [%other+4], %turn;\n",
    "ld_cg": "    ld.global.cg.b32 %result, [%other+4];\n    and.b32 %result, %result, %none;\n    cvt.u64.u32 %wide, %result;\n    add.u64 %at, %at, %wide;\n",
    "ld_volatile": "    ld.volatile.global.b32 %result, [%other+4];\n    and.b32 %result, %result, %none;\n    cvt.u64.u32 %wide, %result;\n    add.u64 %at, %at, %wide;\n",
    "ld_sector": "    ld.global.b32 %result, [%other+32];\n    and.b32 %result, %result, %none;\n    cvt.u64.u32 %wide, %result;\n    add.u64 %at, %at, %wide;\n",
    "ld_acquire_cta": "    ld.acquire.cta.global.b32 %result, [%other+65536];\n",
    "ld_acquire": "    ld.acquire.gpu.global.b32 %result, [%other+65536];\n",
    "ld_relaxed": "    ld.relaxed.gpu.global.b32 %result, [%other+65536];\n",
    "fence_cta": "    fence.acq_rel.cta;\n",
    "fence": "    fence.acq_rel.gpu;\n",
    "fence_sc": "    fence.sc.gpu;\n",
    "bar": "    bar.sync 0;\n",
    "copy_ca": "    cp.async.ca.shared.global [%smem], [%other], 16;\n    cp.async.commit_group;\n    cp.async.wait_group 0;\n",
    "copy_ca4": "    cp.async.ca.shared.global [%smem], [%other], 4;\n    cp.async.commit_group;\n    cp.async.wait_group 0;\n",
    "copy_cg": "    cp.async.cg.shared.global [%smem], [%other], 16;\n    cp.async.commit_group;\n    cp.async.wait_group 0;\n",
}  # fmt: skip


def throughput(load: str, width: int, apart: int, threads: int, unroll: int) -> str:
    """Independent loads of `width` bytes a lane, lanes `apart` bytes, over twice what a turn loads."""
    piece, turn = threads * max(apart, 1), threads * max(apart, 1) * unroll
    body = "    cvt.u64.u32 %at, %here;\n    add.u64 %at, %at, %first;\n"
    names = [[f"%v{i * (width // 4) + k}" for k in range(width // 4)] for i in range(unroll)]
    for i in range(unroll):
        into = names[i][0] if width == 4 else "{" + ", ".join(names[i]) + "}"
        body += f"    {load}{VECTOR[width]} {into}, [%at+{i * piece}];\n"
    body += "".join(f"    xor.b32 %all, %all, {name};\n" for group in names for name in group)
    body += f"    xor.b32 %here, %here, {turn};\n"
    setup = f"    mul.wide.u32 %first, %thread, {apart};\n    add.u64 %first, %first, %data;\n    mov.u32 %here, 0;\n    mov.u32 %all, 0;\n"
    declare = "    .reg .b64 %at, %first;\n    .reg .b32 %here, %all;\n" + registers("v", unroll * width // 4)
    return kernel(loop(body), declare=declare, setup=setup, sinks=("%all",))


def second_warp(shift: int) -> str:
    """Warp 0 loads a new line, then warp 1 a word `shift` bytes behind."""
    setup = """    shr.u32 %none, %turns, 31;
    mov.u32 %value, 0;
    mov.u32 %here, 0;
    setp.eq.u32 %mine, %warp, 0;
"""
    declare = """    .reg .b64 %at, %wide;
    .reg .b32 %none, %value, %here;
    .reg .pred %mine;
"""
    step = "    and.b32 %value, %value, %none;\n    add.u32 %here, %here, %value;\n    bar.sync 0;\n"
    body = f"""    add.u32 %here, %here, {LINE};
    cvt.u64.u32 %wide, %here;
    add.u64 %at, %data, %wide;
    @%mine ld.global.b32 %value, [%at];
{step}    @!%mine ld.global.b32 %value, [%at+{shift}];
{step}"""
    return kernel(loop(body), declare=declare, setup=setup, sinks=("%value",))


SIZES = (8, 32, 64, 128, 160, 192, 208, 216, 224, 232, 240, 248, 256, 320, 512)
BESIDE = ((8, (216, 232, 240, 248)), (33, (160, 192, 208, 224)), (100, (96, 120, 128, 144, 160)), (164, (56, 80, 96, 128)), (200, (16, 24, 32, 48)), (227, (16, 24, 32)))  # fmt: skip
LOADS = ("ld.global", "ld.global.ca", "ld.global.cg", "ld.global.cs", "ld.global.lu", "ld.global.cv", "ld.global.nc", "ld.volatile.global",
         "ld.relaxed.cta.global", "ld.relaxed.gpu.global", "ld.acquire.cta.global", "ld.acquire.gpu.global", "ld.global.L1::no_allocate", "ld.global.nc.L1::no_allocate",
         "ld.global.L1::evict_first", "ld.global.L1::evict_last", "ld.global.L1::evict_unchanged", "ld")  # fmt: skip
# Strides that come back to the same sets, and how many lines.
SETS = ((4 * KB, 16), (4 * KB, 48), (32 * KB, 4), (32 * KB, 8), (32 * KB, 16), (32 * KB, 32), (64 * KB, 16))
WALKED = ("nothing", "st", "st_sector", "red", "ld_cg", "ld_sector", "ld_volatile", "copy_ca", "copy_ca4", "copy_cg")
# Bytes a lane, bytes from lane to lane (0: all at one address), threads.
APART = ((4, 0, 1024), (16, 0, 1024), (4, 8, 1024), (4, 16, 1024), (4, 32, 1024), (8, 32, 1024), (16, 32, 1024), (4, 128, 512),
         (16, 128, 512), (4, 36, 1024))  # fmt: skip


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for load in LOADS:
        yield _chase(load, LINE, 8 * KB)
    for size in SIZES[1:]:
        yield _chase("ld.global", LINE, size * KB)
    for shared, sizes in BESIDE:
        for size in sizes:
            yield _chase("ld.global", LINE, size * KB, shared * KB)
    for load in ("ld.global", "ld.global.nc", "ld.global.cg"):
        for stride in (32, 64, LINE):
            yield _chase(load, stride, 1024 * KB)
    for stride, lines in SETS:
        yield _chase("ld.global", stride, stride * lines)
    for first in FIRST:
        yield _after(first, False)
    for first in WALKED:
        yield _after(first, True)
    for width in VECTOR:
        for threads, unroll in ((32, 1), (128, 1), (512, 4), (1024, 4)):
            yield _throughput("ld.global", width, width, threads, unroll)
    for width, apart, threads in APART:
        yield _throughput("ld.global", width, apart, threads, 1)
    for shift in (4, 32, 64 * KB):
        row = Row("l1_second_warp", f"shift={shift}", interval((8, 40), 1))
        yield Bench("l1", second_warp(shift), 2, (8, 40), (row,), data=np.zeros(256 * KB // 4, np.float32))


def _chase(load: str, stride: int, size: int, shared: int = 0) -> Bench:
    lap = max(size // stride // CHAIN, 64) if size <= 512 * KB else 128
    turns = (lap, 2 * lap)
    params = f"load={load};stride={stride};bytes={size};shared={shared}"
    row = Row("l1_chase", params, interval(turns, CHAIN))
    text = f"// {shared} bytes of shared memory\n{chase(load, stride, size)}"  # a kernel is set up for its shared memory once
    return Bench("l1", text, 1, turns, (row,), shared=max(shared, 128), data=np.zeros(size // 4, np.float32))


def _after(first: str, walk: bool) -> Bench:
    turns = (16, 64)
    row = Row("l1_after", f"first={first};walk={int(walk)}", interval(turns, 1))
    data = np.zeros(128 * KB // 4, np.float32)
    return Bench("l1", after(FIRST[first], "ld.global", walk), 1, turns, (row,), data=data)


def _throughput(load: str, width: int, apart: int, threads: int, unroll: int) -> Bench:
    turns = (16, 64)
    params = f"load={load};bytes={width};apart={apart};threads={threads};unroll={unroll}"
    row = Row("l1_hit_throughput", params, rate(turns, threads // 32 * unroll))
    data = np.zeros(max(2 * threads * max(apart, 1) * unroll, 64 * KB) // 4, np.float32)
    return Bench("l1", throughput(load, width, apart, threads, unroll), threads // 32, turns, (row,), data=data)
