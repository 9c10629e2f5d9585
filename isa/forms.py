"""Syntax lines of the manual, compiled: what qualifiers and operands a form takes.

A line such as `mbarrier.try_wait{.parity}{.sem}{.scope}.b64 p, [addr], phase{, hint};` becomes a
`Template`.  Required qualifiers keep their order; optional ones may stand anywhere, as `ptxas`
accepts them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from isa.registry import Form

TYPES = frozenset(
    [
        "b8",
        "b16",
        "b32",
        "b64",
        "b128",
        "u8",
        "u16",
        "u32",
        "u64",
        "s8",
        "s16",
        "s32",
        "s64",
        "f16",
        "f16x2",
        "f32",
        "f64",
        "bf16",
        "bf16x2",
        "tf32",
        "pred",
        "e4m3",
        "e5m2",
        "e4m3x2",
        "e5m2x2",
        "u16x2",
        "s16x2",
        "f32x2",
    ]
)
SPACES = ("shared", "global", "local", "param", "const")

Group = tuple["Choice", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One qualifier position: any of `members` (without their dots); `name` when a set gave them."""

    members: frozenset[str]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """One operand position.

    `shape` is how the line writes it: "plain", "addr" `[a]`, "tensor" `[map, coords]`, "vec" `{d}`.
    `second` names the other half of `d|p` (or the coordinates of a tensor); `group` numbers the
    optional group that the slot belongs to, -1 for none.
    """

    name: str
    shape: str
    second: str = ""
    group: int = -1
    destination: bool = False


@dataclass(frozen=True)
class Template:
    """A compiled syntax line."""

    required: tuple[Choice, ...]
    optional: tuple[Group, ...]
    slots: tuple[Slot, ...]
    sets: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        """Operand names."""
        return frozenset(n for s in self.slots for n in (s.name, s.second) if n)

    @property
    def vocabulary(self) -> frozenset[str]:
        """Every qualifier that the line mentions."""
        groups = [self.required, *self.optional]
        return frozenset(m for group in groups for choice in group for m in choice.members)

    def layouts(self, count: int) -> list[tuple[Slot, ...]]:
        """Ways to lay `count` operands over the slots, leaving out optional groups; fewest gaps first."""
        groups = sorted({s.group for s in self.slots if s.group >= 0})
        found = []
        for size in range(len(groups), -1, -1):
            for kept in combinations(groups, size):
                chosen = tuple(s for s in self.slots if s.group < 0 or s.group in kept)
                if len(chosen) == count:
                    found.append(chosen)
        return found

    def counts(self) -> list[int]:
        """The operand counts that the line allows, ascending."""
        return [n for n in range(len(self.slots) + 1) if self.layouts(n)]


@cache
def template(form: Form) -> Template:
    """Compile a form's syntax line; ValueError when the line itself is malformed."""
    head, _, tail = form.syntax.strip().rstrip(";").strip().partition(" ")
    sets = {name: frozenset(m.lstrip(".") for m in members) for name, members in form.sets.items()}
    required, optional = _qualifiers(head, sets)
    return Template(tuple(required), tuple(optional), tuple(_slots(tail)), frozenset(sets))


def _qualifiers(head: str, sets: dict[str, frozenset[str]]) -> tuple[list[Choice], list[Group]]:
    required: list[Choice] = []
    optional: list[Group] = []
    rest = re.sub(r"^[A-Za-z_]\w*", "", head)
    while rest:
        if match := re.match(r"\{((?:[^{}]|\{[^{}]*\})*)\}", rest):
            optional.append(_group(match[1], sets))
        elif match := re.match(r"\.\{([^{}]*)\}|\.[\w:]+", rest):
            required.append(_choice(match[1] if match[1] is not None else match[0], sets))
        else:
            raise ValueError(f"cannot read '{rest}' in the syntax line '{head}'")
        rest = rest[match.end() :]
    return required, optional


def _group(text: str, sets: dict[str, frozenset[str]]) -> Group:
    if "|" in text or "," in text:
        return (_choice(text, sets),)
    return tuple(_choice(part, sets) for part in re.findall(r"\.\{[^{}]*\}|\.[\w:]+", text))


def _choice(text: str, sets: dict[str, frozenset[str]]) -> Choice:
    words = [w.strip().lstrip(".") for w in re.split(r"[|,]", text.removeprefix(".{").removesuffix("}"))]
    name = words[0] if len(words) == 1 and words[0] in sets else ""
    members = frozenset().union(*(sets.get(w, frozenset((w,))) for w in words))
    return Choice(members, name)


_OPERAND = re.compile(
    r"(?P<open>\{\s*,)|(?P<close>\})|(?P<sep>,)|\[(?P<addr>[^\]]*)\]|\{(?P<vec>[^{},!]*)\}"
    r"|(?:\{!\}|!)?(?P<plain>[\w-]+)(?:\s*\{?\|\s*(?P<second>[\w-]+)\}?)?"
)
_DESTINATIONS = re.compile(r"^(d\d*|p|q|r|state|waitComplete|pred)$")


def _slots(text: str) -> list[Slot]:
    slots: list[Slot] = []
    group, open_groups = -1, 0
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _OPERAND.match(text, at)
        if match is None:
            raise ValueError(f"cannot read operands '{text[at:]}'")
        at = match.end()
        if match["open"]:
            group, open_groups = open_groups, open_groups + 1
        elif match["close"]:
            group = -1
        elif not match["sep"]:
            slots.append(_slot(match, group, first=not slots))
    return slots


def _slot(match: re.Match[str], group: int, first: bool) -> Slot:
    if match["addr"] is not None:
        name, *more = [_name(part) for part in match["addr"].split(",")]
        return Slot(name, "tensor" if more else "addr", more[0] if more else "", group)
    name = _name(match["vec"] if match["vec"] is not None else match["plain"])
    second = _name(match["second"] or "")
    destination = first and bool(_DESTINATIONS.match(name))
    return Slot(name, "plain" if match["vec"] is None else "vec", second if second != "_" else "", group, destination)


def _name(text: str) -> str:
    return text.strip().replace("-", "_")


def match_qualifiers(form: Template, words: tuple[str, ...]) -> dict[str, str] | None:
    """The chosen member of each named set when `words` spell this form, else None."""

    def walk(at: int, required: int, unused: tuple[Group, ...]) -> dict[str, str] | None:
        if at == len(words):
            return {} if required == len(form.required) else None
        if required < len(form.required) and words[at] in form.required[required].members:
            rest = walk(at + 1, required + 1, unused)
            if rest is not None:
                return _chosen((form.required[required],), words[at : at + 1]) | rest
        for i, group in enumerate(unused):
            part = words[at : at + len(group)]
            if len(part) == len(group) and all(w in c.members for w, c in zip(part, group, strict=True)):
                rest = walk(at + len(group), required, unused[:i] + unused[i + 1 :])
                if rest is not None:
                    return _chosen(group, part) | rest
        return None

    return walk(0, 0, form.optional)


@dataclass(frozen=True, slots=True)
class Edit:
    """What would make `words` spell a form: required qualifiers to add, and words to take away."""

    missing: tuple[Choice, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def cost(self) -> int:
        """How far the spelling is from the form; a word that does not belong there counts double."""
        return len(self.missing) + 2 * len(self.extra)


def nearest_edit(form: Template, words: tuple[str, ...]) -> Edit:
    """The smallest edit of `words` that spells `form` (see `match_qualifiers`)."""

    def plus(missing: tuple[Choice, ...], extra: tuple[str, ...], rest: Edit) -> Edit:
        return Edit(missing + rest.missing, extra + rest.extra)

    @cache
    def walk(at: int, required: int, unused: tuple[Group, ...]) -> Edit:
        ways = []
        if at == len(words):
            return Edit(form.required[required:])
        if required < len(form.required):
            choice = form.required[required]
            if words[at] in choice.members:
                ways.append(walk(at + 1, required + 1, unused))
            ways.append(plus((choice,), (), walk(at, required + 1, unused)))
        for i, group in enumerate(unused):
            part = words[at : at + len(group)]
            if len(part) == len(group) and all(w in c.members for w, c in zip(part, group, strict=True)):
                ways.append(walk(at + len(group), required, unused[:i] + unused[i + 1 :]))
        ways.append(plus((), words[at : at + 1], walk(at + 1, required, unused)))
        return min(ways, key=lambda edit: edit.cost)

    return walk(0, 0, form.optional)


def _chosen(group: Group, words: tuple[str, ...]) -> dict[str, str]:
    return {c.name: w for c, w in zip(group, words, strict=True) if c.name}


def operand_type(form: Form, slot: Slot, chosen: dict[str, str], words: tuple[str, ...], name: str = "") -> str:
    """The operand kind of `name` in `slot`: declared in `types`, or derived from the opcode.

    Derived: addresses take the state spaces of the opcode in order (generic without one); other
    operands the type suffix, where of two the first is the destination's and the last the sources'.
    """
    declared = form.types.get(name or slot.name, "")
    if declared and not declared.startswith("vec"):
        return chosen.get(declared, declared)
    if name and name == slot.second and slot.shape == "plain":
        return "pred"
    if slot.shape == "tensor":
        return "tensor"
    if slot.shape == "addr":
        spaces = [w.split("::")[0] for w in words if w.split("::")[0] in SPACES]
        order = [s.name for s in template(form).slots if s.shape == "addr"].index(slot.name)
        return spaces[min(order, len(spaces) - 1)] if spaces else "addr"
    suffixes = [w for w in words if w in TYPES]
    base = (suffixes[0] if slot.destination else suffixes[-1]) if suffixes else "u32"
    if declared:
        _, element, length = (*declared.split(":"), "", "")[:3]
        return f"vec:{chosen.get(element, element) or base}:{length}"
    if slot.shape == "vec":
        return f"vec:{base}:"
    width = next((w[1:] for w in words if w in ("v2", "v4", "v8")), "")
    return f"vec:{base}:{width}" if width else base
