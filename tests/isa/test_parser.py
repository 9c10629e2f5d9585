"""Reading: what the grammar takes, and what syntax errors say."""

from __future__ import annotations

import logging
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark, logger

from isa import tree
from isa.errors import AssemblyError
from isa.expand import expand
from isa.parser import parse
from isa.syntax import Addr, Float, Int, Reg, Sink, Vec


def first(text: str) -> tree.RawInstr:
    """The only instruction of `text`."""
    (raw,) = parse(text, "x").body
    assert isinstance(raw, tree.RawInstr)
    return raw


def operand(text: str) -> tree.Expr:
    """`text` as the second operand of an instruction."""
    return first(f"mov.b32 %r0, {text};").operands[1]


def shape(node: object) -> str:
    """A binary expression with all its parentheses."""
    if isinstance(node, tree.Binary):
        return f"({shape(node.left)}{node.op}{shape(node.right)})"
    return str(node.value) if isinstance(node, Int) else getattr(node, "name", "?")


def test_the_grammar_has_no_conflicts(caplog: pytest.LogCaptureFixture) -> None:
    logger.propagate = True
    with caplog.at_level(logging.DEBUG, logger=logger.name):
        Lark(files("isa").joinpath("grammar.lark").read_text(), parser="lalr", start=["module", "expr"], debug=True)
    assert "conflict" not in caplog.text.lower()


@pytest.mark.parametrize(
    ("text", "value"),
    [("42", 42), ("-7", -7), ("0x1F", 31), ("0xffffffffU", 2**32 - 1), ("0b101", 5), ("017", 15), ("0", 0), ("9U", 9)],
)
def test_integers(text: str, value: int) -> None:
    assert operand(text) == Int(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0f3F800000", Float(1.0, 0x3F800000, 32)),
        ("0dC000000000000000", Float(-2.0, 0xC000000000000000, 64)),
        ("1.5", Float(1.5)),
        ("2e-3", Float(0.002)),
        ("3.", Float(3.0)),
    ],
)
def test_floats(text: str, value: Float) -> None:
    assert operand(text) == value


def test_operands_of_real_compilers() -> None:
    assert operand("[ %rd7 + 0 ]") == Addr(Reg("%rd7"), 0)
    assert operand("[%rd7+-16]") == Addr(Reg("%rd7"), -16)
    assert operand("[%rd7 - 16]") == Addr(Reg("%rd7"), -16)
    assert operand("{%r1,%r2 , %r3}") == Vec((Reg("%r1"), Reg("%r2"), Reg("%r3")))
    assert operand("%tid.x") == Reg("%tid.x")
    pair = first("elect.sync _|%p1, -1;").operands[0]
    assert isinstance(pair, tree.Binary) and (pair.op, pair.left, pair.right) == ("|", Sink(), Reg("%p1"))


def test_statements_share_a_line_and_guards_may_be_spaced() -> None:
    body = parse("{ W: @!%p1 bra W; @ %p2 ret; L:\nnot.pred p, q; }", "x").body
    assert isinstance(body[0], tree.RawBlock)
    label, branch, leave, *_ = body[0].body
    assert isinstance(label, tree.RawLabel) and label.name == "W"
    assert isinstance(branch, tree.RawInstr) and branch.guard == ("%p1", True)
    assert isinstance(leave, tree.RawInstr) and leave.guard == ("%p2", False)
    assert leave.at == (1, 19)


def test_debug_information_and_comments_are_skipped() -> None:
    text = """.file 1 "/a;b.cu"
    .loc 1 14 3, function_name $L__info_string0, inlined_at 1 12 0
    ret; // trailing
    /* a
    b */ .section .debug_info { .b32 12 // x
    }
    exit;"""
    assert [(raw.opcode, raw.at[0]) for raw in parse(text, "x").body if isinstance(raw, tree.RawInstr)] == [
        ("ret", 3),
        ("exit", 7),
    ]


@pytest.mark.parametrize(
    ("text", "tree_shape"),
    [
        ("1 + 2 * 3", "(1+(2*3))"),
        ("a - b - c", "((a-b)-c)"),
        ("a << 1 + 2", "(a<<(1+2))"),
        ("a & b == c", "(a&(b==c))"),
        ("a || b && c | d ^ e", "(a||(b&&(c|(d^e))))"),
        ("a < b == c % d", "((a<b)==(c%d))"),
    ],
)
def test_operators_bind_as_in_c(text: str, tree_shape: str) -> None:
    assert shape(operand(text)) == tree_shape


def test_splices_and_vectors_are_told_apart() -> None:
    word = operand("%s{2*i+1}")
    assert isinstance(word, tree.Word) and word.parts[0] == "%s" and shape(word.parts[1]) == "((2*i)+1)"
    opcode = first("wgmma.m64n{N}k16.f32.{T}.{T} {%s0}, %rd1;").opcode
    assert isinstance(opcode, tree.Word) and opcode.parts[::2] == ("wgmma.m64n", "k16.f32.", ".")
    assert first("mov.b64{%r1, %r2}, %rd1;").opcode == "mov.b64"
    ranged = operand("{%s0..%s63, %x}")
    assert isinstance(ranged, tree.Vector) and isinstance(ranged.items[0], tree.Range)


def test_a_body_may_follow_a_performance_directive_without_values() -> None:
    (kernel,) = parse(".entry k() .explicitcluster { ret; }", "x").body
    assert isinstance(kernel, tree.RawKernel) and kernel.performance[0].name == "explicitcluster"


def test_long_names_are_read_in_linear_time() -> None:
    assert first("a" * 5000 + " %r1;").opcode == "a" * 5000


SAMPLE = """.define N = 4
.entry k(.param .u64 p) .maxntid N*32 {
    .reg .b32 %r<N>; .for i in (0, N) { @%p{i} add.s32 %r{i}, %r1, N - 1; }
L:  st.v2.b32 [%r0 + 4], {%r1, 0f3F800000}; // done
}
"""
SCRAPS = st.sampled_from(
    [*'{}()[];,:%@!=.|"\n', "..", "::", "%r1", ".for", ".if", ".let", "0x", "1.5", "/*", "//", "N", ""]
)


@given(st.lists(st.tuples(st.integers(0, len(SAMPLE)), st.integers(0, 4), SCRAPS), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_damaged_text_is_read_or_explained(edits: list[tuple[int, int, str]]) -> None:
    text = SAMPLE
    for start, length, scrap in edits:
        text = text[:start] + scrap + text[start + length :]
    try:
        parse(text, "x")
    except AssemblyError as error:
        for finding in error.diagnostics:
            assert finding.message
            assert 1 <= finding.pos.line <= len(text.splitlines()) + 1


IN_KERNEL = ".entry k() {\n"
MESSAGES = {
    # a program, the place, a part of the message, a part of the hint
    "add.s32 %r1, %r2, 3\n ret; }": ((2, 20), "expected ';' at the end of the statement", ""),
    "add.s32 %r1 %r2; }": ((2, 13), "expected ';' or ',', found '%r2'", ""),
    "add.s32 %r1, ; }": ((2, 14), "expected an operand, found ';'", ""),
    "ld.b32 %r1, [%r2; }": ((2, 17), "expected ',' or ']', found ';'", ""),
    ".for i in (0, 8) { ret;\n": ((2, 18), "'{' is not closed before the end of the file", ""),
    "ret; } }": ((2, 8), "'}' closes nothing", "missing '{'"),
    ".fro i in (0, 8) { ret; } }": ((2, 8), "expected ';' or ',', found 'in'", "did you mean '.for'?"),
    "x = 3; }": ((2, 3), "found '='", "write .let x = ..."),
    '.pragma "abc\n}': ((2, 9), "the string is not closed on its line", 'closing "'),
    "/* abc }": ((2, 1), "the comment is not closed", "add */"),
    "mov.u32 %r1, 09; }": ((2, 14), "'09' is not a number", "octal"),
    "bra `; }": ((2, 5), "unexpected character '`'", ""),
    "mov.b32 %r{1, 2}, 3; }": ((2, 13), "expected the end of the expression, found ','", ""),
    "@%p1 %r3; }": ((2, 6), "expected a name, found '%r3'", ""),
    ".let a.b = 1 }": ((2, 6), "'a.b' is not a name", "letters"),
    ".if (x { ret; } }": ((2, 8), "expected ',' or ')', found '{'", ""),
}


@pytest.mark.parametrize("text", MESSAGES)
def test_syntax_errors(text: str) -> None:
    place, message, hint = MESSAGES[text]
    with pytest.raises(AssemblyError) as caught:
        parse(IN_KERNEL + text, "k.mptx")
    (finding,) = caught.value.diagnostics
    assert message in finding.message
    assert hint in finding.hint
    assert (finding.pos.file, finding.pos.line, finding.pos.col) == ("k.mptx", *place)
    assert finding.source == (IN_KERNEL + text).splitlines()[place[0] - 1]


def test_an_error_shows_the_line_and_a_caret() -> None:
    with pytest.raises(AssemblyError) as caught:
        parse("ret;\nmov.b32 a, ,;", "k.mptx")
    expected = ["k.mptx:2:12: error: expected an operand, found ','", "  mov.b32 a, ,;", " " * 13 + "^"]
    assert str(caught.value).splitlines() == expected


def test_functions_and_prototypes() -> None:
    text = ".extern .func (.param .b32 r) f (.param .b64 a, .param .b64 b); .func g { ret; } .func (.param .b32 r) h () { ret; }"
    names = [(raw.name, len(raw.results), len(raw.params), raw.body is None) for raw in parse(text, "x").body]
    assert names == [("f", 1, 2, True), ("g", 0, 0, False), ("h", 1, 0, False)]


def test_function_parameters_in_registers_are_refused() -> None:
    with pytest.raises(AssemblyError, match=".reg parameters of a function are not supported"):
        expand(".version 8.0 .target sm_90a .func (.reg .b32 r) f (.reg .b32 a) { ret; }", "x", {}, ())
