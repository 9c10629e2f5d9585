"""FlashAttention-4 on the emulated B200 beside the published curve, and what each of its tricks is worth there.

    python -m tools.accuracy.blackwell            # print
    python -m tools.accuracy.blackwell --page     # rewrite the blocks of docs/programs.md

Published: arXiv 2603.05451, figure 4 (bf16, head dim 128, 32,768 tokens, 16 heads, causal FLOP halved).  Emulated: the SM with the most
key blocks of the same problem on 148 SMs, alone, with device memory as near as L2, and the launch.  The clock under load is not
known; one clock is fitted to all points.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np

import emu
import programs
from emu.machine import load_machine
from emu.solve import solve
from programs.attention import TILE_OVERHEAD
from programs.attention_fa4 import FlashAttention4
from programs.problem import Define, ceildiv
from tools.accuracy.emulate import machine
from tools.docs.blocks import ROOT, table, update

TOKENS, HEADS = 32768, 16
PUBLISHED = {  # TFLOPS
    False: {1024: 1355, 2048: 1468, 4096: 1532, 8192: 1579, 16384: 1601, 32768: 1613},
    True: {1024: 744, 2048: 1053, 4096: 1279, 8192: 1426, 16384: 1526, 32768: 1576},
}
SWITCHES: tuple[tuple[str, dict[str, Define]], ...] = (
    ("none", {}),
    ("no polynomials (`EMULATE=0`)", {"EMULATE": 0}),
    ("every maximum rescales (`RESCALE_LIMIT=0`)", {"RESCALE_LIMIT": 0}),
    ("P in one piece (`SPLIT_P=0`)", {"SPLIT_P": 0}),
    ("no correction warps (`CORRECTION=0`)", {"CORRECTION": 0}),
    ("one stage (`TILES=1`)", {"TILES": 1}),
)
PLACES = (("b200", 128), ("b300", 128))  # machine, head dim


def problem_of(seqlen: int, causal: bool) -> FlashAttention4:
    """A point of the published curve."""
    found = FlashAttention4.from_options(
        seqlen=seqlen, heads=HEADS, batch=TOKENS // seqlen, causal=causal, dtype="bf16"
    )
    assert isinstance(found, FlashAttention4)
    return found


def cycles(seqlen: int, causal: bool) -> int:
    """Cycles of the busiest CTA of a point, from its start to its end."""
    whole, sms = problem_of(seqlen, causal), int(load_machine("b200").value("chip.sms"))
    blocks = ceildiv(seqlen, whole.tile.rows)
    work = whole.work(sms)
    load = [sum(whole.key_blocks(t % blocks) + TILE_OVERHEAD for t in tiles) for tiles in work]
    mine = [t % blocks for t in work[int(np.argmax(load))]]
    # the same tiles on one head: a table of one column, with as many passes as a tile comes again
    one = FlashAttention4.from_options({"SCHEDULE": 1}, seqlen=seqlen, heads=1, causal=causal, dtype="bf16")
    start = one.launch(one.make_inputs(), 1)
    rounds = np.array([*mine, one.tiles], np.uint32)[:, None].copy()
    args = [rounds if arg is start.arrays["schedule"] else arg for arg in start.args]
    kernel = emu.load(one.kernel_path, defines=one.defines)
    result = emu.launch(
        kernel,
        machine=machine("b200", 1),
        grid=(1, 1, 1),
        block=start.block,
        args=args,
        shared_bytes=start.shared_bytes,
    )
    assert result.deadlock is None and not result.findings
    return int(result.cycles)


def points() -> Iterator[tuple[int, bool, int, float, float]]:
    """Length, mask, cycles with the launch, FLOP a cycle, published TFLOPS."""
    launch = load_machine("b200").value("chip.launch_cy")
    for causal, curve in PUBLISHED.items():
        for seqlen, rate in curve.items():
            total = cycles(seqlen, causal) + int(launch)
            flops = 4 * TOKENS * seqlen * 128 * HEADS / (2 if causal else 1)
            yield seqlen, causal, total, flops / total, rate


def per_block(defines: dict[str, Define], name: str, head_dim: int, blocks: tuple[int, int] = (8, 24)) -> float:
    """Cycles of a block of 256 rows and 128 keys, from the difference of two lengths of a tile; the numbers are checked."""
    found = []
    for count in blocks:
        problem = programs.find("fa4").from_options(
            defines, seqlen=256, seqlen_k=128 * count, heads=1, head_dim=head_dim
        )
        result = solve(problem, machine(name, 1))
        assert result.numerics is not None and result.numerics.passed
        found.append(result.cycles)
    return (found[1] - found[0]) / (blocks[1] - blocks[0])


def curve() -> str:
    """The table of the curve, the fitted clock and the spread."""
    rows = list(points())
    clock = math.exp(sum(math.log(rate * 1e6 / speed) for *_, speed, rate in rows) / len(rows))  # MHz
    listed = [
        (
            f"{seqlen:,}",
            "causal" if causal else "",
            f"{total:,}",
            f"{speed * clock / 1e6:,.0f}",
            f"{rate:,}",
            f"{speed * clock / 1e6 / rate:.3f}",
        )
        for seqlen, causal, total, speed, rate in rows
    ]
    ratios = [speed * clock / 1e6 / rate for *_, speed, rate in rows]
    header = ("length", "mask", "emulated cycles", "TFLOPS", "published", "ratio")
    return (
        table(header, listed)
        + f"\n\nFitted clock {clock:,.0f} MHz; ratios from {min(ratios):.3f} to {max(ratios):.3f}."
    )


def ablations() -> str:
    """Cycles a block with each trick taken away, on both chips."""
    rows = []
    for word, defines in SWITCHES:
        rows.append((word, *(f"{per_block(defines, *where):,.0f}" for where in PLACES)))
    return table(("without", *(f"{name.upper()}, {dim}" for name, dim in PLACES)), rows)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="rewrite the blocks of docs/programs.md")
    args = parser.parse_args()
    contents = {"fa4-ablations": ablations(), "fa4-curve": curve()}
    print("\n\n".join(contents.values()))
    if args.page:
        update(ROOT / "docs" / "programs.md", contents)


if __name__ == "__main__":
    main()
