"""The calibration suite on a GPU: the same kernels, launched through the driver."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tools.calibrate.bench import Bench, measure
from tools.calibrate.suite import benches
from tools.record.driver import CudaError, Gpu
from tools.record.kernel import assemble, sm_clock_mhz

FLUSH = 1 << 28  # bytes: several times an L2


class _Launcher:
    """Runs benchmarks; a kernel's text is assembled once.  L2 holds none of a kernel's data when it starts, but what the
    launch before left there if it is launched again."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._functions: dict[str, Any] = {}
        sm_clock_mhz(gpu)  # the card's clock rises first
        self._flush = gpu.zeros(FLUSH)
        self._shared: dict[int, int] = {}  # bytes -> address of zeros

    def __call__(self, bench: Bench, turns: int) -> np.ndarray:
        if bench.text not in self._functions or bench.launch == "first":
            module = self._gpu.load(assemble(bench.text)[0])
            self._functions[bench.text] = self._gpu.function(module, "bench", bench.shared, bench.cluster)
        table = np.zeros((bench.ctas * bench.warps, bench.slots), np.uint64)
        out = self._gpu.upload(table)
        own = bool(bench.data.any())
        data = self._gpu.upload(bench.data) if own else self._zeros(bench.data.nbytes)
        parameters = [np.uint64(out).tobytes(), np.uint64(data).tobytes(), np.uint32(turns).tobytes()]
        if bench.box is not None:
            parameters.append(self._map(bench))
        self._gpu.clear(self._flush, FLUSH)
        for _ in range(2 if bench.launch == "again" else 1):
            self._gpu.launch(
                self._functions[bench.text],
                (bench.ctas, 1, 1),
                (32 * bench.warps, 1, 1),
                bench.shared,
                parameters,
                bench.cluster,
            )
            self._gpu.synchronize()
        self._gpu.read(out, table)
        self._gpu.free(out)
        if own:
            self._gpu.free(data)
        return table

    def _zeros(self, size: int) -> int:
        """Device memory of zeros that all kernels share which want as much."""
        if size not in self._shared:
            self._shared[size] = self._gpu.zeros(size)
        return self._shared[size]

    def _map(self, bench: Bench) -> bytes:
        box = bench.box
        assert box is not None
        matrix = self._zeros(2 * box.rows * box.columns)
        return self._gpu.tensor_map(
            matrix, "f16", (box.columns, box.rows), (2 * box.columns,), (box.box_columns, box.box_rows), box.swizzle
        )


def measure_family(gpu: Gpu, family: str, only: str = "", repeat: int = 3) -> Iterator[dict[str, Any]]:
    """Rows of a family (those whose name or parameters contain `only`): median, least and most of `repeat`.

    A row that fails has `error` instead; after a failing driver call the context may be lost, so it ends there.
    """
    launcher = _Launcher(gpu)
    chosen = []
    for bench in benches(family, every=True):
        wanted = [row for row in bench.rows if only in f"{row.name} {row.params}"]
        if wanted:
            chosen.append((bench, wanted))
    with ThreadPoolExecutor() as pool:
        list(pool.map(assemble, dict.fromkeys(bench.text for bench, _ in chosen)))
    for bench, wanted in chosen:
        try:
            seen = [{id(row): value for row, value in measure(bench, launcher)} for _ in range(repeat)]
        except (CudaError, RuntimeError, ArithmeticError) as error:
            yield {"name": wanted[0].name, "params": wanted[0].params, "error": str(error)[-1500:]}
            if isinstance(error, CudaError):
                return
            continue
        for row in wanted:
            values = [values[id(row)] for values in seen]
            spread = {"value": statistics.median(values), "min": min(values), "max": max(values)}
            yield {"name": row.name, "params": row.params, **spread}
