"""Speed of the tensor core's numerics: GFLOP/s of wgmma k16 f16 -> f32, beside one-thread BLAS, and of tcgen05.mma's kinds.

    python -m tools.bench.tensor

Each row is one instruction shape; the columns are the operand forms (A and B from shared memory with
K-major B, with MN-major B; A from registers with each), then np.dot on float32 matrices of the same size
(conversion not included) and the peak of the vector FMA units, measured in the same run.  Best of several.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections.abc import Callable

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from emu.llvm import F32, FLOATS, I64, call, offset, splat, store, vector
from emu.tmem_state import TC_JOB
from emu.units import tcgen05_math
from emu.units.tensor_math import SCRATCH_BYTES, wgmma
from isa.descriptors import ELEMENTS, matrix_descriptor

ROWS, CALLS, REPEATS = 256, 200, 30
UNROLL = 8
CHAINS = 12  # independent FMA chains: more than latency x pipes of current x86 cores


@njit
def _repeat(times, word, windows, lists, nd, smem, smem_bytes, desc_a, desc_b, scratch):
    code = 0
    for _ in range(times):
        code |= wgmma(word, windows, lists, nd, smem, smem_bytes, desc_a, desc_b, 1, scratch, 0, 23)
    return code


@njit
def _products(times, jobs, tmem, smem, smem_bytes, scratch):
    code = 0
    for _ in range(times):
        code |= tcgen05_math.mma(jobs[0], tmem, smem, smem_bytes, scratch)
    return code


@intrinsic
def _fma_chains(typing, steps, to):
    """Nothing but dependent FMAs of the host's widest vectors in CHAINS chains."""

    def emit(ctx, b, sig, args):
        steps, to = args
        floats = vector(F32, FLOATS)
        before, loop, end = b.block, b.append_basic_block("loop"), b.append_basic_block("end")
        b.branch(loop)
        b.position_at_end(loop)
        step, sums = b.phi(I64), [b.phi(floats) for _ in range(CHAINS)]
        factor = splat(floats, 0.5)
        new = sums
        for _ in range(UNROLL):
            new = [call(b, f"llvm.fma.v{FLOATS}f32", floats, factor, factor, x) for x in new]
        following = b.add(step, I64(1))
        step.add_incoming(I64(0), before)
        step.add_incoming(following, loop)
        for phi, x in zip(sums, new, strict=True):
            phi.add_incoming(splat(floats, 0.0), before)
            phi.add_incoming(x, loop)
        b.cbranch(b.icmp_signed("<", following, steps), loop, end)
        b.position_at_end(end)
        for i, x in enumerate(new):
            store(b, x, offset(b, to, 4 * FLOATS * i), 32)
        return ctx.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@njit
def _peak(steps, to):
    _fma_chains(steps, to)


def aligned(nbytes: int) -> np.ndarray:
    raw = np.zeros(nbytes + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][:nbytes]


def best(run: Callable[[], object]) -> float:
    """Seconds of the fastest of REPEATS runs, after one to warm up."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(n: int, mn_major: int, registers: int) -> float:
    """GFLOP/s of one m64nNk16, 128-byte swizzle."""
    smem, window, scratch = aligned(65536), aligned(4 * ROWS * 128), aligned(SCRATCH_BYTES)
    smem.view(np.float16)[:] = np.random.default_rng(0).standard_normal(smem.size // 2)
    windows = window.ctypes.data + np.arange(4, dtype=np.int64) * ROWS * 128
    lists = np.arange(n // 2 + 4, dtype=np.uint16)
    desc_a = 1024 >> 4 << 32 | 1 << 62
    desc_b = 16384 >> 4 | 1024 >> 4 << 16 | 1024 >> 4 << 32 | 1 << 62
    arguments = (
        n | mn_major << 20 | registers << 21, windows.ctypes.data, lists.ctypes.data, n // 2, smem.ctypes.data, smem.size,
        desc_a, desc_b, scratch.ctypes.data,
    )  # fmt: skip
    assert _repeat(1, *arguments) == 0
    return CALLS * 2e-9 * 64 * n * 16 / best(lambda: _repeat(CALLS, *arguments))


# tcgen05.mma: name, element type, M, N, K, fields of the job beside these.
PRODUCTS: tuple[tuple[str, str, int, int, int, dict[str, int]], ...] = (
    ("f16, A and B in SMEM", "f16", 128, 128, 16, {}),
    ("f16, A in TMEM, B MN-major", "f16", 128, 128, 16, {"a_tensor": 1, "trans_b": 1}),
    ("f16, M 64", "f16", 64, 128, 16, {}),
    ("f16, f16 accumulators", "f16", 128, 128, 16, {"d_type": tcgen05_math.D_F16}),
    ("e4m3", "e4m3", 128, 128, 32, {}),
    ("s8", "s8", 128, 128, 32, {"d_type": tcgen05_math.D_S32}),
    ("mxf8f6f4", "e4m3", 128, 128, 32, {"blocks": 1}),
    ("mxf4nvf4, 4 scales a row", "packed", 128, 128, 64, {"blocks": 4}),
)


def product(kind: str, m: int, n: int, k: int, fields: dict[str, int]) -> float:
    """GFLOP/s of a tcgen05.mma on small values, 128-byte swizzle."""
    smem, tmem, scratch = aligned(65536), aligned(512 * 512), aligned(tcgen05_math.SCRATCH_BYTES)
    smem[:], tmem[:] = 0x2C, 0x2C
    jobs = np.zeros(1, TC_JOB)
    known = {
        "m": m,
        "n": n,
        "kind_a": ELEMENTS.index(kind),
        "kind_b": ELEMENTS.index(kind),
        "accumulate": 1,
        "ue8m0": 1,
    }
    known |= {
        "d_type": tcgen05_math.D_F32,
        "a": matrix_descriptor(0, sbo=1024),
        "b": matrix_descriptor(32768, lbo=8192, sbo=1024),
    }
    known |= {"d": 256, "sfa": 64, "sfb": 80} | ({"a": 0} if fields.get("a_tensor") else {}) | fields
    for name, value in known.items():
        jobs[name] = value
    arguments = (jobs, tmem.ctypes.data, smem.ctypes.data, smem.size, scratch.ctypes.data)
    assert _products(1, *arguments) == 0
    return CALLS * 2e-9 * m * n * k / best(lambda: _products(CALLS, *arguments))


def dot(n: int) -> float:
    """GFLOP/s of np.dot on 64 x 16 x n float32."""
    a, b, out = np.ones((64, 16), np.float32), np.ones((16, n), np.float32), np.empty((64, n), np.float32)

    def run() -> None:
        for _ in range(CALLS):
            np.dot(a, b, out=out)

    return CALLS * 2e-9 * 64 * n * 16 / best(run)


def peak() -> float:
    """GFLOP/s of FMAs on registers."""
    to, steps = aligned(4 * FLOATS * CHAINS), 5000
    return 2e-9 * FLOATS * CHAINS * UNROLL * steps / best(lambda: _peak(steps, to.ctypes.data))


def main() -> None:
    start = time.process_time()
    _repeat(0, *[0] * 9)
    print(f"compiled in {time.process_time() - start:.1f} s (processor time)")
    top = peak()
    print(f"vector FMA peak {top:.1f} GFLOP/s\n")
    print("m64nNk16   SS K-major  SS MN-major  RS K-major  RS MN-major  np.dot   of peak     times np.dot")
    for n in (64, 128, 176, 256):
        rates = [measure(n, mn, rs) for rs in (0, 1) for mn in (0, 1)]
        blas = dot(n)
        low, high = min(rates), max(rates)
        columns = "".join(f"{rate:12.1f}" for rate in rates)
        print(f"n{n:<6}{columns}{blas:12.1f}   {low / top:.2f}..{high / top:.2f}  {low / blas:.2f}..{high / blas:.2f}")
    print("\ntcgen05.mma                       m    n    k    GFLOP/s   of peak")
    for name, kind, m, n, k, fields in PRODUCTS:
        rate = product(kind, m, n, k, fields)
        print(f"{name:<30}{m:5}{n:5}{k:5}{rate:11.1f}{rate / top:10.2f}")


if __name__ == "__main__":
    main()
