"""The decorator of the core's functions.

Numba compiles a callee once per *literal* argument (`f(x, 0)` and `f(x, 1)` are two types), which
doubled the core's compile time; `compiled` types literals by their value's type, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.types import unliteral


def compiled(function: Callable[..., Any]) -> Any:
    """Like `njit`, with one specialisation for all literal arguments and no division checks."""
    dispatcher = njit(error_model="numpy")(function)
    template = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        return template([unliteral(a) for a in args], {name: unliteral(a) for name, a in kws.items()})

    dispatcher.get_call_template = get_call_template
    return dispatcher
