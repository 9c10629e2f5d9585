"""The special function unit over every input: a minute a function on one core, with `--formula` half an hour.

    python -m tools.sweep_mufu ex2 [--slices 0,5,11] [--card mufu_crc.json] [--formula] [--samples mufu_samples.npz]

In each of 16 slices of 2^28 inputs, the vectors that runs execute have a checksum: with `--card` (default: the H200's,
written by `tools.record.mufu`) it is that of the card's results.  `--formula` compares every result with a second statement of
the unit's formula, in NumPy integers, and for ex2 with the polynomial of fast mode.  `--samples` compares with recorded results.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from emu.aligned import aligned
from emu.dispatch import ALL_LANES, lane_ids
from emu.lanes import dispatch, run_lanes
from emu.vector import LANES
from isa import mufu, mufu_tables

SLICES, SLICE, CHUNK = 16, 1 << 28, 1 << 16
CARD = Path(__file__).parents[1] / "tests" / "golden" / "h200" / "mufu-crc.json"
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


def execute(name: str, words: np.ndarray) -> None:
    """Replace uint32 patterns, a multiple of 32 at a boundary of 128 bytes, by a micro-operation's results, as a register in place."""
    predicates = np.full(5, ALL_LANES, np.uint32)
    row, no = words.ctypes.data, (0, 0, 0, 0)
    dispatch(
        len(words) // LANES, lane_ids()[name], row, 4 * LANES, *no, predicates.ctypes.data, 0, *no, 0, 0, ALL_LANES
    )


def sweep(name: str, first: int, count: int, formula: bool = False) -> tuple[int, int, int]:
    """(inputs whose results differ from the formula, CRC of the results, units that fast mode is away) of a slice of inputs.

    `first` and `count` are multiples of 32; without `formula` nothing differs and nothing is away.
    """
    wrong = crc = away = 0
    found = aligned(CHUNK, np.uint32)
    steps = np.arange(CHUNK, dtype=np.uint32)
    for at in range(first, first + count, CHUNK):
        found = found[: first + count - at]
        words = steps[: len(found)] + np.uint32(at)
        found[:] = words
        execute(f"MUFU.{name.upper()}", found)
        crc = zlib.crc32(found.data, crc)
        if formula:
            wrong += int(np.count_nonzero(found != reference(name, words)))
            if name == "ex2":
                away = max(away, ulps(run_lanes("MUFU.EX2.FAST", words)[0], found))
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
    parser.add_argument(
        "--slices", default=",".join(map(str, range(SLICES))), help="numbers from 0 to 15 (default: all)"
    )
    parser.add_argument("--card", type=Path, default=CARD, help="a card's checksums (.json)")
    parser.add_argument("--formula", action="store_true", help="every result against the formula")
    parser.add_argument("--samples", help="recorded results (.npz)")
    args = parser.parse_args(argv)
    failed = False
    card = json.loads(args.card.read_text())[args.function]
    for part in map(int, args.slices.split(",")):
        wrong, crc, away = sweep(args.function, part * SLICE, SLICE, args.formula)
        same = card[part] == f"{crc:08x}"
        failed |= wrong > 0 or not same or away > LIMIT
        words = [f"CRC {crc:08x}, the card's" if same else f"CRC {crc:08x}, but {card[part]} on the card"]
        words += [f"{wrong} inputs differ from the formula"] if args.formula else []
        words += [f"fast mode at most {away} units away"] if args.formula and args.function == "ex2" else []
        print(f"{args.function} slice {part}: {', '.join(words)}", flush=True)
    if args.samples:
        bad = samples(args.function, args.samples)
        failed |= bad > 0
        print(f"{args.function}: {bad} recorded results differ")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
