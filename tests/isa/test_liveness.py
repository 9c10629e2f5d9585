"""Liveness: guarded definitions, values that were never defined, registers of wgmma in flight."""

from isa import registry
from isa.cfg import graph
from isa.code import MicroOp
from isa.liveness import analyse, walk
from isa.micro import MICROS
from isa.registry import Const, NotPred, PredConst, VReg
from isa.syntax import Pos

registry.load()
POS = Pos("t", 1, 1)
P = VReg(0, "p")
A, B, C, D = (VReg(i, "r") for i in range(1, 5))
DESC = Const(0, "d")


def op(name, results=(), sources=(), imm=0, label=None, guard=None):
    return MicroOp(MICROS[name], tuple(results), tuple(sources), imm, label, guard, POS, "")


def held_after(ops, labels=None):
    """operation -> ids of registers that must keep their rows just after it."""
    g = graph(ops, labels or {})
    live = analyse(ops, g)
    found = {}
    for b in range(g.count):
        for i, held in walk(ops, g, live, b):
            found[i] = {w // 2 for w, bit in live.numbers.items() if held >> bit & 1}
    return [found[i] for i in range(len(ops))]


def test_straight_line():
    ops = [op("S2R", [A]), op("S2R", [B]), op("IADD3", [C], [A, B]), op("NANOSLEEP", [], [C]), op("EXIT")]
    assert held_after(ops) == [{1}, {1, 2}, {3}, set(), set()]


def test_guarded_definition_keeps_the_old_value():
    ops = [op("S2R", [A]), op("S2R", [B]), op("MOV", [A], [B], guard=P), op("NANOSLEEP", [], [A]), op("EXIT")]
    assert held_after(ops)[1] == {1, 2}  # and P was never defined


def test_definitions_under_a_guard_and_its_opposite_end_a_life():
    ops = [
        op("IADD3.CC", [A, P], [Const(1), Const(2)]),
        op("MOV", [A], [Const(1)], guard=P),
        op("MOV", [A], [Const(2)], guard=NotPred(P)),
        op("NANOSLEEP", [], [A]),
        op("EXIT"),
    ]
    assert held_after(ops)[0] == {0}
    assert held_after([*ops[:1], op("NOP"), *ops[1:]])[1] == {0}
    changed = [*ops[:2], op("IADD3.CC", [B, P], [Const(1), Const(2)]), *ops[2:]]
    assert held_after([changed[0], op("NOP"), *changed[1:]])[1] == {0, 1}


def test_what_a_guard_defines_and_reads_does_not_live_around_a_loop():
    ops = [
        op("IADD3.CC", [B, P], [Const(1), Const(2)]),
        op("MOV", [A], [Const(1)], guard=P),
        op("NANOSLEEP", [], [A], guard=P),
        op("BRA", label="L", guard=P),
        op("EXIT"),
    ]
    assert held_after(ops, {"L": 1})[2] == {0}
    ops[2] = op("NANOSLEEP", [], [A])
    assert held_after(ops, {"L": 1})[2] == {0, 1}


def test_undefined_values_do_not_live():
    ops = [op("S2R", [B]), op("MOV", [A], [B], guard=P), op("NANOSLEEP", [], [A]), op("EXIT")]
    assert held_after(ops)[0] == {2}


def test_loops_carry_values():
    ops = [op("S2R", [A]), op("IADD3", [A], [A, Const(1)]), op("BRA", label="L", guard=P), op("EXIT")]
    assert held_after(ops, {"L": 1}) == [{1}, {1}, {1}, set()]


def mma(scale=True):
    return op("HGMMA.RS", [(A,)], [DESC, PredConst(scale), (B,)])


def test_wgmma_registers_are_held_until_the_covering_wait():
    ops = [
        op("S2R", [B]),
        mma(scale=False),
        op("WARPGROUP.COMMIT"),
        op("S2R", [C]),
        op("WARPGROUP.DEPBAR", imm=0),
        op("NANOSLEEP", [], [C]),
        op("EXIT"),
    ]
    held = held_after(ops)
    assert held[0] == {2} and held[1] == {1, 2} and held[3] == {1, 2, 3} and held[4] == {3}


def test_an_earlier_group_can_be_waited_for_alone():
    first = op("HGMMA.RS", [(A,)], [DESC, PredConst(False), (B,)])
    second = op("HGMMA.RS", [(C,)], [DESC, PredConst(False), (D,)])
    commit = op("WARPGROUP.COMMIT")
    ops = [op("S2R", [B]), op("S2R", [D]), first, commit, second, commit]
    ops += [op("WARPGROUP.DEPBAR", imm=1), op("WARPGROUP.DEPBAR", imm=0), op("EXIT")]
    held = held_after(ops)
    assert held[5] == {1, 2, 3, 4} and held[6] == {3, 4} and held[7] == set()


def test_groups_in_flight_around_a_loop_are_finite():
    ops = [op("S2R", [B]), mma(), op("WARPGROUP.COMMIT"), op("BRA", label="L", guard=P), op("EXIT")]
    assert held_after(ops, {"L": 1})[2] >= {1, 2}


def test_accumulators_are_read_unless_scale_d_is_false():
    before = [op("S2R", [A]), op("S2R", [B])]
    assert 1 in held_after([*before, mma(True), op("EXIT")])[1]
    assert 1 not in held_after([*before, mma(False), op("EXIT")])[1]
