"""Stated properties of mbarriers, waits and rings, each with its section of the PTX ISA.

Programs run on the machine; what is expected is written here in closed form, not taken from the reference model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.testing import BarrierProgram, Op, Outcome, Pipeline, Snippets, execute, outcomes, pipelines
from emu.testing.interpreter import run
from emu.testing.program import Word

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MOST = 2**20 - 1
COUNTS, BYTES, SEEDS = st.integers(1, 6), st.integers(1, 5000), st.integers(0, 500)
T = Snippets("h200", ["chip.sms=1"])


def one(count: int, *ops: tuple[Any, ...]) -> Outcome:
    """One warp on one mbarrier: (kind, value) each."""
    return execute(BarrierProgram((count,), (tuple(Op(kind, 0, value) for kind, value in ops),)))


def word(count: int, *ops: tuple[Any, ...]) -> Word:
    outcome = one(count, *ops)
    assert outcome.how == "done", outcome
    return outcome.words[0]


def answers(outcome: Outcome) -> list[int]:
    return [value for _, _, value in outcome.answers]


# ---- mbarrier: phases ----------------------------------------------------------------------------------


@QUICK
@given(COUNTS)
def test_a_fresh_barrier_is_in_phase_0(count: int) -> None:
    """9.7.13.15.9, .16: the phase of parity 1 counts as complete, that of parity 0 does not."""
    assert answers(one(count, ("test", 0), ("test", 1))) == [0, 1]


@QUICK
@given(COUNTS, st.integers(0, 5), st.integers(0, 5000))
def test_a_phase_completes_iff_no_arrival_and_no_byte_is_pending(count: int, arrivals: int, tx: int) -> None:
    """9.7.13.15.5."""
    arrivals = min(arrivals, count)
    outcome = one(count, *([("expect", tx)] if tx else []), *([("arrive", arrivals)] if arrivals else []), ("test", 0))
    assert answers(outcome) == [int(arrivals == count and tx == 0)]


@QUICK
@given(COUNTS, st.integers(0, 7))
def test_phases_alternate(count: int, phases: int) -> None:
    """9.7.13.15.5: the parity is that of the completed phases, and the barrier is armed again with its count."""
    assert word(count, *[("arrive", count)] * phases) == Word(count, count, 0, phases % 2)


@QUICK
@given(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_arrivals_commute(parts: list[int], random: Any) -> None:
    """9.7.13.15.13: their order does not matter."""
    shuffled = random.sample(parts, len(parts))
    assert word(sum(parts) + 1, *(("arrive", n) for n in parts)) == word(
        sum(parts) + 1, *(("arrive", n) for n in shuffled)
    )


@QUICK
@given(COUNTS)
def test_an_arrival_of_n_is_n_arrivals(count: int) -> None:
    """9.7.13.15.13."""
    assert word(count + 1, ("arrive", count)) == word(count + 1, *[("arrive", 1)] * count)


@QUICK
@given(COUNTS, st.integers(1, 4))
def test_a_drop_lowers_this_phase_and_all_later_ones(count: int, drop: int) -> None:
    """9.7.13.15.14."""
    drop = min(drop, count)
    left = count + 1 - drop
    assert word(count + 1, ("drop", drop)) == Word(left, left, 0, 0)
    assert word(count + 1, ("drop", drop), ("arrive", left), ("arrive", left)) == Word(left, left, 0, 0)


@QUICK
@given(st.integers(0, 3), COUNTS)
def test_init_forgets(phases: int, count: int) -> None:
    """9.7.13.15.9: whatever came before, an initialised barrier is fresh."""
    arrivals = "mbarrier.arrive.shared.b64 _, [%r0];" * phases
    before = f"mbarrier.init.shared.b64 [%r0], 1; {arrivals} mbarrier.inval.shared.b64 [%r0];" if phases else ""
    body = f"""mov.u32 %r0, bar; {before}
        mbarrier.init.shared.b64 [%r0], {count}; mbarrier.test_wait.parity.shared.b64 %p1, [%r0], 0; mbarrier.inval.shared.b64 [%r0];
        ld.shared.u64 %d0, [%r0]; st.global.u64 [%out], %d0;"""
    out = np.zeros(1, np.uint64)
    result = T.run(body, out, params="u64 out", shared=".shared .align 8 .b64 bar;", block=1)
    T.assert_clean(result)
    assert int(out[0]) == ((-count % 2**20) << 1) | ((-count % 2**20) << 43)


# ---- mbarrier: bytes -----------------------------------------------------------------------------------


@QUICK
@given(BYTES, st.booleans())
def test_expected_and_completed_bytes_cancel_in_any_order(tx: int, early: bool) -> None:
    """9.7.13.15.11-12: bytes may come before they are expected."""
    pair = [("expect", tx), ("complete", tx)]
    assert word(1, *(pair[::-1] if early else pair)) == Word(1, 1, 0, 0)


@QUICK
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=4))
def test_bytes_add_up(parts: list[int]) -> None:
    """9.7.13.15.12: parts complete what was expected at once, the last one ends the phase."""
    ops = [("arrive_expect", sum(parts)), *(("complete", n) for n in parts)]
    assert word(1, *ops) == Word(1, 1, 0, 1)
    assert word(1, *ops[:-1]) == Word(1, 0, parts[-1], 0)


@QUICK
@given(BYTES)
def test_early_bytes_hold_the_phase_until_they_are_expected(tx: int) -> None:
    """9.7.13.15.5, seen on an H200: with no arrival pending, the expect_tx that brings the count to 0 ends the phase."""
    assert word(1, ("complete", tx), ("arrive", 1)) == Word(1, 0, -tx, 0)
    assert word(1, ("complete", tx), ("arrive", 1), ("expect", tx)) == Word(1, 1, 0, 1)


@QUICK
@given(COUNTS, BYTES)
def test_arrive_expect_tx_is_expect_tx_and_arrive(count: int, tx: int) -> None:
    """9.7.13.15.13: in one step, the expectation first."""
    assert word(count, ("arrive_expect", tx)) == word(count, ("expect", tx), ("arrive", 1))


@QUICK
@given(st.integers(0, 4000), st.sampled_from([1, -1]))
def test_the_tx_count_has_a_range(beyond: int, sign: int) -> None:
    """9.7.13.15.2: -(2^20 - 1) to 2^20 - 1; silicon traps outside."""
    kind = "expect" if sign > 0 else "complete"
    assert word(1, (kind, MOST)).tx == sign * MOST
    assert one(1, (kind, MOST), (kind, 1 + beyond)).rule == "MB107"


@QUICK
@given(COUNTS, st.integers(1, 3))
def test_more_arrivals_than_expected_trap(count: int, more: int) -> None:
    """9.7.13.15.13: outside the range of the pending count; silicon traps."""
    assert one(count, ("arrive", count + more)).rule == "MB106"


# ---- mbarrier: forms ------------------------------------------------------------------------------------

FORMS = {
    "arrive": ("mbarrier.arrive{}.shared::cta.b64 _, [bar];", ["", ".release.cta", ".release.cluster", ".relaxed.cta", ".relaxed.cluster", ".noComplete"]),
    "expect": ("mbarrier.expect_tx{}.shared::cta.b64 [bar], 48;", [".relaxed.cta", ".relaxed.cluster"]),
    "drop": ("mbarrier.arrive_drop{}.shared::cta.b64 _, [bar];", ["", ".release.cta", ".relaxed.cluster"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_order_and_scope_do_not_change_the_word(name: str) -> None:
    """9.7.13.15.11-14: semantics and scopes order memory; the object is the same."""
    text, forms = FORMS[name]
    words = set()
    for form in forms:
        out = np.zeros(1, np.uint64)
        op = text.format(form)
        op = op.replace("[bar];", "[bar], 1;") if "noComplete" in form else op
        body = f"mbarrier.init.shared.b64 [bar], 5; {op} mbarrier.inval.shared.b64 [bar]; ld.shared.u64 %d0, [bar]; st.global.u64 [%out], %d0;"
        T.assert_clean(T.run(body, out, params="u64 out", shared=".shared .align 8 .b64 bar;", block=1))
        words.add(int(out[0]))
    assert len(words) == 1


def test_no_complete_must_not_complete() -> None:
    """9.7.13.15.13: undefined if it does, a fault here."""
    body = "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.noComplete.shared.b64 %d0, [bar], 2;"
    result = T.run(body, shared=".shared .align 8 .b64 bar;", block=1)
    assert [f.rule for f in result.findings] == ["MB108"] and "bar" in result.findings[0].message


@QUICK
@given(COUNTS, COUNTS)
def test_pending_count_of_a_state_is_that_before_the_arrival(count: int, arrivals: int) -> None:
    """9.7.13.15.17."""
    out = np.zeros(8, np.uint32)
    arrivals = min(arrivals, count)
    steps = "".join(
        f"mbarrier.arrive.shared.b64 %d0, [bar]; mbarrier.pending_count.b64 %r0, %d0; st.global.u32 [%out + {4 * k}], %r0;"
        for k in range(arrivals)
    )
    T.assert_clean(
        T.run(
            f"mbarrier.init.shared.b64 [bar], {count}; {steps}",
            out,
            params="u64 out",
            shared=".shared .align 8 .b64 bar;",
            block=1,
        )
    )
    assert out[:arrivals].tolist() == [count - k for k in range(arrivals)]


@QUICK
@given(COUNTS, st.integers(0, 3))
def test_a_state_stands_for_its_phase(count: int, phases: int) -> None:
    """9.7.13.15.16: waiting with a state is waiting for the phase in which it was returned."""
    count += 1
    before = [("arrive", count)] * phases
    assert one(count, *before, ("keep", 1), ("arrive", count - 1), ("wait_kept", 0)).how == "done"
    assert one(count, *before, ("keep", 1), ("wait_kept", 0)).how == "stuck"


@QUICK
@given(st.integers(0, 3000), st.integers(0, 3))
def test_try_wait_gives_up_after_its_hint(hint: int, phases: int) -> None:
    """9.7.13.15.16: a time limit in nanoseconds; false, and not before, when the phase is not over."""
    out = np.zeros(3, np.uint32)
    body = f"""mbarrier.init.shared.b64 [bar], 1; {"mbarrier.arrive.shared.b64 _, [bar];" * phases} mov.u32 %r0, %clock;
        mbarrier.try_wait.parity.shared.b64 %p0, [bar], {phases % 2}, %hint; selp.u32 %r2, 1, 0, %p0; mov.u32 %r1, %clock;
        sub.u32 %r1, %r1, %r0; st.global.v2.u32 [%out], {{%r1, %r2}};"""
    T.assert_clean(T.run(body, out, hint, params="u64 out, u32 hint", shared=".shared .align 8 .b64 bar;", block=1))
    least = hint * T.machine.value("clock.boost_mhz") // 1000
    assert out[1] == 0 and least <= out[0] <= least + 100


# ---- waits, rings, phases ------------------------------------------------------------------------------


@QUICK
@given(st.integers(1, 6), SEEDS)
def test_all_waiters_of_a_phase_go_on(waiters: int, seed: int) -> None:
    """9.7.13.15.16."""
    program = BarrierProgram((1,), ((Op("pause", 0, 500), Op("arrive", 0, 1)), *[(Op("wait", 0, 0),)] * waiters))
    assert execute(program, seed).how == "done"


@QUICK
@given(st.integers(0, 3000))
def test_a_wait_blocks_no_longer_than_the_phase(pause: int) -> None:
    """9.7.13.15.16: the waiter's next instruction follows the completion by the wake-up, not by a time limit."""
    out = np.zeros(2, np.uint32)
    body = """mov.u32 %r0, %tid.x; setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [bar], 1; bar.sync 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra LATE;
        mbarrier.wait [bar], 0; mov.u32 %r1, %clock; st.global.u32 [%out], %r1; bra DONE;
        LATE: nanosleep.u32 %pause; mov.u32 %r1, %clock; setp.eq.u32 %p2, %r0, 32; @%p2 mbarrier.arrive.shared.b64 _, [bar]; st.global.u32 [%out + 4], %r1; DONE:"""
    T.assert_clean(T.run(body, out, pause, params="u64 out, u32 pause", shared=".shared .align 8 .b64 bar;", block=64))
    assert 0 <= int(out[0]) - int(out[1]) < 200


def test_a_waiter_may_lag_by_one_phase_and_no_more() -> None:
    """9.7.13.15.4: one completion behind, the parity tells; two behind, it looks like none (phase aliasing)."""
    late = (Op("pause", 0, 2000), Op("wait", 0, 0))
    assert execute(BarrierProgram((1,), (late, (Op("arrive", 0, 1),)))).how == "done"
    outcome, result = run(BarrierProgram((1,), (late, (Op("arrive", 0, 1), Op("arrive", 0, 1)))))
    assert outcome.how == "stuck" and result.deadlock.causes[0].rule == "MB205"


@QUICK
@given(st.integers(1, 4), SEEDS)
def test_a_producer_s_first_round_does_not_block(stages: int, seed: int) -> None:
    """9.7.13.15.16: on fresh empty barriers a wait for parity 1 passes and one for parity 0 does not."""
    passing = tuple(Op("wait", s, 1) for s in range(stages))
    assert execute(BarrierProgram((1,) * stages, (passing,)), seed).how == "done"
    assert execute(BarrierProgram((1,) * stages, ((Op("wait", stages - 1, 0),),)), seed).how == "stuck"


@QUICK
@given(pipelines(), SEEDS)
def test_every_item_comes_once_and_in_order(pipeline: Pipeline, seed: int) -> None:
    """9.7.13.15.4, .6: rings of full and empty barriers, under any timing."""
    outcome = execute(pipeline.program(), seed)
    assert outcome.how == "done" and outcome.answers == pipeline.answers()


@QUICK
@given(pipelines(producers=1, items=9), st.lists(SEEDS, min_size=2, max_size=4))
def test_interleavings_end_in_the_same_state(pipeline: Pipeline, seeds: list[int]) -> None:
    """9.7.13.15.5: words and answers."""
    assert len({execute(pipeline.program(), seed) for seed in seeds}) == 1


@QUICK
@given(st.integers(1, 4), st.integers(1, 10), st.booleans())
def test_a_producer_leads_by_no_more_than_the_ring_has_stages(stages: int, items: int, copies: bool) -> None:
    """9.7.13.15.4: with a consumer that never gives back, it stops behind as many items as there are slots."""
    program = Pipeline(stages, items, copies=copies).program()
    stopped = BarrierProgram(program.counts, (program.warps[0], ()))
    outcome = execute(stopped)
    each = len(program.warps[0]) // items
    assert outcome.at[0] == min(stages, items) * each and outcome.how == ("stuck" if items > stages else "done")


@QUICK
@given(st.integers(2, 4), st.integers(5, 9))
def test_a_ring_without_empty_barriers_loses_items(stages: int, items: int) -> None:
    """9.7.13.15.4: why the producer has to wait; the model knows all ways in which it may go wrong."""
    program = Pipeline(1, min(items, 4)).program()
    hasty = BarrierProgram(
        program.counts, (tuple(op for op in program.warps[0] if op.kind != "wait"), program.warps[1])
    )
    assert execute(hasty) in outcomes(hasty) and len(outcomes(hasty)) > 1
