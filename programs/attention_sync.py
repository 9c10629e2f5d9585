"""FlashAttention-1 and -2, the generations of synchronous products: a CTA for each head, and for each tile of query rows."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from programs.attention import Attention, Block
from programs.errors import Array
from programs.problem import PTX_TYPE, Define, Launch, ceildiv

THREADS = 128


class FlashAttention1(Attention):
    """Attention by `fa1.mptx`, without causal masks."""

    kernel = "fa1"
    synchronous = True
    head_dims = (64, 128)

    def validate(self) -> None:
        """ValueError for what the kernel does not do; sets the derived sizes."""
        super().validate()
        if self.causal:
            raise ValueError("fa1 has no causal masks; fa2, fa3 and fa4 have")

    def default_defines(self) -> dict[str, Define]:
        """Type and head dim; tiles and exponentials as the kernel has them."""
        return {"DTYPE": PTX_TYPE[self.dtype], "HEAD_DIM": self.head_dim, "KV_TILE": 0, "FTZ": 1}

    @property
    def query_tile(self) -> int:
        """ROWS of the kernel."""
        return 64

    @property
    def shared_bytes(self) -> int:
        """SMEM_BYTES of the kernel: Q, K and V."""
        return 2 * self.head_dim * (self.query_tile + 2 * self.block.keys)

    @property
    def block(self) -> Block:
        """ROWS and KEYS of the kernel, rows of a warp."""
        return Block(self.query_tile, int(self.defines["KV_TILE"]) or 128, self.query_tile // 4)

    def work(self, ctas: int) -> list[tuple[int, ...]]:
        """A CTA has all tiles of a head."""
        blocks = ceildiv(self.seqlen, self.query_tile)
        return [tuple(range(pair * blocks, (pair + 1) * blocks)) for pair in range(ctas)]

    def launch(self, inputs: Mapping[str, Array], sms: int) -> Launch:
        """A CTA a head."""
        arrays = outputs(inputs)
        arrays |= {"sums": np.zeros_like(arrays["lse"]), "partial": np.zeros(arrays["o"].shape, np.float32)}
        return Launch(
            grid=(1, self.heads, self.batch),
            block=(THREADS, 1, 1),
            args=(*arrays.values(), *scalars(self, inputs)),
            shared_bytes=self.shared_bytes,
            arrays=arrays,
        )


class FlashAttention2(Attention):
    """Attention by `fa2.mptx`."""

    kernel = "fa2"
    synchronous = True
    head_dims = (64, 128, 256)

    def default_defines(self) -> dict[str, Define]:
        """Type, head dim and mask; tiles and exponentials as the kernel has them."""
        return {
            "DTYPE": PTX_TYPE[self.dtype],
            "HEAD_DIM": self.head_dim,
            "CAUSAL": int(self.causal),
            "Q_TILE": 0,
            "KV_TILE": 0,
            "FTZ": 0,
            "OVERLAP": 0,
        }

    @property
    def query_tile(self) -> int:
        """ROWS of the kernel."""
        return int(self.defines["Q_TILE"]) or (64 if self.head_dim == 256 else 128)

    @property
    def block(self) -> Block:
        """ROWS and KEYS of the kernel, rows of a warp."""
        keys = int(self.defines["KV_TILE"]) or (128 if self.head_dim == 64 else 64)
        return Block(self.query_tile, keys, self.query_tile // 4)

    @property
    def shared_bytes(self) -> int:
        """SMEM_BYTES of the kernel: Q, K and V."""
        return 2 * self.head_dim * (self.query_tile + 2 * self.block.keys)

    def launch(self, inputs: Mapping[str, Array], sms: int) -> Launch:
        """A CTA a tile; tile t is CTA t of the grid."""
        arrays = outputs(inputs)
        return Launch(
            grid=(ceildiv(self.seqlen, self.query_tile), self.heads, self.batch),
            block=(THREADS, 1, 1),
            args=(*arrays.values(), *scalars(self, inputs)),
            shared_bytes=self.shared_bytes,
            arrays=arrays,
        )


def outputs(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """q, k, v and the results o and lse, in the kernels' order."""
    batch, seqlen, heads, _ = inputs["q"].shape
    lse = np.zeros((batch, heads, seqlen), np.float32)
    return {name: inputs[name] for name in "qkv"} | {"o": np.zeros_like(inputs["q"]), "lse": lse}


def scalars(problem: Attention, inputs: Mapping[str, Array]) -> tuple[np.generic, ...]:
    """seqlen_q, seqlen_k, heads_k and the scale, which includes log2(e)."""
    sizes = (np.uint32(n) for n in (problem.seqlen, problem.seqlen_k, problem.heads_k))
    return (*sizes, np.float32(problem.softmax_scale(inputs) * math.log2(math.e)))
