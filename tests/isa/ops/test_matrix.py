"""ldmatrix and stmatrix."""

import pytest

from isa.ops.matrix import matrix_word

V4 = "{%r5,%r6,%r7,%r8}"
ACCEPTED = {
    f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {V4}, [%r1];": ("LDSM.16.M88.4", matrix_word(0, 4)),
    f"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {V4}, [%r1];": ("LDSM.16.M88.4", matrix_word(0, 4, True)),
    f"ldmatrix.sync.aligned.x4.m8n8.trans.shared::cta.b16 {V4}, [%r1+32];": (
        "LDSM.16.M88.4", matrix_word(32, 4, True)),
    "ldmatrix.sync.aligned.m8n8.x2.b16 {%r5,%r6}, [%rd3];": ("LDSM.16.M88.2", matrix_word(0, 2)),
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%f5,%f6}, [smem];": ("LDSM.16.M88.2", matrix_word(0, 2)),
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r5,_}, [%rd2];": ("LDSM.16.M88.2", matrix_word(0, 2)),
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r1+-16];": ("LDSM.16.M88", matrix_word(-16, 1)),
    f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {V4};": ("STSM.16.M88.4", matrix_word(0, 4)),
    f"stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r1+16], {V4};": ("STSM.16.M88.4", matrix_word(16, 4, True)),
    "stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [%r1], {%r5,3};": ("STSM.16.M88.2", matrix_word(0, 2)),
    "stmatrix.sync.aligned.x1.m8n8.b16 [%rd3], {%r5};": ("STSM.16.M88", matrix_word(0, 1)),
}  # fmt: skip
REJECTED = [
    "ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r5, [%r1];",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5,%r6}, [%r1];",
    f"ldmatrix.sync.aligned.m8n8.x4.global.b16 {V4}, [%rd1];",
    f"ldmatrix.sync.aligned.m8n8.x4.shared.b8 {V4}, [%r1];",
    f"ldmatrix.sync.m8n8.x4.shared.b16 {V4}, [%r1];",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%rd5,%rd6}, [%r1];",
    "stmatrix.sync.aligned.x1.m8n8.shared.b16 [%r1], %r5;",
    "stmatrix.sync.aligned.m8n8.shared.b16 [%r1], {%r5};",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {%r5};",
    "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {%r5,_};",
]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", ACCEPTED)
def test_words(instructions, text):
    assert instructions.words(text) == [ACCEPTED[text]]


@pytest.mark.parametrize("number, timing", [(1, "ldsm1"), (2, "ldsm2"), (4, "ldsm4")])
def test_one_row_per_matrix_and_its_timing_class(instructions, number, timing):
    vector = ", ".join(f"%r{k}" for k in range(number))
    (op,) = instructions.lower(f"ldmatrix.sync.aligned.m8n8.x{number}.shared.b16 {{{vector}}}, [%r9];")
    assert (len(op.results[0]), op.micro.timing) == (number, timing)


def test_stmatrix_needs_hopper(instructions):
    with pytest.raises(Exception, match="sm_80"):
        instructions.lower("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r5};", "sm_80")
