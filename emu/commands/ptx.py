"""`warpsmith ptx`: the expansion as plain PTX, which NVIDIA's assembler accepts."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from emu.commands.common import define_option, kernel_option, read_defines, read_kernel
from isa.assembler import only
from isa.expand import expand
from isa.ptx import to_ptx


@click.command("ptx")
@click.argument("kernel")
@define_option
@kernel_option
def command(kernel: str, defines: tuple[str, ...], entry: str | None) -> int:
    """Expand KERNEL, a shipped program or a file (`-`: stdin), to plain PTX on stdout."""
    name, text, values = read_kernel(kernel, read_defines(defines))
    module = expand(text, name, values, [Path(name).parent])
    if entry is not None:
        module = only(module, entry)
    print(to_ptx(module), end="")
    return 0
