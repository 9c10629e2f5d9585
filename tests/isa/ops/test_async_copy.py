"""cp.async."""

import pytest

from isa.ops.async_copy import ALL, NOINC, copy_word

COPY = "LDGSTS"
ACCEPTED = {
    "cp.async.ca.shared.global [%r1], [%rd1], 4;": (COPY, copy_word(0, 0, 4)),
    "cp.async.ca.shared::cta.global [%r1+16], [%rd1+-8], 8;": (COPY, copy_word(16, -8, 8)),
    "cp.async.cg.shared.global [smem], [%rd1], 16, %r5;": (COPY, copy_word(0, 0, 16)),
    "cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16, 0;": (COPY, copy_word(0, 0, 16)),
    "cp.async.ca.shared.global.L2::cache_hint [%r1], [%rd1], 16, %rd2;": (COPY, copy_word(0, 0, 16)),
    "cp.async.ca.shared.global.L2::cache_hint.L2::256B [%r1], [%rd1], 16, %r5, %rd2;": (COPY, copy_word(0, 0, 16)),
    "cp.async.ca.shared.global [%r1], [%rd1], 8, %p1;": (COPY, copy_word(0, 0, 8)),
    "cp.async.cg.shared.global [%r1], [%rd1], 16, !%p1;": (COPY, copy_word(0, 0, 16)),
    "cp.async.commit_group;": ("LDGDEPBAR", 0),
    "cp.async.wait_group 0;": ("DEPBAR.LE", 0),
    "cp.async.wait_group 3;": ("DEPBAR.LE", 3),
    "cp.async.wait_all;": ("DEPBAR.LE", ALL),
    "cp.async.mbarrier.arrive.shared.b64 [%r1+8];": ("ARRIVES.LDGSTSBAR", 8),
    "cp.async.mbarrier.arrive.noinc.b64 [%rd1];": ("ARRIVES.LDGSTSBAR", NOINC),
    "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];": ("ARRIVES.LDGSTSBAR", NOINC),
}
REJECTED = [
    "cp.async.cg.shared.global [%r1], [%rd1], 8;",
    "cp.async.ca.shared.global [%r1], [%rd1], 12;",
    "cp.async.ca.shared.global [%r1], [%rd1], %r2;",
    "cp.async.ca.global.shared [%rd1], [%r1], 16;",
    "cp.async.wait_group %r1;",
    "cp.async.wait_group;",
    "cp.async.commit_group 0;",
    "cp.async.wait_all 0;",
]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", ACCEPTED)
def test_words(instructions, text):
    assert instructions.words(text) == [ACCEPTED[text]]


def test_large_offsets_are_added(instructions):
    names = [name for name, _ in instructions.words("cp.async.ca.shared.global [%r1+16777216], [%rd1+16777216], 16;")]
    assert names[-1] == COPY and names.count("IADD3") == 1 and len(names) == 4


def test_on_ampere(instructions):
    for text in ACCEPTED:
        instructions.lower(text, "sm_80")
