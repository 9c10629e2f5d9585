"""Instructions that every active lane issues for itself: bulk copies and the commands of tcgen05."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emu.compiled import compiled
from emu.units.common import DEFAULT, RETRY


def each_lane(room: Any) -> Callable[[Callable[..., bool]], Any]:
    """Make a routine of `issue(S, C, W, I, t, lane)`, which one lane executes and which is False after a fault.

    The lanes follow one another once `room(S, C, W, t, m)` has places for those of m; till then the warp tries again.
    """

    def decorate(issue: Callable[..., bool]) -> Any:
        one = compiled(issue)

        def routine(S, C, W, I, t, m):
            if m == 0:
                return DEFAULT
            if not room(S, C, W, t, m):
                return RETRY
            for lane in range(32):
                if (m >> lane) & 1 and not one(S, C, W, I, t, lane):
                    break
            return DEFAULT

        routine.__name__, routine.__module__, routine.__doc__ = issue.__name__, issue.__module__, issue.__doc__
        return compiled(routine)

    return decorate
