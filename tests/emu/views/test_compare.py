"""Golden text of `warpsmith compare`; WARPSMITH_GOLDEN=write rewrites it."""

import os
from pathlib import Path

from emu.compared import Bounds, Comparison, Figure, Removal, Row
from emu.views.compare import comparison
from emu.views.text import render

GOLDEN = Path(__file__).parents[2] / "golden" / "views" / "compare.txt"
SHAPE = {"seqlen": 4096, "seqlen_k": 4096, "head_dim": 128, "heads": 16, "batch": 4, "dtype": "fp16", "causal": False}


def made_up() -> Comparison:
    """Numbers that are consistent, not real."""
    fa2 = Row(
        kernel="fa2",
        machine="h200",
        shape=SHAPE,
        cycles=2_500_000,
        clock_mhz=1980,
        utilization=0.407,
        tflops=435.4,
        block=[128, 64],
        cycles_per_block=2518.0,
        bounds=Bounds(tensor=1536, exp=512, shared=1280, issue=935.4),
        waits={"mma": "wait 66 %", "softmax": "math_pipe_throttle 31 %"},
        figures=[
            Figure(text="368 TFLOP/s (H100, published)", source="a paper, figure 5"),
            Figure(text="2,770,909 cycles", source="one H200"),
        ],
    )
    fa3 = Row(kernel="fa3", machine="b200", shape=SHAPE, reason="wgmma exists on sm_90a only")
    long = Row(kernel="fa2", machine="a100", shape=SHAPE | {"seqlen": 16384, "causal": True}, reason="[brackets] stay")
    removals = [
        Removal(removed="nothing", settings=[], cycles=2_500_000, gain=1.0, utilization=0.407),
        Removal(
            removed="softmax",
            settings=["unit.sfu.lanes=128", "unit.alu.lanes=128"],
            cycles=2_000_000,
            gain=1.25,
            utilization=0.509,
        ),
    ]
    return Comparison(rows=[fa2, fa3, long], losses_of="fa2 on h200", losses=removals)


def test_golden_text() -> None:
    text = "\n".join(render(view, width=140) for view in comparison(made_up()))
    if os.environ.get("WARPSMITH_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_nothing_but_losses_has_no_other_table() -> None:
    only = Comparison(rows=[], losses_of="fa2 on h200", losses=made_up().losses)
    assert len(list(comparison(only))) == 1
