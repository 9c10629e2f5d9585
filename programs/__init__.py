"""The shipped programs: kernels (`.mptx`) and, beside them, the problems that they solve.

problem = programs.find("fa3").from_options(seqlen=1024, heads=16)
inputs = problem.make_inputs(seed=0)
launch = problem.launch(inputs, sms=132)
...                                        # run problem.kernel_path with problem.defines
numerics = problem.check({name: launch.arrays[name] for name in problem.outputs}, inputs)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from programs.problem import Problem

_CLASSES = {
    "fa1": "programs.attention_sync:FlashAttention1",
    "fa2": "programs.attention_sync:FlashAttention2",
    "fa3": "programs.attention:FlashAttention3",
    "fa4": "programs.attention_fa4:FlashAttention4",
    "gemm": "programs.gemm:Gemm",
    "softmax": "programs.softmax:Softmax",
    "vector_add": "programs.vector_add:VectorAdd",
}


def names() -> tuple[str, ...]:
    """The names of the shipped programs."""
    return tuple(_CLASSES)


def find(name: str) -> type[Problem]:
    """The problem class of the program `name`; KeyError when there is none (see `names`)."""
    module, _, attribute = _CLASSES[name].partition(":")
    found: type[Problem] = getattr(importlib.import_module(module), attribute)
    return found
