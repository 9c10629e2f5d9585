"""Marked blocks of pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.docs.blocks import content, names, replace, table

PAGE = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n<!-- begin y-1 -->\n<!-- end y-1 -->\n"
LINES = st.text("abc |`\\1\n", max_size=40).map(str.strip)


@given(LINES, LINES)
def test_replacing_is_exact_and_idempotent(x: str, y: str) -> None:
    once = replace(PAGE, {"x": x, "y-1": y})
    assert content(once, "x").strip() == x and content(once, "y-1").strip() == y
    assert replace(once, {"x": x}) == once
    assert names(once) == ["x", "y-1"] and once.startswith("a\n") and "\nb\n" in once


def test_an_unknown_block_is_an_error() -> None:
    with pytest.raises(KeyError, match="no block z"):
        replace(PAGE, {"z": ""})
    with pytest.raises(KeyError):
        content(PAGE, "z")


def test_tables_are_markdown() -> None:
    assert table(("a", "b"), [("x", "1")]).splitlines() == ["| a | b |", "| --- | ---: |", "| x | 1 |"]
