"""FlashAttention-1 and -2 on the emulator and through ptxas: shapes, masks, types, tiles, occupancy, cycles of the H200's kernel."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import programs
from emu.machine import load_machine
from emu.result import Result
from emu.solve import solve
from isa.expand import expand
from isa.ptx import to_ptx
from programs.problem import Define

Ptxas = Callable[..., tuple[bool, str]]
SWITCHES: dict[str, tuple[Define, ...]] = {
    "HEAD_DIM": (64, 128, 256), "CAUSAL": (0, 1), "DTYPE": ("f16", "bf16"), "FTZ": (0, 1),
    "OVERLAP": (0, 1),
}  # fmt: skip
TILES: tuple[dict[str, Define], ...] = (
    {"Q_TILE": 64}, {"KV_TILE": 16, "CAUSAL": 1}, {"KV_TILE": 48}, {"HEAD_DIM": 64, "KV_TILE": 64, "CAUSAL": 1},
    {"HEAD_DIM": 256, "KV_TILE": 32, "CAUSAL": 1}, {"Q_TILE": 64, "KV_TILE": 112, "CAUSAL": 1},
)  # fmt: skip


def run(
    defines: dict[str, Define] | None = None, name: str = "fa2", machine: str = "h200", sms: int = 2, **options: Any
) -> Result:
    problem = programs.find(name).from_options(defines, **options)
    result = solve(problem, load_machine(machine, (f"chip.sms={sms}",)), max_cycles=3_000_000)
    assert result.deadlock is None
    assert result.numerics is not None and result.numerics.passed, result.numerics
    return result


@pytest.mark.parametrize(
    "options",
    [
        {"seqlen": 1, "seqlen_k": 1, "heads": 1},
        {"seqlen": 130, "seqlen_k": 100, "heads": 2, "batch": 2},
        {"seqlen": 200, "seqlen_k": 427, "heads": 2, "head_dim": 64, "dtype": "bf16"},
        {"seqlen": 130, "seqlen_k": 200, "heads": 4, "heads_k": 1, "head_dim": 256},
        {"seqlen": 300, "heads": 2, "causal": True, "inputs": "outlier"},
        {"seqlen": 300, "seqlen_k": 100, "heads": 4, "heads_k": 2, "causal": True},  # tiles and rows without keys
        {"seqlen": 100, "seqlen_k": 300, "heads": 2, "head_dim": 256, "causal": True, "dtype": "bf16"},
        {"seqlen": 257, "seqlen_k": 353, "heads": 2, "heads_k": 1, "head_dim": 64, "causal": True, "batch": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("switches", [(0, 0), (1, 1)], ids=str)
def test_shapes(options: dict[str, Any], switches: tuple[int, int]) -> None:
    ftz, overlap = switches
    run({"FTZ": ftz, "OVERLAP": overlap}, **options)


@pytest.mark.parametrize("name", ["fa1", "fa2", "fa3"])
def test_large_scores(name: str) -> None:
    """N(0, 50) inputs: lse is 10,000 and cannot be nearer than the scores, which are float32."""
    problem = programs.find(name).from_options(seqlen=64, seqlen_k=100, heads=1)
    inputs = {n: (50 * a.astype(np.float32)).astype(a.dtype) for n, a in problem.make_inputs().items()}
    result = solve(problem, load_machine("h200", ("chip.sms=1",)), inputs)
    assert result.numerics is not None and result.numerics.failed == []
    assert abs(result.outputs["lse"]).max() > 5000


@pytest.mark.parametrize("defines", TILES, ids=str)
def test_tiles(defines: dict[str, Define]) -> None:
    given = {name: value for name, value in defines.items() if name.endswith("TILE")}
    run(
        given, seqlen=150, seqlen_k=220, heads=1, head_dim=int(defines.get("HEAD_DIM", 128)), causal="CAUSAL" in defines
    )


def test_a100() -> None:
    """The same program, half of Hopper's rate of mma.sync and above: more cycles, better use of its own peak."""
    here, there = (run(machine=m, sms=1, seqlen=256, seqlen_k=512, heads=1) for m in ("h200", "a100"))
    assert here.cycles < there.cycles
    assert here.tensor_utilization is not None and there.tensor_utilization is not None
    assert here.tensor_utilization < there.tensor_utilization


def test_two_ctas_share_an_sm() -> None:
    """Registers and shared memory allow two CTAs, which hide each other's softmax."""
    one, two = (run(sms=1, seqlen=128, seqlen_k=1024, heads=n, heads_k=1) for n in (1, 2))
    assert two.registers_per_thread <= 255 and two.occupancy == pytest.approx(8 / 64)
    assert two.cycles < 1.8 * one.cycles


def combinations() -> list[dict[str, Define]]:
    """Every combination of the switches at the default tiles, and the tiles above."""
    values = itertools.product(*SWITCHES.values())
    return [dict(zip(SWITCHES, v, strict=True)) for v in values] + list(TILES)


FA1 = [
    dict(zip(("HEAD_DIM", "DTYPE", "FTZ"), v, strict=True))
    for v in itertools.product((64, 128), ("f16", "bf16"), (0, 1))
]
EVERY = [("fa2", d) for d in combinations()] + [("fa1", d) for d in (*FA1, {"KV_TILE": 16})]


@pytest.mark.parametrize(("name", "defines"), EVERY, ids=str)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_ptxas(ptxas: Ptxas, name: str, defines: dict[str, Define], arch: str) -> None:
    path = programs.find(name).from_options().kernel_path
    accepted, messages = ptxas(to_ptx(expand(path.read_text(), str(path), defines, (path.parent,))), arch, "-v")
    assert accepted and "warning" not in messages.lower(), messages
    assert set(re.findall(r"(\d+) bytes spill", messages)) == {"0"}, messages


@pytest.mark.parametrize(
    ("options", "defines"),
    [
        ({"seqlen": 1, "seqlen_k": 1, "heads": 1}, {}),
        ({"seqlen": 130, "seqlen_k": 300, "heads": 2, "batch": 2}, {"FTZ": 1}),
        ({"seqlen": 200, "seqlen_k": 427, "heads": 2, "heads_k": 1, "head_dim": 64, "dtype": "bf16"}, {}),
        ({"seqlen": 70, "seqlen_k": 200, "heads": 1, "inputs": "outlier"}, {"KV_TILE": 48}),
    ],
    ids=str,
)
def test_fa1(options: dict[str, Any], defines: dict[str, Define]) -> None:
    run(defines, name="fa1", **options)


def test_fa1_has_no_causal_masks() -> None:
    with pytest.raises(ValueError, match="no causal"):
        programs.find("fa1").from_options(causal=True)


def test_each_generation_is_faster() -> None:
    """The same head, long enough for the differences to show: fa1 reads and writes O in every pass, fa2 and fa3 keep it."""
    one, two, three = (run(name=f"fa{n}", sms=1, seqlen=512, heads=1).cycles for n in (1, 2, 3))
    assert one > 1.3 * two > 1.3 * 1.3 * three
