"""Kernel arguments on the command line: `NAME=SPEC`.

randn:f16[128,64]:seed=1    normal numbers      zeros:f32[64]   ones:...   arange:...
data.npy                    an array file       42:u32          a scalar
tensormap:x:box=64,64:swizzle=128               a tensor map over the argument x
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import rich_click as click

from isa.errors import nearest
from programs.tensormap import TensorMap

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
        "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
        "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
        "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
        "b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64,
    }.items()
}  # fmt: skip
FILLS = ("zeros", "ones", "arange", "randn")


def read_arguments(names: Sequence[str], specs: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """The values of the parameters `names` in order, and every array by name.

    A spec whose name is no parameter must be an array that a tensor map uses.
    """
    given: dict[str, str] = {}
    for text in specs:
        name, equals, spec = text.partition("=")
        if not equals or not spec:
            raise click.UsageError(f"--arg {text}: write NAME=SPEC")
        given[name] = spec
    values: dict[str, Any] = {n: read_value(n, s) for n, s in given.items() if not s.startswith("tensormap:")}
    used: set[str] = set()
    for name, spec in given.items():
        if spec.startswith("tensormap:"):
            base, values[name] = read_map(name, spec, values)
            used.add(base)
    if missing := [name for name in names if name not in values]:
        raise click.UsageError(f"missing: {' '.join(f'--arg {name}=SPEC' for name in missing)}")
    if unknown := [name for name in values if name not in names and name not in used]:
        raise click.UsageError(f"--arg {unknown[0]}: no such parameter. {nearest(unknown[0], names)}".rstrip())
    return [values[name] for name in names], {n: v for n, v in values.items() if isinstance(v, np.ndarray)}


def read_value(name: str, spec: str) -> Any:
    """An array or a scalar."""
    head, _, rest = spec.partition(":")
    try:
        if spec.endswith(".npy"):
            return np.load(spec, allow_pickle=False)
        if head in FILLS:
            return _filled(head, rest)
        dtype = DTYPES[rest]
        return dtype.type(int(head, 0) if dtype.kind in "iu" else float(head))
    except KeyError:
        raise click.UsageError(f"--arg {name}={spec}: see `warpsmith run --help`") from None
    except (ValueError, OverflowError) as error:
        raise click.UsageError(f"--arg {name}={spec}: {error}") from None


def _filled(fill: str, text: str) -> Any:
    """`TYPE[EXTENT,...]`, for randn with `:seed=N`."""
    kind, _, option = text.partition(":")
    type_name, bracket, extents = kind.partition("[")
    if type_name not in DTYPES or not bracket or not extents.endswith("]"):
        raise ValueError(f"write {fill}:TYPE[EXTENT,...] with a type of {', '.join(DTYPES)}")
    if option and (fill != "randn" or not option.startswith("seed=")):
        raise ValueError(f"'{option}' is no option of {fill}")
    shape = tuple(int(n) for n in extents[:-1].split(","))
    dtype = DTYPES[type_name]
    if fill == "randn":
        return np.random.default_rng(int(option.removeprefix("seed=") or 0)).standard_normal(shape).astype(dtype)
    if fill == "arange":
        return np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return np.full(shape, fill == "ones").astype(dtype)


def read_map(name: str, spec: str, values: dict[str, Any]) -> tuple[str, TensorMap]:
    """`tensormap:ARG:box=64,64:swizzle=128`: the argument's name and the map."""
    _, base, *options = spec.split(":")
    fields = dict(option.split("=", 1) for option in options if "=" in option)
    if not isinstance(values.get(base), np.ndarray):
        raise click.UsageError(f"--arg {name}={spec}: '{base}' is not an array argument")
    if len(fields) != len(options) or not {"box"} <= fields.keys() <= {"box", "swizzle"}:
        raise click.UsageError(f"--arg {name}={spec}: write tensormap:ARG:box=N,...:swizzle=BYTES")
    try:
        box = tuple(int(n) for n in fields["box"].split(","))
        return base, TensorMap(values[base], box, int(fields.get("swizzle", 128)))
    except ValueError as error:
        raise click.UsageError(f"--arg {name}={spec}: {error}") from None
