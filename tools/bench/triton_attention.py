"""Attention of one head as a Triton kernel, for the comparison in `tools.bench.engine`.

Set TRITON_INTERPRET=1 before the import, so that it runs on the host.
"""

from __future__ import annotations

import time

import torch  # type: ignore[import-not-found,unused-ignore]
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]


@triton.jit
def _attention(q, k, v, o, seqlen, scale, WIDTH: tl.constexpr, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.arange(0, WIDTH)
    queries = tl.load(q + rows[:, None] * WIDTH + columns[None, :])
    top = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    acc = tl.zeros([TILE, WIDTH], tl.float32)
    for start in range(0, seqlen, TILE):
        keys = start + tl.arange(0, TILE)
        block = keys[:, None] * WIDTH + columns[None, :]
        scores = tl.dot(queries, tl.trans(tl.load(k + block))) * scale
        new = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        shrink = tl.exp(top - new)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None] + tl.dot(weights.to(tl.float16), tl.load(v + block))
        top = new
    tl.store(o + rows[:, None] * WIDTH + columns[None, :], (acc / total[:, None]).to(tl.float16))


def run(seqlen: int, width: int, tile: int) -> float:
    """Seconds of one interpreted run; `seqlen` must be a multiple of `tile`."""
    q, k, v = (torch.randn(seqlen, width).to(torch.float16) for _ in range(3))
    o = torch.empty_like(q)
    start = time.perf_counter()
    _attention[(seqlen // tile,)](q, k, v, o, seqlen, width**-0.5, WIDTH=width, TILE=tile)
    return time.perf_counter() - start
