"""Half precision (PTX ISA 9.7.4, 9.7.5): f16, f16x2, bf16, bf16x2 arithmetic, ex2 and tanh.

One rounding per half, subnormals kept, NaN 0x7fff (recorded on an H200).  A scalar half is the low half of a packed
operation; what happens in the high half does not matter.
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import BF16, F16, F32, Format
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.convert import truncated_f16
from isa.ops.move import PRMT_FIXED
from isa.ops.special_functions import MUFU_EX2, MUFU_TANH
from isa.registry import Emitter, Match, instruction
from isa.vectors import NAN32, add_odd, half_lanes

FTZ, SAT, RELU, NEGATE, OOB = 1, 2, 4, 8, 16  # immediate bits of the general arithmetic
OOB_NAN = 0x7FF7  # what a tensor copy fills in (of either sign, f16 and bf16 alike; recorded on an H200)
NAN, XORSIGN = 2, 4  # and of min and max
MINIMUM_NORMAL = 2.0**-14


def by_half(function: Any, *words: int) -> int:
    """A function of halves applied to both halves of packed words."""
    low = function(*(w & 0xFFFF for w in words))
    return int(function(*(w >> 16 for w in words))) << 16 | int(low)


# ---- arithmetic ------------------------------------------------------------------------------------------


def _nan16(v: VectorBuilder, f: Format, halves: Any) -> Any:
    """u16x2 lanes with NaN made canonical."""
    size = v.and_(halves, v.const(0x7FFF, "u16x2"))
    return v.select(v.icmp(">", size, v.const(f.inf, "u16x2"), signed=True), v.const(f.nan, "u16x2"), halves)


def _f16_inputs(v: VectorBuilder, words: Any, imm: Any) -> list[Any]:
    """f32x2 lanes, flushed on request."""
    wide = [v.fext(v.bits(w, "f16x2"), "f32x2") for w in words]
    if imm is None:
        return wide
    result = []
    for x in wide:
        tiny = v.fcmp("<", v.fabs(x), v.const(MINIMUM_NORMAL, "f32x2"))
        zero = v.bits(v.and_(v.bits(x, "u32x2"), v.const(1 << 31, "u32x2")), "f32x2")
        result.append(v.select(v.flag(imm, 0), v.select(tiny, zero, x), x))
    return result


def _f16_result(v: VectorBuilder, x: Any, imm: Any) -> Any:
    """Round f32x2 lanes (exact, or rounded to odd) to f16 and apply the modifiers."""
    if imm is None:
        return _nan16(v, F16, v.bits(v.ftrunc(x, "f16x2"), "u16x2"))
    tiny = v.fcmp("<", v.fabs(x), v.const(MINIMUM_NORMAL - 2.0**-26, "f32x2"))  # half a unit below rounds up
    zero = v.bits(v.and_(v.bits(x, "u32x2"), v.const(1 << 31, "u32x2")), "f32x2")
    x = v.select(v.flag(imm, 0), v.select(tiny, zero, x), x)
    halves = v.bits(v.ftrunc(x, "f16x2"), "u16x2")
    none, one = v.const(0, "u16x2"), v.const(F16.one, "u16x2")
    negative = v.icmp("<", halves, none, signed=True)
    nan = v.icmp(">", v.and_(halves, v.const(0x7FFF, "u16x2")), v.const(F16.inf, "u16x2"), signed=True)
    saturated = v.select(v.or_(negative, nan), none, v.call("umin", halves, one))
    halves = v.select(v.flag(imm, 2), v.select(v.and_(negative, v.not_(nan)), none, halves), halves)
    return _nan16(v, F16, v.select(v.flag(imm, 1), saturated, halves))


def _f16_arith(operation: str) -> Any:
    def emit(v: VectorBuilder, *words: Any, imm: Any = None) -> Any:
        x = _f16_inputs(v, words, imm)
        if operation == "add":
            return _f16_result(v, v.fadd(x[0], x[1]), imm)
        if operation == "mul":
            return _f16_result(v, v.fmul(x[0], x[1]), imm)
        product = v.fmul(x[0], x[1])  # 22 bits: exact
        return _f16_result(v, add_odd(v, product, x[2], "u32x2"), imm)

    return emit


def _bf16_half(v: VectorBuilder, operation: str, x: list[Any]) -> Any:
    """One half: f32 lanes that round to the right bf16."""
    if operation == "add":
        return v.fadd(x[0], x[1])  # f32 has more than twice the bits: rounding twice is harmless
    if operation == "mul":
        return v.fmul(x[0], x[1])  # 16 bits: exact wherever it matters
    a, b, c = (v.fext(z, "f64") for z in x)
    s = add_odd(v, v.fmul(a, b), c, "u64")
    single = v.ftrunc(s, "f32")
    off = v.fsub(s, v.fext(single, "f64"))
    word = v.bits(single, "u32")
    inexact = v.fcmp("!=", off, v.const(0.0, "f64"))
    even = v.icmp("==", v.and_(word, v.const(1)), v.const(0))
    outward = v.icmp("==", v.fcmp("<", off, v.const(0.0, "f64")), v.fcmp("<", s, v.const(0.0, "f64")))
    step = v.select(outward, v.const(1), v.const(-1))
    return v.bits(v.add(word, v.select(v.and_(even, inexact), step, v.const(0))), "f32")


def _bf16_arith(operation: str) -> Any:
    def emit(v: VectorBuilder, *words: Any, imm: Any = None) -> Any:
        halves = []
        for high in (False, True):
            x = [v.bits(v.and_(w, v.const(0xFFFF0000)) if high else v.shl(w, v.const(16)), "f32") for w in words]
            if imm is not None:
                minus = v.select(v.flag(imm, 3), v.fneg(x[1]), x[1])
                x[1] = minus
            word = v.bits(_bf16_half(v, operation, x), "u32")
            odd = v.and_(v.lshr(word, v.const(16)), v.const(1))
            rounded = v.add(word, v.add(odd, v.const(0x7FFF)))
            result = v.select(v.isnan(v.bits(word, "f32")), v.const(NAN32), rounded)
            if imm is not None:
                negative = v.icmp("<", result, v.const(0), signed=True)
                result = v.select(v.flag(imm, 2), v.select(negative, v.const(0), result), result)
            halves.append(result)
        return v.or_(v.lshr(halves[0], v.const(16)), v.and_(halves[1], v.const(0xFFFF0000)))

    return emit


def _without_oob(v: VectorBuilder, words: Any, result: Any) -> Any:
    """Zero in the halves where a or b is the NaN of a tensor copy's fill."""
    a, b = (v.and_(v.bits(w, "u16x2"), v.const(0x7FFF, "u16x2")) for w in words[:2])
    nan = v.const(OOB_NAN, "u16x2")
    outside = v.or_(v.icmp("==", a, nan), v.icmp("==", b, nan))
    return v.select(outside, v.const(0, "u16x2"), v.bits(result, "u16x2"))


def _arith(name: str, f: Format, operation: str, operands: int, emit: Any) -> tuple[Micro, Micro]:
    """The plain micro-operation and the one with modifiers in an immediate."""
    scalar = {"add": bits.add, "mul": bits.mul, "fma": bits.fma}[operation]

    def one(imm: int) -> Any:
        def half(*x: int) -> int:
            x = (x[0], x[1] ^ f.sign, *x[2:]) if imm & NEGATE else x
            r = scalar(f, *x, ftz=bool(imm & FTZ))  # type: ignore[operator]
            r = bits.saturate(f, r) if imm & SAT else r
            r = bits.relu(f, r) if imm & RELU else r
            return 0 if imm & OOB and OOB_NAN in (x[0] & 0x7FFF, x[1] & 0x7FFF) else r

        return half

    def emit_any(v: VectorBuilder, *args: Any) -> Any:
        *words, imm = args
        if f is F16:
            words[1] = v.select(v.flag(imm, 3), v.xor(words[1], v.const(0x80008000)), words[1])
        result = emit(v, *words, imm=imm)
        if operation != "fma":
            return result
        return v.select(v.flag(imm, 4), _without_oob(v, words, result), v.bits(result, "u16x2"))

    sig = "u" * operands
    return (
        lane(name, f"{sig}->u", "half", lambda *w: by_half(one(0), *w), emit, f"{operation}, one rounding per half"),
        lane(
            f"{name}.ANY",
            f"{sig}i->u",
            "half",
            lambda *w: by_half(one(w[-1] & (31 if f is F16 else RELU | NEGATE | OOB)), *w[:-1]),
            emit_any,
            "imm bit 0 .ftz, 1 .sat, 2 .relu, 3 -b, 4 .oob",
        ),
    )


ARITH = {}
for _type, _f, _suffix, _make in (("f16", F16, "", _f16_arith), ("bf16", BF16, ".BF16_V2", _bf16_arith)):
    ARITH["add", _type] = _arith(f"HADD2{_suffix}", _f, "add", 2, _make("add"))
    ARITH["mul", _type] = _arith(f"HMUL2{_suffix}", _f, "mul", 2, _make("mul"))
    ARITH["fma", _type] = _arith(f"HFMA2{_suffix}", _f, "fma", 3, _make("fma"))

# ---- min, max, abs, neg: integer operations on the patterns ------------------------------------------------


def _flush16(v: VectorBuilder, f: Format, x: Any, imm: Any) -> Any:
    tiny = v.icmp("<", v.and_(x, v.const(0x7FFF, "u16x2")), v.const(f.smallest_normal, "u16x2"), signed=True)
    zero = v.and_(x, v.const(0x8000, "u16x2"))
    return v.select(v.flag(imm, 0), v.select(tiny, zero, x), x)


def _extremum(name: str, f: Format, largest: bool) -> Micro:
    def one(imm: int) -> Any:
        def half(a: int, b: int) -> int:
            if imm & FTZ:
                a, b = bits.flush(f, a), bits.flush(f, b)
            return bits.extremum(f, a, b, largest, nan=bool(imm & NAN), xorsign=bool(imm & XORSIGN))

        return half

    def emit(v: VectorBuilder, a: Any, b: Any, imm: Any) -> Any:
        ones, top = v.const(0x7FFF, "u16x2"), v.const(0x8000, "u16x2")
        x, y = (_flush16(v, f, v.bits(w, "u16x2"), imm) for w in (a, b))
        sign = v.select(v.flag(imm, 2), v.and_(v.xor(x, y), top), v.const(0, "u16x2"))
        x, y = (v.select(v.flag(imm, 2), v.and_(z, ones), z) for z in (x, y))
        keys = [v.xor(z, v.and_(v.ashr(z, v.const(15, "u16x2")), ones)) for z in (x, y)]  # sorts like the value
        key = v.call("smax" if largest else "smin", *keys)
        result = v.xor(key, v.and_(v.ashr(key, v.const(15, "u16x2")), ones))
        nans = [v.icmp(">", v.and_(z, ones), v.const(f.inf, "u16x2"), signed=True) for z in (x, y)]
        result = v.select(nans[0], y, v.select(nans[1], x, result))
        result = _nan16(v, f, v.or_(result, sign))
        bad = v.select(v.flag(imm, 1), v.or_(*nans), v.and_(*nans))
        return v.select(bad, v.const(f.nan, "u16x2"), result)

    doc = "imm bit 0 .ftz, 1 .NaN, 2 .xorsign.abs"
    return lane(name, "uui->u", "alu", lambda a, b, imm: by_half(one(imm), a, b), emit, doc)


def _sign_op(name: str, f: Format, change: Any, emit_change: Any) -> Micro:
    def one(imm: int) -> Any:
        return lambda a: f.nan if bits.is_nan(f, a) else change(bits.flush(f, a) if imm & FTZ else a)

    def emit(v: VectorBuilder, a: Any, imm: Any) -> Any:
        return _nan16(v, f, emit_change(v, _flush16(v, f, v.bits(a, "u16x2"), imm)))

    return lane(name, "ui->u", "half", lambda a, imm: by_half(one(imm), a), emit, "imm bit 0 .ftz")


HMNMX2, SIGN_OP = {}, {}
for _type, _f, _suffix in (("f16", F16, ""), ("bf16", BF16, ".BF16_V2")):
    for _op in ("min", "max"):
        HMNMX2[_op, _type] = _extremum(f"HMNMX2{_suffix}.{_op.upper()}", _f, _op == "max")
    SIGN_OP["abs", _type] = _sign_op(
        f"HADD2{_suffix}.ABS", _f, lambda a: a & 0x7FFF, lambda v, a: v.and_(a, v.const(0x7FFF, "u16x2"))
    )
    SIGN_OP["neg", _type] = _sign_op(
        f"HADD2{_suffix}.MINUS", _f, lambda a: a ^ 0x8000, lambda v, a: v.xor(a, v.const(0x8000, "u16x2"))
    )

# ---- special functions -----------------------------------------------------------------------------------


def _mufu_half(function: Micro, type: str, high: bool) -> Micro:
    """The f32 function of one half, truncated (recorded: not rounded to nearest)."""
    f = F16 if type == "f16" else BF16

    def meaning(a: int) -> int:
        x = a >> 16 if high else a & 0xFFFF
        r = function.meaning(bits.convert(f, F32, x))  # type: ignore[misc]
        if f is F16 and F32.inf > r >= bits.convert(F16, F32, F16.inf - 1) + (1 << 13):
            return F16.inf
        return bits.convert(F32, f, r, "rz")

    def emit(v: VectorBuilder, a: Any) -> Any:
        x = half_lanes(v, v.lshr(a, v.const(16)) if high else a, type)
        r = function.emit(v, x)  # type: ignore[misc]
        if f is BF16:
            return v.select(v.isnan(r), v.const(f.nan), v.lshr(v.bits(r, "u32"), v.const(16)))
        half = v.zext(v.bits(v.ftrunc(truncated_f16(v, r), "f16"), "u16"), "u32")
        over = v.fcmp(">=", r, v.const(2.0**16, "f32"))
        return v.select(v.isnan(r), v.const(f.nan), v.select(over, v.const(f.inf), half))

    name = f"{function.name}.{type.upper()}{'.H1' if high else ''}"
    return lane(name, "u->u", function.timing, meaning, emit, f"of the {'high' if high else 'low'} half")


MUFU_HALF = {
    (op, type): [_mufu_half(function, type, high) for high in (False, True)]
    for op, function in (("ex2", MUFU_EX2), ("tanh", MUFU_TANH))
    for type in ("f16", "bf16")
}

# ---- forms ----------------------------------------------------------------------------------------------

F16_TYPES, BF16_TYPES = ("f16", "f16x2"), ("bf16", "bf16x2")
HOPPER = ("sm_90", "sm_90a", "sm_100a")


def _arithmetic(e: Emitter, m: Match, operation: str, imm: int, *sources: object) -> None:
    plain, general = ARITH[operation, m["T"].removesuffix("x2")]
    imm |= m.has(".ftz") * FTZ | m.has(".sat") * SAT | m.has(".relu") * RELU | m.has(".oob") * OOB
    if imm:
        e(general, m.d, *sources, imm=imm)
    else:
        e(plain, m.d, *sources)


@instruction(*(f"{op}{{.rn}}{{.ftz}}{{.sat}}.T d, a, b;" for op in ("add", "sub", "mul")), sets={"T": F16_TYPES})
@instruction(*(f"{op}{{.rn}}.T d, a, b;" for op in ("add", "sub", "mul")), sets={"T": BF16_TYPES}, targets=HOPPER)
def arithmetic(e: Emitter, m: Match) -> None:
    """d = a + b, a - b or a * b, rounded to nearest."""
    op = m.form.opcode
    _arithmetic(e, m, "mul" if op == "mul" else "add", NEGATE if op == "sub" else 0, m.a, m.b)


@instruction("fma.rn{.ftz}{.sat}.T d, a, b, c;", "fma.rn{.ftz}.relu.T d, a, b, c;", sets={"T": F16_TYPES})
@instruction("fma.rn{.relu}.T d, a, b, c;", sets={"T": BF16_TYPES})
@instruction("fma.rn.oob{.relu}.T d, a, b, c;", sets={"T": F16_TYPES + BF16_TYPES}, targets=HOPPER)
def fma(e: Emitter, m: Match) -> None:
    """d = a * b + c, rounded once to nearest; .oob: +0 where a or b is the NaN that tensor copies fill in."""
    _arithmetic(e, m, "fma", 0, m.a, m.b, m.c)


@instruction(*(f"{op}{{.ftz}}{{.NaN}}{{.xorsign.abs}}.T d, a, b;" for op in ("min", "max")), sets={"T": F16_TYPES})
@instruction(*(f"{op}{{.NaN}}{{.xorsign.abs}}.T d, a, b;" for op in ("min", "max")), sets={"T": BF16_TYPES})
def min_max(e: Emitter, m: Match) -> None:
    """The smaller or larger; the rules of f32."""
    imm = m.has(".ftz") * FTZ | m.has(".NaN") * NAN | m.has(".xorsign") * XORSIGN
    e(HMNMX2[m.form.opcode, m["T"].removesuffix("x2")], m.d, m.a, m.b, imm=imm)


@instruction("abs{.ftz}.T d, a;", "neg{.ftz}.T d, a;", sets={"T": F16_TYPES})
@instruction("abs.T d, a;", "neg.T d, a;", sets={"T": BF16_TYPES})
def abs_neg(e: Emitter, m: Match) -> None:
    """d = |a| or -a; NaN becomes 0x7fff."""
    e(SIGN_OP[m.form.opcode, m["T"].removesuffix("x2")], m.d, m.a, imm=m.has(".ftz") * FTZ)


@instruction("ex2.approx.T d, a;", sets={"T": F16_TYPES})
@instruction("ex2.approx.ftz.T d, a;", sets={"T": BF16_TYPES}, targets=HOPPER)
@instruction("tanh.approx.T d, a;", sets={"T": F16_TYPES})
@instruction("tanh.approx.T d, a;", sets={"T": BF16_TYPES}, targets=HOPPER)
def special(e: Emitter, m: Match) -> None:
    """2^a or tanh(a) of each half."""
    low_op, high_op = MUFU_HALF[m.form.opcode, m["T"].removesuffix("x2")]
    if not m["T"].endswith("x2"):
        e(low_op, m.d, m.a)
        return
    low, high = e.tmp(), e.tmp()
    e(high_op, high, m.a)
    e(low_op, low, m.a)
    e(PRMT_FIXED[0x5410], m.d, low, high)
