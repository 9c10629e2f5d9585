"""`warpsmith asm`: what a kernel assembles to."""

from __future__ import annotations

from collections import Counter

import rich_click as click

from emu.commands.common import define_option, kernel_option, machine_option, order_option, read_defines, read_kernel
from emu.machine import Machine, load_machine, machine_names
from emu.order import scheduling
from emu.views.text import count, render, table
from isa.assembler import assemble
from isa.listing import listing
from isa.program import Program


@click.command("asm")
@click.argument("kernel")
@define_option
@kernel_option
@machine_option
@order_option
def command(kernel: str, defines: tuple[str, ...], entry: str | None, machine: str, order: str | None) -> int:
    """Assemble KERNEL, a shipped program or a file (`-`: stdin), and print resources, micro-operations and counts per pipe."""
    name, text, values = read_kernel(kernel, read_defines(defines))
    pipes = load_machine(machine)
    weights = scheduling(order, name)
    assembly = assemble(name, text=text, defines=values, kernel=entry, order=weights)
    for program in assembly.programs.values():
        print(listing(program))
        print()
        print(pipe_counts(program, _knowing(program, pipes)))
    return 0


def _knowing(program: Program, asked: Machine) -> Machine:
    """The machine asked for, or the first one that has the program's instructions when it has not."""
    classes = {program.timing_names[int(t)] for t in program.instrs["timing"]}
    if classes <= asked.timing.keys():
        return asked
    others = (load_machine(name) for name in machine_names())
    return next((m for m in others if classes <= m.timing.keys()), asked)


def pipe_counts(program: Program, machine: Machine) -> str:
    """Static micro-operations on each pipe of `machine`, and the timing classes that they come from."""
    classes = Counter(program.timing_names[int(t)] for t in program.instrs["timing"])
    pipes: Counter[str] = Counter()
    for name, n in classes.items():
        pipes[machine.timing[name].pipe] += n
    title = f"{program.name}: micro-operations by pipe of {machine.name}"
    out = table(title, "pipe", "timing classes", "operations", left=2)
    for pipe, n in sorted(pipes.items(), key=lambda item: (-item[1], item[0])):
        members = sorted(c for c in classes if machine.timing[c].pipe == pipe)
        out.add_row(pipe, "  ".join(f"{c} {classes[c]}" for c in members), count(n))
    return render(out)
