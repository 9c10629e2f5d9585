"""How the core's functions are compiled: each once, and optimised only inside the core.

Numba compiles every function to machine code of its own, with all that it calls inlined, and compiles a
callee again for each literal argument (`f(x, 0)` and `f(x, 1)` are two types). The core has over a hundred
functions that only the core calls. `compiled` types literals by their value's type and leaves a function as
LLVM code; `core` gives the cycle loop a library that links them all and optimises once. It halved
the cold compile (measured: docs/speed.md).

Functions of `compiled` have no entry point of their own: Python calls them through `py_func` or a `njit` wrapper.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from numba import njit, types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.types import unliteral
from numba.extending import intrinsic


class _Linking(JITCodeLibrary):
    """A library that links what its callees link, so that nothing needs to be linked in between."""

    def add_linking_library(self, library: Any) -> None:
        super().add_linking_library(library)
        if isinstance(library, _Linking):
            self._linking_libraries.extend(library._linking_libraries)


class _Part(_Linking):
    """LLVM code for others to link: neither optimised as a whole nor turned into machine code."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalize_dynamic_globals()
        self._finalized = True

    @property
    def codegen(self) -> Any:
        return _NoEnvironment(super().codegen)

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return ctypes.cast(_no_entry, ctypes.c_void_p).value or 0


class _NoEnvironment:
    """A code generator that does not look for the environment of code that was never loaded."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        pass


@ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
def _no_entry(*_: Any) -> Any:
    """What Python gets when it calls a part: an error, not a jump to nowhere."""
    raise TypeError("functions of the core have no entry point: use .py_func, or call them from a njit function")


class PartCompiler(Compiler):
    """Numba's pipeline with a `_Part` as the result."""

    def define_pipelines(self) -> Any:
        self.state.library = _Part(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()


class CoreCompiler(Compiler):
    """Numba's pipeline for the function that is called from Python."""

    def define_pipelines(self) -> Any:
        library = _Linking(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        library.enable_object_caching()
        self.state.library = library
        return super().define_pipelines()


def compiled(function: Callable[..., Any]) -> Any:
    """Like `njit`, for functions that only compiled functions call."""
    dispatcher: Any = njit(error_model="numpy", pipeline_class=PartCompiler)(function)
    template = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        return template([unliteral(a) for a in args], {name: unliteral(a) for name, a in kws.items()})

    dispatcher.get_call_template = get_call_template
    return dispatcher


def core(function: Callable[..., Any]) -> Any:
    """Like `njit(cache=True)`, for the core and for the entry of a unit: what has machine code of its own.

    Other threads run meanwhile.
    """
    return njit(cache=True, nogil=True, error_model="numpy", pipeline_class=CoreCompiler)(function)


@intrinsic
def call_unit(typing, address, S, C, W, I, op, t, m):
    """Call a unit's `run(S, C, W, I, op, t, m) -> int64` (emu/generate.py) at its address."""
    int64 = types.int64
    arguments = (S, C, W, I, int64, int64, int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function_type = context.call_conv.get_function_type(int64, arguments)
        result, error = (cgutils.alloca_once(builder, kind.pointee) for kind in function_type.args[:2])
        function = builder.inttoptr(args[0], function_type.as_pointer())
        builder.call(function, [result, error, *args[1:]])  # units raise nothing: the status is always success
        return builder.load(result)

    return int64(int64, *arguments), generate
