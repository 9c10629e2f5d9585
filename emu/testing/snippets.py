"""Kernels and pieces of PTX in tests: assembled once, run with a line, with assertions that explain themselves."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emu.api import Kernel, launch, load
from emu.chaos import Chaos
from emu.explain.chaos import compare
from emu.machine import Machine, load_machine
from emu.result import Result
from emu.views.deadlock import deadlock, findings

Run = Callable[[Chaos | None], Result]
REGISTERS = ".reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %d<32>; .reg .f32 %f<64>;"
HEAD = ".version 8.8\n.target {target}\n.address_size 64\n"


class Snippets:
    """Assembles and runs on one machine; the fixture `warpsmith` is one, on the machine of the test's marker."""

    def __init__(
        self, machine: str | Path | Machine = "h200", overrides: Sequence[str] = (), folder: str | Path = "."
    ) -> None:
        self.folder = Path(folder)
        self.machine = machine if isinstance(machine, Machine) else load_machine(str(machine), tuple(overrides))

    def load(
        self, source: str | Path, *, defines: Mapping[str, Any] | None = None, params: str = "", shared: str = ""
    ) -> Kernel:
        """A kernel from a file (a relative name is one in `folder`: with the fixture, that of the test), its text, or a body.

        A body has registers %p0.. (predicates), %h, %r, %d and %f (16, 32, 64 bits, f32); `params` ("u64 out, u32 n,
        tensormap map") are in registers of their names; `shared` declares variables.  Assembled once.
        """
        target = self.machine.targets[0]
        if "\n" not in str(source) and str(source).endswith((".mptx", ".ptx")):
            source = self.folder / source
        return _load(str(source), tuple(sorted((defines or {}).items())), params, shared, target)

    def run(
        self,
        source: str | Path | Kernel,
        *args: Any,
        defines: Mapping[str, Any] | None = None,
        params: str = "",
        shared: str = "",
        **options: Any,
    ) -> Result:
        """Load and launch with `args`; options (`grid`, `block`, `chaos`, `max_cycles`, ...) as `emu.launch` has them.

        A block of 32 and ten million cycles are the default.
        """
        kernel = (
            source if isinstance(source, Kernel) else self.load(source, defines=defines, params=params, shared=shared)
        )
        options = {"block": kernel.program.block_hint or 32, "max_cycles": 10_000_000} | options
        return launch(kernel, machine=self.machine, args=args, **options)

    assert_clean: Callable[[Result], None]
    assert_cycles: Callable[..., None]
    assert_unchanged: Callable[..., None]


@functools.cache
def _load(source: str, defines: tuple[tuple[str, Any], ...], params: str, shared: str, target: str) -> Kernel:
    if "\n" not in source and source.endswith((".mptx", ".ptx")):
        return load(Path(source), defines=dict(defines))
    if re.search(r"^\s*\.version", source, re.MULTILINE):
        return load(text=source, defines=dict(defines))
    return load(text=_kernel(source, params, shared, target), defines=dict(defines))


def _kernel(body: str, params: str, shared: str, target: str) -> str:
    declared, loads = [], []
    for kind, name in (pair.split() for pair in params.split(",") if pair.strip()):
        if kind == "tensormap":
            declared.append(f".param .align 64 .b8 {name}[128]")
            loads.append(f".reg .b64 %{name}; mov.b64 %{name}, {name}; cvta.param.u64 %{name}, %{name};")
        else:
            declared.append(f".param .{kind} {name}")
            loads.append(f".reg .{kind} %{name}; ld.param.{kind} %{name}, [{name}];")
    head = HEAD.format(target=target) + f".visible .entry snippet({', '.join(declared)})\n{{\n"
    return f"{head}{REGISTERS} {shared} {' '.join(loads)}\n{body}\nret;\n}}\n"


def assert_clean(result: Result) -> None:
    """No deadlock and no finding above `info`; the message is the report."""
    serious = [f for f in result.findings if f.severity != "info"]
    assert result.deadlock is None and not serious, "\n" + findings(result) + deadlock(result)


def assert_cycles(result: Result, *, at_least: int = 0, at_most: int | None = None) -> None:
    """The cycles lie between the two."""
    assert result.cycles >= at_least, f"{result.cycles:,} cycles, at least {at_least:,} were expected"
    assert at_most is None or result.cycles <= at_most, f"{result.cycles:,} cycles, at most {at_most:,} were expected"


def assert_unchanged(run: Run, seeds: int | Sequence[int] = 20) -> None:
    """`run(chaos)`, which starts from the same inputs every time, has the same outputs under every seed as without.

    It returns the Result of the launch (TypeError otherwise).  The message names the fewest perturbations that change
    the outputs.
    """

    def checked(chaos: Chaos | None) -> Result:
        result: object = run(chaos)
        if not isinstance(result, Result):
            raise TypeError(f"assert_unchanged: run(chaos) must return the Result of the launch, not {result!r}")
        return result

    for seed in range(seeds) if isinstance(seeds, int | np.integer) else seeds:
        assert_clean(compare(checked, Chaos(int(seed))))


for _function in (assert_clean, assert_cycles, assert_unchanged):
    setattr(Snippets, _function.__name__, staticmethod(_function))
