"""Livelock: loops that nobody can end are recognised; loops that end, however late, are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu

SHARED = ".shared .align 16 .b8 box[64]; .shared .align 8 .b64 full;"
INIT = "mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [full], 1; bar.sync 0;"
ENDLESS = {
    "shared flag": ("AGAIN: ld.shared.u32 %r2, [box]; setp.eq.u32 %p2, %r2, 0; @%p2 bra AGAIN;", "shared memory at 0x400 (box)"),
    "test_wait": ("AGAIN: mbarrier.test_wait.parity.shared.b64 %p2, [full], 0; @!%p2 bra AGAIN;", "full"),
    "try_wait and more": ("mov.u32 %r2, 0; AGAIN: xor.b32 %r2, %r2, 1; vote.sync.any.pred %p3, %p1, -1; mbarrier.try_wait.parity.shared.b64 %p2, [full], 0; @!%p2 bra AGAIN;", "full"),
    "sleeping": ("mov.u32 %r2, 32; AGAIN: nanosleep.u32 %r2; shl.b32 %r2, %r2, 1; min.u32 %r2, %r2, 256; mbarrier.test_wait.parity.shared.b64 %p2, [full], 0; @!%p2 bra AGAIN;", "full"),
    "global flag": ("AGAIN: ld.global.u32 %r2, [%out]; setp.eq.u32 %p2, %r2, 0; @%p2 bra AGAIN;", "global memory"),
    "one lane": ("and.b32 %r3, %r0, 31; setp.ne.u32 %p3, %r3, 5; @%p3 bra SKIP; AGAIN: mbarrier.test_wait.parity.shared.b64 %p2, [full], 0; @!%p2 bra AGAIN; SKIP: bar.warp.sync -1;", "full"),
    "one warp, the others wait": ("setp.ge.u32 %p2, %r0, 32; @%p2 bra REST; AGAIN: ld.shared.u32 %r2, [box]; setp.eq.u32 %p2, %r2, 0; @%p2 bra AGAIN; REST: bar.sync 1;", "shared memory at 0x400 (box)"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_polling_is_a_livelock(ptx: Any, name: str) -> None:
    body, thing = ENDLESS[name]
    result = ptx.run(INIT + body, "u64 out", [np.zeros(4, np.uint32)], shared=SHARED, block=64, max_cycles=200_000)
    assert result.exit_code() == 3 and result.deadlock.kind == "livelock" and result.cycles < 200_000
    assert thing in {w.on for w in result.deadlock.warps}
    assert sum(result.stalls["main"].values()) == pytest.approx(2 * result.cycles, rel=0.01)


def test_a_livelock_is_found_without_a_limit(ptx: Any) -> None:
    """After the first long stretch without effects."""
    result = ptx.run(
        INIT + ENDLESS["test_wait"][0], "u64 out", [np.zeros(4, np.uint32)], shared=SHARED, block=64, max_cycles=None
    )
    assert result.deadlock.kind == "livelock" and result.cycles < 20_000_000
    assert [c.rule for c in result.deadlock.causes] == ["MB204"]


GOES_ON = {
    "a count": "mov.u32 %r2, 0; AGAIN: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 0x1000000; @%p2 bra AGAIN;",
    "the clock": "mov.u64 %d1, %clock64; AGAIN: mov.u64 %d2, %clock64; sub.u64 %d2, %d2, %d1; setp.lt.u64 %p2, %d2, 0x1000000; mov.u64 %d2, 0; @%p2 bra AGAIN;",
    "a store": "AGAIN: ld.shared.u32 %r2, [box]; st.shared.u32 [box + 4], %r2; bra AGAIN;",
    "an arrival": "AGAIN: mbarrier.arrive.shared.b64 _, [full]; bra AGAIN;",
}


@pytest.mark.parametrize("name", GOES_ON)
def test_loops_with_an_effect_or_an_end_run_to_the_limit(ptx: Any, name: str) -> None:
    result = ptx.run(INIT + GOES_ON[name], shared=SHARED, block=32, max_cycles=60_000)
    assert result.exit_code() == 5 and result.cycles == 60_000 and result.deadlock is None
    assert sum(result.stalls["main"].values()) == 60_000


def test_another_sm_may_still_write(ptx: Any) -> None:
    """A spin on global memory is no proof while CTAs run elsewhere."""
    import emu

    body = "mov.u32 %r0, %ctaid.x; AGAIN: ld.global.u32 %r2, [%out]; setp.eq.u32 %p2, %r2, 0; @%p2 bra AGAIN;"
    result = emu.launch(
        ptx.assemble(body, "u64 out"), grid=2, block=32, args=[np.zeros(4, np.uint32)], max_cycles=60_000
    )
    assert result.exit_code() == 5


def test_a_cluster_that_polls_for_ever() -> None:
    """CTA 1 waits at the cluster's barrier, CTA 0 polls a word of its own memory that only CTA 1 could set."""
    kernel = emu.load(
        text=""".version 8.5
.target sm_90a
.address_size 64
.visible .entry polls() .reqntid 32, 1, 1 .explicitcluster .reqnctapercluster 2, 1, 1 {
    .reg .pred %p;
    .reg .b32 %rank, %x;
    .shared .align 4 .b32 flag;
    mov.u32 %rank, %cluster_ctarank;
    setp.ne.u32 %p, %rank, 0;
    @%p bra MEET;
    mov.u32 %x, 0;
    st.shared.u32 [flag], %x;
POLL:
    ld.shared.u32 %x, [flag];
    setp.eq.u32 %p, %x, 0;
    @%p bra POLL;
MEET:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
}"""
    )
    result = emu.launch(kernel, grid=2, max_cycles=40_000_000)
    assert result.deadlock is not None and result.deadlock.kind == "livelock" and result.exit_code() == 3
    assert {warp.cta for warp in result.deadlock.warps} == {0, 1}
    assert "change of shared memory" in str([warp.waits_for for warp in result.deadlock.warps])


def test_an_sm_that_ends_early_does_not_stop_the_others(ptx: Any) -> None:
    """The look before the limit comes after one SM has ended and before the other does."""
    body = "mov.u32 %r0, %ctaid.x; setp.eq.u32 %p1, %r0, 0; @%p1 bra DONE; nanosleep.u32 20000; DONE:"
    kernel = ptx.assemble(body, "u64 out")
    ends = [emu.launch(kernel, grid=2, args=[np.zeros(4, np.uint32)], max_cycles=n) for n in (30_000, 60_000)]
    assert [result.exit_code() for result in ends] == [5, 0] and ends[0].cycles == 30_000
