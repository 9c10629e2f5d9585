"""The tensor core's arithmetic bit for bit: a fused dot product, for wgmma and mma.sync of every floating-point kind.

One step adds K products and C (measured on an H200, zero mismatches; the scheme is that of MMA-Sim, arXiv 2511.10909):
every term is an exact product of significands and a sum of exponents (not renormalised); zero terms are left out; all
terms are truncated to F fraction bits below the largest exponent and added exactly; the sum is truncated to float32
(or to 13 fraction bits: fp8 wgmma; or rounded to nearest even once: f16).  Zeros are +0, NaN is 0x7fffffff.

Operands come as panels (emu.units.tensor_panels) that `split` takes apart: significands as float32 in [1, 2) - below 1
for subnormals, which keep the least exponent of their kind - and exponents as int32.  Infinities and NaN stay in the
significands; so a plain sum of products, which stays small for numbers, tells NaN and infinite results.
"""

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from emu.llvm import F32, F64, I32, I64, call, load, loop_by_8, offset, pick, splat, store, vector
from emu.units.tensor_panels import column_at, row_at

ROW = 128  # bytes of a register row, and of a step of a spread panel
LEAST_EXPONENT = (-14, -126, -126, -6, -14)  # of normal numbers, by kind: f16, bf16, tf32, e4m3, e5m2
NO_EXPONENT = -10000  # of a zero
LOWEST = -300  # an exponent below those of all terms
FULL = 23  # fraction bits of float32


def _split(b, x, least):
    """Emit (significand, exponent) of a float32 vector; `least` is an i32 vector."""
    i32 = vector(I32, x.type.count)
    raw = b.bitcast(x, i32)
    field = b.and_(b.lshr(raw, splat(i32, 23)), splat(i32, 255))
    exponent = b.sub(field, splat(i32, 127))
    below = b.icmp_signed("<", exponent, least)
    unit = b.bitcast(b.shl(b.sub(splat(i32, 127), least), splat(i32, 23)), x.type)  # 2^-least
    fraction = b.or_(b.and_(raw, splat(i32, 0x807FFFFF)), splat(i32, 0x3F800000))
    significand = b.select(below, b.fmul(x, unit), b.bitcast(fraction, x.type))
    exponent = b.select(below, least, exponent)
    odd = b.icmp_unsigned("==", field, splat(i32, 255))
    significand = b.select(odd, x, significand)
    zero = b.icmp_unsigned("==", b.shl(raw, splat(i32, 1)), splat(i32, 0))
    return significand, b.select(zero, splat(i32, NO_EXPONENT), exponent)


def _spread(b, scalar, type):
    """Emit an i64 as every lane of an integer vector."""
    value = scalar if type.element == I64 else b.trunc(scalar, type.element)
    return pick(b, b.insert_element(ir.Constant(type, ir.Undefined), value, I32(0)), [0] * type.count)


@intrinsic
def _split_values(typing, panel, exponents, least):
    """8 values of a panel in place, and their exponents."""

    def emit(ctx, b, sig, args):
        panel, exponents, least = args
        significand, exponent = _split(b, load(b, panel, vector(F32, 8), 32), _spread(b, least, vector(I32, 8)))
        store(b, significand, panel, 32)
        store(b, exponent, exponents, 32)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i), emit


@njit(error_model="numpy")
def split(kind: int, steps: int, panel: int, exponents: int) -> None:
    """Take a panel of `steps` x 8 float32 values of a kind apart: significands stay, int32 exponents go beside."""
    least = LEAST_EXPONENT[kind]
    for i in range(steps):
        _split_values(panel + 32 * i, exponents + 32 * i, least)


@intrinsic
def _spread_step(typing, panel, spread):
    """One step of A: 8 rows in panel order become 32 lanes, each row four times."""

    def emit(ctx, b, sig, args):
        panel, spread = args
        rows = load(b, panel, vector(I32, 8), 32)
        order = [4 * (row & 1) + row // 2 for row in range(8)]  # panel order is 0 2 4 6 1 3 5 7
        store(b, pick(b, rows, [order[lane // 4] for lane in range(32)]), spread, 32)
        return ctx.get_dummy_value()

    return types.void(types.int64, types.int64), emit


F32X32, I32X32, F64X32, I64X32 = vector(F32, 32), vector(I32, 32), vector(F64, 32), vector(I64, 32)


def _power(b, exponent):
    """Emit 2^(exponent - 127) as float32; 0 for exponents up to 0."""
    field = call(b, "llvm.smax.v32i32", I32X32, exponent, splat(I32X32, 0))
    return b.bitcast(b.shl(field, splat(I32X32, 23)), F32X32)


def _finish(b, total, top, fraction, kept, odd):
    """Emit float32 of total * 2^(top - fraction): truncated, or (odd) with the last bit telling of a rest."""
    scale = b.add(b.sub(b.sext(top, I64X32), _spread(b, fraction, I64X32)), splat(I64X32, 1023))
    value = b.fmul(b.sitofp(total, F64X32), b.bitcast(b.shl(scale, splat(I64X32, 52)), F64X32))
    raw, rest = b.bitcast(value, I64X32), splat(I64X32, (1 << 29) - 1)
    sticky = b.select(
        b.icmp_unsigned("!=", b.and_(raw, rest), splat(I64X32, 0)), _spread(b, odd, I64X32), splat(I64X32, 0)
    )
    value = b.bitcast(b.or_(b.and_(raw, splat(I64X32, -1 << 29)), b.shl(sticky, splat(I64X32, 29))), F64X32)
    result = b.fptrunc(value, F32X32)  # exact but for subnormal results, which may have been rounded up
    size, back = (call(b, "llvm.fabs.v32f64", F64X32, x) for x in (value, b.fpext(result, F64X32)))
    up = b.and_(b.fcmp_ordered(">", back, size), b.fcmp_ordered("<", size, splat(F64X32, 2.0**-126)))
    word = b.sub(b.bitcast(result, I32X32), b.zext(up, I32X32))
    result = b.bitcast(b.and_(word, _spread(b, kept, I32X32)), F32X32)
    # No negative zeros: neither now nor when f16 results are rounded, of which those up to 2^-25 become zero.
    least = b.select(b.trunc(odd, ir.IntType(1)), splat(F32X32, 2.0**-25), splat(F32X32, 0.0))
    size = call(b, "llvm.fabs.v32f32", F32X32, result)
    return b.select(b.fcmp_ordered("<=", size, least), splat(F32X32, 0.0), result)


@intrinsic
def _fused(typing, k, fraction, least_c, kept, odd, a, a_exponents, x, x_exponents, c, d):
    """32 results: d = c + the products of 8 rows (spread) and 4 columns over k steps (a multiple of 8)."""

    def emit(ctx, b, sig, args):
        k, fraction, least_c, kept, odd, a, a_exponents, x, x_exponents, c, d = args
        c_value, c_exponent = _split(b, load(b, c, F32X32, 32), _spread(b, least_c, I32X32))

        def at(step, spread, columns, u, type):
            """Step u of a chunk: 32 lanes of A, and 4 columns for every row."""
            spread = offset(b, b.add(spread, b.mul(step, I64(ROW))), ROW * u)
            columns = offset(b, b.add(columns, b.mul(step, I64(32))), 32 * u)
            four = load(b, columns, vector(type.element, 4), 16)
            return load(b, spread, type, 32), pick(b, four, [0, 1, 2, 3] * 8)

        def highest(step, values):
            (top,) = values
            for u in range(8):
                top = call(b, "llvm.smax.v32i32", I32X32, top, b.add(*at(step, a_exponents, x_exponents, u, I32X32)))
            return [top]

        (top,) = loop_by_8(b, k, [c_exponent], highest)
        top = call(b, "llvm.smax.v32i32", I32X32, top, splat(I32X32, LOWEST))
        base = b.sub(b.add(_spread(b, fraction, I32X32), splat(I32X32, 127)), top)

        def term(value, exponent):
            return b.fptosi(b.fmul(value, _power(b, b.add(exponent, base))), I32X32)

        def accumulate(step, values):
            total, plain = values
            terms = splat(I32X32, 0)
            for u in range(8):  # 8 terms below 2^27 fit 32 bits
                product = b.fmul(*at(step, a, x, u, F32X32))
                terms = b.add(terms, term(product, b.add(*at(step, a_exponents, x_exponents, u, I32X32))))
                plain = b.fadd(plain, product)
            return [b.add(total, b.sext(terms, I64X32)), plain]

        start = [b.sext(term(c_value, c_exponent), I64X32), c_value]
        total, plain = loop_by_8(b, k, start, accumulate)
        result = _finish(b, total, top, fraction, kept, odd)
        infinite = b.fcmp_ordered("==", call(b, "llvm.fabs.v32f32", F32X32, plain), splat(F32X32, float("inf")))
        result = b.bitcast(b.select(infinite, plain, result), I32X32)
        nan = b.fcmp_unordered("uno", plain, plain)
        store(b, b.select(nan, splat(I32X32, 0x7FFFFFFF), result), d, 32)
        return ctx.get_dummy_value()

    i = types.int64
    return types.void(i, i, i, i, i, i, i, i, i, i, i), emit


@njit(error_model="numpy")
def fused_rows(
    n: int, k: int, fraction: int, kept: int, f16_d: int,
    panel_a: int, exponents_a: int, panel_b: int, exponents_b: int, spread: int, window: int, offsets: int, zero: int,
) -> None:  # fmt: skip
    """8 rows of one warp, all n columns: D = A B + D by one fused dot product over k products (k a multiple of 8).

    fraction: F, the bits kept below the largest term.  kept: fraction bits of a float32 result (FULL, or 13: fp8 wgmma).  f16_d:
    C holds f16 values, and D is made so that rounding it to f16 is the one rounding.  Panels and exponents: see `split`
    (all addresses; A's 8 rows are one group).  spread: k x 256 bytes of work space.  D lies in float32 rows of 8 x 4
    results: column vector v (4 columns) at `window` + int32 `offsets`[v]; zero: address of a row that replaces C, or 0.
    """
    least_c = LEAST_EXPONENT[0] if f16_d else LEAST_EXPONENT[1]
    mask = -1 << FULL - (FULL if f16_d else kept)
    spread_exponents = spread + ROW * k
    for i in range(k):
        _spread_step(panel_a + 32 * i, spread + ROW * i)
        _spread_step(exponents_a + 32 * i, spread_exponents + ROW * i)
    for v in range(n // 4):
        d: int = row_at(window, offsets, v)
        c = zero if zero else d
        _fused(
            k, fraction, least_c, mask, f16_d, spread, spread_exponents,
            column_at(panel_b, k, v), column_at(exponents_b, k, v), c, d,
        )  # fmt: skip
