"""What is mutated: the shipped programs on small problems, and kernels of a corpus folder, with arguments to run them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import programs
from emu.memory_map import Struct
from isa.expand import expand
from isa.ptx import to_ptx
from programs.tensormap import TensorMap
from tools.corpus.launch import arguments, buffers
from tools.corpus.manifest import Corpus, Entry, load
from tools.fuzz.mutate import Source

PROGRAMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fa3": ({"KV_TILE": 48}, {"seqlen": 130, "seqlen_k": 100, "heads": 1}),
    "gemm": ({"TILE_N": 64, "STAGES": 2}, {"m": 130, "n": 72, "k": 72}),
    "softmax": ({}, {"rows": 5, "cols": 132}),
    "vector_add": ({}, {"n": 300}),
}
SCALARS = (0, 1, 2, 3, 31, 128, 1 << 20, 2**31 - 1, -1)


@dataclass(frozen=True)
class Start:
    """A launch: extents, arguments, bytes of dynamic shared memory."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: list[Any]
    shared_bytes: int


@dataclass(frozen=True)
class Subject:
    """A program to mutate, its name, and how to launch it."""

    name: str
    read: Callable[[], str]
    begin: Callable[[], Start]

    @cached_property
    def source(self) -> Source:
        """The printed text, one statement a line."""
        return Source(to_ptx(expand(self.read(), self.name), comments=False))


def shipped() -> list[Subject]:
    """The programs of this project."""
    return [_shipped(name) for name in PROGRAMS]


def _shipped(name: str) -> Subject:
    defines, options = PROGRAMS[name]
    problem = programs.find(name).from_options(defines, **options)
    path = Path(problem.kernel_path)

    def begin() -> Start:
        launch = problem.launch(problem.make_inputs(0), 1)
        return Start(launch.grid, launch.block, list(launch.args), launch.shared_bytes)

    return Subject(name, lambda: to_ptx(expand(path.read_text(), str(path), problem.defines, (path.parent,))), begin)


def corpus(folder: Path, most: int) -> list[Subject]:
    """The kernels of a corpus folder for machines that there are, of files up to `most` bytes."""
    found = load(folder)
    entries = found.pick(targets=("sm_90a", "sm_80"))
    return [_entry(found, entry) for entry in entries if found.path(entry).stat().st_size <= most]


def _entry(found: Corpus, entry: Entry) -> Subject:
    plan = entry.launches["one"]

    def begin() -> Start:
        args = arguments(plan, buffers(found, plan))
        return Start(tuple(plan.grid), tuple(plan.block), args, entry.dynamic_shared_bytes)

    return Subject(entry.file.removesuffix(".ptx"), found.path(entry).read_text, begin)


def disturbed(start: Start, rng: random.Random) -> Start:
    """The launch with, now and then, random bits in an array, another scalar, another shape."""
    args = [_other(arg, rng) for arg in start.args]
    grid, block, shared = start.grid, start.block, start.shared_bytes
    if rng.random() < 0.05:
        grid = (rng.choice((1, 2, 3)),)
    if rng.random() < 0.05:
        block = (rng.choice((1, 31, 32, 64, 96, 128, 256, 384)),)
    if rng.random() < 0.05:
        shared = rng.choice((0, 16, shared // 2, shared + 1024))
    return Start(grid, block, args, shared)


def _other(arg: Any, rng: random.Random) -> Any:
    if isinstance(arg, np.ndarray):
        if rng.random() < 0.1:
            noise = np.frombuffer(rng.randbytes(arg.nbytes), arg.dtype)
            return noise.reshape(arg.shape).copy()
        return arg
    if isinstance(arg, int | float | np.generic):
        return (
            type(arg)(rng.choice(SCALARS)) if rng.random() < 0.05 and not isinstance(arg, np.unsignedinteger) else arg
        )
    return arg


def mapped(arg: Any, copy: Callable[[np.ndarray], np.ndarray]) -> Any:
    """An argument with `copy` of every array in it."""
    if isinstance(arg, np.ndarray):
        return copy(arg)
    if isinstance(arg, TensorMap):
        return replace(arg, array=copy(arg.array))
    return Struct(*(mapped(field, copy) for field in arg.fields)) if isinstance(arg, Struct) else arg
