"""mma.sync against the layouts of the PTX manual, float32 arithmetic, and recorded H200 results of integers."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.isa.ops import recorded

LANE = np.arange(32)
G, Q = LANE // 4, LANE % 4
TYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
RESULTS = {"f32": np.float32, "f16": np.float16, "s32": np.int32}
FORMS = [
    ("f16", "f16", 16, "f32"), ("f16", "f16", 8, "f32"), ("bf16", "bf16", 16, "f32"), ("bf16", "bf16", 8, "f32"),
    ("tf32", "tf32", 8, "f32"), ("tf32", "tf32", 4, "f32"), ("f16", "f16", 16, "f16"), ("f16", "f16", 8, "f16"),
    *((a, b, k, "s32") for a in ("s8", "u8") for b in ("s8", "u8") for k in (32, 16)),
]  # fmt: skip


def a_element(kind: str, lane: int, i: int) -> tuple[int, int]:
    """(row, k) of element i of A's fragment (PTX ISA 9.7.14.5.7 to .10)."""
    per = 4 // TYPES[kind].itemsize
    register, e = divmod(i, per)
    return lane // 4 + 8 * (register & 1), per * (lane % 4) + e + 4 * per * (register >> 1)


def b_element(kind: str, lane: int, i: int) -> tuple[int, int]:
    """(k, column) of element i of B's fragment."""
    per = 4 // TYPES[kind].itemsize
    register, e = divmod(i, per)
    return per * (lane % 4) + e + 4 * per * register, lane // 4


def c_element(lane: int, i: int) -> tuple[int, int]:
    """(row, column) of element i of C and D."""
    return lane // 4 + 8 * (i >> 1), 2 * (lane % 4) + (i & 1)


def test_worked_values() -> None:
    """Lane 13's elements, as in the manual's figures."""
    assert a_element("f16", 13, 5) == (3, 11) and b_element("f16", 13, 3) == (11, 3) and c_element(13, 2) == (11, 2)
    assert a_element("s8", 13, 9) == (3, 21) and b_element("s8", 13, 6) == (22, 3)


def pack(matrix: np.ndarray, element: Any, count: int) -> np.ndarray:
    """Fragment registers [register][lane] of a matrix, `count` elements a lane."""
    values = np.array([[matrix[element(lane, i)] for i in range(count)] for lane in range(32)], matrix.dtype)
    return values.view(np.uint32).reshape(32, -1).T.copy()


def execute(
    ptx: Any,
    form: tuple[str, str, int, str],
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    sat: str = "",
    **options: Any,
) -> np.ndarray:
    """D of one mma.sync, in place of C's registers."""
    kind_a, kind_b, k, out = form
    fragments = [
        pack(a, lambda lane, i: a_element(kind_a, lane, i), 16 * k // 32),
        pack(b, lambda lane, i: b_element(kind_b, lane, i), 8 * k // 32),
        pack(c, c_element, 4),
    ]
    registers = np.concatenate(fragments)
    counts = [len(x) for x in fragments]
    names = [f"%r{20 + n}" for n in range(len(registers))]
    first = np.cumsum([0, *counts])
    lists = ["{" + ", ".join(names[first[n] : first[n + 1]]) + "}" for n in range(3)]
    d = "{" + ", ".join(f"%r{60 + n}" for n in range(counts[2])) + "}"
    loads = " ".join(f"ld.global.u32 {name}, [%d1 + {128 * n}];" for n, name in enumerate(names))
    stores = " ".join(f"st.global.u32 [%d2 + {128 * n}], %r{60 + n};" for n in range(counts[2]))
    body = f"""mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, 4; add.u64 %d1, %in, %d0; add.u64 %d2, %out, %d0; {loads}
        mma.sync.aligned.m16n8k{k}.row.col{sat}.{out}.{kind_a}.{kind_b}.{out} {d}, {lists[0]}, {lists[1]}, {lists[2]}; {stores}"""
    result = np.zeros((counts[2], 32), np.uint32)
    run = ptx.run(body, "u64 in, u64 out", [registers, result], **options)
    assert not run.findings
    values = result.T.copy().view(c.dtype).reshape(32, 4)
    found = np.zeros((16, 8), c.dtype)
    for lane in range(32):
        for i in range(4):
            found[c_element(lane, i)] = values[lane, i]
    return found


def operands(rng: np.random.Generator, form: tuple[str, str, int, str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    kind_a, kind_b, k, out = form
    if out == "s32":
        a = rng.integers(
            np.iinfo(TYPES[kind_a]).min, np.iinfo(TYPES[kind_a]).max, (16, k), TYPES[kind_a], endpoint=True
        )
        b = rng.integers(np.iinfo(TYPES[kind_b]).min, np.iinfo(TYPES[kind_b]).max, (k, 8), TYPES[kind_b], endpoint=True)
        c = rng.choice(np.array([0, 7, -(2**31), 2**31 - 1], np.int32), (16, 8))
        return a, b, c
    a, b = (rng.standard_normal(shape).astype(TYPES[kind]) for shape, kind in (((16, k), kind_a), ((k, 8), kind_b)))
    return a, b, rng.standard_normal((16, 8)).astype(np.float16 if out == "f16" else np.float32)


def exact(x: np.ndarray, kind: str) -> np.ndarray:
    """Operand values: tf32 drops the low 13 bits."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if kind == "tf32" else x.astype(np.float32)


def chain(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """One float32 fused multiply-add for each k, ascending (float64 holds these products and their sums' leading part)."""
    for k in range(a.shape[1]):
        c = (a[:, k, None].astype(np.float64) * b[k].astype(np.float64) + c.astype(np.float64)).astype(np.float32)
    return c


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_product(ptx: Any, form: tuple[str, str, int, str]) -> None:
    kind_a, kind_b, _, out = form
    a, b, c = operands(np.random.default_rng(5), form)
    found = execute(ptx, form, a, b, c)
    if out == "s32":
        expected = a.astype(np.int64) @ b.astype(np.int64) + c
        assert np.array_equal(found, expected.astype(np.uint64).astype(np.uint32).view(np.int32))
        saturated = execute(ptx, form, a, b, c, ".satfinite")
        assert np.array_equal(saturated, np.clip(expected, -(2**31), 2**31 - 1))
        return
    expected = chain(exact(a, kind_a), exact(b, kind_b), c.astype(np.float32))
    assert np.array_equal(found, expected.astype(c.dtype))


@pytest.mark.parametrize("k", [32, 16])
@pytest.mark.parametrize("out", ["f32", "f16"])
def test_product_of_8_bit_floats(ptx: Any, k: int, out: str) -> None:
    """The products of places 0 and 1 of four, then those of 2 and 3, then C (section 1.4 of the measurements)."""
    form = ("e4m3", "e5m2", k, out)
    a, b, c = operands(np.random.default_rng(k), form)
    zero, places = np.zeros((16, 8), np.float32), np.arange(k) % 4
    total = zero
    for part in (places < 2, places >= 2):
        total = (
            chain(a[:, part].astype(np.float32), b[part].astype(np.float32), total).astype(c.dtype).astype(np.float32)
        )
    expected = (total.astype(np.float64) + c).astype(c.dtype)
    assert np.array_equal(execute(ptx, form, a, b, c), expected)


def test_special_values(ptx: Any) -> None:
    """Infinities, NaN, subnormals and signed zeros of f16 come through."""
    a, b, c = np.zeros((16, 16), np.float16), np.ones((16, 8), np.float16), np.zeros((16, 8), np.float32)
    a[0, 3], a[1, 4], a[2, 5], a[3, 6], a[3, 7] = np.inf, np.nan, 6e-8, np.inf, -np.inf
    found = execute(ptx, ("f16", "f16", 16, "f32"), a, b, c)
    assert np.isposinf(found[0]).all() and np.isnan(found[1]).all() and np.isnan(found[3]).all()
    assert (found[2] == np.float32(np.float16(6e-8))).all() and (found[4:] == 0).all()


def test_result_in_any_registers(ptx: Any) -> None:
    """D over A's, B's or permuted C's registers: everything is read first."""
    rng = np.random.default_rng(9)
    values = rng.standard_normal((10, 32)).astype(np.float32)
    values[:6] = rng.standard_normal((6, 64)).astype(np.float16).view(np.uint32).view(np.float32)
    loads = " ".join(f"ld.global.f32 %f{n}, [%d1 + {128 * n}];" for n in range(10))
    mma = (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d}, {{%f0,%f1,%f2,%f3}}, {{%f4,%f5}}, {{%f6,%f7,%f8,%f9}};"
    )
    found = []
    for d in ((20, 21, 22, 23), (9, 8, 7, 6), (8, 9, 6, 7), (0, 1, 2, 3), (4, 5, 6, 0)):
        out = np.zeros((4, 32), np.float32)
        stores = " ".join(f"st.global.f32 [%d2 + {128 * n}], %f{r};" for n, r in enumerate(d))
        text = mma.format(d="{" + ",".join(f"%f{r}" for r in d) + "}")
        ptx.run(
            f"mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, 4; add.u64 %d1, %in, %d0; add.u64 %d2, %out, %d0; {loads} {text} {stores}",
            "u64 in, u64 out", [values, out],
        )  # fmt: skip
        found.append(out)
    assert all(np.array_equal(x, found[0]) for x in found[1:])


# Recorded results -> A, B, K, D and what follows the layouts; operands by the kind before "k".
RECORDED = {
    "f16k16": ("f16", "f16", 16, "f32"), "f16k8": ("f16", "f16", 8, "f32"), "f16hk16": ("f16", "f16", 16, "f16"),
    "f16hk8": ("f16", "f16", 8, "f16"), "bf16k16": ("bf16", "bf16", 16, "f32"), "bf16k8": ("bf16", "bf16", 8, "f32"),
    "tf32k8": ("tf32", "tf32", 8, "f32"), "tf32k4": ("tf32", "tf32", 4, "f32"), "e4m3": ("e4m3", "e4m3", 32, "f32"),
    "e5m2": ("e5m2", "e5m2", 32, "f32"), "e4e5": ("e4m3", "e5m2", 32, "f32"), "e4m3h": ("e4m3", "e4m3", 32, "f16"),
    "s8": ("s8", "s8", 32, "s32"), "s8sat": ("s8", "s8", 32, "s32"), "u8": ("u8", "u8", 32, "s32"), "s8k16": ("s8", "s8", 16, "s32"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_on_the_card(ptx: Any, name: str) -> None:
    """Silicon mode repeats the card's results bit for bit (12 sorts of operands, 6 rows of each)."""
    form, stored = RECORDED[name], recorded.arrays("mma")
    base = "s8" if form[3] == "s32" else name.split("k")[0]
    a, b, c, d = (stored[n] for n in (f"{base}.A", f"{base}.B", f"{base}.C", f"m_{name}.D"))
    bits = np.uint16 if form[3] == "f16" else np.uint32
    height = a.shape[2]
    for tile, first in itertools.product(range(len(a)), range(0, height, 16)):
        rows = (first + np.arange(16)) % height
        x = np.ascontiguousarray(a[tile, 0, rows, : form[2]]).view(TYPES[form[0]])
        y = np.ascontiguousarray(b[tile, 0, :, : form[2]]).view(TYPES[form[1]])
        z = c[tile][rows].astype(bits).view(RESULTS[form[3]])
        sat = ".satfinite" if name.endswith("sat") else ""
        found = execute(ptx, form, x, np.ascontiguousarray(y.T), z, sat, numerics="silicon")
        np.testing.assert_array_equal(found.view(bits), d[tile][rows])


def test_movmatrix(ptx: Any) -> None:
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    out = np.zeros((8, 8), np.uint16)
    body = """mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, 4; add.u64 %d1, %in, %d0; add.u64 %d2, %out, %d0;
        ld.global.u32 %r1, [%d1]; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r1; st.global.u32 [%d2], %r1;"""
    ptx.run(body, "u64 in, u64 out", [matrix, out])
    assert np.array_equal(out, matrix.T)


def test_part_of_a_warp_is_a_fault(ptx: Any) -> None:
    body = """mov.u32 %r0, %laneid; setp.lt.u32 %p1, %r0, 16;
        @%p1 mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r1,%r2}, {%r3}, {%f0,%f1,%f2,%f3};
        mov.b32 %r1, %f0; st.global.u32 [%out], %r1;"""
    result = ptx.run(body, "u64 out", [np.zeros(1, np.uint32)])
    assert [f.rule for f in result.findings if f.severity == "fault"] == ["WL103"]


def test_latency_and_rate(ptx: Any) -> None:
    """A chain takes the latency, independent products the interval of the pipe (H200: 24, 17; 6, 4 cycles)."""
    for k, registers, latency, interval in (
        (16, "{%r1,%r2,%r3,%r4}, {%r5,%r6}", 24, 6),
        (8, "{%r1,%r2}, {%r5}", 17, 4),
    ):
        for chains, expected in ((1, latency), (8, interval)):
            steps = " ".join(
                f"mma.sync.aligned.m16n8k{k}.row.col.f32.f16.f16.f32 {{d}}, {registers}, {{d}};".replace(
                    "{d}", "{" + ",".join(f"%f{4 * (n % chains) + i}" for i in range(4)) + "}"
                )
                for n in range(64)
            )
            keep = " ".join(f"st.global.f32 [%out + 4], %f{4 * n};" for n in range(chains))
            out = np.zeros(2, np.uint32)
            body = f"mov.u32 %r10, %clock; {steps} mov.u32 %r11, %clock; sub.u32 %r11, %r11, %r10; st.global.u32 [%out], %r11; {keep}"
            ptx.run(body, "u64 out", [out])
            assert abs(int(out[0]) / 64 - expected) < 0.6, (k, chains, out[0] / 64)
