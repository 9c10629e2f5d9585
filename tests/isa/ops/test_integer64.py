"""64-bit helpers that other families build on."""

from __future__ import annotations

import numpy as np

from emu.lanes import run_ptx
from tests.isa.ops.cases import longs, same, words


def test_signed_high_product_of_extremes() -> None:
    edges = np.array([0, 1, 2**63, 2**64 - 1, 2**63 - 1, 2**32, 2**31], np.uint64)
    a, b = (np.resize(x, 64) for x in (np.repeat(edges, len(edges)), np.tile(edges, len(edges))))
    got = run_ptx("mul.hi.s64 %d, %a, %b;", a=a, b=b, d="b64")["d"]
    expected = [(int(x) * int(y) >> 64) & (2**64 - 1) for x, y in zip(a.view(np.int64), b.view(np.int64), strict=True)]
    same(got, np.array(expected, np.uint64), a, b)


def test_product_reassembles() -> None:
    a, b = longs(11), longs(12)
    out = run_ptx("mul.lo.u64 %l, %a, %b; mul.hi.u64 %h, %a, %b;", a=a, b=b, l="b64", h="b64")
    for x, y, low, high in zip(a.tolist(), b.tolist(), out["l"].tolist(), out["h"].tolist(), strict=True):
        assert high << 64 | low == x * y


def test_saturated_sums_of_high_halves():
    a, b, c = (words(k, 2048) for k in (1, 2, 3))
    out = run_ptx("mad.hi.sat.s32 %d, %a, %b, %c; mad24.hi.sat.s32 %e, %a, %b, %c;", a=a, b=b, c=c, d="b32", e="b32")
    x, y, z = (v.view(np.int32).astype(np.int64) for v in (a, b, c))
    limits = -(1 << 31), (1 << 31) - 1
    same(out["d"], np.clip((x * y >> 32) + z, *limits).astype(np.int32).view(np.uint32), a, b, c)
    x24, y24 = ((v << 40) >> 40 for v in (x, y))
    high = (x24 * y24 >> 16).astype(np.int32).astype(np.int64)
    same(out["e"], np.clip(high + z, *limits).astype(np.int32).view(np.uint32), a, b, c)
