"""Comparisons (PTX ISA 9.7.6): setp for integers, f32, f64 and halves.

The plain comparisons have a micro-operation each; those that write two predicates, combine with a third or
accept unordered operands go through one general micro-operation per operand type, steered by an immediate.
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import BF16, F16, F32, F64, Format, signed
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.integer import widened16
from isa.registry import ALL_TARGETS, Emitter, Match, PredConst, Value, instruction
from isa.vectors import flush32, half_lanes

LT, EQ, GT, UNORDERED = 1, 2, 4, 8  # bits of an immediate: which outcomes count as true
INTEGER = {"eq": EQ, "ne": LT | GT, "lt": LT, "le": LT | EQ, "gt": GT, "ge": GT | EQ}
SYNONYM = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}  # unsigned spellings
FLOAT = {
    **INTEGER,
    **{f"{cmp}u": mask | UNORDERED for cmp, mask in INTEGER.items()},
    "num": LT | EQ | GT,
    "nan": UNORDERED,
}
BOOL = {"and": 0, "or": 1, "xor": 2}
SYMBOL = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

# ---- micro-operations ---------------------------------------------------------------------------


def outcome_of(a: int, b: int) -> str:
    """`<`, `=` or `>` of two integers."""
    return "<" if a < b else ">" if a > b else "="


def decide(outcome: str, c: bool, imm: int) -> tuple[bool, bool]:
    """The two results of a comparison: with c, and its complement with c (imm bits 4..5: and, or, xor)."""
    t = bool(imm & {"<": LT, "=": EQ, ">": GT, "?": UNORDERED}[outcome])
    if imm >> 5 & 1:
        return t != c, (not t) != c
    return (t or c, not t or c) if imm >> 4 & 1 else (t and c, not t and c)


def _decide_emit(v: VectorBuilder, outcomes: list[tuple[int, Any]], c: Any, imm: Any) -> Any:
    """`decide` on vectors: `outcomes` are (bit number, predicate)."""
    false = v.const(0, "pred")
    t = false
    for bit, p in outcomes:
        t = v.or_(t, v.select(v.flag(imm, bit), p, false))
    return _combine(v, t, c, imm), _combine(v, v.not_(t), c, imm)


def _combine(v: VectorBuilder, t: Any, c: Any, imm: Any) -> Any:
    either = v.select(v.flag(imm, 4), v.or_(t, c), v.and_(t, c))
    return v.select(v.flag(imm, 5), v.xor(t, c), either)


def _integer(suffix: str, is_signed: bool) -> Micro:
    key = (lambda x: signed(x, 32)) if is_signed else (lambda x: x)

    def emit(v: VectorBuilder, a: Any, b: Any, c: Any, imm: Any) -> Any:
        less, equal = v.icmp("<", a, b, is_signed), v.icmp("==", a, b)
        return _decide_emit(v, [(0, less), (1, equal), (2, v.not_(v.or_(less, equal)))], c, imm)

    return lane(
        f"ISETP{suffix}",
        "uupi->pp",
        "alu",
        lambda a, b, c, imm: decide(outcome_of(key(a), key(b)), c, imm),
        emit,
        "compare by imm (bits 0..2 lt eq gt, 4..5 and or xor) with c; and the complement with c",
    )


def _integer_high(suffix: str, is_signed: bool) -> Micro:
    """The high words of a 64-bit comparison: where they are equal, the low words' result decides."""
    key = (lambda x: signed(x, 32)) if is_signed else (lambda x: x)

    def meaning(a: int, b: int, low: bool, c: bool, imm: int) -> tuple[bool, bool]:
        outcome = outcome_of(key(a), key(b))
        t = low if outcome == "=" else bool(imm & {"<": LT, ">": GT}[outcome])
        return decide("<", c, (imm & ~15) | int(t))

    def emit(v: VectorBuilder, a: Any, b: Any, low: Any, c: Any, imm: Any) -> Any:
        false = v.const(0, "pred")
        less, equal = v.icmp("<", a, b, is_signed), v.icmp("==", a, b)
        greater = v.not_(v.or_(less, equal))
        t = v.or_(v.select(v.flag(imm, 0), less, false), v.select(v.flag(imm, 2), greater, false))
        t = v.or_(t, v.and_(equal, low))
        return _combine(v, t, c, imm), _combine(v, v.not_(t), c, imm)

    return lane(f"ISETP{suffix}.EX", "uuppi->pp", "alu", meaning, emit, "high words; equal ones take the low result")


def _plain_integer(cmp: str, suffix: str, is_signed: bool) -> Micro:
    key = (lambda x: signed(x, 32)) if is_signed else (lambda x: x)
    return lane(
        f"ISETP.{cmp.upper()}{suffix}",
        "uu->p",
        "alu",
        lambda a, b: decide(outcome_of(key(a), key(b)), True, INTEGER[cmp])[0],
        lambda v, a, b: v.icmp(SYMBOL[cmp], a, b, is_signed),
        f"a {SYMBOL[cmp]} b",
    )


def _float_outcomes(v: VectorBuilder, a: Any, b: Any) -> list[tuple[int, Any]]:
    less, equal, greater = (v.fcmp(s, a, b) for s in ("<", "==", ">"))
    return [(0, less), (1, equal), (2, greater), (3, v.not_(v.fcmp("ord", a, b)))]


def _float(name: str, f: Format, letter: str, timing: str, widen: Any) -> Micro:
    ftz = name.endswith(".FTZ")

    def meaning(a: int, b: int, c: bool, imm: int) -> tuple[bool, bool]:
        a, b = a & (2 * f.sign - 1), b & (2 * f.sign - 1)
        if ftz:
            a, b = bits.flush(f, a), bits.flush(f, b)
        return decide(bits.compare(f, a, b), c, imm)

    def emit(v: VectorBuilder, a: Any, b: Any, c: Any, imm: Any) -> Any:
        return _decide_emit(v, _float_outcomes(v, widen(v, a), widen(v, b)), c, imm)

    doc = "compare by imm (bits 0..3 lt eq gt unordered, 4..5 and or xor) with c; and the complement with c"
    return lane(name, f"{letter}{letter}pi->pp", timing, meaning, emit, doc)


def _plain_float(cmp: str, ftz: bool) -> Micro:
    """f32 comparison with one result."""
    symbol = SYMBOL[cmp.removesuffix("u")]
    ordered = not cmp.endswith("u")

    def meaning(a: int, b: int) -> bool:
        if ftz:
            a, b = bits.flush(F32, a), bits.flush(F32, b)
        return decide(bits.compare(F32, a, b), True, FLOAT[cmp])[0]

    def emit(v: VectorBuilder, a: Any, b: Any) -> Any:
        return v.fcmp(symbol, *((flush32(v, a), flush32(v, b)) if ftz else (a, b)), ordered)

    words = f"a {symbol} b{'' if ordered else ' or unordered'}"
    return lane(f"FSETP.{cmp.upper()}{'.FTZ' if ftz else ''}", "ff->p", "alu", meaning, emit, words)


ISETP = {
    (cmp, type): _plain_integer(cmp, suffix, is_signed)
    for type, suffix, is_signed in (("s32", "", True), ("u32", ".U32", False))
    for cmp in INTEGER
}
ISETP_ANY = {"s32": _integer("", True), "u32": _integer(".U32", False)}
ISETP_EX = {"s32": _integer_high("", True), "u32": _integer_high(".U32", False)}
FSETP = {(cmp, ftz): _plain_float(cmp, ftz) for cmp in (*INTEGER, "neu", "geu") for ftz in (False, True)}
FSETP_ANY = {
    False: _float("FSETP", F32, "f", "alu", lambda v, x: x),
    True: _float("FSETP.FTZ", F32, "f", "alu", flush32),
}
FSETP_ABS = {
    cmp: lane(
        f"FSETP.{cmp.upper()}.ABS",
        "ff->p",
        "alu",
        lambda a, b, cmp=cmp: decide(bits.compare(F32, bits.magnitude(F32, a), b), True, FLOAT[cmp])[0],
        lambda v, a, b, cmp=cmp: v.fcmp(SYMBOL[cmp], v.fabs(a), b),
        f"|a| {SYMBOL[cmp]} b",
    )
    for cmp in ("lt", "gt")
}
DSETP = _float("DSETP", F64, "D", "fp64", lambda v, x: x)
HSETP2 = {
    "f16": _float("HSETP2", F16, "u", "half", lambda v, x: half_lanes(v, x, "f16")),
    "bf16": _float("HSETP2.BF16", BF16, "u", "half", lambda v, x: half_lanes(v, x, "bf16")),
}
HSETP2_FTZ = _float("HSETP2.FTZ", F16, "u", "half", lambda v, x: half_lanes(v, x, "f16", ftz=True))


# ---- lowering -------------------------------------------------------------------------------------


def compare(e: Emitter, m: Match, p: Value | None, q: Value | None, type: str) -> None:
    """p = (a CMP b) BOOL c, q = !(a CMP b) BOOL c for any operand type."""
    cmp = SYNONYM.get(m["CMP"], m["CMP"])
    c = m.c if m["BOOL"] else None
    plain = c is None and q is None and p is not None
    c = PredConst(True) if c is None else c
    combine = BOOL[m["BOOL"] or "and"] << 4
    if type in ("u64", "s64", "b64"):
        _compare64(e, (p, q), m.a, m.b, c, cmp, combine, "s32" if type == "s64" else "u32")
    elif type in ("f16", "bf16"):
        op = HSETP2_FTZ if m.has(".ftz") else HSETP2[type]
        e(op, (p, q), m.a, m.b, c, imm=FLOAT[cmp] | combine)
    elif type == "f64":
        e(DSETP, (p, q), m.a, m.b, c, imm=FLOAT[cmp] | combine)
    elif type == "f32":
        if plain and (cmp, m.has(".ftz")) in FSETP:
            e(FSETP[cmp, m.has(".ftz")], p, m.a, m.b)
        else:
            e(FSETP_ANY[m.has(".ftz")], (p, q), m.a, m.b, c, imm=FLOAT[cmp] | combine)
    else:
        a, b = widened16(e, m.a, type), widened16(e, m.b, type)
        word = "s32" if type.startswith("s") else "u32"
        if plain:
            e(ISETP[cmp, word], p, a, b)
        else:
            e(ISETP_ANY[word], (p, q), a, b, c, imm=INTEGER[cmp] | combine)


def _compare64(
    e: Emitter, results: tuple[Any, Any], a: Value, b: Value, c: Value, cmp: str, combine: int, word: str
) -> None:
    low = e.tmp("p")
    e(ISETP[cmp, "u32"], low, e.lo(a), e.lo(b))
    # "!=" holds where the high words differ or the low ones do, which is what the equal case hands on.
    e(ISETP_EX[word], results, e.hi(a), e.hi(b), low, c, imm=INTEGER[cmp] | combine)


# ---- forms ----------------------------------------------------------------------------------------

TRUE = PredConst(True)
BITS = ("b16", "b32", "b64")
SIGNED = ("s16", "s32", "s64")
UNSIGNED = ("u16", "u32", "u64")
KINDS: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [  # comparisons, types, optional qualifier
    (("eq", "ne"), BITS, ""),
    (tuple(INTEGER), SIGNED, ""),
    ((*INTEGER, *SYNONYM), UNSIGNED, ""),
    (tuple(FLOAT), ("f32",), "{.ftz}"),
    (tuple(FLOAT), ("f64",), ""),
]
BF16_TARGETS = ("sm_90", "sm_90a", "sm_100a")
HALF_KINDS = [(tuple(FLOAT), ("f16",), "{.ftz}"), (tuple(FLOAT), ("bf16",), "")]


def setp(e: Emitter, m: Match) -> None:
    """p = (a CMP b) BOOL c; q = !(a CMP b) BOOL c (not for halves)."""
    compare(e, m, m.p, None if m["T"] in ("f16", "bf16") else m.q, m["T"])


for _cmps, _types, _ftz in KINDS + HALF_KINDS:
    _sets = {"CMP": _cmps, "T": _types, "BOOL": tuple(BOOL)}
    _kinds = {"a": "T", "b": "T", "c": "pred", "p": "pred", "q": "pred"}
    _p = "p" if (_cmps, _types, _ftz) in HALF_KINDS else "p|q"
    instruction(
        f"setp.CMP{_ftz}.T {_p}, a, b;",
        f"setp.CMP.BOOL{_ftz}.T {_p}, a, b, c;",
        sets=_sets,
        types=_kinds,
        targets=BF16_TARGETS if _types == ("bf16",) else ALL_TARGETS,
    )(setp)
