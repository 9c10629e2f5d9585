"""Stated properties of named barriers, bulk copies and register pools, each with its section of the PTX ISA.

Programs run on the machine; what is expected is written here in closed form, not taken from the reference model.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.testing import BarrierProgram, Op, Snippets, execute
from emu.testing.program import COPY_BYTES
from programs.tensormap import TensorMap

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 500)
T = Snippets("h200", ["chip.sms=1"])


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
    T.assert_clean(
        T.run(
            BRANCHES.format(odd="barrier.sync 3, 64;", even="nanosleep.u32 50; barrier.sync 3, 64;"),
            out,
            params="u64 out",
            block=64,
        )
    )
    assert out.all()
    counted = "setp.eq.u32 %p1, %r0, %r0; barrier.red.popc.u32 %r3, 3, 64, %p1; st.global.u32 [%out + 256], %r3;"
    counts = np.zeros(65, np.uint32)
    T.assert_clean(T.run(BRANCHES.format(odd=counted, even=counted), counts, params="u64 out", block=64))
    assert counts[64] == 64  # each lane once
    out[:] = 0
    T.assert_clean(
        T.run(
            BRANCHES.format(odd="barrier.sync 3, 64;", even="nanosleep.u32 50; exit;"), out, params="u64 out", block=64
        )
    )
    assert out.tolist() == [0, 1] * 32  # lanes that have exited need not come
    for odd, even in (("barrier.sync 3, 64;", "nanosleep.u32 50;"), ("nanosleep.u32 50;", "barrier.sync 3, 64;")):
        result = T.run(BRANCHES.format(odd=odd, even=even), out, params="u64 out", block=64)
        assert [f.rule for f in result.findings] == ["WL103"]  # the others wait for them where paths meet
    for wrong in ("bar.sync 3, 64;", "barrier.sync.aligned 3, 64;"):
        result = T.run(BRANCHES.format(odd=wrong, even=wrong), out, params="u64 out", block=64)
        assert [f.rule for f in result.findings] == ["WL103"] and "barrier.sync without .aligned" in result.findings[
            0
        ].message


# ---- bulk copies ---------------------------------------------------------------------------------------


@QUICK
@given(st.integers(1, 5), SEEDS)
def test_copied_data_is_there_when_the_wait_is_over(copies: int, seed: int) -> None:
    """9.7.9.25.4.1: the write and its complete_tx are one for whoever observes the phase."""
    ops = [Op("arrive_expect", 0, COPY_BYTES * copies), *(Op("copy", 0, k, k + 1) for k in range(copies))]
    program = BarrierProgram((1,), (tuple(ops), (Op("wait", 0, 0), *(Op("get", k) for k in range(copies)))))
    outcome = execute(program, seed)
    assert outcome.how == "done" and [value for _, _, value in outcome.answers] == [k + 1 for k in range(copies)]


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
    T.assert_clean(
        T.run(
            STORE,
            TensorMap(array, (32, 1), 0),
            params="tensormap map",
            shared=".shared .align 128 .b8 box[128];",
            chaos=seed,
        )
    )
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
