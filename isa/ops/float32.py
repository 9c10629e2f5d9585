"""Single precision arithmetic (PTX ISA 9.7.3): add sub mul fma mad min max abs neg copysign testp.

NaN results are always 0x7fffffff.  `.ftz` flushes subnormal inputs, and results below 2^-126 after rounding as if
the exponent had no lower limit (recorded on an H200).  Division and square roots are in `division.py`.
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import F32
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.compare import BOOL, EQ, GT, ISETP, ISETP_ANY, LT
from isa.ops.logic import AND, LOP3_LUT
from isa.registry import Const, Emitter, Match, instruction
from isa.vectors import (
    SIGN32,
    TWO_50,
    TWO_100,
    directed32,
    flush32,
    flush32_tiny,
    nan32,
    saturate32,
    two_sum,
)

ROUND = ("rn", "rz", "rm", "rp")
FTZ, SAT = 1, 2  # bits of the immediate of the general micro-operations

# ---- nearest even: one fast micro-operation each ---------------------------------------------------


def add_rn(v: VectorBuilder, a: Any, b: Any) -> Any:
    return nan32(v, v.fadd(a, b))


def add_ftz(v: VectorBuilder, a: Any, b: Any) -> Any:
    return flush32(v, add_rn(v, flush32(v, a), flush32(v, b)))  # a sum below 2^-126 is exact


def mul_ftz(v: VectorBuilder, a: Any, b: Any) -> Any:
    a, b, k = flush32(v, a), flush32(v, b), v.const(TWO_50, "f32")
    return nan32(v, flush32_tiny(v, v.fmul(a, b), v.fmul(v.fmul(a, k), v.fmul(b, k))))


def fma_ftz(v: VectorBuilder, a: Any, b: Any, c: Any) -> Any:
    a, b, c, k = flush32(v, a), flush32(v, b), flush32(v, c), v.const(TWO_50, "f32")
    scaled = v.fma(v.fmul(a, k), v.fmul(b, k), v.fmul(c, v.const(TWO_100, "f32")))
    return nan32(v, flush32_tiny(v, v.fma(a, b, c), scaled))


def _negated(emit: Any) -> Any:
    return lambda v, a, b: emit(v, a, v.fneg(b))


FADD = lane("FADD", "ff->f", "fma", lambda a, b: bits.add(F32, a, b), add_rn, "a + b")
FADD_FTZ = lane("FADD.FTZ", "ff->f", "fma", lambda a, b: bits.add(F32, a, b, ftz=True), add_ftz, "a + b, .ftz")
FADD_NEG = lane("FADD.NEG", "ff->f", "fma", lambda a, b: bits.sub(F32, a, b), _negated(add_rn), "a - b")
FADD_NEG_FTZ = lane(
    "FADD.NEG.FTZ", "ff->f", "fma", lambda a, b: bits.sub(F32, a, b, ftz=True), _negated(add_ftz), "a - b, .ftz"
)
FMUL = lane("FMUL", "ff->f", "fma", lambda a, b: bits.mul(F32, a, b), lambda v, a, b: nan32(v, v.fmul(a, b)), "a * b")
FMUL_FTZ = lane("FMUL.FTZ", "ff->f", "fma", lambda a, b: bits.mul(F32, a, b, ftz=True), mul_ftz, "a * b, .ftz")
FFMA = lane(
    "FFMA",
    "fff->f",
    "fma",
    lambda a, b, c: bits.fma(F32, a, b, c),
    lambda v, a, b, c: nan32(v, v.fma(a, b, c)),
    "a * b + c, rounded once",
)
FFMA_FTZ = lane(
    "FFMA.FTZ", "fff->f", "fma", lambda a, b, c: bits.fma(F32, a, b, c, ftz=True), fma_ftz, "a * b + c, .ftz"
)
FMUL_IF = lane(
    "FMUL.IF",
    "ffp->f",
    "fma",
    lambda a, b, p: bits.mul(F32, a, b) if p else a,
    lambda v, a, b, p: v.select(p, nan32(v, v.fmul(a, b)), a),
    "a * b where p, else a: ptxas's @P FMUL",
)
FMUL_IF_FTZ = lane(
    "FMUL.IF.FTZ",
    "ffp->f",
    "fma",
    lambda a, b, p: bits.mul(F32, a, b, ftz=True) if p else a,
    lambda v, a, b, p: v.select(p, mul_ftz(v, a, b), a),
    "a * b where p, else a; .ftz",
)
FADD_IF = lane(
    "FADD.IF",
    "ffp->f",
    "fma",
    lambda a, b, p: bits.add(F32, a, b) if p else a,
    lambda v, a, b, p: v.select(p, add_rn(v, a, b), a),
    "a + b where p, else a",
)

# ---- directed rounding and .sat: steered by an immediate (bit 0 .ftz, bit 1 .sat) -----------------------


def _flushed(v: VectorBuilder, imm: Any, *xs: Any) -> list[Any]:
    return [v.select(v.flag(imm, 0), flush32(v, x), x) for x in xs]


def _finish(v: VectorBuilder, imm: Any, r: Any) -> Any:
    return v.select(v.flag(imm, 1), saturate32(v, r), r)


def _general(name: str, scalar: Any, operands: int, mode: str, emit: Any) -> Micro:
    """A micro-operation with immediate; the meaning is one rounding in `mode`, then saturation."""

    def meaning(*args: int) -> int:
        *sources, imm = args
        result = scalar(F32, *sources, mode=mode, ftz=bool(imm & FTZ))
        return bits.saturate(F32, result) if imm & SAT else int(result)

    suffix = ".SAT" if mode == "rn" else f".{mode.upper()}"
    doc = "imm bit 0 .ftz, bit 1 .sat"
    return lane(name + suffix, "f" * operands + "i->f", "fma", meaning, emit, doc)


def _sat_emit(plain: Any, flushing: Any) -> Any:
    return lambda v, *args: _finish(
        v, args[-1], v.select(v.flag(args[-1], 0), flushing(v, *args[:-1]), plain(v, *args[:-1]))
    )


def add_directed(mode: str) -> Any:
    def emit(v: VectorBuilder, a: Any, b: Any, imm: Any) -> Any:
        a, b = _flushed(v, imm, a, b)
        s, err = two_sum(v, v.fext(a, "f64"), v.fext(b, "f64"))
        return _finish(v, imm, directed32(v, mode, s, err, _zero_sign(v, mode, a, b), v.flag(imm, 0)))

    return emit


def mul_directed(mode: str) -> Any:
    def emit(v: VectorBuilder, a: Any, b: Any, imm: Any) -> Any:
        a, b = _flushed(v, imm, a, b)
        zero = v.xor(v.bits(a, "u32"), v.bits(b, "u32"))
        product = v.fmul(v.fext(a, "f64"), v.fext(b, "f64"))
        return _finish(v, imm, directed32(v, mode, product, v.const(0.0, "f64"), zero, v.flag(imm, 0)))

    return emit


def fma_directed(mode: str) -> Any:
    def emit(v: VectorBuilder, a: Any, b: Any, c: Any, imm: Any) -> Any:
        a, b, c = _flushed(v, imm, a, b, c)
        s, err = two_sum(v, v.fmul(v.fext(a, "f64"), v.fext(b, "f64")), v.fext(c, "f64"))
        product_sign = v.bits(v.xor(v.bits(a, "u32"), v.bits(b, "u32")), "f32")
        return _finish(v, imm, directed32(v, mode, s, err, _zero_sign(v, mode, product_sign, c), v.flag(imm, 0)))

    return emit


def _zero_sign(v: VectorBuilder, mode: str, a: Any, b: Any) -> Any:
    """The sign of an exact zero a + b: that of both, else minus in rm only."""
    combine = v.or_ if mode == "rm" else v.and_
    return combine(v.bits(a, "u32"), v.bits(b, "u32"))


FADD_ANY = {"rn": _general("FADD", bits.add, 2, "rn", _sat_emit(add_rn, add_ftz))}
FMUL_ANY = {"rn": _general("FMUL", bits.mul, 2, "rn", _sat_emit(lambda v, a, b: nan32(v, v.fmul(a, b)), mul_ftz))}
FFMA_ANY = {"rn": _general("FFMA", bits.fma, 3, "rn", _sat_emit(lambda v, a, b, c: nan32(v, v.fma(a, b, c)), fma_ftz))}
for _mode in ROUND[1:]:
    FADD_ANY[_mode] = _general("FADD", bits.add, 2, _mode, add_directed(_mode))
    FMUL_ANY[_mode] = _general("FMUL", bits.mul, 2, _mode, mul_directed(_mode))
    FFMA_ANY[_mode] = _general("FFMA", bits.fma, 3, _mode, fma_directed(_mode))

# ---- min and max ------------------------------------------------------------------------------------


def _extremum(largest: bool, ftz: bool) -> Micro:
    call = "maximumnum" if largest else "minimumnum"

    def emit(v: VectorBuilder, a: Any, b: Any) -> Any:
        r = nan32(v, v.call(call, a, b))
        return flush32(v, r) if ftz else r  # flushing keeps the order, so once at the end is enough

    def meaning(a: int, b: int) -> int:
        if ftz:
            a, b = bits.flush(F32, a), bits.flush(F32, b)
        return bits.extremum(F32, a, b, largest)

    name = f"FMNMX.{'MAX' if largest else 'MIN'}{'.FTZ' if ftz else ''}"
    return lane(name, "ff->f", "alu", meaning, emit, "-0 below +0; a NaN gives the other operand")


def _extremum_general(largest: bool) -> Micro:
    """With .NaN and .xorsign.abs: imm bit 0 .ftz, 1 .NaN, 2 .xorsign.abs."""

    def meaning(a: int, b: int, imm: int) -> int:
        if imm & 1:
            a, b = bits.flush(F32, a), bits.flush(F32, b)
        return bits.extremum(F32, a, b, largest, nan=bool(imm & 2), xorsign=bool(imm & 4))

    def emit(v: VectorBuilder, a: Any, b: Any, imm: Any) -> Any:
        a, b = _flushed(v, imm, a, b)
        sign = v.and_(v.xor(v.bits(a, "u32"), v.bits(b, "u32")), v.const(SIGN32))
        x, y = (v.select(v.flag(imm, 2), v.fabs(z), z) for z in (a, b))
        plain = v.call("maximumnum" if largest else "minimumnum", x, y)
        strict = v.or_(v.isnan(x), v.isnan(y))
        signed = v.select(v.flag(imm, 2), v.or_(v.bits(plain, "u32"), sign), v.bits(plain, "u32"))
        r = nan32(v, v.bits(signed, "f32"))
        return v.select(v.flag(imm, 1), v.select(strict, v.bits(v.const(bits.F32.nan), "f32"), r), r)

    name = f"FMNMX.{'MAX' if largest else 'MIN'}.ANY"
    return lane(name, "ffi->f", "alu", meaning, emit, "imm bit 0 .ftz, 1 .NaN, 2 .xorsign.abs")


FMNMX = {(op, ftz): _extremum(op == "max", ftz) for op in ("min", "max") for ftz in (False, True)}
FMNMX_ANY = {op: _extremum_general(op == "max") for op in ("min", "max")}


def _sign_op(name: str, meaning: Any, emit: Any, doc: str) -> dict[bool, Micro]:
    """abs and neg, which ptxas compiles to FADD with an operand modifier: NaN becomes canonical."""
    return {
        False: lane(
            f"FADD.{name}",
            "f->f",
            "fma",
            lambda a: F32.nan if bits.is_nan(F32, a) else meaning(a),
            lambda v, a: nan32(v, emit(v, a)),
            doc,
        ),
        True: lane(
            f"FADD.{name}.FTZ",
            "f->f",
            "fma",
            lambda a: F32.nan if bits.is_nan(F32, a) else meaning(bits.flush(F32, a)),
            lambda v, a: nan32(v, emit(v, flush32(v, a))),
            f"{doc}, .ftz",
        ),
    }


FABS = _sign_op("ABS", lambda a: a & ~SIGN32, lambda v, a: v.fabs(a), "|a|")
FNEG = _sign_op("MINUS", lambda a: a ^ SIGN32, lambda v, a: v.fneg(a), "-a")

# ---- forms ----------------------------------------------------------------------------------------


@instruction("add{.RND}{.ftz}{.sat}.f32 d, a, b;", "sub{.RND}{.ftz}{.sat}.f32 d, a, b;", sets={"RND": ROUND})
def add(e: Emitter, m: Match) -> None:
    """d = a + b or a - b, rounded once (rn unless said)."""
    ftz, mode = m.has(".ftz"), m["RND"] or "rn"
    subtract = m.form.opcode == "sub"
    if mode == "rn" and not m.has(".sat"):
        fast = (FADD_NEG, FADD_NEG_FTZ) if subtract else (FADD, FADD_FTZ)
        e(fast[ftz], m.d, m.a, m.b)
        return
    b = m.b
    if subtract:
        b = e.tmp()
        e(FNEG[False], b, m.b)
    e(FADD_ANY[mode], m.d, m.a, b, imm=ftz * FTZ + m.has(".sat") * SAT)


@instruction("mul{.RND}{.ftz}{.sat}.f32 d, a, b;", sets={"RND": ROUND})
def mul(e: Emitter, m: Match) -> None:
    """d = a * b, rounded once (rn unless said)."""
    ftz, mode = m.has(".ftz"), m["RND"] or "rn"
    if mode == "rn" and not m.has(".sat"):
        e((FMUL, FMUL_FTZ)[ftz], m.d, m.a, m.b)
    else:
        e(FMUL_ANY[mode], m.d, m.a, m.b, imm=ftz * FTZ + m.has(".sat") * SAT)


@instruction("fma.RND{.ftz}{.sat}.f32 d, a, b, c;", "mad.RND{.ftz}{.sat}.f32 d, a, b, c;", sets={"RND": ROUND})
def fma(e: Emitter, m: Match) -> None:
    """d = a * b + c, rounded once; mad is fma from sm_20 on."""
    ftz, mode = m.has(".ftz"), m["RND"]
    if mode == "rn" and not m.has(".sat"):
        e((FFMA, FFMA_FTZ)[ftz], m.d, m.a, m.b, m.c)
    else:
        e(FFMA_ANY[mode], m.d, m.a, m.b, m.c, imm=ftz * FTZ + m.has(".sat") * SAT)


@instruction("min{.ftz}{.NaN}{.xorsign.abs}.f32 d, a, b;", "max{.ftz}{.NaN}{.xorsign.abs}.f32 d, a, b;")
def min_max(e: Emitter, m: Match) -> None:
    """The smaller or larger; see `isa.bits.extremum` for NaN, zeros and .xorsign.abs."""
    op, ftz, nan, xorsign = m.form.opcode, m.has(".ftz"), m.has(".NaN"), m.has(".xorsign")
    if nan or xorsign:
        e(FMNMX_ANY[op], m.d, m.a, m.b, imm=ftz | nan << 1 | xorsign << 2)
    else:
        e(FMNMX[op, ftz], m.d, m.a, m.b)


@instruction("abs{.ftz}.f32 d, a;", "neg{.ftz}.f32 d, a;")
def abs_neg(e: Emitter, m: Match) -> None:
    """d = |a| or -a; NaN becomes 0x7fffffff."""
    e((FABS if m.form.opcode == "abs" else FNEG)[m.has(".ftz")], m.d, m.a)


@instruction("copysign.f32 d, a, b;")
def copysign(e: Emitter, m: Match) -> None:
    """d = b with the sign of a."""
    e(LOP3_LUT, m.d, m.a, m.b, Const(SIGN32), imm=0xE4)


@instruction(
    "testp.OP.f32 p, a;",
    sets={"OP": ("finite", "infinite", "number", "notanumber", "normal", "subnormal")},
    types={"p": "pred"},
)
def testp(e: Emitter, m: Match) -> None:
    """p = a is of the class, by comparisons of the bits without sign; ptxas counts zeros as normal."""
    size = e.tmp()
    e(AND, size, m.a, Const(~SIGN32 & 0xFFFFFFFF))
    cmp, limit = {
        "finite": ("lt", F32.inf),
        "infinite": ("eq", F32.inf),
        "number": ("le", F32.inf),
        "notanumber": ("gt", F32.inf),
        "normal": ("lt", F32.inf),
        "subnormal": ("ne", 0),
    }[m["OP"]]
    if m["OP"] not in ("normal", "subnormal"):
        e(ISETP[cmp, "u32"], m.p, size, Const(limit))
        return
    first, second = e.tmp("p"), e.tmp("p")
    e(ISETP[cmp, "u32"], first, size, Const(limit))
    smallest = Const(F32.smallest_normal)
    if m["OP"] == "subnormal":
        e(ISETP_ANY["u32"], (m.p, None), size, smallest, first, imm=LT)
    else:
        e(ISETP_ANY["u32"], (second, None), size, smallest, first, imm=EQ | GT)
        e(ISETP_ANY["u32"], (m.p, None), size, Const(0), second, imm=EQ | BOOL["or"] << 4)
