"""The calibration suite on a GPU: the same kernels, launched through the driver."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np

from tools.calibrate.bench import Bench, measure
from tools.calibrate.suite import benches
from tools.record.driver import CudaError, Gpu
from tools.record.kernel import assemble


class _Launcher:
    """Runs benchmarks; a kernel's text is assembled once."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._functions: dict[str, Any] = {}

    def __call__(self, bench: Bench, turns: int) -> np.ndarray:
        if bench.text not in self._functions:
            module = self._gpu.load(assemble(bench.text)[0])
            self._functions[bench.text] = self._gpu.function(module, "bench", bench.shared, bench.cluster)
        table = np.zeros((bench.ctas * bench.warps, bench.slots), np.uint64)
        out, data = self._gpu.upload(table), self._gpu.upload(bench.data)
        parameters = [np.uint64(out).tobytes(), np.uint64(data).tobytes(), np.uint32(turns).tobytes()]
        if bench.box is not None:
            parameters.append(self._map(bench))
        self._gpu.launch(
            self._functions[bench.text], (bench.ctas, 1, 1), (32 * bench.warps, 1, 1), bench.shared, parameters, bench.cluster,
        )
        self._gpu.synchronize()
        self._gpu.read(out, table)
        self._gpu.free(out)
        self._gpu.free(data)
        return table

    def _map(self, bench: Bench) -> bytes:
        box = bench.box
        assert box is not None
        matrix = self._gpu.upload(box.array())
        return self._gpu.tensor_map(
            matrix, "f16", (box.columns, box.rows), (2 * box.columns,), (box.box_columns, box.box_rows), box.swizzle
        )


def measure_family(gpu: Gpu, family: str, only: str = "", repeat: int = 3) -> Iterator[dict[str, Any]]:
    """Rows of a family (those whose name or parameters contain `only`): median, least and most of `repeat`.

    A row that fails has `error` instead; after a failing driver call the context may be lost, so it ends there.
    """
    launcher = _Launcher(gpu)
    for bench in benches(family):
        wanted = [row for row in bench.rows if only in f"{row.name} {row.params}"]
        if not wanted:
            continue
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
