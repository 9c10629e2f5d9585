"""Video instructions on two halves or four bytes of a word (PTX ISA 9.7.18), in the steps that `ptxas` needs too."""

from __future__ import annotations

from isa.ops.compare import ISETP
from isa.ops.integer import IADD3, IADD3_NEG, VABSDIFF, VIMNMX, ZERO
from isa.ops.move import MOV
from isa.ops.select import SEL
from isa.ops.shift import SHF_R_S32
from isa.ops.video import COMPARISONS, TYPES, field, insert
from isa.registry import Const, Emitter, Match, Part, Value, instruction

M32 = (1 << 32) - 1
OPERATIONS = ("add", "sub", "avrg", "absdiff", "min", "max")


def _lanes(m: Match) -> int:
    return int(m.form.opcode[-1])


def _digits(e: Emitter, m: Match, name: str, default: str, most: int) -> list[int]:
    """The numbers of a selector, lowest lane first."""
    count, part = _lanes(m), getattr(m, name)
    kind, digits = ("h", "b")[count == 4], part.selector[1:] or default
    lowest_first = [int(d) for d in reversed(digits)]
    whole = name == "d" or len(digits) == count
    sorted_mask = name != "d" or lowest_first == sorted(set(lowest_first))
    if part.selector[:1] not in ("", kind) or not whole or not sorted_mask or max(lowest_first) > most or part.negated:
        shown = {"h": "two of 0 to 3, as .h10", "b": "four of 0 to 7, as .b3210"}[kind]
        hint = f"lanes of d falling, as .{kind}10" if name == "d" else shown
        raise e.error(f"'.{part.selector}' does not select lanes of {count}", hint, m.operand(name))
    return lowest_first


def _elements(e: Emitter, m: Match, name: str, type: str) -> list[Value]:
    """The lanes of a source, which its selector takes from {b, a}."""
    count = _lanes(m)
    default = {("a", 2): "10", ("b", 2): "32", ("a", 4): "3210", ("b", 4): "7654"}[name, count]
    words: tuple[Part, Part] = m.a, m.b
    width = 32 // count
    found = []
    for digit in _digits(e, m, name, default, 2 * count - 1):
        word, index = divmod(digit, count)
        found.append(field(e, words[word].value, index * width, width, type))
    return found


def _one(e: Emitter, operation: str, a: Value, b: Value) -> Value:
    """One lane: the operands have 17 bits at most, so that nothing overflows."""
    d = e.tmp()
    if operation in ("min", "max"):
        e(VIMNMX[operation, "s32"], d, a, b)
    elif operation == "absdiff":
        e(VABSDIFF, d, a, b, ZERO)
    elif operation == "sub":
        e(IADD3_NEG, d, a, b)
    else:
        e(IADD3, d, a, b)
    if operation == "avrg":  # (a + b + 1) >> 1, of a negative sum (a + b) >> 1
        sign, up, total = e.tmp(), e.tmp(), d
        e(SHF_R_S32, sign, total, Const(31))
        e(IADD3, up, total, sign)
        e(IADD3, up, up, Const(1))
        d = e.tmp()
        e(SHF_R_S32, d, up, Const(1))
    return d


def _clamped(e: Emitter, x: Value, width: int, type: str) -> Value:
    least, most = (-(1 << width - 1), (1 << width - 1) - 1) if type == "s32" else (0, (1 << width) - 1)
    above, d = e.tmp(), e.tmp()
    e(VIMNMX["max", "s32"], above, x, Const(least & M32))
    e(VIMNMX["min", "s32"], d, above, Const(most))
    return d


def _collect(e: Emitter, m: Match, values: list[Value]) -> None:
    """The chosen lanes over those of c, or their sum plus c."""
    count = _lanes(m)
    mask = _digits(e, m, "d", "10" if count == 2 else "3210", count - 1)
    result: Value = m.c
    for i in mask:
        d = e.tmp()
        if m.has(".add"):
            e(IADD3, d, result, values[i])
        else:
            insert(e, d, values[i], result, i * 32 // count, 32 // count)
        result = d
    e(MOV, m.d.value, result)


_SETS = {"D": TYPES, "A": TYPES, "B": TYPES, "CMP": COMPARISONS}
_PARTS = {"d": "part", "a": "part", "b": "part", "c": "b32"}


@instruction(
    *(f"v{op}{n}.D.A.B{{.sat}} d, a, b, c;" for op in OPERATIONS for n in (2, 4)),
    *(f"v{op}{n}.D.A.B.add d, a, b, c;" for op in OPERATIONS for n in (2, 4)),
    sets=_SETS,
    types=_PARTS,
)
def arithmetic(e: Emitter, m: Match) -> None:
    """Each lane of d = a op b (.sat clamped), the lanes that its mask leaves out those of c; .add: d = c + their sum."""
    width = 32 // _lanes(m)
    pairs = zip(_elements(e, m, "a", m["A"]), _elements(e, m, "b", m["B"]), strict=True)
    values = [_one(e, m.form.opcode[1:-1], a, b) for a, b in pairs]
    if m.has(".sat"):
        values = [_clamped(e, x, width, m["D"]) for x in values]
    _collect(e, m, values)


@instruction("vset2.A.B.CMP{.add} d, a, b, c;", "vset4.A.B.CMP{.add} d, a, b, c;", sets=_SETS, types=_PARTS)
def compare(e: Emitter, m: Match) -> None:
    """Each lane of d = a cmp b (1 or 0), the rest as `arithmetic`."""
    values: list[Value] = []
    for a, b in zip(_elements(e, m, "a", m["A"]), _elements(e, m, "b", m["B"]), strict=True):
        p, bit = e.tmp("p"), e.tmp()
        e(ISETP[m["CMP"], "s32"], p, a, b)
        e(SEL, bit, Const(1), ZERO, p)
        values.append(bit)
    _collect(e, m, values)
