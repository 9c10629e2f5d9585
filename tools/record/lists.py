"""What is recorded on a card: (program, options, defines), by list; and the switches whose combinations are swept."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

Case = tuple[str, dict[str, Any], dict[str, Any]]

_LONG = {"seqlen": 4096, "heads": 16}

# Shapes of the accuracy tables.
TABLES: tuple[Case, ...] = (
    ("vector_add", {}, {}),
    ("softmax", {"rows": 1024, "cols": 4096}, {}),
    ("softmax", {"rows": 528, "cols": 1024}, {}),
    ("gemm", {}, {}),
    ("fa3", {"seqlen": 128, "seqlen_k": 176, "heads": 1}, {}),
    ("fa3", {"seqlen": 1024, "heads": 1}, {}),
    ("fa3", {"seqlen": 1000, "seqlen_k": 777, "heads": 2}, {}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {}),
    ("fa3", _LONG, {}),
    ("fa3", {"seqlen": 128, "seqlen_k": 4096, "heads": 132, "heads_k": 1}, {}),
    ("fa3", {"seqlen": 128, "seqlen_k": 1024, "heads": 132, "heads_k": 1, "head_dim": 64}, {}),
    ("fa3", {"seqlen": 1, "heads": 3, "batch": 2}, {}),
    ("fa3", {"seqlen": 17, "seqlen_k": 200, "heads": 2}, {}),
    ("fa3", {"seqlen": 200, "heads": 2, "inputs": "outlier"}, {}),
    ("fa3", {"seqlen": 513, "heads": 2, "dtype": "bf16", "inputs": "outlier"}, {}),
    ("fa3", {"seqlen": 1024, "heads": 16, "dtype": "bf16"}, {}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"PINGPONG": 0}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"OVERLAP": 0}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"PINGPONG": 0, "OVERLAP": 0}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"SPECIALIZE": 0}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"SETMAXNREG": 0}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"KV_TILE": 128}),
    ("fa3", _LONG, {"PINGPONG": 0}),
    ("fa3", _LONG, {"OVERLAP": 0}),
    ("fa3", _LONG, {"PINGPONG": 0, "OVERLAP": 0}),
    ("fa3", _LONG, {"SPECIALIZE": 0}),
    ("fa3", _LONG, {"SETMAXNREG": 0}),
    ("fa3", _LONG, {"KV_TILE": 128}),
)

# Rates: every head dim and length beside h200-attention.csv; the choices that the tiles and schedules were made by.
SPEED: tuple[Case, ...] = (
    *(
        ("fa3", {"seqlen": seqlen, "heads": heads, "batch": 16384 // seqlen, "head_dim": dim, "causal": causal}, {})
        for dim, heads in ((128, 16), (64, 32), (256, 8))
        for causal in (False, True)
        for seqlen in (1024, 4096, 16384)
    ),
    ("fa3", {"seqlen": 4096, "heads": 16, "batch": 4, "dtype": "bf16"}, {}),
    *(("fa3", _LONG, {"KV_TILE": keys}) for keys in (112, 144, 160, 192)),
    *(("fa3", _LONG | {"batch": 4, "causal": True}, d) for d in ({"SCHEDULE": 0}, {"KV_TILE": 176}, {"PINGPONG": 0})),
    *(
        ("fa3", {"seqlen": 4096, "heads": 32, "head_dim": 64}, d)
        for d in (
            {},
            {"PINGPONG": 0},
            {"OVERLAP": 0},
            {"SPECIALIZE": 0},
            {"SETMAXNREG": 0},
            {"CONSUMERS": 2, "KV_TILE": 128},
            {"CONSUMERS": 2, "KV_TILE": 176},
            {"P_SHARED": 1},
            {"P_SHARED": 1, "PINGPONG": 0},
            {"P_SHARED": 1, "OVERLAP": 0},
        )
    ),
    *(
        ("fa3", {"seqlen": 4096, "heads": 8, "head_dim": 256}, d)
        for d in ({}, {"PINGPONG": 0}, {"OVERLAP": 0}, {"KV_TILE": 64}, {"SPECIALIZE": 0})
    ),
    *(("gemm", {"m": 4096, "n": 4096, "k": 4096, "dtype": dtype}, {}) for dtype in ("fp16", "bf16", "tf32")),
    ("gemm", {"m": 4096, "n": 4096, "k": 4096}, {"TILE_N": 128, "STAGES": 4}),
    ("gemm", {"m": 8192, "n": 8192, "k": 8192}, {}),
)

# For Nsight Compute (`run_kernel --ncu`): the counters that h200-attention-ncu.csv has of the library's kernel.
COUNTERS: tuple[Case, ...] = (
    ("fa3", {"seqlen": 128, "seqlen_k": 4096, "heads": 132, "heads_k": 1}, {}),
    ("fa3", {"seqlen": 128, "seqlen_k": 1024, "heads": 132, "heads_k": 1, "head_dim": 64}, {}),
    ("fa3", {"seqlen": 4096, "heads": 16, "batch": 4}, {}),
    ("gemm", {"m": 4096, "n": 4096, "k": 4096}, {}),
)

# The synchronous generations beside h200-attention-onewave.csv (one and two CTAs an SM) and h200-attention-ncu.csv.
_WAVES: tuple[dict[str, Any], ...] = (
    *(
        {"seqlen": 128, "seqlen_k": keys, "heads": heads, "heads_k": 1, "head_dim": dim}
        for keys, dim in ((4096, 128), (1024, 64))
        for heads in (132, 264)
    ),
    {"seqlen": 4096, "heads": 16, "batch": 4},
)
SYNCHRONOUS: tuple[Case, ...] = (
    *(("fa2", options, defines) for options in _WAVES for defines in ({}, {"FTZ": 1, "OVERLAP": 1})),
    *(("fa2", _WAVES[-1], defines) for defines in ({"FTZ": 1}, {"OVERLAP": 1})),
    ("fa2", {"seqlen": 4096, "heads": 16, "batch": 4, "causal": True}, {}),
    ("fa2", {"seqlen": 4096, "heads": 8, "batch": 4, "head_dim": 256}, {}),
    ("fa2", {"seqlen": 4096, "heads": 32, "batch": 4, "head_dim": 64}, {}),
    ("fa2", {"seqlen": 200, "seqlen_k": 427, "heads": 4, "heads_k": 2}, {}),
    ("fa2", {"seqlen": 300, "seqlen_k": 100, "heads": 4, "heads_k": 2, "causal": True, "dtype": "bf16"}, {}),
    ("fa1", {"seqlen": 200, "seqlen_k": 427, "heads": 4, "heads_k": 2}, {}),
    ("fa1", {"seqlen": 1024, "heads": 132, "heads_k": 1}, {}),
    ("fa1", {"seqlen": 1024, "heads": 264, "heads_k": 1, "head_dim": 64}, {}),
    ("fa1", {"seqlen": 4096, "heads": 16, "batch": 4}, {}),
    ("fa1", {"seqlen": 4096, "heads": 32, "batch": 4, "head_dim": 64}, {}),
    ("fa1", {"seqlen": 1024, "heads": 16, "batch": 16}, {}),
    *(("fa2", {"seqlen": 1024, "heads": 2048 // d, "batch": 16, "head_dim": d}, {}) for d in (64, 128, 256)),
)

# Outputs that the emulator must repeat in every bit (`--bits`, `tools.record.compare`): types, head dims, masks, ragged
# lengths, schedules; small, because the emulator runs every CTA.
_ATTENTION: tuple[dict[str, Any], ...] = (
    {"seqlen": 128, "seqlen_k": 176, "heads": 1},
    {"seqlen": 300, "seqlen_k": 427, "heads": 2},
    {"seqlen": 17, "seqlen_k": 1300, "heads": 2, "heads_k": 1},
    {"seqlen": 200, "heads": 2, "inputs": "outlier"},
)
BITS: tuple[Case, ...] = (
    *(
        ("fa3", shape | {"head_dim": dim, "dtype": dtype}, {})
        for dim, dtype, shape in itertools.product((64, 128, 256), ("fp16", "bf16"), _ATTENTION)
    ),
    *(("fa3", _ATTENTION[1] | {"head_dim": dim, "causal": True}, {}) for dim in (64, 128, 256)),
    *(
        ("fa3", _ATTENTION[1], d)
        for d in ({"PINGPONG": 0}, {"OVERLAP": 0}, {"SPECIALIZE": 0}, {"SETMAXNREG": 0}, {"KV_TILE": 128})
    ),
    ("fa3", {"seqlen": 1024, "heads": 1}, {}),
    *(
        ("fa2", shape | {"head_dim": dim, "dtype": dtype}, {})
        for dim, dtype, shape in itertools.product((64, 128), ("fp16", "bf16"), _ATTENTION[1:])
    ),
    *(("fa2", _ATTENTION[1], d) for d in ({"FTZ": 1}, {"OVERLAP": 1}, {"FTZ": 1, "OVERLAP": 1})),
    ("fa2", _ATTENTION[1] | {"causal": True}, {}),
    ("fa1", _ATTENTION[1], {}),
    *(
        ("gemm", {"m": m, "n": n, "k": k, "dtype": dtype}, {})
        for dtype, (m, n, k) in itertools.product(("fp16", "bf16", "tf32"), ((129, 259, 101), (300, 520, 1024)))
    ),
    ("softmax", {"rows": 66, "cols": 1024}, {}),
    ("softmax", {"rows": 33, "cols": 4096}, {}),
    ("vector_add", {}, {}),
)

LISTS = {"tables": TABLES, "speed": SPEED, "counters": COUNTERS, "synchronous": SYNCHRONOUS}

# Values that every combination is made of, where a program's own checks allow them.
SWITCHES: dict[str, dict[str, tuple[Any, ...]]] = {
    "fa3": {
        "HEAD_DIM": (64, 128, 256),
        "CAUSAL": (0, 1),
        "DTYPE": ("f16", "bf16"),
        "SPECIALIZE": (0, 1),
        "SETMAXNREG": (0, 1),
        "PINGPONG": (0, 1),
        "OVERLAP": (0, 1),
        "SCHEDULE": (0, 1),
        "STAGES": (1, 2),
    },
    "fa2": {
        "HEAD_DIM": (64, 128, 256),
        "CAUSAL": (0, 1),
        "DTYPE": ("f16", "bf16"),
        "FTZ": (0, 1),
        "OVERLAP": (0, 1),
        "Q_TILE": (0, 64),
        "KV_TILE": (0, 32),
    },
    "fa1": {"HEAD_DIM": (64, 128), "DTYPE": ("f16", "bf16"), "FTZ": (0, 1), "KV_TILE": (0, 48)},
    "gemm": {"DTYPE": ("f16", "bf16", "tf32"), "TILE_N": (64, 128, 192, 256), "STAGES": (2, 3, 4)},
}
_OPTIONS = {"HEAD_DIM": "head_dim", "CAUSAL": "causal", "DTYPE": "dtype"}  # defines that follow from an option
_DTYPES = {"f16": "fp16", "bf16": "bf16", "tf32": "tf32"}
# Several tiles a CTA on few SMs, several key blocks, the last ragged; heads that share K and V.
_SWEEP_SHAPES: dict[str, dict[str, Any]] = {
    "fa3": {"seqlen": 300, "seqlen_k": 427, "heads": 4, "heads_k": 2},
    "fa2": {"seqlen": 300, "seqlen_k": 427, "heads": 4, "heads_k": 2},
    "fa1": {"seqlen": 300, "seqlen_k": 427, "heads": 4, "heads_k": 2},
    "gemm": {"m": 300, "n": 520, "k": 333},
}


def combinations(program: str) -> Iterator[Case]:
    """Every combination of a program's switches, on a small ragged shape; some break the program's own checks."""
    switches = SWITCHES[program]
    for values in itertools.product(*switches.values()):
        defines = dict(zip(switches, values, strict=True))
        options = dict(_SWEEP_SHAPES[program])
        for name, option in _OPTIONS.items():
            if name in defines:
                value = defines.pop(name)
                options[option] = _DTYPES.get(value, bool(value) if option == "causal" else value)
        yield program, options, defines


def numerics() -> Iterator[Case]:
    """Head dims x masks x grouped heads x types, ordinary and outlier inputs, rows without keys; odd gemm sizes."""
    shapes: tuple[dict[str, Any], ...] = (
        {"seqlen": 300, "seqlen_k": 427, "heads": 4, "batch": 2},
        {"seqlen": 427, "seqlen_k": 300, "heads": 6, "heads_k": 2, "inputs": "outlier"},
        {"seqlen": 1, "seqlen_k": 1, "heads": 3, "heads_k": 1, "batch": 2},
        {"seqlen": 700, "seqlen_k": 100, "heads": 4, "heads_k": 1},
        {"seqlen": 17, "seqlen_k": 1300, "heads": 4, "heads_k": 1},
    )
    for dim, causal, dtype, shape in itertools.product((64, 128, 192, 256), (False, True), ("fp16", "bf16"), shapes):
        yield "fa3", shape | {"head_dim": dim, "causal": causal, "dtype": dtype}, {}
    for dim, causal, dtype, shape in itertools.product((64, 128, 256), (False, True), ("fp16", "bf16"), shapes):
        yield "fa2", shape | {"head_dim": dim, "causal": causal, "dtype": dtype}, {}
    for dim, dtype, shape in itertools.product((64, 128), ("fp16", "bf16"), shapes):
        yield "fa1", shape | {"head_dim": dim, "dtype": dtype}, {}
    for dim, causal in itertools.product((64, 128, 256), (False, True)):
        for groups, shared in itertools.product((2, 3), (0, 1)):
            yield "fa3", shapes[0] | {"head_dim": dim, "causal": causal}, {"CONSUMERS": groups, "P_SHARED": shared}
    for dtype, (m, n, k) in itertools.product(("fp16", "bf16", "tf32"), ((1, 1, 1), (129, 259, 101), (300, 520, 4096))):
        yield "gemm", {"m": m, "n": n, "k": k, "dtype": dtype}, {}
