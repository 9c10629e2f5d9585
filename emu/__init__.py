"""warpsmith's Python API.

    import emu
    kernel = emu.load("fa3.mptx", defines={"KV_TILE": 128})
    result = emu.launch(kernel, machine="h200", grid=132, block=384, args=[...])

Names are imported when they are first used, so that the command line starts quickly.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "load": "emu.api",
    "launch": "emu.api",
    "Kernel": "emu.api",
    "AssemblyError": "isa.errors",
    "UnsupportedError": "isa.errors",
    "MachineError": "emu.machine",
    "LaunchError": "emu.memory_map",
    "Result": "emu.result",
    "Struct": "emu.memory_map",
    "TensorMap": "programs.tensormap",
    "load_machine": "emu.machine",
}
__all__ = [
    "AssemblyError",
    "Kernel",
    "LaunchError",
    "MachineError",
    "Result",
    "Struct",
    "TensorMap",
    "UnsupportedError",
    "launch",
    "load",
    "load_machine",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'emu' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
