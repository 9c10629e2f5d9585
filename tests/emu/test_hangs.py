"""Programs that hang on hardware: each report names the cause.  Texts lie beside the programs in tests/golden/hangs.

The rows of the pattern list (public bug reports, the links are in the programs) and seeded mistakes, whose
reports were written down when each led to its fix.  `python -m pytest tests/emu/test_hangs.py` with
WARPSMITH_GOLDEN=write rewrites the texts.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

import emu
from emu.result import Result
from emu.views.deadlock import deadlock, findings
from programs.tensormap import TensorMap

HANGS = Path(__file__).parents[1] / "golden" / "hangs"
PROGRAMS = sorted(p for p in HANGS.glob("*.mptx") if p.stem != "head")

# name: (rule of the first cause or fault, words of it that lead to the fix)
EXPECTED = {
    "mb01": ("MB101", ["no initialised mbarrier", "synchronise before others use it", "warp 1"]),
    "mb07": ("MB207", ["mma (warp 1)", "full", "phase bit was not flipped"]),
    "mb11": ("MB207", ["consumer (warp 1)", "full", "place in the ring"]),
    "mb13": ("MB204", ["full expects 1 arrival", "in phase 7 none came", "Exited: warp 0"]),
    "mb19": ("MB205", ["consumer (warp 1)", "phase 0 of full", "without waiting for this party"]),
    "mb21": ("MB201", ["loop (warp 0) waits for empty", "the same party would arrive"]),
    "nb01": ("NB101", ["barrier 2 waits for 96 threads, 64 have come", "count is to be 64"]),
    "nb03": ("NB102", ["writer warp 0", "barrier 4 a second time"]),
    "nb09": ("MB201", ["producer (warp 0) waits for barrier 1", "transposer (warp 1) waits for barrier 2"]),
    "rg01": ("RG101", ["warp 0: 24 a thread", "warps 1-8, 11: 168 a thread (no setmaxnreg yet)"]),
    "rg03": ("RG101", ["128 registers a thread at launch", "none of the warps that are left gives any back"]),
    "tx01": ("TX101", ["expects 8,192 bytes", "4,096 came", "4,096 are missing"]),
    "tx03": ("TX101", ["expects 16,384 bytes", "8,192 came"]),
    "tx05": ("TX102", ["expects 0 bytes", "4,096 too many"]),
    "mb15": (
        "MB106",
        ["in this phase: producer warp 0", "1 of 1 arrivals", "parity 1 of empty", "init count too small"],
    ),
    "cl03": ("CL102", ["mask 0x7", "the 2 of the cluster"]),
    "cl05": ("CL104", ["CTA 0, which has exited", "CTA 1, warp 0"]),
    "cl11": (
        "MB201",
        ["leader (warps 0-1) of CTA 0 waits for the cluster's barrier", "helper (warps 0-1) of CTA 1", "done of CTA 1"],
    ),
    "cl13": ("MB204", ["ready of CTA 1 expects 2 arrivals", "96 of 128 threads", "loader (warp 1) of CTA 1"]),
    "cl17": (
        "MB204",
        [
            "empty of CTA 0 expects 2 arrivals",
            "only 1 came: 1 of its own CTA, none of CTA 1",
            "nobody else that is left",
        ],
    ),
    "cl15": ("CL106", ["without having come to it"]),
    "seed01": ("MB204", ["empty expects 1 arrival", "none came; no instruction of the program arrives on it"]),
    "seed02": (
        "MB204",
        ["empty expects 64 arrivals", "only 2 came", "consumer warps 1-2 at head", "nobody else that is left"],
    ),
    "seed03": ("MB204", ["empty expects 2 arrivals", "only 1 came", "Exited: warp 2"]),
    "seed04": ("MB207", ["consumer (warp 1)", "full", "not flipped"]),
    "seed05": ("livelock", ["flags"]),
    "seed06": (
        "NB101",
        ["barrier 3 waits for 64 threads, 32 have come", "giver warp 0 arrived on barrier 4 instead", "bar.arrive"],
    ),
    "seed07": ("MB201", ["left (warp 0) waits for right_ready", "right (warp 1) waits for left_ready"]),
    "seed08": ("WG105", ["warp 3 of it", "barrier 0"]),
    "seed09": ("MB201", ["waits for the register pool", "producer (warps 0-3) would give registers back", "answer"]),
    "seed10": ("TX101", ["loaded + 8 expects 8,192 bytes", "4,096 came"]),
    "seed11": ("MB201", ["empty is fresh", "asks for parity 1", "producer (warp 0)", "asks for 0"]),
    "seed12": (
        "MB201",
        ["3 phases of full have completed and only 2 of empty", "never given back", "consumer (warp 1) saw it"],
    ),
    "seed13": ("MB106", ["already arrived in phase 0", "parity 1 of empty", "16 bytes pending", "was not flipped"]),
    "seed14": (
        "TX101",
        [
            "full of CTA 0 expects 4,096 bytes",
            "that leave CTA 0 out: CTA 0 warp 0",
            "[%full], 2;`, whose mask names CTA 1 only",
        ],
    ),
}


def run(path: Path) -> Result:
    kernel = emu.load(path)
    args = [TensorMap(np.zeros((32, 32), np.float32), (32, 32), 0)] if kernel.program.args else []
    grid = int(np.prod(kernel.program.cluster or 1))
    return emu.launch(kernel, grid=grid, args=args, max_cycles=100_000)


def report(result: Result) -> str:
    text = (findings(result) + deadlock(result)).replace(str(HANGS) + "/", "")
    return re.sub(r"cycle [\d,]+", "cycle N", text)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_hang_is_explained(path: Path) -> None:
    result = run(path)
    rule, words = EXPECTED[path.stem.split("_")[0]]
    text = report(result)
    golden = path.with_suffix(".txt")
    if os.environ.get("WARPSMITH_GOLDEN") == "write":
        golden.write_text(text)
    if result.deadlock is None:
        assert result.exit_code() == 6 and result.findings[0].rule == rule
    elif rule == "livelock":
        assert result.deadlock.kind == rule
    else:
        assert result.deadlock.causes[0].rule == rule, text
    missing = [word for word in words if word not in text]
    assert not missing, text
    assert text == golden.read_text()


def test_every_row_has_a_program() -> None:
    assert {path.stem.split("_")[0] for path in PROGRAMS} == set(EXPECTED)
