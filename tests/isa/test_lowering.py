"""Lowering: scopes, labels, guards, variables and parameters."""

import pytest

from isa import registry
from isa.code import half
from isa.expand import expand
from isa.layout import Layout
from isa.lowering import Lowering
from isa.program import GLOBAL_BASE, PARAM_BASE, SHARED_BASE
from isa.registry import Const, Half, NotPred, ParamWord, VReg

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"

registry.load()


def lower(body, items="", params=""):
    module = expand(f"{HEADER}{items}\n.visible .entry k({params})\n{{\n{body}\n}}\n", "t.ptx", {}, ())
    (kernel,) = module.kernels
    layout = Layout(module, kernel)
    return Lowering(kernel, "sm_90a", layout, lambda pos: "").run(), layout


def names(code):
    return [op.micro.name for op in code.ops]


def test_inner_scopes_hide_registers_and_labels():
    code, _ = lower("""
        .reg .b32 %r<4>;
        { .reg .b32 %r<2>; L: add.s32 %r1, %r1, 1; bra L; }
        { L: add.s32 %r1, %r1, 1; bra L; }
        ret;
    """)
    first, second = code.ops[0].results[0], code.ops[2].results[0]
    assert first != second
    assert [code.labels[code.ops[i].label] for i in (1, 3)] == [0, 2]


def test_outer_labels_are_seen_from_blocks():
    code, _ = lower("{ bra END; }\nEND: ret;")
    assert code.labels[code.ops[0].label] == 1


@pytest.mark.parametrize("body", ["", ".reg .pred %p<2>; @%p1 bra END; END:", ".reg .pred %p<2>; @%p1 ret;"])
def test_bodies_that_run_off_their_end_return(body):
    assert names(lower(body)[0])[-1] == "EXIT"
    assert lower(body)[0].ops[-1].guard is None


def test_guards():
    code, _ = lower(".reg .pred %p<2>; .reg .b32 %r<2>;\n@!%p1 mov.b32 %r1, 0;\n@%p1 mov.b32 %r1, 1;\nret;")
    assert isinstance(code.ops[0].guard, NotPred) and isinstance(code.ops[1].guard, VReg)
    assert code.ops[2].guard is None


def test_variables_and_parameters():
    code, layout = lower(
        """
        .reg .b32 %r<4>; .reg .b64 %rd<4>;
        .shared .align 8 .b8 local_tile[24];
        mov.u32 %r1, tile; mov.u32 %r2, local_tile; mov.u32 %r3, dynamic;
        mov.b64 %rd1, b; ld.param.u64 %rd2, [a]; ld.param.u32 %r1, [b+4]; mov.u64 %rd3, table;
        ret;
        """,
        ".extern .shared .align 128 .b8 dynamic[];\n.shared .b8 tile[5];\n"
        ".global .u32 pad = 7;\n.global .u64 table[2] = {1, 2};",
        ".param .u32 c, .param .u64 a, .param .align 64 .b8 b[128]",
    )
    sources = [op.sources[0] for op in code.ops[:-1]]
    assert sources[:3] == [Const(SHARED_BASE), Const(SHARED_BASE + 8), Const(SHARED_BASE + 128)]
    assert sources[3:5] == [Const((PARAM_BASE + 64) & 0xFFFFFFFF), Const(PARAM_BASE + 64 >> 32)]
    assert sources[5:8] == [ParamWord(8), ParamWord(12), ParamWord(68)]
    assert sources[8] == Const(GLOBAL_BASE + 8 & 0xFFFFFFFF)
    assert [(a.offset, a.size) for a in layout.args] == [(0, 4), (8, 8), (64, 128)]
    assert layout.param_bytes == 192
    assert bytes(layout.image) == b"\x07" + bytes(7) + b"\x01" + bytes(7) + b"\x02" + bytes(7)


def test_halves():
    assert half(VReg(3, "d"), 1) == Half(VReg(3, "d"), 1)
    assert half(Const(0x1_00000002, "d"), 1) == Const(1)
    assert half(ParamWord(8, "d"), 1) == ParamWord(12)
    with pytest.raises(TypeError):
        half(Const(1), 0)


def test_roles_are_kept():
    code, _ = lower('.role "producer"\nbar.sync 0;\n.role "consumer"\nbar.sync 1;\nret;')
    assert [op.role for op in code.ops] == ["producer", "consumer", "consumer"]


def test_destinations_wider_than_the_result_are_extended():
    code, _ = lower(
        ".reg .b64 %rd<4>;\nld.param.s32 %rd1, [a]; "
        "ld.global.u8 %rd2, [%rd3]; ld.global.v2.b32 {%rd1, %rd2}, [%rd3]; ret;",
        params=".param .u32 a",
    )
    d = [op.results for op in code.ops]
    assert names(code)[:4] == ["MOV", "SHF.R.S32", "LDG", "MOV"]
    assert d[1] == (Half(d[0][0].reg, 1),) and code.ops[3].sources == (Const(0),)
    assert names(code)[4:] == ["LDG", "MOV", "MOV", "EXIT"]
