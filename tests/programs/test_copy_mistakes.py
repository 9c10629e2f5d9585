"""Mistakes with cp.async, ldmatrix and mma.sync that people make, one at a time in fa2: each is reported and explained.

Those of order are found whatever the timing, the others by the reference, with the place of a wrong element.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import programs
from emu.machine import load_machine
from emu.result import Result
from emu.solve import solve

LOADED = "    cp.async.wait_group 0;\n    bar.sync 0;\n    copy_keys(v, V_AT, 1);               // rows behind the end become zeros\n    cp.async.commit_group;\n"
NEXT = "    cp.async.wait_group 0;\n    bar.sync 0;\n    setp.gt.s32 %more, %n, 0;\n"
UNCHECKED = (
    "                    cp.async.cg.shared.global [%copy_to + at + rows * 128 * c + 2048 * i], [%row + 128 * c], 16;\n"
)


def run(folder: Path, file: str, before: str, after: str) -> Result:
    """fa2 with one change."""
    here = Path(programs.__file__).parent
    shutil.copytree(here / "parts", folder / "parts")
    shutil.copy(here / "fa2.mptx", folder)
    text = (folder / file).read_text()
    assert text.count(before) == 1 and before != after
    (folder / file).write_text(text.replace(before, after))

    class Broken(programs.find("fa2")):  # type: ignore[misc]
        kernel_path = folder / "fa2.mptx"

    problem = Broken.from_options(seqlen=100, seqlen_k=250, heads=1, head_dim=64)
    return solve(problem, load_machine("h200", ("chip.sms=1",)))


ORDER = {
    "no wait for K": (LOADED, LOADED.replace("    cp.async.wait_group 0;\n", ""), "CA101"),
    "no wait for V": (NEXT, NEXT.replace("    cp.async.wait_group 0;\n", ""), "CA101"),
    "waits for all but one": (LOADED, LOADED.replace("wait_group 0", "wait_group 1"), "CA101"),
    "no commit": (LOADED, LOADED.replace("    cp.async.commit_group;\n", ""), "CA101"),
    "no barrier behind the wait for K": (LOADED, LOADED.replace("    bar.sync 0;\n", ""), "CA10[23]"),
    "no barrier behind the wait for V": (NEXT, NEXT.replace("    bar.sync 0;\n", ""), "CA10[23]"),
    "waits behind the barrier": (NEXT, NEXT.replace("    cp.async.wait_group 0;\n    bar.sync 0;\n", "    bar.sync 0;\n    cp.async.wait_group 0;\n"), "CA10[23]"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", ORDER)
def test_order(tmp_path: Path, mistake: str) -> None:
    """Found also where the result is right, as it is for all but two of them."""
    before, after, rule = ORDER[mistake]
    result = run(tmp_path, "fa2.mptx", before, after)
    (finding,) = result.findings
    assert re.fullmatch(rule, finding.rule) and "ldmatrix" in finding.message and "fa2_copies.mptx" in finding.message
    assert result.exit_code() == 1


def test_the_program_itself(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        "fa2.mptx",
        "cp.async.wait_group 0;\n    bar.sync 0;\n    setp",
        "cp.async.wait_all;\n    bar.sync 0;\n    setp",
    )
    assert result.exit_code() == 0


COPY = "cp.async.cg.shared.global [%copy_to + at + rows * 128 * c + 2048 * i], [%row + 128 * c], 16, %bytes;"
PLACES = {
    "chunks in order, read exchanged": ("xor.b32 %low, %low, %chunk;", "mov.b32 %low, %chunk;"),
    "V as it lies": ("ldmatrix.sync.aligned.m8n8.x4.trans", "ldmatrix.sync.aligned.m8n8.x4"),
    "half a chunk": ("selp.b32 %bytes, 16, 0, %out;", "selp.b32 %bytes, 8, 0, %out;"),
    "zeros in a row too many": ("setp.gt.s32 %out, %t, 16 * i;", "setp.gt.s32 %out, %t, 16 * i + 1;"),
}


@pytest.mark.parametrize("mistake", PLACES)
def test_places(tmp_path: Path, mistake: str) -> None:
    """Nothing is undefined, only wrong: the report names an element of o that is."""
    before, after = PLACES[mistake]
    result = run(
        tmp_path, "parts/fa2_products.mptx" if "ldmatrix" in before else "parts/fa2_copies.mptx", before, after
    )
    assert not result.findings and result.exit_code() == 1 and result.numerics is not None
    assert re.match(
        r"o has a relative error of .*; farthest off is o\[0, \d+, 0, \d+\], which is ", result.numerics.failed[0]
    )


FAULTS = {
    "shared memory at 8": (COPY, COPY.replace("%copy_to + at", "%copy_to + 8 + at"), "MEM102"),
    "global memory at 8": (COPY, COPY.replace("%row + 128", "%row + 8 + 128"), "MEM104"),
    "rows behind the end": (COPY, COPY.replace(", %bytes", ""), "MEM103"),
    "more than it copies": ("selp.b32 %bytes, 16, 0, %out;", "selp.b32 %bytes, 32, 0, %out;", "CA104"),
}


@pytest.mark.parametrize("mistake", FAULTS)
def test_faults(tmp_path: Path, mistake: str) -> None:
    before, after, rule = FAULTS[mistake]
    result = run(tmp_path, "parts/fa2_copies.mptx", before, after)
    (finding,) = result.findings
    assert finding.rule == rule and "cp.async.cg" in finding.message and "; " in finding.message
