"""Scalar arithmetic on raw bit patterns: the reference for every floating-point meaning.

Numbers are decoded to sign, integer significand and exponent, computed exactly with Python integers, and
rounded once.  The rules on NaN, flushing and zero signs are those recorded on an H200.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


@dataclass(frozen=True)
class Format:
    """A binary floating-point format; `nan` is the pattern that arithmetic produces.

    `finite`: without infinity; then `numbers` without NaN too, and what would be one becomes the pattern `nan`.
    """

    exponent: int
    fraction: int
    nan: int
    finite: bool = False  # e4m3
    numbers: bool = False  # e2m1, e2m3, e3m2

    @property
    def width(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def inf(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def largest(self) -> int:
        """The largest finite magnitude; e4m3 keeps only the last pattern for NaN."""
        return (self.sign - 2 + self.numbers) if self.finite else self.inf - 1

    @property
    def smallest_normal(self) -> int:
        return 1 << self.fraction

    @property
    def one(self) -> int:
        return self.bias << self.fraction


F16 = Format(5, 10, 0x7FFF)
BF16 = Format(8, 7, 0x7FFF)
F32 = Format(8, 23, 0x7FFFFFFF)
F64 = Format(11, 52, 0xFFF8000000000000)
E4M3 = Format(4, 3, 0x7F, finite=True)
E5M2 = Format(5, 2, 0x7F)
E2M1, E2M3, E3M2 = (Format(*of, finite=True, numbers=True) for of in ((2, 1, 0x7), (2, 3, 0x1F), (3, 2, 0x1F)))

Number = tuple[int, int, int]  # sign, significand >= 0, exponent: (-1)^sign * significand * 2^exponent


def signed(x: int, width: int) -> int:
    """The low `width` bits as a two's complement integer."""
    x &= (1 << width) - 1
    return x - (1 << width) if x >> (width - 1) else x


def clamp(x: int, low: int, high: int) -> int:
    """`x` limited to [low, high]."""
    return max(low, min(high, x))


def magnitude(f: Format, x: int) -> int:
    """The bits without the sign."""
    return x & (f.sign - 1)


def is_nan(f: Format, x: int) -> bool:
    """True for a NaN pattern of any payload."""
    return magnitude(f, x) > (f.largest if f.finite else f.inf)


def is_inf(f: Format, x: int) -> bool:
    """True for either infinity."""
    return not f.finite and magnitude(f, x) == f.inf


def is_subnormal(f: Format, x: int) -> bool:
    """True for a nonzero number below the smallest normal one."""
    return 0 < magnitude(f, x) < f.smallest_normal


def flush(f: Format, x: int) -> int:
    """`.ftz`: a subnormal becomes a zero of its sign."""
    return x & f.sign if is_subnormal(f, x) else x


def decode(f: Format, x: int) -> Number:
    """A finite pattern as sign, significand, exponent."""
    exponent, fraction = magnitude(f, x) >> f.fraction, x & ((1 << f.fraction) - 1)
    if exponent:
        fraction |= 1 << f.fraction
    return x >> (f.width - 1), fraction, max(exponent, 1) - f.bias - f.fraction


def to_fraction(f: Format, x: int) -> Fraction:
    """The exact value of a finite pattern."""
    sign, m, e = decode(f, x)
    return Fraction(-m if sign else m) * Fraction(2) ** e


def from_fraction(f: Format, value: Fraction, mode: str = "rn", ftz: bool = False) -> int:
    """`value` rounded once to the format (zero is +0)."""
    sign, value = int(value < 0), abs(value)
    if not value:
        return 0
    shift = value.denominator.bit_length() - value.numerator.bit_length() + f.fraction + 4
    scaled = value * Fraction(2) ** max(shift, 0)
    m = scaled.numerator // scaled.denominator
    inexact = m * scaled.denominator != scaled.numerator
    return encode(f, (sign, 2 * m + inexact, -max(shift, 0) - 1), mode, ftz)


def _drop(m: int, bits: int, sign: int, mode: str) -> int:
    """The significand without its low `bits`, rounded in `mode` (rn rz rm rp, rna: ties away)."""
    if bits <= 0:
        return m << -bits
    kept, rest, half = m >> bits, m & ((1 << bits) - 1), 1 << (bits - 1)
    away = {
        "rn": rest > half or (rest == half and kept & 1 == 1),
        "rna": rest >= half,
        "rz": False,
        "rm": rest > 0 and sign == 1,
        "rp": rest > 0 and sign == 0,
    }[mode]
    return kept + away


def encode(f: Format, number: Number, mode: str = "rn", ftz: bool = False) -> int:
    """The number rounded once to the format, subnormals and overflow by the mode.

    With `ftz` a result is a zero when it is below the smallest normal number after rounding as if the
    exponent had no lower limit (recorded: products next to 2^-126 on both sides of each boundary).
    """
    sign, m, e = number
    top = sign << (f.width - 1)
    if m == 0:
        return top
    normal = m.bit_length() - 1 - f.fraction  # bits to drop for a full significand
    least = 1 - f.bias - f.fraction - e  # bits to drop so that the exponent stays in range
    if ftz:
        kept = _drop(m, normal, sign, mode)
        if kept.bit_length() + normal < least + f.fraction + 1:
            return top
    bits = max(normal, least)
    kept = _drop(m, bits, sign, mode)
    biased = bits + e + f.bias + f.fraction  # of a significand with its leading bit at `fraction`
    result = kept + ((biased - 1) << f.fraction)
    limit = f.largest + 1 if f.finite else f.inf
    if result >= limit:
        outward = mode in ("rn", "rna") or (mode == "rp") == (sign == 0) and mode != "rz"
        result = (f.nan if f.finite else f.inf) if outward else f.largest
    return top | result


def fma(f: Format, x: int, y: int, z: int, mode: str = "rn", ftz: bool = False) -> int:
    """x * y + z, rounded once."""
    if ftz:
        x, y, z = flush(f, x), flush(f, y), flush(f, z)
    if is_nan(f, x) or is_nan(f, y) or is_nan(f, z):
        return f.nan
    product_sign = (x ^ y) & f.sign
    if is_inf(f, x) or is_inf(f, y):
        invalid = magnitude(f, x) == 0 or magnitude(f, y) == 0 or (is_inf(f, z) and (z & f.sign) != product_sign)
        return f.nan if invalid else product_sign | f.inf
    if is_inf(f, z):
        return z
    (sx, mx, ex), (sy, my, ey), (sz, mz, ez) = decode(f, x), decode(f, y), decode(f, z)
    return _sum(f, (sx ^ sy, mx * my, ex + ey), (sz, mz, ez), mode, ftz)


def _sum(f: Format, p: Number, q: Number, mode: str, ftz: bool) -> int:
    """p + q, rounded once; an exact zero is +0, or -0 in rm, or the common sign of two zeros."""
    e = min(p[2], q[2])
    total = sum((-m if s else m) << (k - e) for s, m, k in (p, q))
    if total:
        return encode(f, (int(total < 0), abs(total), e), mode, ftz)
    both_zero = p[1] == 0 and q[1] == 0
    sign = p[0] if both_zero and p[0] == q[0] else int(mode == "rm")
    return sign << (f.width - 1)


def add(f: Format, x: int, y: int, mode: str = "rn", ftz: bool = False) -> int:
    """x + y, rounded once."""
    return fma(f, x, f.one, y, mode, ftz)


def sub(f: Format, x: int, y: int, mode: str = "rn", ftz: bool = False) -> int:
    """x - y, rounded once."""
    return add(f, x, y ^ f.sign, mode, ftz)


def mul(f: Format, x: int, y: int, mode: str = "rn", ftz: bool = False) -> int:
    """x * y, rounded once."""
    zero = (x ^ y) & f.sign  # of the product's sign, so that it decides nothing
    return fma(f, x, y, zero, mode, ftz)


def div(f: Format, x: int, y: int, mode: str = "rn", ftz: bool = False) -> int:
    """x / y, rounded once."""
    if ftz:
        x, y = flush(f, x), flush(f, y)
    sign = (x ^ y) & f.sign
    mx, my = magnitude(f, x), magnitude(f, y)
    if is_nan(f, x) or is_nan(f, y) or (mx == 0 and my == 0) or (is_inf(f, x) and is_inf(f, y)):
        return f.nan
    if is_inf(f, x) or my == 0:
        return sign | f.inf
    if is_inf(f, y) or mx == 0:
        return sign
    (_, mx, ex), (_, my, ey) = decode(f, x), decode(f, y)
    shift = 2 * f.fraction + 8
    quotient, rest = divmod(mx << shift, my)
    return encode(f, (int(sign != 0), 2 * quotient + (rest != 0), ex - ey - shift - 1), mode, ftz)


def sqrt(f: Format, x: int, mode: str = "rn", ftz: bool = False) -> int:
    """The square root of x, rounded once."""
    x = flush(f, x) if ftz else x
    if is_nan(f, x) or (x & f.sign and magnitude(f, x)):
        return f.nan
    if magnitude(f, x) == 0 or is_inf(f, x):
        return x
    _, m, e = decode(f, x)
    shift = 2 * f.fraction + 8 + (e & 1)
    root = isqrt(m << shift)
    return encode(f, (0, 2 * root + (root * root != m << shift), (e - shift) // 2 - 1), mode, ftz)


def saturate(f: Format, x: int) -> int:
    """`.sat`: clamp to [+0, 1]; NaN is +0."""
    if is_nan(f, x) or x & f.sign:
        return 0
    return min(x, f.one)


def relu(f: Format, x: int) -> int:
    """`.relu`: negative numbers and -0 become +0, NaN the canonical one."""
    if is_nan(f, x):
        return f.nan
    return 0 if x & f.sign else x


def order(f: Format, x: int) -> int:
    """An integer that sorts like the value, with -0 below +0."""
    return -1 - magnitude(f, x) if x & f.sign else x


def extremum(f: Format, x: int, y: int, largest: bool, nan: bool = False, xorsign: bool = False) -> int:
    """min or max: one NaN gives the other operand, two (or one with `nan`) the canonical NaN.

    `xorsign` (`.xorsign.abs`) compares magnitudes; the result's sign is the XOR of the inputs' signs.
    """
    sign = (x ^ y) & f.sign if xorsign else 0
    if xorsign:
        x, y = magnitude(f, x), magnitude(f, y)
    if is_nan(f, x) or is_nan(f, y):
        both = is_nan(f, x) and is_nan(f, y)
        return f.nan if nan or both else (y if is_nan(f, x) else x) | sign
    first = (order(f, x) > order(f, y)) == largest
    return (x if first else y) | sign


def compare(f: Format, x: int, y: int) -> str:
    """`<`, `=`, `>` or `?` (unordered)."""
    if is_nan(f, x) or is_nan(f, y):
        return "?"
    p, q = to_fraction(f, x), to_fraction(f, y)
    return "<" if p < q else ">" if p > q else "="


def convert(f: Format, g: Format, x: int, mode: str = "rn", ftz: bool = False) -> int:
    """A value of format f in format g; NaN becomes g's canonical one.  `ftz` flushes f32 on either side."""
    x = flush(f, x) if ftz and f is F32 else x
    if is_nan(f, x):
        return g.nan
    sign = int(x & f.sign != 0)
    if is_inf(f, x):
        return (sign << (g.width - 1)) | (g.nan if g.finite else g.inf)
    result = encode(g, decode(f, x), mode)
    return flush(g, result) if ftz and g is F32 else result


def round_integral(f: Format, x: int, mode: str) -> int | None:
    """The integer nearest to a finite x in `mode` (rn rz rm rp); None for NaN and infinities."""
    if is_nan(f, x) or is_inf(f, x):
        return None
    sign, m, e = decode(f, x)
    m = _drop(m, -e, sign, mode)
    return -m if sign else m


def to_integer(f: Format, x: int, mode: str, low: int, high: int, nan: int) -> int:
    """Rounded in `mode`, then clamped to [low, high]; infinities clamp, NaN gives `nan`."""
    if is_nan(f, x):
        return nan
    value = round_integral(f, x, mode)
    if value is None:
        return low if x & f.sign else high
    return clamp(value, low, high)


def from_integer(f: Format, value: int, mode: str = "rn") -> int:
    """An integer rounded once to the format."""
    return encode(f, (int(value < 0), abs(value), 0), mode)
