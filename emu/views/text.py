"""What the views share: one table style, number formats, and plain text from renderables."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table


def table(title: str, *columns: str, left: int = 1) -> Table:
    """A table whose first `left` columns are text; the others are numbers, to the right.

    Only the last text column gives way when the table is too wide.
    """
    out = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, min_width=len(title))
    for i, name in enumerate(columns):
        out.add_column(name, justify="left" if i < left else "right", no_wrap=i != left - 1, overflow="fold")
    return out


def count(number: float) -> str:
    """An integer with separators."""
    return f"{int(number):,}"


def percent(share: float) -> str:
    """A fraction as per cent, one decimal; a true zero stays empty in tables."""
    return f"{100 * share:.1f} %" if share else ""


def render(view: RenderableType, width: int = 110) -> str:
    """Plain text of a view, without colours or trailing blanks."""
    sink = io.StringIO()
    Console(file=sink, width=width, color_system=None, force_terminal=False, legacy_windows=False).print(view)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()).strip("\n") + "\n"
