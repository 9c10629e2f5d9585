"""Conversions without rounding to integers: recorded silicon, ml_dtypes, and Python's integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from emu.lanes import run_ptx
from isa.bits import clamp, signed
from isa.ops.convert import INTEGERS
from tests.isa.ops import recorded
from tests.isa.ops.cases import longs, same, shorts, words

NARROW = [
    n for n in recorded.names("scalar_f32", "cvt_") if n.split("_")[-1].startswith(("f16", "bf16", "tf32", "e4", "e5"))
]


@pytest.mark.parametrize("name", NARROW)
def test_recorded_from_f32(name: str) -> None:
    mods = name.split("_")[1:]
    pair = mods[-1].endswith("x2")
    if mods[-1].startswith("e"):
        mods = ["rn", "satfinite", *mods]
    line = f"cvt.{'.'.join(mods)}.f32 %d, %a{', %b' if pair else ''};"
    recorded.replay("scalar_f32", name, line, "b16" if mods[-1] in ("f16", "bf16", "e4m3x2", "e5m2x2") else "b32")


@pytest.mark.parametrize("name", ["cvt_f16x2_e4m3x2", "cvt_f16x2_e5m2x2", "cvt_f32_f16", "cvt_f32_bf16"])
def test_recorded_widening(name: str) -> None:
    stored = recorded.arrays("unary_half")
    mods = name.split("_")[1:]
    opcode = "cvt.rn." if mods[0] == "f16x2" else "cvt."
    got = run_ptx(f"{opcode}{'.'.join(mods)} %d, %a;", a=stored[f"{name}.in"], d="b32")["d"]
    same(got, stored[name], stored[f"{name}.in"])


def test_halves_round_trip_through_f32() -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    for type, kind in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        line = f"cvt.f32.{type} %x, %a; cvt.rn.{type}.f32 %d, %x;"
        got = run_ptx(line, a=every, x="f32", d="b16")["d"] & 0xFFFF
        nan = np.isnan(every.view(kind).astype(np.float32))
        same(got, np.where(nan, 0x7FFF, every), every)


MAKE = {8: words, 16: shorts, 32: words, 64: longs}


def number(x: int, type: str) -> int:
    width = int(type[1:])
    return signed(x, width) if type[0] == "s" else x & ((1 << width) - 1)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", INTEGERS)
def test_integers(target: str, source: str) -> None:
    width = int(target[1:])
    a = MAKE[int(source[1:])](60, 512)
    register = max(width, 32)
    wrap = (1 << register) - 1
    got = run_ptx(f"cvt.{target}.{source} %d, %a;", a=a, d=f"b{register}")["d"]
    expected = [number(number(int(x), source), target) & wrap for x in a]
    same(got, np.array(expected, np.uint64), a)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if target[0] == "s" else (0, (1 << width) - 1)
    have = int(source[1:])
    if (source[0] == "s" and -(1 << have - 1) < low) or (1 << have - (source[0] == "s")) - 1 > high:
        got = run_ptx(f"cvt.sat.{target}.{source} %d, %a;", a=a, d=f"b{register}")["d"]
        same(got, np.array([clamp(number(int(x), source), low, high) & wrap for x in a], np.uint64), a)


def test_f32_to_itself() -> None:
    a = words(61)
    same(
        run_ptx("cvt.sat.f32.f32 %d, %a;", a=a, d="f32")["d"],
        run_ptx("add.sat.f32 %d, %a, 0f80000000;", a=a, d="f32")["d"],
        a,
    )
    subnormal = (a & 0x7F800000) == 0
    got = run_ptx("cvt.ftz.f32.f32 %d, %a;", a=a, d="f32")["d"]
    nan = (a & np.uint32(0x7FFFFFFF)) > 0x7F800000
    same(got, np.where(nan, 0x7FFFFFFF, np.where(subnormal, a & np.uint32(0x80000000), a)), a)
