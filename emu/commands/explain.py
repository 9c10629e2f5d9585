"""`warpsmith explain`: what a word of the reports, the language, the programs or the machine files means."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator

import rich_click as click

import programs
from emu.commands.common import machine_option
from emu.commands.glossary import WORDS, glossary, target
from emu.machine import Machine, load_machine, machine_names, parameters
from emu.order import BLACKWELL
from emu.stalls import CAUSES, MEANINGS, REASONS
from isa import registry, shorthand
from isa.assembler import TARGETS
from isa.descriptor_text import instruction_text, matrix_text
from isa.errors import nearest
from isa.forms import template
from isa.micro import MICROS
from isa.vocabulary import unimplemented

DEFINE = re.compile(r"^\.define\s+(?P<name>\w+)\s*=\s*(?P<value>[^/\s]+)\s*(?://\s*(?P<text>.*))?$", re.MULTILINE)
RULE = re.compile(r"[A-Z]{2,3}\d{3}")
NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[1-9]\d*")
RULES = ("rules", "codes")  # words that list the rules of the reports
SHOWN = 6  # members of a set that are listed before it is shortened


@click.command("explain")
@click.argument("word")
@machine_option
def command(word: str, machine: str) -> int:
    """Explain WORD: a PTX instruction or short spelling, a micro-operation, a stall reason or its cause, a pipe, a
    timing class, a machine parameter (or the start of several), a program, a program's define, a machine, a target, a word of
    the manual such as descriptor or parity, a descriptor's value such as 0x8200010, or a rule of the reports (`explain rules` lists them)."""
    loaded = load_machine(machine)
    readers: tuple[Callable[[str], str], ...] = (
        reason,
        instruction,
        unimplemented,
        short_spelling,
        micro,
        program,
        define,
        machine_file,
        rule,
        note,
        rules,
        glossary,
        target,
        descriptor,
    )
    texts = [read(word) for read in readers]
    texts += [numerics(word, loaded), pipe(word)]
    for look in (timing, parameter):
        texts.append(look(word, loaded) or look(word, load_machine(BLACKWELL)))  # what only that machine has
    found = [text for text in texts if text]
    if not found:
        raise click.UsageError(f"nothing is known about '{word}'. {nearest(word, known_words())}".rstrip())
    print("\n".join(found), end="")
    return 0


def known_words() -> Iterator[str]:
    """Every word with an explanation, but for prefixes and fault rules."""
    yield from REASONS
    yield from (cause.name for cause in CAUSES)
    yield from registry.FORMS
    yield from shorthand.SHORTHANDS
    yield from MICROS
    yield from programs.names()
    yield from machine_names()
    yield from (name for _, name, _, _ in defines())
    yield from (*WORDS, *TARGETS, *RULES)
    yield from (*parameters().pipes, *parameters().classes, *parameters().scalars)


def reason(word: str) -> str:
    """A stall reason with our finer causes, or one of these causes."""
    if word not in REASONS:
        causes = [f"{c.name}, a cause of {c.reason.label}: {c.meaning}\n" for c in CAUSES if c.name == word]
        return "".join(causes)
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
        lines.append(f"{form.syntax}    [{registry.least(form.targets)}]")
        used = [name for name in form.sets if re.search(rf"\.{name}\b", form.syntax)]
        lines += [f"    .{name} is one of {_members(form.sets[name])}" for name in used]
    lines += _contract(contract)
    return "\n".join(lines).rstrip() + "\n" if lines else ""


def _members(members: tuple[str, ...]) -> str:
    shown = members if len(members) <= SHOWN + 1 else (*members[: SHOWN - 1], "...", members[-1])
    return ", ".join(shown)


def _contract(doc: str) -> list[str]:
    return [textwrap.indent(inspect.cleandoc(doc), "    "), ""] if doc else []


def numerics(word: str, machine: Machine) -> str:
    """How an instruction's results compare with the card's in the two modes of `run --numerics`."""
    from emu.numerics import note  # the machine is imported only for these words

    text = note(word, machine) if registry.FORMS.get(word.split(".")[0]) or word in MICROS else ""
    paragraphs = [textwrap.fill(x, 100, initial_indent="  ", subsequent_indent="  ") for x in text.split("\n")]
    return "\n".join(["numerics", *paragraphs]) + "\n" if text else ""


def short_spelling(word: str) -> str:
    """A short spelling of the assembler layer."""
    found = shorthand.find(word)
    return f"short spelling {word}: {inspect.cleandoc(found.__doc__ or '')}\n" if found else ""


def micro(word: str) -> str:
    """A micro-operation: its signature, timing class, meaning, and the routine of the unit that executes it; of a family (`LDSM`) all."""
    op = MICROS.get(word)
    if op is None:
        return "".join(micro(name) for name in MICROS if name.startswith(f"{word}."))
    lines = [f"micro-operation {op.name}  {op.sig}  timing class {op.timing}"]
    lines += [f"  {op.doc}"] if op.doc else []
    lines += [f"  executed by {op.unit} (emu/units)"] if op.unit else []
    return "\n".join(lines) + "\n"


def defines() -> Iterator[tuple[str, str, str, str]]:
    """(program, define, default, comment) of every shipped program, as its `.mptx` declares them."""
    for name in programs.names():
        for found in DEFINE.finditer(programs.find(name).from_options().kernel_path.read_text()):
            yield name, found["name"], found["value"], found["text"] or ""


def define(word: str) -> str:
    """An assembler define of the shipped programs."""
    rows = [(name, value, text) for name, other, value, text in defines() if other == word]
    return "".join(
        f"define {word} of {name}, default {value}{f': {text}' if text else ''}\n" for name, value, text in rows
    )


def program(word: str) -> str:
    """A shipped program: its problem, options and defines."""
    if word not in programs.names():
        return ""
    problem = programs.find(word)
    lines = [f"program {word}: {' '.join((problem.__doc__ or '').split())}"]
    for o in problem.options:
        name = f"--{o.name.replace('_', '-')}" if o.command_line else f"from Python only, {o.name}="
        lines.append(f"  {name}  {o.help} (default {o.default})")
    shapes = ", ".join(f"{name} [{', '.join(axes)}]" for name, axes in problem.axes.items())
    lines += [f"  --inputs FILE.npz  your own {shapes} instead of random ones"] if shapes else []
    lines += [f"  -D {name}={value}  {text}".rstrip() for owner, name, value, text in defines() if owner == word]
    return "\n".join(lines) + "\n"


def machine_file(word: str) -> str:
    """A machine that comes with warpsmith: what it is, and how well its numbers are known."""
    if word not in machine_names():
        return ""
    found = load_machine(word)
    known = Counter(number.status for number in found.numbers.values())
    numbers = ", ".join(f"{n} {status}" for status, n in known.most_common())
    return (
        f"machine {word}: {found.description}; runs {', '.join(found.targets)}\n"
        f"  {len(found.numbers)} numbers: {numbers} (warpsmith machine show {word} [PREFIX])\n"
    )


def rule(word: str) -> str:
    """A fault that ends a run."""
    if not RULE.fullmatch(word):
        return ""
    from emu.explain import FAULTS  # the machine is imported only for these words

    found = [(message, remedy) for name, message, remedy in FAULTS.values() if name == word]
    return "".join(f"fault {word}: {message}{f'; {remedy}' if remedy else ''}\n" for message, remedy in found)


def note(word: str) -> str:
    """A rule of findings that is no fault of an instruction, or a word of the reports."""
    from emu import explain  # the machine is imported only for these words

    return explain.note(word)


def rules(word: str) -> str:
    """Every rule of the reports, for `rules` or `codes`."""
    if word not in RULES:
        return ""
    from emu import explain  # the machine is imported only for these words

    rows = [f"{name:8} {kind:8} {meaning}" for name, kind, meaning, _ in explain.rules()]
    return "\n".join(["rules of findings (`warpsmith explain RULE` has the remedy)", *rows]) + "\n"


def descriptor(word: str) -> str:
    """A number as a descriptor of tcgen05.mma or wgmma: 64 bits a matrix, 32 bits an instruction."""
    if not NUMBER.fullmatch(word):
        return ""
    value = int(word, 0)
    return instruction_text(value) if value < 1 << 32 else matrix_text(value) if value < 1 << 64 else ""


def pipe(word: str) -> str:
    """A pipe."""
    pipes = parameters().pipes
    return f"pipe {word}: {pipes[word]}\n" if word in pipes else ""


def timing(word: str, machine: Machine) -> str:
    """A timing class with its numbers on a machine."""
    name = word.removeprefix("timing.")
    if name not in machine.timing:
        return ""
    t = machine.timing[name]
    return (
        f"timing class {name}: {parameters().classes[name]}\n"
        f"  on {machine.name}: pipe {t.pipe} for {t.interval:g} cycles, result after {t.latency:g}, next "
        f"instruction after {t.stall:g}; waiting for it is {t.reason}, a busy pipe {t.throttle}\n"
    )


def parameter(word: str, machine: Machine) -> str:
    """A machine parameter, or all whose path starts with `word` or has it as its unit (`tensor`, `unit.tensor`)."""
    starts = (f"{word}.", f"unit.{word}.")
    known = [p for p in parameters().scalars if p in machine.numbers]
    paths = [word] if word in machine.numbers else [p for p in known if p.startswith(starts)]
    return "".join(_number(path, machine) for path in paths)


def _number(path: str, machine: Machine) -> str:
    known, number = parameters(), machine.numbers[path]
    meaning = known.scalars.get(path)
    if meaning is None:
        _, name, number_of = path.split(".")
        meaning = f"{number_of} in cycles of timing class {name} ({known.classes[name]})"
    return f"{path}: {meaning}\n  on {machine.name}: {number.value:g} ({number.status}: {number.source})\n"
