"""`warpsmith ptx`: the expansion as plain PTX, which NVIDIA's assembler accepts."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from emu.commands.common import define_option, read_defines, read_source
from isa.expand import expand
from isa.ptx import to_ptx


@click.command("ptx")
@click.argument("file")
@define_option
def command(file: str, defines: tuple[str, ...]) -> int:
    """Expand FILE (`-`: stdin) to plain PTX on stdout."""
    name, text = read_source(file)
    module = expand(text, name, read_defines(defines), [Path(name).parent])
    click.echo(to_ptx(module), nl=False)
    return 0
