"""wgmma in its queue: order, groups, rendezvous, faults.  (Its arithmetic: test_tensor_math.py.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

# 64 x 16 halves of A, then one 8 x 16 B for each value of `%r20`...: constant matrices need no layout.
SHARED = ".shared .align 128 .b8 a[2048]; .shared .align 128 .b8 b[8192];"
ONE = 0x3C003C00
SETUP = f"""
    mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 127; shl.b32 %r2, %r1, 4; mov.u32 %r3, a; add.u32 %r3, %r3, %r2; mov.u32 %r4, {ONE};
    st.shared.v4.u32 [%r3], {{%r4, %r4, %r4, %r4}}; mov.u32 %r5, b; add.u32 %r5, %r5, %r2;
    .for k in (0, 4) {{ mov.u32 %r4, {ONE} + k * 0x00400040; st.shared.v4.u32 [%r5 + 2048*k], {{%r4, %r4, %r4, %r4}}; }}
    fence.proxy.async.shared::cta; bar.sync 0;
    mov.u32 %r6, a; shr.u32 %r6, %r6, 4; cvt.u64.u32 %d1, %r6; or.b64 %d1, %d1, 0x1000080000;
    mov.u32 %r6, b; shr.u32 %r6, %r6, 4; cvt.u64.u32 %d2, %r6; or.b64 %d2, %d2, 0x1000080000;
    mul.wide.u32 %d3, %r0, 4; add.u64 %d3, %out, %d3; setp.eq.u32 %p1, %r0, 9999;
    .for k in (0, 4) {{ add.u64 %d{{10+k}}, %d2, 128*k; }}
    .macro mma(r, desc, scale) {{ wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f{{r}}, %f{{r+1}}, %f{{r+2}}, %f{{r+3}}}}, %d1, desc, scale, 1, 1, 0, 0; }}
    .macro clear(r) {{ .for i in (0, 4) {{ mov.f32 %f{{r+i}}, 0f00000000; }} }}
    .macro show(r, k) {{ st.global.f32 [%d3 + 1024*k], %f{{r}}; }}
"""


def product(k: int) -> float:
    """16 products of A's ones with B number k: 1, 1 + 2/32, ..."""
    return 16 * (1 + k / 16)


def execute(ptx: Any, body: str, rows: int = 4, block: int = 128, **options: Any) -> tuple[np.ndarray, Any]:
    out = np.zeros((rows, 256), np.float32)
    result = ptx.run(SETUP + body, "u64 out", [out], shared=SHARED, block=block, **options)
    return out[:, :block], result


def test_accumulation_runs_in_order(ptx: Any) -> None:
    """40 wgmma on one accumulator, more than the queue holds, in changing groups."""
    steps = " ".join(
        f"mma(0, %d{10 + k % 4}, 1); {'wgmma.commit_group.sync.aligned;' if k % 3 else ''}" for k in range(40)
    )
    body = f"clear(0); wgmma.fence.sync.aligned; {steps} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; show(0, 0);"
    out, result = execute(ptx, body)
    assert result.deadlock is None and not result.findings
    assert (out[0] == 10 * sum(product(k) for k in range(4))).all()


def test_wait_group_leaves_the_newest(ptx: Any) -> None:
    """Four groups into four accumulators; after wait_group N the 4 - N oldest are there, and the last is not."""
    body = """.for k in (0, 4) { clear(4*k); } wgmma.fence.sync.aligned;
        .for k in (0, 4) { mma(4*k, %d{10+k}, 1); wgmma.commit_group.sync.aligned; }
        wgmma.wait_group.sync.aligned 3; .for k in (0, 4) { add.f32 %f{20+k}, %f{4*k}, 0f00000000; }
        wgmma.wait_group.sync.aligned 1; .for k in (0, 4) { add.f32 %f{24+k}, %f{4*k}, 0f00000000; }
        wgmma.wait_group.sync.aligned 0; .for k in (0, 4) { show(4*k, k); show(20+k, 4+k); show(24+k, 8+k); }"""
    out, _ = execute(ptx, body, 12)
    full = [product(k) for k in range(4)]
    assert out[:4, 0].tolist() == full
    assert (out[4] == full[0]).all() and (out[7] == 0).all()
    assert (out[8:11].T == full[:3]).all()


def test_scale_d_false_ignores_d(ptx: Any) -> None:
    body = """.for i in (0, 4) { mov.f32 %f{i}, 0f7fc00000; } wgmma.fence.sync.aligned; mma(0, %d10, %p1);
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; show(0, 0);"""
    out, _ = execute(ptx, body)
    assert (out[0] == product(0)).all()


def test_two_warpgroups_share_the_tensor_core(ptx: Any) -> None:
    """Each on its own accumulator; first come, first served: one ends as if alone, the other within its passes."""
    steps = "clear(0); wgmma.fence.sync.aligned; .for k in (0, 32) { mma(0, %d{10+k%4}, 1); } wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    body = f"{steps} mov.u32 %r10, %clock; cvt.rn.f32.u32 %f8, %r10; show(0, 0); show(8, 1);"
    alone, _ = execute(ptx, body)
    both, _ = execute(ptx, body, block=256)
    assert (both[0] == 8 * sum(product(k) for k in range(4))).all()
    first, second = sorted((both[1, 0], both[1, 128]))
    assert first < second <= first + (alone[1].max() - alone[1].min() + 4 * 64) and second > alone[1].max()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("setp.lt.u32 %p2, %r0, 32; @%p2 add.u64 %d10, %d10, 1; mma(0, %d10, 1);", "WG103"),
        ("setp.lt.u32 %p2, %r0, 32; mma(0, %d10, %p2);", "WG103"),
        ("setp.lt.u32 %p2, %r0, 32; @%p2 bra OTHER; mma(0, %d10, 1); bra DONE; OTHER: mma(0, %d10, 1); DONE:", "WG103"),
        ("and.b32 %r7, %r0, 1; setp.eq.u32 %p2, %r7, 1; @%p2 bra DONE; mma(0, %d10, 1); DONE:", "WL103"),
        ("mov.u64 %d10, 0x1000080000 | 0x3fff; mma(0, %d10, 1); bra DONE; DONE:", "WG104"),
        ("mov.u64 %d10, 0x3fff3fff0040; mma(0, %d10, 1);", "WG104"),
    ],
)
def test_faults(ptx: Any, text: str, rule: str) -> None:
    body = f"clear(0); wgmma.fence.sync.aligned; {text} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; show(0, 0);"
    _, result = execute(ptx, body)
    assert [f.rule for f in result.findings] == [rule] and result.exit_code() == 6
    assert "wgmma.mma_async" in result.findings[0].message


def test_registers_of_an_ended_cta_are_not_reused_too_early(ptx: Any) -> None:
    """CTAs that leave with wgmma in flight follow each other on one SM; the last waits and is right."""
    body = """clear(0); mov.u32 %r7, %ctaid.x; wgmma.fence.sync.aligned; .for k in (0, 8) { mma(0, %d{10+k%4}, 1); } wgmma.commit_group.sync.aligned;
        setp.lt.u32 %p2, %r7, 39; @%p2 exit; wgmma.wait_group.sync.aligned 0; show(0, 0);"""
    out, result = execute(ptx, body, grid=40)
    assert result.deadlock is None and not result.findings
    assert (out[0] == 2 * sum(product(k) for k in range(4))).all()
