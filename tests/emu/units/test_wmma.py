"""wmma: every shape, layout, type and space against NumPy; fragments of loads, products and stores fit each other."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

SHAPES = {"m16n16k16": (16, 16), "m32n8k16": (32, 8), "m8n32k16": (8, 32)}
REGISTERS = {
    "f16": dict.fromkeys(SHAPES, (8, 8)),
    "bf16": {"m16n16k16": (4, 4), "m32n8k16": (8, 2), "m8n32k16": (2, 8)},
}
REGISTERS |= {kind: {"m16n16k16": (2, 2), "m32n8k16": (4, 1), "m8n32k16": (1, 4)} for kind in ("s8", "u8")}
DTYPE = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "s8": np.int8,
    "u8": np.uint8,
    "f32": np.float32,
    "s32": np.int32,
}
RESULTS = {"f16": ("f32", "f16"), "bf16": ("f32",), "s8": ("s32",), "u8": ("s32",)}
CASES = [
    (shape, kind, out, space)
    for shape, kind in itertools.product(SHAPES, RESULTS)
    for out in RESULTS[kind]
    for space in ("global", "shared", "")
]
PAD = 8  # elements that each line of memory has beyond the matrix


def vector(letter: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{first + k}" for k in range(count)) + "}"


def lines(matrix: np.ndarray, layout: str, pad: int) -> np.ndarray:
    """The matrix as memory has it: rows, or columns, with room behind each, and lines behind it up to whole 128 bytes."""
    whole = np.pad(matrix if layout == "row" else matrix.T, ((0, 0), (0, pad)))
    while whole.nbytes % 128:
        whole = np.pad(whole, ((0, 1), (0, 0)))
    return np.ascontiguousarray(whole)


@pytest.mark.parametrize(("shape", "kind", "out", "space"), CASES, ids=str)
def test_product(ptx: Any, shape: str, kind: str, out: str, space: str) -> None:
    rows, columns = SHAPES[shape]
    rng = np.random.default_rng(2)
    a, b, c = (
        (rng.integers(0, 9, size) - (0 if kind == "u8" else 4)) for size in ((rows, 16), (16, columns), (rows, columns))
    )
    letter, size = ("f", 8) if out == "f32" else ("r", 8 if out == "s32" else 4)
    of_a, of_b = REGISTERS[kind][shape]
    for la, lb, lc in itertools.product(("row", "col"), repeat=3):
        pad = 0 if la == lb == lc else PAD
        memory = [
            lines(x.astype(DTYPE[t]), layout, pad) for x, t, layout in ((a, kind, la), (b, kind, lb), (c, out, lc))
        ]
        strides = [f", {m.shape[1]}" if pad else "" for m in memory]
        result = np.zeros_like(memory[2])
        dot = f".{space}" if space else ""
        copies, bases = "", ["%a", "%b", "%c", "%d"]
        if space == "shared":
            bases = [f"%r{80 + k}" for k in range(4)]
            copies = " ".join(f"mov.u32 {base}, s{k};" for k, base in enumerate(bases))
            for k, (name, x) in enumerate(zip("abc", memory, strict=True)):
                copies += f" .for i in (0, {x.nbytes // 128}) {{ add.u64 %d2, %{name}, %d1; ld.global.u32 %r1, [%d2 + 128*i]; mov.u32 %r3, s{k}; add.u32 %r3, %r3, %r0; st.shared.u32 [%r3 + 128*i], %r1; }}"
        body = f"""mov.u32 %r0, %laneid; shl.b32 %r0, %r0, 2; cvt.u64.u32 %d1, %r0; {copies} bar.sync 0;
            wmma.load.a.sync.aligned.{la}.{shape}{dot}.{kind} {vector("r", 10, of_a)}, [{bases[0]}]{strides[0]};
            wmma.load.b.sync.aligned.{lb}.{shape}{dot}.{kind} {vector("r", 20, of_b)}, [{bases[1]}]{strides[1]};
            wmma.load.c.sync.aligned.{lc}.{shape}{dot}.{out} {vector(letter, 30, size)}, [{bases[2]}]{strides[2]};
            wmma.mma.sync.aligned.{la}.{lb}.{shape}.{f"{out}.{out}" if kind == "f16" else f"{out}.{kind}.{kind}.{out}"}
                {vector(letter, 30, size)}, {vector("r", 10, of_a)}, {vector("r", 20, of_b)}, {vector(letter, 30, size)};
            wmma.store.d.sync.aligned.{lc}.{shape}{dot}.{out} [{bases[3]}], {vector(letter, 30, size)}{strides[2]};"""
        if space == "shared":
            body += f" bar.sync 0; .for i in (0, {result.nbytes // 128}) {{ mov.u32 %r3, s3; add.u32 %r3, %r3, %r0; ld.shared.u32 %r1, [%r3 + 128*i]; add.u64 %d2, %d, %d1; st.global.u32 [%d2 + 128*i], %r1; }}"
        shared = " ".join(f".shared .align 128 .b8 s{k}[4096];" for k in range(4)) if space == "shared" else ""
        run = ptx.run(body.replace("\n", " "), "u64 a, u64 b, u64 c, u64 d", [*memory, result], shared=shared)
        assert not run.findings
        expected = lines((a @ b + c).astype(DTYPE[out]), lc, pad)
        assert np.array_equal(result, expected), (la, lb, lc)
