"""One launch of one kernel on a GPU: arguments to device memory, repetitions, times, outputs back."""

from __future__ import annotations

import math
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from programs.tensormap import TensorMap
from tools.record.driver import Gpu
from tools.record.entry import Entry, entries, scalar_bytes
from tools.record.instrument import WORDS, SmTimes, with_clocks

# Cycles over nanoseconds of a short busy loop: the SM clock that the card runs at just now.
CLOCK_PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry sm_clock(.param .u64 out, .param .u64 nanoseconds)
{
    .reg .b64 %d<8>;
    .reg .pred %p;
    ld.param.u64 %d0, [out];
    ld.param.u64 %d1, [nanoseconds];
    mov.u64 %d2, %globaltimer;
    mov.u64 %d3, %clock64;
SPIN:
    mov.u64 %d4, %globaltimer;
    sub.u64 %d5, %d4, %d2;
    setp.lt.u64 %p, %d5, %d1;
    @%p bra SPIN;
    mov.u64 %d6, %clock64;
    sub.u64 %d6, %d6, %d3;
    st.global.u64 [%d0], %d6;
    st.global.u64 [%d0+8], %d5;
    ret;
}
"""
CLOCK_NANOSECONDS = 20_000_000


@dataclass
class Launch:
    """What to launch: PTX text, geometry and arguments in the order of the kernel's parameters.

    Arguments are NumPy arrays (updated in place from the device after the run), scalars, or tensor maps.
    """

    text: str
    kernel: str
    grid: Sequence[int]
    block: Sequence[int]
    args: Sequence[Any]
    shared: int = 0
    cluster: int = 1


@dataclass
class Run:
    """What one launch showed: event times, SM cycles per repetition, and the compiler's facts."""

    times_ms: list[float]
    cycles: list[SmTimes]
    clock_mhz: tuple[float, float]  # before and after
    attributes: dict[str, int]
    ptxas_log: str = ""


def find_ptxas() -> str | None:
    """ptxas on PATH, or where the CUDA toolkit usually lies."""
    return shutil.which("ptxas") or shutil.which("ptxas", path="/usr/local/cuda/bin")


@cache
def assemble(text: str, arch: str = "sm_90a") -> tuple[bytes, str]:
    """A cubin and the log of `ptxas -v`; the text itself when no ptxas is there (the driver assembles)."""
    ptxas = find_ptxas()
    if ptxas is None:
        return text.encode(), "no ptxas on PATH: assembled by the driver"
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "k.ptx"), Path(folder, "k.cubin")
        source.write_text(text)
        done = subprocess.run(
            [ptxas, f"-arch={arch}", "-v", "-o", str(cubin), str(source)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"ptxas failed:\n{done.stderr}")
        return cubin.read_bytes(), done.stderr.strip()


def sm_clock_mhz(gpu: Gpu) -> float:
    """The SM clock now, from one busy thread."""
    result = np.zeros(2, np.uint64)
    function = gpu.function(gpu.load(CLOCK_PTX.encode()), "sm_clock")
    address = gpu.upload(result)
    gpu.launch(
        function, (1, 1, 1), (1, 1, 1), 0, [np.uint64(address).tobytes(), np.uint64(CLOCK_NANOSECONDS).tobytes()]
    )
    gpu.synchronize()
    gpu.read(address, result)
    return 1e3 * int(result[0]) / max(int(result[1]), 1)


class _Arguments:
    """Device copies of a launch's arguments; an array that several tensor maps view is copied once."""

    def __init__(self, gpu: Gpu, entry: Entry, args: Sequence[Any]) -> None:
        if len(entry.parameters) != len(args):
            raise ValueError(f"{entry.name} takes {len(entry.parameters)} parameters, {len(args)} arguments are given")
        self._gpu = gpu
        self._arrays: dict[int, tuple[int, np.ndarray]] = {}
        self.raw = [self._encode(parameter, value) for parameter, value in zip(entry.parameters, args, strict=True)]

    def _address(self, array: np.ndarray) -> int:
        key = array.__array_interface__["data"][0]
        if key not in self._arrays:
            self._arrays[key] = (self._gpu.upload(array), array)
        return self._arrays[key][0]

    def _encode(self, parameter: Any, value: Any) -> bytes:
        if isinstance(value, np.ndarray):
            return np.uint64(self._address(value)).tobytes()
        if isinstance(value, TensorMap):
            return encode(self._gpu, value, self._address(value.array))
        return scalar_bytes(parameter, value)

    def fetch(self) -> None:
        """Read every array back in place."""
        for address, array in self._arrays.values():
            self._gpu.read(address, array)


def encode(gpu: Gpu, tensor_map: TensorMap, address: int) -> bytes:
    """The driver's 128 bytes of a `programs.tensormap.TensorMap` over device memory at `address`."""
    return gpu.tensor_map(
        address,
        tensor_map.dtype,
        tensor_map.dims,
        tensor_map.strides,
        tensor_map.box,
        tensor_map.swizzle,
        element_strides=tensor_map.element_strides,
        nan_fill=tensor_map.fill == "nan",
    )


def run_once(gpu: Gpu, launch: Launch) -> None:
    """Launch once and read the outputs back into the arrays.  Raises on any failing call."""
    entry = next(e for e in entries(launch.text) if e.name == launch.kernel)
    function = gpu.function(gpu.load(assemble(launch.text)[0]), launch.kernel, launch.shared, launch.cluster)
    arguments = _Arguments(gpu, entry, launch.args)
    gpu.launch(function, launch.grid, launch.block, launch.shared, arguments.raw, launch.cluster)
    gpu.synchronize()
    arguments.fetch()


def run(gpu: Gpu, launch: Launch, repeat: int = 10, clocks: bool = True) -> Run:
    """Launch once for the outputs (read back into the arrays), then `repeat` times for the times.

    Event times are those of the plain kernel; the SM cycles come from a second build with clock
    readings (`instrument`).  Raises on any failing call; a fault of the kernel surfaces here.
    """
    entry = next((e for e in entries(launch.text) if e.name == launch.kernel), None)
    if entry is None:
        raise ValueError(f"no kernel {launch.kernel} in the PTX")
    image, log = assemble(launch.text)
    function = gpu.function(gpu.load(image), launch.kernel, launch.shared, launch.cluster)
    arguments = _Arguments(gpu, entry, launch.args)

    def go() -> None:
        gpu.launch(function, launch.grid, launch.block, launch.shared, arguments.raw, launch.cluster)

    before = sm_clock_mhz(gpu)
    go()
    gpu.synchronize()
    arguments.fetch()
    times = [gpu.timed(go) for _ in range(repeat)]
    cycles = _cycles(gpu, launch, arguments, repeat) if clocks else []
    return Run(times, cycles, (before, sm_clock_mhz(gpu)), gpu.attributes(function), log)


def _cycles(gpu: Gpu, launch: Launch, arguments: _Arguments, repeat: int) -> list[SmTimes]:
    """SM cycles of each repetition, by the build with clock readings."""
    image, _ = assemble(with_clocks(launch.text, launch.kernel))
    function = gpu.function(gpu.load(image), launch.kernel, launch.shared, launch.cluster)
    warps = math.prod(launch.grid) * math.prod(launch.block) // 32
    table = np.zeros((warps, WORDS), np.uint64)
    address = gpu.upload(table)
    parameters = [*arguments.raw, np.uint64(address).tobytes()]
    seen = []
    for _ in range(repeat):
        gpu.launch(function, launch.grid, launch.block, launch.shared, parameters, launch.cluster)
        gpu.synchronize()
        gpu.read(address, table)
        seen.append(SmTimes.of(table))
    return seen
