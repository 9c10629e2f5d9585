"""Attention: o = softmax(q k^T * scale) v, per batch and head, with the log-sum-exp of every row."""

from __future__ import annotations

import abc
import heapq
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from programs.errors import Array, ErrorSum, Excess, Numerics
from programs.problem import FLOAT16, PTX_TYPE, Define, Launch, Option, Problem, ceildiv
from programs.tensormap import TensorMap

BOX_COLUMNS = 64  # 16-bit columns that one 128-byte swizzled box holds
AXES = (3, 1, 2, 0)  # maps over (head_dim, seqlen, heads, batch)

# Relative Frobenius error of o: rounding of inputs is not counted, rounding of P and of o is.
TOLERANCE = {"fp16": 5e-4, "bf16": 4e-3}
# Absolute error of lse that the sum of weights may make: 2^-24 for each of up to 16 K additions, 8.8e-5 of fa4's polynomials.
LSE_TOLERANCE = 1e-3
FLOAT32_UNIT = 2.0**-24
LSE_ROUNDINGS = 8  # of the scale, the scaled maximum, the logarithm's factor and sum: fewer than so many
MOST_SCALE = 100  # the kernel's -2^120, times the scale and log2(e), stays finite

L2_BUDGET = 32 << 20  # bytes of K and V that neighbouring tiles may use (FlashAttention-3, hopper/tile_scheduler.hpp)
TILE_DEFINES = (
    "HEAD_DIM",
    "CAUSAL",
    "SPECIALIZE",
    "SETMAXNREG",
    "OVERLAP",
    "CONSUMERS",
    "KV_TILE",
    "P_SHARED",
)  # that `Tile` depends on
TILE_OVERHEAD = 1  # start and end of a tile, in key blocks


@dataclass(frozen=True)
class Block:
    """A kernel's unit of work: `rows` of Q by `keys` of K and V; every `group` rows read these from shared memory."""

    rows: int
    keys: int
    group: int


class Attention(Problem):
    """Forward attention: q and o [batch, seqlen, heads, head_dim], lse [batch, heads, seqlen], f32;
    k and v [batch, seqlen_k, heads_k, head_dim]."""

    head_dims: ClassVar[tuple[int, ...]]
    synchronous: ClassVar[bool] = False  # products are mma.sync
    axes = MappingProxyType(
        {
            "q": ("batch", "seqlen", "heads", "head_dim"),
            "k": ("batch", "seqlen_k", "heads_k", "head_dim"),
            "v": ("batch", "seqlen_k", "heads_k", "head_dim"),
        }
    )
    outputs = MappingProxyType({"o": ("batch", "seqlen", "heads", "head_dim"), "lse": ("batch", "heads", "seqlen")})
    options = (
        Option("seqlen", int, 1024, "query rows"),
        Option("seqlen_k", int, 0, "keys; 0: as many as query rows"),
        Option("head_dim", int, 128, "columns of q, k and v"),
        Option("heads", int, 16, "heads"),
        Option("heads_k", int, 0, "heads of k and v, each shared by heads / heads_k; 0: as many as heads"),
        Option("batch", int, 1, "batch"),
        Option("causal", bool, False, "row r sees the keys up to r + seqlen_k - seqlen only"),
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
        self.heads_k = int(self.values["heads_k"]) or self.heads
        if self.heads_k < 1 or self.heads % self.heads_k:
            raise ValueError(f"heads_k must divide heads ({self.heads}), {self.heads_k} does not")
        self.head_dim: int = self.values["head_dim"]
        if self.head_dim not in self.head_dims:
            raise ValueError(f"head_dim must be one of {', '.join(map(str, self.head_dims))}, not {self.head_dim}")
        self.causal: bool = self.values["causal"]
        self.dtype: str = self.values["dtype"]
        for name, option in (("DTYPE", "dtype"), ("HEAD_DIM", "head_dim"), ("CAUSAL", "causal")):
            if self.defines.get(name) != self.default_defines().get(name):
                raise ValueError(f"{name} follows from the option {option}; set that")

    @property
    @abc.abstractmethod
    def query_tile(self) -> int:
        """Query rows of a tile: ROWS of the kernel."""

    @property
    @abc.abstractmethod
    def block(self) -> Block:
        """Rows and keys of a block of the kernel."""

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
            if not 0 < float(arrays["scale"].item()) < MOST_SCALE:
                raise ValueError(f"input scale must be above 0 and below {MOST_SCALE}")
            adopted["scale"] = arrays["scale"].astype(np.float32).reshape(())
        return adopted

    def softmax_scale(self, inputs: Mapping[str, Array]) -> float:
        """The inputs' `scale`, or 1 / sqrt(head_dim)."""
        return float(inputs["scale"]) if "scale" in inputs else 1.0 / math.sqrt(self.head_dim)

    @property
    def tiles(self) -> int:
        """Query tiles of all heads: tile t has query block t % n of (batch, head) pair t // n."""
        return ceildiv(self.seqlen, self.query_tile) * self.heads * self.batch

    def check(
        self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], tiles: Iterable[int] | None = None
    ) -> Numerics:
        """Compare o (relative Frobenius error) and lse (`lse_limits`) with float64, tile by tile."""
        errors, lse_errors = ErrorSum("o"), Excess("lse")
        blocks, height = ceildiv(self.seqlen, self.query_tile), self.query_tile
        scale = self.softmax_scale(inputs)
        for tile in sorted(set(range(self.tiles) if tiles is None else tiles)):
            pair, block = divmod(tile, blocks)
            batch, head = divmod(pair, self.heads)
            rows = slice(block * height, min((block + 1) * height, self.seqlen))
            key_head = head // (self.heads // self.heads_k)
            q, (k, v) = inputs["q"][batch, rows, head], (inputs[name][batch, :, key_head] for name in "kv")
            seen = np.arange(rows.start, rows.stop) + 1 + self.seqlen_k - self.seqlen if self.causal else None
            o, lse = reference(q, k, v, scale, seen)
            errors.add(outputs["o"], (batch, rows, head), o)
            lse_errors.add(outputs["lse"], (batch, head, rows), lse, lse_limits(q, k, scale))
        return errors.numerics("softmax(q k^T * scale) v in float64", TOLERANCE[self.dtype], lse_errors)

    def alike(self, tiles: tuple[int, ...]) -> Hashable:
        """As many tiles, of which as many reach past the last row; with a mask, as many keys seen."""
        blocks = ceildiv(self.seqlen, self.query_tile)
        places = [tile % blocks for tile in tiles]
        ragged = places.count(blocks - 1) if self.seqlen % self.query_tile else 0
        return len(tiles), ragged, sum(places) if self.causal else 0

    @property
    def flops(self) -> int:
        """Two products of 2 * head_dim for every pair of a row and a key that it sees."""
        pairs = self.seqlen * self.seqlen_k
        if self.causal:
            first = self.seqlen_k - self.seqlen + 1  # keys that row 0 sees
            rows = max(0, min(self.seqlen, self.seqlen_k))  # rows that see any
            pairs = rows * (max(first, 1) + self.seqlen_k) // 2
        return 4 * pairs * self.head_dim * self.heads * self.batch

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
            "causal": self.causal,
        }


class FlashAttention3(Attention):
    """Attention by `fa3.mptx`."""

    kernel = "fa3"
    head_dims: ClassVar[tuple[int, ...]] = (64, 128, 192, 256)
    group: ClassVar[int] = 64  # rows of a product

    def validate(self) -> None:
        """ValueError for what the kernel does not do; sets the derived sizes."""
        super().validate()
        self.tile = Tile.of(self.defines)
        self.cluster = int(self.defines["CLUSTER"])
        blocks = ceildiv(self.seqlen, self.tile.rows)
        if self.cluster > 1 and blocks % self.cluster:
            raise ValueError(
                f"CLUSTER={self.cluster} takes {self.cluster} neighbouring query tiles of a head at a time; "
                f"seqlen {self.seqlen} has {blocks} of {self.tile.rows} rows"
            )

    @property
    def query_tile(self) -> int:
        """Query rows of a tile."""
        return self.tile.rows

    @property
    def block(self) -> Block:
        """A tile of the kernel by a block of keys."""
        return Block(self.tile.rows, self.tile.keys, self.group)

    def default_defines(self) -> dict[str, Define]:
        """Type, head dim, mask, and the schedule that suits it; the switches as the kernel has them."""
        return {
            "DTYPE": PTX_TYPE[self.dtype],
            "HEAD_DIM": self.head_dim,
            "CAUSAL": int(self.causal),
            "SCHEDULE": int(self.causal),
            "SPECIALIZE": 1,
            "SETMAXNREG": 1,
            "OVERLAP": 1,
            "STAGES": 2,
            "CONSUMERS": 0,
            "KV_TILE": 0,
            "P_SHARED": 0,
            "CLUSTER": 1,
        }

    @property
    def shared_bytes(self) -> int:
        """SMEM_BYTES of the kernel: V (at least an O tile), K, Q, P and the barriers."""
        tile, stages = self.tile, int(self.defines["STAGES"])
        rows, blocks = (2 * self.head_dim * n for n in (tile.rows, stages * tile.keys))
        return max(blocks, rows) + blocks + rows + tile.shared_p_bytes + 8 * (4 * stages + 3)

    @property
    def boxes(self) -> dict[str, int]:
        """Rows of the boxes of each tensor map."""
        keys = self.tile.keys // self.cluster
        return {"q": self.tile.rows, "k": keys, "v": keys, "o": 64}

    def key_blocks(self, row_block: int) -> int:
        """Key blocks that the kernel walks for a tile."""
        keys = self.seqlen_k
        if self.causal:
            keys = max(1, min(keys, (row_block + 1) * self.tile.rows + self.seqlen_k - self.seqlen))
        return ceildiv(keys, self.tile.keys)

    def schedule(self, ctas: int) -> Array:
        """Tiles of every CTA for SCHEDULE = 1: u32 [rounds + 1, ctas], padded with the number of tiles.

        The next tile goes to the CTA that is free first, as a shared counter would deal them out: longest tiles first
        within groups of heads whose K and V fit into L2 (Shah et al. 2024; attention-kernels 3.9).
        """
        blocks = ceildiv(self.seqlen, self.tile.rows)
        group = self.heads // self.heads_k  # heads that share K and V stay together
        fitting = L2_BUDGET // (4 * self.seqlen_k * self.head_dim) or 1
        together = group << (fitting.bit_length() - 1)
        pairs = self.heads * self.batch
        taken: list[list[int]] = [[] for _ in range(ctas)]
        free = [(0, cta) for cta in range(ctas)]
        for first in range(0, pairs, together):
            for block in reversed(range(blocks)):
                cost = self.key_blocks(block) + TILE_OVERHEAD
                for pair in range(first, min(first + together, pairs)):
                    time, cta = free[0]
                    heapq.heapreplace(free, (time + cost, cta))
                    taken[cta].append(pair * blocks + block)
        table = np.full((max(map(len, taken)) + 1, ctas), self.tiles, np.uint32)
        for cta, tiles in enumerate(taken):
            table[: len(tiles), cta] = tiles
        return table

    def work(self, ctas: int) -> list[tuple[int, ...]]:
        """The tiles of every CTA, in its order."""
        if not int(self.defines["SCHEDULE"]):
            return super().work(ctas)
        return [tuple(int(t) for t in column if t < self.tiles) for column in self.schedule(ctas).T]

    def launch(self, inputs: Mapping[str, Array], sms: int) -> Launch:
        """A persistent grid: one CTA an SM, or fewer when there are fewer tiles; whole clusters."""
        o = np.zeros_like(inputs["q"])
        lse = np.zeros((self.batch, self.heads, self.seqlen), np.float32)
        arrays = {"q": inputs["q"], "k": inputs["k"], "v": inputs["v"], "o": o, "lse": lse}
        tile, grid = self.tile, min(self.tiles, sms) // self.cluster * self.cluster
        maps = [TensorMap(arrays[name], (BOX_COLUMNS, rows, 1, 1), 128, AXES) for name, rows in self.boxes.items()]
        sizes = [np.uint32(n) for n in (self.seqlen, self.seqlen_k, self.heads, self.heads // self.heads_k, self.tiles)]
        scale = np.float32(self.softmax_scale(inputs) * math.log2(math.e))
        arrays["schedule"] = self.schedule(grid) if int(self.defines["SCHEDULE"]) else np.zeros(1, np.uint32)
        return Launch(
            grid=(grid, 1, 1),
            block=(tile.threads, 1, 1),
            args=(*maps, lse, *sizes, arrays["schedule"], scale),
            shared_bytes=self.shared_bytes,
            arrays=arrays,
            cluster=self.cluster,
        )


@dataclass(frozen=True)
class Tile:
    """The tile that the kernel chooses for its defines (the section "the tile" of fa3.mptx)."""

    rows: int  # query rows
    keys: int  # keys a block
    threads: int
    shared_p_bytes: int  # of P, where it goes through shared memory

    @classmethod
    def of(cls, defines: Mapping[str, Define]) -> Tile:
        """ROWS, KEYS, THREADS of the kernel; what its own checks refuse comes out as some tile here."""
        given = {name: int(defines[name]) for name in TILE_DEFINES}
        head_dim, causal, specialize = given["HEAD_DIM"], given["CAUSAL"], given["SPECIALIZE"]
        groups = given["CONSUMERS"] or (3 if head_dim == 64 else 2)
        shared = given["P_SHARED"]
        threads = 128 * (groups + (1 if specialize else 0))
        registers = min(65536 // threads // 8 * 8, 255)
        if specialize and given["SETMAXNREG"]:
            registers = 240 if groups == 2 else 160
        room = registers - head_dim // 2 - (36 if shared and not given["OVERLAP"] else 28)
        most = min(room * (6 if shared else 4) // 3 // 16 * 16, 256)
        wide = 128 if causal else 176
        wanted = {64: 192 if not causal and given["OVERLAP"] else wide, 128: wide, 192: 112, 256: 80}[head_dim]
        keys = given["KV_TILE"] or max(16, min(most, wanted))
        return cls(64 * groups, keys, threads, groups * 8192 * ceildiv(keys, 64) if shared else 0)


def reference(
    q: Array, k: Array, v: Array, scale: float, seen: Array | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One head in float64: q [rows, d], k and v [keys, d] -> o [rows, d], lse [rows].

    `seen` [rows] counts the keys that each row sees, from the first on (default: all); without any, o = 0, lse = -inf.
    """
    scores = (q.astype(np.float64) @ k.astype(np.float64).T) * scale
    if seen is not None:
        scores = np.where(np.arange(len(k)) < seen[:, None], scores, -np.inf)
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
    total = weights.sum(axis=1, keepdims=True)
    o = weights @ v.astype(np.float64) / np.where(total == 0, 1.0, total)
    with np.errstate(divide="ignore"):
        return o, (top + np.log(total))[:, 0]


def lse_limits(q: Array, k: Array, scale: float) -> NDArray[np.float64]:
    """How far each row's lse [rows] may be off, for q [rows, d] and k [keys, d].

    A score is a float32 sum of d products.  Added one by one, each with a rounding error of at most half an ulp, or as the tensor core
    does (docs/numerics.md; 10.5 * 2^-24 for every 16 of them), it is within d * 2^-24 of the sum of their magnitudes, which
    |q| |k| bounds (Cauchy-Schwarz).  lse is the largest score, within `LSE_ROUNDINGS`, plus the logarithm of the sum of weights.
    """
    magnitude = np.linalg.norm(q.astype(np.float64), axis=1) * np.linalg.norm(k.astype(np.float64), axis=1).max()
    scores = scale * (q.shape[1] + LSE_ROUNDINGS) * FLOAT32_UNIT * magnitude
    return LSE_TOLERANCE + np.where(np.isfinite(scores), scores, 0.0)
