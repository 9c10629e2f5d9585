"""SASS counts: opcode extraction and pipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.sass.__main__ import load, ours, theirs
from tools.sass.disassemble import ToolMissing, opcodes, sass
from tools.sass.pipes import PIPES, pipe_of

LISTING = """
        .section .text.k
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0050*/               @P1 BRA `(.L_x_1) ;
        /*0060*/              @!UP0 UIADD3 UR4, -UR5, 0x1, URZ ;
.L_x_2:
        /*0130*/                   ISETP.GE.AND P1, PT, R3, 0x5000, PT ;
        /*0138*/                   CS2R R24, SRZ ;
        /*0140*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4], R24 ;
"""
COMPOSITES = Path(__file__).parents[1] / "golden" / "composites"


def test_opcodes_are_found_under_predicates() -> None:
    assert opcodes(LISTING) == ["LDC", "BRA", "UIADD3", "ISETP.GE.AND", "CS2R.SRZ", "HGMMA.64x128x16.F32"]


def test_pipes_follow_the_first_components() -> None:
    assert pipe_of("MUFU.EX2") == "xu" and pipe_of("ISETP.GE.AND") == "alu" and pipe_of("WHATEVER") == "?"
    assert pipe_of("IMAD.MOV.U32") == "move" and pipe_of("IMAD.WIDE.U32") == "imad"
    assert pipe_of("CS2R.SRZ") == "move" and pipe_of("CS2R.32") == "none"


def test_pipes_are_the_model_s_or_have_none() -> None:
    from emu.machine import parameters

    assert set(PIPES.values()) <= set(parameters().pipes) | {"move", "control"}


@pytest.mark.parametrize(
    ("options", "pipes"),
    [
        ({}, "alu fma uniform xu tensor tma lsu"),
        ({"head_dim": 64}, "alu fma uniform xu tensor tma lsu"),
        ({"head_dim": 256}, "fma uniform xu tensor tma lsu"),
    ],
)
def test_counts_of_fa3_agree_with_ptxas(options: dict[str, int], pipes: str) -> None:
    kernel = load("fa3", {}, options)
    try:
        other, _ = theirs(kernel)
    except ToolMissing as missing:
        pytest.skip(str(missing))
    mine, _ = ours(kernel)
    for pipe in pipes.split():
        assert mine[pipe] == pytest.approx(other[pipe], rel=0.15), pipe


@pytest.mark.parametrize("name", ["k_fa2_4", "k_fa3_2_1", "k_pipe_1_6_1"])
def test_compiled_kernels_have_no_unknown_opcode(name: str) -> None:
    try:
        found = opcodes(sass((COMPOSITES / f"{name}.ptx").read_text()))
    except ToolMissing as missing:
        pytest.skip(str(missing))
    assert len(found) > 100
    assert [o for o in found if pipe_of(o) == "?"] == []
