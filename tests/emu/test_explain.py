"""Deadlocks in words: which warps, which barrier, what is missing.  (Faults: the tests of the units.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.explain import FAULTS, TEMPLATES, note
from emu.result import Result
from emu.units import common
from emu.views.deadlock import deadlock
from programs.tensormap import TensorMap

SHARED = ".shared .align 128 .b8 box[1024]; .shared .align 8 .b64 full[2];"
INIT = """mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [full], 2;
    @%p1 mbarrier.init.shared.b64 [full + 8], 1; bar.sync 0;"""


def stuck(ptx: Any, body: str, *args: Any, **options: Any) -> Any:
    result = ptx.run(body, *args, shared=SHARED, **({"block": 64} | options))
    assert (
        result.deadlock is not None
        and result.exit_code() == 3
        and not [f for f in result.findings if f.severity != "info"]
    )
    return result.deadlock


def test_a_skipped_arrival(ptx: Any) -> None:
    """One of two arrivals is missing in the second phase: the barrier by name, its parity, what is pending."""
    body = f"""{INIT} setp.eq.u32 %p2, %r0, 0;
        @%p2 mbarrier.arrive.shared.b64 _, [full]; @%p2 mbarrier.arrive.shared.b64 _, [full];
        mbarrier.wait [full], 0;
        @%p2 mbarrier.arrive.shared.b64 _, [full];
        .role "consumer"
        mbarrier.wait [full], 1;"""
    deadlock = stuck(ptx, body)
    assert deadlock.cycle < 10_000 and "2 warps" in deadlock.message
    assert [(w.cta, w.warp, w.role) for w in deadlock.warps] == [(0, 0, "consumer"), (0, 1, "consumer")]
    for warp in deadlock.warps:
        assert (
            "(full)" in warp.waits_for
            and "parity 1, current parity 1" in warp.waits_for
            and "1 of 2 arrivals" in warp.waits_for
        )
        assert "mbarrier" in warp.instruction and warp.location.startswith("<text>:")


@pytest.mark.parametrize(
    ("expected", "words"), [(2048, "pending: 1024 bytes"), (512, "expect_tx for 512 bytes more: copies brought more")]
)
def test_wrong_bytes(ptx: Any, expected: int, words: str) -> None:
    body = f"""{INIT} setp.ne.u32 %p2, %r0, 0; @%p2 bra WAIT; mov.u32 %r2, 0; mov.u32 %r3, box;
        mbarrier.arrive.expect_tx.shared.b64 _, [full + 8], {expected}; tma.load.2d [%r3], [%map, {{%r2, %r2}}], [full + 8];
        WAIT: mbarrier.wait [full + 8], 0;"""
    deadlock = stuck(ptx, body, "tensormap map", [TensorMap(np.zeros((8, 32), np.uint32), (32, 8), 0)])
    assert len(deadlock.warps) == 2 and all(
        "(full + 8)" in w.waits_for and words in w.waits_for for w in deadlock.warps
    )


def test_wait_by_state_and_by_one_lane(ptx: Any) -> None:
    body = f"""{INIT} setp.ne.u32 %p2, %r0, 0; @%p2 bra REST; mbarrier.arrive.shared.b64 %d1, [full];
        AGAIN: mbarrier.try_wait.shared.b64 %p3, [full], %d1; @!%p3 bra AGAIN; REST: bar.sync 0;"""
    deadlock = stuck(ptx, body)
    assert {w.waits_for.split(":")[0].split(" ")[0] for w in deadlock.warps} == {"mbarrier", "barrier"}


def test_a_named_barrier_with_a_wrong_count(ptx: Any) -> None:
    deadlock = stuck(ptx, f"{INIT} bar.sync 3, 96;", block=96 + 32)
    assert [w.waits_for for w in deadlock.warps] == ["barrier 3: 32 of 96 threads have arrived, 64 are missing"]
    assert deadlock.warps[0].instruction.endswith("bar.sync 3, 96;")


def test_registers_that_nobody_gives(ptx: Any) -> None:
    deadlock = stuck(ptx, f"{INIT} setmaxnreg.inc.sync.aligned.u32 240;", block=128, directives=".maxnreg 128")
    assert {w.waits_for for w in deadlock.warps} == {"setmaxnreg.inc: needs 3584 registers, the CTA's pool has 0"}
    assert all("setmaxnreg" in w.instruction for w in deadlock.warps)


def test_a_warpgroup_that_never_meets(ptx: Any) -> None:
    deadlock = stuck(ptx, f"{INIT} setp.lt.u32 %p2, %r0, 32; @%p2 exit; wgmma.fence.sync.aligned;", block=128)
    assert {w.waits_for for w in deadlock.warps} == {"wgmma.fence: 3 of the warpgroup's 4 warps are here"}


def test_a_wgmma_that_one_warp_leaves_out(ptx: Any) -> None:
    body = f"""{INIT} mov.u64 %d1, 0x1000080040; wgmma.fence.sync.aligned; setp.lt.u32 %p2, %r0, 32; @%p2 bra SKIP;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %d1, %d1, 1, 1, 1, 0, 0;
        SKIP: wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
    deadlock = stuck(ptx, body, block=128)
    assert [w.warp for w in deadlock.warps] == [1, 2, 3]
    assert {w.waits_for for w in deadlock.warps} == {
        "wgmma: the next one has been issued by 3 of the warpgroup's 4 warps"
    }


def test_stalls_go_on_until_the_deadlock(ptx: Any) -> None:
    """Parked warps are charged to the end."""
    result = ptx.run(f"{INIT} bar.sync 3, 96;", shared=SHARED, block=128)
    rows = result.stalls["main"]
    assert result.deadlock is not None and rows["barrier"] > 0
    assert 3 * result.cycles < sum(rows.values()) <= 4 * result.cycles


def test_every_fault_has_words() -> None:
    kinds = {value for name, value in vars(common).items() if name.startswith("F_")} - {common.F_NONE}
    assert kinds == set(FAULTS)
    assert len({rule for rule, _, _ in FAULTS.values()}) == len(FAULTS)
    for kind, (_, template, _) in TEMPLATES.items():
        assert "{" not in template.format(address=1, aux=2, where="x", name="", idesc="", matrix="", life="")
        assert "{" not in FAULTS[kind][1]


def test_rules_in_words() -> None:
    found = {rule: message for rule, message, _ in FAULTS.values()}
    assert found["MEM103"] == "global access of <n> bytes at <address> is outside every array (the nearest array)"
    assert found["WL103"].endswith("by lanes <mask> only") and found["BA103"].startswith("barrier <n>: ")
    assert note("LIMIT").startswith("limit LIMIT: ") and note("TRAP").startswith("fault TRAP: ")
    assert note("deadlock") and note("occupancy") and not note("nonsense")


def test_the_first_fault_counts(ptx: Any) -> None:
    """Two warps fail at different times; CTA, warp and cycle of the earlier one are reported."""
    body = "mov.u32 %r0, %tid.x; setp.lt.u32 %p1, %r0, 32; @%p1 nanosleep.u32 5000; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p2, %r1, 2; @%p2 nanosleep.u32 9000; trap;"
    result = ptx.run(body, block=64, grid=3)
    assert "CTA 2, warp 1, lane 0" in result.findings[0].message and result.cycles < 5000


def test_ctas_that_hang_alike_share_their_lines(ptx: Any) -> None:
    body = f"{INIT} setp.eq.u32 %p2, %r0, 0; @%p2 mbarrier.arrive.shared.b64 _, [full]; mbarrier.wait [full], 0;"
    result = ptx.run(body, shared=SHARED, block=64, grid=5)
    text = deadlock(result)
    assert len(result.deadlock.warps) == 10 and len([b for b in result.deadlock.barriers if b.asked]) == 5
    assert text.count("CTAs 0-4") == 3 and "CTA 1" not in text and "CTAs 0-4 warps 0-1" in text


def test_the_report_survives_json(ptx: Any) -> None:
    result = ptx.run(f"{INIT} mbarrier.wait [full], 0;", shared=SHARED, block=64)
    again = Result.from_json(result.to_json())
    assert again.deadlock == result.deadlock and deadlock(again) == deadlock(result)
    assert again.deadlock is not None and again.deadlock.causes[0].rule == "MB204" and note("MB204")


def test_global_memory_is_untouched_by_looking_ahead(ptx: Any) -> None:
    """What warps would do next is tried on a copy: stores behind the wait do not happen."""
    out = np.zeros(64, np.uint32)
    body = f"""{INIT} mbarrier.wait [full], 0; mul.wide.u32 %d0, %r0, 4; add.u64 %d0, %out, %d0; st.global.u32 [%d0], %r0;
        @%p1 mbarrier.arrive.shared.b64 _, [full + 8];"""
    deadlock = stuck(ptx, body, "u64 out", [out])
    assert not out.any() and [b.name for b in deadlock.barriers][:1] == ["full"]
