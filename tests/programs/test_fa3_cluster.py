"""FlashAttention-3 with CLUSTER=2: the numbers of the plain program in every bit, half of the traffic of K and V, as on an H200."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emu.api
import programs
from emu.chip import Chip
from emu.machine import load_machine
from emu.solve import solve

RECORDED = json.loads((Path(__file__).parents[1] / "golden/h200/fa3-cluster.json").read_text())


def run(cluster: int, sms: int = 8, **options: Any) -> tuple[Any, Chip]:
    """A result, and the chip that it came from."""
    chips: list[Chip] = []

    class Kept(Chip):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            chips.append(self)

    problem = programs.find("fa3").from_options(defines={"CLUSTER": cluster}, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emu.api, "Chip", Kept)
        machine = load_machine("h200", (f"chip.sms={sms}", "chip.gpcs=2")) if sms < 132 else load_machine("h200")
        result = solve(problem, machine, warm=True)
    assert result.exit_code() == 0 and result.numerics is not None and result.numerics.passed, result.findings
    return result, chips[0]


@pytest.mark.parametrize(
    "options",
    [
        {"seqlen": 768, "heads": 2, "head_dim": 64},
        {"seqlen": 512, "heads": 3, "head_dim": 128, "heads_k": 1},
        {"seqlen": 500, "seqlen_k": 333, "heads": 2, "head_dim": 128, "dtype": "bf16"},
        {"seqlen": 256, "seqlen_k": 400, "heads": 3, "head_dim": 256, "batch": 2},
    ],
    ids=lambda options: f"d{options['head_dim']}",
)
def test_outputs_and_traffic(options: dict[str, Any]) -> None:
    (plain, one), (shared, two) = run(1, **options), run(2, **options)
    for name in ("o", "lse"):
        assert np.array_equal(plain.outputs[name].view(np.uint8), shared.outputs[name].view(np.uint8))
    k, v = (list(plain.outputs).index(name) for name in "kv")
    segments = [row for row in range(len(one.arrays)) if one.arrays["asked"][row]]
    asked = sorted(
        (float(one.arrays["asked"][row] / max(two.arrays["asked"][row], 1)) for row in segments), reverse=True
    )
    assert asked[0] == asked[1] == 2 and k != v  # K and V: each CTA loads half of them
    moved = [sum(float(chip.arrays["moved"][row]) for row in segments) for chip in (one, two)]
    assert moved[1] <= moved[0]  # pairs of CTAs in step join their requests without a cluster too


@pytest.mark.parametrize(
    "options, defines, words",
    [
        ({"seqlen": 640}, {}, "neighbouring query tiles"),
        ({"seqlen": 512, "causal": True}, {}, "CLUSTER needs"),
        ({"seqlen": 512}, {"SPECIALIZE": 0}, "CLUSTER needs"),
    ],
)
def test_what_it_does_not_do(options: dict[str, Any], defines: dict[str, Any], words: str) -> None:
    from isa.errors import AssemblyError

    with pytest.raises((ValueError, AssemblyError), match=words):
        problem = programs.find("fa3").from_options(defines={"CLUSTER": 2} | defines, **options)
        solve(problem, load_machine("h200", ("chip.sms=8",)))


def test_cycles_are_near_the_card_s() -> None:
    """One of the recorded launches: both programs, and their ratio."""
    entry = next(e for e in RECORDED["launches"] if e["options"] == {"seqlen": 512, "heads": 2, "head_dim": 128})
    cycles = [run(cluster, 132, **entry["options"])[0].cycles for cluster in (1, 2)]
    for here, card in zip(cycles, (entry["cycles"], entry["cycles_cluster"]), strict=True):
        assert here == pytest.approx(card, rel=0.06)
