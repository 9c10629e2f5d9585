"""Stochastic rounding, .rs (PTX ISA 9.7.9.22): f32 to pairs of halves and to four small floats, on Blackwell.

Random bits are added in the highest places below the result's last bit, and what remains below it is dropped: 13 of
them for f16, 16 for bf16, from the half of `rbits` that the result has; 8 of each small float, a byte of `rbits` in
the order of the results.  The places are the ISA's figures; a card was not asked.
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, Format
from isa.micro import Micro, VectorBuilder, lane
from isa.ops.convert import relu32
from isa.registry import Emitter, Match, instruction

RELU, FINITE, SECOND = 1, 2, 4  # bits of the immediate; SECOND: the lower two of four
MOST = 40  # places that a value can lie below the format and still have one bit in it


def rounded(f: Format, x: int, random: int, count: int, imm: int) -> int:
    """An f32 pattern in format f, rounded with `count` random bits."""
    if bits.is_nan(F32, x):
        return f.nan
    if imm & RELU and x & F32.sign:
        return 0
    top = f.sign if x & F32.sign else 0
    largest = f.largest if imm & FINITE or f.finite else f.inf
    if bits.is_inf(F32, x):
        return top | largest
    field = max(bits.magnitude(F32, x) >> F32.fraction, 1)
    _, m, _ = bits.decode(F32, x)
    drop = min(max(F32.fraction - f.fraction, 151 - f.bias - f.fraction - field), MOST)
    kept = (m + (random << drop - count)) >> drop
    biased = max(field - F32.bias + f.bias, 1)
    result = kept + (biased - 1 << f.fraction)
    return top | (largest if result > f.largest else result)


def _lanes(v: VectorBuilder, f: Format, x: Any, random: Any, count: int, imm: Any) -> Any:
    """The same on u32 lanes of random bits."""
    word = v.bits(v.select(v.flag(imm, 0), relu32(v, x), x), "u32")
    size = v.and_(word, v.const(F32.sign - 1))
    field = v.lshr(size, v.const(F32.fraction))
    implicit = v.select(v.icmp("==", field, v.const(0)), v.const(0), v.const(1 << F32.fraction))
    m = v.or_(v.and_(size, v.const((1 << F32.fraction) - 1)), implicit)
    field = v.call("umax", field, v.const(1))
    deep = v.sub(v.const(151 - f.bias - f.fraction), field)
    drop = v.call("smin", v.call("smax", deep, v.const(F32.fraction - f.fraction)), v.const(MOST))
    wide = v.zext(drop, "u64")
    noise = v.shl(v.zext(random, "u64"), v.sub(wide, v.const(count, "u64")))
    kept = v.trunc(v.lshr(v.add(v.zext(m, "u64"), noise), wide), "u32")
    biased = v.call("smax", v.add(field, v.const((f.bias - F32.bias) & 0xFFFFFFFF)), v.const(1))
    result = v.add(kept, v.shl(v.sub(biased, v.const(1)), v.const(f.fraction)))
    over = v.or_(v.icmp(">", result, v.const(f.largest)), v.icmp("==", size, v.const(F32.inf)))
    limit = v.const(f.largest)
    if not f.finite:
        limit = v.select(v.flag(imm, 1), limit, v.const(f.inf))
    result = v.select(over, limit, result)
    sign = v.lshr(v.and_(word, v.const(F32.sign)), v.const(32 - f.width))
    return v.select(v.isnan(x), v.const(f.nan), v.or_(result, sign))


def _pair(name: str, f: Format, count: int) -> Micro:
    """Two f32 to two halves."""

    def emit(v: VectorBuilder, a: Any, b: Any, c: Any, imm: Any) -> Any:
        mask = v.const((1 << count) - 1)
        high = _lanes(v, f, a, v.and_(v.lshr(c, v.const(16)), mask), count, imm)
        return v.or_(v.shl(high, v.const(16)), _lanes(v, f, b, v.and_(c, mask), count, imm))

    def meaning(a: int, b: int, c: int, imm: int) -> int:
        mask = (1 << count) - 1
        return rounded(f, a, c >> 16 & mask, count, imm) << 16 | rounded(f, b, c & mask, count, imm)

    return lane(name, "ffui->u", "alu", meaning, emit, "c: random bits; imm bit 0 .relu, 1 .satfinite")


def _four(name: str, f: Format, span: int) -> Micro:
    """Half of a quadruple: the first two into the upper half beside the rest of the random bits, then the other two."""

    def meaning(a: int, b: int, c: int, imm: int) -> int:
        random = c & 0xFFFF if imm & SECOND else c >> 16
        both = rounded(f, a, random >> 8, 8, imm) << span | rounded(f, b, random & 255, 8, imm)
        return c >> 16 << 2 * span | both if imm & SECOND else both << 16 | c & 0xFFFF

    def emit(v: VectorBuilder, a: Any, b: Any, c: Any, imm: Any) -> Any:
        upper = v.lshr(c, v.const(16))
        random = v.select(v.flag(imm, 2), v.and_(c, v.const(0xFFFF)), upper)
        high = _lanes(v, f, a, v.lshr(random, v.const(8)), 8, imm)
        low = _lanes(v, f, b, v.and_(random, v.const(255)), 8, imm)
        both = v.or_(v.shl(high, v.const(span)), low)
        second = v.or_(v.shl(upper, v.const(2 * span)), both)
        first = v.or_(v.shl(both, v.const(16)), v.and_(c, v.const(0xFFFF)))
        return v.select(v.flag(imm, 2), second, first)

    return lane(name, "ffui->u", "alu", meaning, emit, "c: random bits, then the first two; imm bit 0 .relu, 2 second")


PAIRS = {"f16x2": _pair("F2FP.F16.RS", F16, 13), "bf16x2": _pair("F2FP.BF16.RS", BF16, 16)}
FOURS = {
    f"{name}x4": _four(f"F2FP.{name.upper()}.RS", f, 4 if f is E2M1 else 8)
    for name, f in (("e4m3", E4M3), ("e5m2", E5M2), ("e2m3", E2M3), ("e3m2", E3M2), ("e2m1", E2M1))
}


@instruction(
    "cvt.rs{.relu}{.satfinite}.D.f32 d, a, b, rbits;",
    sets={"D": tuple(PAIRS)},
    types={"d": "b32", "a": "f32", "b": "f32", "rbits": "b32"},
    targets=("sm_100a", "sm_103a"),
)
def pair(e: Emitter, m: Match) -> None:
    """d = {b (low), a (high)} in half precision, each rounded up with the probability of its distance."""
    e(PAIRS[m["D"]], m.d, m.a, m.b, m.rbits, imm=m.has(".relu") * RELU | m.has(".satfinite") * FINITE)


def _declare(d: str, names: tuple[str, ...]) -> None:
    @instruction(
        "cvt.rs{.relu}.satfinite.D.f32 d, {a}, rbits;",
        sets={"D": names},
        types={"d": d, "a": "vec:f32:4", "rbits": "b32"},
        targets=("sm_100a", "sm_103a"),
    )
    def four(e: Emitter, m: Match) -> None:
        """d = four small floats, the first on top, each rounded up with the probability of its distance."""
        half, imm = e.tmp(), m.has(".relu") * RELU | FINITE
        e(FOURS[m["D"]], half, m.a[0], m.a[1], m.rbits, imm=imm)
        e(FOURS[m["D"]], m.d, m.a[2], m.a[3], half, imm=imm | SECOND)


_declare("b32", ("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4"))
_declare("b16", ("e2m1x4",))
