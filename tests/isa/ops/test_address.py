"""cvta, isspacep, and addresses that units take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.micro import MICROS
from isa.program import GLOBAL_BASE, LOCAL_WINDOW, PARAM_BASE, SHARED_BASE, SHARED_WINDOW
from isa.registry import Const, Half

SPACES = ["shared", "shared::cta", "shared::cluster", "local", "global", "const", "param", "param::entry"]
CONVERSIONS = [
    *(f"cvta.{space}.u64 %rd5, %rd6;" for space in SPACES),
    *(f"cvta.to.{space}.u64 %rd5, %rd6;" for space in SPACES),
    "cvta.shared.u64 %rd5, smem;",
    "cvta.param.u64 %rd5, map;",
    "cvta.local.u64 %rd5, stack;",
]
CLASSES = [f"istypep.{kind} %p1, %rd5;" for kind in ("texref", "samplerref", "surfref")]
TESTED = ["shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "global"]
QUERIES = [f"isspacep.{space} %p1, %rd5;" for space in TESTED]
REJECTED = [
    "cvta.u64 %rd5, %rd6;",
    "cvta.to.shared.u64 %rd5, smem;",
    "cvta.shared.to.u64 %rd5, %rd6;",
    "cvta.shared.u64 %r5, %rd6;",
    "isspacep.shared.u64 %p1, %rd5;",
    "isspacep.shared %r1, %rd5;",
]


def test_accepted(instructions):
    instructions.accept([*CONVERSIONS, *QUERIES, *CLASSES, "isspacep.const %p1, %rd5;"])


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


def upper(instructions, text):
    """The source of the upper half of a conversion."""
    low, high = instructions.lower(text)
    assert (low.micro.name, high.micro.name) == ("MOV", "MOV")
    return high.sources[0]


def test_windows_are_put_on_and_taken_off(instructions):
    assert upper(instructions, "cvta.shared.u64 %rd5, %rd6;") == Const(SHARED_WINDOW >> 32)
    assert upper(instructions, "cvta.local.u64 %rd5, %rd6;") == Const(LOCAL_WINDOW >> 32)
    assert upper(instructions, "cvta.to.shared.u64 %rd5, %rd6;") == Const(0)
    assert upper(instructions, "cvta.to.local.u64 %rd5, %rd6;") == Const(0)
    assert upper(instructions, "cvta.param.u64 %rd5, %rd6;") == Const(PARAM_BASE >> 32)
    assert upper(instructions, "cvta.to.param.u64 %rd5, %rd6;") == Const(0)
    for space in ("global", "const"):
        for to in ("", "to."):
            assert isinstance(upper(instructions, f"cvta.{to}{space}.u64 %rd5, %rd6;"), Half)


def test_addresses_of_variables(instructions):
    low, high = instructions.lower("cvta.shared.u64 %rd5, smem;")
    assert low.sources[0].bits == SHARED_BASE
    low, high = instructions.lower("cvta.param.u64 %rd5, map;")
    assert low.sources[0].bits | high.sources[0].bits << 32 == PARAM_BASE + 64


@given(st.integers(0, (1 << 32) - 1))
def test_windows_do_not_overlap(offset):
    inside, is_global = MICROS["QSPC.E"].meaning, MICROS["QSPC.E.G"].meaning
    for window in (SHARED_WINDOW, LOCAL_WINDOW):
        address = window + offset
        assert inside(address, window >> 32) and not is_global(address)
    for window in (GLOBAL_BASE, PARAM_BASE):
        assert is_global(window + offset) and not inside(window + offset, SHARED_WINDOW >> 32)


def test_queries_ask_for_their_window(instructions):
    asked = {space: instructions.lower(f"isspacep.{space} %p1, %rd5;")[0] for space in TESTED}
    assert asked["global"].micro.name == "QSPC.E.G"
    assert asked["shared::cta"].sources[1] == asked["shared"].sources[1] == Const(SHARED_WINDOW >> 32)
    assert asked["local"].sources[1] == Const(LOCAL_WINDOW >> 32)
    assert asked["param"].sources[1] == Const(PARAM_BASE >> 32)
