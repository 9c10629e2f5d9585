"""Attention: o = softmax(q k^T * scale) v, per batch and head, with the log-sum-exp of every row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from programs.problem import FLOAT16, PTX_TYPE, Array, Define, ErrorSum, Launch, Numerics, Option, Problem, ceildiv
from programs.tensormap import TensorMap

QUERY_TILE = 128
BOX_COLUMNS = 64  # 16-bit columns that one 128-byte swizzled box holds
AXES = (3, 1, 2, 0)  # maps over (head_dim, seqlen, heads, batch)

# Relative Frobenius error of o: rounding of inputs is not counted, rounding of P and of o is.
TOLERANCE = {"fp16": 5e-4, "bf16": 4e-3}
LSE_TOLERANCE = 1e-3


class FlashAttention3(Problem):
    """Forward attention by `fa3.mptx`: q and o [batch, seqlen, heads, head_dim], lse [batch, heads, seqlen], f32;
    k and v [batch, seqlen_k, heads_k, head_dim]."""

    kernel = "fa3"
    outputs = ("o", "lse")
    axes = MappingProxyType(
        {
            "q": ("batch", "seqlen", "heads", "head_dim"),
            "k": ("batch", "seqlen_k", "heads_k", "head_dim"),
            "v": ("batch", "seqlen_k", "heads_k", "head_dim"),
        }
    )
    options = (
        Option("seqlen", int, 1024, "query rows"),
        Option("seqlen_k", int, 0, "keys; 0: as many as query rows"),
        Option("head_dim", int, 128, "columns of q, k and v"),
        Option("heads", int, 16, "heads"),
        Option("heads_k", int, 0, "heads of k and v, each shared by heads / heads_k; 0: as many as heads"),
        Option("batch", int, 1, "batch"),
        Option("dtype", str, "fp16", "type of q, k, v and o", tuple(FLOAT16)),
        Option(
            "inputs", str, "normal", "random inputs: N(0, 1), or with rare large outliers", ("normal", "outlier"), False
        ),
    )

    def validate(self) -> None:
        """ValueError for what the kernel does not do; sets the derived sizes."""
        self.seqlen, self.batch, self.heads = (int(self.values[name]) for name in ("seqlen", "batch", "heads"))
        self.seqlen_k = int(self.values["seqlen_k"]) or self.seqlen
        self.positive("seqlen", "batch", "heads")
        if self.seqlen_k < 1:
            raise ValueError(f"seqlen_k must be at least 1, not {self.seqlen_k}")
        if self.values["head_dim"] != 128:
            raise ValueError(f"fa3 has head_dim 128 only, not {self.values['head_dim']}")
        self.heads_k = int(self.values["heads_k"]) or self.heads
        if self.heads_k < 1 or self.heads % self.heads_k:
            raise ValueError(f"heads_k must divide heads ({self.heads}), {self.heads_k} does not")
        self.head_dim: int = self.values["head_dim"]
        self.dtype: str = self.values["dtype"]

    def default_defines(self) -> dict[str, Define]:
        """Type and head dim; the switches as the kernel has them."""
        return {
            "DTYPE": PTX_TYPE[self.dtype],
            "HEAD_DIM": self.head_dim,
            "KV_TILE": 0,
            "STAGES": 2,
            "SPECIALIZE": 1,
            "SETMAXNREG": 1,
        }

    @property
    def kv_tile(self) -> int:
        """Keys a block: KEYS of the kernel."""
        defines = {name: int(value) for name, value in self.defines.items() if name != "DTYPE"}
        roomy = defines["SETMAXNREG"] or not defines["SPECIALIZE"]
        return defines["KV_TILE"] or (176 if roomy else 96)

    @property
    def shared_bytes(self) -> int:
        """SMEM_BYTES of the kernel: V (at least an O tile), K, Q and the barriers."""
        stages, row = int(self.defines["STAGES"]), 2 * self.head_dim
        blocks = stages * self.kv_tile * row
        return max(blocks, QUERY_TILE * row) + blocks + QUERY_TILE * row + 8 * (4 * stages + 3)

    def make_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Normal q, k, v; outliers are those of the FlashAttention-3 paper: N(0,1) + N(0,100) * Bernoulli(0.001)."""
        rng = np.random.default_rng(seed)
        made: dict[str, Array] = {}
        for name, shape in self.shapes.items():
            values = rng.standard_normal(shape, dtype=np.float32)
            if self.values["inputs"] == "outlier":
                large = rng.standard_normal(shape, dtype=np.float32) * np.float32(10.0)
                values += large * (rng.random(shape, dtype=np.float32) < 0.001)
            made[name] = values.astype(FLOAT16[self.dtype])
        return made

    def adopt(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The user's own q, k, v (and scale) in the problem's type; ValueError when a shape or type is wrong."""
        adopted = super().adopt(arrays)
        if "scale" in arrays:
            if arrays["scale"].size != 1 or arrays["scale"].dtype.kind not in "iuf":
                raise ValueError("input scale must be one number")
            adopted["scale"] = arrays["scale"].astype(np.float32).reshape(())
        return adopted

    def softmax_scale(self, inputs: Mapping[str, Array]) -> float:
        """The inputs' `scale`, or 1 / sqrt(head_dim)."""
        return float(inputs["scale"]) if "scale" in inputs else 1.0 / math.sqrt(self.head_dim)

    @property
    def tiles(self) -> int:
        """Query tiles of all heads: tile t has query block t % n of (batch, head) pair t // n."""
        return ceildiv(self.seqlen, QUERY_TILE) * self.heads * self.batch

    def launch(self, inputs: Mapping[str, Array], sms: int) -> Launch:
        """A persistent grid: one CTA an SM, or fewer when there are fewer tiles."""
        o = np.zeros_like(inputs["q"])
        lse = np.zeros((self.batch, self.heads, self.seqlen), np.float32)
        arrays = {"q": inputs["q"], "k": inputs["k"], "v": inputs["v"], "o": o, "lse": lse}
        rows = {"q": QUERY_TILE, "k": self.kv_tile, "v": self.kv_tile, "o": QUERY_TILE // 2}
        maps = [TensorMap(arrays[name], (BOX_COLUMNS, box, 1, 1), 128, AXES) for name, box in rows.items()]
        sizes = [np.uint32(n) for n in (self.seqlen, self.seqlen_k, self.heads, self.heads // self.heads_k, self.tiles)]
        scale = np.float32(self.softmax_scale(inputs) * math.log2(math.e))
        threads = 384 if int(self.defines["SPECIALIZE"]) else 256
        return Launch(
            grid=(min(self.tiles, sms), 1, 1),
            block=(threads, 1, 1),
            args=(*maps, lse, *sizes, scale),
            shared_bytes=self.shared_bytes,
            arrays=arrays,
        )

    def check(
        self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], tiles: Iterable[int] | None = None
    ) -> Numerics:
        """Compare o (relative Frobenius error) and lse (absolute) with float64, tile by tile."""
        errors, lse_error = ErrorSum(), 0.0
        blocks = ceildiv(self.seqlen, QUERY_TILE)
        for tile in sorted(set(range(self.tiles) if tiles is None else tiles)):
            pair, block = divmod(tile, blocks)
            batch, head = divmod(pair, self.heads)
            rows = slice(block * QUERY_TILE, min((block + 1) * QUERY_TILE, self.seqlen))
            key_head = head // (self.heads // self.heads_k)
            k, v = (inputs[name][batch, :, key_head] for name in "kv")
            o, lse = reference(inputs["q"][batch, rows, head], k, v, self.softmax_scale(inputs))
            errors.add(outputs["o"][batch, rows, head], o)
            worst = np.abs(outputs["lse"][batch, head, rows].astype(np.float64) - lse).max()
            lse_error = max(lse_error, float("inf") if np.isnan(worst) else float(worst))
        return errors.numerics(
            "softmax(q k^T * scale) v in float64", TOLERANCE[self.dtype], lse_abs_error=(lse_error, LSE_TOLERANCE)
        )

    @property
    def flops(self) -> int:
        """Two products of 2 * seqlen * seqlen_k * head_dim each."""
        return 4 * self.seqlen * self.seqlen_k * self.head_dim * self.heads * self.batch

    @property
    def shape(self) -> dict[str, Any]:
        """Sizes, type and kind of attention."""
        return {
            "seqlen": self.seqlen,
            "seqlen_k": self.seqlen_k,
            "head_dim": self.head_dim,
            "heads": self.heads,
            "heads_k": self.heads_k,
            "batch": self.batch,
            "dtype": self.dtype,
            "causal": False,
        }


def reference(q: Array, k: Array, v: Array, scale: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One head in float64: q [rows, d], k and v [keys, d] -> o [rows, d], lse [rows]."""
    scores = (q.astype(np.float64) @ k.astype(np.float64).T) * scale
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(axis=1, keepdims=True)
    o = weights @ v.astype(np.float64) / total
    return cast("NDArray[np.float64]", o), (top + np.log(total))[:, 0]
