"""Fixtures that several test folders share."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest


def find_ptxas() -> str | None:
    """`$PTXAS`, the one on the path, or the one that the package nvidia-cuda-nvcc brings."""
    packaged = sorted(Path(sysconfig.get_path("purelib"), "nvidia").glob("*/bin/ptxas"))
    return os.environ.get("PTXAS") or shutil.which("ptxas") or (str(packaged[0]) if packaged else None)


@pytest.fixture(scope="session")
def ptxas(tmp_path_factory):
    """A function (PTX text, target="sm_90a") -> what NVIDIA's assembler complains about, '' when it accepts.

    Skips the test only where no ptxas is installed.
    """
    program = find_ptxas()
    if program is None:
        pytest.skip("no ptxas found: install the extra 'ptxas' or set PTXAS")
    source = tmp_path_factory.mktemp("ptxas") / "test.ptx"

    def run(text: str, target: str = "sm_90a") -> str:
        source.write_text(text)
        command = [program, f"-arch={target}", "-o", os.devnull, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return "" if done.returncode == 0 else done.stderr + done.stdout or f"exit code {done.returncode}"

    return run
