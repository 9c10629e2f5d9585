"""Bursts over registers of their own beside a running tensor core, as attention rescales its accumulators.

The bursts of `mixed` are eight chains, which ptxas reorders and breaks by stalls of three cycles.  Here every
instruction has a register of its own, multiplied by a value that the reuse cache holds, so that the SASS is one unbroken
stream; clock reads on both sides time it, and a chain of dependent FMNMX follows.  Warpgroup 0 issues products
(`beside`), or each warpgroup issues its own and bursts while they run (`own`).  In a `race` two or three warps of a
sub-partition start together; when the first, second and third of them end tells how the scheduler chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tools.calibrate.bench import Bench, Row, Tables, span
from tools.calibrate.mixed import BATCH, BATCHES, FLAG, GROUP, TOTAL, products
from tools.calibrate.text import COUNTED, kernel, load_data, loop, registers, store, until_flag
from tools.calibrate.wgmma import COMMIT, FENCE, WAIT, Shape

REGISTERS = 128  # at most: registers of a burst; a longer one goes through them again
CHAIN = 16  # dependent FMNMX of a turn of the chain, 4 cycles each and more
# What a step does to its register x: the f are the same for all steps, y has as many registers as x.
STEPS = {
    "fmul": "mul.f32 %x{i}, %x{i}, %f0;",
    "fadd": "add.f32 %x{i}, %x{i}, %f1;",
    "ffma": "fma.rn.f32 %x{i}, %x{i}, %f0, %f1;",
    "fmul pairs": "mul.f32 %x{i}, %x{i}, %y{i};",
    "fmnmx": "max.f32 %x{i}, %x{i}, %f0;",
    "ex2": "ex2.approx.ftz.f32 %x{i}, %x{i};",
    "ex2+fadd": "ex2.approx.ftz.f32 %x{i}, %x{i};\n    add.f32 %z, %z, %x{i};",
}
SHAPES = (("F16", 256, "SS"), ("F16", 256, "RS"), ("F16", 128, "RS"), ("F16", 80, "SS"), ("F16", 64, "RS"))
DATA = np.linspace(0.999, 1.001, 2 * 4096, dtype=np.float32)  # as `default_data`, with a word for every register
LENGTHS = (16, 32, 64, 96, 128, 192)


def registers_of(op: str, length: int, most: int) -> int:
    """Registers that a burst goes through."""
    return min(length, most // 2 if op == "fmul pairs" else most)


def burst(op: str, length: int, most: int) -> str:
    """The burst between two clock reads, whose difference is added to %took."""
    count = registers_of(op, length, most)
    steps = "".join(f"    {STEPS[op].format(i=i % count)}\n" for i in range(length))
    return (
        f"    mov.u64 %before, %clock64;\n{steps}    mov.u64 %after, %clock64;\n"
        "    sub.u64 %after, %after, %before;\n    add.u64 %took, %took, %after;\n"
    )


def chain(turns: int) -> str:
    """Dependent FMNMX, a loop so that ptxas leaves them behind the burst."""
    links = "".join(f"    {('max', 'min')[i % 2]}.f32 %z, %z, %f{i % 4};\n" for i in range(CHAIN))
    return f'    mov.u32 %link, {turns};\nCHAIN:\n    .pragma "nounroll";\n{links}' + (
        "    sub.u32 %link, %link, 1;\n    setp.ne.u32 %linked, %link, 0;\n    @%linked bra CHAIN;\n"
    )


def _declare(op: str, length: int, most: int) -> str:
    count = registers_of(op, length, most)
    return (
        registers("x", count, "f32")
        + (registers("y", count, "f32") if op == "fmul pairs" else "")
        + registers("f", 4, "f32")
        + "    .reg .f32 %z;\n    .reg .b64 %before, %after, %took;\n    .reg .b32 %link, %count, %stop, %flag;\n"
        + "    .reg .pred %linked, %zero, %beside;\n    .reg .b64 %counted;\n"
    )


def _setup(op: str, length: int, most: int) -> str:
    count = registers_of(op, length, most)
    pairs = load_data("y", count, first=4 + count) if op == "fmul pairs" else ""
    return f"""{load_data("f", 4)}{load_data("x", count, first=4)}{pairs}    mov.f32 %z, %f0;
    add.u32 %flag, %smem, {FLAG};
    setp.eq.u32 %zero, %thread, 0;
"""


def _sinks(op: str, length: int, most: int) -> tuple[str, ...]:
    return (*(f"%x{i}" for i in range(registers_of(op, length, most))), "%z")


def beside(shape: Shape, op: str, length: int, turns: int, most: int) -> str:
    """Warpgroup 0 runs batches of products, the others burst and chain until the flag is set."""
    second = burst(op, length, most) + chain(turns)
    timed = until_flag(products(shape), second, others="%beside", clear="    mov.u64 %took, 0;\n")
    setup = shape.setup() + _setup(op, length, most)
    declare = shape.declare() + _declare(op, length, most)
    timed += store((*COUNTED, ("%took", 3)), 4)
    return kernel(timed, declare=declare, setup=setup, sinks=("%d0", *_sinks(op, length, most)), clocks=False)


def own(shape: Shape, count: int, op: str, length: int, turns: int, most: int) -> str:
    """`turns` of the launch: products of the warpgroup, a burst while they run, their end, a chain."""
    body = FENCE + shape.text() * count + COMMIT + burst(op, length, most) + WAIT + chain(turns)
    timed = f"    mov.u64 %took, 0;\n    mov.u64 %start, %clock64;\n{loop(body)}    mov.u64 %end, %clock64;\n"
    stores = "    cvt.u64.u32 %counted, %turns;\n" + store((*COUNTED, ("%took", 3)), 4)
    setup = shape.setup() + _setup(op, length, most)
    declare = shape.declare() + _declare(op, length, most)
    return kernel(timed + stores, declare=declare, setup=setup, sinks=("%d0", *_sinks(op, length, most)), clocks=False)


def race(shape: Shape | None, op: str, length: int, most: int) -> str:
    """Every warp bursts once after a barrier; with a shape, warpgroup 0 runs products meanwhile instead."""
    work = (
        ""
        if shape is None
        else f"""    setp.ge.u32 %beside, %warp, 4;
    @%beside bra.uni BESIDE;
{FENCE}{shape.text() * BATCH}{COMMIT}    mov.u64 %start, %clock64;
    mov.u64 %after, %start;
{WAIT}    bra DONE;
BESIDE:
{chain(4)}"""
    )
    timed = f"""    mov.u64 %took, 0;
    bar.sync 0;
{work}{burst(op, length, most)}    sub.u64 %start, %after, %took;
DONE:
"""
    stores = store((("%start", 0), ("%took", 1)), 2)
    setup = (shape.setup() if shape else "") + _setup(op, length, most)
    declare = (shape.declare() if shape else "") + _declare(op, length, most)
    sinks = (*(("%d0",) if shape else ()), *_sinks(op, length, most))
    return kernel(timed + stores, declare=declare, setup=setup, sinks=sinks, clocks=False)


def _place(nth: int, first: int, warps: int) -> Callable[[Tables], float]:
    """When the nth warp of a sub-partition ends, from the first start on; mean of the sub-partitions."""

    def read(tables: Tables) -> float:
        mine = tables[-1][first : first + warps].astype(np.int64).reshape(-1, 4, 2)
        ends = np.sort(mine.sum(2), axis=0)
        return float((ends[nth] - mine[:, :, 0].min(0)).mean())

    return read


def _race(fields: tuple[str, int, str] | None, op: str, length: int, warps: int) -> Bench:
    shape, first = (Shape(*fields), 4) if fields else (None, 0)
    beside = f"type={shape.type};n={shape.n};a={shape.a}" if shape else "n=0"
    params = f"{beside};op={op};burst={length};warps={warps}"
    rows = tuple(Row("burst_race", f"{params};nth={n}", _place(n, first, warps)) for n in range(warps // 4))
    text = race(shape, op, length, min(_most(shape.n if shape else 0, first + warps), 64))
    return Bench("bursts", text, first + warps, (1,), rows, 2, TOTAL, data=DATA)


def _most(n: int, warps: int) -> int:
    """Registers for bursts: what is left of a thread's share beside the accumulators and some thirty more."""
    share = min(65536 // (32 * warps) // 8 * 8, 255)
    return min((share - n // 2 - 36) // 16 * 16, REGISTERS)


def _took(tables: Tables, warps: range) -> float:
    rows = tables[0][list(warps)]
    return float(rows[:, 3].sum()) / float(rows[:, 2].sum())


def _beside(fields: tuple[str, int, str], op: str, length: int, turns: int, warps: int) -> Bench:
    shape, others = Shape(*fields), range(4, 4 + warps)
    params = f"type={shape.type};n={shape.n};a={shape.a};op={op};burst={length};chain={CHAIN * turns};warps={warps}"
    rows = (
        Row("burst_with_wgmma", params, lambda tables: _took(tables, others)),
        Row("wgmma_with_burst", params, lambda tables: span(tables[0], GROUP) / (BATCH * BATCHES)),
    )
    text = beside(shape, op, length, turns, _most(shape.n, 4 + warps))
    return Bench("bursts", text, 4 + warps, (BATCHES,), rows, 4, TOTAL, data=DATA)


def _own(fields: tuple[str, int, str], count: int, op: str, length: int, turns: int, wgs: int) -> Bench:
    shape = Shape(*fields)
    params = f"type={shape.type};n={shape.n};a={shape.a};products={count};op={op};burst={length};chain={CHAIN * turns};wgs={wgs}"
    launches = (64,)
    rows = (
        Row("burst_with_own_wgmma", params, lambda tables: _took(tables, range(4 * wgs))),
        Row("own_wgmma_turn", params, lambda tables: float(np.int64(span(tables[0]))) / (launches[0] * wgs)),
    )
    text = own(shape, count, op, length, turns, _most(shape.n, 4 * wgs))
    return Bench("bursts", text, 4 * wgs, launches, rows, 4, TOTAL, data=DATA)


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for fields in SHAPES:
        for length in LENGTHS:
            for turns in (2, 16):
                for warps in (4, 8) if fields[1] < 256 else (4,):
                    yield _beside(fields, "fmul", length, turns, warps)
        for op in ("fadd", "ffma", "fmul pairs", "fmnmx"):
            for length in (64, 128):
                yield _beside(fields, op, length, 2, 4)
    for fields, count in (
        (("F16", 80, "SS"), 16),
        (("F16", 176, "SS"), 8),
        (("F16", 64, "RS"), 12),
        (("F16", 128, "RS"), 8),
    ):
        for length in (32, 64, 128, 192):
            for wgs in (1, 2):
                yield _own(fields, count, "fmul", length, 2, wgs)
    for race_of in (None, ("F16", 128, "RS")):
        for op in ("fmul", "ffma", "fmnmx", "ex2", "ex2+fadd"):
            for length in (32, 128):
                for warps in (8, 12):
                    yield _race(race_of, op, length, warps)
