"""Allocation: coalescing, pairs, halves, and the least number of registers on straight code."""

from hypothesis import given, settings
from hypothesis import strategies as st

from isa import registry
from isa.assembler import assemble
from isa.code import Code, MicroOp
from isa.micro import MICROS
from isa.registers import allocate
from isa.registry import Const, Half, VReg
from isa.simplify import simplify
from isa.syntax import Kernel, Pos

registry.load()
POS = Pos("t", 1, 1)
KERNEL = Kernel("k", (), (), (), "", POS)


def op(name, results=(), sources=(), imm=0, label=None, guard=None):
    return MicroOp(MICROS[name], tuple(results), tuple(sources), imm, label, guard, POS, "")


def run(ops, labels=None):
    code = Code(KERNEL, "sm_90a", list(ops), labels or {}, 100)
    simplify(code)
    allocation, _ = allocate(code)
    return code, allocation


def names(code):
    return [o.micro.name for o in code.ops]


def text(body):
    return (
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a)\n{\n"
        f".reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>;\nld.param.u64 %rd0, [a];\n{body}\nret;\n}}\n"
    )


def test_loop_copies_cost_nothing():
    program = assemble(text=text("""
        ld.global.u32 %r1, [%rd0];
        mov.u32 %r2, %r1; mov.u32 %r3, 0;
        LOOP:
        add.u32 %r4, %r3, %r2; add.u32 %r5, %r2, -1;
        mov.u32 %r3, %r4; mov.u32 %r2, %r5;
        setp.ne.u32 %p1, %r2, 0;
        @%p1 bra LOOP;
        st.global.u32 [%rd0], %r3;
    """)).program()  # fmt: skip
    assert program.micro_names.count("MOV") == 1  # the zero that the loop starts from
    assert program.registers == 2


def test_a_swap_keeps_its_copies():
    a, b, t, p = VReg(0, "r"), VReg(1, "r"), VReg(2, "r"), VReg(3, "p")
    ops = [op("S2R", [a]), op("S2R", [b]), op("MOV", [t], [a]), op("MOV", [a], [b]), op("MOV", [b], [t])]
    ops += [op("NANOSLEEP", [], [a]), op("NANOSLEEP", [], [b]), op("BRA", label="L", guard=p), op("EXIT")]
    code, allocation = run(ops, {"L": 2})
    assert names(code).count("MOV") == 3 and allocation.registers == 3


def test_packing_and_unpacking_cost_nothing():
    program = assemble(text=text("""
        ld.global.u32 %r1, [%rd0]; ld.global.u32 %r2, [%rd0+4];
        mov.b64 %rd1, {%r1, %r2};
        st.global.b64 [%rd0+8], %rd1;
        mov.b64 {%r3, %r4}, %rd1;
        add.u32 %r5, %r3, %r4;
        st.global.u32 [%rd0+16], %r5;
    """)).program()  # fmt: skip
    assert "MOV" not in program.micro_names


def test_halves_free_their_rows_apart():
    d, e = VReg(0, "d"), VReg(1, "d")
    ops = [
        op("CS2R", [d]),
        op("NANOSLEEP", [], [Half(d, 0)]),
        op("S2R", [VReg(2, "r")]),
        op("NANOSLEEP", [], [Half(d, 1)]),
        op("NANOSLEEP", [], [VReg(2, "r")]),
        op("EXIT"),
    ]
    _, allocation = run(ops)
    assert allocation.registers == 2 and e.kind == "d"


def test_pairs_are_aligned():
    r, d = VReg(0, "r"), VReg(1, "d")
    ops = [op("S2R", [r]), op("CS2R", [d]), op("NANOSLEEP", [], [r]), op("IMAD.WIDE.U32", [d], [r, r, d])]
    ops += [op("NANOSLEEP", [], [Half(d, 0)]), op("NANOSLEEP", [], [Half(d, 1)]), op("EXIT")]
    _, allocation = run(ops)
    assert allocation.row[2] % 2 == 0 and allocation.row[3] == allocation.row[2] + 1


def test_dead_operations_go_and_constants_fold():
    a, b, c = (VReg(i, "r") for i in range(3))
    ops = [op("MOV", [a], [Const(2)]), op("IADD3", [b], [a, Const(3)]), op("IADD3", [c], [b, b])]
    ops += [op("NANOSLEEP", [], [b]), op("EXIT")]
    code, allocation = run(ops)
    assert names(code) == ["NANOSLEEP", "EXIT"] and code.ops[0].sources == (Const(5),)
    assert allocation.registers == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=30))
def test_straight_code_needs_no_more_than_is_live(steps):
    """Each value is defined once: interval colouring reaches the pressure."""
    ops = [op("S2R", [VReg(0, "r")], imm=0)]
    for n, (i, j) in enumerate(steps):
        ops.append(op("IADD3", [VReg(n + 1, "r")], [VReg(i % (n + 1), "r"), VReg(j % (n + 1), "r")]))
    ops += [op("NANOSLEEP", [], [VReg(len(steps), "r")]), op("EXIT")]
    _, allocation = run(ops)
    assert allocation.registers == allocation.pressure


def test_allocation_is_deterministic():
    source = text("\n".join(f"ld.global.u32 %r{i}, [%rd0+{i}];\nst.global.u32 [%rd0], %r{i};" for i in range(9)))
    first, second = (assemble(text=source).program() for _ in range(2))
    assert first.instrs.tobytes() == second.instrs.tobytes()
