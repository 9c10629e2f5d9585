"""Sum of two vectors in f32."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from programs.errors import Array, ErrorSum, Numerics
from programs.problem import Define, Launch, Option, Problem, ceildiv

TOLERANCE = 1e-7  # one rounding to f32: at most 2^-24 of each element


class VectorAdd(Problem):
    """c = a + b by `vector_add.mptx`."""

    kernel = "vector_add"
    axes = MappingProxyType({"a": ("n",), "b": ("n",)})
    outputs = MappingProxyType({"c": ("n",)})
    options = (Option("n", int, 1 << 20, "elements"),)

    def validate(self) -> None:
        """ValueError for an empty vector."""
        self.positive("n")
        self.n = int(self.values["n"])

    def default_defines(self) -> dict[str, Define]:
        """Threads a CTA."""
        return {"BLOCK": 256}

    def make_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Normal a and b."""
        rng = np.random.default_rng(seed)
        return {name: rng.standard_normal(self.n, dtype=np.float32) for name in "ab"}

    def launch(self, inputs: Mapping[str, Array], sms: int) -> Launch:
        """One thread an element."""
        block = int(self.defines["BLOCK"])
        a, b = inputs["a"], inputs["b"]
        c = np.zeros_like(a)
        return Launch(
            grid=(ceildiv(self.n, block), 1, 1),
            block=(block, 1, 1),
            args=(a, b, c, np.uint32(self.n)),
            shared_bytes=0,
            arrays={"a": a, "b": b, "c": c},
        )

    def check(
        self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], tiles: Iterable[int] | None = None
    ) -> Numerics:
        """Compare c with float64; a tile is what one CTA does."""
        errors, block = ErrorSum("c"), int(self.defines["BLOCK"])
        for tile in sorted(set(range(ceildiv(self.n, block)) if tiles is None else tiles)):
            part = slice(tile * block, (tile + 1) * block)
            errors.add(outputs["c"], (part,), inputs["a"][part].astype(np.float64) + inputs["b"][part])
        return errors.numerics("a + b in float64", TOLERANCE)

    @property
    def flops(self) -> int:
        """One addition an element."""
        return self.n

    @property
    def shape(self) -> dict[str, Any]:
        """Size."""
        return {"n": self.n, "dtype": "fp32"}
