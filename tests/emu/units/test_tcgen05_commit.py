"""tcgen05.commit to mbarriers of other CTAs of the cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu.machine import load_machine

CLUSTER = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry commits(.param .u64 out)
{{
    .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<20>; .reg .b64 %d<8>;
    .shared .align 8 .b64 bar[2];
    ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p2, %r2, {sender};
    @%p1 mbarrier.init.shared.b64 [bar + 8], 1; fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r3, bar; and.pred %p3, %p1, %p2; mov.u16 %h1, {mask}; mapa.shared::cluster.u32 %r4, %r3, 1;
    mov.u32 %r6, %clock;
    @%p3 {commit}
    {wait}
    mov.u32 %r7, %clock; sub.u32 %r7, %r7, %r6;
    mov.u32 %r5, %ctaid.x; mul.wide.u32 %d2, %r5, 4; add.s64 %d1, %d1, %d2; @%p1 st.global.u32 [%d1], %r7;
    barrier.cluster.arrive; barrier.cluster.wait;
    ret;
}}
"""
EVERY = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r3 + 8], %h1;"
WAIT = "mbarrier.wait [bar + 8], 0;"


def commits(commit: str, wait: str, mask: int, sender: int = 0, **options: Any) -> tuple[np.ndarray, Any]:
    """Cycles that each of four CTAs of a cluster waited, and the result."""
    chip, out = load_machine("b200", ("chip.sms=16", "chip.gpcs=2")), np.zeros(4, np.uint32)
    text = CLUSTER.format(commit=commit, wait=wait, mask=mask, sender=sender)
    options = {"max_cycles": 100_000} | options
    return out, emu.launch(emu.load(text=text), machine=chip, grid=4, cluster=4, block=32, args=[out], **options)


@pytest.mark.parametrize("sender", [0, 2])
def test_a_commit_arrives_in_every_cta_of_its_mask(sender):
    out, result = commits(EVERY, WAIT, 15, sender)
    assert not result.findings and (out > 0).all()
    assert out[sender] < min(out[k] for k in range(4) if k != sender)  # a message takes its time
    _, stuck = commits(EVERY, WAIT, 7, sender)
    assert stuck.deadlock is not None  # the fourth CTA waits for ever


def test_a_commit_on_another_cta_s_mbarrier():
    wait = f"setp.ne.u32 %p4, %r2, 1; @%p4 bra DONE; {WAIT} DONE:"
    _, result = commits("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r4 + 8];", wait, 0)
    assert not result.findings and result.deadlock is None


def test_a_commit_to_a_cta_that_is_not_there():
    _, result = commits(EVERY, "", 0x11)
    assert result.exit_code() == 6
