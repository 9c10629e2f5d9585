"""shfl, vote, elect, bar.warp.sync, activemask."""

import pytest

from isa.registry import Const, NotPred, PredConst

ACCEPTED = {
    "bar.warp.sync 0xffffffff;": ("WARPSYNC", 0),
    "bar.warp.sync %r5;": ("WARPSYNC", 0),
    "shfl.sync.up.b32 %f5|%p1, %f6, 1, 0, -1;": ("SHFL", 0),
    "shfl.sync.down.b32 %r5|_, %f6, 1, 0, -1;": ("SHFL", 1),
    "shfl.sync.bfly.b32 %f5, %f6, 1, 31, -1;": ("SHFL", 2),
    "shfl.sync.idx.b32 %r5|%p1, %r6, %r7, %r8, %r9;": ("SHFL", 3),
    "shfl.sync.idx.b32 %r5, 7, 0, 31, -1;": ("SHFL", 3),
    "vote.sync.all.pred %p1, %p2, -1;": ("VOTE", 0),
    "vote.sync.any.pred %p1, !%p2, %r5;": ("VOTE", 1),
    "vote.sync.uni.pred %p1, %p2, 0xffffffff;": ("VOTE", 2),
    "vote.sync.ballot.b32 %r5, %p2, -1;": ("VOTE.BALLOT", 3),
    "vote.sync.ballot.b32 %r5, 1, -1;": ("VOTE.BALLOT", 3),
    "elect.sync %r5|%p1, -1;": ("ELECT", 0),
    "elect.sync _|%p1, %r5;": ("ELECT", 0),
    "activemask.b32 %r5;": ("VOTE.ACTIVE", 0),
    "redux.sync.add.s32 %r5, %r6, -1;": ("REDUX", 0 | 1 << 8),
    "redux.sync.max.u32 %r5, 7, %r7;": ("REDUX", 2),
    "redux.sync.xor.b32 %r5, %r6, -1;": ("REDUX", 5),
    "match.any.sync.b32 %r5, %f6, -1;": ("MATCH.ANY", 0),
    "match.any.sync.b64 %r5, %rd6, %r7;": ("MATCH.ANY.U64", 2),
    "match.all.sync.b32 %r5|%p1, %r6, -1;": ("MATCH.ALL", 1),
    "match.all.sync.b64 %r5, %rd6, -1;": ("MATCH.ALL.U64", 3),
    "match.all.sync.b32 _|%p1, %r6, -1;": ("MATCH.ALL", 1),
}
REJECTED = [
    "bar.warp.sync;",
    "shfl.sync.down.b32 _|%p1, %f6, 1, 0, -1;",
    "shfl.sync.down.b64 %rd5, %rd6, 1, 0, -1;",
    "shfl.sync.down.u32 %r5, %r6, 1, 0, -1;",
    "shfl.down.b32 %r5, %r6, 1, 0;",
    "shfl.sync.idx.b32 %r5, %r6, 0, 31;",
    "vote.sync.all.b32 %r5, %p2, -1;",
    "vote.sync.ballot.pred %p1, %p2, -1;",
    "vote.sync.uni.pred _, %p2, -1;",
    "vote.ballot.b32 %r5, %p2;",
    "elect.sync %r5|_, -1;",
    "elect.sync %r5, -1;",
    "elect.sync %p1, -1;",
    "elect.sync %f5|%p1, -1;",
    "activemask.u32 %r5;",
    "redux.sync.add.b32 %r5, %r6, -1;",
    "redux.sync.min.f32 %f5, %f6, -1;",
    "redux.sync.and.u32 %r5, %r6, -1;",
    "match.any.sync.b32 %r5|%p1, %r6, -1;",
    "match.any.b32 %r5, %r6, -1;",
    "match.all.sync.u32 %r5, %r6, -1;",
]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", ACCEPTED)
def test_words(instructions, text):
    assert instructions.words(text) == [ACCEPTED[text]]


def test_operands_of_a_shuffle(instructions):
    (op,) = instructions.lower("shfl.sync.bfly.b32 %r5, %r6, 2, 31, -1;")
    assert op.sources[1:] == (Const(2), Const(31), (Const(0xFFFFFFFF),))
    assert op.results[1] is None


def test_predicate_sources(instructions):
    (negated,) = instructions.lower("vote.sync.any.pred %p1, !%p2, -1;")
    assert isinstance(negated.sources[0], NotPred)
    (constant,) = instructions.lower("vote.sync.ballot.b32 %r5, 1, -1;")
    assert constant.sources[0] == PredConst(True)


def test_a_sink_takes_no_register(instructions):
    (op,) = instructions.lower("elect.sync _|%p1, -1;")
    assert op.results[0] is None
