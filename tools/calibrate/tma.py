"""TMA: load latency, issue, throughput of a ring of stages, stores (section C), one SM, L2-hot data.

One elected thread does everything.  Boxes come from a float16 matrix with 128-byte rows (or 256 where
the row says so), small enough to stay in L2; the first pass of every kernel fetches them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.calibrate.barriers import wait
from tools.calibrate.bench import Bench, Box, Row, pair, rate
from tools.calibrate.text import kernel, loop

BUFFER = 1024  # barriers lie below
LOAD = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
REGION = 1 << 20  # bytes that one SM walks through
DECLARE = """    .reg .b64 %map, %issued, %armed, %c<8>;
    .reg .b32 %bar, %buffer, %parity, %row_at;
    .reg .pred %done, %elected;
"""
SWIZZLES = {"none": 0, "32B": 32, "64B": 64, "128B": 128}

# (box, boxes, swizzle, row pitch): the latency rows
LATENCIES = (
    *(("64x8", 1, "128B", "128B"), ("64x16", 1, "128B", "128B"), ("64x32", 1, "128B", "128B")),
    *(("64x64", 1, "128B", "128B"), ("64x128", 1, "128B", "128B"), ("64x256", 1, "128B", "128B")),
    ("64x256", 2, "128B", "128B"),
    *(("16x64", 1, "32B", "128B"), ("16x256", 1, "32B", "128B")),
    *(("32x64", 1, "64B", "128B"), ("32x128", 1, "64B", "128B")),
    *(("64x64", 1, "none", "128B"), ("64x128", 1, "none", "128B"), ("64x256", 1, "none", "128B")),
    *(("128x64", 1, "none", "256B"), ("128x256", 1, "none", "256B")),
    ("64x128", 2, "128B", "256B (head dim 128 tile)"),
)


def setup(barriers: int) -> str:
    """Barriers of one arrival each, addresses, the elected thread of warp 0."""
    inits = "".join(f"    @%done mbarrier.init.shared::cta.b64 [%bar+{8 * i}], 1;\n" for i in range(barriers))
    return f"""    mov.u64 %map, map;
    cvta.param.u64 %map, %map;
    mov.b32 %bar, %smem;
    add.u32 %buffer, %smem, {BUFFER};
    setp.eq.u32 %done, %thread, 0;
{inits}    fence.proxy.async.shared::cta;
    bar.sync 0;
    elect.sync _|%elected, 0xffffffff;
"""


def elected(body: str) -> str:
    """The body in the elected thread only."""
    return f"    @!%elected bra REST;\n{body}REST:\n    bar.warp.sync 0xffffffff;\n"


def load(column: int | str, row: str, target: str, barrier: str) -> str:
    """One box."""
    return f"    {LOAD} [{target}], [%map, {{{column}, {row}}}], [{barrier}];\n"


def latency(box: Box, boxes: int, poll: str) -> str:
    """Slots: before arming, before the copy, after its issue, after the wait.  The fourth pass is kept."""
    across = box.columns // box.box_columns
    copies = ""
    for i in range(boxes):
        column, row = (i % across) * box.box_columns, (i // across) * box.box_rows
        copies += load(column, str(row), f"%buffer+{i * box.bytes}", "%bar")
    body = f"""    and.b32 %parity, %pass, 1;
    mov.u64 %armed, %clock64;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {boxes * box.bytes};
    mov.u64 %start, %clock64;
{copies}    mov.u64 %issued, %clock64;
{wait("%bar", "WAIT", poll=poll)}    mov.u64 %end, %clock64;
    st.global.u64 [%out], %armed;
    st.global.u64 [%out+8], %start;
    st.global.u64 [%out+16], %issued;
    st.global.u64 [%out+24], %end;
"""
    return kernel(elected(body), declare=DECLARE, setup=setup(1), passes=4, clocks=False, tensor_map=True)


AFTER = (1, 2, 3, 4, 6, 8, 12, 16)


def back_to_back(box: Box) -> str:
    """16 loads at once.  Slots: start, clock after the i-th of AFTER, all complete."""
    room = (190 * 1024) // box.bytes
    lines = []
    for i in range(16):
        lines.append(load(0, str(i * box.box_rows), f"%buffer+{(i % room) * box.bytes}", "%bar"))
        if i + 1 in AFTER:
            lines.append(f"    mov.u64 %c{AFTER.index(i + 1)}, %clock64;\n")
    stores = "".join(f"    st.global.u64 [%out+{8 * (1 + k)}], %c{k};\n" for k in range(len(AFTER)))
    body = f"""    and.b32 %parity, %pass, 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {16 * box.bytes};
    mov.u64 %start, %clock64;
{"".join(lines)}{wait("%bar", "WAIT")}    mov.u64 %end, %clock64;
    st.global.u64 [%out], %start;
{stores}    st.global.u64 [%out+{8 * (1 + len(AFTER))}], %end;
"""
    return kernel(elected(body), declare=DECLARE, setup=setup(1), clocks=False, tensor_map=True)


def ring(box: Box, stages: int) -> str:
    """Fill `stages` buffers, then `turns` times: wait for each and refill it; drain at the end."""

    def refill(stage: int) -> str:
        return f"""    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar+{8 * stage}], {box.bytes};
{load(0, "%row_at", f"%buffer+{stage * box.bytes}", f"%bar+{8 * stage}")}    add.u32 %row_at, %row_at, {box.box_rows};
    and.b32 %row_at, %row_at, {box.rows - 1};
"""

    steps = "".join(wait(f"%bar+{8 * s}", f"FULL{s}") + refill(s) for s in range(stages))
    drain = "".join(wait(f"%bar+{8 * s}", f"DRAIN{s}") for s in range(stages))
    # Each pass leaves every barrier `turns + 1` phases further; parity goes on from there.
    body = f"""    mov.u64 %start, %clock64;
    mov.u32 %row_at, 0;
{"".join(refill(s) for s in range(stages))}{loop(steps + "    xor.b32 %parity, %parity, 1;" + chr(10))}{drain}    xor.b32 %parity, %parity, 1;
    mov.u64 %end, %clock64;
    st.global.u64 [%out], %start;
    st.global.u64 [%out+8], %end;
"""
    start = setup(stages) + "    mov.b32 %parity, 0;\n"
    return kernel(elected(body), declare=DECLARE, setup=start, clocks=False, tensor_map=True)


def store_latency(box: Box, full: bool) -> str:
    """Slots: before the store, after its issue, after the wait."""
    body = f"""    mov.u64 %start, %clock64;
    {STORE} [%map, {{0, 0}}], [%buffer];
    mov.u64 %issued, %clock64;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group{"" if full else ".read"} 0;
    mov.u64 %end, %clock64;
    cp.async.bulk.wait_group 0;
    st.global.u64 [%out], %start;
    st.global.u64 [%out+8], %issued;
    st.global.u64 [%out+16], %end;
"""
    return kernel(elected(body), declare=DECLARE, setup=setup(0), clocks=False, tensor_map=True)


def store_ring(box: Box, groups: int) -> str:
    """`turns` stores, at most `groups` of them still reading shared memory."""
    step = f"""    {STORE} [%map, {{0, %row_at}}], [%buffer];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read {groups - 1};
    add.u32 %row_at, %row_at, {box.box_rows};
    and.b32 %row_at, %row_at, {box.rows - 1};
"""
    body = f"""    mov.u64 %start, %clock64;
    mov.u32 %row_at, 0;
{loop(step)}    cp.async.bulk.wait_group 0;
    mov.u64 %end, %clock64;
    st.global.u64 [%out], %start;
    st.global.u64 [%out+8], %end;
"""
    return kernel(elected(body), declare=DECLARE, setup=setup(0), clocks=False, tensor_map=True)


def _box(box: str, swizzle: str, pitch: str) -> Box:
    columns, rows = (int(n) for n in box.split("x"))
    width = int(pitch.split("B")[0]) // 2
    return Box(width, REGION // (2 * width), columns, rows, SWIZZLES[swizzle])


def _shared(box: Box, buffers: int) -> int:
    return BUFFER + buffers * box.bytes


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for name, boxes, swizzle, pitch in LATENCIES:
        box = _box(name, swizzle, pitch)
        for poll in ("try_wait", "test_wait"):
            head = f"box={name};boxes={boxes};bytes={boxes * box.bytes};swizzle={swizzle};ld={pitch}"
            params = f"{head};src=L2-hot;poll={poll}"
            rows = (
                Row("expect_tx_clock_pair", params, pair(0, 1)),
                Row("tma2d_issue_to_next", params, pair(1, 2)),
                Row("tma2d_load_latency", params, pair(1, 3)),
            )
            yield Bench("tma", latency(box, boxes, poll), 1, (1,), rows, 4, _shared(box, boxes), box)
    for name in ("64x8", "64x64", "64x128"):
        box = _box(name, "128B", "128B")
        params = f"box={name};bytes={box.bytes};swizzle=128B"
        issue = tuple(
            Row("tma2d_back_to_back_issue", f"{params};after={n}", pair(0, 1 + k)) for k, n in enumerate(AFTER)
        )
        done = Row("tma2d_16_complete", params, pair(0, 1 + len(AFTER)))
        shared = _shared(box, min(16, (190 * 1024) // box.bytes))
        yield Bench("tma", back_to_back(box), 1, (1,), (*issue, done), 2 + len(AFTER), shared, box)
    yield from _throughput()
    yield from _stores()


def _throughput() -> Iterator[Bench]:
    turns = (16, 48)
    for size in (1024, 2048, 4096, 8192, 16384, 32768):
        for stages in (1, 2, 3, 4, 6, 8):
            box = _box(f"64x{size // 128}", "128B", "128B")
            if stages * size <= 200 * 1024:
                params = f"bytes={size};swizzle=128B;stages={stages};src=L2-hot-own;sms=1"
                row = Row("tma2d_throughput", params, rate(turns, size * stages))
                yield Bench("tma", ring(box, stages), 1, turns, (row,), 2, _shared(box, stages), box)


def _stores() -> Iterator[Bench]:
    for name in ("64x8", "64x32", "64x64", "64x128", "64x256"):
        box = _box(name, "128B", "128B")
        params = f"box={name};bytes={box.bytes};swizzle=128B"
        for full in (False, True):
            wait_name = "tma2d_store_wait_full" if full else "tma2d_store_wait_read"
            rows = (Row("tma2d_store_issue", params, pair(0, 1)), Row(wait_name, params, pair(0, 2)))
            yield Bench("tma", store_latency(box, full), 1, (1,), rows[full:], 3, _shared(box, 1), box)
    turns = (16, 48)
    for size in (4096, 8192, 16384):
        box = _box(f"64x{size // 128}", "128B", "128B")
        for groups in (1, 2, 4):
            row = Row("tma2d_store_throughput", f"bytes={size};groups={groups};sms=1", rate(turns, size))
            yield Bench("tma", store_ring(box, groups), 1, turns, (row,), 2, _shared(box, 1), box)
