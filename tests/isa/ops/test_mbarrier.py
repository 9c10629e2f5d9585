"""mbarrier operations: forms of the PTX manual and what SYNCS operations get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.expand import expand
from isa.micro import MICROS
from isa.ops.mbarrier import DROP, EXPECT_TX, HINTED, NO_COMPLETE, TEST_ONLY, barrier_word
from isa.ptx import to_ptx
from isa.registry import Const

ACCEPTED = {
    "mbarrier.init.shared.b64 [%r1], %r5;": ("SYNCS.INIT", 0),
    "mbarrier.init.shared::cta.b64 [smem+8], 384;": ("SYNCS.INIT", 0),
    "mbarrier.init.b64 [%rd3+16], 1;": ("SYNCS.INIT", 16),
    "mbarrier.inval.shared.b64 [%r1+8];": ("SYNCS.INVAL", 8),
    "mbarrier.inval.b64 [%rd3];": ("SYNCS.INVAL", 0),
    "mbarrier.arrive.b64 %rd5, [%rd3];": ("SYNCS.ARRIVE", 0),
    "mbarrier.arrive.shared.b64 _, [%r1+8];": ("SYNCS.ARRIVE", 8),
    "mbarrier.arrive.shared::cta.b64 %rd5, [%r1], %r5;": ("SYNCS.ARRIVE", 0),
    "mbarrier.arrive.release.cta.shared::cta.b64 _, [%r1];": ("SYNCS.ARRIVE", 0),
    "mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [%r1];": ("SYNCS.ARRIVE", 0),
    "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r1], 2;": ("SYNCS.ARRIVE", 0),
    "mbarrier.arrive.noComplete.shared.b64 %rd5, [%r1], 2;": ("SYNCS.ARRIVE", NO_COMPLETE),
    "mbarrier.arrive.noComplete.release.cta.shared::cta.b64 _, [%r1], %r5;": ("SYNCS.ARRIVE", NO_COMPLETE),
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+-8], 4096;": ("SYNCS.ARRIVE", barrier_word(-8, EXPECT_TX)),
    "mbarrier.arrive.expect_tx.b64 %rd5, [%rd3], %r5;": ("SYNCS.ARRIVE", EXPECT_TX),
    "mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r1], 4096;": ("SYNCS.ARRIVE", EXPECT_TX),
    "mbarrier.arrive_drop.shared.b64 _, [%r1], 2;": ("SYNCS.ARRIVE", DROP),
    "mbarrier.arrive_drop.noComplete.shared.b64 %rd5, [%r1], 2;": ("SYNCS.ARRIVE", DROP | NO_COMPLETE),
    "mbarrier.arrive_drop.expect_tx.shared.b64 _, [%r1], 64;": ("SYNCS.ARRIVE", DROP | EXPECT_TX),
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;": ("SYNCS.EXPECT", 0),
    "mbarrier.expect_tx.b64 [%rd3], 16;": ("SYNCS.EXPECT", 0),
    "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r1+8], %r5;": ("SYNCS.COMPLETE", 8),
    "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;": ("SYNCS.TRYWAIT", TEST_ONLY),
    "mbarrier.test_wait.parity.relaxed.cluster.shared::cta.b64 %p1, [%r1], 1;": ("SYNCS.TRYWAIT", TEST_ONLY),
    "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+8], %r5;": ("SYNCS.TRYWAIT", 8),
    "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], %r5;": ("SYNCS.TRYWAIT", 0),
    "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r5, 0x989680;": ("SYNCS.TRYWAIT", HINTED),
    "mbarrier.try_wait.parity.relaxed.cta.b64 %p1, [%rd3], %r5, %r6;": ("SYNCS.TRYWAIT", HINTED),
    "mbarrier.test_wait.shared.b64 %p1, [%r1], %rd5;": ("SYNCS.TRYWAIT.STATE", TEST_ONLY),
    "mbarrier.try_wait.b64 %p1, [%rd3], %rd5;": ("SYNCS.TRYWAIT.STATE", 0),
    "mbarrier.try_wait.shared.b64 %p1, [%r1], %rd5, 1000;": ("SYNCS.TRYWAIT.STATE", HINTED),
    "mbarrier.pending_count.b64 %r5, %rd5;": ("SYNCS.PENDING", 0),
}
REJECTED = [
    "mbarrier.init.shared::cluster.b64 [%r1], %r5;",
    "mbarrier.init.shared.b32 [%r1], 1;",
    "mbarrier.init.b64 [%r1], 1;",
    "mbarrier.arrive.relaxed.shared::cta.b64 _, [%r1];",
    "mbarrier.arrive.cta.shared::cta.b64 _, [%r1];",
    "mbarrier.arrive.release.gpu.shared::cta.b64 _, [%r1];",
    "mbarrier.arrive.shared::cluster.b64 %rd5, [%r1];",
    "mbarrier.arrive.noComplete.shared.b64 %rd5, [%r1];",
    "mbarrier.arrive.noComplete.relaxed.cta.shared::cta.b64 %rd5, [%r1], %r5;",
    "mbarrier.arrive.noComplete.release.cluster.shared::cta.b64 %rd5, [%r1], %r5;",
    "mbarrier.arrive.noComplete.shared::cluster.b64 _, [%r1], %r5;",
    "mbarrier.arrive.shared.b64 _, [%r1], 0;",
    "mbarrier.arrive.shared.b64 _, [%r1], -1;",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1];",
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 4096, 2;",
    "mbarrier.arrive_drop.shared::cluster.b64 %rd5, [%r1];",
    "mbarrier.expect_tx.relaxed.shared.b64 [%r1], 16;",
    "mbarrier.expect_tx.release.cta.shared.b64 [%r1], 16;",
    "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 2;",
    "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r1], 1, 100;",
    "mbarrier.test_wait.parity.shared::cluster.b64 %p1, [%r1], 1;",
    "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 2;",
    "mbarrier.try_wait.parity.acquire.gpu.shared::cta.b64 %p1, [%r1], %r5;",
    "mbarrier.try_wait.parity.acquire.shared::cta.b64 %p1, [%r1], %r5;",
    "mbarrier.try_wait.parity.release.cta.b64 %p1, [%rd3], %r5;",
    "mbarrier.try_wait.parity.shared::cluster.b64 %p1, [%r1], %r5;",
    "mbarrier.try_wait.shared.b64 %p1, [%r1], %r5;",
    "mbarrier.pending_count.b64 %rd5, %rd5;",
]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", ACCEPTED)
def test_words(instructions, text):
    assert instructions.words(text) == [ACCEPTED[text]]


def test_an_arrival_counts_one_and_a_sink_takes_no_register(instructions):
    (op,) = instructions.lower("mbarrier.arrive.shared::cta.b64 _, [%r1];")
    assert (op.sources[1], op.results) == (Const(1), (None,))


# States that an H200 stored (init counts 1, 2, 128, 384).
@pytest.mark.parametrize(
    "state, count",
    [(0x7FFFF800001FFFFE, 1), (0x7FFFF000001FFFFC, 2), (0x7FFC0000001FFF00, 128), (0x7FF40000001FFD00, 384)],
)
def test_pending_count_of_recorded_words(state, count):
    assert MICROS["SYNCS.PENDING"].meaning(state) == count


@given(st.integers(1, (1 << 20) - 1), st.integers(0, (1 << 43) - 1), st.booleans())
def test_pending_count_reads_only_its_field(count, low, parity):
    state = low | (-count & 0xFFFFF) << 43 | parity << 63
    assert MICROS["SYNCS.PENDING"].meaning(state) == count


def test_wait_is_the_try_wait_loop(instructions):
    text = "mbarrier.wait [%r1+8], %r5;"
    wait, again = instructions.lower(text)
    assert (wait.micro.name, wait.imm, again.micro.name) == ("SYNCS.TRYWAIT", 8, "BRA")
    assert again.guard.reg == wait.results[0]


def test_wait_prints_as_ptx_that_ptxas_takes(instructions, ptxas):
    """Twice in one scope, and with a parity register that the loop's own names must not hide."""
    body = """.reg .b32 %done, %WAIT;
        mbarrier.wait [smem+8], 1;
        mbarrier.wait [%r1], %done;
        mbarrier.wait [%r1], %WAIT;
        ret;"""
    source = instructions.kernel(body)
    accepted, messages = ptxas(to_ptx(expand(source, "test.mptx", {}, ())), "sm_90a")
    assert accepted, messages
