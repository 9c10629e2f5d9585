"""`warpsmith compare`: bounds against the published budgets, reasons, figures, runs, and the command."""

from __future__ import annotations

import json
from typing import Any

import pytest

import programs
from emu import compared
from emu.cli import execute
from emu.machine import load_machine
from programs.attention import Attention

SMALL = {"seqlen": 200, "seqlen_k": 160, "heads": 2, "batch": 1, "head_dim": 64}


def problem(name: str, **options: Any) -> Attention:
    found = programs.find(name).from_options(**options)
    assert isinstance(found, Attention)
    return found


BUDGETS = [  # for a block (FlashAttention-3 and -4 papers, derived): tensor, exp, shared-memory operands
    ("fa3", "h200", {"head_dim": 128}, ((128, 176), 2816, 1408, 1664)),
    ("fa3", "h200", {"head_dim": 128, "causal": True}, ((128, 128), 2048, 1024, 1280)),
    ("fa3", "h200", {"head_dim": 256}, ((128, 80), 2560, 640, 1792)),
    ("fa2", "h200", {"head_dim": 128}, ((128, 64), 1536, 512, 1280)),
    ("fa2", "a100", {"head_dim": 128}, ((128, 64), 2048, 512, 1280)),
    ("fa4", "b200", {"head_dim": 128, "seqlen": 4096}, ((256, 128), 2048, 2048, 1536)),
]


@pytest.mark.parametrize(("name", "machine", "options", "expected"), [b for b in BUDGETS if b[0] in programs.names()])
def test_bounds(name: str, machine: str, options: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """The cycles that each unit alone needs for a block, exactly; issue is what was counted."""
    found = problem(name, **options)
    bounds = compared.bounds(found, load_machine(machine), 4000)
    assert ((found.block.rows, found.block.keys), bounds.tensor, bounds.exp, bounds.shared) == expected
    assert bounds.issue == 1000


def test_blocks() -> None:
    """Rows and keys are rounded up to blocks; under a mask only what is seen counts."""
    assert compared.blocks_of(problem("fa2", seqlen=200, seqlen_k=100, heads=3, batch=2)) == 2 * 2 * 3 * 2
    causal = problem("fa2", seqlen=256, heads=1, causal=True)
    assert compared.blocks_of(causal) == pytest.approx(256 * 257 / 2 / (128 * 64))


def test_every_figure_is_well_formed() -> None:
    for figure in compared.published():
        assert {"kernel", "beside", "what", "source"} <= set(figure) and ("text" in figure) != ("by_seqlen" in figure)
        assert figure["kernel"] in compared.GENERATIONS
        for name in figure["beside"]:
            load_machine(name)
        assert all(int(n) >= 512 and value > 0 for n, value in figure.get("by_seqlen", {}).items())


def test_figures_belong_to_their_shape() -> None:
    """Cycles of 16,384 tokens are beside a problem of as many only; the share of the peak is the problem's own."""
    full = problem("fa3", seqlen=4096, heads=16, batch=4)
    texts = [figure.text for figure in compared.figures(full, "h200")]
    assert "1,282,871 cycles, 79.3 % (library, measured)" in texts and any("638 TFLOP/s" in text for text in texts)
    fewer = [figure.text for figure in compared.figures(problem("fa3", seqlen=4096, heads=16, batch=1), "h200")]
    assert not any("cycles" in text for text in fewer)
    assert compared.figures(full, "a100") == []


def test_a_run() -> None:
    """What a row says is what the run did."""
    machine = load_machine("h200", ("chip.sms=2",))
    row = compared.compare("fa2", machine, SMALL, clock_mhz=1000)
    assert row.reason == "" and row.cycles is not None and row.tflops is not None and row.bounds is not None
    assert row.tflops == pytest.approx(problem("fa2", **SMALL).flops / row.cycles / 1e3)
    assert row.cycles_per_block is not None and row.cycles_per_block > max(row.bounds.tensor, row.bounds.issue)
    assert row.waits and all(text.endswith(" %") for text in row.waits.values())


def test_why_not() -> None:
    reasons = {
        ("fa3", "b200"): "wgmma exists on sm_90a only",
        ("fa3", "a100"): "wgmma exists on sm_90a only",
        ("fa4", "h200"): "tcgen05 exists on sm_100 only",
    }
    for (name, machine), reason in reasons.items():
        if name in programs.names():
            assert compared.compare(name, load_machine(machine), SMALL).reason == reason


def test_losses() -> None:
    """Whatever is taken away, the kernel gets no slower; each gain is against the machine as it is."""
    found = compared.losses("fa2", "h200", ("chip.sms=2",), SMALL)
    assert [r.removed for r in found] == ["nothing", *compared.REMOVALS, "all of them"]
    assert all(r.gain >= 0.99 for r in found) and found[-1].gain == max(r.gain for r in found)
    assert all(r.gain == pytest.approx(found[0].cycles / r.cycles) for r in found)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--seqlen", "128", "--heads", "1", "--batch", "1", "--head-dim", "64"]
    assert (
        execute(["compare", "fa1", "fa3", "--machine", "h200", "--machine", "b200", *small, "--causal", "--json", "-"])
        == 0
    )
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["kernel"], row["machine"]) for row in rows] == [
        (k, m) for k in ("fa1", "fa3") for m in ("h200", "b200")
    ]
    assert "no causal masks" in rows[0]["reason"] and rows[2]["reason"] == "" and "sm_90a" in rows[3]["reason"]
    assert execute(["compare", "fa3", "--machine", "h200", *small]) == 0
    assert "cycles a block" in capsys.readouterr().out
    assert execute(["compare", "gemm"]) == 2
    assert "compare knows attention programs" in capsys.readouterr().err
