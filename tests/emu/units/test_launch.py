"""CTAs on an SM: every one runs once, in order, with fresh state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from programs.tensormap import TensorMap


@pytest.mark.parametrize(("block", "dynamic"), [(64, 0), (96, 0), (256, 30000), (1024, 100000)])
def test_every_cta_runs_once_on_fresh_registers(ptx: Any, block: int, dynamic: int) -> None:
    """70 CTAs, many more than fit: each thread adds to its own word what its registers, barriers and predicates hold at first."""
    ctas = 70
    out = np.zeros((ctas, block), np.uint32)
    body = f"""mov.u32 %r10, %tid.x; mov.u32 %r11, %ctaid.x; mad.lo.u32 %r12, %r11, {block}, %r10; mul.wide.u32 %d0, %r12, 4; add.u64 %d0, %out, %d0;
        bar.sync 5; ld.global.u32 %r13, [%d0]; add.u32 %r13, %r13, 1; st.global.u32 [%d0], %r13;
        setp.ge.u32 %p1, %r10, 32; @%p1 exit; bar.arrive 5, 64;"""
    result = ptx.run(body, "u64 out", [out], block=block, grid=ctas, shared_bytes=dynamic)
    assert (out == 1).all() and result.deadlock is None and not result.findings


def test_ctas_start_in_order(ptx: Any) -> None:
    """Four fit at a time; the next four start when they are through."""
    out = np.zeros((25, 4), np.uint32)
    body = """mov.u32 %r10, %tid.x; setp.ne.u32 %p1, %r10, 0; mov.u32 %r12, %clock; mov.u32 %r11, %ctaid.x; mul.wide.u32 %d0, %r11, 4; add.u64 %d0, %out, %d0;
        @!%p1 st.global.u32 [%d0], %r12; nanosleep.u32 1000;"""
    ptx.run(body, "u64 out", [out], block=512, grid=100)
    assert (out[1:].min(axis=1) > out[:-1].max(axis=1) + 1900).all()


def test_mbarriers_of_an_ended_cta_are_gone(ptx: Any) -> None:
    body = """mov.u32 %r10, %ctaid.x; setp.eq.u32 %p1, %r10, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; @%p1 exit; mbarrier.arrive.shared.b64 _, [bar];"""
    result = ptx.run(body, block=1024, grid=3, shared=".shared .align 8 .b64 bar; .shared .b8 rest[150000];")
    assert [f.rule for f in result.findings] == ["MB101"] and "CTA 1" in result.findings[0].message


def test_shared_memory_of_an_ended_cta_is_kept_until_its_copies_are_done(ptx: Any) -> None:
    """Each CTA stores its number with a bulk copy and leaves at once; the next one overwrites the same source."""
    target = np.zeros((12, 1024), np.uint32)
    body = """mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, box; mad.lo.u32 %r3, %r0, 16, %r2; add.u32 %r4, %r1, 100;
        .for i in (0, 8) { st.shared.v4.u32 [%r3 + 512*i], {%r4, %r4, %r4, %r4}; } fence.proxy.async.shared::cta; bar.sync 0;
        setp.ne.u32 %p1, %r0, 0; @%p1 exit; mov.u32 %r5, 0; .for i in (0, 4) { mov.u32 %r6, 256*i; add.u32 %r7, %r2, 1024*i; tma.store.2d [%map, {%r6, %r1}], [%r7]; }"""
    result = ptx.run(
        body, "tensormap map", [TensorMap(target, (256, 1), 0)], grid=12, shared=".shared .align 128 .b8 box[180000];"
    )
    assert not result.findings
    assert (target == np.arange(100, 112)[:, None]).all()
