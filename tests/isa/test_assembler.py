"""The driver: kernels by name, caps and spills, listings, register counts beside those of ptxas."""

import re
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.machine import load_machine
from isa import tidy
from isa.assembler import assemble, target
from isa.errors import AssemblyError
from isa.listing import counts, listing
from isa.registry import ALL_TARGETS, heirs, least

SAXPY = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
.reqntid 128, 1, 1
{
  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<5>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.f32 %f1, [a];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra DONE;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4];
  ld.global.f32 %f3, [%rd5];
  fma.rn.f32 %f4, %f1, %f2, %f3;
  st.global.f32 [%rd5], %f4;
DONE:
  ret;
}
"""


def test_program_of_a_small_kernel():
    program = assemble(text=SAXPY).program()
    assert (program.name, program.target, program.block_hint) == ("saxpy", "sm_90a", (128, 1, 1))
    assert [a.name for a in program.args] == ["x", "y", "a", "n"] and program.param_bytes == 24
    assert program.micro_names[-1] == "EXIT"
    assert "MOV" not in program.micro_names  # parameters are read where they are used
    first = program.instrs[program.micro_names.index("EXIT")]  # ptxas: @P0 EXIT
    assert first["guard"] and first["target"] == -1
    assert program.lines[0].line == 12 and not program.warnings


def test_register_count_is_near_that_of_ptxas(ptxas):
    accepted, _ = ptxas(SAXPY, "sm_90a")
    assert accepted
    assert assemble(text=SAXPY).program().registers <= 12  # ptxas 13.0 -v: "Used 12 registers"


def test_listing_names_every_operation():
    program = assemble(text=SAXPY).program()
    lines = listing(program)
    assert all(name in lines for name in program.micro_names)
    assert "c[0x10]" in lines and "@P0" in lines
    assert sum(counts(program).values()) == len(program.instrs)


def test_immediates_are_listed_in_words():
    """Offsets, elements, flags, shapes, special registers and modes as their micro-operations describe them."""
    wanted = {
        "ld.shared.s8 %r1, [s + 3];": "0x403, s8",
        "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%d1 + -16];": "-0x10 b32 x4",
        "mov.u32 %r1, %ctaid.y;": "%ctaid.y",
        "shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;": ", bfly",
        "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1, %r2}, [%r3 + 32];": "+0x20 x2 trans",
        "mbarrier.arrive.expect_tx.shared.b64 _, [%r1 + 8], 64;": "+0x8 expect_tx",
        "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0, 100;": ", hint",
        "tma.load.3d [%r1], [%d1, {%r2, %r3, %r4}], [%r5];": ", 3d",
        "cp.async.bulk.wait_group.read 2;": "2 read",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0..%f3}, %d1, %d2, 1, 1, -1, 0, 1;": "n8 bf16, negate B, transpose B",
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {%f0..%f3}, %d1, %d2, 1, 1, 1;": "n8 e4m3 e5m2",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0..%f3}, {%r0..%r3}, {%r4, %r5}, {%f0..%f3};": "k16 bf16",
        "cp.async.cg.shared.global [%r1 + 16], [%d1 + -8], 16;": "-0x8 -> +0x10, 16 bytes",
        "red.global.add.v2.f32 [%d1 + 4], {%f1, %f2};": "+0x4 add f32 x2",
    }
    wanted |= {
        "fma.rn.f32 %f1, %f2, 0f3FB8AA3B, 0f42800000;": "1.442695, 64.0",
        "add.f32 %f1, %f2, 0fFF800000;": ", -inf",
        "add.s32 %r1, %r2, 0x3FB8AA3B;": "0x3fb8aa3b",
    }
    registers = ".reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<8>; .shared .b8 s[64];"
    for text, words in wanted.items():
        program = assemble(
            text=f".version 8.6 .target sm_90a .address_size 64 .entry k() {{ {registers} {text} st.global.u32 [%d7], %r1; st.global.f32 [%d6], %f1; }}"
        ).program()
        assert words in listing(program), (text, listing(program))
    # those of a scheduler's or a table's own kind stay numbers
    assert "0xc0" in listing(
        assemble(
            text=SAXPY.replace("mov.u32 %r4, %tid.x;", "mov.u32 %r4, %tid.x; lop3.b32 %r4, %r4, %r3, %r2, 0xc0;")
        ).program()
    )


def test_more_predicates_than_there_are():
    """ptxas 13.0 moves such predicates to registers (P2R) and back (ISETP); the warning says that the cycles lack that."""
    live = "".join(f"setp.gt.s32 %p{k}, %r1, {k};" for k in range(8))
    live += "".join(f"@%p{k} st.global.u32 [%d1], {k + 1};" for k in range(8))
    text = ".version 8.6 .target sm_90a .address_size 64 .entry k(.param .u64 x) { .reg .pred %p<8>; .reg .b32 %r<2>; .reg .b64 %d<2>;"
    text += f" ld.param.u64 %d1, [x]; ld.global.u32 %r1, [%d1]; {live} ret; }}"
    (warning,) = assemble(text=text).program().warnings
    assert "8 predicates are needed, the hardware has 7: ptxas keeps the others in registers" in warning
    assert "not counted" in warning
    fewer = text.replace("setp.gt.s32 %p7, %r1, 7;", "").replace("@%p7 st", "@%p6 st")
    assert not assemble(text=fewer).program().warnings


def test_a_register_that_is_always_set_to_one_constant_is_that_constant():
    """As when the address of a parameter is taken and converted in one register."""
    text = """.version 8.6 .target sm_90a .address_size 64 .entry k(.param .u32 n, .param .align 64 .b8 map[128])
    { .reg .b64 %d<3>; .reg .b32 %r<3>; mov.b64 %d1, map; cvta.param.u64 %d1, %d1; prefetch.tensormap [%d1]; ret; }"""
    assert assemble(text=text).program().micro_names == ["UTMAPF", "EXIT"]


def test_kernels_by_name():
    both = SAXPY + SAXPY[SAXPY.index(".visible") :].replace("saxpy", "other")
    assembly = assemble(text=both)
    assert list(assembly.programs) == ["saxpy", "other"]
    with pytest.raises(AssemblyError, match="saxpy, other"):
        assembly.program()
    assert list(assemble(text=both, kernel="other").programs) == ["other"]


def test_files_and_defines(tmp_path: Path):
    file = tmp_path / "k.mptx"
    file.write_text(".define N = 3\n" + SAXPY.replace("ret;", "mov.b32 %r1, N;\n st.global.b32 [%rd2], %r1;\n ret;"))
    program = assemble(file, defines={"N": 1234}).program()
    assert 1234 in program.const_bits
    assert program.source[str(file)][0] == ".define N = 3"


def many(count, directives=""):
    """`count` loaded values, all live at once, then summed."""
    loads = "\n".join(f"ld.global.u32 %r{i}, [%rd1+{4 * i}];" for i in range(count))
    adds = "\n".join(f"add.u32 %r0, %r0, %r{i};" for i in range(1, count))
    return (
        f".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a)\n{directives}\n{{\n"
        f".reg .b32 %r<{count}>; .reg .b64 %rd<2>;\nld.param.u64 %rd1, [a];\n{loads}\n{adds}\n"
        "st.global.u32 [%rd1], %r0;\nret;\n}\n"
    )


@pytest.mark.parametrize(("count", "directives", "spilled"), [(60, "", 0), (60, ".maxnreg 40", 20), (280, "", 25)])
def test_spills_are_reported(count, directives, spilled):
    program = assemble(text=many(count, directives)).program()
    assert program.registers == count
    assert program.spilled == spilled
    assert bool(program.warnings) == bool(spilled)


def test_setmaxnreg_raises_the_cap_behind_it():
    text = many(60, ".reqntid 128, 1, 1\n.maxnreg 40")
    text = text.replace("ld.param", "setmaxnreg.inc.sync.aligned.u32 64;\nld.param", 1)
    assert assemble(text=text).program().spilled == 0
    low = assemble(text=text.replace("u32 64", "u32 32")).program()
    assert low.spilled == 28 and "after setmaxnreg 32" in low.warnings[0]


def test_findings_of_all_kernels_come_together():
    broken = SAXPY.replace("mul.wide.u32 %rd3", "mul.wide.u32 %r3").replace("%f4, %f1", "%f9, %f1")
    with pytest.raises(AssemblyError) as caught:
        assemble(text=broken)
    assert len(caught.value.diagnostics) == 2
    assert re.search(r":18:3: error: .*\n .*mul.wide.u32", str(caught.value))


def test_a_loop_repeats_no_finding():
    body = ".reg .b32 %r<2>; .for i in (0, 4) { add.u32 %r0, %r1, %q; }"
    with pytest.raises(AssemblyError) as caught:
        assemble(text=f".version 8.5 .target sm_90a .address_size 64 .entry k() {{ {body} ret; }}")
    assert [d.message for d in caught.value.diagnostics] == ["%q is not declared"]


@pytest.mark.parametrize(
    ("params", "body", "words"),
    [
        (".param .u33 x", "", "no type .u33.*\n.*\n.*\n.*did you mean 'u32'"),
        (".param .pred x", "", "no type .pred"),
        (".param .align 3 .b8 x[4]", "", "alignment 3 is not a power of two"),
        ("", ".shared .align 0 .b8 x[4];", "alignment 0 is not a power of two"),
        ("", ".reg .u33 %x;", "no type .u33"),
        ("", ".shared .pred x;", "no type .pred"),
        ("", ".global .b32 x[99999999999];", "399,999,999,996 bytes"),
        ("", ".local .b8 x[262145]; .local .b8 y[262144];", "524,288 together"),
    ],
)
def test_declarations_that_do_not_work(params, body, words):
    with pytest.raises(AssemblyError) as caught:
        assemble(text=f".version 8.5 .target sm_90a .address_size 64 .entry k({params}) {{ {body} ret; }}")
    assert re.search(words, str(caught.value))


def test_vector_variables():
    body = ".shared .v4 .f32 x; .shared .b8 y; .global .v2 .f32 z[2] = {1.0, 2.0, 3.0, 4.0};"
    program = assemble(text=f".version 8.5 .target sm_90a .address_size 64 .entry k() {{ {body} ret; }}").program()
    assert program.shared_static == 17
    assert bytes(program.global_image) == struct.pack("<4f", 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("line", "name"),
    [("sm_90a", "sm_90a"), ("sm_86", "sm_80"), ("sm_103a", "sm_103a"), ("sm_103", "sm_100"), ("sm_90, debug", "sm_90")],
)
def test_targets(line, name):
    assert target(line) == name


@given(st.sets(st.sampled_from(ALL_TARGETS), min_size=1))
def test_a_form_is_there_on_all_heirs_of_its_targets(names):
    """A plain target's instructions are those of all later ones, a family's those of its members (ptxas 13.0)."""
    found = heirs(tuple(names))
    assert set(names) <= set(found) and heirs(found) == found
    if "sm_90" in names or "sm_80" in names:
        assert "sm_103a" in found
    assert names == {"sm_90a"} or least(found) != "sm_90a"


def test_least_names_what_was_declared():
    assert [least(heirs(t)) for t in (("sm_90",), ("sm_90a",), ("sm_90a", "sm_100f"), ("sm_103f",))] == [
        "sm_90 or later", "sm_90a", "sm_90a, sm_100f", "sm_103f"]  # fmt: skip


@pytest.mark.parametrize("name", ["sm_75", "sm_12", "sm_120", "sm_121a", "sm_800", "foo"])
def test_another_target_is_one_error_at_its_line(name):
    with pytest.raises(AssemblyError) as caught:
        assemble(text=SAXPY.replace("sm_90a", name))
    (finding,) = caught.value.diagnostics
    assert (finding.pos.line, finding.source) == (2, f".target {name}")
    assert name in finding.message and "sm_90a" in finding.hint


DIRECTIVES = {
    "": None,
    ".reqntid 384, 1, 1": None,
    ".maxntid 384, 1, 1": None,
    ".maxnreg 168": 168,
    ".reqntid 384, 1, 1 .minnctapersm 1": 168,
    ".maxntid 256, 1, 1 .minnctapersm 2": 128,
}


def moving(directives):
    text = SAXPY.replace(".reqntid 128, 1, 1", directives)
    return text.replace("DONE:", "setmaxnreg.dec.sync.aligned.u32 24;\nDONE:")


@pytest.mark.parametrize("directives", DIRECTIVES)
def test_setmaxnreg_needs_a_known_register_count(directives):
    program = assemble(text=moving(directives)).program()
    known = DIRECTIVES[directives]
    assert program.max_registers == known
    assert ("USETMAXREG" in program.micro_names) == (known is not None)
    assert [".maxnreg" in w for w in program.warnings] == ([] if known else [True])


@pytest.mark.parametrize("directives", DIRECTIVES)
def test_ptxas_ignores_the_same_setmaxnreg(directives, ptxas):
    accepted, messages = ptxas(moving(directives), "sm_90a", "-v")
    known = DIRECTIVES[directives]
    assert accepted and ("'setmaxnreg' ignored" in messages) == (known is None)
    assert known is None or f"Used {known} registers" in messages


def test_a_byte_order_mark_is_skipped(tmp_path: Path):
    file = tmp_path / "k.ptx"
    file.write_text(SAXPY, encoding="utf-8-sig")
    assert assemble(file).program().source[str(file)][0] == ".version 8.0"
    assert assemble(text="\ufeff" + SAXPY).program().source["<text>"][0] == ".version 8.0"


def test_long_code_takes_time_in_proportion():
    """12,000 rounds took 27 s when every definition looked at every use."""
    body = "mov.u32 %r1, 3;\n.for i in (0, 12000) { mad.lo.u32 %r1, %r1, %r1, %r1; }\nst.global.u32 [%rd2], %r1;\n"
    start = time.process_time()
    program = assemble(text=SAXPY.replace("DONE:", body + "DONE:")).program()
    assert program.micro_names.count("UIMAD") >= 12000
    assert time.process_time() - start < 15


def test_a_chain_of_dead_operations_goes_in_one_round(monkeypatch):
    rounds = []
    analyse = tidy.analyse
    monkeypatch.setattr(tidy, "analyse", lambda *args: rounds.append(1) or analyse(*args))
    body = "mov.u32 %r1, 3;\n.for i in (0, 50) { ld.global.u32 %r2, [%rd2]; add.u32 %r1, %r1, %r2; }\n"
    order = load_machine("h200").timing
    program = assemble(text=SAXPY.replace("DONE:", body + "DONE:"), order=order).program()
    assert program.micro_names.count("LDG") == 52 and program.micro_names.count("IADD3") < 5
    assert len(rounds) <= 3
