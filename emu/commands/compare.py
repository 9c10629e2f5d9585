"""`warpsmith compare`: the generations of attention on several machines, and what one of them loses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import rich_click as click

import programs
from emu.commands.common import set_option
from emu.commands.run import check_writable
from isa.errors import nearest

HELP = """Run attention programs on machines and shapes, side by side.

Every pair runs as a whole chip, in representative mode with its arrays in L2. A row has the share of the tensor cores' peak that useful
operations reach in the cycles, the rate at the machine's clock (or --clock), cycles for a block of query rows by keys beside what each
unit alone would need for it, what the warps of each role wait for, and what others published or measured. Without KERNEL: fa1, fa2, fa3 and fa4.
--losses runs one kernel again without one bottleneck at a time.
"""


@click.command("compare", help=HELP)
@click.argument("kernels", metavar="[KERNEL]...", nargs=-1)
@click.option(
    "--machine", "machines", metavar="NAME|FILE", multiple=True, help="Repeatable; default: a100, h200 and b200."
)
@click.option(
    "--seqlen",
    "lengths",
    type=click.IntRange(min=1),
    multiple=True,
    help="Query rows and keys; repeatable. Default: 4096.",
)
@click.option(
    "--head-dim", "dims", type=click.IntRange(min=1), multiple=True, help="Columns; repeatable. Default: 128."
)
@click.option("--heads", type=click.IntRange(min=1), help="Default: 2048 columns of heads.")
@click.option("--batch", type=click.IntRange(min=1), help="Default: 16,384 rows in all.")
@click.option("--causal", is_flag=True, default=None, help="A row sees no keys behind its own place.")
@click.option("--dtype", type=click.Choice(("fp16", "bf16")), help="Of queries, keys, values. Default: fp16.")
@click.option("--clock", type=click.FloatRange(min=1), metavar="MHZ", help="Clock for TFLOP/s; default: the machine's.")
@click.option("--losses", metavar="KERNEL", help="Also: this kernel on the first machine without each bottleneck.")
@set_option
@click.option("--json", "json_file", metavar="FILE|-", help="Write everything as JSON.")
def command(
    kernels: tuple[str, ...],
    machines: tuple[str, ...],
    lengths: tuple[int, ...],
    dims: tuple[int, ...],
    clock: float | None,
    losses: str | None,
    overrides: tuple[str, ...],
    json_file: str | None,
    **options: Any,
) -> int:
    """A pair that cannot run is a row with the reason; exit code 1 when none could."""
    from emu import compared

    if json_file and json_file != "-":
        check_writable(Path(json_file))
    known = compared.attention()
    for kernel in (*kernels, *((losses,) if losses else ())):
        if kernel not in known:
            raise click.UsageError(
                f"compare knows attention programs: {', '.join(known)}. {nearest(kernel, known)}".rstrip()
            )
    chosen = kernels or tuple(name for name in compared.GENERATIONS if name in programs.names())
    places = machines or (("h200",) if losses and not kernels else compared.MACHINES)
    given = {name: value for name, value in options.items() if value is not None}
    shapes = [compared.shape(d, n, given) for d in dims or (128,) for n in lengths or (4096,)]
    found = compared.Comparison(rows=_rows(chosen if kernels or not losses else (), places, shapes, overrides, clock))
    if losses:
        found.losses_of = f"{losses} on {places[0]}"
        found.losses = compared.losses(losses, places[0], overrides, shapes[0])
    _show(found, json_file)
    return 1 if found.rows and all(row.reason for row in found.rows) and not losses else 0


def _rows(
    kernels: tuple[str, ...],
    places: tuple[str, ...],
    shapes: list[dict[str, Any]],
    overrides: tuple[str, ...],
    clock: float | None,
) -> list[Any]:
    from emu import compared
    from emu.machine import load_machine

    loaded = [load_machine(name, overrides) for name in places]
    rows = []
    for options in shapes:
        for kernel in kernels:
            for machine in loaded:
                if sys.stderr.isatty():
                    print(f"{kernel} on {machine.name}", file=sys.stderr)
                try:
                    rows.append(compared.compare(kernel, machine, options, clock))
                except ValueError as error:  # a shape that this program does not have
                    rows.append(compared.Row(kernel=kernel, machine=machine.name, shape=options, reason=str(error)))
    return rows


def _show(found: Any, json_file: str | None) -> None:
    if json_file == "-":
        print(found.to_json())
        return
    if json_file:
        Path(json_file).write_text(found.to_json() + "\n")
    from rich.console import Console

    from emu.views.compare import comparison

    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = 140
    for view in comparison(found):
        console.print(view)
