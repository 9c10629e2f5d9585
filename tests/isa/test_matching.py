"""Matching: syntax lines, operand kinds, messages; what is accepted agrees with ptxas."""

import itertools

import pytest

from isa import registry
from isa.assembler import assemble
from isa.errors import AssemblyError, UnsupportedError
from isa.forms import match_qualifiers, template
from isa.matching import spelled
from isa.names import compatible, constant
from isa.registry import Form
from isa.syntax import Float, Int
from isa.vocabulary import OPCODES, compound, unimplemented

HEADER = """.version 8.0
.target sm_90a
.address_size 64
.shared .align 16 .b8 tile[256];
.visible .entry k(.param .u64 a, .param .u32 b)
{
.reg .pred %p<5>; .reg .b32 %r<9>; .reg .u32 %u<9>; .reg .s32 %s<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>;
.reg .b16 %h<9>; .reg .f16 %hf<4>; .reg .u16 %hu<4>; .reg .f64 %fd<4>; .reg .pred q;
"""

registry.load()


def kernel(line):
    return f"{HEADER}{line}\nret;\n}}\n"


def form(syntax, **sets):
    return Form(syntax, lambda e, m: None, ("sm_90a",), sets, {}, "test", "")


def error(line):
    with pytest.raises(AssemblyError) as caught:
        assemble(text=kernel(line))
    return caught.value


def test_template():
    line = "mbarrier.try_wait{.parity}{.sem}{.scope}{.shared::cta}.b64 p, [addr], phase{, hint};"
    compiled = template(form(line, sem=(".acquire", ".relaxed"), scope=("cta", "cluster")))
    assert [sorted(c.members) for c in compiled.required] == [["try_wait"], ["b64"]]
    assert [(s.name, s.shape, s.destination, s.group) for s in compiled.slots] == [
        ("p", "plain", True, -1), ("addr", "addr", False, -1),
        ("phase", "plain", False, -1), ("hint", "plain", False, 0),
    ]  # fmt: skip
    assert compiled.counts() == [3, 4]
    chosen = match_qualifiers(compiled, ("try_wait", "relaxed", "shared::cta", "cluster", "parity", "b64"))
    assert chosen == {"sem": "relaxed", "scope": "cluster"}
    assert match_qualifiers(compiled, ("try_wait", "relaxed", "acquire", "b64")) is None


def test_template_shapes():
    compiled = template(form("wgmma.SHAPE.f32 d, {a}, b-desc, scale-d, imm-scale-a;", SHAPE=("m64n8k16",)))
    assert [s.name for s in compiled.slots] == ["d", "a", "b_desc", "scale_d", "imm_scale_a"]
    assert compiled.slots[1].shape == "vec"
    tensor = template(form("cp{.a.b}.{x,y} [dst], [map, coords], [bar]{, mask}{, policy};"))
    assert (tensor.slots[1].shape, tensor.slots[1].second) == ("tensor", "coords")
    assert tensor.counts() == [3, 4, 5]
    assert len(tensor.layouts(4)) == 2
    assert match_qualifiers(tensor, ("a", "b", "y")) == {}
    assert match_qualifiers(tensor, ("a", "y")) is None
    pair = template(form("setp.lt.s32 d|q, a, b{, {!}c};"))
    assert (pair.slots[0].second, pair.slots[3].name) == ("q", "c")


@pytest.mark.parametrize("words", list(itertools.permutations(["ftz", "rn", "sat"])))
def test_optional_qualifiers_stand_anywhere(words):
    compiled = template(form("fma.rn{.ftz}{.sat}.f32 d, a, b, c;"))
    assert match_qualifiers(compiled, (*words, "f32")) == {}


def test_every_declared_line_compiles():
    for declared in registry.forms():
        assert template(declared).counts(), declared.syntax
        assert declared.opcode in OPCODES, declared.syntax


def test_a_spelling_is_found_once():
    assert len(spelled("add.s32")) == 1
    assert spelled("add.s33") == ()


ACCEPTED = """
mov.u32 %u1, 0x1ffffffff;
add.u32 %u1, %u1, -3000000000;
mov.b32 %r1, 0f3F800000;
mov.b32 %u1, %f1;
add.u32 %r1, %u1, %s1;
ld.shared.v4.b32 {%r1, %r2, %r3, %f4}, [%r1+16];
ld.shared.b32 {%r1}, [tile+4];
ld.shared.b32 %r1, [%rd1];
ld.global.b32 %rd2, [%rd1];
st.global.u8 [%rd1], %rd2;
setp.lt.and.s32 %p1|%p2, %r1, 1, !%p3;
setp.lt.and.s32 q, %r1, 1, %p3;
selp.b32 %r1, 1, 0, !q;
@q mov.b32 %r1, 3;
shl.b64 %rd1, %rd2, %r1;
mov.pred %p1, -1;
mov.b64 %rd1, {%r1, 0};
mov.b64 {%r1, _}, %rd1;
elect.sync _|%p1, -1;
mov.u64 %rd1, a;
mov.u32 %r1, tile;
mov.u16 %h1, 70000;
mov.u32 %r1, %tid.x;
ld.param.u64 %rd1, [a];
bar.sync 0;
""".strip().splitlines()

REJECTED = """
mov.f32 %f1, 1;
mov.u32 %u1, 0f3F800000;
mov.u32 %u1, %f1;
mov.f32 %f1, %u1;
add.s32 %f1, %r1, %r2;
add.u32 %r1, %tid.x, 1;
add.u32 %r1, %rd1, 1;
ld.global.b32 %r1, [%r1];
shl.b64 %rd1, %rd2, %rd1;
mov.b16 %h1, 0f3F800000;
ld.global.f32 %fd1, [%rd2];
cvt.u32.u64 %r1, %r2;
add.s32 %r1, %r2;
add.s32 1, %r1, %r2;
add.s32 %r1, %r2, %nothing;
mov.u32 %r1, nothing;
ld.shared.v4.b32 {%r1, %r2}, [%r1];
ld.shared.b32 %r1, %r2;
setp.lt.s32 %r1, %r1, 1;
bra NOWHERE;
selp.b32 %r1, 1, 0, %r2;
addd.s32 %r1, %r1, %r1;
""".strip().splitlines()


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepted_as_by_ptxas(line, ptxas):
    accepted, said = ptxas(kernel(line), "sm_90a")
    assert accepted, said
    assemble(text=kernel(line))


@pytest.mark.parametrize("line", REJECTED)
def test_rejected_as_by_ptxas(line, ptxas):
    assert not ptxas(kernel(line), "sm_90a")[0]
    assert error(line).exit_code == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("addd.s32 %r1, %r1, %r1;", ["unknown instruction 'addd.s32'", "did you mean 'add'?"]),
        ("add.s33 %r1, %r1, %r1;", ["unknown qualifier '.s33'", "did you mean 's32'?", "expected add"]),
        ("add.s32 %r1, %r1;", ["2 operands given, 3 expected", "expected add"]),
        ("add.s32 %r1, %r1, %f1;", ["%f1 is .f32, the operand has type .s32"]),
        ("add.s32 %r1, %r1, %r10;", ["%r10 is not declared", "did you mean '%r1'?"]),
        ("add.s32 %r1, %tid.x, 1;", ["%tid.x can only be read by mov"]),
        ("ld.global.b32 %r1, [%r1];", ["%r1 is .b32, the address needs a 64-bit register"]),
        ("ld.global.b32 %r1, %rd1;", ["expected an address in brackets, found the register %rd1"]),
        ("ld.shared.v4.b32 {%r1, %r2}, [tile];", ["expected a vector of 4, found a vector of 2"]),
        ("setp.s32 %p1, %r1, 1;", ["'setp.s32' needs one of .eq"]),
        ("bra DONE;", ["there is no label 'DONE' here"]),
        ("mov.f32 %f1, 1;", ["a .f32 operand wants a floating constant", "write 1.0"]),
        ("@%r1 bra $L;", ["a guard is a predicate, %r1 is .b32"]),
    ],
)
def test_messages(line, words):
    text = str(error(line))
    for word in words:
        assert word in text
    assert line in text and "^" in text


def test_unimplemented_instructions_are_listed_together():
    caught = error("multimem.red.relaxed.sys.global.add.u32 [%d1], %r1;\nsured.b.add.1d.u32.trap [%d1, {%r1}], %r2;")
    assert isinstance(caught, UnsupportedError) and caught.exit_code == 4 and len(caught.diagnostics) == 2


def test_compound_instructions_are_told_apart():
    assert compound("cp.async.bulk.shared::cluster.global") == "cp.async.bulk"
    assert compound("cp.async.bulk.tensor.DIM.DST{.tile} [d], [a];") == "cp.async.bulk.tensor"
    assert compound("add{.sat}.s32 d, a, b;") == "add"


def test_mistakes_outweigh_unimplemented_instructions():
    assert error("tcgen05.fence::before_thread_sync;\nmov.u32 %r1, %x;").exit_code == 2


def test_wrong_target():
    with pytest.raises(AssemblyError, match=r"'wgmma.commit_group.sync.aligned' is sm_90a only"):
        assemble(text=kernel("wgmma.commit_group.sync.aligned;").replace("sm_90a", "sm_100a"))


@pytest.mark.parametrize(
    ("node", "kind", "bits"),
    [
        (Int(-1), "u32", 0xFFFFFFFF),
        (Int(-1), "s64", 0xFFFFFFFFFFFFFFFF),
        (Int(70000), "u16", 70000 & 0xFFFF),
        (Float(1.0), "f32", 0x3F800000),
        (Float(0.1), "f64", 0x3FB999999999999A),
        (Float(float("nan"), 0x7FC00001, 32), "f32", 0x7FC00001),
        (Float(float("nan"), 0x7FC00001, 32), "b32", 0x7FC00001),
        (Float(1e300), "f32", 0x7F800000),
    ],
)
def test_constants(node, kind, bits):
    assert constant(node, kind).bits == bits


def test_register_types_follow_ptxas(ptxas):
    """Every declared type against every type of mov of the same or another width."""
    registers = {"b32": "%r1", "u32": "%u1", "s32": "%s1", "f32": "%f1", "b64": "%rd1", "f64": "%fd1", "b16": "%h1"}
    for kind, declared in itertools.product(("b32", "u32", "f32", "b64", "b16", "u16"), registers):
        line = f"mov.{kind} {registers[declared]}, {registers[declared]};"
        assert ptxas(kernel(line), "sm_90a")[0] == compatible(kind, declared, relaxed=False), line


@pytest.mark.parametrize(
    ("line", "words"),
    [("multimem.st.relaxed.sys.global.f32 [%d1], %f1;", "shfl"), ("clmad.lo.u64 %rd1, %rd2, %rd3, %rd4;", "")],
)
def test_what_is_not_implemented_has_a_remedy(line, words):
    (finding,) = error(line).diagnostics
    assert "is not implemented" in finding.message
    assert words in finding.hint and "docs/language.md" in finding.hint


def test_explanation_of_what_is_not_implemented():
    assert "instruction tex: recognised, but not implemented" in unimplemented("tex.1d")
    assert unimplemented("add.s32") == unimplemented("nonsense") == ""


@pytest.mark.parametrize(("word", "meant"), [("mda", "mad"), ("amd", "mad"), ("sbu", "sub"), ("mxa", "max")])
def test_suggestions_prefer_swapped_letters(word, meant):
    assert f"'{meant}'" in error(f"{word}.s32 %r1, %r2, %r3;").diagnostics[0].hint
