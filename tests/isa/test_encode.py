"""Simplification, allocation and encoding keep the meaning of a program: random programs run on virtual
registers and, encoded, on rows."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa import registry
from isa.code import Code, MicroOp
from isa.encode import encode
from isa.layout import Layout
from isa.micro import MICROS
from isa.program import INSTR
from isa.registers import allocate
from isa.registry import Const, Half, NotPred, ParamWord, PredConst, VReg
from isa.simplify import RowPair, simplify, words
from isa.syntax import Kernel, Module, Param, Pos

POS = Pos("test.ptx", 1, 1)
KERNEL = Kernel("k", (Param("u64", "a", None, 8, POS), Param("u32", "b", None, 4, POS)), (), (), ".visible", POS)
MODULE = Module("8.0", "sm_90a", 64, (KERNEL,), "test.ptx")
PARAMS = {0: 0x11112222, 4: 0x33334444, 8: 0x55556666}
STEPS = 120

registry.load()


def signed_by(index):
    """What the stand-in for S2R reads."""
    return (index * 2654435761) & 0xFFFFFFFF


def op(name, results=(), sources=(), imm=0, label=None, guard=None):
    return MicroOp(MICROS[name], tuple(results), tuple(sources), imm, label, guard, POS, "")


class Virtual:
    """Reads and writes words of virtual registers; a word never written reads None."""

    def __init__(self):
        self.file = {}

    def read(self, value):
        match value:
            case Const(bits) | PredConst(bits):
                return bits
            case ParamWord(offset, kind):
                return PARAMS[offset] | (PARAMS[offset + 4] << 32 if kind == "d" else 0)
            case NotPred(reg):
                found = self.file.get(words(reg)[0])
                return None if found is None else not found
        parts = [self.file.get(w) for w in words(value)]
        if None in parts:
            return None
        return parts[0] if len(parts) == 1 else parts[0] | parts[1] << 32

    def write(self, value, bits):
        parts = words(value)
        for n, w in enumerate(parts):
            self.file[w] = bits if len(parts) == 1 else None if bits is None else bits >> 32 * n & 0xFFFFFFFF


def run_virtual(code):
    """The values that NANOSLEEP sees; stops where control flow depends on an unwritten register."""
    state, pc, out = Virtual(), 0, []
    for _ in range(STEPS):
        this = code.ops[pc]
        pc += 1
        on = True if this.guard is None else state.read(this.guard)
        if on is None and this.micro.name in ("BRA", "EXIT", "NANOSLEEP"):
            break
        if on is None:
            for value in this.results:
                state.write(value, None)
        if not on:
            continue
        if this.micro.name == "EXIT":
            break
        if this.micro.name == "BRA":
            pc = code.labels[this.label]
        elif this.micro.name == "NANOSLEEP":
            out.append(state.read(this.sources[0]))
        elif this.micro.name == "S2R":
            state.write(this.results[0], signed_by(this.imm))
        else:
            values = [state.read(s) for s in this.sources]
            found = (None,) * len(this.results) if None in values else this.micro.meaning(*values)
            for value, bits in zip(this.results, found if isinstance(found, tuple) else (found,), strict=True):
                state.write(value, bits)
    return out


def run_rows(program):
    """The same on the encoded program."""
    rows = [0xDEADBEEF] * program.registers
    for bits, offset in zip(program.const_bits, program.const_param, strict=True):
        rows.append(PARAMS[int(offset)] if offset >= 0 else int(bits))
    slots, pc, out = [True] + [False] * program.predicates, 0, []
    for _ in range(STEPS):
        record = program.instrs[pc]
        micro = MICROS[program.micro_names[pc]]
        pc += 1
        if slots[record["guard"]] == bool(record["flip"] & 1):
            continue
        if micro.name == "EXIT":
            break
        if micro.name == "BRA":
            pc = int(record["target"])
            continue
        values, registers, predicates = [], iter("abc"), iter((("pa", 2), ("pb", 4)))
        for letter in micro.sources:
            if letter == "p":
                name, bit = next(predicates)
                values.append(slots[record[name]] != bool(record["flip"] & bit))
            else:
                row = int(record[next(registers)])
                assert letter not in "UD" or row % 2 == 0
                values.append(rows[row] | rows[row + 1] << 32 if letter in "UD" else rows[row])
        if micro.name == "NANOSLEEP":
            out.append(values[0])
            continue
        found = signed_by(int(record["imm"])) if micro.name == "S2R" else micro.meaning(*values)
        outputs = iter(("pd", "pd2"))
        for letter, bits in zip(micro.results, found if isinstance(found, tuple) else (found,), strict=True):
            if letter == "p":
                slots[record[next(outputs)]] = bits
            elif letter in "UD":
                assert record["d"] % 2 == 0
                rows[record["d"]], rows[record["d"] + 1] = bits & 0xFFFFFFFF, bits >> 32
            else:
                rows[record["d"]] = bits
    return out


def build(ops, labels, registers):
    code = Code(KERNEL, "sm_90a", copy.deepcopy(ops), dict(labels), registers)
    simplify(code)
    allocation, g = allocate(code)
    return encode(code, g, allocation, Layout(MODULE, KERNEL), {}), allocation


R = [VReg(i, "r") for i in range(6)]
D = [VReg(i, "d") for i in range(6, 10)]
P = [VReg(i, "p") for i in range(10, 13)]
narrow = st.sampled_from([*R, *(Half(d, n) for d in D for n in (0, 1))])
narrow_in = st.one_of(narrow, narrow, st.sampled_from([Const(0), Const(7), ParamWord(8)]))
wide_in = st.sampled_from([*D, Const(5, "d"), ParamWord(0, "d")])
pred_in = st.sampled_from([*P, *map(NotPred, P), PredConst(True), PredConst(False)])
guards = st.sampled_from([None] * 5 + [*P, *map(NotPred, P)])
KINDS = {"u": (narrow, narrow_in), "U": (st.sampled_from(D), wide_in), "p": (st.sampled_from(P), pred_in)}
NAMES = ["MOV", "MOV", "MOV", "IADD3", "IADD3.CC", "IADD3.X", "IMAD.WIDE.U32", "PLOP3.MOV", "PLOP3.XOR", "S2R"]


@st.composite
def operations(draw):
    name = draw(st.sampled_from([*NAMES, "NANOSLEEP", "NANOSLEEP", "BRA"]))
    micro, guard = MICROS[name], draw(guards)
    if name == "BRA":
        return op(name, label=draw(st.sampled_from(["L0", "L1", "L2"])), guard=guard)
    results = [draw(KINDS[c][0]) for c in micro.results]
    sources = [draw(KINDS[c][1]) for c in micro.sources]
    return op(name, results, sources, draw(st.integers(0, 3)) if name == "S2R" else 0, guard=guard)


@st.composite
def programs(draw):
    ops = draw(st.lists(operations(), min_size=4, max_size=40))
    starts = [op("S2R", [r], imm=i) for i, r in enumerate(draw(st.lists(narrow, max_size=14, unique=True)))]
    for n, p in enumerate(draw(st.lists(st.sampled_from(P), max_size=3, unique=True))):
        x, y = VReg(13 + 2 * n, "r"), VReg(14 + 2 * n, "r")
        imms = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        starts += [op("S2R", [x], imm=imms[0]), op("S2R", [y], imm=imms[1]), op("IADD3.CC", [x, p], [x, y])]
    ops = [*starts, *ops, op("EXIT")]
    return ops, {f"L{n}": draw(st.integers(0, len(ops) - 1)) for n in range(3)}


@settings(max_examples=200, deadline=None)
@given(programs())
def test_rows_compute_what_virtual_registers_do(program):
    ops, labels = program
    code = Code(KERNEL, "sm_90a", copy.deepcopy(ops), dict(labels), 13)
    expected = run_virtual(code)
    encoded, allocation = build(ops, labels, 13)
    got = run_rows(encoded)
    for want, have in zip(expected, got, strict=False):
        assert want is None or want == have
    assert len(got) >= len(expected)
    assert encoded.registers == allocation.registers >= allocation.pressure - 8


def test_fields():
    r, d, p = R[0], D[0], P[0]
    ops = [
        op("S2R", [r], imm=1),
        op("IADD3.CC", [R[1], p], [r, ParamWord(8)]),
        op("IMAD.WIDE.U32", [d], [r, R[1], Const(0, "d")], guard=NotPred(p)),
        op("NANOSLEEP", [], [Half(d, 1)]),
        op("BRA", label="L0", guard=p),
        op("NANOSLEEP", [], [Const(9)]),
        op("NOP"),
        op("EXIT"),
    ]
    program, _ = build(ops, {"L0": 6}, 13)
    assert program.instrs.dtype == INSTR
    wide, branch = program.instrs[2], program.instrs[4]
    assert (wide["guard"], wide["flip"] & 1) == (program.instrs[1]["pd"], 1)
    base = program.rows
    assert set(wide["dep"][: wide["ndep"]]) == {wide["a"], wide["b"], wide["d"], wide["d"] + 1, base + wide["guard"]}
    assert wide["c"] >= program.registers and wide["c"] % 2 == 0
    assert (branch["target"], branch["reconv"]) == (6, 6)
    assert set(np.flatnonzero(program.const_param >= 0)) and program.const_param.max() == 8
    assert [a.offset for a in program.args] == [0, 8] and program.param_bytes == 12
    assert program.micro_names[2] == "IMAD.WIDE.U32" and program.roles == ["main"]
    assert list(program.instrs["block"]) == [0, 0, 0, 0, 0, 1, 2, 2]


def test_pairs_of_constants_share_rows_with_words():
    d = VReg(0, "d")
    ops = [
        op("S2R", [R[1]], imm=0),
        op("IMAD.WIDE.U32", [D[0]], [R[1], Const(7), Const(7 << 32, "d")]),
        op("NANOSLEEP", [], [Half(D[0], 0)]),
        op("EXIT"),
    ]
    program, _ = build(ops, {}, 13)
    assert sorted(program.const_bits) in ([0, 7], [0, 0, 7])
    assert d.kind == "d"


@pytest.mark.parametrize(("imm", "bits"), [(1 << 63, -(1 << 63)), (-1, -1), (5, 5)])
def test_immediates_keep_their_bits(imm, bits):
    ops = [replace(op("S2R", [R[0]]), imm=imm), op("NANOSLEEP", [], [R[0]]), op("EXIT")]
    program, _ = build(ops, {}, 13)
    assert int(program.instrs[0]["imm"]) == bits


def test_row_pairs_are_only_made_of_constants():
    code = Code(KERNEL, "sm_90a", [
        op("S2R", [Half(D[0], 0)], imm=0),
        op("MOV", [Half(D[0], 1)], [Const(0)]),
        op("IMAD.WIDE.U32", [D[1]], [Const(2), Const(3), D[0]]),
        op("NANOSLEEP", [], [Half(D[1], 0)]),
        op("EXIT"),
    ], {}, 13)  # fmt: skip
    simplify(code)
    assert [o.micro.name for o in code.ops] == ["S2R", "MOV", "IMAD.WIDE.U32", "NANOSLEEP", "EXIT"]
    assert not any(isinstance(s, RowPair) for o in code.ops for s in o.sources)
