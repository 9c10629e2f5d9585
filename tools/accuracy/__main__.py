"""The emulator beside the H200, and docs/accuracy.md.

python -m tools.accuracy             # every table; refreshes docs/accuracy.md and the README's excerpt
python -m tools.accuracy --quick     # whole programs only, the cheap ones; writes nothing
python -m tools.accuracy --only cycles --only stalls
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from tools.accuracy import microbenchmarks, own, synchronous, tables
from tools.accuracy.emulate import emulate, problem_of
from tools.accuracy.recorded import Recorded, programs
from tools.docs.blocks import ROOT, update

PAGE, README = ROOT / "docs" / "accuracy.md", ROOT / "README.md"
EXCERPT = (
    "vector_add",
    "softmax-rows1024-cols4096",
    "gemm",
    "fa3-seqlen1024-heads1",
    "fa3-seqlen128-seqlen_k4096-heads132-heads_k1",
    "fa3-seqlen4096-heads16",
    "fa3-seqlen4096-heads16-batch4-head_dim128-causalFalse",
    "fa3-seqlen4096-heads16-batch4-head_dim128-causalTrue",
    "fa3-seqlen4096-heads8-batch4-head_dim256-causalFalse",
    "gemm-m8192-n8192-k8192",
)
CHEAP_FLOPS = 4_000_000_000  # whole runs for the numerics table


def cheap(entry: Recorded) -> bool:
    """Whether every CTA can run in a second or two."""
    return problem_of(entry).flops <= CHEAP_FLOPS and not entry.defines


def excerpt() -> list[Recorded]:
    """The programs of the README's table."""
    return [entry for entry in programs() if entry.name in EXCERPT]


def makers(quick: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """Block name and the function that makes its table."""
    plain = [entry for entry in programs() if not entry.defines and not own.is_length(entry)]
    if quick:
        yield "cycles", lambda: tables.cycles(excerpt())
        return
    wave = tables.find(tables.ONE_WAVE, {})
    yield "cycles", lambda: tables.cycles(plain)
    yield "numerics", lambda: tables.numerics(filter(cheap, plain))
    yield "composites", tables.composite_cycles
    yield "units", lambda: tables.units(emulate(wave))
    yield "synchronous", synchronous.cycles
    yield "synchronous-units", synchronous.units
    yield "synchronous-stalls", synchronous.stalls
    yield "generations", synchronous.generations
    yield "utilization", synchronous.utilization
    yield "lengths", own.lengths
    yield "variants", own.variants
    yield "instructions", own.instructions
    yield "stalls", own.stalls
    yield "opcodes", own.opcodes
    yield "microbenchmarks", microbenchmarks.summary
    yield "excerpt", lambda: tables.cycles(excerpt())


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few programs only; writes nothing")
    parser.add_argument("--only", action="append", help="tables to make (default: all)")
    args = parser.parse_args(argv)
    made: dict[str, str] = {}
    for name, make in makers(args.quick):
        if args.only and name not in args.only:
            continue
        made[name] = make()
        print(f"{name}\n\n{made[name]}\n", flush=True)
    if not args.quick:
        if "excerpt" in made:
            update(README, {"accuracy": made.pop("excerpt")})
        update(PAGE, made)


if __name__ == "__main__":
    main()
