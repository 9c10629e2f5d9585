"""Named barriers and the register pool of setmaxnreg."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

START = "mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; mov.u32 %r2, 1;"


def test_nobody_passes_before_the_last_arrives(ptx: Any) -> None:
    """Warp w comes 500 w ns late, ten times over; everyone leaves after the latest arrival of the round."""
    rounds, warps = 10, 5
    out = np.zeros((rounds, 2, warps), np.uint32)
    body = f"""{START} mul.lo.u32 %r3, %r1, 500; mul.wide.u32 %d0, %r1, 4; add.u64 %d0, %out, %d0; mov.u32 %r4, 0;
        NEXT: nanosleep.u32 %r3; mov.u32 %r5, %clock; bar.sync 3; mov.u32 %r6, %clock;
        st.global.u32 [%d0], %r5; st.global.u32 [%d0 + {4 * warps}], %r6; add.u64 %d0, %d0, {8 * warps};
        add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, {rounds}; @%p1 bra NEXT;"""
    result = ptx.run(body, "u64 out", [out], block=32 * warps)
    assert result.deadlock is None
    came, left = out[:, 0], out[:, 1]
    assert (left.min(axis=1) > came.max(axis=1)).all() and (came[1:].min(axis=1) >= left[:-1].min(axis=1)).all()


@pytest.mark.parametrize("count", ["64", "%r9"])
def test_producer_and_consumer_barriers(ptx: Any, count: str) -> None:
    """bar.arrive does not wait; sync waits for the arrival.  Barriers 15 and 14, constant and register operands."""
    out = np.zeros(2, np.uint32)
    body = f"""{START} mov.u32 %r9, 64; mov.u32 %r8, 15; setp.ne.u32 %p1, %r1, 0; @%p1 bra CONSUME;
        nanosleep.u32 3000; mov.u32 %r3, 42; st.shared.u32 [cell], %r3; bar.arrive %r8, {count}; mov.u32 %r4, %clock; st.global.u32 [%out + 4], %r4; bar.sync 14, {count}; bra DONE;
        CONSUME: bar.sync %r8, {count}; ld.shared.u32 %r3, [cell]; st.global.u32 [%out], %r3; nanosleep.u32 3000; bar.sync 14, {count}; DONE:"""
    result = ptx.run(body, "u64 out", [out], block=64, shared=".shared .b32 cell;")
    assert result.deadlock is None and out[0] == 42 and out[1] < result.cycles - 3000


def test_barriers_belong_to_the_cta(ptx: Any) -> None:
    """Two CTAs on one SM use the same barrier; one of them never completes it."""
    body = f"{START} mov.u32 %r3, %ctaid.x; setp.eq.u32 %p1, %r3, 0; @%p1 bra DONE; bar.sync 1, 64; DONE: setp.ne.u32 %p1, %r3, 0; @%p1 exit; bar.sync 1, 96;"
    result = ptx.run(body, block=96, grid=2)
    assert {(w.cta, w.warp) for w in result.deadlock.warps} == {(1, 0)} or {w.cta for w in result.deadlock.warps} == {1}
    assert "barrier 1: 32 of 64 threads have arrived" in result.deadlock.warps[0].waits_for


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("mov.u32 %r3, 16; bar.sync %r3;", "BA101"),
        ("mov.u32 %r3, 33; bar.sync 1, %r3;", "BA102"),
        ("bar.sync 1, 96;", "BA102"),
        ("setp.eq.u32 %p1, %r1, 0; @%p1 bar.sync 1, 64; @!%p1 bar.sync 1, 32; bar.sync 1, 32;", "BA103"),
    ],
)
def test_misuse_is_a_fault(ptx: Any, text: str, rule: str) -> None:
    result = ptx.run(f"{START} {text}", block=64)
    assert [f.rule for f in result.findings] == [rule] and result.exit_code() == 6
    assert "bar" in result.findings[0].message


def test_setmaxnreg_waits_for_registers(ptx: Any) -> None:
    """Warps 4-7 give registers up 2 us into the run; warps 0-3 want more at once and get them then."""
    body = f"""{START} mul.wide.u32 %d0, %r1, 4; add.u64 %d0, %out, %d0; setp.ge.u32 %p1, %r1, 4; @%p1 bra GIVE;
        setmaxnreg.inc.sync.aligned.u32 160; mov.u32 %r3, %clock; st.global.u32 [%d0], %r3; bra DONE;
        GIVE: nanosleep.u32 2000; mov.u32 %r3, %clock; setmaxnreg.dec.sync.aligned.u32 80; st.global.u32 [%d0], %r3; DONE:"""
    out = np.zeros(8, np.uint32)
    result = ptx.run(body, "u64 out", [out], block=256, directives=".maxnreg 120")
    assert result.deadlock is None and not result.findings
    assert out[:4].min() > out[4:].min() > 2000


@pytest.mark.parametrize("text", ["setmaxnreg.dec.sync.aligned.u32 128;", "setmaxnreg.inc.sync.aligned.u32 112;"])
def test_setmaxnreg_in_the_wrong_direction(ptx: Any, text: str) -> None:
    result = ptx.run(f"{START} {text}", block=128, directives=".maxnreg 120")
    assert [f.rule for f in result.findings] == ["SM103"] and "from 120" in result.findings[0].message


def test_reductions(ptx: Any) -> None:
    """Three warps, two rounds on one barrier: count, all, any; the second round among two of the warps."""
    out = np.zeros((96, 6), np.uint32)
    body = f"""{START} mul.wide.u32 %d0, %r0, 24; add.u64 %d0, %out, %d0;
        mul.lo.u32 %r3, %r1, 700; nanosleep.u32 %r3;
        setp.lt.u32 %p1, %r0, 40; bar.red.popc.u32 %r4, 2, %p1; st.global.u32 [%d0], %r4;
        bar.red.and.pred %p2, 2, %p1; selp.u32 %r4, 1, 0, %p2; st.global.u32 [%d0+4], %r4;
        bar.red.or.pred %p2, 2, %p1; selp.u32 %r4, 1, 0, %p2; st.global.u32 [%d0+8], %r4;
        setp.gt.u32 %p3, %r1, 1; @%p3 bra DONE;
        nanosleep.u32 %r3;
        bar.red.popc.u32 %r4, 2, 64, !%p1; st.global.u32 [%d0+12], %r4;
        setp.lt.u32 %p1, %r0, 64; bar.red.and.pred %p2, 3, 64, %p1; selp.u32 %r4, 1, 0, %p2; st.global.u32 [%d0+16], %r4;
        bar.red.or.pred %p2, 3, 64, !%p1; selp.u32 %r4, 1, 0, %p2; st.global.u32 [%d0+20], %r4;
        DONE:"""
    result = ptx.run(body, "u64 out", [out], block=96)
    assert not result.findings, result.findings
    assert (out[:, :3] == [40, 0, 1]).all()
    assert (out[:64, 3:] == [24, 1, 0]).all() and not out[64:, 3:].any()


def test_a_reduction_from_two_places(ptx: Any) -> None:
    """barrier.red without .aligned counts lanes that come from both sides of a branch."""
    out = np.zeros(64, np.uint32)
    body = f"""{START} mul.wide.u32 %d0, %r0, 4; add.u64 %d0, %out, %d0; and.b32 %r3, %r0, 1; setp.eq.u32 %p1, %r3, 0; setp.lt.u32 %p2, %r0, 10;
        @%p1 bra EVEN; barrier.red.popc.u32 %r4, 1, %p2; bra.uni DONE; EVEN: barrier.red.popc.u32 %r4, 1, %p2;
        DONE: st.global.u32 [%d0], %r4;"""
    result = ptx.run(body, "u64 out", [out], block=64)
    assert not result.findings, result.findings
    assert (out == 10).all()
