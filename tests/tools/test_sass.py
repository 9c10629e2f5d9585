"""SASS counts: opcode extraction and pipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.sass.disassemble import ToolMissing, opcodes, sass
from tools.sass.pipes import PIPES, pipe_of

LISTING = """
        .section .text.k
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/              @!UP0 UIADD3 UR4, -UR5, 0x1, URZ ;
.L_x_2:
        /*0130*/                   ISETP.GE.AND P1, PT, R3, 0x5000, PT ;
        /*0140*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4], R24 ;
"""
COMPOSITES = Path(__file__).parents[1] / "golden" / "composites"


def test_opcodes_are_found_under_predicates() -> None:
    assert opcodes(LISTING) == ["LDC", "BRA", "UIADD3", "ISETP.GE.AND", "HGMMA.64x128x16.F32"]


def test_pipes_follow_the_first_component() -> None:
    assert pipe_of("MUFU.EX2") == "xu" and pipe_of("ISETP.GE.AND") == "alu" and pipe_of("WHATEVER") == "?"


def test_pipes_are_the_model_s_or_have_none() -> None:
    from emu.machine import parameters

    assert set(PIPES.values()) <= set(parameters().pipes) | {"uniform", "control"}


@pytest.mark.parametrize("name", ["k_fa2_4", "k_fa3_2_1", "k_pipe_1_6_1"])
def test_compiled_kernels_have_no_unknown_opcode(name: str) -> None:
    try:
        found = opcodes(sass((COMPOSITES / f"{name}.ptx").read_text()))
    except ToolMissing as missing:
        pytest.skip(str(missing))
    assert len(found) > 100
    assert [o for o in found if pipe_of(o) == "?"] == []
