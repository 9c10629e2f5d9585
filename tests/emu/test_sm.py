"""Residency: how many CTAs an SM takes, and what stays of a finished one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emu.sm import aligned, entry_registers, occupancy, shared_window


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "ctas"),
    [
        (1024, 32, 0, 2), (1024, 64, 0, 1), (256, 32, 0, 8), (256, 128, 0, 2), (128, 32, 0, 16), (32, 16, 0, 16), (64, 24, 0, 16),
        (384, 168, 200_000, 1), (128, 32, 100_000, 2), (128, 32, 30_000, 7), (160, 32, 0, 8),
    ],
)  # fmt: skip
def test_occupancy(ptx: Any, threads: int, registers: int, shared: int, ctas: int) -> None:
    """64 warps, 65 536 registers and 228 KB an SM (CUDA programming guide); CTAs take whole warpgroups of slots."""
    program = ptx.assemble("", directives=f".maxnreg {registers}").program
    machine = ptx.machine()
    assert occupancy(program, machine, threads, shared_window(program, machine, shared)) == ctas


def test_registers_come_in_units(ptx: Any) -> None:
    assert entry_registers(ptx.assemble("", directives=".maxnreg 33").program, ptx.machine()) == 40
    for block, count in (
        (256, 256),
        (512, 128),
        (1024, 64),
    ):  # what a block leaves of the file: the rest would be spilled
        program = replace(ptx.assemble("", directives=f".reqntid {block}").program, registers=300)
        assert entry_registers(program, ptx.machine()) == count and occupancy(program, ptx.machine(), block, 1024) == 1


def test_shared_window_covers_the_systems_part(ptx: Any) -> None:
    program = ptx.assemble("", shared=".shared .align 16 .b8 a[1000];").program
    assert shared_window(program, ptx.machine(), 0) == 2048 and shared_window(program, ptx.machine(), 1048) == 3072


@pytest.mark.parametrize("boundary", [64, 128, 1024])
def test_aligned(boundary: int) -> None:
    arrays = [aligned(n, np.uint32, boundary) for n in range(1, 20)]
    assert all(a.ctypes.data % boundary == 0 and not a.any() for a in arrays)


def test_state_stays_for_a_look(ptx: Any) -> None:
    sm = ptx.step(
        ptx.assemble("mov.u32 %r1, cell; mov.u32 %r2, 77; st.shared.u32 [%r1], %r2;", shared=".shared .b32 cell;"),
        [],
        32,
    )
    assert sm.shared[1024:1028].view(np.uint32)[0] == 77 and sm.sm["live_warps"][0] == 0
    assert not hasattr(sm.shed(), "shared")
