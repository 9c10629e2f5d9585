"""A folder of compiled kernels: `manifest.json`, the PTX files, and `corpus_ref.py` with the rules of its inputs.

`corpus_ref.py` gives `make(dtype, shape, init)` and `expected(entry, launch, arrays)`; the manifest's expressions are
Python in its namespace, so a folder is as trusted as a program.
"""

from __future__ import annotations

import csv
import fnmatch
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

MANIFEST, RULES = "manifest.json", "corpus_ref.py"


class Param(msgspec.Struct):
    """One entry of a launch's parameters, in the order of the kernel's.

    `kind`: `ptr` a global buffer; `buffer` one that takes no parameter; `scalar`; `scratch` a pointer to
    `bytes_per_cta` times the grid (0: null); `tensormap` a map by value over a row-major buffer, `box` outermost first,
    followed by the scalars of `expands_to`; `bytes` a by-value struct of `fields`.
    """

    name: str
    kind: str
    dtype: str = ""
    shape: list[int] = []
    init: dict[str, Any] = {}
    role: str = ""
    value: float | int = 0
    bytes_per_cta: int = 0
    box: list[int] = []
    strides: list[int] = []
    swizzle: str = "none"
    expands_to: list[str] = []
    fields: list[tuple[str, int | float | str]] = []


class Launch(msgspec.Struct):
    """Grid in CTAs, block in threads, and the parameters; `check_slice` names what part of an output is written."""

    grid: list[int]
    block: list[int]
    params: list[Param]
    dims: dict[str, int] = {}
    check_slice: dict[str, str] = {}


class Check(msgspec.Struct):
    """An output passes when |got - expected| <= atol + rtol |expected| everywhere."""

    output: str
    expr: str
    rtol: float
    atol: float
    atol_full: float | None = None


class Entry(msgspec.Struct):
    """One compiled kernel."""

    name: str
    file: str
    target: str
    entry: str
    launches: dict[str, Launch]
    check: list[Check]
    cluster: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared_bytes: int = 0


class Manifest(msgspec.Struct):
    """The whole file."""

    kernels: list[Entry]


@dataclass(frozen=True)
class Corpus:
    """A loaded folder."""

    folder: Path
    entries: list[Entry]
    rules: Any  # the module corpus_ref.py

    def path(self, entry: Entry) -> Path:
        """The PTX file of a kernel."""
        return self.folder / entry.file

    def pick(self, only: str = "", targets: tuple[str, ...] = ()) -> Iterator[Entry]:
        """Entries of some targets (default: all) whose file name matches a pattern or contains the text."""
        for entry in self.entries:
            named = only in entry.file or fnmatch.fnmatch(entry.file, only)
            if named and (not targets or entry.target in targets):
                yield entry


def load(folder: Path) -> Corpus:
    """Read a folder; FileNotFoundError or msgspec.ValidationError say what is wrong with it."""
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    spec = importlib.util.spec_from_file_location("corpus_ref", folder / RULES)
    assert spec and spec.loader
    rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    return Corpus(folder, manifest.kernels, rules)


@dataclass(frozen=True)
class Recorded:
    """One launch on the card: the most active cycles of any SM, and warp instructions executed."""

    cycles: int
    warp_instructions: int


def recorded(file: Path) -> dict[tuple[str, str], Recorded]:
    """(kernel, launch) -> what Nsight Compute counted; empty when there is no such file."""
    if not file.is_file():
        return {}
    with file.open() as source:
        return {
            (row["kernel"], row["launch"]): Recorded(int(row["sm_cycles_active_max"]), int(row["inst_executed"]))
            for row in csv.DictReader(source)
            if row["sm_cycles_active_max"]
        }
