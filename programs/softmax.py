"""Row softmax in f32."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from programs.errors import Array, ErrorSum, Numerics
from programs.problem import Define, Launch, Option, Problem, ceildiv

# f32 sums of exponentials by ex2.approx (2 ulp) and one approximate reciprocal.
TOLERANCE = 2e-6


class Softmax(Problem):
    """y = softmax(x) along the rows, by `softmax.mptx`."""

    kernel = "softmax"
    axes = MappingProxyType({"x": ("rows", "cols")})
    outputs = MappingProxyType({"y": ("rows", "cols")})
    options = (
        Option("rows", int, 1024, "rows"),
        Option("cols", int, 4096, "columns, a multiple of 4"),
    )

    def validate(self) -> None:
        """ValueError for rows that vectors of four do not fill."""
        self.positive("rows", "cols")
        self.rows, self.cols = int(self.values["rows"]), int(self.values["cols"])
        if self.cols % 4:
            raise ValueError(f"cols must be a multiple of 4 (vectors of 16 bytes), not {self.cols}")

    def default_defines(self) -> dict[str, Define]:
        """Rows a CTA."""
        return {"WARPS": 4}

    def make_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Normal x."""
        return {"x": np.random.default_rng(seed).standard_normal((self.rows, self.cols), dtype=np.float32)}

    def launch(self, inputs: Mapping[str, Array], sms: int) -> Launch:
        """One warp a row."""
        warps = int(self.defines["WARPS"])
        x = inputs["x"]
        y = np.zeros_like(x)
        return Launch(
            grid=(ceildiv(self.rows, warps), 1, 1),
            block=(32 * warps, 1, 1),
            args=(x, y, np.uint32(self.rows), np.uint32(self.cols)),
            shared_bytes=0,
            arrays={"x": x, "y": y},
        )

    def check(
        self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], tiles: Iterable[int] | None = None
    ) -> Numerics:
        """Compare y with float64; a tile is what one CTA does."""
        errors, warps = ErrorSum("y"), int(self.defines["WARPS"])
        for tile in sorted(set(range(ceildiv(self.rows, warps)) if tiles is None else tiles)):
            rows = slice(tile * warps, (tile + 1) * warps)
            x = inputs["x"][rows].astype(np.float64)
            weights = np.exp(x - x.max(axis=1, keepdims=True))
            errors.add(outputs["y"], (rows,), weights / weights.sum(axis=1, keepdims=True))
        return errors.numerics("softmax in float64", TOLERANCE)

    @property
    def flops(self) -> int:
        """Maximum, subtraction, exponential, addition and division of each element."""
        return 5 * self.rows * self.cols

    @property
    def shape(self) -> dict[str, Any]:
        """Sizes."""
        return {"rows": self.rows, "cols": self.cols, "dtype": "fp32"}
