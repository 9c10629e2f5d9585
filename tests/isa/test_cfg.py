"""Blocks, dominators and reconvergence points, against definitions by reachability."""

from hypothesis import given, settings
from hypothesis import strategies as st

from isa import registry
from isa.cfg import dominates, dominators, graph, immediate_dominators, reconvergence
from isa.code import MicroOp
from isa.micro import MICROS
from isa.registry import VReg
from isa.syntax import Pos

registry.load()
POS, P = Pos("t", 1, 1), VReg(0, "p")


def op(name, label=None, guard=None):
    return MicroOp(MICROS[name], (), (), 0, label, guard, POS, "")


def reachable(successors, root, without=-1):
    seen, stack = set(), [root] if root != without else []
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += [s for s in successors[node] if s != without]
    return seen


graphs = st.integers(1, 8).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=3, unique=True), min_size=n, max_size=n)
)


@settings(max_examples=200, deadline=None)
@given(graphs)
def test_dominators_by_definition(successors):
    count = len(successors)
    predecessors = [[p for p in range(count) if n in successors[p]] for n in range(count)]
    idom = dominators(successors, predecessors, 0)
    alive = reachable(successors, 0)
    for b in range(count):
        assert (idom[b] >= 0) == (b in alive)
        for a in alive:
            if b in alive:
                assert dominates(idom, a, b) == (a == b or b not in reachable(successors, 0, without=a))


def test_if_else_meets_behind_both():
    ops = [op("BRA", "else", P), op("NOP"), op("BRA", "end"), op("NOP"), op("NOP"), op("EXIT")]
    g = graph(ops, {"else": 3, "end": 5})
    assert g.starts == [0, 1, 3, 5, 6]
    assert reconvergence(g)[0] == 5
    assert immediate_dominators(g) == [0, 0, 0, 0]


def test_loop_meets_at_its_exit():
    g = graph([op("NOP"), op("NOP"), op("BRA", "top", P), op("NOP"), op("EXIT")], {"top": 1})
    assert reconvergence(g)[1] == 3
    assert g.successors == [[1], [1, 2], []]


def test_branches_that_only_meet_at_the_exit():
    """A path that leaves on its own goes first; two paths that need the warp do not wait for each other."""
    g = graph([op("BRA", "x", P), op("EXIT"), op("EXIT")], {"x": 2})
    assert reconvergence(g)[0] == 1
    g = graph([op("BRA", "x", P), op("EXIT"), op("BAR.SYNC"), op("EXIT")], {"x": 2})
    assert g.collective == [False, False, True] and reconvergence(g)[0] == 2
    g = graph([op("BRA", "x", P), op("BAR.SYNC"), op("EXIT"), op("BAR.SYNC"), op("EXIT")], {"x": 3})
    assert reconvergence(g)[0] == -1


def test_guarded_exit_ends_a_block_and_falls_through():
    g = graph([op("EXIT", guard=P), op("NOP"), op("EXIT")], {})
    assert g.successors == [[1], []] and g.exits == [True, True]
    assert reconvergence(g)[0] == 1  # the lanes that stay meet behind it


def test_a_loop_that_only_ends_by_a_guarded_exit_does_not_hide_where_others_meet():
    ops = [op("BRA", "else", P), op("NOP"), op("NOP"), op("EXIT", guard=P), op("NOP"), op("BRA", "loop")]
    g = graph(ops, {"else": 2, "loop": 2})
    assert g.starts == [0, 1, 2, 4, 6] and reconvergence(g)[0] == 2
