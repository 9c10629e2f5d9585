"""Every spelling of the arithmetic families is one that `ptxas` takes, and lowers without error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from isa import registry
from isa.expand import expand
from isa.forms import operand_type, template
from isa.layout import Layout
from isa.lowering import Lowering
from isa.registry import Form

FAMILIES = ["compare", "convert", "division", "float32", "float64", "fp8", "half", "int_division", "integer"]
FAMILIES += ["integer64", "logic", "move", "rounding", "select", "shift", "special_functions"]
FAMILIES += ["bitfields", "carry", "clamping", "compare_packed", "dot", "float64_approx"]
REGISTERS = {"b8": "c", "b128": "q", "u8": "h", "s8": "h", "b16": "h", "u16": "h", "s16": "h", "f16": "x", "bf16": "h"}
REGISTERS |= {"b32": "r", "u32": "r", "s32": "r", "f16x2": "r", "bf16x2": "r", "u16x2": "r", "s16x2": "r", "tf32": "r"}
REGISTERS |= {"b64": "l", "u64": "l", "s64": "l", "f32": "f", "f64": "d", "pred": "p", "e4m3x2": "h", "e5m2x2": "h"}
DECLARE = (
    ".reg .b16 %h<9>; .reg .f16 %x<9>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %l<9>; .reg .f64 %d<9>; "
    ".reg .pred %p<9>; .reg .b8 %c<9>; .reg .b128 %q<9>;"
)


def spellings(form: Form) -> Iterator[str]:
    """All instructions of a form: each qualifier choice, with and without each optional group."""
    t = template(form)
    base = form.syntax.split(".")[0].split("{")[0]
    head = form.syntax.split(" ")[0]
    pieces = re.findall(r"\{[^{}]*(?:\{[^{}]*\})?[^{}]*\}|\.\{[^{}]*\}|\.[\w:]+", head)
    required, optional = iter(t.required), iter(t.optional)
    choices: list[list[tuple[str, ...]]] = []
    names: list[tuple[str, ...]] = []
    for piece in pieces:
        if piece.startswith("{"):
            group = next(optional)
            choices.append([(), *product(*(sorted(c.members) for c in group))])
            names.append(tuple(c.name for c in group))
        else:
            choice = next(required)
            choices.append([(m,) for m in sorted(choice.members)])
            names.append((choice.name,))
    for picked in product(*choices):
        words = tuple(w for part in picked for w in part)
        chosen = {
            n: w for part, named in zip(picked, names, strict=True) for w, n in zip(part, named, strict=False) if n
        }
        operands = []
        for k, slot in enumerate(t.slots):
            operands.append(_operand(operand_type(form, slot, chosen, words), k + 1))
            if slot.second:
                operands[-1] += "|%p8"
        yield f"{'.'.join((base, *words))} {', '.join(operands)};"


def _operand(kind: str, k: int) -> str:
    if kind == "imm":
        return "0x96"
    if kind.startswith("vec"):
        _, base, count = kind.split(":")
        return "{" + ", ".join(_operand(base, i) for i in range(int(count))) + "}"
    return f"%{REGISTERS[kind]}{k}"


def family_forms(family: str) -> list[Form]:
    return [f for f in registry.forms() if f.family == family and "sm_90a" in f.targets]


@pytest.mark.parametrize("family", FAMILIES)
def test_ptxas_takes_every_spelling(family: str, ptxas: Callable[..., tuple[bool, str]]) -> None:
    lines = [line for form in family_forms(family) for line in spellings(form)]
    assert lines
    text = f".version 9.0\n.target sm_90a\n.address_size 64\n.entry k() {{ {DECLARE}\n" + "\n".join(lines) + "\nret; }"
    accepted, messages = ptxas(text, "sm_90a")
    bad = {int(n): why for n, why in re.findall(r"line (\d+); error\s*:\s*(.*)", messages)}
    assert accepted, [f"{lines[n - 5]} {why}" for n, why in sorted(bad.items())][:40]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_spelling_lowers(family: str) -> None:
    lines = [line for form in family_forms(family) for line in spellings(form)]
    text = f".version 9.0\n.target sm_90a\n.address_size 64\n.entry k() {{ {DECLARE}\n" + "\n".join(lines) + "\nret; }"
    module = expand(text, "<forms>", {}, ())
    kernel = module.kernels[0]
    code = Lowering(kernel, "sm_90a", Layout(module, kernel), lambda pos: lines[pos.line - 5]).run()
    assert len(code.ops) >= len(lines)
