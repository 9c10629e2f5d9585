"""Branches, exits, traps, sleeping, dependent launch."""

import pytest

ACCEPTED = {
    "L: bra L;": "BRA",
    "L: bra.uni L;": "BRA",
    "L: @%p1 bra L;": "BRA",
    "L: @!%p1 bra.uni L;": "BRA",
    "ret;": "EXIT",
    "ret.uni;": "EXIT",
    "@%p1 exit;": "EXIT",
    "trap;": "BPT.TRAP",
    "pmevent 3;": "NOP",
    "pmevent.mask 7;": "NOP",
    "T: .branchtargets T; brx.idx %r5, T;": "BRA",
    "brkpt;": "BPT.TRAP",
    "nanosleep.u32 100;": "NANOSLEEP",
    "nanosleep.u32 %r5;": "NANOSLEEP",
    "griddepcontrol.wait;": "NOP",
    "griddepcontrol.launch_dependents;": "NOP",
}
REJECTED = ["bra %r1;", "bra NOWHERE;", "ret %r1;", "exit.uni;", "nanosleep.b32 %r5;", "griddepcontrol.foo;"]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", ACCEPTED)
def test_micro_operations(instructions, text):
    (op,) = instructions.lower(text)
    assert op.micro.name == ACCEPTED[text]
    assert (op.guard is not None) == ("%p1" in text)
    assert (op.label is not None) == ("bra" in text)


def test_a_pragma_costs_nothing(instructions):
    assert instructions.lower('.pragma "nounroll";') == []
