"""What every shipped program's problem offers: options, inputs, launch, float64 reference."""

from __future__ import annotations

import abc
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import ml_dtypes
import numpy as np

from programs.errors import Array, Numerics
from programs.tensormap import TensorMap

Define = int | float | str
Argument = Array | np.generic | TensorMap

FLOAT16: dict[str, np.dtype[Any]] = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
OPERAND = {**FLOAT16, "tf32": np.dtype(np.float32)}  # tf32: f32 words whose last 13 bits do not count
PTX_TYPE = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32"}


@dataclass(frozen=True)
class Option:
    """One option of a problem: `type` converts and checks a value (int, float, str, bool), `choices` limits it."""

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[Any, ...] = ()
    command_line: bool = True  # False: from Python only


@dataclass(frozen=True, eq=False)
class Launch:
    """How to start a kernel.

    `args` follow the kernel's parameters.  `arrays` names every array argument, inputs and outputs;
    the kernel's results are read from these same objects.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Argument, ...]
    shared_bytes: int
    arrays: dict[str, Array]
    cluster: int = 1  # CTAs of a cluster, along x


class Problem(abc.ABC):
    """A kernel's task, with its options' values in `values`.

    `axes` names every input and the option (and attribute) behind each extent of its shape, `outputs` every result;
    a problem without `axes` takes no inputs of the user's.
    """

    kernel: ClassVar[str]
    axes: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    options: ClassVar[tuple[Option, ...]]
    outputs: ClassVar[Mapping[str, tuple[str, ...]]]

    def __init__(self, values: Mapping[str, Any], defines: Mapping[str, Define]) -> None:
        self.values = dict(values)
        self.overrides = dict(defines)
        self.validate()
        _ = self.defines  # judges the overrides

    @classmethod
    def from_options(cls, defines: Mapping[str, Define] | None = None, **given: Any) -> Self:
        """Build from options by name; missing ones take their defaults.

        `defines` are assembler defines that the user sets on top of `self.defines`.  ValueError names
        the option that is unknown or out of range.
        """
        known = {option.name: option for option in cls.options}
        if unknown := sorted(set(given) - set(known)):
            raise ValueError(f"unknown option {unknown[0]}; {cls.kernel} takes {', '.join(known)}")
        values = {}
        for name, option in known.items():
            value = given.get(name)
            value = option.default if value is None else option.type(value)
            if option.choices and value not in option.choices:
                raise ValueError(f"{name} must be one of {', '.join(map(str, option.choices))}, not {value}")
            values[name] = value
        return cls(values, defines or {})

    @classmethod
    def sizes_of(cls, arrays: Mapping[str, Array]) -> dict[str, int]:
        """The size options that the user's own inputs imply; ValueError when one is missing or two disagree."""
        if not cls.axes:
            raise ValueError(f"{cls.kernel} makes its own inputs and takes no others")
        sizes: dict[str, int] = {}
        for name, axes in cls.axes.items():
            if name not in arrays:
                raise ValueError(f"input {name} is missing; {cls.kernel} takes {', '.join(cls.axes)}")
            shape = arrays[name].shape
            if len(shape) != len(axes):
                raise ValueError(f"input {name} must have shape [{', '.join(axes)}], it is {list(shape)}")
            for axis, size in zip(axes, shape, strict=True):
                if sizes.setdefault(axis, size) != size:
                    raise ValueError(f"input {name} has {axis} {size}, an input before it {sizes[axis]}")
        return sizes

    @property
    def operand_type(self) -> np.dtype[Any]:
        """The type of the inputs: that of option `dtype`, or f32."""
        return OPERAND[self.values["dtype"]] if "dtype" in self.values else np.dtype(np.float32)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs."""
        return {name: tuple(getattr(self, axis) for axis in axes) for name, axes in self.axes.items()}

    @property
    def array_bytes(self) -> int:
        """Bytes that the inputs and outputs need at least."""
        shapes = [*self.axes.values(), *self.outputs.values()]
        elements: int = sum(math.prod(getattr(self, axis) for axis in axes) for axes in shapes)
        return elements * self.operand_type.itemsize

    def adopt(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The user's own inputs in the problem's type; ValueError when a shape or type is wrong."""
        adopted: dict[str, Array] = {}
        for name, shape in self.shapes.items():
            if name not in arrays or arrays[name].shape != shape:
                found = arrays[name].shape if name in arrays else "missing"
                raise ValueError(f"input {name} must have shape {shape}, it is {found}")
            adopted[name] = as_operand(name, arrays[name], self.operand_type)
        return adopted

    @property
    def kernel_path(self) -> Path:
        """The `.mptx` file."""
        return Path(__file__).with_name(f"{self.kernel}.mptx")

    @property
    def defines(self) -> dict[str, Define]:
        """Every assembler define that the launch depends on, the user's overrides included; ValueError for one that is no number."""
        defaults = self.default_defines()
        for name, value in self.overrides.items():
            if isinstance(defaults.get(name), int) and not _whole(value):
                explained = f"see `warpsmith explain {name}`"
                raise ValueError(
                    f"define {name} is a whole number (default {defaults[name]}), not '{value}'; {explained}"
                )
        return {**defaults, **self.overrides}

    def positive(self, *names: str) -> None:
        """ValueError unless each of these options is at least 1."""
        for name in names:
            if self.values[name] < 1:
                raise ValueError(f"{name} must be at least 1, not {self.values[name]}")

    @abc.abstractmethod
    def validate(self) -> None:
        """ValueError when the kernel cannot do this problem; sets sizes as attributes."""

    @abc.abstractmethod
    def default_defines(self) -> dict[str, Define]:
        """The kernel's defines for these options."""

    @abc.abstractmethod
    def make_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Random inputs by name; equal for equal seeds."""

    @abc.abstractmethod
    def launch(self, inputs: Mapping[str, Array], sms: int) -> Launch:
        """Grid, block and arguments on a chip of `sms` SMs; allocates the outputs."""

    @abc.abstractmethod
    def check(
        self, outputs: Mapping[str, Array], inputs: Mapping[str, Array], tiles: Iterable[int] | None = None
    ) -> Numerics:
        """Compare with float64; `tiles` limits the check to the tiles (in the kernel's order) that were run."""

    def work(self, ctas: int) -> list[tuple[int, ...]]:
        """The tiles of every CTA of a grid of `ctas`, in its order (default: tile t, then every `ctas`-th one)."""
        total = getattr(self, "tiles", ctas)
        return [tuple(range(cta, total, ctas)) for cta in range(ctas)]

    def alike(self, tiles: tuple[int, ...]) -> Hashable:
        """CTAs with tiles for which this is equal do the same amount of work (default: as many tiles)."""
        return len(tiles)

    @property
    @abc.abstractmethod
    def flops(self) -> int:
        """Floating-point operations of the problem, padding not counted."""

    @property
    @abc.abstractmethod
    def shape(self) -> dict[str, Any]:
        """The `problem` field of results."""


def as_operand(name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """`array` rounded to `dtype`; 16-bit patterns (uint16, or the void that NumPy reads back) are bits of bf16."""
    bf16 = FLOAT16["bf16"]
    if array.dtype in (np.dtype(np.uint16), np.dtype("V2")):
        if dtype != bf16:
            raise ValueError(f"input {name} holds {array.dtype}, as bits of bf16 do: they need --dtype bf16")
        return np.ascontiguousarray(array).view(bf16)
    if array.dtype != bf16 and array.dtype.kind != "f":
        allowed = "floating-point numbers" + (", or bits of bf16 as uint16" if dtype == bf16 else "")
        raise ValueError(f"input {name} must hold {allowed}; it holds {array.dtype}")
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(array).astype(dtype)
    if np.any(np.isfinite(array) & ~np.isfinite(rounded)):
        short = next((short for short, kind in FLOAT16.items() if kind == dtype), "fp32")
        raise ValueError(f"input {name}: values do not fit in {short}")
    return rounded


def _whole(value: Define) -> bool:
    """Whether a define is a whole number, or text that reads as one."""
    try:
        return int(value) == float(value)
    except ValueError:
        return False


def ceildiv(a: int, b: int) -> int:
    """The least integer that is not below a / b."""
    return -(-a // b)
