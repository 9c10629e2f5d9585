"""setmaxnreg."""

import pytest

from isa.ops.setmaxnreg import INC

REJECTED = [
    "setmaxnreg.inc.sync.aligned.u32 20;",
    "setmaxnreg.inc.sync.aligned.u32 264;",
    "setmaxnreg.dec.sync.aligned.u32 100;",
    "setmaxnreg.dec.sync.aligned.u32 0;",
    "setmaxnreg.inc.sync.aligned.u32 %r5;",
    "setmaxnreg.inc.sync.aligned.b32 240;",
    "setmaxnreg.sync.aligned.u32 240;",
]


@pytest.mark.parametrize("direction, flag", [("inc", INC), ("dec", 0)])
def test_every_legal_count(instructions, direction, flag):
    counts = range(24, 257, 8)
    texts = [f"setmaxnreg.{direction}.sync.aligned.u32 {n};" for n in counts]
    instructions.accept(texts)
    for n, text in zip(counts, texts, strict=True):
        assert instructions.words(text) == [("USETMAXREG", n | flag)]


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


def test_needs_an_architecture_specific_target(instructions):
    with pytest.raises(Exception, match="sm_90"):
        instructions.lower("setmaxnreg.inc.sync.aligned.u32 240;", "sm_90")
