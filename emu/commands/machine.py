"""`warpsmith machine`: the machine files and where their numbers come from."""

from __future__ import annotations

import rich_click as click
from rich.text import Text

from emu.commands.common import set_option
from emu.machine import TIMING_NUMBERS, Number, differences, load_machine, machine_names, parameters
from emu.views.text import render, table


@click.group("machine")
def command() -> None:
    """List, show, compare and check machine files."""


@command.command("list")
def list_machines() -> int:
    """The machines that come with warpsmith."""
    out = table("", "name", "description", "targets", left=3)
    for name in machine_names():
        machine = load_machine(name)
        out.add_row(name, machine.description, ", ".join(machine.targets))
    print(render(out), end="")
    return 0


@command.command("show")
@click.argument("machine")
@click.argument("prefix", default="")
@set_option
def show(machine: str, prefix: str, overrides: tuple[str, ...]) -> int:
    """Every number of MACHINE whose path starts with PREFIX, with status and source."""
    loaded = load_machine(machine, overrides)
    rows = [(path, number) for path, number in loaded.numbers.items() if path.startswith(prefix)]
    if not rows:
        raise click.UsageError(f"no parameter of {loaded.name} starts with '{prefix}'")
    out = table(f"{loaded.name}: {loaded.description}", "parameter", "value", "status", "source", left=4)
    out.columns[1].justify = "right"
    for path, number in rows:
        out.add_row(path, _text(number), number.status, Text(_source(number)))
    print(render(out, width=160), end="")
    return 0


@command.command("diff")
@click.argument("first")
@click.argument("second")
def diff(first: str, second: str) -> int:
    """The parameters in which two machines differ."""
    a, b = load_machine(first), load_machine(second)
    out = table("", "parameter", a.name, b.name, "unit")
    for path, x, y in differences(a, b):
        out.add_row(path, _text(x), _text(y), _unit(path))
    print(render(out), end="")
    for feature, starts in parameters().optional.items():
        if a.has(feature) != b.has(feature):
            print(f"only {(a if a.has(feature) else b).name} has {feature}: {', '.join(f'{path}*' for path in starts)}")
    return 0


@command.command("check")
@click.argument("machine")
def check(machine: str) -> int:
    """Check a machine file; prints how its numbers are known."""
    loaded = load_machine(machine)
    by_status: dict[str, int] = {}
    for number in loaded.numbers.values():
        by_status[number.status] = by_status.get(number.status, 0) + 1
    known = ", ".join(f"{n} {status}" for status, n in sorted(by_status.items(), key=lambda item: -item[1]))
    print(f"{loaded.name}: {len(loaded.numbers)} numbers ({known}), {len(loaded.timing)} timing classes, no findings")
    return 0


def _text(number: Number) -> str:
    return f"{number.value:g}" if isinstance(number.value, float) else str(number.value)


def _source(number: Number) -> str:
    return f"= {number.formula}; {number.source}" if number.formula else number.source


def _unit(path: str) -> str:
    endings = {"_b_per_cy": "bytes/cycle", "_per_cy": "/cycle", "_gb_per_s": "GB/s", "_mhz": "MHz", "_share": ""}
    endings |= {"_cy": "cycles", "_b": "bytes"}
    if path.startswith("timing.") and path.rsplit(".", 1)[-1] in TIMING_NUMBERS:
        return "cycles"
    return next((unit for ending, unit in endings.items() if path.endswith(ending)), "")
