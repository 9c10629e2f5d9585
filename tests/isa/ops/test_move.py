"""Moves, packing, prmt."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa.ops.move import MODES, PRMT_FIXED
from tests.isa.ops.cases import longs, predicates, same, shorts, words


@pytest.mark.parametrize(
    ("type", "make"),
    [("b16", shorts), ("u32", words), ("f32", words), ("b64", longs), ("f64", longs), ("pred", predicates)],
)
def test_mov_copies(type: str, make: object) -> None:
    a = make(1)  # type: ignore[operator]
    same(run_ptx(f"mov.{type} %p, %a;", a=a, p=type)["p"], a)


def test_mov_of_constants() -> None:
    a = words(1, 32)
    out = run_ptx(
        "mov.f32 %x, 0f3FC00000; mov.u64 %y, 0x123456789abcdef0; mov.b32 %z, %a;", a=a, x="f32", y="b64", z="b32"
    )
    assert out["x"][0] == 0x3FC00000 and out["y"][0] == 0x123456789ABCDEF0


def test_pack_and_unpack() -> None:
    a, b = words(2), words(3)
    h, k = shorts(4), shorts(5)
    same(run_ptx("mov.b64 %d, {%a, %b};", a=a, b=b, d="b64")["d"], a.astype(np.uint64) | b.astype(np.uint64) << 32)
    same(run_ptx("mov.b32 %d, {%h, %k};", h=h, k=k, d="b32")["d"], h | k.astype(np.uint32) << 16)
    out = run_ptx("mov.b32 {%x, %y}, %a;", a=a, x="b16", y="b16")
    same(out["x"] & 0xFFFF, a & 0xFFFF, a)
    same(out["y"] & 0xFFFF, a >> 16, a)
    wide = longs(6)
    out = run_ptx("mov.b64 {%x, %y}, %w;", w=wide, x="b32", y="b32")
    same(out["x"], wide.astype(np.uint32), wide)
    same(out["y"], wide >> np.uint64(32), wide)


def test_four_halves() -> None:
    wide = longs(7)
    line = "mov.b64 {%p0, %p1, %p2, %p3}, %w; mov.b64 %d, {%p3, %p2, %p1, %p0};"
    got = run_ptx(line, w=wide, p0="b16", p1="b16", p2="b16", p3="b16", d="b64")["d"]
    same(got, np.ascontiguousarray(wide.view(np.uint16).reshape(-1, 4)[:, ::-1]).view(np.uint64).ravel(), wide)


def test_discarded_half() -> None:
    a = words(8)
    same(run_ptx("mov.b32 {_, %y}, %a;", a=a, y="b16")["y"] & 0xFFFF, a >> 16, a)


def chosen(a: int, b: int, selector: int) -> int:
    """prmt's default mode, byte by byte."""
    source = list(a.to_bytes(4, "little") + b.to_bytes(4, "little"))
    picked = [source[selector >> 4 * k & 7] for k in range(4)]
    signs = [selector >> 4 * k & 8 for k in range(4)]
    return int.from_bytes(
        bytes((255 if x & 128 else 0) if s else x for x, s in zip(picked, signs, strict=True)), "little"
    )


@pytest.mark.parametrize("selector", [*PRMT_FIXED, 0x3210, 0x0123, 0x9910, 0xBA98, 0x7531, 0xFEDC])
def test_prmt_constant_selectors(selector: int) -> None:
    a, b = words(9, 256), words(10, 256)
    got = run_ptx(f"prmt.b32 %d, %a, %b, {selector};", a=a, b=b, d="b32")["d"]
    same(got, [chosen(int(x), int(y), selector) for x, y in zip(a, b, strict=True)], a, b)


def test_prmt_selectors_in_registers() -> None:
    a, b, c = words(11, 256), words(12, 256), words(13, 256)
    got = run_ptx("prmt.b32 %d, %a, %b, %c;", a=a, b=b, c=c, d="b32")["d"]
    same(got, [chosen(*(int(x) for x in lane)) for lane in zip(a, b, c, strict=True)], a, b, c)


@pytest.mark.parametrize("mode", MODES)
def test_prmt_modes(mode: str) -> None:
    a, b, c = words(14, 256), words(15, 256), words(16, 256)
    got = run_ptx(f"prmt.b32.{mode} %d, %a, %b, %c;", a=a, b=b, c=c, d="b32")["d"]
    expected = [chosen(int(x), int(y), MODES[mode][int(z) & 3]) for x, y, z in zip(a, b, c, strict=True)]
    same(got, expected, a, b, c)


def test_prmt_modes_follow_the_manual() -> None:
    """f4e reads four bytes forward from byte c, rc8 replicates byte c (PTX ISA 9.7.9, prmt)."""
    a, b, c = np.full(32, 0x33221100, np.uint32), np.full(32, 0x77665544, np.uint32), np.full(32, 2, np.uint32)
    results = {m: int(run_ptx(f"prmt.b32.{m} %d, %a, %b, %c;", a=a, b=b, c=c, d="b32")["d"][0]) for m in MODES}
    assert results["f4e"] == 0x55443322 and results["b4e"] == 0x77001122
    assert results["rc8"] == 0x22222222 and results["rc16"] == 0x11001100
    assert results["ecl"] == 0x33222222 and results["ecr"] == 0x22221100
