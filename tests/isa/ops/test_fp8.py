"""fp8 conversions: recorded silicon, and every byte there and back."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lanes import run_ptx
from tests.isa.ops import recorded
from tests.isa.ops.cases import same


@pytest.mark.parametrize("name", recorded.names("packed_half", "cvt_"))
def test_recorded_fp8_from_halves(name: str) -> None:
    _, target, source = name.split("_")
    recorded.replay("packed_half", name, f"cvt.rn.satfinite.{target}.{source} %d, %a;", "b16")


def test_fp8_round_trip_through_f16() -> None:
    every = (np.arange(256, dtype=np.uint16) * np.uint16(257)).astype(np.uint16)
    for type, nan, inf in (("e4m3x2", 0x7F, 0x7F), ("e5m2x2", 0x7D, 0x7C)):
        line = f"cvt.rn.f16x2.{type} %x, %a; cvt.rn.satfinite.{type}.f16x2 %d, %x;"
        got = run_ptx(line, a=every, x="b32", d="b16")["d"] & 0xFF
        size = every & 0x7F
        expected = np.where(size >= nan, 0x7F, np.where(size == inf, (every & 0x80) | 0x7B, every & 0xFF))
        same(got, expected, every)
