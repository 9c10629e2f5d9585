"""Tensor Memory: layouts of loads and stores, asynchrony, time, faults, allocation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.units import tmem_layout as layout
from isa.ops.tcgen05 import tmem_word
from tests.emu.units.tmem import SHAPES, cells, fetch, found, place, registers, run, show

LOAD = "tcgen05.ld.sync.aligned"
STORE = "tcgen05.st.sync.aligned"
WAIT = "tcgen05.wait::ld.sync.aligned;"
STORED = "tcgen05.wait::st.sync.aligned;"


def load(shape: str, number: int, at: str = "%r6", pack: str = "", split: int = 0) -> str:
    """A load to %r10.., and its wait."""
    count = number * SHAPES[shape][1]
    tail = f", {split}" if shape == "16x32bx2" else ""
    return f"{LOAD}.{shape}.x{number}{pack}.b32 {registers(count)}, [{at}]{tail}; {WAIT}"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [("32x32b", (5, 3)), ("16x64b", (9, 6)), ("16x128b", (9, 5)), ("16x256b", (9, 3))],
)
def test_worked_places(shape, expected):
    """Thread 5, register 3."""
    assert place(shape, 5, 3) == expected


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_places(shape, pack):
    """Every register of every thread of every number, against the manual's table; no two at one place."""
    word = tmem_word(shape, split=9 if pack else 150, packed=pack)
    seen = set()
    for r in range(128):
        for t in range(32):
            lane, column = place(shape, t, r)
            column = column * 2 if pack else column
            if shape == "16x32bx2" and t >= 16:
                column += 9 if pack else 150
            assert layout.place(word, t, r) == (lane, column)
            assert lane < SHAPES[shape][0] and (pack or (lane, column) not in seen)
            seen.add((lane, column))
    assert layout.width_of(word, 128) == (128 if shape in ("32x32b", "16x32bx2") else 256) * (2 if pack else 1)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_loads_and_stores(shape, pack):
    """A load gives the cells at its places; a store of the same shape puts them back, elsewhere, and nothing else changes."""
    lanes, per, _ = SHAPES[shape]
    number = 8 // per
    count, down, base, split, step = number * per, 16 if lanes == 16 else 0, 3, 20, 2 if pack else 1
    data = np.random.default_rng(count).integers(0, 1 << 32, (64, 32), dtype=np.uint32)
    tail = f" {split}," if shape == "16x32bx2" else ""
    words = (".pack::16b", ".unpack::16b") if pack else ("", "")
    body = f"""{fetch(64)} {STORE}.32x32b.x64.b32 [%r6], {registers(64)}; {STORED}
        {load(shape, number, f"%r6 + {(down << 16) + base}", words[0], split)} {show(count)}
        {STORE}.{shape}.x{number}{words[1]}.b32 [%r6 + {(down << 16) + base + 64}],{tail} {registers(count)}; {STORED}
        {LOAD}.32x32b.x64.b32 {registers(64, 100)}, [%r6 + 64]; {WAIT} {show(64, first=100, row=count)}"""
    out, result = run(body, data, 32 * (count + 64))
    assert not found(result)
    rows, expected = out.reshape(-1, 32), np.full((64, 32), 0xFFFFFFFF, np.uint32)
    for r in range(count):
        for t in range(32):
            lane, column = place(shape, t, r)
            lane, column = lane + down, base + column * step + (split if shape == "16x32bx2" and t >= 16 else 0)
            low, high = data[column, lane], data[column + step - 1, lane]
            assert rows[r, t] == ((low & 0xFFFF) | (high & 0xFFFF) << 16 if pack else low)
            expected[column, lane] = low & 0xFFFF if pack else low
            if pack:
                expected[column + 1, lane] = high & 0xFFFF
    assert np.array_equal(rows[count:], expected)


@pytest.mark.parametrize(
    ("type", "flags"), [("u32", ""), ("s32", ""), ("f32", ""), ("f32", ".abs"), ("f32", ".NaN"), ("f32", ".abs.NaN")]
)
@pytest.mark.parametrize("op", ["min", "max"])
def test_reduction(op, type, flags):
    """tcgen05.ld.red of sm_103a: the least or greatest of a lane's registers, as min and max."""
    rng = np.random.default_rng(7)
    data = rng.integers(0, 1 << 32, (4, 32), dtype=np.uint32)
    special = np.array([0, 1 << 31, 0x7FC00000, 0xFFC12345, 0x7F800000, 0xFF800000, 1, 0x80000001], np.uint32)
    data[:, :16] = rng.choice(special, (4, 16))
    body = f"""{fetch(4)} {STORE}.32x32b.x4.b32 [%r6], {registers(4)}; {STORED}
        tcgen05.ld.red.sync.aligned.32x32b.x4.{op}{flags}.{type} {registers(4, 20)}, %r14, [%r6]; {WAIT} {show(1, first=14)}"""
    out, result = run(body, data, target="sm_103a", machine="b300")
    assert not found(result)
    if type == "f32":
        values = np.abs(data.view(np.float32)) if ".abs" in flags else data.view(np.float32)
        nan = np.isnan(values)
        key = np.clip(values.astype(np.float64), -1e300, 1e300) + np.copysign(1e-60, values.astype(np.float64))
        key = np.where(nan, np.inf if op == "min" else -np.inf, key)
        best = np.take_along_axis(values, (key.argmin(0) if op == "min" else key.argmax(0))[None], 0)[0].view(np.uint32)
        empty = nan.any(0) if "NaN" in flags else nan.all(0)
        expected = np.where(empty, 0x7FFFFFFF, best)
    else:
        expected = getattr(data.view(np.int32 if type == "s32" else np.uint32), op)(0).view(np.uint32)
    assert np.array_equal(out, expected)


# ---- asynchrony and time --------------------------------------------------------------------------


def test_an_early_load_sees_what_was_there():
    """A store is in the cells when it is complete: a load that does not wait finds the old value."""
    after = f"mov.u32 %r20, 7; {STORE}.32x32b.x1.b32 [%r6], {{%r20}}; WAITS {load('32x32b', 1)} {show(1)}"
    slow = ("unit.tmem.store_latency_cy=900",)
    early, _ = run(cells(1) + after.replace("WAITS", ""), overrides=slow)
    late, _ = run(cells(1) + after.replace("WAITS", STORED), overrides=slow)
    assert (early == np.arange(32) << 16).all() and (late == 7).all()


def test_registers_are_there_without_a_wait():
    """A plain use of the result is ordered behind the load (PTX ISA 9.7.16.6.4.5)."""
    out, result = run(
        f"{cells(2)} {LOAD}.32x32b.x2.b32 {{%r10, %r11}}, [%r6]; add.u32 %r10, %r10, %r11; mov.u32 %r11, 3; {show(2)}",
        out=64,
    )
    assert (out[:32] == (np.arange(32) << 17) + 1).all() and (out[32:] == 3).all() and not found(result)


def test_stored_registers_may_be_overwritten():
    out, _ = run(
        f"mov.u32 %r10, 5; {STORE}.32x32b.x1.b32 [%r6], {{%r10}}; mov.u32 %r10, 6; {STORED} {load('32x32b', 1)} {show(1)}"
    )
    assert (out == 5).all()


def cycles(work: str, used: int = 0, **options: Any) -> int:
    """Cycles of `work` between two clocks, beyond those of no work; `used` registers from %r10 on are read afterwards,
    so that each has a place of its own."""
    keep = " ".join(f"@%p7 st.global.u32 [%d2], %r{10 + k};" for k in range(used))
    spent = []
    for text in (work, ""):
        body = f"""setp.eq.u32 %p7, %r6, 7; @%p7 trap; mov.u32 %r280, %clock; {text} mov.u32 %r281, %clock;
            sub.u32 %r282, %r281, %r280; {keep} {show(1, first=282)}"""
        out, result = run(body, **options)
        assert not found(result) and result.deadlock is None
        spent.append(int(out[0]))
    return spent[0] - spent[1]


@pytest.mark.parametrize("number", [1, 2, 16, 32, 128])
def test_load_latency(number):
    """24 cycles for .x16 and its wait on a B200, 8 of them the port's (notes on sm_100's SASS)."""
    assert cycles(load("32x32b", number), number) == 16 + max(number // 2, 1)


@pytest.mark.parametrize("number", [8, 16, 32])
@pytest.mark.parametrize("start", [0, 1])
def test_read_bandwidth(number, start):
    """256 bytes a cycle and warp: 22 + 8 n cycles from clock to clock for n .x16, a ninth cycle from odd columns; four warps
    have a quarter each (the same notes; here 19 + 8 n)."""
    blocks, many = 224 // number, 48  # no load waits for the registers of the one before
    text = "".join(
        f"{LOAD}.32x32b.x{number}.b32 {registers(number, 10 + number * (k % blocks))}, [%r6 + {start}];"
        for k in range(many)
    )
    alone, four = (cycles(text + WAIT, blocks * number, block=32 * warps, out=32 * warps) for warps in (1, 4))
    assert alone == 16 + many * (number // 2 + start) and four == alone


@pytest.mark.parametrize(
    ("shape", "number", "pack", "each"),
    [
        ("16x64b", 32, "", 32), ("16x128b", 16, "", 32), ("16x256b", 8, "", 64), ("16x32bx2", 32, "", 32),
        ("32x32b", 32, ".pack::16b", 32), ("16x64b", 32, ".pack::16b", 64), ("16x256b", 4, ".pack::16b", 64),
    ],
)  # fmt: skip
def test_port_time_of_shapes(shape, number, pack, each):
    """N / 2, N, 2 N, 8 N cycles for .xN, twice that with .pack::16b (the same notes)."""
    count, tail = number * SHAPES[shape][1], ", 64" if shape == "16x32bx2" else ""
    text = "".join(
        f"{LOAD}.{shape}.x{number}{pack}.b32 {registers(count, 10 + count * (k % 6))}, [%r6]{tail};" for k in range(12)
    )
    assert cycles(text + WAIT, 6 * count) == 16 + 12 * each


def test_stores_and_loads_share_the_port():
    """519 LDTM.x16 and 1024 STTM.x8 of one quarter take 8270 cycles together (the same notes), here a tenth of that."""
    loads = "".join(f"{LOAD}.32x32b.x16.b32 {registers(16, 10 + 16 * (k % 13))}, [%r6];" for k in range(52))
    stores = "".join(f"{STORE}.32x32b.x8.b32 [%r6 + 256], {registers(8, 240)};" for _ in range(102))
    assert cycles(loads + stores + WAIT + STORED, 208) == pytest.approx(827, rel=0.04)


@pytest.mark.parametrize(
    ("work", "wait", "number", "published"),
    [("st", STORED, 1, 16.2), ("st", STORED, 4, 19.5), ("st", STORED, 8, 27.5), ("st", STORED, 16, 43.6),
     ("ld", WAIT, 1, 20.5), ("ld", WAIT, 4, 23.5), ("ld", WAIT, 8, 31.3), ("ld", WAIT, 16, 47.3)],
)  # fmt: skip
def test_groups_of_four_and_a_wait(work, wait, number, published):
    """Groups of four and their wait, cycles a group (the same notes, which have a loop)."""
    one = {
        "ld": lambda k: f"{LOAD}.32x32b.x{number}.b32 {registers(number, 10 + number * k)}, [%r6];",
        "st": lambda k: f"{STORE}.32x32b.x{number}.b32 [%r6 + {16 * k}], {registers(number, 10 + number * k)};",
    }[work]
    group = "".join(map(one, range(4))) + wait
    assert cycles(16 * group, 64) / 16 == pytest.approx(published, abs=3)


def test_two_warps_of_a_quarter_share_its_port():
    """Warps w and w + 4 have the same lanes."""
    text = "".join(f"{LOAD}.32x32b.x32.b32 {registers(32, 10 + 32 * (k % 7))}, [%r6];" for k in range(12)) + WAIT
    one, two = (cycles(text, 7 * 32, block=block, out=256) for block in (128, 256))
    assert one == 16 + 12 * 16 and two > 1.5 * one
