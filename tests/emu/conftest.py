"""A PTX body in a kernel skeleton, run on one SM of the emulated H200."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import emu
import emu.chip
from emu.api import Kernel, _shape, _three
from emu.chip import Chip
from emu.cli import execute
from emu.link import link
from emu.machine import Machine, load_machine
from emu.memory_map import MemoryMap
from emu.result import Result
from emu.sm import StreamingMultiprocessor

SKELETON = """
.version 8.8
.target {target}
.address_size 64
{outside}
.visible .entry test({declared})
{directives}
{{
    .reg .pred %p<16>;
    .reg .b16 %h<16>;
    .reg .b32 %r<100>;
    .reg .b64 %d<32>;
    .reg .f32 %f<200>;
    {registers}
    {shared}
    {loads}
{body}
    ret;
}}
"""


@functools.cache
def assemble(
    body: str, params: str = "", shared: str = "", outside: str = "", directives: str = "", target: str = "sm_90a"
) -> Kernel:
    """A kernel of `body`; each of `params` ("u64 out, u32 n") is in the register of its name.

    A `tensormap` parameter's register holds its generic address.  `shared` declares variables.
    """
    pairs = [pair.split() for pair in params.split(",") if pair.strip()]
    declared, registers, loads = [], [], []
    for kind, name in pairs:
        if kind == "tensormap":
            declared.append(f".param .align 64 .b8 {name}[128]")
            registers.append(f".reg .b64 %{name};")
            loads.append(f"mov.b64 %{name}, {name}; cvta.param.u64 %{name}, %{name};")
        else:
            declared.append(f".param .{kind} {name}")
            registers.append(f".reg .{kind} %{name};")
            loads.append(f"ld.param.{kind} %{name}, [{name}];")
    text = SKELETON.format(
        outside=outside, declared=", ".join(declared), registers=" ".join(registers), shared=shared,
        loads=" ".join(loads), body=body, directives=directives, target=target,
    )  # fmt: skip
    return emu.load(text=text)


@functools.cache
def one_sm(target: str = "sm_90a") -> Machine:
    """The H200 (for Blackwell's targets the B200) cut down to one SM, so that every CTA runs on it."""
    return load_machine("b200" if target.startswith("sm_10") else "h200", ("chip.sms=1",))


def run(
    body: str,
    params: str = "",
    args: Sequence[Any] = (),
    *,
    shared: str = "",
    outside: str = "",
    directives: str = "",
    target: str = "sm_90a",
    **options: Any,
) -> Result:
    """Assemble and launch (block 32, at most a million cycles)."""
    options = {"machine": one_sm(target), "block": 32, "max_cycles": 1_000_000} | options
    return emu.launch(assemble(body, params, shared, outside, directives, target), args=args, **options)


def step(
    kernel: Kernel, args: Sequence[Any], block: int, grid: Any = 1, shared_bytes: int = 0
) -> StreamingMultiprocessor:
    """Run a kernel on one SM and keep the SM with all its state."""
    machine = one_sm()
    shape = _shape(kernel.program, machine, _three(grid), _three(block), shared_bytes)
    memory = MemoryMap(kernel.program)
    memory.bind(args)
    chip = Chip(kernel.program, machine, link(kernel.program, machine), shape, memory)
    return chip.run(10_000_000, shed=False)[-1]


@pytest.fixture(scope="session")
def ptx() -> SimpleNamespace:
    """`assemble`, `run`, `step`, `one_sm` of this file."""
    return SimpleNamespace(assemble=assemble, run=run, step=step, machine=one_sm)


@pytest.fixture
def quantum(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`quantum(n)`: the core returns to Python every n cycles."""
    return lambda cycles: monkeypatch.setattr(emu.chip, "QUANTUM_CYCLES", cycles)


@pytest.fixture
def warpsmith(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Run a command line; gives exit code, stdout and stderr."""

    def command(*args: str) -> SimpleNamespace:
        code = execute(args)
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return command
