"""Stated properties of mbarriers, named barriers, rings, bulk copies and register pools, each with its section of the PTX ISA.

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
from emu.testing.program import COPY_BYTES, Word
from programs.tensormap import TensorMap

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
    assert word(sum(parts) + 1, *(("arrive", n) for n in parts)) == word(sum(parts) + 1, *(("arrive", n) for n in shuffled))


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
    body = f"""mov.u32 %r0, bar; {f'mbarrier.init.shared.b64 [%r0], 1; {"mbarrier.arrive.shared.b64 _, [%r0];" * phases} mbarrier.inval.shared.b64 [%r0];' if phases else ''}
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
    steps = "".join(f"mbarrier.arrive.shared.b64 %d0, [bar]; mbarrier.pending_count.b64 %r0, %d0; st.global.u32 [%out + {4 * k}], %r0;" for k in range(arrivals))
    T.assert_clean(T.run(f"mbarrier.init.shared.b64 [bar], {count}; {steps}", out, params="u64 out", shared=".shared .align 8 .b64 bar;", block=1))
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
    hasty = BarrierProgram(program.counts, (tuple(op for op in program.warps[0] if op.kind != "wait"), program.warps[1]))
    assert execute(hasty) in outcomes(hasty) and len(outcomes(hasty)) > 1


# ---- named barriers ------------------------------------------------------------------------------------


@QUICK
@given(st.integers(1, 6), st.integers(0, 5), st.integers(0, 14), SEEDS)
def test_a_named_barrier_opens_when_all_have_come(syncs: int, signals: int, number: int, seed: int) -> None:
    """9.7.13.1: bar.sync and bar.arrive count alike, in any order; at once it can be used again."""
    many = syncs + signals
    lists = [(Op("sync", number, many),)] * syncs + [(Op("signal", number, many),)] * signals
    assert execute(BarrierProgram((), tuple(lists)), seed).how == "done"
    assert execute(BarrierProgram((), ((Op("sync", number, syncs),) * 3,) * syncs), seed).how == "done"


@QUICK
@given(st.integers(2, 6), st.integers(1, 5), SEEDS)
def test_a_named_barrier_waits_for_its_count(warps: int, missing: int, seed: int) -> None:
    """9.7.13.1: those that sync stay, those that only arrive go on."""
    coming = max(warps - missing, 1)
    lists = [(Op("sync", 1, warps),)] * coming + [()] * (warps - coming)
    outcome = execute(BarrierProgram((), tuple(lists)), seed)
    assert outcome.how == "stuck" and outcome.at == (0,) * warps


@QUICK
@given(st.integers(0, 13), SEEDS)
def test_named_barriers_are_independent(number: int, seed: int) -> None:
    """9.7.13.1: an arrival counts for one number only."""
    warps = ((Op("signal", number, 2), Op("sync", number + 1, 2)), (Op("signal", number + 1, 2), Op("sync", number, 2)))
    assert execute(BarrierProgram((), warps), seed).how == "done"
    wrong = ((Op("signal", number + 1, 2),), (Op("sync", number, 2),))
    assert execute(BarrierProgram((), wrong), seed).how == "stuck"


@QUICK
@given(st.integers(2, 5), SEEDS)
def test_participants_must_agree_on_the_count(warps: int, seed: int) -> None:
    """9.7.13.1: undefined otherwise, a fault here."""
    lists = ((Op("sync", 2, warps + 1),), (Op("pause", 0, 3000), Op("sync", 2, warps)), *[()] * (warps - 1))
    assert execute(BarrierProgram((), lists), seed).rule == "BA103"


@pytest.mark.parametrize("leaving", [1, 2, 3])
def test_without_a_count_those_that_have_left_do_not_count(leaving: int) -> None:
    """9.7.13.1: all threads of the CTA; warps that exited, before or while others wait, are no longer of it."""
    for pause in ("", "nanosleep.u32 2000;"):
        body = f"mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, {32 * leaving}; @%p0 bra STAY; {pause} exit; STAY: bar.sync 0; mov.u32 %r1, 1; st.global.u32 [%out], %r1;"
        out = np.zeros(1, np.uint32)
        T.assert_clean(T.run(body, out, params="u64 out", block=128))
        assert out[0] == 1


BRANCHES = """mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 0; @%p0 bra EVEN;
    {odd} bra MEET; EVEN: {even} MEET: bar.warp.sync -1; mul.wide.u32 %d0, %r0, 4; add.u64 %d0, %out, %d0; mov.u32 %r2, 1; st.global.u32 [%d0], %r2;"""


def test_a_warp_may_come_in_parts_where_alignment_is_not_promised() -> None:
    """9.7.13.1: barrier without .aligned waits for all threads of the warp; bar is aligned and must not diverge."""
    out = np.zeros(64, np.uint32)
    T.assert_clean(T.run(BRANCHES.format(odd="barrier.sync 3, 64;", even="nanosleep.u32 50; barrier.sync 3, 64;"), out, params="u64 out", block=64))
    assert out.all()
    counted = "setp.eq.u32 %p1, %r0, %r0; barrier.red.popc.u32 %r3, 3, 64, %p1; st.global.u32 [%out + 256], %r3;"
    counts = np.zeros(65, np.uint32)
    T.assert_clean(T.run(BRANCHES.format(odd=counted, even=counted), counts, params="u64 out", block=64))
    assert counts[64] == 64  # each lane once
    out[:] = 0
    T.assert_clean(T.run(BRANCHES.format(odd="barrier.sync 3, 64;", even="nanosleep.u32 50; exit;"), out, params="u64 out", block=64))
    assert out.tolist() == [0, 1] * 32  # lanes that have exited need not come
    for odd, even in (("barrier.sync 3, 64;", "nanosleep.u32 50;"), ("nanosleep.u32 50;", "barrier.sync 3, 64;")):
        result = T.run(BRANCHES.format(odd=odd, even=even), out, params="u64 out", block=64)
        assert [f.rule for f in result.findings] == ["WL103"]  # the others wait for them where paths meet
    for wrong in ("bar.sync 3, 64;", "barrier.sync.aligned 3, 64;"):
        result = T.run(BRANCHES.format(odd=wrong, even=wrong), out, params="u64 out", block=64)
        assert [f.rule for f in result.findings] == ["WL103"] and "barrier.sync without .aligned" in result.findings[0].message


# ---- bulk copies ---------------------------------------------------------------------------------------


@QUICK
@given(st.integers(1, 5), SEEDS)
def test_copied_data_is_there_when_the_wait_is_over(copies: int, seed: int) -> None:
    """9.7.9.25.4.1: the write and its complete_tx are one for whoever observes the phase."""
    ops = [Op("arrive_expect", 0, COPY_BYTES * copies), *(Op("copy", 0, k, k + 1) for k in range(copies))]
    program = BarrierProgram((1,), (tuple(ops), (Op("wait", 0, 0), *(Op("get", k) for k in range(copies)))))
    outcome = execute(program, seed)
    assert outcome.how == "done" and answers(outcome) == [k + 1 for k in range(copies)]


@QUICK
@given(st.integers(1, 6), st.integers(1, 6), SEEDS)
def test_a_phase_needs_all_its_copies(expected: int, copies: int, seed: int) -> None:
    """9.7.13.15.5: too few bytes and too many both hold it for ever."""
    ops = [Op("arrive_expect", 0, COPY_BYTES * expected), *[Op("copy", 0, 0, 1)] * copies, Op("wait", 0, 0)]
    first = execute(BarrierProgram((2,), (tuple(ops), (Op("pause", 0, 20_000), Op("arrive", 0, 1)))), seed)
    assert first.how == ("done" if expected == copies else "stuck")


STORE = """mov.u32 %r0, %tid.x; mov.u32 %r1, box; shl.b32 %r2, %r0, 2; add.u32 %r2, %r2, %r1; add.u32 %r3, %r0, 7; st.shared.u32 [%r2], %r3;
    fence.proxy.async.shared::cta; bar.sync 0; mov.u32 %r4, 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra DONE; tma.store.2d [%map, {%r4, %r4}], [%r1];
    cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; DONE: bar.sync 0; mov.u32 %r3, 99; st.shared.u32 [%r2], %r3;"""


@pytest.mark.parametrize("seed", range(6))
def test_a_store_s_source_is_free_when_it_has_been_read(seed: int) -> None:
    """9.7.9.25.6: wait_group.read; overwriting it afterwards does not reach the target."""
    array = np.zeros((1, 32), np.uint32)
    T.assert_clean(T.run(STORE, TensorMap(array, (32, 1), 0), params="tensormap map", shared=".shared .align 128 .b8 box[128];", chaos=seed))
    assert array[0].tolist() == list(range(7, 39))


# ---- setmaxnreg ----------------------------------------------------------------------------------------

REGISTERS = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 256, 1, 1 .maxnreg 128 {{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %out, %at; ld.param.u64 %out, [out]; mov.u32 %r0, %tid.x; setp.ge.u32 %p, %r0, 128;
    shr.u32 %r1, %r0, 5; mul.wide.u32 %at, %r1, 4; add.u64 %out, %out, %at; @%p bra TAKE;
    nanosleep.u32 {pause}; mov.u32 %r1, %clock; setmaxnreg.dec.sync.aligned.u32 {low}; st.global.u32 [%out], %r1; bra DONE;
    TAKE: setmaxnreg.inc.sync.aligned.u32 {high}; mov.u32 %r2, %clock; st.global.u32 [%out], %r2; DONE: ret;
}}
"""


@QUICK
@given(st.sampled_from([24, 40, 64, 128]), st.sampled_from([128, 168, 216, 232, 248]), SEEDS)
def test_registers_are_conserved(low: int, high: int, seed: int) -> None:
    """9.7.19.5: an increase ends only when the pool has what it needs, so the sum never exceeds what the CTA had at launch."""
    out = np.zeros(8, np.uint32)
    result = T.run(REGISTERS.format(pause=300, low=low, high=high), out, chaos=seed)
    if low + high <= 256:
        T.assert_clean(result)
        assert high == 128 or out[4:].min() > out[:4].min()  # behind a decrease
    else:
        assert result.deadlock.causes[0].rule == "RG101" and not out[4:].all()
        ledger = next(b for b in result.deadlock.barriers if b.kind == "registers")
        assert f"warps 0-3: {low} a thread" in " ".join(ledger.given) or low == 128


def test_an_increase_must_not_lower_nor_a_decrease_raise() -> None:
    """9.7.19.5."""
    for low, high in ((136, 200), (24, 120)):
        result = T.run(REGISTERS.format(pause=0, low=low, high=high), np.zeros(8, np.uint32))
        assert result.findings[0].rule == "SM103"
