"""Comparisons of packed halves (PTX ISA 9.7.7): setp and set on f16x2 and bf16x2."""

from __future__ import annotations

from isa.ops.compare import BOOL, FLOAT, HSETP2, HSETP2_FTZ, TRUE
from isa.ops.logic import OR
from isa.ops.move import PMOV, PRMT_FIXED
from isa.ops.select import ONE, SEL
from isa.registry import ALL_TARGETS, Const, Emitter, Match, Value, instruction

KINDS = (("f16x2", "{.ftz}", ALL_TARGETS), ("bf16x2", "", ("sm_90", "sm_90a", "sm_100a")))
HIGH = PRMT_FIXED[0x7632]


def compare(e: Emitter, m: Match, p: Value | None, q: Value | None) -> None:
    """p and q = (a CMP b) BOOL c for the low and the high halves."""
    op = HSETP2_FTZ if m.has(".ftz") else HSETP2[m["T"].removesuffix("x2")]
    imm = FLOAT[m["CMP"]] | BOOL[m["BOOL"] or "and"] << 4
    c = m.c if m["BOOL"] else TRUE
    second, high = e.tmp("p"), (e.tmp(), e.tmp())
    if q is not None:
        for d, word in zip(high, (m.a, m.b), strict=True):
            e(HIGH, d, word, Const(0))
        e(op, (second, None), *high, c, imm=imm)  # p may be c
    if p is not None:
        e(op, (p, None), m.a, m.b, c, imm=imm)
    if q is not None:
        e(PMOV, q, second)


def setp(e: Emitter, m: Match) -> None:
    """p = (a CMP b) BOOL c of the low halves, q of the high halves."""
    compare(e, m, m.p, m.q)


def set_value(e: Emitter, m: Match) -> None:
    """Each half of d = 1.0 where (a CMP b) BOOL c holds for the halves, else 0."""
    p, q, low, high = e.tmp("p"), e.tmp("p"), e.tmp(), e.tmp()
    compare(e, m, p, q)
    one = ONE[m["T"].removesuffix("x2")]
    e(SEL, low, Const(one), Const(0), p)
    e(SEL, high, Const(one << 16), Const(0), q)
    e(OR, m.d, low, high)


for _type, _ftz, _targets in KINDS:
    _sets = {"CMP": tuple(FLOAT), "T": (_type,), "BOOL": tuple(BOOL)}
    _types = {"a": "T", "b": "T", "c": "pred", "p": "pred", "q": "pred", "d": "T"}
    instruction(
        f"setp.CMP{_ftz}.T p|q, a, b;",
        f"setp.CMP.BOOL{_ftz}.T p|q, a, b, c;",
        sets=_sets,
        types=_types,
        targets=_targets,
    )(setp)
    instruction(
        f"set.CMP{_ftz}.{_type}.T d, a, b;",
        f"set.CMP.BOOL{_ftz}.{_type}.T d, a, b, c;",
        sets=_sets,
        types=_types,
        targets=_targets,
    )(set_value)
