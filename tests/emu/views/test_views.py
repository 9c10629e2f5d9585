"""Golden text of the views, and the laws that hold for any result.

After a wanted change of a view: `WARPSMITH_GOLDEN=write pytest tests/emu/views`, then read the diff.
"""

import os
import re
from pathlib import Path

import pytest

from emu.result import Deadlock, Finding, Issue, Line, Numerics, Problem, Result, StuckWarp, validate
from emu.stalls import REASONS
from emu.views.deadlock import deadlock, findings
from emu.views.mix import mix
from emu.views.source import source
from emu.views.stalls import stalls
from emu.views.summary import summary
from emu.views.text import render

GOLDEN = Path(__file__).parents[2] / "golden" / "views"


@pytest.fixture
def result() -> Result:
    """A made-up run of a warp-specialised kernel; the numbers are consistent, not real."""
    return Result(
        warpsmith_version="0.1.0",
        kernel="fa3",
        machine="h200",
        mode="full",
        problem=Problem(shape={"batch": 1, "heads": 2, "seqlen": 512, "head_dim": 128}, dtype="fp16", causal=True),
        cycles=21_000,
        cycles_elapsed=24_147,
        time_us=12.2,
        clock_mhz=1980,
        tflops=88.0,
        tensor_utilization=0.62,
        pipes={"tensor": 0.71, "xu": 0.44, "fma": 0.2, "tma": 0.0},
        warp_instructions=70_000,
        instruction_mix={"producer": {"tma": 64, "alu": 936}, "softmax": {"fma": 40_000, "xu": 20_000, "alu": 9_000}},
        host_seconds=0.004,
        warp_instructions_per_second=17.5e6,
        numerics=Numerics(max_abs_error=3e-4, rel_error=2.8e-4, reference="float64", tiles_checked=8, passed=True),
        registers_per_thread=168,
        shared_bytes=200_704,
        occupancy=0.1875,
        stalls={
            "producer": {"selected": 1_000, "long_scoreboard": 18_000, "wait": 2_000},
            "softmax": {"selected": 69_000, "wait": 60_000, "barrier": 30_000, "mio_throttle": 9_000},
        },
        issue=Issue(selected=70_000, idle=14_000),
        lines=[
            Line(
                file="fa3.mptx",
                line=40,
                text="    mbarrier.wait [bold], %ph;",
                role="producer",
                warp_instructions=100,
                stalls={"selected": 100, "long_scoreboard": 18_000},
            ),
            Line(
                file="fa3.mptx",
                line=90,
                text="    ex2.approx.ftz.f32 %s{i}, %s{i};",
                role="softmax",
                warp_instructions=20_000,
                stalls={"selected": 20_000, "wait": 50_000, "mio_throttle": 9_000},
            ),
            Line(
                file="fa3.mptx",
                line=12,
                text="    mov.u32 %r0, %tid.x;",
                role="",
                warp_instructions=12,
                stalls={"selected": 12},
            ),
        ],
    )


@pytest.fixture
def stuck(result: Result) -> Result:
    warps = [
        StuckWarp(
            cta=0,
            warp=w,
            role="softmax",
            location="fa3.mptx:57:5",
            instruction="mbarrier.wait [%full], %ph;",
            waits_for="mbarrier 0x40, phase 1: 1 arrival and 16,384 bytes pending",
        )
        for w in (0, 1, 2, 3, 7)
    ]
    warps.append(
        StuckWarp(
            cta=1,
            warp=8,
            role="",
            location="fa3.mptx:31:5",
            instruction="bar.sync 1, 256;",
            waits_for="named barrier 1: 4 of 8 warps have arrived",
        )
    )
    result.deadlock = Deadlock(cycle=12_345, message="no warp can issue and nothing is in flight", warps=warps)
    return result


def check(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("WARPSMITH_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("view", [summary, stalls, mix, source], ids=lambda v: v.__name__)
def test_golden(view, result):
    assert validate(result) == []
    check(view.__name__, render(view(result)))


def test_deadlock_golden(stuck):
    check("deadlock", deadlock(stuck))


def test_no_deadlock_no_text(result):
    assert deadlock(result) == ""
    assert findings(result) == ""


def test_findings_name_place_and_rule(result):
    result.findings = [Finding(rule="smem-race", severity="error", location="k.mptx:3:1", message="two writers")]
    assert findings(result) == "k.mptx:3:1: error: two writers [smem-race]\n"


def test_failed_numerics_are_shouted(result):
    result.numerics.passed, result.numerics.failed = False, ["lse[0, 3, 17], which is 1 and not 2"]
    wanted = r" numerics +FAILED: relative error (.*\n)+ +lse\[0, 3, 17\], which is 1 and not 2"
    assert re.search(wanted, render(summary(result)))


def test_source_limit_keeps_the_costliest(result):
    text = render(source(result, limit=1))
    assert "ex2.approx" in text and "mbarrier.wait" not in text and "1 costliest" in text


def test_stall_shares_of_a_role_sum_to_one(result):
    text = render(stalls(result))
    column = [line.split() for line in text.splitlines()[3:] if line.split()[:1] and line.split()[0] in REASONS]
    assert {row[0] for row in column} == {"selected", "wait", "barrier", "long_scoreboard", "mio_throttle"}
    shares = [float(row[-2]) for row in column]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    assert column[0][0] == "selected"


def test_views_bear_an_empty_result(result):
    result.stalls, result.instruction_mix, result.lines, result.pipes = {}, {}, [], {}
    result.issue = Issue(selected=0, idle=0)
    for view in (summary, stalls, mix, source):
        render(view(result))
