"""setp: every comparison, type, boolean operation and result."""

from __future__ import annotations

import operator
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from emu.lanes import run_ptx
from tests.isa.ops.cases import longs, predicates, same, shorts, words

COMPARE: dict[str, Callable[..., np.ndarray]] = {n: getattr(operator, n) for n in ("eq", "ne", "lt", "le", "gt", "ge")}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
KINDS = {f"{s}{w}": getattr(np, f"{'int' if s == 's' else 'uint'}{w}") for s in "su" for w in (16, 32, 64)}
MAKE = {16: shorts, 32: words, 64: longs}
FLOATS = {
    "f32": (words, np.float32),
    "f64": (longs, np.float64),
    "f16": (shorts, np.float16),
    "bf16": (shorts, ml_dtypes.bfloat16),
}


def pairs(make: Callable[[int], np.ndarray], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Operands of which a third are equal, or equal in their high half."""
    a, b = make(seed), make(seed + 1)
    b[::3] = a[::3]
    b[1::6] = a[1::6] ^ a.dtype.type(1)
    return a, b


@pytest.mark.parametrize("type", KINDS)
def test_integers(type: str) -> None:
    a, b = pairs(MAKE[int(type[1:])], 1)
    x, y = a.view(KINDS[type]), b.view(KINDS[type])
    names = {**{n: n for n in COMPARE}, **(UNSIGNED if type[0] == "u" else {})}
    for name, meaning in names.items():
        same(run_ptx(f"setp.{name}.{type} %p, %a, %b;", a=a, b=b, p="pred")["p"], COMPARE[meaning](x, y), a, b)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_bits(width: int) -> None:
    a, b = pairs(MAKE[width], 3)
    for name in ("eq", "ne"):
        same(run_ptx(f"setp.{name}.b{width} %p, %a, %b;", a=a, b=b, p="pred")["p"], COMPARE[name](a, b), a, b)


@pytest.mark.parametrize("type", FLOATS)
def test_floats(type: str) -> None:
    make, kind = FLOATS[type]
    a, b = pairs(make, 5)
    b[2::7] = a[2::7] ^ a.dtype.type(1 << (8 * a.dtype.itemsize - 1))  # zeros of both signs among them
    x, y = a.view(kind), b.view(kind)
    unordered = np.isnan(x) | np.isnan(y)
    for name, function in COMPARE.items():
        ordered = function(x, y) & ~unordered
        same(run_ptx(f"setp.{name}.{type} %p, %a, %b;", a=a, b=b, p="pred")["p"], ordered, a, b)
        same(run_ptx(f"setp.{name}u.{type} %p, %a, %b;", a=a, b=b, p="pred")["p"], ordered | unordered, a, b)
    same(run_ptx(f"setp.num.{type} %p, %a, %b;", a=a, b=b, p="pred")["p"], ~unordered, a, b)
    same(run_ptx(f"setp.nan.{type} %p, %a, %b;", a=a, b=b, p="pred")["p"], unordered, a, b)


@pytest.mark.parametrize(("type", "smallest"), [("f32", 2.0**-126), ("f16", 2.0**-14)])
def test_ftz_compares_flushed_values(type: str, smallest: float) -> None:
    make, kind = FLOATS[type]
    a, b = pairs(make, 7)
    with np.errstate(all="ignore"):
        x, y = (np.where(np.abs(z) < smallest, kind(0), z) for z in (a.view(kind), b.view(kind)))
    for name in ("eq", "lt", "geu"):
        plain = COMPARE[name.removesuffix("u")](x, y)
        expected = plain | np.isnan(x) | np.isnan(y) if name.endswith("u") else plain
        same(run_ptx(f"setp.{name}.ftz.{type} %p, %a, %b;", a=a, b=b, p="pred")["p"], expected, a, b)


@pytest.mark.parametrize("type", ["s32", "u32", "s64", "u64", "s16", "f32", "f64"])
@pytest.mark.parametrize("op", ["and", "or", "xor"])
def test_both_results_with_a_third_predicate(op: str, type: str) -> None:
    make, kind = FLOATS.get(type) or (MAKE[int(type[1:])], KINDS[type])
    a, b = pairs(make, 9)
    c = predicates(11)
    t = a.view(kind) < b.view(kind)
    combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[op]
    out = run_ptx(f"setp.lt.{op}.{type} %p|%q, %a, %b, %c;", a=a, b=b, c=c, p="pred", q="pred")
    same(out["p"], combine(t, c), a, b, c)
    same(out["q"], combine(~t, c), a, b, c)
    out = run_ptx(f"setp.lt.{op}.{type} %p, %a, %b, !%c;", a=a, b=b, c=c, p="pred")
    same(out["p"], combine(t, ~c), a, b, c)


def test_pair_without_a_third_predicate() -> None:
    a, b = pairs(words, 12)
    out = run_ptx("setp.ge.u32 %p|%q, %a, %b;", a=a, b=b, p="pred", q="pred")
    same(out["p"], a >= b, a, b)
    same(out["q"], a < b, a, b)
