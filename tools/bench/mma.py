"""Speed of the emulator on code that is bound by mma.sync: warp instructions a second, by type.

    python -m tools.bench.mma [--repeat 9]

The kernels are those of `tools.calibrate.mma`: two warps on each sub-partition, four chains of products a warp.  (mma.sync of
8-bit floats is two products of f16 with conversions around, `tests/isa/ops/test_mma_fp8.py`.)
"""

from __future__ import annotations

import argparse

import numpy as np

import emu
from tools.calibrate.mma import OPS, alone

WARPS, CHAINS, TURNS = 8, 4, 64


def rate(op: str, repeat: int) -> float:
    """Warp instructions a second inside the compiled core, the best of several runs."""
    kernel = emu.load(text=alone(op, CHAINS))
    rates = []
    for _ in range(repeat):
        clocks, data = np.zeros((WARPS, 2), np.uint64), np.zeros(4096, np.float32)
        result = emu.launch(kernel, grid=1, block=32 * WARPS, args=[clocks, data, TURNS], shared_bytes=128)
        rates.append(result.warp_instructions / result.host_seconds)
    return max(rates)


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    args = parser.parse_args(argv)
    print(f"{'mma.sync':<20}{'M instr/s':>10}")
    for op in OPS:
        print(f"{op:<20}{rate(op, args.repeat) / 1e6:10.2f}")


if __name__ == "__main__":
    main()
