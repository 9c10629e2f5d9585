"""Kernel arguments on the command line: `NAME=SPEC`.

randn:f16[128,64]:seed=1    normal numbers      zeros:f32[64]   ones:...   arange:...
data.npy                    an array file       42:u32          a scalar
tensormap:x:box=64,64:swizzle=128               a tensor map over the argument x (swizzle 128 unless given)
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import rich_click as click

from emu.memory_map import must_fit
from isa.errors import nearest
from programs.tensormap import SWIZZLE_CODES, TensorMap

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
FOREIGN = {np.dtype("V1"): np.dtype(np.uint8), np.dtype("V2"): DTYPES["bf16"]}  # as NumPy reads ml_dtypes back
FILLS = ("zeros", "ones", "arange", "randn")
SWIZZLES = tuple(map(str, SWIZZLE_CODES))
NUMBER = re.compile(r"-?(0x[0-9a-fA-F]+|\d+(\.\d*)?(e[-+]?\d+)?)")
UNREADABLE = (ValueError, EOFError, zipfile.BadZipFile, zlib.error)  # what NumPy raises for files that are no arrays


def read_arguments(names: Sequence[str], specs: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """The values of the parameters `names` in order, and every array by name.

    A spec whose name is no parameter must be an array that a tensor map uses.
    """
    given: dict[str, str] = {}
    for text in specs:
        name, equals, spec = text.partition("=")
        if not equals or not spec:
            raise click.UsageError(f"--arg {text}: write NAME=SPEC")
        if name in given:
            raise click.UsageError(f"--arg {name} is given twice: {given[name]} and {spec}")
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
            return read_npy(spec)
        return _filled(head, rest) if head in FILLS else _scalar(name, head, rest)
    except (ValueError, OverflowError, MemoryError) as error:
        raise click.UsageError(f"--arg {name}={spec}: {error}") from None


def read_npy(file: str) -> Any:
    """The array of an .npy file; ValueError when it holds none that a kernel can use."""
    try:
        array = np.load(file, allow_pickle=False)
    except UNREADABLE:
        raise ValueError("not an .npy file, or one that holds Python objects") from None
    if not isinstance(array, np.ndarray):
        raise ValueError("a file of several arrays; save one with numpy.save")  # noqa: TRY004 - the file is wrong
    array = array.view(FOREIGN.get(array.dtype, array.dtype))
    if array.dtype not in DTYPES.values() and array.dtype != np.bool_:
        raise ValueError(f"elements of type {array.dtype}; known are {', '.join(DTYPES)}")
    return array


def read_npz(file: str) -> dict[str, Any]:
    """The arrays of an .npz file by name."""
    if Path(file).exists() and not zipfile.is_zipfile(file):
        raise click.UsageError(f"--inputs {file}: not an .npz file")
    try:
        with np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays}
    except UNREADABLE:
        raise click.UsageError(f"--inputs {file}: damaged, or it holds Python objects") from None
    if strange := [name for name, value in found.items() if not isinstance(value, np.ndarray)]:
        raise click.UsageError(f"--inputs {file}: its member '{strange[0]}' is no array")
    return found


def _scalar(name: str, text: str, type_name: str) -> Any:
    """`VALUE:TYPE`."""
    if type_name in DTYPES:
        return _number(text, type_name)
    if type_name:
        raise ValueError(f"'{type_name}' is no type; known are {', '.join(DTYPES)}")
    if NUMBER.fullmatch(text):
        kind = "f32" if re.search(r"[.e]", text) and not text.startswith("0x") else "s32" if text[0] == "-" else "u32"
        raise ValueError(f"a number needs a type, as in {name}={text}:{kind}")
    raise ValueError("not an array, a file or a scalar; see `warpsmith run --help`")


def _number(text: str, type_name: str) -> Any:
    """`text` as a scalar; ValueError when it is no number, or none that the type holds."""
    dtype = DTYPES[type_name]
    try:
        number = int(text, 0) if dtype.kind in "iu" else float(text)
    except ValueError:
        raise ValueError(f"'{text}' is no {type_name}") from None
    limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    least, most = (type(number)(limit) for limit in (limits.min, limits.max))
    if math.isfinite(number) and not least <= number <= most:
        raise ValueError(f"a {type_name} is between {least} and {most}")
    return dtype.type(number)


def _filled(fill: str, text: str) -> Any:
    """`TYPE[EXTENT,...]`, for randn with `:seed=N`."""
    kind, _, option = text.partition(":")
    type_name, bracket, extents = kind.partition("[")
    if type_name not in DTYPES or not bracket or not extents.endswith("]"):
        raise ValueError(f"write {fill}:TYPE[EXTENT,...] with a type of {', '.join(DTYPES)}")
    if option and (fill != "randn" or not option.startswith("seed=")):
        raise ValueError(f"'{option}' is no option of {fill}")
    shape = _naturals("extent", extents[:-1])
    dtype = DTYPES[type_name]
    must_fit(math.prod(shape) * dtype.itemsize)
    if fill == "randn":
        seed = _naturals("seed", option.removeprefix("seed=") if option else "0")
        return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    if fill == "arange":
        return np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return np.full(shape, fill == "ones").astype(dtype)


def _naturals(what: str, text: str, least: int = 0) -> tuple[int, ...]:
    """Whole numbers with commas between them; ValueError names the one that is none."""
    for word in text.split(","):
        if not (word.strip().isdecimal() and int(word) >= least):
            raise ValueError(f"{what} '{word}' must be a whole number, at least {least}")
    return tuple(int(word) for word in text.split(","))


def read_map(name: str, spec: str, values: dict[str, Any]) -> tuple[str, TensorMap]:
    """`tensormap:ARG:box=64,64:swizzle=128`: the argument's name and the map."""
    _, base, *options = spec.split(":")
    fields = dict(option.split("=", 1) for option in options if "=" in option)
    if not isinstance(values.get(base), np.ndarray):
        raise click.UsageError(f"--arg {name}={spec}: '{base}' is not an array argument")
    if len(fields) != len(options) or not {"box"} <= fields.keys() <= {"box", "swizzle"}:
        raise click.UsageError(f"--arg {name}={spec}: write tensormap:ARG:box=N,...:swizzle=BYTES")
    try:
        swizzle = fields.get("swizzle", "128")
        if swizzle not in SWIZZLES:
            raise ValueError(f"swizzle '{swizzle}' must be one of {', '.join(SWIZZLES)}")
        return base, TensorMap(values[base], _naturals("box size", fields["box"], least=1), int(swizzle))
    except ValueError as error:
        raise click.UsageError(f"--arg {name}={spec}: {error}") from None
