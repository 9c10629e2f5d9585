"""bar and barrier."""

import pytest

from isa.registry import Const

ACCEPTED = {
    "bar.sync 0;": ("BAR.SYNC", 0, 0),
    "bar.sync 15;": ("BAR.SYNC", 15, 0),
    "bar.sync 1, 256;": ("BAR.SYNC", 1, 256),
    "bar.sync 1, 0;": ("BAR.SYNC", 1, 0),
    "bar.sync 1, 2048;": ("BAR.SYNC", 1, 2048),
    "bar.cta.sync 3, 64;": ("BAR.SYNC", 3, 64),
    "barrier.sync 2;": ("BAR.SYNC", 2, 0),
    "barrier.sync.aligned 2, 64;": ("BAR.SYNC", 2, 64),
    "barrier.cta.sync.aligned 2, 64;": ("BAR.SYNC", 2, 64),
    "bar.arrive 1, 256;": ("BAR.ARV", 1, 256),
    "bar.cta.arrive 1, 64;": ("BAR.ARV", 1, 64),
    "barrier.arrive 1, 64;": ("BAR.ARV", 1, 64),
    "barrier.cta.arrive.aligned 1, 64;": ("BAR.ARV", 1, 64),
}
REGISTERS = ["bar.sync %r5;", "bar.sync 1, %r5;", "bar.sync %r5, %r6;", "bar.arrive %r5, %r6;", "@%p1 bar.sync 0;"]
REJECTED = [
    "bar.sync 16;",
    "bar.sync -1;",
    "bar.sync 1, 33;",
    "bar.arrive 1;",
    "bar.arrive 1, 0;",
    "bar.arrive 1, 100;",
    "bar.sync.aligned 0;",
    "bar.sync;",
    "bar.sync %rd1;",
]


def test_accepted(instructions):
    instructions.accept([*ACCEPTED, *REGISTERS])


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", ACCEPTED)
def test_operands(instructions, text):
    (op,) = instructions.lower(text)
    name, barrier, threads = ACCEPTED[text]
    assert (op.micro.name, op.sources) == (name, (Const(barrier), Const(threads)))


REDUCTIONS = [
    *[f"{b}.red.popc.u32 %r5, {a}, {c};" for b in ("bar", "bar.cta", "barrier", "barrier.cta") for a in ("0", "%r3, 64", "15, %r6") for c in ("%p1", "!%p2")],
    *[f"{b}.red.{op}.pred %p3, {a}, %p1;" for b in ("bar", "barrier.cta") for op in ("and", "or") for a in ("0", "1, 64")],
    "barrier.red.popc.aligned.u32 %r5, 0, %p1;",
    "barrier.cta.red.or.aligned.pred %p3, 1, 32, !%p1;",
]  # fmt: skip


def test_reductions(instructions):
    instructions.accept(REDUCTIONS)
    assert instructions.words("bar.red.popc.u32 %r5, 0, %p1;") == [("BAR.RED", 1), ("B2R.RESULT", 0)]
    assert instructions.words("barrier.red.or.pred %p3, 0, 64, %p1;") == [("BAR.RED", 0), ("B2R.RESULT.PRED", 2)]


@pytest.mark.parametrize(
    "text",
    [
        "bar.red.popc.pred %p1, 0, %p2;",
        "bar.red.and.u32 %r1, 0, %p2;",
        "bar.red.xor.pred %p1, 0, %p2;",
        "bar.red.popc.u32 %r1, 16, %p2;",
        "bar.red.popc.u32 %r1, 0, 33, %p2;",
    ],
)
def test_reductions_that_nobody_takes(instructions, text):
    instructions.reject(text)
