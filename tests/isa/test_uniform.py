"""The uniform datapath: what moves there, what stays, and that it changes no value."""

import numpy as np
import pytest

import emu
from isa import registry
from isa.assembler import assemble

registry.load()
HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<4>;"


def operations(body):
    text = f"{HEADER}.visible .entry k(.param .u32 n, .param .u64 out)\n{{\n{REGISTERS}\n{body}\n}}\n"
    return assemble(text=text).program(None).micro_names


STORE = "ld.param.u64 %rd1, [out]; st.global.u32 [%rd1], {value}; ret;"
TAIL = STORE.format(value="%r9")


@pytest.mark.parametrize(
    ("body", "there", "here"),
    [
        # parameters, special registers of the CTA, and a loop that all lanes turn equally often
        ("ld.param.u32 %r1, [n]; mov.u32 %r2, %ctaid.x; add.u32 %r9, %r1, %r2;", {"UIADD3"}, {"IADD3"}),
        (
            ("ld.param.u32 %r1, [n]; mov.u32 %r9, 1;\nL: add.u32 %r9, %r9, %r9; sub.u32 %r1, %r1, 1;"
            "setp.ne.u32 %p1, %r1, 0; @%p1 bra L;"),
            {"UIADD3", "UISETP.NE.U32"},
            {"IADD3", "ISETP.NE.U32"},
        ),
        # lane numbers; a broadcast; a guard
        ("mov.u32 %r1, %tid.x; add.u32 %r9, %r1, 1;", {}, {"UIADD3"}),
        ("mov.u32 %r1, %tid.x; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; xor.b32 %r9, %r2, 5;", {"ULOP3.XOR"}, {"LOP3.XOR"}),
        ("mov.u32 %r1, %tid.x; shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1; xor.b32 %r9, %r2, 5;", {"LOP3.XOR"}, {"ULOP3.XOR"}),
        (
            "mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; ld.param.u32 %r9, [n]; @%p1 add.u32 %r9, %r9, 1; xor.b32 %r9, %r9, 5;",
            {"IADD3", "LOP3.XOR"},
            {"UIADD3", "ULOP3.XOR"},
        ),
        # written where the lanes have parted: uniform there, not where they meet
        (
            ("mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; ld.param.u32 %r9, [n]; @%p1 bra L; add.u32 %r9, %r9, 1;\n"
            "L: xor.b32 %r9, %r9, 5;"),
            {"UIADD3", "LOP3.XOR"},
            {"IADD3", "ULOP3.XOR"},
        ),
        # a loop that the lanes leave one after the other
        (
            ("mov.u32 %r1, %tid.x; ld.param.u32 %r9, [n];\nL: add.u32 %r9, %r9, 1; sub.u32 %r1, %r1, 1;"
            "setp.gt.s32 %p1, %r1, 0; @%p1 bra L; xor.b32 %r9, %r9, 5;"),
            {"UIADD3", "IADD3.NEG", "LOP3.XOR"},
            {"ULOP3.XOR"},
        ),
    ],
)  # fmt: skip
def test_what_moves(body, there, here):
    names = set(operations(body + TAIL))
    assert names >= set(there) and names.isdisjoint(here)


def test_constants_of_vector_registers_stay():
    assert "MOV" in operations(
        "mov.u32 %r9, 7;\nL: ld.param.u64 %rd2, [out]; ld.global.u32 %r1, [%rd2]; add.u32 %r9, %r9, %r1;"
        + TAIL.replace("ret", "bra L")
    )


def test_values_are_the_same():
    body = """
        mov.u32 %r1, %tid.x; ld.param.u32 %r2, [n]; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r4, %r3, %r2, 3;
        setp.ne.u32 %p1, %r2, 5; @%p1 bra OTHER;
        add.u32 %r4, %r4, 100;
    OTHER:
        setp.lt.u32 %p2, %r1, 7; @%p2 bra MEET;
        xor.b32 %r4, %r4, 21;
    MEET:
        selp.b32 %r5, %r4, %r2, %p1; sub.u32 %r5, %r5, %r3; add.u32 %r6, %r5, %r4;
        ld.param.u64 %rd1, [out]; mov.u32 %r7, %ntid.x; mad.lo.u32 %r8, %r3, %r7, %r1;
        mul.wide.u32 %rd2, %r8, 4; add.s64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r6; ret;
    """
    text = f"{HEADER}.visible .entry k(.param .u32 n, .param .u64 out)\n{{\n{REGISTERS}\n{body}\n}}\n"
    kernel = emu.load(text=text)
    assert "UIMAD" in kernel.program.micro_names
    cta, lane = np.divmod(np.arange(128, dtype=np.int64), 32)
    for n in (5, 9):
        out = np.zeros(128, np.uint32)
        emu.launch(kernel, grid=4, block=32, args=[np.uint32(n), out])
        x = cta * n + 3 + (100 if n == 5 else 0)
        x = np.where(lane < 7, x, x ^ 21)
        expected = (n if n == 5 else x) - cta + x
        assert np.array_equal(out, expected.astype(np.uint32))
