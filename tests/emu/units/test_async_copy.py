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


# ---- reads that nothing orders behind a copy -------------------------------------------------------------

OTHERS = """xor.b32 %r9, %r1, 512; mov.u32 %r10, area; add.u32 %r10, %r10, %r9; """  # the same place of the other warp
LOOK = "ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r10]; st.global.v4.u32 [%d2], {%r4,%r5,%r6,%r7}; "
ONE = "cp.async.cg.shared.global [%r2], [%d1], 16; "
CLOSE, BARRIER = "cp.async.commit_group; ", "bar.sync 0; "
LATE = "setp.ge.u32 %p1, %r0, 32; @%p1 nanosleep.u32 3000; "  # the second warp
PAUSE = "nanosleep.u32 3000; "  # by then every copy is there


def wait(n: int) -> str:
    return f"cp.async.wait_group {n}; "


RIGHT = {
    "waited for": ONE + CLOSE + wait(0) + SHOW,
    "wait_all": ONE + "cp.async.wait_all; " + SHOW,
    "one group behind": ONE + CLOSE + CLOSE + wait(1) + SHOW,
    "another warp's": OTHERS + ONE + CLOSE + wait(0) + BARRIER + LOOK,
    "another warp's, later copies elsewhere": OTHERS + ONE + CLOSE + wait(0) + BARRIER + "cp.async.cg.shared.global [%r2 + 4096], [%d1], 16; " + CLOSE + LOOK,
    "a fence and a flag": OTHERS + LATE + ONE + CLOSE + wait(0) + "membar.cta; mov.u32 %r11, 1; st.volatile.shared.u32 [%r2 + 4096], %r11; "
        "POLL: ld.volatile.shared.u32 %r11, [%r10 + 4096]; setp.eq.u32 %p2, %r11, 0; @%p2 bra POLL; membar.cta; " + LOOK,
    "an mbarrier": "setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [bar], 64; bar.sync 0; " + OTHERS + ONE
        + "cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; mbarrier.wait [bar], 0; " + LOOK,
    "the words beside": "shl.b32 %r3, %r0, 2; mov.u32 %r2, area; add.u32 %r2, %r2, %r3; and.b32 %r8, %r0, 1; setp.eq.u32 %p1, %r8, 1; "
        "@%p1 cp.async.ca.shared.global [%r2], [%d1], 4; @!%p1 ld.shared.u32 %r4, [%r2]; cp.async.wait_all;",
    "the warp that copied has exited": OTHERS + "setp.ge.u32 %p1, %r0, 32; @%p1 cp.async.cg.shared.global [%r2], [%d1], 16; "
        "@%p1 cp.async.wait_all; @%p1 exit; bar.sync 0; " + LOOK,
}  # fmt: skip
WRONG = {
    "no wait": (ONE + CLOSE + PAUSE + SHOW + wait(0), "CA101", "its group has none behind it, so that cp.async.wait_group 0 would do it"),
    "no group": (ONE + wait(0) + PAUSE + SHOW + "cp.async.wait_all;", "CA101", "nor its group closed by cp.async.commit_group"),
    "too many left": (ONE + CLOSE + CLOSE + wait(2) + PAUSE + SHOW, "CA101", "1 behind it, so that cp.async.wait_group 1 would do it"),
    "behind wait_all": (ONE + "cp.async.wait_all; " + ONE + PAUSE + SHOW, "CA101", "nor its group closed"),
    "one of four words": (ONE.replace("cg", "ca").replace("], 16", " + 4], 4").replace("[%r2]", "[%r2 + 8]") + CLOSE + PAUSE + SHOW, "CA101", "by warp 0"),
    "another warp's": (OTHERS + ONE + CLOSE + PAUSE + LOOK + wait(0), "CA102", "by warp 1 has not been waited for"),
    "no barrier": (OTHERS + ONE + CLOSE + wait(0) + PAUSE + LOOK, "CA103", "which has come to no barrier since"),
    "a barrier, then the wait": (OTHERS + ONE + CLOSE + BARRIER + wait(0) + PAUSE + LOOK, "CA103", "which has come to no barrier since"),
    "matrices": (ONE + CLOSE + PAUSE + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r2]; " + wait(0), "CA101", "lane 0: `"),
}  # fmt: skip


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_copies_in_order(ptx: Any, text: str) -> None:
    _, _, result = execute(ptx, text, block=64)
    assert not result.findings and result.deadlock is None


@pytest.mark.parametrize(("text", "rule", "words"), WRONG.values(), ids=WRONG)
def test_copies_without_order(ptx: Any, text: str, rule: str, words: str) -> None:
    """Whatever the timing: the copy has long arrived when it is read."""
    _, _, result = execute(ptx, text, block=64)
    (finding,) = result.findings
    assert (finding.rule, finding.severity) == (rule, "error") and words in finding.message
    assert result.exit_code() == 1


def test_a_later_cta_knows_nothing_of_the_copies_before(ptx: Any) -> None:
    """The second CTA of a slot reads what it has stored itself; the first one copied there and left."""
    body = f"""mov.u32 %r9, %ctaid.x; setp.lt.u32 %p1, %r9, 39; @%p1 cp.async.cg.shared.global [%r2], [%d1], 16; @%p1 exit;
        st.shared.u32 [%r2], %r0; {SHOW}"""
    _, _, result = execute(ptx, body, block=256, grid=40)
    assert not result.findings
