"""tcgen05.mma: latencies and intervals against published measurements, and the queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu.machine import load_machine
from isa.descriptors import instruction_descriptor, matrix_descriptor
from tests.emu.units.tcgen05 import CLOCKS

# SemiAnalysis, Dissecting Nvidia Blackwell (B200): N -> latency, interval in cycles.
MEASURED = {
    ("SS", 128): {64: (168, 48), 80: (176, 52), 96: (184, 56), 112: (192, 60), 128: (200, 64), 256: (264, 128)},
    ("SS", 64): {64: (152, 32), 128: (184, 64), 256: (248, 128)},
    ("TS", 128): {64: (136, 32), 80: (144, 40), 96: (152, 48), 112: (160, 56), 128: (168, 64), 256: (232, 128)},
    ("TS", 64): {64: (136, 32), 128: (168, 64), 256: (232, 128)},
}


def cycles(
    kind: str,
    types: tuple[str, str],
    m: int,
    n: int,
    count: int,
    ts: bool = False,
    machine: str = "b200",
    **options: Any,
) -> int:
    """From the clock before `count` products to the clock behind the wait for their commit."""
    target = "sm_103a" if machine == "b300" else "sm_100a"
    idesc = instruction_descriptor(kind, *types, m, n, d="s32" if kind == "i8" else "f32")
    scaled = kind.startswith("mx")
    text = CLOCKS.format(
        target=target, a=matrix_descriptor(2048, sbo=1024), b=matrix_descriptor(20480, sbo=1024), idesc=idesc,
        kind=f"{kind}.block_scale" if scaled else kind, operand="[%r4]" if ts else "%d2", scales=", [%r4], [%r4]" if scaled else "",
    )  # fmt: skip
    out = np.zeros(1, np.uint32)
    chip = load_machine(machine, ("chip.sms=1", *options.pop("overrides", ())))
    result = emu.launch(emu.load(text=text), machine=chip, block=32, args=[out, count], shared_bytes=65536, **options)
    assert not result.findings, result.findings
    return int(out[0])


@pytest.mark.parametrize("form, m", MEASURED)
def test_measured_latencies_and_intervals(form, m):
    for n, (latency, interval) in MEASURED[form, m].items():
        one, some, more = (cycles("f16", ("bf16", "bf16"), m, n, k, form == "TS") for k in (1, 10, 30))
        assert (one, (more - some) / 20) == (latency, interval), n


@pytest.mark.parametrize(
    "kind, types", [("f8f6f4", ("e4m3", "e4m3")), ("mxf4", ("e2m1", "e2m1")), ("tf32", ("tf32", "tf32"))]
)
def test_every_kind_takes_the_same_time(kind, types):
    assert cycles(kind, types, 128, 128, 1) == 200
    assert cycles(kind, types, 128, 128, 30) - cycles(kind, types, 128, 128, 10) == 20 * 64


def test_a_b300_has_a_least_interval():
    few, more = (cycles("f16", ("f16", "f16"), 128, 64, k, True, "b300") for k in (10, 30))
    assert more - few == 20 * 44


def test_a_full_queue_holds_the_issuing_warp():
    """With a queue of one the products do not overlap: the warp waits (math_pipe_throttle) for the latency of each."""
    body = cycles("f16", ("f16", "f16"), 128, 128, 10, overrides=("unit.tc.queue=1",))
    assert body > 10 * 150 > cycles("f16", ("f16", "f16"), 128, 128, 10)
