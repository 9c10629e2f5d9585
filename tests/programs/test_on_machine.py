"""The programs on two SMs of the emulated H200 (fa4: B200): right results for ragged sizes, and no deadlock in any variant."""

import itertools

import pytest

import programs
from emu.machine import load_machine
from emu.solve import solve
from programs.problem import Define

SWITCHES = ("SPECIALIZE", "PINGPONG", "OVERLAP", "STAGES")


# (head_dim, causal, defines): each of the variants that the head dims have of their own
VARIANTS: tuple[tuple[int, bool, dict[str, Define]], ...] = (
    (64, False, {"PINGPONG": 0}),
    (64, False, {"OVERLAP": 0}),
    (64, False, {"SPECIALIZE": 0}),
    (64, False, {"SETMAXNREG": 0}),
    (64, False, {"P_SHARED": 0}),
    (64, True, {"OVERLAP": 0, "SPECIALIZE": 0, "PINGPONG": 0}),
    (64, True, {"SCHEDULE": 0, "STAGES": 3}),
    (128, False, {"P_SHARED": 1, "KV_TILE": 80, "SCHEDULE": 1}),
    (128, True, {"CONSUMERS": 3, "KV_TILE": 64, "STAGES": 1}),
    (128, True, {"SETMAXNREG": 0, "SCHEDULE": 0}),
    (256, False, {"OVERLAP": 0, "SPECIALIZE": 0}),
    (256, True, {"SPECIALIZE": 0}),
    (256, True, {"SETMAXNREG": 0, "STAGES": 1}),
    (256, True, {"PINGPONG": 0, "KV_TILE": 48}),
)


def run(name: str, defines: dict[str, Define], **options: object) -> None:
    result = solve(
        programs.find(name).from_options(defines, **options),
        load_machine("b200" if name == "fa4" else "h200", ("chip.sms=2",)),
        max_cycles=1_000_000,
    )
    assert result.deadlock is None
    assert result.numerics is not None and result.numerics.passed


@pytest.mark.parametrize("values", list(itertools.product((1, 0), (1, 0), (1, 0), (1, 2, 3))), ids=str)
def test_fa3_variants(values: tuple[int, ...]) -> None:
    """Two tiles a CTA, three key blocks, the last of 4 keys: every ring wraps, every token is handed over."""
    defines: dict[str, Define] = {**dict(zip(SWITCHES, values, strict=True)), "KV_TILE": 48}
    run("fa3", defines, seqlen=130, seqlen_k=100, heads=2)


@pytest.mark.parametrize(("head_dim", "causal", "defines"), VARIANTS, ids=str)
def test_fa3_variants_of_head_dims(head_dim: int, causal: bool, defines: dict[str, Define]) -> None:
    run("fa3", defines, seqlen=220, seqlen_k=250, heads=2, heads_k=1, head_dim=head_dim, causal=causal)


@pytest.mark.parametrize(
    "options",
    [
        {"seqlen": 1, "seqlen_k": 1, "heads": 1},
        {"seqlen": 200, "seqlen_k": 427, "heads": 2, "head_dim": 64, "dtype": "bf16"},
        {"seqlen": 130, "seqlen_k": 100, "heads": 2, "head_dim": 192},
        {"seqlen": 130, "seqlen_k": 200, "heads": 2, "head_dim": 256, "heads_k": 1},
        {"seqlen": 300, "seqlen_k": 427, "heads": 2, "head_dim": 64, "causal": True},
        {"seqlen": 300, "heads": 2, "causal": True, "inputs": "outlier"},
        {"seqlen": 300, "seqlen_k": 100, "heads": 4, "heads_k": 2, "causal": True},  # tiles and rows without keys
        {"seqlen": 100, "seqlen_k": 300, "heads": 4, "heads_k": 1, "head_dim": 256, "causal": True, "dtype": "bf16"},
        {"seqlen": 128, "seqlen_k": 176, "heads": 2, "dtype": "bf16"},
        {"seqlen": 257, "seqlen_k": 353, "heads": 2, "heads_k": 1, "batch": 2, "inputs": "outlier"},
    ],
    ids=str,
)
def test_fa3_shapes(options: dict[str, object]) -> None:
    run("fa3", {}, **options)


@pytest.mark.parametrize(
    ("defines", "options"),
    [
        ({}, {"seqlen": 1, "seqlen_k": 1, "heads": 1}),
        ({}, {"seqlen": 300, "seqlen_k": 427, "heads": 2, "inputs": "outlier"}),
        ({}, {"seqlen": 300, "seqlen_k": 427, "heads": 2, "causal": True, "dtype": "bf16"}),
        ({}, {"seqlen": 600, "seqlen_k": 200, "heads": 2, "heads_k": 1, "causal": True, "head_dim": 64}),  # rows without keys
        ({"TILES": 1}, {"seqlen": 300, "heads": 2, "causal": True, "inputs": "outlier"}),
        ({"CORRECTION": 0}, {"seqlen": 300, "seqlen_k": 400, "heads": 2, "inputs": "outlier", "dtype": "bf16"}),
        ({"CORRECTION": 0, "TILES": 1, "EMULATE": 0}, {"seqlen": 200, "seqlen_k": 300, "heads": 2, "head_dim": 64, "causal": True}),
        ({"EMULATE": 8, "EMULATE_FROM": 0, "RESCALE_LIMIT": 0}, {"seqlen": 300, "seqlen_k": 500, "heads": 2}),
        ({"EMULATE": 6, "EMULATE_FROM": 0}, {"seqlen": 257, "seqlen_k": 513, "heads": 2, "head_dim": 64, "inputs": "outlier"}),
        ({"SPLIT_P": 0, "KV_STAGES": 2, "RESCALE_LIMIT": 0}, {"seqlen": 600, "heads": 2, "heads_k": 1, "batch": 2, "causal": True}),
        ({"SCHEDULE": 1, "EMULATE": 0}, {"seqlen": 129, "seqlen_k": 640, "heads": 2, "batch": 2, "dtype": "bf16"}),
    ],
    ids=str,
)  # fmt: skip
def test_fa4(defines: dict[str, Define], options: dict[str, object]) -> None:
    """Any lengths and masks, two tiles and more a CTA, every switch."""
    run("fa4", defines, **options)


@pytest.mark.parametrize(
    ("name", "defines", "options"),
    [
        ("gemm", {}, {"m": 300, "n": 520, "k": 200, "dtype": "bf16"}),
        ("gemm", {"TILE_N": 64, "STAGES": 2}, {"m": 1, "n": 1, "k": 1}),
        ("gemm", {}, {"m": 129, "n": 259, "k": 101, "dtype": "tf32"}),
        ("gemm", {"TILE_N": 192, "STAGES": 2}, {"m": 129, "n": 261, "k": 33, "dtype": "tf32"}),
        ("gemm", {"TILE_N": 64, "STAGES": 5}, {"m": 140, "n": 64 * 70, "k": 328}),
        ("softmax", {}, {"rows": 5, "cols": 4}),
        ("softmax", {"VECTORS": 2}, {"rows": 9, "cols": 1412}),
        ("vector_add", {}, {"n": 1000}),
    ],
    ids=str,
)
def test_others(name: str, defines: dict[str, Define], options: dict[str, object]) -> None:
    run(name, defines, **options)
