"""Chaos: the same program under other timing that PTX allows.

A seed stands for one way in which copies, wgmma, wake-ups, try_wait and selection turn out (emu/units/chaos.py).
A correct program's results are the same under every seed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Chaos:
    """Timing by `seed` (0 or more), at most `limit` perturbations an SM, only those named in `only`."""

    seed: int
    limit: int | None = None
    only: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 61 or (self.limit is not None and self.limit < 0):
            raise ValueError(f"chaos takes a seed from 0 on and a limit from 0 on, not {self}")

    @classmethod
    def of(cls, value: Chaos | int | str | None) -> Chaos | None:
        """A Chaos from itself, a seed, or `SEED[:N]`; ValueError for anything else."""
        if value is None or isinstance(value, Chaos):
            return value
        seed, colon, limit = str(value).partition(":")
        if not seed.isdecimal() or (colon and not limit.isdecimal()):
            raise ValueError(f"chaos is SEED or SEED:N with whole numbers, not '{value}'")
        return cls(int(seed), int(limit) if colon else None)

    def __str__(self) -> str:
        return f"{self.seed}" + ("" if self.limit is None else f":{self.limit}")
