"""selp, slct and set."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lanes import run_ptx
from tests.isa.ops.cases import longs, predicates, same, shorts, words

MAKE = {"b16": shorts, "u16": shorts, "s16": shorts, "b32": words, "u32": words, "s32": words, "f32": words}
MAKE |= {"b64": longs, "u64": longs, "s64": longs, "f64": longs}


@pytest.mark.parametrize("type", MAKE)
def test_selp(type: str) -> None:
    a, b, p = MAKE[type](1), MAKE[type](2), predicates(3)
    got = run_ptx(f"selp.{type} %d, %a, %b, %p;", a=a, b=b, p=p, d=type)["d"]
    same(got.astype(a.dtype), np.where(p, a, b), a, b)


@pytest.mark.parametrize("type", MAKE)
def test_slct(type: str) -> None:
    a, b, c = MAKE[type](4), MAKE[type](5), words(6)
    got = run_ptx(f"slct.{type}.s32 %d, %a, %b, %c;", a=a, b=b, c=c, d=type)["d"]
    same(got.astype(a.dtype), np.where(c.view(np.int32) >= 0, a, b), a, b, c)
    got = run_ptx(f"slct.{type}.f32 %d, %a, %b, %c;", a=a, b=b, c=c, d=type)["d"]
    same(got.astype(a.dtype), np.where(c.view(np.float32) >= 0, a, b), a, b, c)


def test_slct_flushes() -> None:
    a, b = words(7, 32), words(8, 32)
    c = np.full(32, 0x80000001, np.uint32)  # a negative subnormal
    same(run_ptx("slct.f32.f32 %d, %a, %b, %c;", a=a, b=b, c=c, d="f32")["d"], b)
    same(run_ptx("slct.ftz.f32.f32 %d, %a, %b, %c;", a=a, b=b, c=c, d="f32")["d"], a)


def test_set() -> None:
    a, b, c = words(9), words(10), predicates(11)
    less = a.view(np.int32) < b.view(np.int32)
    same(run_ptx("set.lt.u32.s32 %d, %a, %b;", a=a, b=b, d="u32")["d"], np.where(less, 0xFFFFFFFF, 0), a, b)
    same(run_ptx("set.lt.f32.s32 %d, %a, %b;", a=a, b=b, d="f32")["d"], np.where(less, 0x3F800000, 0), a, b)
    got = run_ptx("set.lt.or.s32.s32 %d, %a, %b, %c;", a=a, b=b, c=c, d="s32")["d"]
    same(got, np.where(less | c, 0xFFFFFFFF, 0), a, b, c)
    unordered = np.isnan(a.view(np.float32)) | np.isnan(b.view(np.float32))
    same(run_ptx("set.nan.u32.f32 %d, %a, %b;", a=a, b=b, d="u32")["d"], np.where(unordered, 0xFFFFFFFF, 0), a, b)
