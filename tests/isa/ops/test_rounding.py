"""Conversions that round: recorded silicon, and the exact value rounded once in every mode."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa import bits
from isa.bits import BF16, F16, F32, F64, signed
from tests.isa.ops import recorded
from tests.isa.ops.cases import longs, same, shorts, words

FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
MAKE = {"f16": shorts, "bf16": shorts, "f32": words, "f64": longs}
MODES = {"rni": "rn", "rzi": "rz", "rmi": "rm", "rpi": "rp"}
TO_INTEGER = [n for n in recorded.names("scalar_f32", "cvt_r") if n.split("_")[1] in MODES]


@pytest.mark.parametrize("name", [n for n in TO_INTEGER if not n.endswith(("_lo", "_hi"))])
def test_recorded_to_integer(name: str) -> None:
    mods = name.split("_")[1:]
    narrow = mods[-1] in ("s16", "u16")
    recorded.replay("scalar_f32", name, f"cvt.{'.'.join(mods)}.f32 %d, %a;", "b16" if narrow else "b32")


@pytest.mark.parametrize("type", ["s64", "u64"])
def test_recorded_to_64_bits(type: str) -> None:
    stored = recorded.arrays("scalar_f32")
    low, high = (stored[f"cvt_rzi_{type}_{half}"].astype(np.uint64) for half in ("lo", "hi"))
    got = recorded.run("scalar_f32", f"cvt.rzi.{type}.f32 %d, %a;", "b64")
    same(got, low | high << np.uint64(32), stored["a"])


@pytest.mark.parametrize("name", [n for n in recorded.names("scalar_f32", "cvt_") if "_f32_" in n])
def test_recorded_from_integer(name: str) -> None:
    _, mode, target, source = name.split("_")
    recorded.replay("scalar_f32", name, f"cvt.{mode}.{target}.{source} %d, %a;")


INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
PAIRS = [(f, t) for f in FORMATS for t in INTEGERS if f != "bf16" or t not in ("s8", "u8")]  # PTX has no others


@pytest.mark.parametrize(("source", "type"), PAIRS)
def test_to_integer(source: str, type: str) -> None:
    width = int(type[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if type[0] == "s" else (0, (1 << width) - 1)
    register = max(width, 32)
    a = MAKE[source](70, 512)
    for suffix, mode in MODES.items():
        got = run_ptx(f"cvt.{suffix}.{type}.{source} %d, %a;", a=a, d=f"b{register}")["d"]
        nan = 1 << 63 if width == 64 else 0
        expected = [bits.to_integer(FORMATS[source], int(x), mode, low, high, nan) & ((1 << register) - 1) for x in a]
        same(got, np.array(expected, np.uint64), a)


@pytest.mark.parametrize(("target", "type"), PAIRS)
def test_from_integer(target: str, type: str) -> None:
    width = int(type[1:])
    a = {8: words, 16: shorts, 32: words, 64: longs}[width](71, 512)
    f = FORMATS[target]
    for mode in MODES.values():
        got = run_ptx(f"cvt.{mode}.{target}.{type} %d, %a;", a=a, d=f"b{f.width}")["d"]
        values = [signed(int(x), width) if type[0] == "s" else int(x) & ((1 << width) - 1) for x in a]
        expected = [bits.from_integer(f, x, mode) for x in values]
        same(got.astype(np.uint64) & np.uint64((1 << f.width) - 1), np.array(expected, np.uint64), a)


@pytest.mark.parametrize(("target", "source"), [("f32", "f64"), ("f16", "f64"), ("bf16", "f64")])
def test_narrowing_doubles(target: str, source: str) -> None:
    a, g = longs(72), FORMATS[target]
    for mode in MODES.values():
        got = run_ptx(f"cvt.{mode}.{target}.{source} %d, %a;", a=a, d=f"b{g.width}")["d"]
        expected = [bits.convert(F64, g, int(x), mode) for x in a]
        same(got & np.uint32((1 << g.width) - 1), expected, a)


@pytest.mark.parametrize("source", ["f32", "f16"])
def test_widening_to_double_is_exact(source: str) -> None:
    a = MAKE[source](73)
    got = run_ptx(f"cvt.f64.{source} %d, %a;", a=a, d="b64")["d"]
    same(got, np.array([bits.convert(FORMATS[source], F64, int(x)) for x in a], np.uint64), a)


@pytest.mark.parametrize("mode", ["rm", "rp"])
def test_directed_f16(mode: str) -> None:
    a = words(74)
    got = run_ptx(f"cvt.{mode}.f16.f32 %d, %a;", a=a, d="b16")["d"]
    same(got & 0xFFFF, [bits.convert(F32, F16, int(x), mode) for x in a], a)


@pytest.mark.parametrize("type", ["f32", "f64", "f16"])
def test_integral_values(type: str) -> None:
    a, kind = MAKE[type](75), {"f32": np.float32, "f64": np.float64, "f16": np.float16}[type]
    x, f = a.view(kind), FORMATS[type]
    for mode, function in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        with np.errstate(all="ignore"):
            host = function(x).view(a.dtype)
        got = run_ptx(f"cvt.{mode}.{type}.{type} %d, %a;", a=a, d=f"b{f.width}")["d"]
        same(got.astype(a.dtype), np.where(np.isnan(x), a.dtype.type(f.nan), host), a)
