"""Fixtures that every test may use."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


def find_ptxas() -> str | None:
    """`ptxas` on the PATH, or in the nvidia-cuda-nvcc wheel of the running environment."""
    if on_path := shutil.which("ptxas"):
        return on_path
    spec = importlib.util.find_spec("nvidia")
    for place in (spec and spec.submodule_search_locations) or ():
        for program in sorted(Path(place).glob("*/bin/ptxas")):
            return str(program)
    return None


@pytest.fixture(scope="session")
def ptxas(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[bool, str]]:
    """`assemble(text, arch, *flags) -> (accepted, messages)`: NVIDIA's assembler on PTX text."""
    program = find_ptxas()
    if program is None:
        pytest.skip("no ptxas: install nvidia-cuda-nvcc")
    source = tmp_path_factory.mktemp("ptxas") / "kernel.ptx"

    def assemble(text: str, arch: str, *flags: str) -> tuple[bool, str]:
        source.write_text(text)
        command = [program, *flags, f"-arch={arch}", "-o", str(source.with_suffix(".cubin")), str(source)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return result.returncode == 0, result.stdout + result.stderr

    return assemble
