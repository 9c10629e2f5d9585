"""The special function unit over every input: a long job (half an hour a function on one core).

    python -m tools.sweep_mufu ex2 [--slices 0,5,11] [--card mufu_crc.json] [--samples mufu_samples.npz]

Checks, in each of 16 slices of 2^28 inputs: the vectors that runs execute equal the unit's formula in NumPy integers (a second
statement of it); with `--card` (written by `tools.record.mufu` on a GPU) their checksum is that of the card's results; for ex2
also by how many units the polynomial of fast mode is away, at most.  `--samples` compares with recorded results.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from emu.lanes import run_lanes
from isa import mufu, mufu_tables

SLICES, SLICE, CHUNK = 16, 1 << 28, 1 << 22
NAN, INF, SIGN = 0x7FFFFFFF, 0x7F800000, 0x80000000
FUNCTIONS = ("ex2", "lg2", "rcp", "rsq", "sqrt", "tanh")
LIMIT = 2  # units in the last place that fast mode's ex2 may be away


def square(x: Any, bits: int, cut: int) -> Any:
    """The squarer by its columns: partial products of x^2 below column `cut` are missing."""
    total = np.zeros_like(x)
    for i in range(bits):
        if 2 * i >= cut:
            total += (x >> i & 1) << 2 * i
        for j in range(max(i + 1, cut - 1 - i), bits):
            total += (x >> i & x >> j & 1) << i + j + 1
    return total >> cut


SQUARES = {bits: square(np.arange(1 << bits, dtype=np.int64), bits, cut) for bits, cut in ((17, 19), (16, 17))}


def polynomial(table: mufu.Table, m: Any) -> Any:
    """P of int64 arguments."""
    rows = np.array(table.rows, np.int64)[(m >> table.bits) % len(table.rows)]
    x = m & (1 << table.bits) - 1
    return (rows[..., 0] << table.unit) + table.constant + rows[..., 1] * x + rows[..., 2] * SQUARES[table.bits][x]


def truncated(value: Any, exponent: int) -> Any:
    """f32 bits of positive int64 values times 2^exponent, truncated to 24 bits."""
    wide = (value.astype(np.float64).view(np.int64) & -(1 << 29)).view(np.float64)  # below 2^53: exact
    return np.ldexp(wide, exponent).astype(np.float32).view(np.uint32).astype(np.int64)


def ex2(a: Any, field: Any, m: Any) -> Any:
    """2^a of numbers."""
    shift = np.clip(field - 127, -40, 9)
    whole = m | 1 << 23
    fixed = np.where(shift >= 0, whole << np.maximum(shift, 0), whole >> np.maximum(-shift, 0))
    fixed = np.where(a & SIGN, np.where(fixed & (1 << 23) - 1, ~fixed, -fixed), fixed)
    exponent, fraction = 127 + (fixed >> 23), fixed & (1 << 23) - 1
    result = (exponent << 23) + (polynomial(mufu.EX2, fraction) >> 15)
    return np.where(exponent >= 255, INF, np.where(exponent <= 0, 0, result))


def lg2(a: Any, field: Any, m: Any) -> Any:
    """log2(a) of positive normal numbers."""
    value = (field - 127 << 36) + (polynomial(mufu.LG2, m) >> 2)
    result = truncated(np.where(value < 0, ~value, value), -36) | np.where(value < 0, SIGN, 0)
    return np.where(a == 0x3F800000, 0, result)


def rcp(a: Any, field: Any, m: Any) -> Any:
    """1 / a of normal numbers."""
    result = (252 - field << 23) + (polynomial(mufu.RCP, m) >> 15)
    return np.where(result < 1 << 23, 0, result) | a & SIGN


def rsq(a: Any, field: Any, m: Any) -> Any:
    """1 / sqrt(a) of positive normal numbers."""
    odd = a & (1 << 24) - 1
    return (125 - (field - 127 >> 1) << 23) + (polynomial(mufu.RSQ, odd) >> 16) + (odd == 1 << 23)


def sqrt(a: Any, field: Any, m: Any) -> Any:
    """sqrt(a) of positive normal numbers."""
    return (126 + (field - 127 >> 1) << 23) + (polynomial(mufu.SQRT, a & (1 << 24) - 1) >> 17)


def tanh(a: Any, field: Any, m: Any) -> Any:
    """tanh(a) of numbers."""
    result = np.where(field < 119, a & NAN, 0x3F800000)
    for place, (drop, rows) in enumerate(mufu_tables.TANH):
        here = field == 119 + place
        t = m[here] >> drop
        k, slope, curve = np.array(rows, np.int64)[t >> 17].T
        x = t & 0x1FFFF
        result[here] = truncated(k + slope * x + curve * SQUARES[17][x], -42)
    return result | a & SIGN


def reference(name: str, words: np.ndarray) -> np.ndarray:
    """The unit's results for uint32 patterns: special values, and the formula for the rest."""
    a = words.astype(np.int64)
    field, m, sign = a >> 23 & 255, a & (1 << 23) - 1, a & SIGN
    result = globals()[name](a, field, m)
    zero, top, minus = field == 0, field == 255, sign != 0  # subnormals count as zeros
    specials: dict[str, list[tuple[Any, Any]]] = {
        "ex2": [(zero, 0x3F800000), (top, np.where(minus, 0, INF))],
        "lg2": [(minus, NAN), (zero, SIGN | INF), (top & ~minus, INF)],
        "rcp": [(zero, sign | INF), (top, sign)],
        "rsq": [(minus, NAN), (zero, sign | INF), (top & ~minus, 0)],
        "sqrt": [(minus, NAN), (zero, sign), (top & ~minus, INF)],
        "tanh": [(zero, a), (top, sign | 0x3F800000)],
    }
    for where, value in specials[name]:
        result = np.where(where, value, result)
    return np.where(top & (m != 0), NAN, result).astype(np.uint32)


def ulps(x: np.ndarray, y: np.ndarray) -> int:
    """The largest distance of positive f32 patterns; NaN must agree."""
    return int(np.abs(x.astype(np.int64) - y.astype(np.int64)).max(initial=0))


def sweep(name: str, first: int, count: int) -> tuple[int, int, int]:
    """(inputs whose results differ, CRC of the results, units that fast mode is away) of a slice of inputs."""
    wrong = crc = away = 0
    for at in range(first, first + count, CHUNK):
        words = np.arange(at, min(at + CHUNK, first + count), dtype=np.uint32)
        padded = np.resize(words, len(words) + -len(words) % 32)
        found = run_lanes(f"MUFU.{name.upper()}", padded)[0][: len(words)]
        wrong += int(np.count_nonzero(found != reference(name, words)))
        crc = zlib.crc32(found.tobytes(), crc)
        if name == "ex2":
            away = max(away, ulps(run_lanes("MUFU.EX2.FAST", padded)[0][: len(words)], found))
    return wrong, crc, away


def samples(name: str, file: str) -> int:
    """Recorded results that differ."""
    recorded = {"rsq": "rsqrt"}.get(name, name) + (".approx.f32" if name == "tanh" else ".approx.ftz.f32")
    wrong = 0
    with np.load(file) as stored:
        for x, y in (("x", recorded), (f"{recorded}.dense_x", f"{recorded}.dense")):
            words = np.resize(stored[x], len(stored[x]) + -len(stored[x]) % 32)
            found = run_lanes(f"MUFU.{name.upper()}", words)[0][: len(stored[x])]
            wrong += int(np.count_nonzero(found != stored[y]))
    return wrong


def main(argv: list[str] | None = None) -> int:
    """Command line; the exit code is 1 when a result differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("function", choices=FUNCTIONS)
    parser.add_argument("--slices", default=",".join(map(str, range(SLICES))), help="numbers from 0 to 15 (default: all)")
    parser.add_argument("--card", type=Path, help="a card's checksums (.json)")
    parser.add_argument("--samples", help="recorded results (.npz)")
    args = parser.parse_args(argv)
    failed = False
    card = json.loads(args.card.read_text())[args.function] if args.card else []
    for part in map(int, args.slices.split(",")):
        wrong, crc, away = sweep(args.function, part * SLICE, SLICE)
        same = not card or card[part] == f"{crc:08x}"
        failed |= wrong > 0 or not same or away > LIMIT
        words = [f"{wrong} inputs differ from the formula", f"CRC {crc:08x}{' of the card' if card and same else ''}"]
        words += [] if same else [f"but {card[part]} on the card"]
        words += [f"fast mode at most {away} units away"] if args.function == "ex2" else []
        print(f"{args.function} slice {part}: {', '.join(words)}", flush=True)
    if args.samples:
        bad = samples(args.function, args.samples)
        failed |= bad > 0
        print(f"{args.function}: {bad} recorded results differ")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
