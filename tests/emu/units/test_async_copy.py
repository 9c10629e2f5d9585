"""cp.async: bytes, zeros, groups, the moments of reading and writing, mbarriers, faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

SHARED = ".shared .align 128 .b8 area[8192]; .shared .align 8 .b64 bar;"
SETUP = """mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, area; add.u32 %r2, %r2, %r1; cvt.u64.u32 %d0, %r1;
    add.u64 %d1, %in, %d0; add.u64 %d2, %out, %d0; """
SHOW = "ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r2]; st.global.v4.u32 [%d2], {%r4,%r5,%r6,%r7}; "


def execute(
    ptx: Any, body: str, block: int = 32, rows: int = 512, **options: Any
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Source bytes, the bytes that the kernel stored, the result."""
    source = np.random.default_rng(1).integers(1, 256, (rows, 16), dtype=np.uint8)
    out = np.zeros((rows, 16), np.uint8)
    result = ptx.run(SETUP + body, "u64 in, u64 out", [source, out], shared=SHARED, block=block, **options)
    return source[:block], out[:block], result


@pytest.mark.parametrize(("form", "size"), [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)])
@pytest.mark.parametrize("read", ["", "lane", "ignore"])
def test_bytes(ptx: Any, form: str, size: int, read: str) -> None:
    """The first src-size bytes come over, zeros fill up to cp-size, and nothing behind it changes."""
    clear = "mov.u32 %r8, -1; st.shared.v4.u32 [%r2], {%r8,%r8,%r8,%r8}; "
    tail = {"": "", "lane": ", %r9", "ignore": ", %p1"}[read]
    count = f"rem.u32 %r9, %r0, {size + 1}; setp.ge.u32 %p1, %r0, 7; "
    copy = f"cp.async.{form}.shared.global.L2::128B [%r2], [%d1], {size}{tail}; cp.async.wait_all; "
    source, out, result = execute(ptx, clear + count + copy + SHOW)
    assert not result.findings
    for lane in range(32):
        kept = {"": size, "lane": lane % (size + 1), "ignore": 0 if lane >= 7 else size}[read]
        expected = np.concatenate(
            [source[lane, :kept], np.zeros(size - kept, np.uint8), np.full(16 - size, 255, np.uint8)]
        )
        assert np.array_equal(out[lane], expected), lane


def test_old_data_before_the_wait_and_late_reading(ptx: Any) -> None:
    """Before the wait shared memory is as it was; what is stored to the source meanwhile is what arrives."""
    body = f"""mov.u32 %r8, 7; cp.async.ca.shared.global [%r2], [%d1], 16; cp.async.commit_group;
        ld.shared.v4.u32 {{%r4,%r5,%r6,%r7}}, [%r2]; st.global.u32 [%d1], %r8; cp.async.wait_group 0; st.global.v4.u32 [%d2], {{%r4,%r5,%r6,%r7}};
        add.u64 %d2, %d2, 512; {SHOW}"""
    source = np.random.default_rng(1).integers(1, 256, (32, 16), dtype=np.uint8)
    out = np.zeros((64, 16), np.uint8)
    ptx.run(SETUP + body, "u64 in, u64 out", [source, out], shared=SHARED)
    assert not out[:32].any()
    assert np.array_equal(out[32:], source) and (source.view(np.uint32)[:, 0] == 7).all()


def test_groups(ptx: Any) -> None:
    """wait_group n leaves the n newest groups; a copy in no group is waited for by wait_all only."""
    show = [f"ld.shared.u32 %r{20 + 4 * k + i}, [%r2 + {512 * i}];" for k in range(4) for i in range(4)]
    steps = " ".join(
        f"cp.async.ca.shared.global [%r2 + {512 * i}], [%d1 + {8192 * i}], 16; {'cp.async.commit_group;' if i < 3 else ''}"
        for i in range(4)
    )
    body = f"""{steps} cp.async.wait_group 2; {" ".join(show[:4])} cp.async.wait_group 1; {" ".join(show[4:8])}
        cp.async.wait_group 0; {" ".join(show[8:12])} cp.async.wait_all; {" ".join(show[12:])}
        {" ".join(f"st.global.u32 [%d2 + {512 * k}], %r{20 + k};" for k in range(16))}"""
    source = np.arange(1, 1 + 4 * 2048, dtype=np.uint32).reshape(4, 512, 4)  # each copy from lines not seen before
    out = np.zeros((16, 32, 4), np.uint32)
    ptx.run(SETUP + body, "u64 in, u64 out", [source, out], shared=SHARED)
    there = (out[:, :, 0] != 0).all(axis=1).reshape(4, 4)
    assert there[0, 0] and there[1, :2].all() and there[2, :3].all() and there[3].all()
    assert not there[0, 3]
    for k, i in zip(*np.nonzero(there), strict=True):
        assert np.array_equal(out[4 * k + i, :, 0], source[i, :32, 0])


def test_lanes_have_their_own_groups(ptx: Any) -> None:
    """Half of the lanes commit one group more: for them wait_group 1 covers the copy, for the others it need not."""
    body = """and.b32 %r8, %r0, 1; setp.eq.u32 %p1, %r8, 1; cp.async.ca.shared.global [%r2], [%d1], 16; cp.async.commit_group;
        @%p1 cp.async.commit_group; @%p1 cp.async.wait_group 1; @%p1 ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r2];
        @%p1 st.global.v4.u32 [%d2], {%r4,%r5,%r6,%r7};"""
    source, out, _ = execute(ptx, body)
    assert np.array_equal(out[1::2], source[1::2]) and not out[::2].any()


@pytest.mark.parametrize("noinc", ["", ".noinc"])
def test_arrival_on_an_mbarrier(ptx: Any, noinc: str) -> None:
    """Each lane arrives when its copies are there: the phase of 32 (one more without .noinc: a plain arrival) ends then."""
    count = 32 if noinc else 1
    plain = "" if noinc else "@%p1 mbarrier.arrive.shared.b64 _, [bar];"
    body = f"""setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [bar], {count}; bar.sync 0;
        cp.async.ca.shared.global [%r2], [%d1], 16; cp.async.mbarrier.arrive{noinc}.shared.b64 [bar]; {plain}
        TRY: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra TRY; {SHOW}"""
    source, out, result = execute(ptx, body)
    assert result.deadlock is None and not result.findings and result.cycles > 300
    assert np.array_equal(out, source)


def test_more_copies_than_the_queue_holds(ptx: Any) -> None:
    """32 warps with 32 copies each, and CTAs behind each other that leave with copies in flight."""
    steps = "cp.async.cg.shared.global [%r2], [%d1], 16; " * 32
    source, out, result = execute(ptx, steps + "cp.async.wait_all; " + SHOW, block=512)
    assert np.array_equal(out, source) and result.deadlock is None
    body = "mov.u32 %r9, %ctaid.x; setp.lt.u32 %p1, %r9, 39; cp.async.cg.shared.global [%r2], [%d1], 16; @%p1 exit; cp.async.wait_all; "
    source, out, result = execute(ptx, body + SHOW, block=256, grid=40)
    assert np.array_equal(out, source) and not result.findings


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("cp.async.ca.shared.global [%r2 + 2], [%d1], 4;", "MEM102"),
        ("cp.async.ca.shared.global [%r2 + 65536], [%d1], 16;", "MEM101"),
        ("cp.async.ca.shared.global [%r2], [%d1 + 4], 16;", "MEM104"),
        ("cp.async.ca.shared.global [%r2], [%d1 + 8192], 16;", "MEM103"),
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [bar];", "MB101"),
    ],
)
def test_faults(ptx: Any, text: str, rule: str) -> None:
    _, _, result = execute(ptx, text + " cp.async.wait_all;")
    assert [f.rule for f in result.findings] == [rule] and result.exit_code() == 6


def test_waiting_is_long_scoreboard(ptx: Any) -> None:
    """One copy from L2 and its wait: the latency that an H200 shows (317 cycles, clock to clock), as long_scoreboard."""
    body = """ld.global.u32 %r9, [%d1]; add.u32 %r9, %r9, 1; mov.u32 %r10, %clock; cp.async.cg.shared.global [%r2], [%d1], 16; cp.async.commit_group;
        cp.async.wait_group 0; mov.u32 %r11, %clock; sub.u32 %r11, %r11, %r10; st.global.u32 [%d2], %r11; st.global.u32 [%d2+4], %r9;"""
    _, out, result = execute(ptx, body)
    assert abs(int(out.view(np.uint32)[0, 0]) - 317) < 12
    assert result.stalls["main"]["long_scoreboard"] > 280
