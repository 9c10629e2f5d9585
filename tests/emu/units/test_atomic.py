"""atom and red: results and memory against a model in Python, in lane order; vectors; faults; deterministic times."""

from __future__ import annotations

import numpy as np
import pytest

from isa import bits
from isa.bits import BF16, F16, F32, F64
from tests.isa.ops.cases import longs, shorts, words

WIDTH = {"u32": 32, "s32": 32, "b32": 32, "f32": 32, "u64": 64, "s64": 64, "b64": 64, "f64": 64, "b16": 16}
INTEGERS = ("u32", "s32", "u64", "s64")


def half(f, op, x, y):
    if op == "add":
        return bits.add(f, x, y)
    return bits.extremum(f, x, y, op == "max")


def model(op: str, type: str, old: int, value: int, shared: bool) -> int:
    """What a word becomes."""
    if type in ("f16", "bf16", "f16x2", "bf16x2"):
        f = F16 if type.startswith("f") else BF16
        low = half(f, op, old & 0xFFFF, value & 0xFFFF)
        return low | (half(f, op, old >> 16, value >> 16) << 16 if type.endswith("x2") else 0)
    width = WIDTH[type]
    if type == "f32":
        return bits.add(F32, old, value, ftz=not shared)
    if type == "f64":
        return bits.add(F64, old, value)
    if op in ("min", "max"):
        key = (lambda x: bits.signed(x, width)) if type[0] == "s" else (lambda x: x)
        return (min if op == "min" else max)(old, value, key=key)
    result = {
        "add": lambda: old + value,
        "and": lambda: old & value,
        "or": lambda: old | value,
        "xor": lambda: old ^ value,
        "exch": lambda: value,
        "inc": lambda: 0 if old >= value else old + 1,
        "dec": lambda: value if old == 0 or old > value else old - 1,
    }[op]()
    return result & ((1 << width) - 1)


FORMS = [
    *[("add", t) for t in ("u32", "s32", "u64", "f32", "f64")],
    *[(op, t) for op in ("min", "max") for t in INTEGERS],
    *[(op, "u32") for op in ("inc", "dec")],
    *[(op, t) for op in ("and", "or", "xor", "exch") for t in ("b32", "b64")],
    *[("add", t) for t in ("f16", "bf16", "f16x2", "bf16x2")],
]
REGISTER = {16: ("%h", "b16"), 32: ("%r", "b32"), 64: ("%d", "b64")}


def opcode(op: str, type: str) -> str:
    return f"{op}{'.noftz' if 'f16' in type else ''}.{type}"


def width_of(type: str) -> int:
    return 16 if type in ("f16", "bf16") else WIDTH.get(type, 32)


def body(op: str, type: str, space: str) -> str:
    """Lane l works on cell l / 4 of `cells` and stores what was there to `before`."""
    width = width_of(type)
    register, kind = REGISTER[width]
    size = width // 8
    value, old = f"{register}{2 if width != 32 else 20}", f"{register}{3 if width != 32 else 21}"
    declared = "f32" if type == "f32" else "f64" if type == "f64" else ""
    if declared:
        value, old = ("%f2", "%f3") if declared == "f32" else ("%e2", "%e3")
    load = kind if not declared else declared
    address = "%d10" if space != "shared" else "%r9"
    return f"""
    .reg .f64 %e<8>;
    mov.u32 %r1, %tid.x;
    shr.u32 %r2, %r1, 2;
    mul.wide.u32 %d5, %r1, {size};
    mul.wide.u32 %d6, %r2, {size};
    add.s64 %d7, %values, %d5;
    add.s64 %d8, %before, %d5;
    add.s64 %d9, %cells, %d6;
    ld.global.{load} {value}, [%d7];
    mov.b64 %d10, %d9;
    mov.u32 %r8, smem;
    mad.lo.u32 %r9, %r2, {size}, %r8;
    {_staged(space, load, size, value, old, address, opcode(op, type))}
    st.global.{load} [%d8], {old};
    """


def _staged(space: str, load: str, size: int, value: str, old: str, address: str, operation: str) -> str:
    atom = f"atom{'' if space == 'generic' else '.' + space}.{operation} {old}, [{address}], {value};"
    if space == "global":
        return atom
    generic = f"cvta.shared.u64 {address}, smem; add.s64 {address}, {address}, %d6;" if space == "generic" else ""
    return f"""
    ld.global.{load} {old}, [%d9];
    st.shared.{load} [%r9], {old};
    bar.sync 0;
    {generic}
    {atom}
    bar.sync 0;
    ld.shared.{load} {value}, [%r9];
    st.global.{load} [%d9], {value};
    """


def data(type: str, seed: int, count: int) -> np.ndarray:
    make = {16: shorts, 32: words, 64: longs}[width_of(type)]
    return make(seed, count)


@pytest.mark.parametrize("space", ["global", "shared", "generic"])
@pytest.mark.parametrize("op, type", FORMS)
def test_lane_order(ptx, op, type, space):
    cells, values = data(type, 3, 96)[:8].copy(), data(type, 4, 96)[:32].copy()
    if op in ("inc", "dec"):
        cells, values = cells % 5, values % 4
    before = np.zeros_like(values)
    expected, old = [int(x) for x in cells], []
    for lane in range(32):
        old.append(expected[lane // 4])
        expected[lane // 4] = model(op, type, expected[lane // 4], int(values[lane]), space != "global")
    kernel = body(op, type, space)
    result = ptx.run(
        kernel, "u64 cells, u64 values, u64 before", [cells, values, before], shared=".shared .align 8 .b8 smem[64];"
    )
    assert not result.findings, result.findings
    assert [hex(x) for x in before.tolist()] == [hex(x) for x in old]
    assert [hex(x) for x in cells.tolist()] == [hex(x) for x in expected]


PACKED = [("add", "f32", n) for n in (2, 4)] + [
    (op, t, n) for op in ("add", "min", "max") for t, most in (("f16", 8), ("bf16", 8), ("f16x2", 4)) for n in (2, most)
]


@pytest.mark.parametrize("op, type, count", PACKED)
def test_vectors(ptx, op, type, count):
    """Lanes 2k and 2k + 1 work on one vector; red does what atom does."""
    register, kind = ("%f", "f32") if type == "f32" else REGISTER[width_of(type)]
    size = width_of(type) // 8
    cells, values = data(type, 5, 16 * count), data(type, 6, 32 * count)
    other, before = cells.copy(), np.zeros_like(values)
    expected, old = [int(x) for x in cells], []
    for lane in range(32):
        at = lane // 2 * count
        old += expected[at : at + count]
        for k in range(count):
            expected[at + k] = model(op, type, expected[at + k], int(values[lane * count + k]), False)
    names = [f"{register}{(2 if register != '%r' else 20) + k}" for k in range(count)]
    load = "".join(f"ld.global.{kind} {name}, [%d7 + {size * k}];" for k, name in enumerate(names))
    store = "".join(f"st.global.{kind} [%d8 + {size * k}], {name};" for k, name in enumerate(names))
    vector, operation = "{" + ", ".join(names) + "}", opcode(op, f"v{count}.{type}")
    result = ptx.run(
        f"""
        mov.u32 %r1, %tid.x;
        shr.u32 %r2, %r1, 1;
        mul.wide.u32 %d5, %r1, {size * count};
        mul.wide.u32 %d6, %r2, {size * count};
        add.s64 %d7, %values, %d5;
        add.s64 %d8, %before, %d5;
        add.s64 %d9, %cells, %d6;
        add.s64 %d10, %other, %d6;
        {load}
        red.global.{operation} [%d10], {vector};
        atom.global.{operation} {vector}, [%d9], {vector};
        {store}
        """,
        "u64 cells, u64 other, u64 values, u64 before",
        [cells, other, values, before],
    )
    assert not result.findings, result.findings
    assert [hex(x) for x in before.tolist()] == [hex(x) for x in old]
    assert [hex(x) for x in cells.tolist()] == [hex(x) for x in expected] == [hex(x) for x in other.tolist()]


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_compare_and_swap(ptx, width, space):
    """Lane l swaps 3 l for 3 l + 3 in one cell, which begins at 0: a chain; then lane 0 fails."""
    register, kind = REGISTER[width]
    dtype = {16: np.uint16, 32: np.uint32, 64: np.uint64}[width]
    cell, before = np.zeros(4, dtype), np.zeros(32, dtype)
    a, b, d = (f"{register}{k + (20 if width == 32 else 1)}" for k in range(3))
    address = "%r9" if space == "shared" else "%cell"
    result = ptx.run(
        f"""
        mov.u32 %r1, %tid.x;
        mul.lo.u32 %r2, %r1, 3;
        add.u32 %r3, %r2, 3;
        cvt.u{width}.u32 {a}, %r2;
        cvt.u{width}.u32 {b}, %r3;
        mov.u32 %r9, smem;
        mov.{kind} {d}, 0;
        st.shared.{kind} [%r9], {d};
        bar.sync 0;
        atom.{space}.cas.{kind} {d}, [{address}], {a}, {b};
        mul.wide.u32 %d5, %r1, {width // 8};
        add.s64 %d7, %before, %d5;
        st.global.{kind} [%d7], {d};
        setp.eq.u32 %p1, %r1, 0;
        @%p1 atom.{space}.cas.{kind} {d}, [{address}], {a}, {b};
        @%p1 st.global.{kind} [%cell + {width // 8}], {d};
        ld.shared.{kind} {d}, [%r9];
        @%p1 st.global.{kind} [%cell + {width // 4}], {d};
        """,
        "u64 cell, u64 before",
        [cell, before],
        shared=".shared .align 8 .b8 smem[64];",
    )
    assert not result.findings
    assert before.tolist() == [3 * lane for lane in range(32)]
    assert cell.tolist()[1] == 96 and (cell[0], cell[2])[space == "shared"] == 96


def test_128_bits(ptx):
    """exch and cas of 16 bytes: one lane after the other."""
    cell, before = np.arange(2, dtype=np.uint64), np.zeros((32, 2), np.uint64)
    result = ptx.run(
        """
        .reg .b128 %q<4>;
        mov.u32 %r1, %tid.x;
        cvt.u64.u32 %d1, %r1;
        add.u64 %d2, %d1, 1;
        add.u64 %d3, %d1, 2;
        mov.b128 %q1, {%d1, %d2};
        mov.b128 %q2, {%d2, %d3};
        atom.global.cas.b128 %q3, [%cell], %q1, %q2;
        mul.wide.u32 %d5, %r1, 16;
        add.s64 %d5, %before, %d5;
        st.global.b128 [%d5], %q3;
        atom.global.exch.b128 %q3, [%cell], %q1;
        mov.b128 {%d7, %d8}, %q3;
        setp.eq.u32 %p1, %r1, 31;
        @%p1 st.global.v2.b64 [%before], {%d7, %d8};
        """,
        "u64 cell, u64 before",
        [cell, before],
    )
    assert not result.findings
    assert cell.tolist() == [31, 32] and before[0].tolist() == [30, 31]
    assert before[1:].tolist() == [[lane, lane + 1] for lane in range(1, 32)]


@pytest.mark.parametrize(
    "line, rule",
    [
        ("add.u64 %d1, %cell, 2; atom.global.add.u32 %r1, [%d1], 1;", "MEM104"),
        ("atom.global.add.u32 %r1, [%cell+64], 1;", "MEM103"),
        ("red.shared.add.u32 [smem+65536], 1;", "MEM101"),
        ("red.shared.add.u32 [smem+2], 1;", "MEM102"),
        ("red.global.add.v4.f32 [%cell+8], {%f1, %f1, %f1, %f1};", "MEM104"),
    ],
)
def test_faults(ptx, line, rule):
    result = ptx.run(line, "u64 cell", [np.zeros(16, np.uint32)], shared=".shared .align 8 .b8 smem[64];")
    assert [finding.rule for finding in result.findings] == [rule]


def test_conflicts_take_time(ptx):
    """Lanes on one address are served one after the other; f32 in shared memory goes round a loop."""

    def cycles(operation: str, stride: int) -> int:
        body = f"""
        mov.u32 %r1, %tid.x;
        mov.u32 %r2, smem;
        mad.lo.u32 %r2, %r1, {stride}, %r2;
        mul.wide.u32 %d1, %r1, {stride};
        add.s64 %d1, %cell, %d1;
        {operation}
        mov.b32 %r4, %r3;
        st.global.u32 [%cell], %r4;
        """
        return ptx.run(body, "u64 cell", [np.zeros(256, np.uint32)], shared=".shared .align 8 .b8 smem[1024];").cycles

    for operation in ("atom.shared.add.u32 %r3, [%r2], 1;", "atom.global.add.u32 %r3, [%d1], 1;"):
        assert cycles(operation, 4) < cycles(operation, 0)
    loop = "atom.shared.add.f32 %f3, [%r2], %f1; mov.b32 %r3, %f3;"
    assert cycles(loop, 0) > 8 * cycles(loop, 4) / 2
