"""Matrix product: c = a b with 16-bit or tf32 operands and f32 accumulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from programs.errors import Array, ErrorSum, Numerics
from programs.problem import PTX_TYPE, Define, Launch, Option, Problem, ceildiv
from programs.tensormap import TensorMap

TILE_M = 128
ROW_BYTES = 128  # of a box: the width of the swizzle
TMA_ROW_BYTES = 16  # rows in memory are multiples of this
THREADS = 288

# Half a unit in the last place of a 16-bit c, with room for the order of the accumulation.  A tf32 product has an f32 c,
# and the tensor core's truncating accumulation decides, twice what an H200 shows: 2.4e-9 a term (9.6e-6 for k = 4096).
TOLERANCE = {"fp16": 5e-4, "bf16": 4e-3, "tf32": 2e-7}
TF32_TERM = 5e-9


class Gemm(Problem):
    """c [m, n] = a [m, k] b [k, n] by `gemm.mptx`; c is of the operands' type, or f32 for tf32.

    In device memory rows are padded to multiples of 16 bytes with zeros, and a tf32 b lies transposed.
    """

    kernel = "gemm"
    axes = MappingProxyType({"a": ("m", "k"), "b": ("k", "n")})
    outputs = MappingProxyType({"c": ("m", "n")})
    options = (
        Option("m", int, 1024, "rows of a and c"),
        Option("n", int, 1024, "columns of b and c"),
        Option("k", int, 1024, "columns of a, rows of b"),
        Option("dtype", str, "fp16", "type of a and b", tuple(TOLERANCE)),
    )

    def validate(self) -> None:
        """ValueError for empty matrices, or a type that the defines contradict."""
        self.positive("m", "n", "k")
        self.m, self.n, self.k = (int(self.values[name]) for name in "mnk")
        self.dtype: str = self.values["dtype"]
        if self.defines["DTYPE"] != PTX_TYPE[self.dtype]:
            raise ValueError("DTYPE follows from the option dtype; set that")

    def default_defines(self) -> dict[str, Define]:
        """The tile and the type."""
        return {"DTYPE": PTX_TYPE[self.dtype], "TILE_N": 256, "STAGES": 3}

    @property
    def tile_n(self) -> int:
        """Columns of a tile."""
        return int(self.defines["TILE_N"])

    @property
    def tile_k(self) -> int:
        """Columns of a that one stage holds."""
        return ROW_BYTES // self.operand_type.itemsize

    @property
    def shared_bytes(self) -> int:
        """SMEM_BYTES of the kernel: stages of a and b, up to four boxes of c a warpgroup, two barriers a stage."""
        stages = int(self.defines["STAGES"])
        boxes = min(self.tile_n // self.tile_k, 4)
        return stages * ROW_BYTES * (TILE_M + self.tile_n) + boxes * ROW_BYTES * TILE_M + 16 * stages

    @property
    def tiles(self) -> int:
        """Tile t has row block t % ceil(m / 128) and column block t // ceil(m / 128)."""
        return ceildiv(self.m, TILE_M) * ceildiv(self.n, self.tile_n)

    def make_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Normal a and b; b is scaled so that c is of order one."""
        rng = np.random.default_rng(seed)
        a = rng.standard_normal((self.m, self.k), dtype=np.float32)
        b = rng.standard_normal((self.k, self.n), dtype=np.float32) / np.float32(np.sqrt(self.k))
        return self.adopt({"a": a, "b": b})

    def adopt(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """a and b in the problem's type; f32 rounded to the 10 fraction bits of tf32."""
        adopted = super().adopt(arrays)
        return {name: to_tf32(x) for name, x in adopted.items()} if self.dtype == "tf32" else adopted

    def launch(self, inputs: Mapping[str, Array], sms: int) -> Launch:
        """A persistent grid: one CTA an SM, or fewer when there are fewer tiles."""
        a, b = rows_of_16_bytes(inputs["a"]), inputs["b"]
        c = rows_of_16_bytes(np.zeros((self.m, self.n), a.dtype))
        arrays = {"a": inputs["a"], "b": b, "c": c[:, : self.n] if c.shape[1] > self.n else c}
        if self.dtype == "tf32":
            b = rows_of_16_bytes(np.ascontiguousarray(b.T))
            b_map = TensorMap(b, (self.tile_k, self.tile_n))
        else:
            b = rows_of_16_bytes(b)
            b_map = TensorMap(b, (self.tile_k, self.tile_k))
        maps = (TensorMap(a, (self.tile_k, TILE_M)), b_map, TensorMap(c, (self.tile_k, TILE_M // 2)))
        sizes = (ceildiv(self.m, TILE_M), self.tiles, ceildiv(self.k, self.tile_k))
        return Launch(
            grid=(min(self.tiles, sms), 1, 1),
            block=(THREADS, 1, 1),
            args=(*maps, *(np.uint32(n) for n in sizes)),
            shared_bytes=self.shared_bytes,
            arrays=arrays,
        )

    def check(
        self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], tiles: Iterable[int] | None = None
    ) -> Numerics:
        """Compare c with the float64 product, tile by tile."""
        errors = ErrorSum("c")
        row_tiles = ceildiv(self.m, TILE_M)
        for tile in sorted(set(range(self.tiles) if tiles is None else tiles)):
            column, row = divmod(tile, row_tiles)
            rows = slice(row * TILE_M, (row + 1) * TILE_M)
            columns = slice(column * self.tile_n, (column + 1) * self.tile_n)
            product = inputs["a"][rows].astype(np.float64) @ inputs["b"][:, columns].astype(np.float64)
            errors.add(outputs["c"], (rows, columns), product)
        tolerance = TOLERANCE[self.dtype]
        if self.dtype == "tf32":
            tolerance = max(tolerance, TF32_TERM * self.k)
        return errors.numerics("a b in float64", tolerance)

    @property
    def flops(self) -> int:
        """One multiplication and one addition per term."""
        return 2 * self.m * self.n * self.k

    @property
    def shape(self) -> dict[str, Any]:
        """Sizes and type."""
        return {"m": self.m, "n": self.n, "k": self.k, "dtype": self.dtype}


def rows_of_16_bytes(x: Array) -> Array:
    """`x` [rows, columns], or a copy with zeros behind its rows, so that TMA can address them."""
    short = -x.shape[1] % (TMA_ROW_BYTES // x.itemsize)
    return np.pad(x, ((0, 0), (0, short))) if short else x


def to_tf32(x: Array) -> Array:
    """f32 rounded to tf32, 8 exponent and 10 fraction bits, to nearest even (PTX ISA 5.2.3); NaN and infinity stay."""
    bits = x.view(np.uint32)
    rounded = (bits + 0xFFF + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), rounded.view(np.float32), x).astype(np.float32)
