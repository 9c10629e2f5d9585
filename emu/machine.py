"""Machine files: every number of the timing model, with its source, checked and frozen.

A machine file is TOML.  A number is a table `{ value or formula, source, status }`; `extends` names the
machine that it differs from; a timing class may say `like = "other"`.  `machines/parameters.toml` is the
list of all names.  A formula is arithmetic on the paths of other numbers.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import tomllib
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from emu.stalls import REASONS
from isa.errors import nearest

MACHINES = Path(__file__).parent / "machines"
STATUSES = ("measured", "documented", "derived", "assumed")
TIMING_NUMBERS = ("interval", "latency", "stall")
TIMING_NAMES = ("pipe", "reason", "throttle")


class MachineError(Exception):
    """A machine file, its name or an override is wrong; the text lists every finding."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a machine, with where it comes from.  `formula` is empty for plain values."""

    value: int | float
    source: str
    status: str
    formula: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """The timing class of a warp instruction (cycles; see `machines/parameters.toml`)."""

    pipe: str
    interval: int | float
    latency: int | float
    stall: int | float
    reason: str
    throttle: str


@dataclass(frozen=True)
class Machine:
    """A machine: frozen numbers by path (`unit.tma.queue`, `timing.fma.latency`) and timing classes."""

    name: str
    description: str
    targets: tuple[str, ...]
    numbers: Mapping[str, Number]
    timing: Mapping[str, Timing]
    overrides: tuple[str, ...] = ()

    def __repr__(self) -> str:
        changed = f", {', '.join(self.overrides)}" if self.overrides else ""
        return f"<Machine {self.name}: {', '.join(self.targets)}, {len(self.numbers)} numbers{changed}>"

    def has(self, feature: str) -> bool:
        """Whether it has one of the features that not every machine has ("tcgen05")."""
        return any(path.startswith(parameters().optional[feature]) for path in self.numbers)

    def value(self, path: str) -> int | float:
        """The number at `path`; MachineError with the nearest spelling if there is none."""
        return self.provenance(path).value

    def provenance(self, path: str) -> Number:
        """The number at `path` with source, status and formula."""
        try:
            return self.numbers[path]
        except KeyError:
            raise MachineError(f"{self.name}: no parameter '{path}'. {nearest(path, self.numbers)}") from None


@dataclass(frozen=True)
class Parameters:
    """The names that a machine file must give: scalar paths, timing classes, pipes, with meanings.

    `optional` are features that not every machine has, with the beginnings of their paths: a machine file gives all of
    them or none.
    """

    scalars: Mapping[str, str]
    classes: Mapping[str, str]
    pipes: Mapping[str, str]
    optional: Mapping[str, tuple[str, ...]]

    def missing(self, given: AbstractSet[str]) -> list[str]:
        """What a machine file that gives these paths has left out."""
        words = TIMING_NUMBERS + TIMING_NAMES
        wanted = set(self.scalars) | {f"timing.{c}.{word}" for c in self.classes for word in words}
        for starts in self.optional.values():
            own = {path for path in wanted if path.startswith(starts)}
            if not own & given:
                wanted -= own
        return sorted(wanted - given)


@functools.cache
def parameters() -> Parameters:
    """The list in `machines/parameters.toml`."""
    table = tomllib.loads((MACHINES / "parameters.toml").read_text())
    optional = {name: tuple(starts) for name, starts in table["optional"].items()}
    return Parameters(table["parameters"], table["timing_classes"], table["pipes"], optional)


def machine_names() -> list[str]:
    """The machines that come with the package."""
    return sorted(p.stem for p in MACHINES.glob("*.toml") if p.stem != "parameters")


def load_machine(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Machine:
    """Load and check a machine.

    `name_or_path` is a shipped name (`h200`) or a TOML file; `overrides` are `path=number` what-ifs,
    which formulas see.  Raises MachineError.
    """
    table = _read(str(name_or_path), ())
    problems: list[str] = []
    name = str(table.pop("name", Path(str(name_or_path)).stem))
    where = f"machine {name}" if name_or_path in machine_names() else str(name_or_path)
    description = str(table.pop("description", ""))
    targets = table.pop("targets", [])
    if not targets:
        problems.append("missing: targets")
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        problems.append('targets: write the names of .target lines, as ["sm_90a"]')
    _apply_like(table.get("timing", {}), problems)
    leaves, words = _flatten(table, problems)
    _override(leaves, overrides, problems)
    _check_names(leaves, words, problems)
    if problems:
        raise MachineError("\n".join(f"{where}: {p}" for p in problems))
    numbers = _resolve(leaves, problems)
    if problems:
        raise MachineError("\n".join(f"{where}: {p}" for p in problems))
    timing = {c: _timing(f"timing.{c}", words, numbers) for c in parameters().classes if f"timing.{c}.pipe" in words}
    return Machine(
        name, description, tuple(targets), MappingProxyType(numbers), MappingProxyType(timing), tuple(sorted(overrides))
    )


def differences(a: Machine, b: Machine) -> list[tuple[str, Number, Number]]:
    """The paths at which two machines have different values."""
    pairs = ((path, a.numbers[path], b.numbers[path]) for path in a.numbers if path in b.numbers)
    return [(path, x, y) for path, x, y in pairs if x.value != y.value]


def _timing(path: str, words: Mapping[str, str], numbers: Mapping[str, Number]) -> Timing:
    interval, latency, stall = (numbers[f"{path}.{key}"].value for key in TIMING_NUMBERS)
    return Timing(words[f"{path}.pipe"], interval, latency, stall, words[f"{path}.reason"], words[f"{path}.throttle"])


# ---- reading ------------------------------------------------------------------------------------


def _read(name_or_path: str, chain: tuple[Path, ...]) -> dict[str, Any]:
    path = _locate(name_or_path, chain[-1].parent if chain else None)
    if path in chain:
        circle = " -> ".join(p.stem for p in (*chain[chain.index(path) :], path))
        raise MachineError(f"{path}: extends runs in a circle: {circle}")
    try:
        table = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MachineError(f"{path}: not TOML: {error}") from None
    base = table.pop("extends", None)
    return table if base is None else _merge(_read(str(base), (*chain, path)), table)


def _locate(name_or_path: str, beside: Path | None) -> Path:
    if name_or_path in machine_names():
        return MACHINES / f"{name_or_path}.toml"
    path = Path(name_or_path)
    if beside is not None and not path.is_absolute():
        path = beside / path
    if not path.is_file():
        known = machine_names()
        hint = nearest(name_or_path, known) or f"known machines: {', '.join(known)}; or a path to a TOML file"
        raise MachineError(f"no machine '{name_or_path}'. {hint}")
    return path.resolve()


def _is_leaf(table: Mapping[str, Any]) -> bool:
    return "value" in table or "formula" in table


def _merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in top.items():
        old = out.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and not _is_leaf(value) and not _is_leaf(old):
            out[key] = _merge(old, value)
        else:
            out[key] = value
    return out


def _apply_like(classes: Any, problems: list[str]) -> None:
    """Fill timing classes from the class that they are like, in any order of definition; `_flatten` judges what is no table."""
    tables = {n for n, table in classes.items() if isinstance(table, dict)} if isinstance(classes, dict) else set()

    def filled(name: str, chain: tuple[str, ...]) -> dict[str, Any]:
        own = dict(classes[name])
        other = own.pop("like", None)
        if other is None:
            return own
        if other not in classes:
            problems.append(f"timing.{name}.like: no class '{other}'. {nearest(str(other), classes)}")
            return own
        if other not in tables:
            return own
        if other in chain:
            problems.append(f"timing.{name}.like runs in a circle")
            return own
        return {**filled(other, (*chain, other)), **own}

    full = {name: filled(name, (name,)) for name in tables}
    if full:
        classes.update(full)


def _flatten(table: Mapping[str, Any], problems: list[str]) -> tuple[dict[str, Number], dict[str, str]]:
    leaves: dict[str, Number] = {}
    words: dict[str, str] = {}

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for key, value in node.items():
            path = f"{prefix}{key}"
            if isinstance(value, str):
                words[path] = value
            elif not isinstance(value, dict):
                problems.append(f"{path}: write {{ value = {value}, source = ..., status = ... }}")
            elif _is_leaf(value):
                leaves[path] = _number(path, value, problems)
            else:
                walk(value, f"{path}.")

    walk(table, "")
    return leaves, words


def _number(path: str, leaf: Mapping[str, Any], problems: list[str]) -> Number:
    for key in leaf:
        if key not in ("value", "formula", "source", "status"):
            hint = nearest(key, ("value", "formula", "source", "status"))
            problems.append(f"{path}: unknown key '{key}'. {hint}")
    value, formula = leaf.get("value", math.nan), leaf.get("formula", "")
    if ("value" in leaf) == ("formula" in leaf):
        problems.append(f"{path}: give either value or formula")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        problems.append(f"{path}: the value is not a number: {value!r}")
        value = math.nan
    if not leaf.get("source"):
        problems.append(f"{path}: missing source")
    if leaf.get("status") not in STATUSES:
        problems.append(f"{path}: status must be one of {', '.join(STATUSES)}")
    return Number(value, str(leaf.get("source", "")), str(leaf.get("status", "")), str(formula))


# ---- checking -----------------------------------------------------------------------------------


def _override(leaves: dict[str, Number], overrides: Sequence[str], problems: list[str]) -> None:
    for text in overrides:
        path, equals, number = text.partition("=")
        known = "`warpsmith machine show NAME` lists them"
        if not equals:
            problems.append(f"override '{text}': write path=number")
        elif path not in leaves:
            problems.append(f"override '{text}': no parameter '{path}'. {nearest(path, leaves) or known}")
        else:
            try:
                leaves[path] = Number(_integral(float(number)), f"override {text}", "assumed")
            except (ValueError, OverflowError):
                problems.append(f"override '{text}': '{number}' is not a number")


def _check_names(leaves: Mapping[str, Number], words: Mapping[str, str], problems: list[str]) -> None:
    known = parameters()
    numbers = set(known.scalars) | {f"timing.{c}.{n}" for c in known.classes for n in TIMING_NUMBERS}
    names = {f"timing.{c}.{w}" for c in known.classes for w in TIMING_NAMES}
    for path in (*leaves, *words):
        if path not in numbers and path not in names:
            problems.append(f"unknown key '{path}'. {nearest(path, numbers | names)}")
    problems += [f"missing: {path}" for path in known.missing(leaves.keys() | words.keys())]
    for path, word in words.items():
        allowed: Mapping[str, Any] = known.pipes if path.endswith(".pipe") else REASONS
        if path in names and word not in allowed:
            problems.append(f"{path}: '{word}' is not one of {', '.join(allowed)}. {nearest(word, allowed)}")


def _in_range(path: str, value: float) -> str:
    """Why `value` is impossible at `path`, or an empty string; the unit is the end of the name."""
    key = path.rsplit(".", 1)[-1]
    if not math.isfinite(value):
        return "not finite"
    if path.startswith("timing.") or key.endswith("_cy") and not key.endswith("per_cy"):
        return "" if value >= 0 else "must not be negative"
    if key.endswith("_share"):
        return "" if 0 <= value <= 1 else "must be between 0 and 1"
    if key.endswith(("_per_cy", "_mhz", "_per_s")):
        return "" if value > 0 else "must be positive"
    return "" if value >= 1 and value == int(value) else "must be a whole number of at least 1"


# ---- formulas -----------------------------------------------------------------------------------

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "ceil": math.ceil}


def _integral(value: float) -> int | float:
    return int(value) if value == int(value) else value


def evaluate(formula: str, look_up: Callable[[str], int | float]) -> int | float:
    """Arithmetic (`+ - * / //`, parentheses, min, max, ceil) on numbers and paths; ValueError if it is not."""

    def walk(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -walk(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](walk(left), walk(right))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*map(walk, args))
            case ast.Name() | ast.Attribute():
                return look_up(ast.unparse(node))
            case _:
                raise ValueError(f"'{ast.unparse(node)}' is not arithmetic on parameters")

    try:
        return _integral(walk(ast.parse(formula, mode="eval").body))
    except (SyntaxError, ZeroDivisionError, TypeError, OverflowError) as error:
        raise ValueError(f"'{formula}': {error}") from None


def _resolve(leaves: Mapping[str, Number], problems: list[str]) -> dict[str, Number]:
    """Evaluate all formulas and check all ranges."""
    done: dict[str, Number] = {}

    def value(path: str, chain: tuple[str, ...]) -> int | float:
        if path in done:
            return done[path].value
        if path in chain:
            raise ValueError(f"formula runs in a circle: {' -> '.join((*chain, path))}")
        if path not in leaves:
            raise ValueError(f"no parameter '{path}'. {nearest(path, leaves)}")
        leaf = leaves[path]
        if leaf.formula:
            leaf = replace(leaf, value=evaluate(leaf.formula, lambda other: value(other, (*chain, path))))
        done[path] = leaf
        return leaf.value

    for path in leaves:
        try:
            wrong = _in_range(path, value(path, ()))
        except ValueError as error:
            wrong = str(error)
        if wrong:
            problems.append(f"{path}: {wrong}")
    return {path: done[path] for path in leaves if path in done}
