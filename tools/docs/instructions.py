"""The tables of docs/language.md, docs/architecture.md and docs/rules.md that come from the code.

python -m tools.docs.instructions            # rewrite the tables
python -m tools.docs.instructions --check    # exit code 1 when they are not current
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections import Counter
from itertools import groupby

from emu.cli import EXIT_CODES
from emu.explain import rules as declared
from isa import registry
from isa.micro import MICROS
from isa.registry import ALL_TARGETS, Form, least
from isa.vocabulary import OPCODES
from tools.docs.blocks import ROOT, replace, table, update
from tools.docs.examples import lowered

LANGUAGE, ARCHITECTURE, RULES = (ROOT / "docs" / f"{page}.md" for page in ("language", "architecture", "rules"))
SHOWN = 4  # different micro-operations of a row, members of a set
HEADER = ("form", "with", "targets", "micro-operations of an example", "timing classes")


def instructions() -> str:
    """One table a family: every form with its targets, what an example lowers to, and the timing classes of that."""
    parts = []
    forms = sorted(registry.forms(), key=lambda form: form.family)
    for family, members in groupby(forms, key=lambda form: form.family):
        title = (importlib.import_module(f"isa.ops.{family}").__doc__ or "").strip().splitlines()[0]
        parts += [f"### {family}", "", title, "", table(HEADER, [row(form) for form in members], left=len(HEADER)), ""]
    return "\n".join(parts)


def row(form: Form) -> tuple[str, ...]:
    """The cells of one form."""
    counts = Counter(lowered(form)[1])
    shown = [f"{name} x{n}" if n > 1 else name for name, n in list(counts.items())[:SHOWN]]
    if len(counts) > SHOWN:
        shown.append(f"... {sum(counts.values())} in all")
    classes = dict.fromkeys(MICROS[name].timing for name in counts)
    targets = "all" if form.targets == ALL_TARGETS else least(form.targets)
    syntax = form.syntax.replace("|", "\\|")
    return f"`{syntax}`", sets(form), targets, ", ".join(shown) or "nothing", " ".join(classes)


def sets(form: Form) -> str:
    """The named sets of a syntax line with their members, long ones shortened."""
    cells = []
    for name, members in form.sets.items():
        if re.search(rf"\.{name}\b", form.syntax):
            words = [member.lstrip(".") for member in members]
            short = words if len(words) <= SHOWN else [*words[: SHOWN - 2], "...", words[-1]]
            cells.append(f"{name}: {' '.join(short)}")
    return "; ".join(cells)


def missing() -> str:
    """PTX opcodes that are recognised and refused."""
    registry.load()
    return " ".join(f"`{opcode}`" for opcode in sorted(set(OPCODES) - set(registry.FORMS)))


def units() -> str:
    """The micro-operations that routines of the machine execute."""
    registry.load()
    rows = [
        (op.name, f"`{op.sig}`", op.unit, op.timing, op.doc, " ".join(sorted(op.flags)))
        for op in sorted(MICROS.values(), key=lambda op: (op.unit, op.name))  # whatever the order of imports
        if op.unit
    ]
    header = ("micro-operation", "signature", "routine", "timing class", "operands and immediate", "flags")
    return table(header, rows, left=len(header))


def exits() -> str:
    """The exit codes of the command line."""
    return table(("exit code", "meaning"), [(str(code), meaning) for code, meaning in EXIT_CODES.items()], left=2)


def rules() -> str:
    """The rules of findings, faults and deadlocks."""
    rows = [tuple(cell.replace("|", "\\|").replace("<", "&lt;") for cell in row) for row in declared()]
    return table(("rule", "kind", "meaning", "remedy"), rows, left=4)


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    pages = {
        LANGUAGE: {"missing": missing(), "instructions": instructions()},
        ARCHITECTURE: {"units": units()},
        RULES: {"exits": exits(), "rules": rules()},
    }
    if parser.parse_args(argv).check:
        return int(any(replace(page.read_text(), blocks) != page.read_text() for page, blocks in pages.items()))
    for page, blocks in pages.items():
        update(page, blocks)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
