"""Correctly rounded division and square roots (PTX ISA 9.7.3): div rcp sqrt .rn .rz .rm .rp, f32 and f64.

`ptxas` emits a reciprocal from the special function unit, fused multiply-adds that refine it, and a branch to a slow
path for operands whose intermediate values would leave the range.  The same fast path is lowered here; its last
step is a micro-operation that returns the exact result, which is what fast and slow path give together.
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import F32, F64
from isa.exact64 import div64, sqrt64
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.float32 import FFMA, FMUL_FTZ, FNEG
from isa.ops.float64 import DFMA, DMUL, DNEG
from isa.ops.move import MOV
from isa.ops.special_functions import MUFU_RCP, MUFU_RSQ, f32
from isa.registry import Const, Emitter, Match, Value, instruction
from isa.vectors import SIGN32, flush32, narrow

MODES = ("rn", "rz", "rm", "rp")  # immediate bits 0..1; bit 2 is .ftz
FTZ = 4
ONE, ZERO, ONE64, HALF64 = f32(1.0), f32(0.0), Const(F64.one, "d"), Const(0x3FE0000000000000, "d")

# ---- micro-operations ---------------------------------------------------------------------------


def _flush_result(v: VectorBuilder, exact: Any, r: Any, imm: Any) -> Any:
    """`.ftz` on a result: `exact` (f64) below 2^-126 after rounding as if the exponent had no limit."""
    bits_ = v.bits(r, "u32")
    negative = v.icmp("<", bits_, v.const(0), signed=True)
    directed = v.select(v.flag(imm, 0), v.not_(negative), negative)  # rp, rm: away from zero
    limit = [v.const(2.0**-126 - x, "f64") for x in (2.0**-151, 0.0, 2.0**-150)]
    size = v.fabs(exact)
    nearest, zero = v.fcmp("<", size, limit[0]), v.fcmp("<", size, limit[1])
    away = v.select(directed, v.fcmp("<=", size, limit[2]), zero)
    tiny = v.select(v.flag(imm, 1), away, v.select(v.flag(imm, 0), zero, nearest))
    flushed = v.bits(v.select(tiny, v.and_(bits_, v.const(SIGN32)), bits_), "f32")
    return v.select(v.flag(imm, 2), flushed, r)


def _odd(v: VectorBuilder, q: Any, rest: Any) -> Any:
    """The f64 quotient q whose remainder has the sign of `rest` (relative to q), rounded to odd."""
    bits_, none = v.bits(q, "u64"), v.const(0.0, "f64")
    even = v.icmp("==", v.and_(bits_, v.const(1, "u64")), v.const(0, "u64"))
    step = v.select(v.fcmp(">", rest, none), v.const(1, "u64"), v.const(-1, "u64"))
    adjust = v.and_(even, v.fcmp("!=", rest, none))
    return v.bits(v.add(bits_, v.select(adjust, step, v.const(0, "u64"))), "f64")


def _rounded(v: VectorBuilder, exact: Any, imm: Any) -> Any:
    r = v.bits(v.trunc(narrow(v, F32, exact, imm), "u32"), "f32")
    return _flush_result(v, exact, r, imm)


def _inputs(v: VectorBuilder, imm: Any, *xs: Any) -> list[Any]:
    return [v.fext(v.select(v.flag(imm, 2), flush32(v, x), x), "f64") for x in xs]


def _fdiv(v: VectorBuilder, a: Any, b: Any, estimate: Any, imm: Any) -> Any:
    a, b = _inputs(v, imm, a, b)
    q = v.fdiv(a, b)
    rest = v.fma(v.fneg(q), b, a)
    sign = v.and_(v.xor(v.bits(a, "u64"), v.const(0, "u64")), v.const(F64.sign, "u64"))
    return _rounded(v, _odd(v, q, v.bits(v.xor(v.bits(rest, "u64"), sign), "f64")), imm)


def _fsqrt(v: VectorBuilder, a: Any, estimate: Any, imm: Any) -> Any:
    (a,) = _inputs(v, imm, a)
    root = v.call("sqrt", a)
    return _rounded(v, _odd(v, root, v.fma(v.fneg(root), root, a)), imm)


FDIV = lane(
    "FDIV.FIX",
    "fffi->f",
    "fma",
    lambda a, b, estimate, imm: bits.div(F32, a, b, MODES[imm & 3], bool(imm & FTZ)),
    _fdiv,
    "a / b rounded once; c is the estimate that the slow path would replace",
)
FSQRT = lane(
    "FSQRT.FIX",
    "ffi->f",
    "fma",
    lambda a, estimate, imm: bits.sqrt(F32, a, MODES[imm & 3], bool(imm & FTZ)),
    _fsqrt,
    "sqrt(a) rounded once; b is the estimate",
)
DDIV = lane(
    "DDIV.FIX",
    "DDDi->D",
    "fp64",
    lambda a, b, estimate, imm: bits.div(F64, a, b, MODES[imm & 3]),
    lambda v, a, b, estimate, imm: div64(v, a, b, imm),
    "a / b rounded once; c is the estimate",
)
DSQRT = lane(
    "DSQRT.FIX",
    "DDi->D",
    "fp64",
    lambda a, estimate, imm: bits.sqrt(F64, a, MODES[imm & 3]),
    lambda v, a, estimate, imm: sqrt64(v, a, imm),
    "sqrt(a) rounded once; b is the estimate",
)


def _seed(name: str, exact: Any, emit: Any, doc: str) -> Micro:
    """The special function unit on f64: the high word of an approximation, from the high word, .ftz.

    How it rounds is not known: here it truncates, where hardware promises 2^-20.
    """

    def meaning(a: int) -> int:
        return bits.flush(F64, exact(bits.flush(F64, a << 32))) >> 32

    return lane(name, "u->u", "mufu", meaning, emit, doc)


def _seed_emit(compute: Any) -> Any:
    def flushed(v: VectorBuilder, high: Any) -> Any:
        small = v.icmp("==", v.and_(high, v.const(F64.inf >> 32)), v.const(0))
        return v.select(small, v.and_(high, v.const(1 << 31)), high)

    def emit(v: VectorBuilder, a: Any) -> Any:
        r = compute(v, v.bits(v.pair(v.const(0), flushed(v, a)), "f64"))
        return v.select(v.isnan(r), v.const(F64.nan >> 32), flushed(v, v.halves(v.bits(r, "u64"))[1]))

    return emit


MUFU_RCP64H = _seed(
    "MUFU.RCP64H",
    lambda a: bits.div(F64, F64.one, a),
    _seed_emit(lambda v, a: v.fdiv(v.const(1.0, "f64"), a)),
    "high word of 1 / {a, 0}",
)
MUFU_RSQ64H = _seed(
    "MUFU.RSQ64H",
    lambda a: bits.div(F64, F64.one, bits.sqrt(F64, a)),
    _seed_emit(lambda v, a: v.fdiv(v.const(1.0, "f64"), v.call("sqrt", a))),
    "high word of 1 / sqrt({a, 0})",
)

# ---- lowering -------------------------------------------------------------------------------------


def _imm(m: Match) -> int:
    return MODES.index(m["RND"]) | m.has(".ftz") * FTZ


def _chain(e: Emitter, op: Micro, *steps: tuple[Value, Value, Value]) -> Value:
    """Fused multiply-adds, each with its own result; returns the last."""
    result: Value = ZERO
    for a, b, c in steps:
        result = e.tmp("d" if op is DFMA else "r")
        e(op, result, a, b, c)
    return result


@instruction("div.RND{.ftz}.f32 d, a, b;", sets={"RND": MODES})
def div32(e: Emitter, m: Match) -> None:
    """d = a / b, rounded once."""
    _div32(e, m, m.a, m.b)


@instruction("rcp.RND{.ftz}.f32 d, a;", sets={"RND": MODES})
def rcp32(e: Emitter, m: Match) -> None:
    """d = 1 / a, rounded once."""
    reciprocal, minus = e.tmp(), e.tmp()
    e(MUFU_RCP, reciprocal, m.a)
    error = _chain(e, FFMA, (m.a, reciprocal, f32(-1.0)))
    e(FNEG[False], minus, error)
    e(FDIV, m.d, ONE, m.a, _chain(e, FFMA, (reciprocal, minus, reciprocal)), imm=_imm(m))


def _div32(e: Emitter, m: Match, a: Value, b: Value) -> None:
    reciprocal, minus = e.tmp(), e.tmp()
    e(MUFU_RCP, reciprocal, b)
    e(FNEG[False], minus, b)
    error = _chain(e, FFMA, (minus, reciprocal, ONE))
    better = _chain(e, FFMA, (reciprocal, error, reciprocal))
    quotient = _chain(e, FFMA, (a, better, ZERO))
    rest = _chain(e, FFMA, (minus, quotient, a))
    e(FDIV, m.d, a, b, _chain(e, FFMA, (better, rest, quotient)), imm=_imm(m))


@instruction("sqrt.RND{.ftz}.f32 d, a;", sets={"RND": MODES})
def sqrt32(e: Emitter, m: Match) -> None:
    """d = sqrt(a), rounded once."""
    inverse, root, half, minus = e.tmp(), e.tmp(), e.tmp(), e.tmp()
    e(MUFU_RSQ, inverse, m.a)
    e(FMUL_FTZ, root, m.a, inverse)
    e(FMUL_FTZ, half, inverse, f32(0.5))
    e(FNEG[False], minus, root)
    rest = _chain(e, FFMA, (minus, root, m.a))
    e(FSQRT, m.d, m.a, _chain(e, FFMA, (rest, half, root)), imm=_imm(m))


def _reciprocal64(e: Emitter, b: Value) -> tuple[Value, Value]:
    """-b and 1 / b to nearly full precision."""
    seed, minus = e.tmp("d"), e.tmp("d")
    e(MUFU_RCP64H, e.hi(seed), e.hi(b))
    e(MOV, e.lo(seed), Const(1))
    e(DNEG, minus, b)
    error = _chain(e, DFMA, (minus, seed, ONE64))
    squared = _chain(e, DFMA, (error, error, error))
    better = _chain(e, DFMA, (seed, squared, seed))
    return minus, _chain(e, DFMA, (better, _chain(e, DFMA, (minus, better, ONE64)), better))


@instruction("div.RND.f64 d, a, b;", sets={"RND": MODES})
def div_f64(e: Emitter, m: Match) -> None:
    """d = a / b, rounded once."""
    minus, reciprocal = _reciprocal64(e, m.b)
    quotient = e.tmp("d")
    e(DMUL, quotient, m.a, reciprocal)
    rest = _chain(e, DFMA, (minus, quotient, m.a))
    e(DDIV, m.d, m.a, m.b, _chain(e, DFMA, (reciprocal, rest, quotient)), imm=_imm(m))


@instruction("rcp.RND.f64 d, a;", sets={"RND": MODES})
def rcp_f64(e: Emitter, m: Match) -> None:
    """d = 1 / a, rounded once."""
    _, reciprocal = _reciprocal64(e, m.a)
    e(DDIV, m.d, ONE64, m.a, reciprocal, imm=_imm(m))


@instruction("sqrt.RND.f64 d, a;", sets={"RND": MODES})
def sqrt_f64(e: Emitter, m: Match) -> None:
    """d = sqrt(a), rounded once."""
    seed, square, root, minus, term = (e.tmp("d") for _ in range(5))
    e(MUFU_RSQ64H, e.hi(seed), e.hi(m.a))
    e(MOV, e.lo(seed), ZERO)
    e(DMUL, square, seed, seed)
    e(DNEG, minus, square)
    error = _chain(e, DFMA, (m.a, minus, ONE64))
    curve = _chain(e, DFMA, (error, Const(0x3FD8000000000000, "d"), HALF64))
    e(DMUL, term, seed, error)
    inverse = _chain(e, DFMA, (curve, term, seed))
    e(DMUL, root, m.a, inverse)
    e(DNEG, minus, root)
    rest = _chain(e, DFMA, (minus, root, m.a))
    e(DSQRT, m.d, m.a, _chain(e, DFMA, (rest, inverse, root)), imm=_imm(m))
