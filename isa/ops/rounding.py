"""Conversions that round (PTX ISA 9.7.9.21): float <-> integer, float -> integral float, f64 <-> narrower floats."""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import BF16, F16, F32, F64, M32, M64, signed
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.shift import SHF_L
from isa.registry import ALL_TARGETS, Const, Emitter, Match, Value, instruction
from isa.vectors import flush32, from_integer, half_lanes, narrow

MODES = ("rn", "rz", "rm", "rp")  # immediate bits 0..1; bit 2 is .ftz
FTZ = 4
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
LETTER = {"f16": "u", "bf16": "u", "f32": "f", "f64": "D"}


def _read(v: VectorBuilder, type: str, x: Any, imm: Any) -> Any:
    """A source as f32 or f64 lanes, flushed on request."""
    if type == "f64":
        return x
    if type in ("f16", "bf16"):
        return half_lanes(v, x, type)
    return v.select(v.flag(imm, 2), flush32(v, x), x)


def _low(type: str, x: int) -> int:
    """The bits of a scalar source: halves sit in the low 16 bits."""
    return x & 0xFFFF if type in ("f16", "bf16") else x


def _integral(v: VectorBuilder, x: Any, imm: Any) -> Any:
    """x rounded to an integral value in the immediate's mode."""
    nearest, zero, down, up = (v.call(name, x) for name in ("rint", "trunc", "floor", "ceil"))
    return v.select(v.flag(imm, 1), v.select(v.flag(imm, 0), up, down), v.select(v.flag(imm, 0), zero, nearest))


# ---- float -> integer --------------------------------------------------------------------------------


def _to_word(source: str, low: int, high: int) -> Any:
    """Emission for results of up to 32 bits: clamp in f64, where all limits are exact."""

    def emit(v: VectorBuilder, x: Any, imm: Any) -> Any:
        r = _integral(v, _read(v, source, x, imm), imm)
        r = r if source == "f64" else v.fext(r, "f64")
        least, most = v.const(float(low), "f64"), v.const(float(high), "f64")
        limited = v.select(v.fcmp(">", r, least), r, least)
        limited = v.select(v.fcmp("<", limited, most), limited, most)
        value = v.to_int(limited, "u32", low < 0)
        return v.select(v.isnan(r), v.const(0), value)

    return emit


def _to_long(source: str, is_signed: bool) -> Any:
    """Emission for 64-bit results: the range above 2^63 is converted without its top bit."""

    def emit(v: VectorBuilder, x: Any, imm: Any) -> Any:
        r = _integral(v, _read(v, source, x, imm), imm)
        r = r if source == "f64" else v.fext(r, "f64")
        top, zero = v.const(2.0**63, "f64"), v.const(0.0, "f64")
        above = v.fcmp(">=", r, top)
        inside = v.fcmp(">=", r, v.fneg(top)) if is_signed else v.fcmp(">", r, zero)
        part = v.select(above, v.fsub(r, top), r) if not is_signed else r
        fits = v.and_(inside, v.fcmp("<", part, top))
        value = v.to_int(v.select(fits, part, zero), "u64", True)
        if is_signed:
            most, least = v.const(M64 >> 1, "u64"), v.const(1 << 63, "u64")
            value = v.select(fits, value, v.select(above, most, least))
        else:
            value = v.or_(value, v.select(above, v.const(1 << 63, "u64"), v.const(0, "u64")))
            value = v.select(v.fcmp(">=", part, top), v.const(M64, "u64"), value)
        return v.select(v.isnan(r), v.const(1 << 63, "u64"), value)

    return emit


def _f2i(source: str, type: str) -> Micro:
    width, is_signed = int(type[1:]), type[0] == "s"
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    nan, wrap, f = (1 << 63 if width == 64 else 0), (M64 if width == 64 else M32), FORMATS[source]

    def meaning(x: int, imm: int) -> int:
        x = _low(source, x)
        x = bits.flush(f, x) if imm & FTZ and source == "f32" else x
        return bits.to_integer(f, x, MODES[imm & 3], low, high, nan) & wrap

    emit = _to_long(source, is_signed) if width == 64 else _to_word(source, low, high)
    name = f"F2I.{type.upper()}{'' if source == 'f32' else '.' + source.upper()}"
    sig = f"{LETTER[source]}i->{'U' if width == 64 else 'u'}"
    return lane(name, sig, "xu", meaning, emit, "rounded (imm bits 0..1), clamped; bit 2 .ftz")


F2I = {
    (source, type): _f2i(source, type)
    for source, types in (
        ("f32", ("s32", "u32", "s64", "u64", "s16", "u16", "s8", "u8")),
        ("f64", ("s32", "u32", "s64", "u64")),
        ("f16", ("s32", "u32", "s64", "u64", "s16", "u16", "s8", "u8")),
    )
    for type in types
}

# ---- integer -> float --------------------------------------------------------------------------------


def _i2f(target: str, type: str) -> Micro:
    f, width, is_signed = FORMATS[target], int(type[1:]), type[0] == "s"

    def meaning(x: int, imm: int) -> int:
        return bits.from_integer(f, signed(x, width) if is_signed else x, MODES[imm & 3])

    def emit(v: VectorBuilder, x: Any, imm: Any) -> Any:
        wide = x if width == 64 else (v.sext if is_signed else v.zext)(x, "u64")
        value = from_integer(v, f, wide, is_signed, imm)
        return value if target == "f64" else v.trunc(value, "u32")

    sig = f"{'U' if width == 64 else 'u'}i->{LETTER[target]}"
    return lane(f"I2F.{target.upper()}.{type.upper()}", sig, "xu", meaning, emit, "rounded in the mode of imm")


def _i2fp(type: str) -> Micro:
    is_signed = type == "s32"
    return lane(
        f"I2FP.F32.{type.upper()}",
        "u->f",
        "alu",
        lambda x: bits.from_integer(F32, signed(x, 32) if is_signed else x),
        lambda v, x: v.from_int(x, "f32", is_signed),
        "nearest f32",
    )


INTEGERS = ("s32", "u32", "s64", "u64")
I2F = {(target, type): _i2f(target, type) for target in FORMATS for type in INTEGERS}
I2FP = {type: _i2fp(type) for type in ("s32", "u32")}

# ---- float -> float ----------------------------------------------------------------------------------


def _f2f(target: str, source: str) -> Micro:
    f, g = FORMATS[source], FORMATS[target]

    def meaning(x: int, imm: int) -> int:
        return bits.convert(f, g, _low(source, x), MODES[imm & 3], bool(imm & FTZ))

    def emit(v: VectorBuilder, x: Any, imm: Any) -> Any:
        value = _read(v, source, x, imm)
        wide = value if source == "f64" else v.fext(value, "f64")
        if target == "f64":
            return v.bits(v.select(v.isnan(wide), v.const(g.nan, "u64"), v.bits(wide, "u64")), "f64")
        result = v.trunc(narrow(v, g, wide, imm), "u32")
        if target != "f32":
            return result
        single = v.bits(result, "f32")
        return v.select(v.flag(imm, 2), flush32(v, single), single)

    name = f"F2F.{target.upper()}.{source.upper()}"
    return lane(name, f"{LETTER[source]}i->{LETTER[target]}", "xu", meaning, emit, "rounded in the mode of imm")


def _frnd(type: str) -> Micro:
    f = FORMATS[type]

    def meaning(x: int, imm: int) -> int:
        x = _low(type, x)
        x = bits.flush(f, x) if imm & FTZ and type == "f32" else x
        value = bits.round_integral(f, x, MODES[imm & 3])
        if value is None:
            return f.nan if bits.is_nan(f, x) else x
        return bits.from_integer(f, value) | (x & f.sign)

    def emit(v: VectorBuilder, x: Any, imm: Any) -> Any:
        r = _integral(v, _read(v, type, x, imm), imm)
        if type == "f64":
            return v.bits(v.select(v.isnan(r), v.const(f.nan, "u64"), v.bits(r, "u64")), "f64")
        if type == "f32":
            return v.bits(v.select(v.isnan(r), v.const(f.nan), v.bits(r, "u32")), "f32")
        if type == "bf16":
            return v.select(v.isnan(r), v.const(f.nan), v.lshr(v.bits(r, "u32"), v.const(16)))
        half = v.zext(v.bits(v.ftrunc(r, "f16"), "u16"), "u32")
        return v.select(v.isnan(r), v.const(f.nan), half)

    name = f"FRND{'' if type == 'f32' else '.' + type.upper()}"
    return lane(name, f"{LETTER[type]}i->{LETTER[type]}", "xu", meaning, emit, "integral value; imm bit 2 .ftz")


F2F = {
    pair: _f2f(*pair)
    for pair in (("f64", "f32"), ("f64", "f16"), ("f32", "f64"), ("f16", "f64"), ("bf16", "f64"), ("f16", "f32"))
}
FRND = {type: _frnd(type) for type in FORMATS}

# ---- forms ----------------------------------------------------------------------------------------

INTEGRAL = {"rni": 0, "rzi": 1, "rmi": 2, "rpi": 3}
NARROW = ("s8", "u8", "s16", "u16")


def to_integer(e: Emitter, m: Match) -> None:
    """d = a rounded to an integer and clamped to the type; NaN gives 0, or 2^63 for 64 bits."""
    source, a = m["A"], m.a
    if source == "bf16":
        source, a = "f32", e.tmp()
        e(SHF_L, a, m.a, Const(16))
    kind = m["D"]
    if source == "f64" and kind in NARROW:
        narrow_from_f64(e, m)
        return
    e(F2I[source, kind], m.d, a, imm=INTEGRAL[m["RND"]] | m.has(".ftz") * FTZ)


def narrow_from_f64(e: Emitter, m: Match) -> None:
    """f64 to 8 or 16 bits: through a clamped s32 (or u32), then clamped again."""
    from isa.ops.convert import I2I

    word = "s32" if m["D"][0] == "s" else "u32"
    wide = e.tmp()
    e(F2I["f64", word], wide, m.a, imm=INTEGRAL[m["RND"]])
    e(I2I[m["D"], word], m.d, wide)


def from_int(e: Emitter, m: Match) -> None:
    """d = the integer a rounded to a float."""
    from isa.ops.convert import widened

    target, mode = m["D"], MODES.index(m["RND"])
    source: Value = m.a
    kind = m["A"]
    if kind in NARROW:
        source, kind = widened(e, m.a, kind), kind[0] + "32"
    if target == "f32" and kind in I2FP and mode == 0:
        e(I2FP[kind], m.d, source)
    else:
        e(I2F[target, kind], m.d, source, imm=mode)


def float_to_float(e: Emitter, m: Match) -> None:
    """d = a in a wider (exact) or narrower format."""
    e(F2F[m["D"], m["A"]], m.d, m.a, imm=(MODES.index(m["RND"]) if m["RND"] else 0) | m.has(".ftz") * FTZ)


def integral(e: Emitter, m: Match) -> None:
    """d = a rounded to an integral value of the same type."""
    e(FRND[m["A"]], m.d, m.a, imm=INTEGRAL[m["RND"]] | m.has(".ftz") * FTZ)


def _form(syntax: str, lower: Any, **sets: tuple[str, ...]) -> None:
    bf16 = "bf16" in (*sets["D"], *sets["A"])  # ptxas: from sm_90 on
    targets = ("sm_90", "sm_90a", "sm_100a") if bf16 else ALL_TARGETS
    instruction(syntax, sets=sets, types={"d": "D", "a": "A"}, targets=targets)(lower)


ALL_INTEGERS, WIDE_INTEGERS = (*INTEGERS, *NARROW), (*INTEGERS, "s16", "u16")
ROUND = tuple(INTEGRAL)
_form("cvt.RND{.ftz}{.sat}.D.A d, a;", to_integer, RND=ROUND, D=ALL_INTEGERS, A=("f32",))
_form("cvt.RND{.sat}.D.A d, a;", to_integer, RND=ROUND, D=ALL_INTEGERS, A=("f16", "f64"))
_form("cvt.RND.D.A d, a;", to_integer, RND=ROUND, D=WIDE_INTEGERS, A=("bf16",))
_form("cvt.RND.D.A d, a;", from_int, RND=MODES, D=("f32", "f64", "f16"), A=ALL_INTEGERS)
_form("cvt.RND.D.A d, a;", from_int, RND=MODES, D=("bf16",), A=WIDE_INTEGERS)
_form("cvt{.ftz}.D.A d, a;", float_to_float, D=("f64",), A=("f32",), RND=())
_form("cvt.D.A d, a;", float_to_float, D=("f64",), A=("f16",), RND=())
_form("cvt.RND{.ftz}.D.A d, a;", float_to_float, RND=MODES, D=("f32",), A=("f64",))
_form("cvt.RND.D.A d, a;", float_to_float, RND=MODES, D=("f16",), A=("f64",))
_form("cvt.RND.D.A d, a;", float_to_float, RND=MODES, D=("bf16",), A=("f64",))
_form("cvt.RND{.ftz}.D.A d, a;", float_to_float, RND=("rm", "rp"), D=("f16",), A=("f32",))
for _type in ("f32", "f64", "f16"):
    _form(f"cvt.RND{'{.ftz}' if _type == 'f32' else ''}.D.A d, a;", integral, RND=ROUND, D=(_type,), A=(_type,))
