"""Groups of bulk copies."""

import pytest

from isa.ops.bulk import READ

ACCEPTED = {
    "cp.async.bulk.commit_group;": ("UTMACMDFLUSH", 0),
    "cp.async.bulk.wait_group 0;": ("DEPBAR.BULK", 0),
    "cp.async.bulk.wait_group 64;": ("DEPBAR.BULK", 64),
    "cp.async.bulk.wait_group.read 3;": ("DEPBAR.BULK", 3 | READ),
}
REJECTED = ["cp.async.bulk.wait_group %r5;", "cp.async.bulk.wait_group;", "cp.async.bulk.commit_group 1;"]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", ACCEPTED)
def test_words(instructions, text):
    assert instructions.words(text) == [ACCEPTED[text]]


def test_negative_count_is_refused(instructions):
    """Stricter than ptxas, which takes it."""
    with pytest.raises(Exception, match="not negative"):
        instructions.lower("cp.async.bulk.wait_group -1;")
