"""alloca, stacksave, stackrestore: values on the machine (PTX ISA 9.7.16); isspacep of constants."""

from __future__ import annotations

import numpy as np
import pytest

from isa.errors import AssemblyError

FUNCTION = """
.func (.param .b64 y) sum(.param .b32 n)
{
    .reg .b64 %q<9>; .reg .b32 %k, %n; .reg .pred %p;
    ld.param.u32 %n, [n];
    mul.wide.u32 %q0, %n, 4;
    alloca.u64 %q1, %q0, 16;
    mov.u32 %k, 0;
AGAIN:
    mul.wide.u32 %q2, %k, 4;
    add.u64 %q2, %q1, %q2;
    st.local.u32 [%q2], %k;
    add.u32 %k, %k, 1;
    setp.lt.u32 %p, %k, %n;
    @%p bra AGAIN;
    ld.local.u32 %k, [%q2];
    cvt.u64.u32 %q3, %k;
    shl.b64 %q4, %q1, 32;
    or.b64 %q3, %q3, %q4;
    st.param.b64 [y], %q3;
    ret;
}
"""


def test_memory_of_calls_is_given_back(ptx) -> None:
    """Each of many calls gets the same place, behind the variables; the last word written is read back."""
    body = """
    .local .align 8 .b8 mine[24];
    .param .b32 given; .param .b64 got;
    mov.u32 %r1, 0;
LOOP:
    st.param.b32 [given], 60;
    call.uni (got), sum, (given);
    ld.param.b64 %d1, [got];
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 20;
    @%p1 bra LOOP;
    st.global.u64 [%out], %d1;"""
    out = np.zeros(1, np.uint64)
    result = ptx.run(body, "u64 out", [out], outside=FUNCTION)
    assert not result.findings, result.findings
    assert int(out[0]) == 32 << 32 | 59


def test_save_and_restore(ptx) -> None:
    body = """
    alloca.u64 %d1, 100;
    stacksave.u64 %d2;
    alloca.u64 %d3, 8, 64;
    stackrestore.u64 %d2;
    alloca.u64 %d4, 8, 64;
    cvta.local.u64 %d5, %d4;
    st.u64 [%d5], 77;
    ld.local.u64 %d6, [%d3];
    st.global.u64 [%out], %d1; st.global.u64 [%out+8], %d3; st.global.u64 [%out+16], %d4; st.global.u64 [%out+24], %d6;"""
    out = np.zeros(4, np.uint64)
    assert not ptx.run(body, "u64 out", [out]).findings
    assert out.tolist() == [0, 128, 128, 77]


def test_blocks_follow_one_another(ptx) -> None:
    body = " ".join(f"alloca.u64 %d{n}, 20; st.global.u64 [%out+{8 * n}], %d{n};" for n in range(4))
    out = np.zeros(4, np.uint64)
    assert not ptx.run(body, "u64 out", [out]).findings
    assert out.tolist() == [0, 24, 48, 72]


def test_addresses_of_32_bits(ptx) -> None:
    """The .u32 forms: their registers hold the same addresses."""
    body = """
    alloca.u32 %r1, 100;
    stacksave.u32 %r2;
    alloca.u32 %r3, 8, 64;
    stackrestore.u32 %r2;
    alloca.u32 %r4, 8;
    st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};"""
    out = np.zeros(4, np.uint32)
    assert not ptx.run(body, "u64 out", [out]).findings
    assert out.tolist() == [0, 100, 128, 104]


def test_too_much_is_out_of_bounds(ptx) -> None:
    body = "alloca.u64 %d1, 1016; alloca.u64 %d2, 16; st.local.u32 [%d1+1012], 1; st.local.u32 [%d2+8], 2;"
    result = ptx.run(body)
    assert result.exit_code() == 6 and "local" in result.findings[0].message


@pytest.mark.parametrize("size", [1 << 32, (1 << 64) - 8, 10**12, 600_000])
def test_nothing_aliases_behind_the_stack(ptx, size: int) -> None:
    """However much one asks for, the next block is not the same one again."""
    body = (
        f"mov.u64 %d5, {size}; alloca.u64 %d1, %d5; alloca.u64 %d2, %d5; st.local.u32 [%d1], 1; st.local.u32 [%d2], 2;"
    )
    result = ptx.run(body)
    assert result.exit_code() == 6 and "local" in result.findings[0].message


@pytest.mark.parametrize(("align", "at"), [(1, 8), (8, 8), (16, 16), (1 << 23, 1 << 23)])
def test_alignments(ptx, align: int, at: int) -> None:
    """The second block begins at a multiple of the alignment, of 8 at least; the largest one there is, too, which no stack has room for."""
    out = np.zeros(1, np.uint64)
    body = f"alloca.u64 %d1, 1; alloca.u64 %d2, 0, {align}; st.global.u64 [%out], %d2;"
    assert not ptx.run(body, "u64 out", [out]).findings
    assert int(out[0]) == at


@pytest.mark.parametrize("align", [0, 3, 1 << 24])
def test_alignment_is_a_power_of_two(ptx, align: int) -> None:
    with pytest.raises(AssemblyError, match="power of two"):
        ptx.run(f"alloca.u64 %d1, 8, {align};")


def test_constant_variables_are_known(ptx):
    """isspacep.const holds in variables of .const only, .global everywhere but there; as recorded on an H200."""
    places = [("one", -1), ("one", 0), ("one", 63), ("one", 64), ("two", 7), ("other", 0)]
    lines = []
    for k, (name, offset) in enumerate(places):
        lines.append(f"mov.b64 %d1, {name}; add.s64 %d1, %d1, {offset};")
        for bit, query in enumerate(("isspacep.const", "isspacep.global", "istypep.surfref")):
            lines.append(f"{query} %p1, %d1; selp.u32 %r1, {1 << bit}, 0, %p1; red.global.or.b32 [%out+{4 * k}], %r1;")
    out = np.zeros(6, np.uint32)
    outside = ".const .align 16 .b8 one[64]; .global .align 16 .b8 other[16]; .const .align 8 .b8 two[8];"
    assert not ptx.run("\n".join(lines), "u64 out", [out], outside=outside).findings
    assert out.tolist() == [2, 1, 1, 2, 1, 2]
