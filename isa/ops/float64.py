"""Double precision (PTX ISA 9.7.3): add sub mul fma mad min max abs neg copysign testp.

NaN results are the pattern that `ptxas` itself writes, 0xfff8000000000000.
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import F64
from isa.exact64 import fma64, nan64
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.compare import BOOL, EQ, GT, ISETP, ISETP_EX, LT, TRUE
from isa.ops.logic import AND, LOP3_LUT, OR, POR
from isa.ops.move import MOV
from isa.ops.select import SEL
from isa.registry import Const, Emitter, Match, Value, instruction
from isa.vectors import SIGN32

ROUND = ("rn", "rz", "rm", "rp")
SIGN_HIGH = Const(SIGN32)

# ---- micro-operations ---------------------------------------------------------------------------


def _arith(name: str, operands: int, scalar: Any, emit: Any, doc: str) -> Micro:
    return lane(
        name,
        "D" * operands + "->D",
        "fp64",
        lambda *x: scalar(F64, *x),
        lambda v, *x: nan64(v, emit(v, *x)),
        doc,
    )


DADD = _arith("DADD", 2, bits.add, lambda v, a, b: v.fadd(a, b), "a + b")
DADD_NEG = _arith("DADD.NEG", 2, bits.sub, lambda v, a, b: v.fsub(a, b), "a - b")
DMUL = _arith("DMUL", 2, bits.mul, lambda v, a, b: v.fmul(a, b), "a * b")
DFMA = _arith("DFMA", 3, bits.fma, lambda v, a, b, c: v.fma(a, b, c), "a * b + c, rounded once")
DFMA_ANY = lane(
    "DFMA.ANY",
    "DDDi->D",
    "fp64",
    lambda a, b, c, imm: bits.fma(F64, a, b, c, ROUND[imm & 3]),
    fma64,
    "a * b + c in the mode of imm",
)


def _sign_op(name: str, change: Any, emit: Any) -> Micro:
    return lane(
        f"DADD.{name}",
        "D->D",
        "fp64",
        lambda a: F64.nan if bits.is_nan(F64, a) else change(a),
        lambda v, a: nan64(v, emit(v, a)),
        "NaN becomes canonical",
    )


DABS = _sign_op("ABS", lambda a: a & ~F64.sign, lambda v, a: v.fabs(a))
DNEG = _sign_op("MINUS", lambda a: a ^ F64.sign, lambda v, a: v.fneg(a))


def _pick(name: str, largest: bool) -> Micro:
    """DSETP.MIN/.MAX: whether a is taken, and whether both are NaN."""

    def meaning(a: int, b: int) -> tuple[bool, bool]:
        nans = bits.is_nan(F64, a), bits.is_nan(F64, b)
        if any(nans):
            return nans[1] and not nans[0], all(nans)
        return (bits.order(F64, a) > bits.order(F64, b)) == largest, False

    def emit(v: VectorBuilder, a: Any, b: Any) -> Any:
        keys = []
        for x in (v.bits(a, "u64"), v.bits(b, "u64")):
            fold = v.lshr(v.ashr(x, v.const(63, "u64")), v.const(1, "u64"))
            keys.append(v.xor(x, fold))  # sorts like the value, -0 below +0
        greater = v.icmp(">", keys[0], keys[1], signed=True)
        nans = v.isnan(a), v.isnan(b)
        take = greater if largest else v.not_(greater)
        take = v.or_(v.and_(take, v.not_(v.or_(*nans))), v.and_(nans[1], v.not_(nans[0])))
        return take, v.and_(*nans)

    return lane(f"DSETP.{name}", "DD->pp", "fp64", meaning, emit, "a is the result; both are NaN")


DSETP_PICK = {"min": _pick("MIN", False), "max": _pick("MAX", True)}

# ---- forms ----------------------------------------------------------------------------------------


@instruction("add{.RND}.f64 d, a, b;", "sub{.RND}.f64 d, a, b;", sets={"RND": ROUND})
def add(e: Emitter, m: Match) -> None:
    """d = a + b or a - b, rounded once (rn unless said); other modes go through the fused form."""
    subtract, mode = m.form.opcode == "sub", m["RND"] or "rn"
    if mode == "rn":
        e(DADD_NEG if subtract else DADD, m.d, m.a, m.b)
    else:
        factor = Const(F64.one | (F64.sign if subtract else 0), "d")
        e(DFMA_ANY, m.d, m.b, factor, m.a, imm=ROUND.index(mode))


@instruction("mul{.RND}.f64 d, a, b;", sets={"RND": ROUND})
def mul(e: Emitter, m: Match) -> None:
    """d = a * b, rounded once; the added zero has the sign that leaves a zero product alone."""
    mode = m["RND"] or "rn"
    if mode == "rn":
        e(DMUL, m.d, m.a, m.b)
    else:
        zero = Const(0 if mode == "rm" else F64.sign, "d")
        e(DFMA_ANY, m.d, m.a, m.b, zero, imm=ROUND.index(mode))


@instruction("fma.RND.f64 d, a, b, c;", "mad.RND.f64 d, a, b, c;", sets={"RND": ROUND})
def fma(e: Emitter, m: Match) -> None:
    """d = a * b + c, rounded once."""
    if m["RND"] == "rn":
        e(DFMA, m.d, m.a, m.b, m.c)
    else:
        e(DFMA_ANY, m.d, m.a, m.b, m.c, imm=ROUND.index(m["RND"]))


def min_max64(e: Emitter, op: str, d: Value, a: Value, b: Value) -> None:
    """d = min or max of a and b."""
    first, both = e.tmp("p"), e.tmp("p")
    high, quiet, low = e.tmp(), e.tmp(), e.tmp()
    e(DSETP_PICK[op], (first, both), a, b)
    e(SEL, high, e.hi(a), e.hi(b), first)
    e(SEL, low, e.lo(a), e.lo(b), first)
    e(OR, quiet, high, Const(0x80000))
    e(MOV, e.lo(d), low)
    e(SEL, e.hi(d), quiet, high, both)


@instruction("min.f64 d, a, b;", "max.f64 d, a, b;")
def min_max(e: Emitter, m: Match) -> None:
    """The smaller or larger, -0 below +0; a NaN gives the other operand, two a quiet b."""
    min_max64(e, m.form.opcode, m.d, m.a, m.b)


@instruction("abs.f64 d, a;", "neg.f64 d, a;")
def abs_neg(e: Emitter, m: Match) -> None:
    """d = |a| or -a."""
    e(DABS if m.form.opcode == "abs" else DNEG, m.d, m.a)


@instruction("copysign.f64 d, a, b;")
def copysign(e: Emitter, m: Match) -> None:
    """d = b with the sign of a."""
    high = e.tmp()
    e(LOP3_LUT, high, e.hi(m.a), e.hi(m.b), SIGN_HIGH, imm=0xE4)
    e(MOV, e.lo(m.d), e.lo(m.b))
    e(MOV, e.hi(m.d), high)


TESTS = {
    "finite": (("lt", F64.inf),),
    "infinite": (("eq", F64.inf),),
    "number": (("le", F64.inf),),
    "notanumber": (("gt", F64.inf),),
    "normal": (("lt", F64.inf), ("ge", F64.smallest_normal)),
    "subnormal": (("ne", 0), ("lt", F64.smallest_normal)),
}
OUTCOMES = {"eq": EQ, "ne": LT | GT, "lt": LT, "le": LT | EQ, "gt": GT, "ge": GT | EQ}


@instruction("testp.OP.f64 p, a;", sets={"OP": tuple(TESTS)}, types={"p": "pred"})
def testp(e: Emitter, m: Match) -> None:
    """p = a is of the class, by comparisons of the bits without sign; zeros count as normal, as for f32."""
    size = e.tmp()
    e(AND, size, e.hi(m.a), Const(~SIGN32 & 0xFFFFFFFF))
    result: Value = TRUE
    for cmp, limit in TESTS[m["OP"]]:
        result = _test(e, size, e.lo(m.a), cmp, limit, result)
    if m["OP"] == "normal":
        zero = _test(e, size, e.lo(m.a), "eq", 0, TRUE)
        e(POR, m.p, result, zero)
    else:
        e(POR, m.p, result, result)


def _test(e: Emitter, high: Value, low: Value, cmp: str, limit: int, also: Value) -> Value:
    first, p = e.tmp("p"), e.tmp("p")
    e(ISETP[cmp, "u32"], first, low, Const(limit & 0xFFFFFFFF))
    e(ISETP_EX["u32"], (p, None), high, Const(limit >> 32), first, also, imm=OUTCOMES[cmp] | BOOL["and"] << 4)
    return p
