"""The programs on two SMs of the emulated H200: right results for ragged sizes, and no deadlock in any variant."""

import itertools

import pytest

import programs
from emu.machine import load_machine
from emu.solve import solve
from programs.problem import Define

SWITCHES = ("SPECIALIZE", "PINGPONG", "OVERLAP", "STAGES")


def run(name: str, defines: dict[str, Define], **options: object) -> None:
    result = solve(programs.find(name).from_options(defines, **options), load_machine("h200", ("chip.sms=2",)), max_cycles=1_000_000)
    assert result.deadlock is None
    assert result.numerics is not None and result.numerics.passed


@pytest.mark.parametrize("values", list(itertools.product((1, 0), (1, 0), (1, 0), (1, 2, 3))), ids=str)
def test_fa3_variants(values: tuple[int, ...]) -> None:
    """Two tiles a CTA, three key blocks, the last of 4 keys: every ring wraps, every token is handed over."""
    defines: dict[str, Define] = {**dict(zip(SWITCHES, values, strict=True)), "KV_TILE": 48}
    run("fa3", defines, seqlen=130, seqlen_k=100, heads=2)


@pytest.mark.parametrize(
    "options",
    [
        {"seqlen": 1, "seqlen_k": 1, "heads": 1},
        {"seqlen": 128, "seqlen_k": 176, "heads": 2, "dtype": "bf16"},
        {"seqlen": 257, "seqlen_k": 353, "heads": 2, "heads_k": 1, "batch": 2, "inputs": "outlier"},
    ],
    ids=str,
)
def test_fa3_shapes(options: dict[str, object]) -> None:
    run("fa3", {}, **options)


@pytest.mark.parametrize(
    ("name", "defines", "options"),
    [
        ("gemm", {}, {"m": 300, "n": 520, "k": 200, "dtype": "bf16"}),
        ("gemm", {"TILE_N": 64, "STAGES": 2}, {"m": 1, "n": 8, "k": 8}),
        ("gemm", {"TILE_N": 64, "STAGES": 5}, {"m": 140, "n": 64 * 70, "k": 328}),
        ("softmax", {}, {"rows": 5, "cols": 4}),
        ("softmax", {"VECTORS": 2}, {"rows": 9, "cols": 1412}),
        ("vector_add", {}, {"n": 1000}),
    ],
    ids=str,
)
def test_others(name: str, defines: dict[str, Define], options: dict[str, object]) -> None:
    run(name, defines, **options)
