"""Stated properties of clusters, each with its section of the PTX ISA; under chaos, which chooses another legal timing."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.testing import ClusterProgram, Snippets, cluster_programs, run_cluster

QUICK = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 500)
SIZES = st.integers(2, 4)
T = Snippets("h200", ["chip.sms=8", "chip.gpcs=1"])
TURN = ("arrive", "wait")
SYNC = "barrier.cluster.arrive; barrier.cluster.wait;"
HEAD = """mov.u32 %r1, s; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank; mov.u32 %r4, %tid.x; mov.u32 %r5, %ctaid.x; mov.u32 %r6, %ntid.x;
    mad.lo.u32 %r6, %r5, %r6, %r4; mul.wide.u32 %d0, %r6, 4; add.u64 %d0, %out, %d0; setp.eq.u32 %p0, %r4, 0; mov.u32 %r7, bar;"""
SHARED = ".shared .align 16 .b8 s[512]; .shared .align 8 .b64 bar;"


def run(body: str, out: np.ndarray, size: int, seed: int, block: int = 32) -> None:
    result = T.run(HEAD + body, out, params="u64 out", shared=SHARED, grid=size, cluster=size, block=block, chaos=seed)
    T.assert_clean(result)


@settings(QUICK, max_examples=60)
@given(cluster_programs(), SEEDS)
def test_the_machine_and_the_rule_agree(program: ClusterProgram, seed: int) -> None:
    """9.7.13.3: a phase ends when all threads of the cluster that have not exited have arrived; without that nobody passes."""
    assert run_cluster(program, seed) == program.outcome(), program


def test_a_second_arrival_that_nobody_comes_to_is_no_fault() -> None:
    """The first wait never ends, so that what follows it is not executed."""
    program = ClusterProgram(((("arrive", "wait", "arrive", "arrive", "wait"),), (("wait",),)))
    assert program.outcome() == run_cluster(program) == "stuck"


@QUICK
@given(SIZES, st.integers(1, 2), st.integers(1, 4), SEEDS)
def test_the_barrier_can_be_used_again(size: int, warps: int, turns: int, seed: int) -> None:
    """9.7.13.3: it is initialised anew when it completes."""
    assert run_cluster(ClusterProgram(((TURN * turns,) * warps,) * size), seed) == "done"


@QUICK
@given(SIZES, SEEDS)
def test_those_that_exit_are_not_waited_for(size: int, seed: int) -> None:
    """9.7.13.3: only threads that have not exited count, also when they exit while others wait."""
    lists = (((TURN * 2,) + (("pause",),)),) + ((TURN, TURN * 2),) * (size - 1)
    assert run_cluster(ClusterProgram(lists), seed) == "done"


@QUICK
@given(SIZES, SEEDS)
def test_nobody_passes_before_the_last_arrival(size: int, seed: int) -> None:
    """9.7.13.3: after its wait a thread sees that all have counted themselves before their arrival."""
    body = f"""mapa.shared::cluster.u32 %r10, %r1, 0; @%p0 st.shared.u32 [%r1], 0; {SYNC} and.b32 %r11, %r2, 1; mul.lo.u32 %r11, %r11, 900; nanosleep.u32 %r11;
        @%p0 red.shared::cluster.add.u32 [%r10], 1; {SYNC} ld.shared::cluster.u32 %r12, [%r10]; st.global.u32 [%d0], %r12; {SYNC}"""
    out = np.zeros(32 * size, np.uint32)
    run(body.replace("st.shared.u32 [%r1], 0;", "st.shared.u32 [%r1], %r4;"), out, size, seed)
    assert (out == size).all()


@QUICK
@given(SIZES, SEEDS)
def test_what_was_written_before_is_seen_behind(size: int, seed: int) -> None:
    """9.7.13.3, 8.8: arrive releases and wait acquires, in the scope of the cluster: remote and local stores are there."""
    body = f"""add.u32 %r8, %r2, 1; rem.u32 %r8, %r8, %r3; shl.b32 %r9, %r4, 2; add.u32 %r9, %r1, %r9; mapa.shared::cluster.u32 %r10, %r9, %r8; add.u32 %r11, %r6, 7;
        st.shared::cluster.u32 [%r10], %r11; st.shared.u32 [%r9 + 128], %r11; {SYNC} ld.shared.u32 %r12, [%r9]; ld.shared::cluster.u32 %r13, [%r10 + 128]; xor.b32 %r12, %r12, %r13;
        add.u32 %r14, %r2, %r3; sub.u32 %r14, %r14, 1; rem.u32 %r14, %r14, %r3; mad.lo.u32 %r14, %r14, 32, %r4; add.u32 %r14, %r14, 7; mad.lo.u32 %r15, %r8, 32, %r4; add.u32 %r15, %r15, 7;
        xor.b32 %r14, %r14, %r15; sub.u32 %r12, %r12, %r14; st.global.u32 [%d0], %r12; {SYNC}"""
    out = np.ones(32 * size, np.uint32)
    run(body, out, size, seed)
    assert not out.any()


@QUICK
@given(SIZES, st.integers(1, 3), SEEDS)
def test_arrivals_of_all_ctas_make_one_phase(size: int, each: int, seed: int) -> None:
    """9.7.13.15.13: arrivals from other CTAs count like own ones, in any order; the phase ends with the last."""
    body = f"""@%p0 mbarrier.init.shared.b64 [bar], {size * each}; {SYNC} mapa.shared::cluster.u32 %r8, %r7, 0; mul.lo.u32 %r9, %r2, 300; nanosleep.u32 %r9;
        .for k in (0, {each}) {{ @%p0 mbarrier.arrive.shared::cluster.b64 _, [%r8]; }} setp.ne.u32 %p1, %r2, 0; @%p1 bra END;
        W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W; mbarrier.test_wait.parity.shared.b64 %p3, [bar], 1; selp.u32 %r10, 9, 1, %p3; st.global.u32 [%d0], %r10; END: {SYNC}"""
    out = np.zeros(32 * size, np.uint32)
    run(body, out, size, seed)
    assert (out[:32] == 1).all()


@QUICK
@given(SIZES, st.integers(1, 15), st.sampled_from([16, 64, 256]), SEEDS)
def test_every_barrier_of_a_mask_gets_all_bytes(size: int, mask: int, count: int, seed: int) -> None:
    """9.7.9.25.4.1: a multicast signals its full size to the mbarrier at the same offset in every CTA of the mask, and nowhere else."""
    mask &= (1 << size) - 1
    body = f"""@%p0 mbarrier.init.shared.b64 [bar], 1; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {count}; {SYNC} setp.eq.u32 %p1, %r2, 1; and.pred %p1, %p1, %p0;
        @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%out], {count}, [%r7], {mask};
        shr.b32 %r8, {mask}, %r2; and.b32 %r8, %r8, 1; setp.eq.u32 %p2, %r8, 0; @%p2 bra NOT; W: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra W;
        NOT: {SYNC} nanosleep.u32 20000; mbarrier.test_wait.parity.shared.b64 %p3, [bar], 0; selp.u32 %r9, 1, 0, %p3; st.global.u32 [%d0 + 512], %r9; {SYNC}"""
    out = np.zeros(128 + 32 * size, np.uint32)
    run(body, out, size, seed)
    assert (out[128:].reshape(size, 32)[:, 0] == [mask >> rank & 1 for rank in range(size)]).all()


@QUICK
@given(SIZES, SEEDS)
def test_atomics_on_another_cta_are_whole(size: int, seed: int) -> None:
    """9.7.13.5: sums of all threads of the cluster on one word, each result handed out once."""
    body = f"""setp.eq.u32 %p1, %r2, 0; and.pred %p1, %p1, %p0; mov.u32 %r8, 0; @%p1 st.shared.u32 [%r1], %r8; {SYNC} mapa.shared::cluster.u32 %r9, %r1, 0;
        atom.shared::cluster.add.u32 %r10, [%r9], 1; st.global.u32 [%d0], %r10; {SYNC}"""
    out = np.zeros(32 * size, np.uint32)
    run(body, out, size, seed)
    assert sorted(out.tolist()) == list(range(32 * size))
