"""Matrix product: c = a b with 16-bit elements and f32 accumulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from programs.problem import FLOAT16, PTX_TYPE, Array, Define, ErrorSum, Launch, Numerics, Option, Problem, ceildiv
from programs.tensormap import TensorMap

TILE_M = 128
TILE_K = 64
BOX_COLUMNS = 64
THREADS = 288

# Half a unit in the last place of c, with room for the order of the accumulation.
TOLERANCE = {"fp16": 5e-4, "bf16": 4e-3}


class Gemm(Problem):
    """c [m, n] = a [m, k] b [k, n] by `gemm.mptx`."""

    kernel = "gemm"
    outputs = ("c",)
    axes = MappingProxyType({"a": ("m", "k"), "b": ("k", "n")})
    options = (
        Option("m", int, 1024, "rows of a and c"),
        Option("n", int, 1024, "columns of b and c, a multiple of 8"),
        Option("k", int, 1024, "columns of a, rows of b, a multiple of 8"),
        Option("dtype", str, "fp16", "type of a, b and c", tuple(FLOAT16)),
    )

    def validate(self) -> None:
        """ValueError for sizes that TMA cannot address."""
        self.positive("m", "n", "k")
        self.m, self.n, self.k = (int(self.values[name]) for name in "mnk")
        self.dtype: str = self.values["dtype"]
        for name in ("n", "k"):
            if self.values[name] % 8:
                raise ValueError(f"{name} must be a multiple of 8 (rows of 16 bytes), not {self.values[name]}")

    def default_defines(self) -> dict[str, Define]:
        """The tile and the type."""
        return {"DTYPE": PTX_TYPE[self.dtype], "TILE_N": 256, "STAGES": 3}

    @property
    def tile_n(self) -> int:
        """Columns of a tile."""
        return int(self.defines["TILE_N"])

    @property
    def shared_bytes(self) -> int:
        """SMEM_BYTES of the kernel: stages of a and b, the c tile, two barriers a stage."""
        stages = int(self.defines["STAGES"])
        return stages * 2 * TILE_K * (TILE_M + self.tile_n) + 2 * TILE_M * self.tile_n + 16 * stages

    @property
    def tiles(self) -> int:
        """Tile t has row block t % ceil(m / 128) and column block t // ceil(m / 128)."""
        return ceildiv(self.m, TILE_M) * ceildiv(self.n, self.tile_n)

    def make_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Normal a and b; b is scaled so that c is of order one."""
        rng = np.random.default_rng(seed)
        a = rng.standard_normal((self.m, self.k), dtype=np.float32)
        b = rng.standard_normal((self.k, self.n), dtype=np.float32) / np.float32(np.sqrt(self.k))
        return {"a": a.astype(FLOAT16[self.dtype]), "b": b.astype(FLOAT16[self.dtype])}

    def launch(self, inputs: Mapping[str, Array], sms: int) -> Launch:
        """A persistent grid: one CTA an SM, or fewer when there are fewer tiles."""
        a, b = inputs["a"], inputs["b"]
        c = np.zeros((self.m, self.n), a.dtype)
        maps = (
            TensorMap(a, (TILE_K, TILE_M)),
            TensorMap(b, (BOX_COLUMNS, TILE_K)),
            TensorMap(c, (BOX_COLUMNS, TILE_M // 2)),
        )
        sizes = (ceildiv(self.m, TILE_M), self.tiles, ceildiv(self.k, TILE_K))
        return Launch(
            grid=(min(self.tiles, sms), 1, 1),
            block=(THREADS, 1, 1),
            args=(*maps, *(np.uint32(n) for n in sizes)),
            shared_bytes=self.shared_bytes,
            arrays={"a": a, "b": b, "c": c},
        )

    def check(
        self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], tiles: Iterable[int] | None = None
    ) -> Numerics:
        """Compare c with the float64 product, tile by tile."""
        errors = ErrorSum()
        row_tiles = ceildiv(self.m, TILE_M)
        for tile in sorted(set(range(self.tiles) if tiles is None else tiles)):
            column, row = divmod(tile, row_tiles)
            rows = slice(row * TILE_M, (row + 1) * TILE_M)
            columns = slice(column * self.tile_n, (column + 1) * self.tile_n)
            product = inputs["a"][rows].astype(np.float64) @ inputs["b"][:, columns].astype(np.float64)
            errors.add(outputs["c"][rows, columns], product)
        return errors.numerics("a b in float64", TOLERANCE[self.dtype])

    @property
    def flops(self) -> int:
        """One multiplication and one addition per term."""
        return 2 * self.m * self.n * self.k

    @property
    def shape(self) -> dict[str, Any]:
        """Sizes and type."""
        return {"m": self.m, "n": self.n, "k": self.k, "dtype": self.dtype}
