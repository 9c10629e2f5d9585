"""The recipe for a new instruction, followed as it stands on a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"`(?P<file>(?:isa|tests)/[\w/]+\.py)`[^`]*?(?:`[^`]*`[^`]*?)*?\n   ```python\n(?P<text>.*?)   ```\n", re.DOTALL
)


def recipe() -> dict[str, str]:
    """File -> text of the two files that the recipe writes."""
    page = (ROOT / "docs" / "howto.md").read_text()
    part = page[page.index("## Add an instruction") : page.index("## Add a unit")]
    steps = re.split(r"^\d\. ", part, flags=re.MULTILINE)[1:]
    found = [BLOCK.search(step) for step in steps]
    return {match["file"]: textwrap.dedent(match["text"]) for match in found if match}


def test_an_instruction_is_one_file_and_one_test(tmp_path: Path) -> None:
    files = recipe()
    assert [Path(name).parent.as_posix() for name in files] == ["isa/ops", "tests/isa/ops"]
    for folder in ("isa", "emu", "programs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "isa" / "ops" / "video_lanes.py").unlink()  # as the page says
    (tmp_path / "tests" / "isa" / "ops").mkdir(parents=True)
    for name in ("pyproject.toml", "tests/conftest.py", "tests/isa/ops/conftest.py", "tests/isa/ops/cases.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in files.items():
        assert not (ROOT / name).exists()
        (tmp_path / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    test = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(name for name in files if name.startswith("tests/")),
    ]
    done = subprocess.run(test, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr
    explain = "from emu.cli import execute; execute(['explain', 'vabsdiff4'])"
    said = subprocess.run(
        [sys.executable, "-c", explain], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "on unsigned bytes" in said.stdout, said.stderr
