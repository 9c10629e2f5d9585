"""One example of every declared form, and what it lowers to.

An example takes the first member of each required choice and leaves out what is optional; operands are registers
where the form allows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import product

from isa import registry
from isa.errors import AssemblyError
from isa.expand import expand
from isa.forms import Slot, operand_type, template
from isa.layout import Layout
from isa.lowering import Lowering
from isa.registry import Form

HEAD = """.version 8.6
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.const .align 16 .b8 table[64];
.func work() {{ ret; }}
.func take(.param .b32 x) {{ ret; }}
.func (.param .b32 y) give() {{ st.param.b32 [y], 1; ret; }}
.func (.param .b32 y) both(.param .b32 x) {{ st.param.b32 [y], 1; ret; }}
.visible .entry k(.param .align 16 .b8 block[64])
{{
    .reg .b16 %h<99>; .reg .b32 %r<999>; .reg .f32 %f<999>; .reg .b64 %l<99>; .reg .f64 %d<9>; .reg .pred %p<9>; .reg .b128 %q<9>; .reg .b8 %c<99>;
    .local .align 16 .b8 stack[64]; .param .align 16 .b8 passed[64];
THERE:
TABLE: .branchtargets THERE;
"""
WIDE = dict.fromkeys(("b64", "u64", "s64", "desc", "f32x2"), "l")
WIDE |= {"f64": "d", "f32": "f", "b128": "q", "pred": "p", "any": "r"}
NARROW = {"b8": "c"} | dict.fromkeys(["u8", "s8", "b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2"], "h")
ADDRESSES = {"shared": "[%r90]", "tmem": "[%r91]", "local": "[stack]", "param": "[block]", "const": "[table]"}
LENGTHS = (1, 2, 4, 8, 16, 32, 64)
NUMBERS = (1, 0, 16, 24, 128)


def examples(form: Form) -> Iterator[str]:
    """Candidates, best first; the first that lowers is the example."""
    words, chosen = _qualifiers(form)
    head = ".".join((form.opcode, *words))
    slots = [slot for slot in template(form).slots if slot.group < 0]
    choices = [tuple(_operands(form, slot, chosen, words, k + 1)) for k, slot in enumerate(slots)]
    for operands in product(*choices):
        yield f"{head} {', '.join(operands)};".replace(" ;", ";")


def _qualifiers(form: Form) -> tuple[tuple[str, ...], dict[str, str]]:
    """The first member of every required choice, in the order written."""
    head = form.syntax.strip().rstrip(";").split(" ")[0]
    rest = head[len(form.opcode) :]
    words: list[str] = []
    chosen: dict[str, str] = {}
    for piece in re.findall(r"\.\{[^{}]*\}|\{(?:[^{}]|\{[^{}]*\})*\}|\.[\w:]+", rest):
        if piece.startswith("{"):
            continue
        name = piece.lstrip(".").strip("{}").split(",")[0].strip().lstrip(".")
        if name in form.sets:
            chosen[name] = form.sets[name][0].lstrip(".")
            name = chosen[name]
        words.append(name)
    return tuple(words), chosen


def _operands(form: Form, slot: Slot, chosen: dict[str, str], words: tuple[str, ...], k: int) -> Iterator[str]:
    kind = operand_type(form, slot, chosen, words)
    if kind == "tensor":
        dims = next((int(w[0]) for w in words if re.fullmatch(r"\dd", w)), 1)
        yield f"[%l90, {{{', '.join(f'%r{n}' for n in range(dims))}}}]"
        return
    if kind.startswith("vec"):
        _, element, count = kind.split(":")
        for n in [int(count)] if count else LENGTHS:
            yield "{" + ", ".join(_register(element, 10 * k + i) for i in range(n)) + "}"
        return
    for plain in _plain(kind, k):
        second = "|%p8" if slot.second and slot.shape == "plain" else ""
        yield plain + second


def _plain(kind: str, k: int) -> Iterator[str]:
    if kind in ADDRESSES or kind in ("addr", "global"):
        yield ADDRESSES.get(kind, "[%l90]")
        yield "[passed]"
    elif kind == "imm":
        yield from map(str, NUMBERS)
    elif kind == "label":
        yield "THERE"
    elif kind == "labels":
        yield "TABLE"
    elif kind == "function":
        yield from ("work", "take", "give", "both")
    elif kind == "arguments":
        yield f"(%r{k})"
    elif kind == "special":
        yield from ("%tid.x", "%clock64", "%tid", "%is_explicit_cluster")
    else:
        yield _register(kind, k)


def _register(kind: str, k: int) -> str:
    letter = (NARROW | WIDE).get(kind, "r")
    return f"%{letter}{k % 9 if letter in 'pdq' else k}"


@cache
def lowered(form: Form) -> tuple[str, tuple[str, ...]]:
    """An example and the names of its micro-operations; LookupError when no candidate lowers."""
    problem = ""
    for example in examples(form):
        try:
            return example, lower(example, form)
        except AssemblyError as error:
            problem = problem or str(error)
    raise LookupError(f"no example for '{form.syntax}': {problem}")


def lower(example: str, form: Form) -> tuple[str, ...]:
    """Names of the micro-operations of one instruction of `form`; AssemblyError when another form takes it."""
    target = "sm_90a" if "sm_90a" in form.targets else form.targets[-1]
    registry.load()
    source = HEAD.format(target=target) + f"{example}\nnanosleep.u32 7;\nret;\n}}\n"
    module = expand(source, "example.ptx", {}, ())
    kernel = module.kernels[0]
    lines = source.splitlines()
    ops = Lowering(kernel, target, Layout(module, kernel), lambda pos: lines[pos.line - 1]).run().ops
    return tuple(op.micro.name for op in ops[:-2])  # without the marker and EXIT
