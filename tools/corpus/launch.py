"""One launch of a corpus kernel: its inputs as the manifest describes them, a run, and the check of its outputs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from emu import api
from emu.machine import Machine
from emu.memory_map import LaunchError, Struct
from emu.result import Result
from isa.errors import AssemblyError, UnsupportedError
from programs.tensormap import TensorMap
from tools.corpus.manifest import Check, Corpus, Entry, Launch, Param

FIELDS: dict[str, Any] = {
    f"{kind}{bits}": np.dtype(f"{kind}{bits // 8}").type for kind in "iu" for bits in (8, 16, 32, 64)
}
FIELDS |= {f"fp{bits}": np.dtype(f"f{bits // 8}").type for bits in (16, 32, 64)}
SWIZZLES = {"none": 0, "32B": 32, "64B": 64, "128B": 128}


@dataclass(frozen=True)
class Outcome:
    """What came of a launch: `right`, `wrong`, `fault` or `refused`, with a reason unless it is right."""

    entry: Entry
    launch: str
    verdict: str
    reason: str = ""
    result: Result | None = None


def attempt(
    corpus: Corpus,
    entry: Entry,
    machine: Machine,
    launch: str = "one",
    max_cycles: int | None = None,
    warm: bool = False,
) -> Outcome:
    """Assemble, run and check one kernel; everything that can go wrong is in the outcome.  `warm`: its data lies in L2."""
    try:
        kernel = api.load(corpus.path(entry), kernel=entry.entry)
    except AssemblyError as error:
        return Outcome(entry, launch, "refused", refusal(error))
    plan = entry.launches[launch]
    arrays = buffers(corpus, plan)
    inputs = {name: array.copy() for name, array in arrays.items()}
    try:
        result = start(kernel, entry, plan, arrays, machine, max_cycles, warm)
    except LaunchError as error:
        return Outcome(entry, launch, "refused", str(error))
    if stopped := trouble(result):
        return Outcome(entry, launch, "fault", stopped, result)
    expected = corpus.rules.expected(
        {"check": [{"output": c.output, "expr": c.expr} for c in entry.check]}, {"dims": plan.dims}, inputs
    )
    wrong = [text for check in entry.check if (text := compare(check, launch, plan, arrays, expected))]
    return Outcome(entry, launch, "wrong" if wrong else "right", "; ".join(wrong), result)


def refusal(error: AssemblyError) -> str:
    """The instructions that are missing, or the first message."""
    if isinstance(error, UnsupportedError):
        quoted = [re.findall(r"'([^']+)'", finding.message) for finding in error.diagnostics]
        return ", ".join(sorted({words[-1] for words in quoted}))
    return error.diagnostics[0].render().splitlines()[0]


def buffers(corpus: Corpus, plan: Launch) -> dict[str, np.ndarray]:
    """Every buffer of a launch by name, with its initial contents; scratch memory holds zeros."""
    arrays: dict[str, np.ndarray] = {}
    for param in plan.params:
        if param.kind in ("ptr", "buffer", "tensormap"):
            arrays[param.name] = corpus.rules.make(param.dtype, param.shape, param.init)
        elif param.kind == "scratch" and param.bytes_per_cta:
            arrays[param.name] = np.zeros(param.bytes_per_cta * prod(plan.grid), np.uint8)
    return arrays


def arguments(plan: Launch, arrays: dict[str, np.ndarray]) -> list[Any]:
    """The launch's arguments in the order of the kernel's parameters."""
    args: list[Any] = []
    for param in plan.params:
        if param.kind in ("ptr", "scratch"):
            args.append(arrays.get(param.name, 0))
        elif param.kind == "scalar":
            args.append(param.value)
        elif param.kind == "bytes":
            args.append(Struct(*(field(kind, value, arrays) for kind, value in param.fields)))
        elif param.kind == "tensormap":
            args.append(TensorMap(arrays[param.name], box=tuple(param.box[::-1]), swizzle=SWIZZLES[param.swizzle]))
            args += [extent(text, param) for text in param.expands_to[1:]]
    return args


def field(kind: str, value: float | str, arrays: dict[str, np.ndarray]) -> Any:
    """One field of a struct: an array for `ptr`, else a number of its type."""
    return arrays[str(value)] if kind == "ptr" else FIELDS[kind](value)


def extent(text: str, param: Param) -> int:
    """`i32 shape[0]` or `i64 stride[1]`, in elements."""
    found = re.fullmatch(r"i\d+ (shape|stride)\[(\d)\]", text)
    assert found, text
    return (param.shape if found[1] == "shape" else param.strides)[int(found[2])]


def start(
    kernel: api.Kernel,
    entry: Entry,
    plan: Launch,
    arrays: dict[str, np.ndarray],
    machine: Machine,
    max_cycles: int | None,
    warm: bool = False,
) -> Result:
    """Run the launch; the arrays are updated in place."""
    return api.launch(
        kernel,
        machine=machine,
        grid=plan.grid,
        block=plan.block,
        cluster=entry.cluster if prod(entry.cluster) > 1 else None,
        args=arguments(plan, arrays),
        shared_bytes=entry.dynamic_shared_bytes,
        max_cycles=max_cycles,
        warm=warm,
    )


def trouble(result: Result) -> str:
    """Why a run did not end by itself, or nothing."""
    if result.deadlock is not None:
        return f"deadlock: {result.deadlock.message}"
    ended = [f for f in result.findings if f.severity in ("fault", "limit")]
    return f"{ended[0].location}: {ended[0].message}" if ended else ""


def compare(
    check: Check, launch: str, plan: Launch, arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]
) -> str:
    """How an output misses its tolerance, or nothing."""
    part = plan.check_slice.get(check.output, "")
    got = np.asarray(eval(f"a{part}", {"a": arrays[check.output]})).astype(np.float64)
    want = np.asarray(eval(f"a{part}", {"a": expected[check.output]})).astype(np.float64)
    atol = check.atol_full if launch == "full" and check.atol_full is not None else check.atol
    if got.shape != want.shape:
        want = want.reshape(got.shape)
    with np.errstate(invalid="ignore"):
        off = ~(np.abs(got - want) <= atol + check.rtol * np.abs(want))
    if not off.any():
        return ""
    first = tuple(int(k) for k in np.argwhere(off)[0])
    return f"{check.output}: {off.sum():,} of {off.size:,} elements, first [{', '.join(map(str, first))}] is {got[first]:g}, expected {want[first]:g}"
