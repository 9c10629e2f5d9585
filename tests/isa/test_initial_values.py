"""Initial values of variables: constants and addresses, in emulated memory and through ptxas."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from isa.assembler import assemble
from isa.errors import AssemblyError
from isa.expand import expand
from isa.ptx import to_ptx

TEXT = """.version 8.6
.target sm_90a
.address_size 64
.global .align 8 .b8 data[16] = {{1, 2, 3, 4, 5, 6, 7, 8}};
.const .align 4 .f32 scale = 0f40000000;
{variables}
.visible .entry k(.param .u64 y) {{
    .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .f32 %f<3>;
    ld.param.u64 %d1, [y];
    {body}
    ret;
}}
"""


def test_addresses(ptxas) -> None:
    body = """mov.u64 %d2, table+8; ld.global.u64 %d3, [%d2]; ld.global.u32 %r1, [%d3]; st.global.u32 [%d1], %r1;
        ld.global.u64 %d3, [table]; ld.u8 %r1, [%d3+15]; st.global.u32 [%d1+4], %r1;
        ld.const.f32 %f1, [scale]; st.global.f32 [%d1+8], %f1; mov.u32 %r2, WARP_SZ; st.global.u32 [%d1+12], %r2;"""
    text = TEXT.format(variables=".global .align 8 .u64 table[3] = {data, generic(data)+4, data+8};", body=body)
    y = np.zeros(4, np.uint32)
    assert not emu.launch(emu.load(text=text), machine="h200", grid=1, block=32, args=[y]).findings
    assert [hex(x) for x in y] == ["0x8070605", "0x0", "0x40000000", "0x20"]
    for source in (text, to_ptx(expand(text, "a.ptx", {}, ()))):
        accepted, messages = ptxas(source, "sm_90a")
        assert accepted, messages


@pytest.mark.parametrize(
    "variables", [".global .u64 p = later; .global .u32 later;", ".global .u32 p = data;", ".global .u64 p = nothing;"]
)
def test_addresses_that_cannot_be(variables) -> None:
    with pytest.raises(AssemblyError, match="'p' cannot hold the address"):
        assemble(text=TEXT.format(variables=variables, body=""))
