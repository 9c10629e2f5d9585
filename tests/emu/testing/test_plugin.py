"""The pytest plugin and the page about it: its example is run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.chaos import Chaos
from emu.testing import Snippets
from emu.views.deadlock import deadlock
from isa.expand import expand
from isa.ptx import to_ptx

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "testing.md").read_text()
KINDS = ("ptx", "python", "text")
CODE = dict(zip(KINDS, (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in KINDS), strict=True))


def pytest_run(folder: Path, *options: str) -> tuple[int, str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "emu.testing.plugin",
        "-p",
        "no:cacheprovider",
        *options,
        str(folder),
    ]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    return run.returncode, run.stdout + run.stderr


def test_the_page_s_examples_run(tmp_path: Path) -> None:
    (tmp_path / "ring.mptx").write_text(CODE["ptx"][0])
    (tmp_path / "test_ring.py").write_text(CODE["python"][0])
    (tmp_path / "test_programs.py").write_text(CODE["python"][1])
    code, text = pytest_run(tmp_path)
    assert code == 0 and "4 passed" in text, text


def test_ptxas_takes_the_page_s_ring(ptxas: Any) -> None:
    """And so no register hides a special register that is read."""
    text = to_ptx(expand(CODE["ptx"][0], "ring.mptx"))
    accepted, said = ptxas(text, "sm_90a")
    assert accepted, said


def test_assert_unchanged_needs_the_result(warpsmith: Any) -> None:
    with pytest.raises(TypeError, match=r"run\(chaos\) must return the Result of the launch, not None"):
        warpsmith.assert_unchanged(lambda chaos: None, seeds=1)


def test_the_mistake_that_the_page_describes(tmp_path: Path) -> None:
    """Its report is the one of the page, but for cycles."""
    (tmp_path / "ring.mptx").write_text(CODE["ptx"][0].replace("    @%p xor.b32 %phase, %phase, 1;\n", ""))
    x, y = np.arange(1, 6, dtype=np.uint32), np.zeros(5, np.uint32)
    result = Snippets("h200", folder=tmp_path).run("ring.mptx", x, y, 5, chaos=3)
    masked = [
        re.sub(r"cycle [\d,]+", "cycle N", text).replace(f"{tmp_path}/", "")
        for text in (deadlock(result), *CODE["text"])
    ]
    missing = [line for line in masked[1].splitlines() if line not in masked[0]]
    assert not missing, masked[0]


def test_importing_the_plugin_is_cheap() -> None:
    """pytest imports it in every run: neither Numba nor the machine comes with it."""
    code = "import sys, emu.testing.plugin, emu.testing; sys.exit(any(m in sys.modules for m in ('numba', 'numpy', 'emu.sm', 'hypothesis')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.warpsmith(machine="h100", set=["chip.sms=3"])
def test_the_marker_chooses_the_machine(warpsmith: Any) -> None:
    assert warpsmith.machine.name == "h100" and warpsmith.machine.value("chip.sms") == 3


def test_without_a_marker_it_is_an_h200(warpsmith: Any) -> None:
    assert warpsmith.machine.name == "h200"


def test_a_body_with_parameters_runs(warpsmith: Any) -> None:
    out = np.zeros(32, np.uint32)
    body = "mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, 4; add.u64 %d0, %out, %d0; add.u32 %r0, %r0, %n; st.global.u32 [%d0], %r0;"
    result = warpsmith.run(body, out, 5, params="u64 out, u32 n")
    warpsmith.assert_clean(result)
    warpsmith.assert_cycles(result, at_least=10, at_most=5000)
    assert out.tolist() == list(range(5, 37))
    with pytest.raises(AssertionError, match="at most 10 were expected"):
        warpsmith.assert_cycles(result, at_most=10)


def test_assert_clean_shows_the_report(warpsmith: Any) -> None:
    hang = "mbarrier.init.shared.b64 [bar], 1; mbarrier.wait [bar], 0;"
    with pytest.raises(AssertionError, match="MB204: bar expects 1 arrival"):
        warpsmith.assert_clean(warpsmith.run(hang, shared=".shared .align 8 .b64 bar;", block=1))
    with pytest.raises(AssertionError, match="executed trap"):
        warpsmith.assert_clean(warpsmith.run("trap;"))


def test_assert_unchanged_names_the_perturbation() -> None:
    snippets = Snippets("h200", ["chip.sms=1"])
    order = """mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; setp.eq.u32 %p0, %r1, 0; @%p0 nanosleep.u32 100; and.b32 %r2, %r0, 31;
        setp.eq.u32 %p1, %r2, 0; bar.warp.sync -1; @%p1 st.global.u32 [%out], %r1;"""

    def run(chaos: Chaos | None) -> Any:
        return snippets.run(order, np.zeros(1, np.uint32), params="u64 out", block=64, chaos=chaos)

    with pytest.raises(AssertionError, match="out changed; 1 perturbation shows it"):
        snippets.assert_unchanged(run, 200)
    snippets.assert_unchanged(lambda chaos: snippets.run("nop_free: mov.u32 %r0, 1;", chaos=chaos), [1, 2])
