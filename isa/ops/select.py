"""Selection (PTX ISA 9.7.6): selp, slct, and set, which selects between all ones and zero."""

from __future__ import annotations

from isa.bits import BF16, F16, F32
from isa.micro import lane
from isa.ops.compare import BF16_TARGETS, BOOL, FSETP, HALF_KINDS, ISETP, KINDS, compare
from isa.registry import ALL_TARGETS, Const, Emitter, Match, instruction

SEL = lane("SEL", "uup->u", "alu", lambda a, b, p: a if p else b, lambda v, a, b, p: v.select(p, a, b), "p ? a : b")
FSEL = lane("FSEL", "ffp->f", "alu", lambda a, b, p: a if p else b, lambda v, a, b, p: v.select(p, a, b), "p ? a : b")
ONE = {"f32": F32.one, "f16": F16.one, "bf16": BF16.one}
WORDS = ("b32", "u32", "s32", "b16", "u16", "s16")
PAIRS = ("b64", "u64", "s64", "f64")


@instruction("selp.T d, a, b, c;", sets={"T": (*WORDS, "f32")}, types={"c": "pred"})
def selp(e: Emitter, m: Match) -> None:
    """d = c ? a : b."""
    e(FSEL if m["T"] == "f32" else SEL, m.d, m.a, m.b, m.c)


@instruction("selp.T d, a, b, c;", sets={"T": PAIRS}, types={"c": "pred"})
def selp64(e: Emitter, m: Match) -> None:
    """d = c ? a : b, a SEL per word."""
    for half in (e.lo, e.hi):
        e(SEL, half(m.d), half(m.a), half(m.b), m.c)


@instruction("slct.T.s32 d, a, b, c;", sets={"T": (*WORDS, "f32", *PAIRS)}, types={"a": "T", "b": "T", "c": "s32"})
@instruction(
    "slct{.ftz}.T.f32 d, a, b, c;", sets={"T": (*WORDS, "f32", *PAIRS)}, types={"a": "T", "b": "T", "c": "f32"}
)
def slct(e: Emitter, m: Match) -> None:
    """d = c >= 0 ? a : b; -0 counts as 0, NaN selects b."""
    p = e.tmp("p")
    if m.instr.opcode.endswith(".f32"):
        e(FSETP["ge", m.has(".ftz")], p, m.c, Const(0))
    else:
        e(ISETP["ge", "s32"], p, m.c, Const(0))
    if m["T"] in PAIRS:
        for half in (e.lo, e.hi):
            e(SEL, half(m.d), half(m.a), half(m.b), p)
    else:
        e(FSEL if m["T"] == "f32" else SEL, m.d, m.a, m.b, p)


def set_value(e: Emitter, m: Match) -> None:
    """d = all ones (integer) or 1.0 (float) where (a CMP b) BOOL c, else 0."""
    p = e.tmp("p")
    compare(e, m, p, None, m["T"])
    e(SEL, m.d, Const(ONE.get(m["D"], 0xFFFFFFFF)), Const(0), p)


for _cmps, _types, _ftz in KINDS + HALF_KINDS:
    _half = (_cmps, _types, _ftz) in HALF_KINDS
    _results = ("u32", "s32", "u16", "s16", *_types) if _half else ("u32", "s32", "f32")
    _sets = {"CMP": _cmps, "T": _types, "BOOL": tuple(BOOL), "D": _results}
    _kinds = {"a": "T", "b": "T", "c": "pred", "d": "D"}
    instruction(
        f"set.CMP{_ftz}.D.T d, a, b;",
        f"set.CMP.BOOL{_ftz}.D.T d, a, b, c;",
        sets=_sets,
        types=_kinds,
        targets=BF16_TARGETS if _types == ("bf16",) else ALL_TARGETS,
    )(set_value)
