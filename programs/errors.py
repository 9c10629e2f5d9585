"""Outputs against a float64 reference: error measures, and in words what is wrong, where, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Index = tuple[int | slice, ...]  # of a part of an array


@dataclass(frozen=True)
class Numerics:
    """Outputs against the float64 reference.

    `rel_error` is the Frobenius norm of the difference over that of the reference, over all checked tiles; `failed` says of
    every output that differs too much which one it is, where, and by how much.
    """

    max_abs_error: float
    rel_error: float
    reference: str
    tiles_checked: int
    tolerance: float
    failed: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every output is near enough."""
        return not self.failed


class ErrorSum:
    """Accumulates the errors of output `name` block by block, so that a reference never has to be held whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.max_abs = 0.0
        self.farthest = ""
        self.squares = 0.0
        self.reference_squares = 0.0
        self.tiles = 0
        self.reference_nan = False

    def add(self, output: Array, index: Index, reference: NDArray[np.float64]) -> None:
        """Compare one tile, `output[index]`."""
        got = output[index].astype(np.float64)
        difference = differences(got, reference)
        worst = float(difference.max(initial=0.0))
        if worst > self.max_abs:
            self.max_abs, self.farthest = worst, _where(self.name, index, got, reference, difference)
        self.squares += float(np.sum(difference**2))
        self.reference_squares += float(np.sum(reference[np.isfinite(reference)] ** 2))
        self.reference_nan |= bool(np.isnan(reference).any())
        self.tiles += 1

    @property
    def relative(self) -> float:
        """Frobenius norm of the error over that of the reference."""
        if self.reference_squares > 0:
            return float(np.sqrt(self.squares / self.reference_squares))
        return 0.0 if self.squares == 0 else float("inf")

    def numerics(self, reference: str, tolerance: float, *others: Excess) -> Numerics:
        """The verdict, on this output and on `others`."""
        reference += ", which has NaN" if self.reference_nan else ""
        failed = [other.text for other in others if other.text]
        if not self.relative <= tolerance:
            text = f"{self.name} has a relative error of {self.relative:.2e}, at most {tolerance:.2e} may be"
            failed.insert(0, f"{text}; farthest off is {self.farthest}")
        return Numerics(self.max_abs, self.relative, reference, self.tiles, tolerance, tuple(failed))


class Excess:
    """The element of output `name` that is farthest beyond its own limit, in words; `text` is empty when none is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = ""
        self._most = 1.0

    def add(self, output: Array, index: Index, reference: NDArray[np.float64], limit: NDArray[np.float64]) -> None:
        """Compare one tile, `output[index]`, each element with its positive limit."""
        got = output[index].astype(np.float64)
        difference = differences(got, reference)
        times = difference / limit
        at = int(times.argmax())
        if times.flat[at] > self._most:
            self._most = float(times.flat[at])
            self.text = (
                f"{_where(self.name, index, got, reference, times)} (at most {limit.flat[at]:.2e} may be between them)"
            )


def differences(got: Array, reference: Array) -> Array:
    """|got - reference|; NaN equals NaN, an infinity equals itself, and one on one side only is infinitely far off."""
    with np.errstate(invalid="ignore"):
        found: Array = np.abs(got - reference)
    found[(got == reference) | np.isnan(got) & np.isnan(reference)] = 0.0
    found[np.isnan(found)] = np.inf
    return found


def _where(name: str, index: Index, got: Array, reference: Array, badness: Array) -> str:
    """`o[0, 17, 2, 5], which is 0.5 and not 0.25`: the worst element of the part `index` of an array."""
    at = np.unravel_index(int(badness.argmax()), badness.shape)
    cell = ", ".join(map(str, _place(index, [int(x) for x in at])))
    return f"{name}[{cell}], which is {got[at]:.7g} and not {reference[at]:.7g}"


def _place(index: Index, inside: Sequence[int]) -> list[int]:
    """Where element `inside` of the part `index` lies in the whole array."""
    rest = list(inside)
    placed = [entry if isinstance(entry, int) else (entry.start or 0) + rest.pop(0) for entry in index]
    return placed + rest
