"""`warpsmith explain`: what a word of the reports, the language or the machine files means."""

from __future__ import annotations

import inspect
import textwrap

import rich_click as click

from emu.commands import machine as machines
from emu.commands.common import machine_option
from emu.machine import Machine, load_machine, parameters
from emu.stalls import CAUSES, MEANINGS, REASONS
from isa import registry
from isa.errors import nearest
from isa.forms import template
from isa.micro import MICROS


@click.command("explain")
@click.argument("word")
@machine_option
def command(word: str, machine: str) -> int:
    """Explain WORD: a PTX instruction, a micro-operation, a stall reason, a timing class or a machine parameter."""
    loaded = load_machine(machine)
    texts = [reason(word), instruction(word), micro(word), machines.explain(word), timing(word, loaded)]
    found = [text for text in texts if text]
    if not found:
        known = [*REASONS, *registry.FORMS, *MICROS, *parameters().scalars, *parameters().classes]
        raise click.UsageError(f"nothing is known about '{word}'. {nearest(word, known)}".rstrip())
    click.echo("\n".join(found), nl=False)
    return 0


def reason(word: str) -> str:
    """A stall reason with our finer causes."""
    if word not in REASONS:
        return ""
    lines = [f"stall reason {word}", textwrap.indent(textwrap.fill(MEANINGS[REASONS[word]], 100), "  ")]
    lines += [f"  {cause.name}: {cause.meaning}" for cause in CAUSES if cause.reason is REASONS[word]]
    return "\n".join(lines) + "\n"


def instruction(word: str) -> str:
    """The syntax lines of an instruction (or of all that take its qualifiers) and their contract."""
    opcode, *qualifiers = word.split(".")
    lines: list[str] = []
    contract = ""
    for form in registry.forms():
        if form.opcode != opcode or not template(form).vocabulary.issuperset(qualifiers):
            continue
        if form.doc != contract:
            lines += _contract(contract)
            contract = form.doc
        lines.append(f"{form.syntax}    [{', '.join(form.targets)}]")
        lines += [f"    .{name} is one of {', '.join(members)}" for name, members in form.sets.items()]
    lines += _contract(contract)
    return "\n".join(lines) + "\n" if lines else ""


def _contract(doc: str) -> list[str]:
    return [textwrap.indent(inspect.cleandoc(doc), "    "), ""] if doc else []


def micro(word: str) -> str:
    """A micro-operation: its signature and timing class."""
    registry.load()
    op = MICROS.get(word)
    if op is None:
        return ""
    return f"micro-operation {op.name}  {op.sig}  timing class {op.timing}\n  {op.doc}\n".replace("\n  \n", "\n")


def timing(word: str, machine: Machine) -> str:
    """The numbers of a timing class or parameter on a machine."""
    name = word.removeprefix("timing.")
    if name in machine.timing:
        t = machine.timing[name]
        return (
            f"  on {machine.name}: pipe {t.pipe} for {t.interval:g} cycles, result after {t.latency:g}, next "
            f"instruction after {t.stall:g}; waiting for it is {t.reason}, a busy pipe {t.throttle}\n"
        )
    if word in machine.numbers:
        number = machine.numbers[word]
        return f"  on {machine.name}: {number.value:g} ({number.status}: {number.source})\n"
    return ""
