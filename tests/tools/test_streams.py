"""mma.sync beside and between other instructions: rows of the calibration suite that the model holds to 10 %."""

from __future__ import annotations

from dataclasses import replace

import pytest

import emu
from emu.link import link
from emu.machine import MachineError, load_machine
from tools.calibrate import streams
from tools.calibrate.bench import Bench, measure
from tools.calibrate.run import Emulator
from tools.calibrate.suite import measured

HELD = (
    "stream=hmma;warps=8",
    "other=FFMA;count=2;warps=8",
    "other=FMUL;count=3;warps=8",
    "other=FMNMX;count=1;warps=8",
    "stream=hmma;beside=weights",
    "stream=hmma;beside=row max",
)
BENCHES = {bench.rows[0].params: bench for bench in streams.benches()}


@pytest.mark.parametrize("bench", [BENCHES[params] for params in HELD], ids=HELD)
def test_products_take_as_long_as_on_the_card(bench: Bench) -> None:
    row, value = measure(bench, Emulator())[0]
    assert value == pytest.approx(measured()[row.name, row.params], rel=0.10)


def test_an_instruction_of_any_warp_costs_a_product_the_same() -> None:
    """One FFMA a product, of its own warp or of another: 7 to 7.2 cycles on an H200, twice that where two warps make products."""
    (_, alone), *_ = measure(BENCHES["stream=hmma;warps=8"], Emulator())
    (_, between), *_ = measure(BENCHES["other=FFMA;count=1;warps=8"], Emulator())
    assert between - alone / streams.BODY == pytest.approx(2, rel=0.1)


def test_a_product_that_takes_longer_than_its_operands_leaves_the_ports_to_others() -> None:
    """Eight cycles on an A100, six of them for operands: two instructions between products are free, the third is not."""
    took = {}
    for count in (1, 2, 3):
        bench = BENCHES[f"other=FMUL;count={count};warps=4"]
        bench = replace(bench, text=bench.text.replace("sm_90a", "sm_80"))
        took[count] = measure(bench, Emulator("a100"))[0][1]
    assert took[1] == pytest.approx(took[2], abs=0.2) and took[3] > took[2] + 0.5


def test_a_cost_that_does_not_fit_an_instruction_is_an_error() -> None:
    machine = load_machine("h200", ["unit.tensor.mma_yields_cy=300"])
    with pytest.raises(MachineError, match="mma_yields_cy are at most 255"):
        link(emu.load(text=BENCHES["stream=hmma;warps=8"].text).program, machine)
