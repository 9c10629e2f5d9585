"""Logic on bits and on predicates."""

from __future__ import annotations

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa.ops.logic import lut
from tests.isa.ops.cases import longs, predicates, same, shorts, words

MAKE = {"b16": shorts, "b32": words, "b64": longs, "pred": predicates}
OPS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@pytest.mark.parametrize("type", MAKE)
@pytest.mark.parametrize("op", OPS)
def test_two_operands(op: str, type: str) -> None:
    a, b = MAKE[type](1), MAKE[type](2)
    got = run_ptx(f"{op}.{type} %p, %a, %b;", a=a, b=b, p=type)["p"]
    same(got.astype(a.dtype), OPS[op](a, b), a, b)


@pytest.mark.parametrize("type", MAKE)
def test_not(type: str) -> None:
    a = MAKE[type](3)
    same(run_ptx(f"not.{type} %p, %a;", a=a, p=type)["p"].astype(a.dtype), ~a, a)


@pytest.mark.parametrize("type", ["b16", "b32", "b64"])
def test_cnot(type: str) -> None:
    a = MAKE[type](4)
    same(run_ptx(f"cnot.{type} %d, %a;", a=a, d=type)["d"].astype(a.dtype), a == 0, a)


@pytest.mark.parametrize("table", [0x00, 0x01, 0x96, 0xE8, 0xCA, 0x80, 0xFE, 0xFF, 0x1B, 0x6A])
def test_lop3_tables(table: int) -> None:
    a, b, c = words(5, 256), words(6, 256), words(7, 256)
    got = run_ptx(f"lop3.b32 %d, %a, %b, %c, {table};", a=a, b=b, c=c, d="b32")["d"]
    same(got, [lut(table, *(int(x) for x in lane)) for lane in zip(a, b, c, strict=True)], a, b, c)


def test_table_of_an_expression() -> None:
    """The manual's rule: a table is the expression on 0xf0, 0xcc, 0xaa."""
    a, b, c = 0x12345678, 0x9ABCDEF0, 0x0F1E2D3C
    assert lut((0xF0 & 0xCC) ^ 0xAA, a, b, c) == (a & b) ^ c
    assert lut((0xF0 | ~0xCC) & 0xAA & 0xFF, a, b, c) == (a | ~b) & c & 0xFFFFFFFF


def test_negated_predicate_operands() -> None:
    p, q = predicates(8), predicates(9)
    same(run_ptx("and.pred %r, !%p, %q; ", p=p, q=q, r="pred")["r"], ~p & q)
