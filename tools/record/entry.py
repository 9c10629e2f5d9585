"""Reads what a launch needs out of PTX text: kernel names, parameters, required block sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*\(([^)]*)\)([^{]*)\{", re.DOTALL)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?(\.\w+)((?:\s+\.\w+)*(?:\s+\.align\s+\d+)?)?\s+([\w$%]+)(?:\[(\d+)\])?"
)
_REQNTID = re.compile(r"\.reqntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")

SCALARS = {
    ".u8": np.uint8, ".s8": np.int8, ".b8": np.uint8, ".u16": np.uint16, ".s16": np.int16, ".b16": np.uint16,
    ".u32": np.uint32, ".s32": np.int32, ".b32": np.uint32, ".u64": np.uint64, ".s64": np.int64, ".b64": np.uint64,
    ".f16": np.float16, ".f32": np.float32, ".f64": np.float64,
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter: PTX type, and its size in bytes."""

    name: str
    type: str
    size: int


@dataclass(frozen=True)
class Entry:
    """One kernel of a PTX text; `block` is its `.reqntid`, or None."""

    name: str
    parameters: tuple[Parameter, ...]
    block: tuple[int, int, int] | None


def entries(text: str) -> list[Entry]:
    """Every `.entry` of the PTX text, in order."""
    text = re.sub(r"//[^\n]*", "", text)
    found = []
    for match in _ENTRY.finditer(text):
        parameters = []
        for type_, _, name, count in _PARAM.findall(match.group(2)):
            size = np.dtype(SCALARS[type_]).itemsize * int(count or 1)
            parameters.append(Parameter(name, type_, size))
        need = _REQNTID.search(match.group(3))
        block = (int(need[1]), int(need[2] or 1), int(need[3] or 1)) if need else None
        found.append(Entry(match.group(1), tuple(parameters), block))
    return found


def scalar_bytes(parameter: Parameter, value: object) -> bytes:
    """The bytes of a scalar argument; NumPy scalars keep their own type if the size agrees."""
    if isinstance(value, np.generic):
        raw = value.tobytes()
    else:
        raw = np.asarray(value, dtype=SCALARS[parameter.type]).tobytes()
    if len(raw) != parameter.size:
        raise ValueError(f"parameter {parameter.name} takes {parameter.size} bytes, the argument has {len(raw)}")
    return raw
