"""What the commands share: options, sources, defines."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import rich_click as click

from emu.order import ORDERS
from isa.expand import read_constant

Define = int | float | str

define_option = click.option(
    "-D", "defines", metavar="NAME=VALUE", multiple=True, help="Set an assembler define (repeatable)."
)
machine_option = click.option(
    "--machine", metavar="NAME|FILE", default="h200", show_default=True, help="Machine name or TOML file."
)
order_option = click.option(
    "--order",
    type=click.Choice(ORDERS),
    help="Operations as written, or as ptxas would order them (the default for .ptx files).",
)
set_option = click.option(
    "--set", "overrides", metavar="PATH=NUMBER", multiple=True, help="What-if: change a machine parameter (repeatable)."
)


def read_defines(texts: Iterable[str]) -> dict[str, Define]:
    """`-D NAME=VALUE` as numbers where they read as numbers; a bare NAME is 1."""
    defines: dict[str, Define] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name.isidentifier():
            raise click.UsageError(f"-D {text}: write NAME=VALUE")
        defines[name] = read_constant(value) if equals else 1
    return defines


def read_source(file: str) -> tuple[str, str]:
    """Name and text of a source file; `-` is stdin."""
    if file == "-":
        return "<stdin>", sys.stdin.read()
    path = Path(file)
    if path.is_dir():
        raise click.UsageError(f"{file} is a folder")
    try:
        return file, path.read_text()
    except UnicodeDecodeError:
        raise click.UsageError(f"{file} is not a text file") from None
