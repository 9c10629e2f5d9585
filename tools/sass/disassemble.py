"""ptxas and nvdisasm: PTX text to SASS opcodes."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

_LINE = re.compile(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)(?: R\d+, (SRZ))?")
_TOOLKIT = "/usr/local/cuda/bin"


class ToolMissing(Exception):
    """ptxas or nvdisasm is not installed; the text says which wheel has it."""


def find(tool: str) -> str:
    """A CUDA binary: on PATH, in the usual toolkit folder, or in an `nvidia-cuda-*` wheel."""
    if place := shutil.which(tool) or shutil.which(tool, path=_TOOLKIT):
        return place
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec and spec.submodule_search_locations) or ():
        for program in sorted(Path(folder).glob(f"*/bin/{tool}")):
            program.chmod(program.stat().st_mode | 0o111)  # wheels may lose the mode
            return str(program)
    wheel = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}[tool]
    raise ToolMissing(f"{tool} not found: put it on PATH or install {wheel}")


def sass(text: str, arch: str = "sm_90a") -> str:
    """The disassembly of PTX text.  Raises ToolMissing, or RuntimeError with ptxas's messages."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(text)
        command = [find("ptxas"), f"-arch={arch}", "-o", str(cubin), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"ptxas: {done.stderr or done.stdout}")
        done = subprocess.run([find("nvdisasm"), "-c", str(cubin)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"nvdisasm: {done.stderr}")
        return done.stdout


def opcodes(disassembly: str) -> list[str]:
    """Every opcode with its modifiers, in order; CS2R of zeros as CS2R.SRZ."""
    return [
        ".".join(filter(None, match.groups())) for line in disassembly.splitlines() if (match := _LINE.search(line))
    ]
