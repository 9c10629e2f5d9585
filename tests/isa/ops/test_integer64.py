"""64-bit helpers that other families build on."""

from __future__ import annotations

import numpy as np

from emu.lanes import run_ptx
from tests.isa.ops.cases import longs, same


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
