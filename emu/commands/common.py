"""What the commands share: options, sources, defines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import rich_click as click

import programs
from emu.order import ORDERS
from isa.errors import nearest
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
kernel_option = click.option("--kernel", "entry", metavar="NAME", help="File: which of its kernels.")
set_option = click.option(
    "--set", "overrides", metavar="PATH=NUMBER", multiple=True, help="What-if: change a machine parameter (repeatable)."
)


def read_defines(texts: Iterable[str]) -> dict[str, Define]:
    """`-D NAME=VALUE` as numbers where they read as numbers."""
    defines: dict[str, Define] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name.isidentifier() or not equals or not value:
            raise click.UsageError(f"-D {text}: write NAME=VALUE")
        defines[name] = read_constant(value)
    return defines


def read_kernel(kernel: str, defines: Mapping[str, Define]) -> tuple[str, str, dict[str, Define]]:
    """Name, text and defines of a shipped program (its own defines, `defines` on top) or of a source file."""
    if kernel not in programs.names():
        if kernel != "-" and not Path(kernel).exists():
            raise click.UsageError(no_kernel(kernel))
        return *read_source(kernel), dict(defines)
    try:
        problem = programs.find(kernel).from_options(defines)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    path = problem.kernel_path
    return str(path), path.read_text(), problem.defines


def no_kernel(kernel: str) -> str:
    """The message for a kernel that is neither a file nor a program."""
    known = programs.names()
    return f"no file '{kernel}', nor a program: {', '.join(known)}. {nearest(kernel, known)}".rstrip()


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
