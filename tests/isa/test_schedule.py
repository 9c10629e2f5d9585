"""Scheduling: the same results and effects in the same order, fences and waits stand, latencies are filled."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from isa import registry
from isa.assembler import assemble
from isa.cfg import graph
from isa.code import Code, MicroOp
from isa.liveness import analyse, walk
from isa.micro import MICROS
from isa.registry import Const, NotPred, PredConst, VReg
from isa.schedule import schedule
from isa.simplify import words
from isa.syntax import Kernel, Pos
from isa.tidy import tidy

registry.load()
POS = Pos("t", 1, 1)
REGISTERS = [VReg(i, "r") for i in range(10)]
PREDICATES = [VReg(i, "p") for i in range(10, 13)]
WIDE = [VReg(i, "d") for i in range(13, 16)]
KINDS = ("IADD3", "IMAD", "MUFU.EX2", "ISETP", "SEL", "WIDE", "LDS", "STS", "CS2R", "BAR.SYNC")


class Weight(NamedTuple):
    pipe: str
    interval: int
    latency: int
    stall: int
    reason: str


PLAIN = {op.timing: Weight("alu", 1, 4, 1, "wait") for op in MICROS.values()} | {
    "mufu": Weight("xu", 8, 17, 4, "short_scoreboard"),
    "ex2": Weight("xu", 8, 17, 4, "short_scoreboard"),
    "lds": Weight("mio", 4, 23, 2, "short_scoreboard"),
}


def op(name, results=(), sources=(), imm=0, label=None, guard=None):
    return MicroOp(MICROS[name], tuple(results), tuple(sources), imm, label, guard, POS, "")


def code_of(ops, labels=None, **limits):
    kernel = Kernel("k", (), tuple((k, (v,)) for k, v in limits.items()), (), "", POS)
    return Code(kernel, "sm_90a", list(ops), dict(labels or {}), 100)


def scheduled(ops, weights=PLAIN, labels=None, **limits):
    code = code_of(ops, labels, **limits)
    schedule(code, weights)
    return code.ops


def names(ops):
    return [o.micro.name for o in ops]


# ---- meaning ----


def value_of(state, source):
    match source:
        case Const(bits) | PredConst(bits):
            return bits
        case NotPred(reg):
            return not state[words(reg)[0]]
        case tuple():
            return [value_of(state, s) for s in source]
        case VReg(_, "d"):
            low, high = (state[w] for w in words(source))
            return low | high << 32
        case _:
            return state[words(source)[0]]


def execute(ops):
    """Effects of units in order, with their operands, and the final registers of one lane."""
    state = {w: 3 * w + 1 for r in (*REGISTERS, *WIDE) for w in words(r)}
    state |= {2 * p.id: bool(p.id % 2) for p in PREDICATES}
    effects = []
    for o in ops:
        if o.guard is not None and not value_of(state, o.guard):
            continue
        sources = iter([value_of(state, s) for s in o.sources])
        given_ = [o.imm if letter == "i" else next(sources) for letter in o.micro.sources]
        if o.micro.is_lane:
            found = o.micro.meaning(*given_)
            found = found if isinstance(found, tuple) else (found,)
        else:
            effects.append((o.micro.name, given_))
            found = tuple([len(effects)] * len(r) if isinstance(r, tuple) else len(effects) for r in o.results)
        for result, bits in zip(o.results, found, strict=True):
            parts = bits if isinstance(bits, list) else [bits >> 32 * n & 0xFFFFFFFF for n in range(len(words(result)))]
            state.update(zip(words(result), [bits] if isinstance(bits, bool) else parts, strict=True))
    return effects, state


register, predicate, wide = (st.sampled_from(pool) for pool in (REGISTERS, PREDICATES, WIDE))
source = st.one_of(register, st.integers(0, 99).map(Const))


@st.composite
def operations(draw):
    kind = draw(st.sampled_from(KINDS))
    guard = draw(st.one_of(st.none(), st.none(), predicate, predicate.map(NotPred)))
    match kind:
        case "IADD3" | "IMAD":
            return op(kind, [draw(register)], [draw(source) for c in MICROS[kind].sources if c != "i"], guard=guard)
        case "MUFU.EX2":
            return op(kind, [draw(register)], [draw(register)], guard=guard)
        case "ISETP":
            return op("ISETP.LT", [draw(predicate)], [draw(source), draw(source)], guard=guard)
        case "SEL":
            return op("SEL", [draw(register)], [draw(source), draw(source), draw(predicate)], guard=guard)
        case "WIDE":
            return op("IMAD.WIDE.U32", [draw(wide)], [draw(source), draw(source), draw(wide)], guard=guard)
        case "LDS":
            return op("LDS", [(draw(register),)], [draw(register)], guard=guard)
        case "STS":
            return op("STS", [], [draw(register), (draw(register),)], guard=guard)
        case "CS2R":
            return op("CS2R", [draw(wide)], [])
        case _:
            return op("BAR.SYNC", [], [Const(0), Const(0)])


weights_ = st.fixed_dictionaries(
    {
        name: st.builds(
            Weight,
            st.sampled_from(("alu", "fma", "xu")),
            st.sampled_from((0, 1, 2, 8, 10.5)),
            st.integers(0, 40),
            st.integers(0, 9),
            st.sampled_from(("wait", "short_scoreboard")),
        )
        for name in sorted(PLAIN)
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(operations(), min_size=1, max_size=40), weights_, st.sampled_from((8, 12, 255)))
def test_results_and_effects_stay(ops, weights, cap):
    program = [*ops, *(op("STS", [], [r, (r,)]) for r in REGISTERS), op("EXIT")]
    order = scheduled(program, weights, maxnreg=cap)
    assert sorted(map(id, order)) == sorted(map(id, program))
    assert execute(order) == execute(program)
    assert list(map(id, scheduled(program, weights, maxnreg=cap))) == list(map(id, order))


def peak(ops):
    g = graph(ops, {})
    live = analyse(ops, g)
    return max((held | live.access[i].defs).bit_count() for i, held in walk(ops, g, live, 0))


@settings(max_examples=30, deadline=None)
@given(st.integers(4, 30), st.integers(4, 40))
def test_registers_stay_in_the_cap_or_at_what_the_source_needs(chains, cap):
    """Loads that all could go first."""
    program = []
    for n in range(chains):
        program.append(op("LDS", [(VReg(100 + n, "r"),)], [VReg(0, "r")]))
        program.append(op("STS", [], [VReg(0, "r"), (VReg(100 + n, "r"),)]))
        program.append(op("MUFU.EX2", [VReg(200 + n, "r")], [VReg(0, "r")]))
    program += [op("IADD3", [VReg(1, "r")], [VReg(1, "r"), VReg(200 + n, "r")]) for n in range(chains)]
    program = [op("S2R", [VReg(0, "r")]), op("MOV", [VReg(1, "r")], [Const(0)]), *program]
    program += [op("STS", [], [VReg(0, "r"), (VReg(1, "r"),)]), op("EXIT")]
    assert peak(scheduled(program, maxnreg=cap)) <= max(cap, peak(program))


# ---- what order is meant ----


def test_latencies_are_filled():
    """Two dependent chains one behind the other alternate."""
    ops = []
    for r in (0, 1):
        ops += [op("IADD3", [VReg(r, "r")], [VReg(r, "r"), Const(n + 1)]) for n in range(4)]
    order = scheduled([*ops, op("EXIT")])
    assert [o.results[0].id for o in order[:-1]] == [0, 1] * 4


def test_multiply_adds_go_before_exponentials_and_sums_between_them():
    """The order that ptxas gives the softmax of the composite kernels."""
    n = 8
    ops = [op("FFMA", [VReg(20 + i, "r")], [VReg(i, "r"), Const(0), Const(0)]) for i in range(n)]
    ops = [x for i, o in enumerate(ops) for x in (o, op("MUFU.EX2", [VReg(40 + i, "r")], [VReg(20 + i, "r")]))]
    ops += [op("FADD", [VReg(60, "r")], [VReg(60, "r"), VReg(40 + i, "r")]) for i in range(n)]
    order = names(scheduled([*ops, op("STS", [], [VReg(61, "r"), (VReg(60, "r"),)]), op("EXIT")]))
    assert order[:n] == ["FFMA"] * n
    assert order[n : n + 3] == ["MUFU.EX2"] * 3  # as many as fit into the latency
    assert order[n + 3 : 2 * n + 5] == ["FADD", "MUFU.EX2"] * 5


def mma(d, a=()):
    return op("HGMMA.RS", [tuple(d)], [VReg(90, "d"), PredConst(True), tuple(a)])


def test_wgmma_registers_stay_behind_the_wait_and_other_work_fills_it():
    d, a = [VReg(i, "r") for i in range(4)], [VReg(i, "r") for i in range(4, 8)]
    ops = [op("IADD3", [a[0]], [a[0], Const(1)]), op("WARPGROUP.ARRIVE"), mma(d, a), op("WARPGROUP.COMMIT")]
    ops += [op("WARPGROUP.DEPBAR"), op("FADD", [d[0]], [d[0], d[1]]), op("MOV", [a[1]], [Const(0)])]
    ops += [op("IADD3", [VReg(50, "r")], [VReg(50, "r"), Const(1)]), op("STS", [], [VReg(50, "r"), (d[0],)])]
    ops.append(op("EXIT"))
    order = scheduled(ops)
    place = {id(o): n for n, o in enumerate(order)}
    at = [place[id(o)] for o in ops]
    assert at[0] < at[1] < at[2] < at[3] < at[4] < min(at[5], at[6])
    assert at[7] < at[4]  # the counter does not wait


def test_nothing_crosses_a_clock_read():
    load = op("LDS", [(VReg(0, "r"),)], [VReg(1, "r")])
    ops = [op("MUFU.EX2", [VReg(2, "r")], [VReg(3, "r")]), op("CS2R", [VReg(20, "d")]), load, op("EXIT")]
    assert scheduled(ops) == ops
    assert names(scheduled([ops[0], load, op("EXIT")])) == ["LDS", "MUFU.EX2", "EXIT"]


# ---- tidying ----


def test_zeros_under_wgmma_vanish():
    d, a = [VReg(i, "r") for i in range(4)], [VReg(i, "r") for i in range(4, 8)]
    ops = [op("MOV", [r], [Const(0)]) for r in d]
    ops += [op("WARPGROUP.ARRIVE"), mma(d, a), op("WARPGROUP.COMMIT"), op("WARPGROUP.DEPBAR")]
    code = code_of([*ops, op("STS", [], [VReg(50, "r"), (d[0],)]), op("EXIT")])
    tidy(code)
    assert "MOV" not in names(code.ops)
    assert code.ops[1].sources[1] == PredConst(False)


def test_short_branches_become_guards():
    p = VReg(10, "p")
    skip = [op("ISETP.LT", [p], [VReg(0, "r"), Const(3)]), op("BRA", label="L", guard=p)]
    body = [op("STS", [], [VReg(0, "r"), (VReg(1, "r"),)])]
    code = code_of([*skip, *body, op("EXIT")], {"L": 3})
    tidy(code)
    assert names(code.ops) == ["ISETP.LT", "STS", "EXIT"]
    assert code.ops[1].guard == NotPred(p) and not code.labels
    kept = code_of([*skip, op("BAR.SYNC", [], [Const(0), Const(0)]), op("EXIT")], {"L": 3})
    tidy(kept)
    assert names(kept.ops) == ["ISETP.LT", "BRA", "BAR.SYNC", "EXIT"]


# ---- the driver ----

TEXT = """.version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a)\n{
.reg .b32 %r<4>; .reg .b64 %rd<2>; ld.param.u64 %rd0, [a];
ld.global.u32 %r0, [%rd0]; add.u32 %r0, %r0, 1; add.u32 %r0, %r0, 2; st.global.u32 [%rd0], %r0;
ld.global.u32 %r1, [%rd0+4]; mul.lo.u32 %r1, %r1, %r1; mul.lo.u32 %r1, %r1, 3; st.global.u32 [%rd0+4], %r1; ret;\n}"""


def test_source_order_is_the_default_of_the_assembler():
    plain = assemble(text=TEXT).program()
    assert plain.micro_names == ["LDG", "IADD3", "IADD3", "STG", "LDG", "IMAD", "IMAD", "STG", "EXIT"]
    assert sorted(assemble(text=TEXT, order=PLAIN).program().micro_names) == sorted(plain.micro_names)
