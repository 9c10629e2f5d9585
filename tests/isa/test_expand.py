"""The assembler layer: what it expands to, and what its errors say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa import shorthand
from isa.errors import AssemblyError
from isa.expand import expand, read_constant
from isa.layer import MAX_STATEMENTS
from isa.ptx import instr_text, to_ptx
from isa.syntax import Block, Instr, Int, Kernel, Label, Module, Pos, RegDecl, Stmt, VarDecl

HEAD = ".version 8.0\n.target sm_90a\n"


def kernel(text: str, before: str = "", **defines: float | str) -> Kernel:
    """The kernel with the body `text`."""
    module = expand(f"{HEAD}{before}\n.entry k() {{\n{text}\n}}", "k.mptx", defines)
    return module.kernels[0]


def lines(text: str, before: str = "", **defines: float | str) -> list[str]:
    """The instructions of the body `text`, in order, blocks flattened, labels as `name:`."""

    def flat(body: tuple[Stmt, ...]) -> list[str]:
        out: list[str] = []
        for statement in body:
            if isinstance(statement, Instr):
                out.append(instr_text(statement))
            elif isinstance(statement, Label):
                out.append(f"{statement.name}:")
            elif isinstance(statement, Block):
                out += flat(statement.body)
        return out

    return flat(kernel(text, before, **defines).body)


def value(expression: str, before: str = "") -> object:
    (statement,) = kernel(f"mov.b32 %r0, {expression};", before).body
    assert isinstance(statement, Instr)
    (_, result) = statement.operands
    return result.value if isinstance(result, Int) else result


# ---- expressions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("7 / 2 + 7 % 3", 4),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("1 << 4 | 3", 19),
        ("~0 & 0xff ^ 1", 254),
        ("!5 + !0", 1),
        ("3 > 2 && 2 >= 2 || 1 / 0", 1),
        ("0 && 1 / 0", 0),
        ("1 ? 2 : 1 / 0", 2),
        ("min(3, 4) + max(3, 4) * ceildiv(65, 64) + log2(1024)", 3 + 4 * 2 + 10),
        ("N * 2 - 1", 255),
        ("(T == f16) + (T != bf16) + (T == \"f16\")", 3),
    ],
)  # fmt: skip
def test_constant_expressions(text: str, result: int) -> None:
    assert value(text, ".define N = 128\n.define T = f16") == result


@given(st.integers(-999, 999), st.integers(-999, 999).filter(bool))
def test_integer_division_truncates_as_in_c(left: int, right: int) -> None:
    module = expand(
        f"{HEAD}.let q = ({left}) / ({right})\n.let r = ({left}) % ({right})\n.shared .b8 a[q*{right}+r+999];", "x"
    )
    (variable,) = module.items
    assert isinstance(variable, VarDecl) and variable.count == left + 999
    assert abs(int(left / right) * right) <= abs(left)


def test_floats_get_the_bits_of_the_last_type() -> None:
    before = ".define SCALE = 0.5"
    assert lines("mul.f32 %f0, %f0, SCALE;", before) == ["mul.f32 %f0, %f0, 0f3F000000;"]
    assert lines("mul.f64 %d0, %d0, SCALE * 2;", before) == ["mul.f64 %d0, %d0, 0d3FF0000000000000;"]
    assert lines("cvt.rn.f32.f64 %f0, 1.5;") == ["cvt.rn.f32.f64 %f0, 0d3FF8000000000000;"]
    assert lines("mul.f32 %f0, %f0, SCALE;", before, SCALE=2) == ["mul.f32 %f0, %f0, 0f40000000;"]


# ---- layer --------------------------------------------------------------------------------------------


def test_constants_stand_wherever_ptx_wants_one() -> None:
    module = expand(
        HEAD
        + """.define N = 64
.define STAGES = 2
.extern .shared .align N*16 .b8 ring[];
.visible .entry k{N}(.param .align N .b8 map[N*2], .param .u64 .ptr .global .align N/4 out)
.maxntid 128 * 2, 1, 1
.maxnreg (N > 32 ? 168 : 255)
{
    .reg .f32 %s<N/2>, %x;
    .shared .align 1024 .b8 smem[STAGES * 16384];
    ld.shared.b32 %r1, [smem + 16 * STAGES];
    ld.shared.b32 %r1, [%r2 - 4 * STAGES + 4];
    cp.tensor [map, {%r0, N - 1}], {%s0, 0, %s{N/16}..%s{N/16+2}};
    @!%p{STAGES} bra LOOP{N};
LOOP{N}:
}""",
        "k.mptx",
    )
    printed = to_ptx(module, comments=False)
    for line in (
        ".extern .shared .align 1024 .b8 ring[];",
        ".visible .entry k64(",
        "\t.param .align 64 .b8 map[128],",
        "\t.param .u64 .ptr .global .align 16 out",
        ".maxntid 256, 1, 1",
        ".maxnreg 168",
        "\t.reg .f32 %s<32>, %x;",
        "\t.shared .align 1024 .b8 smem[32768];",
        "\tld.shared.b32 %r1, [smem+32];",
        "\tld.shared.b32 %r1, [%r2+-4];",
        "\tcp.tensor [map, {%r0, 63}], {%s0, 0, %s4, %s5, %s6};",
        "\t@!%p2 bra LOOP64;",
        "LOOP64:",
    ):
        assert line in printed.splitlines()


def test_loops_and_lets() -> None:
    text = """.let n = 0
    .for i in (0, 3) { .for j in (i, 0, -1) { .let n = n + 1
        add.s32 %r{i}, %r{j}, n; } }
    mov.b32 %r9, n;"""
    assert lines(text) == ["add.s32 %r1, %r1, 1;", "add.s32 %r2, %r2, 2;", "add.s32 %r2, %r1, 3;", "mov.b32 %r9, 3;"]


def test_conditions_choose_one_arm() -> None:
    text = ".if (N > 2) { big; } .elif (N == 2) { two; } .else { small; }"
    assert [lines(text, ".define N = 1", N=n) for n in (1, 2, 3)] == [["small;"], ["two;"], ["big;"]]


def test_macros_take_operands_vectors_expressions_and_defaults() -> None:
    before = """.macro touch(m, base, list, p, n = base + 4) {
        max.f32 m, m, %s{base}; st.v2 [m + n], list; @p bra L{n};
    }
    .macro twice(x) { touch(x, 1, {x, _}, %p1); touch(x, 2, {%a0..%a1}, q, 9); }
    .macro named(letter) { neg.f32 %{letter}1, %{letter}2; }"""
    assert lines("twice(%m0); named(s);", before) == [
        "max.f32 %m0, %m0, %s1;",
        "st.v2 [%m0+5], {%m0, _};",
        "@%p1 bra L5;",
        "max.f32 %m0, %m0, %s2;",
        "st.v2 [%m0+9], {%a0, %a1};",
        "@q bra L9;",
        "neg.f32 %s1, %s2;",
    ]


def test_lets_of_a_macro_are_its_own_unless_the_module_has_the_name() -> None:
    before = ".let total = 0\n.macro add(n) { .let total = total + n\n .let mine = n\n mov.b32 %r0, mine; }"
    assert lines("add(2); add(3); mov.b32 %r1, total; mov.b32 %r2, mine;", before)[2:] == [
        "mov.b32 %r1, 5;",
        "mov.b32 %r2, mine;",
    ]


def test_roles_follow_the_text_and_end_with_the_kernel() -> None:
    text = 'a; .role "load" b; { c; .role "math" d; } e;'
    module = expand(f"{HEAD}.entry k() {{ {text} }}\n.entry l() {{ f; }}", "x")
    block = module.kernels[0].body[2]
    assert isinstance(block, Block)
    found = [s for s in (*module.kernels[0].body, *block.body, *module.kernels[1].body) if isinstance(s, Instr)]
    assert {s.opcode: s.role for s in found} == {"a": "", "b": "load", "c": "load", "d": "math", "e": "math", "f": ""}


def test_positions_are_the_authors_with_call_sites() -> None:
    body = kernel("outer(%r1);\nret;", ".macro inner(x) { neg.s32 x, x; }\n.macro outer(x) { inner(x); }").body
    assert isinstance(body[0], Instr) and isinstance(body[1], Instr)
    assert body[0].pos == Pos("k.mptx", 3, 19, (Pos("k.mptx", 4, 19), Pos("k.mptx", 6, 1)))
    assert body[1].pos == Pos("k.mptx", 7, 1)


def test_includes_are_found_beside_the_file_and_in_the_search_path(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "near.mptx").write_text('.define N = 3\n.include "far.mptx"\n')
    (tmp_path / "lib" / "far.mptx").write_text(".macro m(x) { mov.b32 x, N; }\n")
    text = f'{HEAD}.include "near.mptx"\n.entry k() {{ m(%r0); }}'
    module = expand(text, str(tmp_path / "k.mptx"), {"N": "5"}, [tmp_path / "lib"])
    (statement,) = module.kernels[0].body
    assert isinstance(statement, Instr) and instr_text(statement) == "mov.b32 %r0, 5;"
    assert statement.pos.file == str(tmp_path / "lib" / "far.mptx")
    assert [Path(site.file).name for site in statement.pos.via] == ["k.mptx"]


def test_defines_report_their_values() -> None:
    before = '.define D = 64\n.define T = f16\n.define NAME = "my kernel"\n.define S = 0.5'
    module = expand(HEAD + before, "x", {"D": "0x80", "T": "bf16", "S": "2"})
    assert module.defines == {"D": 128, "T": "bf16", "NAME": "my kernel", "S": 2.0}


@pytest.mark.parametrize(
    ("given_", "read"), [("12", 12), ("0x10", 16), ("1.5", 1.5), ("f16", "f16"), (True, 1), (2.5, 2.5)]
)
def test_command_line_values(given_: float | str, read: float | str) -> None:
    assert read_constant(given_) == read and type(read_constant(given_)) is type(read)


# ---- short spellings -----------------------------------------------------------------------------------


@pytest.fixture
def spellings(monkeypatch: pytest.MonkeyPatch) -> None:
    def double(instr: Instr, fresh: shorthand.Fresh) -> str:
        """test.double d, a;"""
        d, a = shorthand.operands(instr, 2, "test.double d, a;")
        return f"add{instr.opcode.removeprefix('test.double')} {shorthand.text(d)}, {shorthand.text(a)}, {shorthand.text(a)};"

    def spin(instr: Instr, fresh: shorthand.Fresh) -> str:
        label = fresh("SPIN")
        return f"{label}: test.double.s32 %r0, %r1; bra {label};"

    monkeypatch.setitem(shorthand.SHORTHANDS, "test.double.", double)
    monkeypatch.setitem(shorthand.SHORTHANDS, "test.spin", spin)


@pytest.mark.usefixtures("spellings")
def test_short_spellings_expand_with_guard_role_and_position() -> None:
    (statement,) = kernel('.role "math"\n@!%p1 test.double.f32 %f0, N;', ".define N = 2").body[0:1]
    assert isinstance(statement, Instr) and instr_text(statement) == "@!%p1 add.f32 %f0, 2, 2;"
    assert statement.role == "math" and (statement.pos.line, statement.pos.col) == (6, 1)
    assert lines("@%p1 test.spin; test.spin;") == [
        "@!%p1 bra $W_SKIP_2;",
        "$W_SPIN_1:",
        "add.s32 %r0, %r1, %r1;",
        "bra $W_SPIN_1;",
        "$W_SKIP_2:",
        "$W_SPIN_3:",
        "add.s32 %r0, %r1, %r1;",
        "bra $W_SPIN_3;",
    ]


@pytest.mark.usefixtures("spellings")
def test_a_short_spelling_reports_its_operands() -> None:
    with pytest.raises(AssemblyError) as caught:
        kernel("  test.double.s32 %r0;")
    (finding,) = caught.value.diagnostics
    assert finding.message == "'test.double.s32' takes 2 operands, found 1"
    assert finding.source == "  test.double.s32 %r0;" and finding.pos.col == 3


# ---- errors ---------------------------------------------------------------------------------------------

ERRORS = {
    # a body, the column in its first line, a part of the message, a part of the hint
    "mov.b32 %r0, HEAD_DIMM * 2;": (14, "'HEAD_DIMM' is not defined", "did you mean 'HEAD_DIM'?"),
    ".let x = 1 / (HEAD_DIM - 128)": (12, "division by zero", ""),
    ".let x = 1 << -1": (12, "shift by -1", ""),
    ".let x = log2(48)": (10, "not a power of two", ""),
    ".let x = mix(1, 2)": (10, "there is no function 'mix'", "min"),
    ".let x = min(1)": (10, "min takes 2 arguments, found 1", ""),
    ".let x = T + 1": (12, "'+' needs numbers, found the word 'f16'", ""),
    ".let x = 1.5 & 1": (14, "'&' needs integers, found 1.5", ""),
    ".let HEAD_DIM = 1": (6, "'HEAD_DIM' is a define", ""),
    ".define HEAD_DIM = 1": (9, "'HEAD_DIM' is defined twice", ""),
    ".if (T) { ret; }": (5, "a condition must be a number", ""),
    "add.s32 %r1, %r2 * 4;": (18, "expected a constant, found the register %r2", ""),
    "ld.b32 %r1, [%r2 * 4];": (18, "expected a constant, found the register %r2", ""),
    "ld.b32 %r1, [%r2 + %r3];": (18, "an address is one register or symbol", ""),
    "ld.b32 %r1, [%r2, %r3];": (13, "coordinates of a tensor must be a vector", "[map, {c0, c1}]"),
    "mov.b64 {%r0..%q3}, %rd;": (13, "'%r0..%q3' is not a range", "{%r0..%r7}"),
    "mov.b64 {%r3..%r0}, %rd;": (13, "is empty or too long", ""),
    "mov.b32 %r{0.5}, 1;": (9, "0.5 cannot be part of a name", ""),
    "mul.f32 %f0, %f0, 1e60;": (1, "1e+60 does not fit in a 32-bit float", ""),
    "rowmax(1);": (1, "there is no macro 'rowmax'", "define it first"),
    ".macro m(a, b = 1) { ret; } m(1, 2, 3);": (29, "takes 1 to 2 arguments, found 3", "it is m(a, b)"),
    ".macro m(a) { m(a); } m(1);": (15, "nested deeper than 64", ""),
    ".macro m(a) { @a ret; } m(1);": (15, "the guard 'a' is not a predicate", ""),
    ".for i in (0, 4, 0) { ret; }": (1, "the step of a loop cannot be 0", ""),
    ".for i in (4) { ret; }": (1, "a loop has two bounds", ""),
    ".for i in (0, 1.5) { ret; }": (1, "a loop bound must be an integer", ""),
    ".for i in (0, 1 << 40) { }": (1, f"more than {MAX_STATEMENTS} statements", ""),
    ".include \"none.mptx\"": (10, "cannot find the include 'none.mptx'", "looked in"),
    ".assert (HEAD_DIM % 100 == 0), \"odd size\"": (1, "odd size", "here HEAD_DIM = 128"),
    ".reg .b32 %r<0-1>;": (11, "the number of registers is -1", ""),
    ".shared .b8 x[0-4];": (13, "the size of an array is negative", ""),
    ".shared x[4];": (1, "needs one type, found 0", ""),
    ".entry inner() { ret; }": (8, "a kernel cannot stand inside a kernel", ""),
}  # fmt: skip


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_where_and_why(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isa.layer.MAX_STATEMENTS", 2000)
    col, message, hint = ERRORS[text]
    with pytest.raises(AssemblyError) as caught:
        kernel(text, ".define HEAD_DIM = 128\n.define T = f16")
    (finding,) = caught.value.diagnostics
    assert message.replace(str(MAX_STATEMENTS), "2000") in finding.message
    assert hint in finding.hint
    assert (finding.pos.line, finding.pos.col, finding.source) == (6, col, text.splitlines()[0])


def test_errors_inside_a_macro_show_the_call() -> None:
    with pytest.raises(AssemblyError, match="in the expansion at k.mptx:5:1"):
        kernel("m(0);", ".macro m(n) { mov.b32 %r0, 8 / n; }")


def test_unknown_defines_are_errors_before_anything_else() -> None:
    with pytest.raises(AssemblyError, match="no define 'HEAD_DMI'") as caught:
        expand(HEAD + ".define HEAD_DIM = 64\n.assert (0)", "x", {"HEAD_DMI": 1})
    assert caught.value.diagnostics[0].hint == "did you mean 'HEAD_DIM'?" and len(caught.value.diagnostics) == 1


def test_a_define_keeps_its_kind() -> None:
    with pytest.raises(AssemblyError, match="HEAD_DIM is an integer"):
        expand(HEAD + ".define HEAD_DIM = 64", "x", {"HEAD_DIM": "f16"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".target sm_90a", "the program has no .version"),
        (".version 8.0", "the program has no .target"),
        (HEAD + "ret;", "must stand inside a kernel"),
        (HEAD + ".target sm_80", ".target is already sm_90a"),
    ],
)
def test_a_module_is_complete(text: str, message: str) -> None:
    with pytest.raises(AssemblyError, match=message):
        expand(text, "x")


def test_deep_nesting_is_an_error() -> None:
    with pytest.raises(AssemblyError, match="nested too deeply"):
        value("(" * 5000 + "1" + ")" * 5000)


def test_a_file_that_includes_itself_ends(tmp_path: Path) -> None:
    file = tmp_path / "loop.mptx"
    file.write_text('.include "loop.mptx"\n')
    with pytest.raises(AssemblyError, match="nested deeper than 64"):
        expand(file.read_text(), str(file))


def test_types_and_counts_of_declarations() -> None:
    text = ".reg .v4 .f32 v; .shared .b64 bars[2][3], one; .global .u32 t[] = {1, {2, 3}};"
    reg, bars, one, table = kernel(text).body
    assert isinstance(reg, RegDecl) and (reg.type, reg.names) == ("v4.f32", (("v", None),))
    assert isinstance(bars, VarDecl) and (bars.type, bars.count, bars.align) == ("b64", 6, 8)
    assert isinstance(one, VarDecl) and (one.count, one.linkage) == (1, "")
    assert isinstance(table, VarDecl) and table.count == 3 and table.init == (Int(1), Int(2), Int(3))


def test_module_is_plain() -> None:
    module = expand(HEAD + ".address_size 64\n.visible .entry k() { ret; }", "k.ptx")
    assert isinstance(module, Module) and (module.version, module.target, module.address_size) == ("8.0", "sm_90a", 64)
    assert module.kernels[0].linkage == "visible" and module.file == "k.ptx" and module.defines == {}


LIMITS = {
    ".maxnreg": "needs 1 number, found 0",
    ".minnctapersm .maxnreg 32": "needs 1 number, found 0",
    ".maxnreg 32, 64": "needs 1 number, found 2",
    ".reqntid 1, 1, 1, 1": "needs 1 to 3 numbers, found 4",
    ".reqntid 128, 0": "is not positive",
    ".maxnregs 32": "is no directive of a kernel",
    ".maxnreg .u32": "needs 1 number, found 0",
}


@pytest.mark.parametrize("text", LIMITS)
def test_broken_limits_of_a_kernel(text: str) -> None:
    with pytest.raises(AssemblyError) as caught:
        expand(f".version 8.0 .target sm_90a\n.entry k()\n{text}\n{{ ret; }}", "k.ptx")
    (finding,) = caught.value.diagnostics
    assert LIMITS[text] in finding.message
    assert (finding.pos.line, finding.pos.col) == (3, 1) and finding.hint and finding.source == text
