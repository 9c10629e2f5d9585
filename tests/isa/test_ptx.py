"""Printing: reading the print again gives the same tree, and ptxas takes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.expand import expand
from isa.parser import float_of_bits
from isa.ptx import operand_text, to_ptx
from isa.syntax import (
    Addr,
    Block,
    Directive,
    Guard,
    Instr,
    Int,
    Kernel,
    Label,
    Module,
    Not,
    Pair,
    Param,
    Reg,
    RegDecl,
    Sink,
    Str,
    Sym,
    TensorAddr,
    VarDecl,
    Vec,
)
from tools.corpus.reprint import HERE, bare, trouble

FOLDER = Path(__file__).parent.parent / "golden"
GOLDEN = sorted([*(FOLDER / "ptx").glob("*.ptx"), *(FOLDER / "corpus").glob("*.ptx")])
SMALL = [path for path in GOLDEN if path.stat().st_size < 20_000]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.name)
def test_compiler_output_round_trips(path: Path) -> None:
    module = expand(path.read_text(), "x")
    assert bare(expand(to_ptx(module), "x")) == bare(module)


@pytest.mark.parametrize("path", SMALL, ids=lambda p: p.name)
def test_ptxas_takes_the_original_and_the_print(path: Path, ptxas: Callable[[str, str], tuple[bool, str]]) -> None:
    text = re.sub(r"\.version 9\.\d", ".version 9.0", path.read_text())  # the newest that ptxas 13.0 knows
    arch = path.name.split(".")[1]
    for version in (text, to_ptx(expand(text, "x")), to_ptx(expand(text, "x"), comments=False)):
        accepted, log = ptxas(version, arch)
        assert accepted, log


def test_operands_print_as_compilers_write_them() -> None:
    shown = {
        "[%r1+-16]": Addr(Reg("%r1"), -16),
        "[smem+16]": Addr(Sym("smem"), 16),
        "[64]": Addr(Int(64)),
        "[%rd1, {%r0, 0}]": TensorAddr(Reg("%rd1"), Vec((Reg("%r0"), Int(0)))),
        "_|%p1": Pair(Sink(), Reg("%p1")),
        "!%p1": Not(Reg("%p1")),
        "0f3F800000": float_of_bits(bytes.fromhex("3f800000")),
        "0d3FF0000000000000": float_of_bits(bytes.fromhex("3ff0000000000000")),
    }
    for text, node in shown.items():
        assert operand_text(node) == text


def test_roles_and_defines_are_comments() -> None:
    text = """.version 8.0
.target sm_90a
.define N = 4
.entry k() { .role "load" ret; .role "math" ret; exit; }"""
    printed = to_ptx(expand(text, "x"))
    assert printed.startswith("// N = 4\n")
    assert printed.count("// role: ") == 2 and "// role: load\n\tret;\n\t// role: math" in printed
    assert "//" not in to_ptx(expand(text, "x"), comments=False)


# ---- random modules --------------------------------------------------------------------------------

WORDS = st.from_regex(r"[a-z$][a-z0-9_$]{1,6}", fullmatch=True).filter(lambda w: w != "in")
REGS = st.builds(Reg, st.from_regex(r"%[a-z]{1,2}[0-9]{1,2}|%tid\.[xyz]", fullmatch=True))
INTS = st.builds(Int, st.integers(-(2**63), 2**64 - 1))
FLOATS = st.one_of(
    st.binary(min_size=4, max_size=4).map(float_of_bits), st.binary(min_size=8, max_size=8).map(float_of_bits)
)
SYMS = st.builds(Sym, WORDS)
OFFSETS = st.integers(-(2**31), 2**31)
SCALARS = st.one_of(REGS, INTS, FLOATS, SYMS)
VECTORS = st.builds(Vec, st.lists(SCALARS, min_size=1, max_size=5).map(tuple))
OPERANDS = st.one_of(
    SCALARS,
    VECTORS,
    st.builds(Addr, st.one_of(REGS, SYMS), OFFSETS),
    st.builds(TensorAddr, REGS, VECTORS, OFFSETS),
    st.builds(Not, st.one_of(REGS, SYMS)),
    st.builds(Pair, st.one_of(REGS, SYMS, st.just(Sink())), st.one_of(REGS, SYMS, st.just(Sink()))),
)
# Two or more dotted parts: a word alone before one parenthesis would be a macro call.
OPCODES = st.from_regex(r"[a-z]{2,5}(\.[a-z]{1,3}[0-9]{0,2}(::[a-z]{2,4})?){1,3}", fullmatch=True)
GUARDS = st.none() | st.builds(Guard, REGS.map(lambda r: r.name).filter(lambda n: "." not in n), st.booleans())
MEMORY_TYPES = st.sampled_from(["b8", "b32", "f32", "u64", "v2.f32", "v4.b32"])
TYPES = MEMORY_TYPES | st.just("pred")  # only registers are predicates (PTX ISA 5.2)
INSTRS = st.builds(Instr, OPCODES, st.lists(OPERANDS, max_size=4).map(tuple), GUARDS, st.just(HERE))
DECLS = st.builds(
    RegDecl,
    TYPES,
    st.lists(st.tuples(st.one_of(WORDS, WORDS.map("%".__add__)), st.none() | st.integers(0, 99)), min_size=1, max_size=3)
    .map(tuple),
    st.just(HERE),
)  # fmt: skip
ALIGN = st.sampled_from([1, 4, 16, 128])


def variables(space: str, linkage: str, count: st.SearchStrategy[int | None]) -> st.SearchStrategy[VarDecl]:
    init = st.lists(INTS, max_size=3).map(tuple) if space == "global" else st.just(())
    fixed = st.just(HERE)
    return st.builds(VarDecl, st.just(space), MEMORY_TYPES, WORDS, count, ALIGN, st.just(linkage), init, fixed)


STATEMENTS = st.recursive(
    st.one_of(
        INSTRS,
        DECLS,
        st.builds(Label, WORDS, st.just(HERE)),
        variables("shared", "", st.integers(1, 4096)),
        st.builds(Directive, st.just("pragma"), st.tuples(st.builds(Str, WORDS)), st.just(HERE)),
    ),
    lambda inner: st.builds(Block, st.lists(inner, max_size=4).map(tuple), st.just(HERE)),
    max_leaves=12,
)
PARAMS = st.one_of(
    st.builds(Param, st.just("b8"), WORDS, st.integers(1, 128), ALIGN, st.just(HERE)),
    st.builds(Param, st.just("u64"), WORDS, st.none(), st.just(8), st.just(HERE), st.just(("ptr", "global", "align 16"))),
    st.builds(Param, st.just("f32"), WORDS, st.none(), st.just(4), st.just(HERE)),
)  # fmt: skip
PERFORMANCE = st.sampled_from([(), (("maxntid", (128, 1, 1)), ("maxnreg", (168,))), (("explicitcluster", ()),)])
KERNELS = st.builds(
    Kernel,
    WORDS,
    st.lists(PARAMS, max_size=3).map(tuple),
    PERFORMANCE,
    st.lists(STATEMENTS, max_size=8).map(tuple),
    st.sampled_from(["", "visible", "weak"]),
    st.just(HERE),
)
ITEMS = st.one_of(
    KERNELS, variables("shared", "extern", st.none()), variables("global", "visible", st.integers(1, 9))
)  # fmt: skip
MODULES = st.builds(
    Module,
    st.just("8.0"),
    st.sampled_from(["sm_80", "sm_90a"]),
    st.just(64),
    st.lists(ITEMS, max_size=3).map(tuple),
    st.just("x"),
)


@given(MODULES)
@settings(max_examples=100, deadline=None)
def test_reading_the_print_of_any_module_gives_it_back(module: Module) -> None:
    assert bare(expand(to_ptx(module), "x")) == module


def test_the_reprinting_tool_says_what_is_wrong(tmp_path: Path) -> None:
    assert trouble(GOLDEN[0].read_text(), "x") == ""
    assert trouble(".version 8.0 .target sm_90a add", "x").startswith("x:1:32: error: expected")
