"""Speed of the emulator's core, beside other ways to compute the same on this host.

    python -m tools.bench.engine [--seqlen 1024] [--rows 256] [--cols 4096] [--repeat 3]

Reports warp instructions a second (inside the compiled core only) for `fa3` with one head and for `softmax`,
and for attention the ratio to a tiled float32 NumPy version on one thread and, when Triton is installed, to its
interpreter.  The alternatives are timed in the same run, so that the ratios survive a slow or busy host.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # before NumPy: one core against one core

import numpy as np

import emu
import programs

TILE = 128


@dataclass(frozen=True)
class Speed:
    """The best of several runs of one program."""

    program: str
    warp_instructions: int
    seconds: float
    cycles: int
    passed: bool

    @property
    def rate(self) -> float:
        """Warp instructions a second."""
        return self.warp_instructions / self.seconds


def emulate(name: str, repeat: int, machine: str = "h200", **options: Any) -> Speed:
    """Run a shipped program `repeat` times; numerics are checked once."""
    problem = programs.find(name).from_options(**options)
    kernel = emu.load(problem.kernel_path, defines=problem.defines)
    inputs = problem.make_inputs()
    results = []
    for _ in range(repeat):
        start = problem.launch(inputs, sms=1)
        results.append(
            emu.launch(
                kernel,
                machine=machine,
                grid=start.grid,
                block=start.block,
                args=start.args,
                shared_bytes=start.shared_bytes,
            )
        )
    best = min(results, key=lambda r: r.host_seconds)
    numerics = problem.check({n: start.arrays[n] for n in problem.outputs}, inputs)
    return Speed(name, best.warp_instructions, best.host_seconds, best.cycles, numerics.passed)


def best_time(work: Callable[[], object], repeat: int) -> float:
    """Seconds of the fastest of `repeat` calls."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def numpy_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Tiled online-softmax attention of one head, q, k, v float32 [rows, d]."""
    scale = np.float32(1 / np.sqrt(q.shape[1]))
    out = np.empty_like(q)
    for row in range(0, len(q), TILE):
        queries = q[row : row + TILE] * scale
        top = np.full((len(queries), 1), -np.inf, np.float32)
        total = np.zeros((len(queries), 1), np.float32)
        acc = np.zeros_like(queries)
        for key in range(0, len(k), TILE):
            scores = queries @ k[key : key + TILE].T
            new = np.maximum(top, scores.max(axis=1, keepdims=True))
            weights = np.exp(scores - new)
            shrink = np.exp(top - new)
            total = total * shrink + weights.sum(axis=1, keepdims=True)
            acc = acc * shrink + weights @ v[key : key + TILE]
            top = new
        out[row : row + TILE] = acc / total
    return out


def triton_attention(seqlen: int, width: int) -> float | None:
    """Seconds of Triton's interpreter for one head, or None without Triton (it needs PyTorch)."""
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        from tools.bench.triton_attention import run
    except ImportError:
        return None
    return run(seqlen, width, TILE)


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqlen", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--machine", default="h200")
    args = parser.parse_args(argv)
    attention = emulate("fa3", args.repeat, args.machine, seqlen=args.seqlen, heads=1)
    softmax = emulate("softmax", args.repeat, args.machine, rows=args.rows, cols=args.cols)
    print(f"{'program':8} {'warp instr':>11} {'cycles':>10} {'core s':>8} {'M instr/s':>10}  numerics")
    for speed in (attention, softmax):
        print(
            f"{speed.program:8} {speed.warp_instructions:11d} {speed.cycles:10d} {speed.seconds:8.4f} "
            f"{speed.rate / 1e6:10.2f}  {'ok' if speed.passed else 'WRONG'}"
        )
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((args.seqlen, 128), dtype=np.float32) for _ in range(3))
    tiled = best_time(lambda: numpy_attention(q, k, v), args.repeat)
    print(f"tiled NumPy attention: {tiled:.4f} s; the emulator takes {attention.seconds / tiled:.2f} times as long")
    interpreted = triton_attention(args.seqlen, 128)
    if interpreted is None:
        print("Triton interpreter: not installed")
    else:
        ratio = interpreted / attention.seconds
        print(f"Triton interpreter: {interpreted:.3f} s; the emulator is {ratio:.1f} times as fast")


if __name__ == "__main__":
    main()
