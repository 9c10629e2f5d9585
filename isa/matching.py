"""Instructions against the registry: which form is meant, and what its operands are.

`match(instr, names)` is pure: the caller supplies the scope through `Names`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from isa import registry
from isa.errors import AssemblyError, Diagnostic, UnsupportedError, nearest
from isa.forms import TYPES, Edit, Slot, Template, match_qualifiers, nearest_edit, operand_type, template
from isa.names import Names, OperandError, word_of
from isa.operands import convert
from isa.registry import Form, Half, VReg
from isa.syntax import Instr, Operand, Pair, Pos, Sink
from isa.vocabulary import OPCODES, compound, instead, is_qualifier


class Matched:
    """The `isa.registry.Match` of one instruction."""

    __slots__ = ("_chosen", "_nodes", "_values", "form", "instr", "mods", "types", "widened")

    def __init__(
        self,
        instr: Instr,
        form: Form,
        chosen: dict[str, str],
        values: dict[str, Any],
        nodes: dict[str, Operand],
    ) -> None:
        self.instr = instr
        self.form = form
        self.mods = tuple(instr.opcode.split(".")[1:])
        self.types = tuple(w for w in self.mods if w in TYPES)
        self.widened = _widened(form, values)
        self._chosen = chosen
        self._values = values
        self._nodes = nodes

    def has(self, qualifier: str) -> bool:
        """Whether the instruction was written with `.qualifier` (the dot may be left out)."""
        return qualifier.lstrip(".") in self.mods

    def operand(self, name: str) -> Operand | None:
        """The syntax node of an operand, None when it was left out."""
        return self._nodes.get(name)

    def __getitem__(self, name: str) -> str:
        if name not in self.form.sets:
            raise KeyError(f"'{self.form.syntax}' has no set '{name}'")
        return self._chosen.get(name, "")

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"'{self.form.syntax}' has no operand '{name}'") from None


def _widened(form: Form, values: dict[str, Any]) -> list[VReg]:
    """64-bit registers whose low half is the destination: lowering extends the result into the rest."""
    slots = template(form).slots
    if not slots or not slots[0].destination:
        return []
    value = values.get(slots[0].name)
    return [v.reg for v in (value if isinstance(value, list) else [value]) if isinstance(v, Half)]


Spelled = tuple[Form, Template, dict[str, str]]


@cache
def spelled(opcode: str) -> tuple[Spelled, ...]:
    """The forms that the opcode spells, whatever its operands, with the chosen set members."""
    base, *words = opcode.split(".")
    found = []
    for form in registry.FORMS.get(base, ()):
        chosen = match_qualifiers(template(form), tuple(words))
        if chosen is not None:
            found.append((form, template(form), chosen))
    return tuple(found)


def match(instr: Instr, names: Names) -> Matched:
    """Match one instruction; AssemblyError or UnsupportedError explains why it cannot be."""
    candidates = spelled(instr.opcode)
    if not candidates:
        raise _unknown_opcode(instr, names)
    clusters = [w for w in instr.opcode.split(".") if w in ("cluster", "shared::cluster")]
    if clusters and names.target == "sm_80":
        message = f"'.{clusters[0]}' of '{instr.opcode}' needs sm_90 or later, this module targets sm_80"
        raise AssemblyError([Diagnostic(instr.pos, message, "write .target sm_90a", names.source_line(instr.pos))])
    on_target = [c for c in candidates if names.target in c[0].targets]
    if not on_target:
        raise _wrong_target(instr, candidates[0][0], names)
    failures: list[tuple[int, Form, OperandError]] = []
    for form, compiled, chosen in on_target:
        layouts = compiled.layouts(len(instr.operands))
        if not layouts:
            failures.append((-1, form, _count_error(compiled, len(instr.operands))))
        for layout in layouts:
            values: dict[str, Any] = dict.fromkeys(compiled.names)
            nodes: dict[str, Operand] = {}
            done = 0
            try:
                for slot, node in zip(layout, instr.operands, strict=True):
                    _bind(instr, form, slot, node, chosen, names, values, nodes)
                    done += 1
            except OperandError as error:
                failures.append((error.rank + done, form, error))
                continue
            return Matched(instr, form, chosen, values, nodes)
    _, form, reason = max(failures, key=lambda f: f[0])
    if reason.word:
        kind = UnsupportedError if reason.unsupported else AssemblyError
        raise kind([at_word(instr.pos, reason, names)])
    hint = f"{reason.hint}; expected {form.syntax}" if reason.hint else f"expected {form.syntax}"
    raise AssemblyError([Diagnostic(instr.pos, str(reason), hint, names.source_line(instr.pos))])


def _bind(
    instr: Instr,
    form: Form,
    slot: Slot,
    node: Operand,
    chosen: dict[str, str],
    names: Names,
    values: dict[str, Any],
    nodes: dict[str, Operand],
) -> None:
    """Convert one operand (both halves of a pair) into `values`."""
    base, *words = instr.opcode.split(".")
    qualifiers = tuple(words)
    first: Operand = node
    if isinstance(node, Pair):
        if not slot.second or slot.shape != "plain":
            raise OperandError(f"'{slot.name}' of '{instr.opcode}' takes no 'd|p' pair")
        first = node.first
        kind = operand_type(form, slot, chosen, qualifiers, slot.second)
        values[slot.second] = convert(node.second, kind, names, destination=True, relaxed=False, wide=False)
        nodes[slot.second] = node.second
    kind = operand_type(form, slot, chosen, qualifiers)
    nodes[slot.name] = node
    if isinstance(first, Sink) and not slot.destination:
        raise OperandError(f"'_' cannot stand for the source '{slot.name}'")
    relaxed = base in ("ld", "st", "cvt", "ldu")
    wide = any(w.endswith("64") for w in words if w in TYPES)
    value = convert(first, kind, names, destination=slot.destination, relaxed=relaxed, wide=wide)
    if slot.shape == "tensor":
        values[slot.name], values[slot.second] = value
    else:
        values[slot.name] = value


# ---- diagnostics --------------------------------------------------------------------------------


def at_word(pos: Pos, reason: OperandError, names: Names) -> Diagnostic:
    """An error about one name: the caret stands under it where the author's line spells it."""
    line = names.source_line(pos)
    found = next(_spelled(line, reason.word, pos), None)
    return Diagnostic(replace(pos, col=found.start() + 1) if found else pos, str(reason), reason.hint, line)


def at_operand(pos: Pos, operand: Operand | None, line: str) -> Pos:
    """Where the author's line spells an operand, if once; else where the instruction begins."""
    found = list(_spelled(line, word_of(operand), pos))
    return replace(pos, col=found[0].start() + 1) if len(found) == 1 else pos


def _spelled(line: str, word: str, pos: Pos) -> Iterator[re.Match[str]]:
    """A word's places in a line from `pos` on."""
    return re.compile(rf"(?<![\w%$.]){re.escape(word)}(?![\w.])").finditer(line, pos.col - 1) if word else iter(())


def _count_error(form: Template, given: int) -> OperandError:
    counts = form.counts()
    expected = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return OperandError(f"{given} operand{'s' if given != 1 else ''} given, {expected} expected")


def _wrong_target(instr: Instr, form: Form, names: Names) -> AssemblyError:
    only = registry.least(form.targets)
    needs = f"needs {only}" if only.endswith("later") else f"is {only} only"
    message = f"'{instr.opcode}' {needs}, this module targets {names.target}"
    fitting = "sm_90a" if "sm_90a" in form.targets else form.targets[0]
    hint = f"write .target {fitting} for {form.syntax}"
    return AssemblyError([Diagnostic(instr.pos, message, hint, names.source_line(instr.pos))])


def _unknown_opcode(instr: Instr, names: Names) -> AssemblyError:
    """Sort a spelling that no form takes into unimplemented PTX and mistakes."""
    base, *words = instr.opcode.split(".")
    line = names.source_line(instr.pos)
    forms = [f for f in registry.FORMS.get(base, []) if compound(f.syntax) == compound(instr.opcode)]
    if not forms:
        if base in OPCODES:
            message = f"'{instr.opcode}' is not implemented"
            return UnsupportedError([Diagnostic(instr.pos, message, instead(base), line)])
        hint = nearest(base.lower(), registry.FORMS)
        return AssemblyError([Diagnostic(instr.pos, f"unknown instruction '{instr.opcode}'", hint, line)])
    edits = [(form, nearest_edit(template(form), tuple(words))) for form in forms]
    least = min(edit.cost for _, edit in edits)
    nearest_ones = [(form, edit) for form, edit in edits if edit.cost == least]
    closest = nearest_ones[0][0]
    vocabulary = frozenset().union(*(template(f).vocabulary for f in forms))
    strange = [w for w in words if w not in vocabulary]
    if strange and all(map(is_qualifier, strange)):
        message = f"'.{strange[0]}' of '{instr.opcode}' is not implemented"
        return UnsupportedError([Diagnostic(instr.pos, message, f"implemented: {closest.syntax}", line)])
    if strange:
        message = f"unknown qualifier '.{strange[0]}' in '{instr.opcode}'"
        hint = nearest(strange[0], vocabulary)
    else:
        message, hint = _misplaced(instr.opcode, [edit for _, edit in nearest_ones]), ""
    expected = f"expected {closest.syntax}"
    return AssemblyError([Diagnostic(instr.pos, message, f"{hint} {expected}".strip(), line)])


def _misplaced(opcode: str, edits: list[Edit]) -> str:
    """Why known qualifiers do not spell an instruction, by the smallest edits that would make them one."""
    adding = [edit for edit in edits if not edit.extra]
    if adding:
        members = sorted(frozenset().union(*(edit.missing[0].members for edit in adding)))
        listed = ", ".join(f".{m}" for m in members[:8]) + (", ..." if len(members) > 8 else "")
        return f"'{opcode}' needs {'one of ' if len(members) > 1 else ''}{listed}"
    if any(word in choice.members for edit in edits for choice in edit.missing for word in edit.extra):
        return f"the qualifiers of '{opcode}' are repeated or out of order"
    return f"'.{edits[0].extra[0]}' cannot be combined with the rest of '{opcode}'"
