"""What a newcomer gets wrong: place, message and remedy of every finding of the assembler, and its exit code."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from emu.api import load_text
from isa.assembler import assemble
from isa.errors import AssemblyError, UnsupportedError, nearest
from isa.listing import summary

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<8>;"


def kernel(body: str, before: str = "", params: str = ".param .u64 x", limits: str = "", target: str = "sm_90a") -> str:
    """A kernel with `body` on line 8 (the lines of `before` push it down)."""
    head = HEAD.replace("sm_90a", target)
    return f"{head}{before}.visible .entry test({params})\n{limits}\n{{ {REGISTERS}\n\n{body}\nret;\n}}\n"


# name: (text, line, column, message, remedy); messages and remedies are regular expressions.
CASES: dict[str, tuple[str, int, int, str, str]] = {
    # syntax
    "no semicolon": (kernel("add.u32 %r1, %r2, %r3\nmov.u32 %r4, 1;"), 8, 22, "expected ';'", ""),
    "no comma": (kernel("add.u32 %r1 %r2, %r3;"), 8, 13, "expected ';' or ',', found '%r2'", ""),
    "open brace": (kernel("{"), 6, 1, "'{' is not closed", ""),
    "spare brace": (kernel("}"), 10, 1, "'}' closes nothing", "missing '{'"),
    "open string": (kernel('.pragma "nounroll;'), 8, 9, "string is not closed", 'closing "'),
    "open comment": (kernel("/* add"), 8, 1, "comment is not closed", r"add \*/"),
    "binary": ("\x7fELF\x02", 1, 1, r"unexpected character '\\x7f'", "not a text file"),
    "no version": (".target sm_90a\n", 1, 1, "no .version", "begin with .version"),
    "no target": (".version 8.6\n", 1, 1, "no .target", "begin with .target"),
    "no kernel": (HEAD, 1, 1, "no kernel", r"write .visible .entry"),
    "number": (kernel("mov.u32 %r1, 0xZZ;"), 8, 14, "'0xZZ' is no number", "0x2A"),
    "digits": (kernel("mov.f32 %f1, 0f3F8;"), 8, 14, "'0f3F8' is no number", "8 or 0d and 16"),
    "entry": (f"{HEAD}.visible .entri k() {{ ret; }}", 4, 10, "expected '.entry', .*, found '.entri'", "did you mean '.entry'"),
    "directive": (kernel(".regs .b32 %x;"), 8, 7, "found '.b32'", "did you mean '.reg'"),
    # instructions, qualifiers, operand counts and types
    "opcode": (kernel("addd.u32 %r1, %r2, %r3;"), 8, 1, "unknown instruction 'addd.u32'", "did you mean 'add'"),
    "one operand": (kernel("exit 1;"), 8, 1, "1 operand given, 0 expected", "expected exit;"),
    "capitals": (kernel("ADD.u32 %r1, %r2, %r3;"), 8, 1, "unknown instruction 'ADD.u32'", "did you mean 'add'"),
    "qualifier": (kernel("add.u23 %r1, %r2, %r3;"), 8, 1, "unknown qualifier '.u23'", "did you mean 'u32'"),
    "no rounding": (kernel("cvt.s32.f32 %r1, %f1;"), 8, 1, "needs one of .rmi, .rni, .rpi, .rzi", "expected cvt"),
    "no half": (kernel("mul.u32 %r1, %r2, %r3;"), 8, 1, "needs one of .hi, .lo, .wide", "expected mul"),
    "no precision": (kernel("div.f32 %f1, %f2, %f3;"), 8, 1, "needs one of .approx, .full, .rm, .rn", ""),
    "order": (kernel("setp.u32.eq %p1, %r1, %r2;"), 8, 1, "repeated or out of order", "expected setp"),
    "shape": (kernel("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%f0}, %d1, %d2, 1, 1, 1, 0, 0;"), 8, 1, "unknown qualifier '.m64n12k16'", ""),
    "count": (kernel("add.u32 %r1, %r2;"), 8, 1, "2 operands given, 3 expected", "expected add.T d, a, b;"),
    "class": (kernel("add.u64 %d1, %r1, %d2;"), 8, 1, "%r1 is .b32, the operand has type .u64", "expected add"),
    "point": (kernel("add.u32 %r1, %r2, 1.5;"), 8, 1, "takes no floating constant", ""),
    "no point": (kernel("add.f32 %f1, %f2, 1;"), 8, 1, "wants a floating constant", "write 1.0"),
    "to a constant": (kernel("add.u32 5, %r2, 1;"), 8, 1, "expected a register, found the constant 5", ""),
    "to tid": (kernel("mov.u32 %tid.x, 1;"), 8, 1, "special register %tid.x cannot be written", ""),
    "of tid": (kernel("add.u32 %r1, %tid.x, 1;"), 8, 1, "can only be read by mov", "mov it to a register first"),
    "guard": (kernel("@%r1 ret;"), 8, 1, "a guard is a predicate, %r1 is .b32", ""),
    "predicate": (kernel("setp.eq.u32 %r1, %r2, 0;"), 8, 1, "expected a predicate, %r1 is .b32", ""),
    "brackets": (kernel("ld.global.u32 %r1, %d1;"), 8, 1, "expected an address in brackets", r"write \[%d1\]"),
    "narrow": (kernel("ld.global.u32 %r1, [%r2];"), 8, 1, "%r2 is .b32, the address needs a 64-bit register", ""),
    "vector": (kernel("ld.global.v4.u32 {%r1, %r2}, [%d2];"), 8, 1, "expected a vector of 4, found a vector of 2", ""),
    "too wide": (kernel("ld.global.v4.u64 {%d1, %d2, %d3, %d4}, [%d5];"), 8, 1, "larger than 16 bytes", "sm_100 or later"),
    "fragment": (kernel("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%f0, %f1}, %d1, %d2, 1, 1, 1, 0, 0;"), 8, 1, "D of n16 in f32 has 8 registers, found 2", ""),
    "coordinates": (kernel("tma.load.2d [%r1], [%d1, {%r2}], [%r3];"), 8, 21, "takes 2 coordinates, found 1", ""),
    # targets
    "hopper only": (kernel("wgmma.fence.sync.aligned;", target="sm_80"), 8, 1, "is sm_90a only, this module targets sm_80", "write .target sm_90a for"),
    "short spelling on Ampere": (kernel("tma.load.2d [%r1], [%d1, {%r2, %r3}], [%r4];", target="sm_80"), 8, 1, "needs sm_90 or later", "write .target sm_90a"),
    "old target": (kernel("", target="sm_20"), 2, 1, "the target 'sm_20' is not supported", "write .target sm_90a"),
    # names
    "register": (kernel("add.u32 %r1, %r2, %r33;"), 8, 19, "%r33 is not declared", "did you mean '%r3'"),
    "register far off": (kernel("@%p1 add.u32 %acc, %r2, 1;"), 8, 14, "%acc is not declared", r"^declare it: .reg .u32 %acc;$"),
    "guard's register": (kernel("@%go add.u32 %r1, %r2, 1;"), 8, 2, "%go is not declared", r"^declare it: .reg .pred %go;$"),
    "base of an address": (kernel("ld.global.u32 %r1, [%base+4];"), 8, 21, "%base is not declared", r"^declare it: .reg .b64 %base;$"),
    "hidden component": (kernel(".reg .b32 %tid;\nmov.u32 %r1, %tid.x;"), 9, 14, "%tid.x cannot be read where a register is declared as %tid", "another name"),
    "special": (kernel("mov.u32 %r1, %tix.x;"), 8, 14, "%tix.x is not declared", "did you mean '%tid.x'"),
    "label": (kernel("bra LOOP; LOPP:"), 8, 1, "no label 'LOOP' here", "did you mean 'LOPP'"),
    "name": (kernel("ld.param.u64 %d1, [z];"), 8, 20, "'z' is not declared", "declare the variable"),
    "register twice": (kernel(".reg .b32 %r<4>;"), 8, 1, r"'%r<4>' is already declared at .*:6:", "rename one"),
    "in a range": (kernel(".reg .b32 %r2;"), 8, 1, r"'%r2' is already declared at .*:6:", "rename one"),
    "label twice": (kernel("A: ret;\nA: ret;"), 9, 1, "label 'A' is already declared at .*:8:1", r"in \{ \}"),
    "variable twice": (kernel(".shared .b32 s;\n.shared .b32 s;"), 9, 14, "'s' is already declared", "rename"),
    "parameter twice": (kernel("", params=".param .u32 x, .param .u32 x"), 4, 49, "'x' is already declared", "rename"),
    "kernel twice": (kernel("") + kernel("")[len(HEAD) :], 11, 17, "'test' is already declared at .*:4:17", "rename"),
    # sizes and ranges
    "shared bytes": (kernel(".shared .b8 s[240000];"), 8, 13, "240,000 bytes, sm_90a allows 232,448", "extern .shared"),
    "shared of Ampere": (kernel(".shared .b8 s[50000];", target="sm_80"), 8, 13, "sm_80 allows 49,152", "extern .shared"),
    "local bytes": (kernel(".local .b8 l[600000];"), 8, 12, "600,000 bytes", "arguments of the launch"),
    "initial values": (kernel("", ".const .u32 c[2] = {1, 2, 3};\n"), 4, 13, "room for 2 values, 3", "more elements"),
    "past parameters": (kernel("ld.param.u64 %d1, [x+8];"), 8, 1, "bytes 8 to .* are outside the 8 bytes", ""),
    "before parameters": (kernel("ld.param.u64 %d1, [x+-8];"), 8, 1, "bytes -8 to .* are outside", ""),
    "odd parameter": (kernel("ld.param.u64 %d1, [x+4];"), 8, 20, "parameter byte 4 is not aligned to 8", ""),
    "barrier": (kernel("bar.sync 16;"), 8, 10, "barrier 16 is out of range", "0..15"),
    "barrier as often as threads": (kernel("bar.sync 33, 33;"), 8, 1, "barrier 33 is out of range", "0..15"),
    "threads": (kernel("bar.sync 0, 33;"), 8, 13, "33 threads are not a multiple", "whole warps of 32"),
    "setmaxnreg": (kernel("setmaxnreg.inc.sync.aligned.u32 20;"), 8, 33, "multiple of 8 from 24 to 256", ""),
    # the assembler layer
    "macro": (kernel("twice(%r1, %rr);", ".macro twice(d, a) { add.u32 d, a, a; }\n"), 4, 22, "%rr is not declared", "did you mean"),
    "arguments": (kernel("twice(%r1);", ".macro twice(d, a) { add.u32 d, a, a; }\n"), 9, 1, "takes 2 arguments, found 1", r"it is twice\(d, a\)"),
    "no macro": (kernel("thrice(%r1, %r2);", ".macro twice(d, a) { add.u32 d, a, a; }\n"), 9, 1, "no macro 'thrice'", "did you mean 'twice'"),
    "label in a macro": (kernel("m(%r1);\nm(%r2);", ".macro m(a) { L: add.u32 a, a, 1; }\n"), 4, 15, "label 'L' is already declared", r"in \{ \}"),
    "division": (kernel("add.u32 %r1, %r2, N/0;", ".define N = 3\n"), 9, 20, "division by zero", ""),
    "loop": (kernel(".for i in (0, 2) { mov.u32 %r{i+7}, 1; }"), 8, 20, "%r8 is not declared", "did you mean '%r7'"),
    "assertion": (kernel("", '.define N = 3\n.assert (N % 2 == 0), "N must be even"\n'), 5, 1, "N must be even", "N = 3"),
    "include": (kernel("", '.include "nothere.mptx"\n'), 4, 10, "cannot find the include", "looked in"),
}  # fmt: skip
ONLY_HERE = (
    "macro",
    "arguments",
    "no macro",
    "label in a macro",
    "division",
    "loop",
    "short spelling on Ampere",
    "assertion",
    "include",
    "coordinates",
)
# What ptxas 13.0 takes: it reads neighbours of parameters, and leaves the size of .local to the driver.
TAKEN_BY_PTXAS = ("no kernel", "past parameters", "before parameters", "odd parameter", "local bytes", "order")


def finding(text: str, error: type[AssemblyError] = AssemblyError) -> AssemblyError:
    with pytest.raises(error) as caught:
        assemble("k.mptx", text=text)
    return caught.value


@pytest.mark.parametrize("name", CASES)
def test_place_message_and_remedy(name: str) -> None:
    text, line, column, message, remedy = CASES[name]
    error = finding(text)
    first = error.diagnostics[0]
    assert (first.pos.line, first.pos.col) == (line, column), str(error)
    assert re.search(message, first.message) and re.search(remedy, first.hint), str(error)
    assert error.exit_code == 2 and f"k.mptx:{line}:{column}: error: " in str(error)
    shown = str(error).splitlines()
    assert shown[1] == f"  {text.splitlines()[line - 1]}".rstrip("\n") or not text.splitlines()[line - 1]
    assert shown[2].endswith("^") and len(shown[2]) == column + 2


@pytest.mark.parametrize("name", [name for name in CASES if name not in (*ONLY_HERE, *TAKEN_BY_PTXAS, "old target")])
def test_ptxas_refuses_it_too(name: str, ptxas: Callable[..., tuple[bool, str]]) -> None:
    accepted, _ = ptxas(CASES[name][0], "sm_80" if "sm_80" in CASES[name][0] else "sm_90a")
    assert not accepted


def test_registers_may_hide_special_registers(ptxas: Callable[..., tuple[bool, str]]) -> None:
    """As long as no component of the special register is read: ptxas takes it, and reads the register."""
    text = kernel(
        ".reg .b32 %laneid, %tid, %clock; mov.u32 %laneid, 7; mov.u32 %tid, %laneid; mov.u32 %clock, %tid; mov.u32 %r1, %ctaid.x;"
    )
    assert ptxas(text, "sm_90a")[0] and assemble(text=text).program().name == "test"


def test_an_unknown_define_is_about_the_file() -> None:
    with pytest.raises(AssemblyError) as caught:
        assemble("k.mptx", text=kernel("", ".define FOR = 1\n"), defines={"FOO": 1})
    assert str(caught.value) == "k.mptx: error: the program has no define 'FOO'\n  help: did you mean 'FOR'?"


def test_an_assertion_names_the_define_that_is_set() -> None:
    """Not the lets computed from it."""
    text = kernel(
        "", '.define TILE = 3\n.let KEYS = TILE * 2\n.assert (KEYS % 16 == 0), "TILE must be a multiple of 8"\n'
    )
    assert finding(text).diagnostics[0].hint == "here TILE = 3"


def test_suggestions_are_near_spellings() -> None:
    assert nearest("parity", ["wait"]) == nearest("unit.nope", ["unit.sfu.lanes"]) == ""
    assert "'wait'" in nearest("waiting", ["wait"]) and "'%r1'" in nearest("%rr", ["%r1"])


def test_a_macro_names_the_place_of_its_call() -> None:
    assert "in the expansion at k.mptx:9:1" in str(finding(CASES["macro"][0]))


def test_all_findings_are_listed() -> None:
    """Of one kernel and of several, in the order of the text."""
    text = (
        kernel("add.u32 %r1, %r2, %q;\nbra L;\nmov.u32 %r1;") + kernel("bra M;").replace("test", "other")[len(HEAD) :]
    )
    assert [d.pos.line for d in finding(text).diagnostics] == [8, 9, 10, 17]


def test_unsupported_instructions_are_all_named() -> None:
    error = finding(
        kernel("tex.2d.v4.f32.f32 {%f1}, [t, {%f1}];\nmultimem.st.relaxed.sys.global.f32 [%rd1], %f1;"),
        UnsupportedError,
    )
    assert error.exit_code == 4
    assert [d.message for d in error.diagnostics] == [
        "'tex.2d.v4.f32.f32' is not implemented",
        "'multimem.st.relaxed.sys.global.f32' is not implemented",
    ]
    assert all("docs/language.md" in d.hint for d in error.diagnostics)


def test_mistakes_come_before_what_is_unsupported() -> None:
    assert finding(kernel("tex.2d.v4.f32.f32 {%f1}, [t, {%f1}];\nbra L;")).exit_code == 2


def test_narrow_addresses_are_not_supported() -> None:
    error = finding(kernel("").replace(".address_size 64", ".address_size 32"), UnsupportedError)
    assert ".address_size 32 is not supported" in str(error)


def test_names_may_be_declared_again_in_other_scopes() -> None:
    text = kernel(
        "{ .reg .b32 %r2; A: mov.u32 %r2, 1; } { A: ret; } .shared .b32 s; { .shared .b32 s; }", ".shared .b8 s[8];\n"
    )
    assert assemble(text=text).program().name == "test"


def test_registers_that_nothing_writes_are_warned_of() -> None:
    """Only where no path writes them; each once, at its first use."""
    body = """add.u32 %r1, %r2, 1; st.global.u32 [%d1], %r1; st.global.u32 [%d1], %r2;
@%p1 mov.u32 %r3, %r1; st.global.u32 [%d1], %r3; L: st.global.u32 [%d1], %r4; mov.u32 %r4, 1; bra L;"""
    program = load_text("k.mptx", kernel(body)).program
    assert program.unwritten == [
        "k.mptx:8:1: %r2 is read, but nothing has written it",
        "k.mptx:8:22: %d1 is read, but nothing has written it",
        "k.mptx:9:1: %p1 is read, but nothing has written it",
    ]
    assert f"warning: {program.unwritten[0]}\n" in summary(program)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (kernel("P: .callprototype _ (); call %d1, P;"), "8:4: error: calls by address are not implemented"),
        (kernel("P: .callprototype (.param .b32 _) _ (.param .b32 _);"), "8:4: error: calls by address are not"),
        (kernel("mov.u64 %d1, f;", ".func f() { ret; }\n"), "9:14: error: the address of the function 'f': calls by"),
        (
            kernel("", ".func f() { ret; }\n.global .u64 t[1] = {f};\n"),
            "'t' holds the address of the function 'f': calls by",
        ),
        (
            kernel("wmma.load.a.sync.aligned.row.m16n16k8.shared.tf32 {%r1,%r2,%r3,%r4}, [%r5], 16;"),
            "'.m16n16k8' of 'wmma.load",
        ),
        (kernel("", ".global .texref t;\n"), "4:1: error: textures and surfaces are not implemented"),
        (kernel("tex.2d.v4.f32.f32 {%f1}, [t, {%f1}];"), "8:1: error: 'tex.2d.v4.f32.f32' is not implemented"),
    ],
)
def test_what_is_not_implemented_has_a_remedy(text: str, message: str) -> None:
    error = finding(text, UnsupportedError)
    assert message in str(error) and "help: " in str(error) and error.exit_code == 4


def test_managed_variables_are_like_others() -> None:
    assert assemble(text=kernel("", ".global .attribute(.managed) .align 8 .b32 m[4];\n")).program().name == "test"
