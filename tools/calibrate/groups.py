"""Groups of wgmma as attention and matrix products issue them: where the issuing warp waits.

One to three warpgroups go through groups of `count` products on one accumulator: fence, products, commit, `wait_group` of
`left`.  With `wait=ready` an mbarrier whose phase has ended is tested before each group, as a consumer of full buffers does.
Stamped kernels read the clock after every step in one straight line; steady ones loop, and their warps' states can be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tools.calibrate.barriers import wait
from tools.calibrate.bench import Bench, Row, Tables, interval
from tools.calibrate.text import kernel, loop, registers
from tools.calibrate.wgmma import COMMIT, FENCE, SHARED, Shape

BARRIER = SHARED  # shared memory: the barrier lies behind the operands
TOTAL = SHARED + 64
TURNS = (4, 20)
UNROLL = 4  # groups of a steady kernel's turn

# (type, n, a), products of a group, groups that may stay, warpgroups, barrier before each group
CASES = (
    *((("F16", 256, "SS"), 4, left, wgs, "none") for left in (0, 1) for wgs in (1, 2, 3)),
    *((("F16", 256, "SS"), 4, 1, wgs, "ready") for wgs in (1, 2)),
    *((("F16", 128, "SS"), 4, left, wgs, "none") for left in (0, 1) for wgs in (1, 2, 3)),
    (("F16", 128, "SS"), 4, 1, 2, "ready"),
    *((("F16", 256, "SS"), 2, left, 2, "none") for left in (0, 1)),
    *((("F16", 176, "SS"), 8, 0, wgs, "none") for wgs in (1, 2)),
    *((("F16", 128, "RS"), count, 0, wgs, "none") for count in (4, 8) for wgs in (1, 2)),
    (("F16", 64, "RS"), 8, 0, 3, "none"),
    (("F16", 64, "SS"), 8, 0, 3, "none"),
)


def _wait(left: int) -> str:
    return f"    wgmma.wait_group.sync.aligned {left};\n"


def _ready(number: str) -> str:
    """Test the barrier whose first phase has ended."""
    return wait("%bar", f"READY{number}", "0")


def _groups_of(wgs: int) -> int:
    """Stamped groups: their clocks stay in registers."""
    return 6 if wgs < 3 else 3


def events(count: int, barrier: str) -> int:
    """Clocks of a stamped group: before it (and after the barrier), after each product, the commit and the wait."""
    return count + 3 + (barrier == "ready")


DECLARE = "    .reg .b32 %bar;\n    .reg .b64 %wide;\n    .reg .pred %done, %one;\n"


def _setup(shape: Shape) -> str:
    return f"""{shape.setup()}    add.u32 %bar, %smem, {BARRIER};
    setp.eq.u32 %one, %thread, 0;
    @%one mbarrier.init.shared::cta.b64 [%bar], 1;
    bar.sync 0;
    @%one mbarrier.arrive.shared::cta.b64 _, [%bar];
    bar.sync 0;
"""


def stamped(shape: Shape, count: int, left: int, groups: int, barrier: str, each: bool = True) -> str:
    """Straight line with a clock after every step; without `each`, none between the products."""
    slots, lines, at = groups * events(count, barrier), [], iter(range(10**6))

    def clock() -> str:
        return f"    mov.u32 %t{next(at)}, %clock;\n"

    def none() -> str:
        return f"    mov.u32 %t{next(at)}, 0;\n"

    for group in range(groups):
        lines.append(clock())
        if barrier == "ready":
            lines += [_ready(str(group)), clock()]
        lines.append(FENCE)
        for _ in range(count):
            lines += [shape.text(), clock() if each else none()]
        lines += [COMMIT, clock(), _wait(left), clock()]
    lines.append(_wait(0))
    stores = f"    mad.wide.u32 %row, %warp, {8 * slots}, %out;\n"
    for slot in range(slots):
        stores += f"    cvt.u64.u32 %wide, %t{slot};\n    @%first_lane st.global.u64 [%row+{8 * slot}], %wide;\n"
    return kernel(
        "".join(lines) + stores,
        declare=shape.declare() + DECLARE + registers("t", slots),
        setup=_setup(shape),
        sinks=("%d0",),
        slots=slots,
        clocks=False,
    )


def steady(shape: Shape, count: int, left: int, barrier: str) -> str:
    """`turns` turns of UNROLL groups."""
    body = ""
    for group in range(UNROLL):
        body += (_ready(str(group)) if barrier == "ready" else "") + FENCE + shape.text() * count + COMMIT + _wait(left)
    declare = shape.declare() + DECLARE
    return kernel(loop(body) + _wait(0), declare=declare, setup=_setup(shape), sinks=("%d0",))


def part(count: int, barrier: str, first: int, last: int) -> Callable[[Tables], float]:
    """Cycles between two events of a stamped group, mean over warpgroups and all groups but the first."""

    def read(tables: Tables) -> float:
        warps = tables[-1].astype(np.int64)[::4]
        groups = warps.reshape(len(warps), -1, events(count, barrier))[:, 1:]
        return float((groups[:, :, last] - groups[:, :, first]).mean())

    return read


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for fields, count, left, wgs, barrier in CASES:
        shape = Shape(*fields)
        params = f"type={shape.type};n={shape.n};a={shape.a};products={count};left={left};wait={barrier};wgs={wgs}"
        groups, slots = _groups_of(wgs), events(count, barrier)
        first = 1 if barrier == "ready" else 0
        for each in (True, False):
            name = "" if each else "_few_clocks"
            rows = (
                Row(f"wgmma_group_issue{name}", params, part(count, barrier, first, slots - 2)),
                Row(f"wgmma_group_wait{name}", params, part(count, barrier, slots - 2, slots - 1)),
            )
            text = stamped(shape, count, left, groups, barrier, each)
            yield Bench("groups", text, 4 * wgs, (1,), rows, groups * slots, TOTAL)
        row = Row("wgmma_group_interval", params, interval(TURNS, UNROLL * wgs))
        yield Bench("groups", steady(shape, count, left, barrier), 4 * wgs, TURNS, (row,), 2, TOTAL)
