"""The L1: what hits and how long it takes, what empties it, how much it holds, and that values are those of program order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from emu.machine import load_machine
from emu.sm import carve_out
from tools.calibrate.suite import measured

HIT, MISS = 33, 282
BASE = "mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, 4; add.u64 %d1, %data, %d0; add.u64 %d2, %out, %d0; "


def latency(ptx: Any, before: str, load: str, base: str = BASE, **options: Any) -> int:
    """Cycles of a load into %r4 behind `before`, by two clocks; about 20 more than its latency."""
    out, data = np.zeros(64, np.uint32), np.zeros(1 << 14, np.uint32)
    timed = f"mov.u64 %d10, %clock64; {load} add.u32 %r4, %r4, 1; mov.u64 %d11, %clock64; sub.u64 %d11, %d11, %d10; cvt.u32.u64 %r6, %d11; st.global.u32 [%d2], %r6;"
    pause = "nanosleep.u32 4000; "
    result = ptx.run(f"{base}{before} {pause}{timed}", "u64 out, u64 data", [out, data], warm=True, **options)
    assert not result.findings
    return int(out[0])


LOAD = "ld.global.u32 %r3, [%d1];"


@pytest.mark.parametrize(
    ("before", "load", "hits"),
    [
        ("", "ld.global.u32 %r4, [%d1];", False),
        (LOAD, "ld.global.u32 %r4, [%d1];", True),
        (LOAD, "ld.global.nc.u32 %r4, [%d1];", True),
        (LOAD, "ld.u32 %r4, [%d1];", True),
        (LOAD, "ld.relaxed.cta.global.u32 %r4, [%d1];", True),
        (LOAD, "ld.global.cs.u32 %r4, [%d1];", True),
        (LOAD, "ld.global.cg.u32 %r4, [%d1];", False),
        (LOAD, "ld.volatile.global.u32 %r4, [%d1];", False),
        (LOAD, "ld.relaxed.gpu.global.u32 %r4, [%d1];", False),
        (LOAD, "ld.global.L1::no_allocate.u32 %r4, [%d1];", False),
        ("ld.global.cg.u32 %r3, [%d1];", "ld.global.u32 %r4, [%d1];", False),
        ("ld.global.L1::no_allocate.u32 %r3, [%d1];", "ld.global.u32 %r4, [%d1];", False),
        ("st.global.u32 [%d1], %r0;", "ld.global.u32 %r4, [%d1];", True),
        (LOAD + "ld.acquire.gpu.global.u32 %r5, [%data+4096];", "ld.global.u32 %r4, [%d1];", False),
        (LOAD + "ld.acquire.cta.global.u32 %r5, [%data+4096];", "ld.global.u32 %r4, [%d1];", True),
        (LOAD + "fence.acq_rel.gpu;", "ld.global.u32 %r4, [%d1];", False),
        (LOAD + "fence.acq_rel.cta;", "ld.global.u32 %r4, [%d1];", True),
        (LOAD + "ld.relaxed.gpu.global.u32 %r5, [%data+4096];", "ld.global.u32 %r4, [%d1];", True),
        (LOAD + "ld.global.cg.u32 %r5, [%d1];", "ld.global.u32 %r4, [%d1];", False),
        (LOAD + "ld.volatile.global.u32 %r5, [%data];", "ld.global.u32 %r4, [%d1];", False),
        (LOAD + "setp.eq.u32 %p1, %r0, 0; @%p1 st.global.u32 [%data+32], %r0;", "ld.global.u32 %r4, [%d1];", True),
        ("setp.eq.u32 %p1, %r0, 0; @%p1 st.global.u32 [%data], %r0;", "ld.global.u32 %r4, [%data];", False),
        (LOAD + "setp.eq.u32 %p1, %r0, 0; @%p1 red.global.add.u32 [%data+32], 1;", "ld.global.u32 %r4, [%data];", False),
        (LOAD + "bar.sync 0;", "ld.global.u32 %r4, [%d1];", True),
        (LOAD, "ld.global.u32 %r4, [%d1+128];", False),
    ],
)  # fmt: skip
def test_what_hits(ptx: Any, before: str, load: str, hits: bool) -> None:
    """As `l1_chase` and `l1_after` have it on an H200."""
    took = latency(ptx, before, load)
    expected = HIT if hits else MISS
    assert expected <= took < expected + 20, took


@pytest.mark.parametrize("width", [1, 4])
def test_sectors_come_one_by_one(ptx: Any, width: int) -> None:
    """A line that is there lacks the sectors that nobody asked for; an access waits for the slowest of its sectors."""
    vector = {1: "ld.global.u32 %r4, [%data+{at}];", 4: "ld.global.v4.u32 {{%r4, %r7, %r8, %r9}}, [%data+{at}];"}[width]
    one = "setp.eq.u32 %p1, %r0, 0; @%p1 ld.global.u32 %r3, [%data];"
    assert latency(ptx, one, vector.format(at=16)) < HIT + 20
    assert latency(ptx, one, vector.format(at=32)) >= MISS
    assert latency(ptx, one, LOAD.replace("r3", "r4")) >= MISS  # the warp wants all four sectors


def test_a_second_load_waits_for_the_first_ones_sectors(ptx: Any) -> None:
    """A load of sectors that are on their way takes the rest of the way, and L2 sends them once."""
    out, data = np.zeros(64, np.uint32), np.zeros(1 << 14, np.uint32)
    body = f"""{BASE} mov.u64 %d10, %clock64; ld.global.u32 %r3, [%d1]; ld.global.u32 %r4, [%d1]; add.u32 %r4, %r4, %r3; mov.u64 %d11, %clock64;
        sub.u64 %d11, %d11, %d10; cvt.u32.u64 %r6, %d11; st.global.u32 [%d2], %r6;"""
    result = ptx.run(body, "u64 out, u64 data", [out, data], warm=True)
    assert MISS <= out[0] < MISS + 20
    assert result.metrics["l1tex__t_sector_hit_rate.pct"] == pytest.approx(100 * 4 / 12)  # 4 of 8 loaded, 0 of 4 stored


def test_carve_out() -> None:
    """Shared memory takes one of the sizes of the CUDA programming guide; the L1 has the rest."""
    kb = 1024
    sizes = {m: [s * kb for s in row] for m, row in {"h200": (0, 8, 16, 32, 64, 100, 132, 164, 196, 228), "a100": (0, 8, 16, 32, 64, 100, 132, 164)}.items()}  # fmt: skip
    for name, steps in sizes.items():
        machine = load_machine(name)
        for low, high in itertools.pairwise(steps):
            assert carve_out(machine, low) == low and carve_out(machine, low + 1) == carve_out(machine, high) == high


def test_capacity(ptx: Any) -> None:
    """What fits is found again, beside much shared memory less; a walk over more than fits finds nothing."""
    walk = "mov.u32 %r7, 0; W{n}: cvt.u64.u32 %d5, %r7; add.u64 %d5, %d5, %d1; ld.global.u32 %r8, [%d5]; add.u32 %r7, %r7, 128; setp.lt.u32 %p1, %r7, {size}; @%p1 bra W{n}; "
    cases = ((0, 128, 0.45, 0.51), (0, 320, 0.0, 0.01), (200, 24, 0.4, 0.51), (200, 64, 0.0, 0.01))
    for shared, size, least, most in cases:
        data, out = np.zeros(size * 256 + 64, np.uint32), np.zeros(32, np.uint32)
        body = BASE + "".join(walk.format(n=n, size=size * 1024) for n in range(2))
        result = ptx.run(body, "u64 out, u64 data", [out, data], shared_bytes=shared * 1024)
        rate = result.metrics["l1tex__t_sector_hit_rate.pct"]
        assert least <= rate / 100 <= most, (shared, size, rate)


# ---- values --------------------------------------------------------------------------------------------

WORDS = 96


def random_program(seed: int, length: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Loads, stores and reductions of a warp at random places, and what its loads and memory give in program order."""
    rng = np.random.default_rng(seed)
    memory, sums, lane = np.arange(WORDS, dtype=np.int64), np.zeros(32, np.int64), np.arange(32)
    text = f"{BASE} mov.u32 %r9, 0; "
    for _ in range(length):
        kind, at, pause = rng.integers(4), int(rng.integers(WORDS - 33)), int(rng.integers(3))
        place = f"[%d1+{4 * at}]"
        if kind < 2:
            text += f"ld.global.u32 %r4, {place}; mad.lo.u32 %r9, %r9, 3, %r4; "
            sums = (3 * sums + memory[at + lane]) & 0xFFFFFFFF
        elif kind == 2:
            value = int(rng.integers(1000))
            text += f"add.u32 %r5, %r0, {value}; st.global.u32 {place}, %r5; "
            memory[at + lane] = lane + value
        else:
            text += f"red.global.add.u32 {place}, 7; "
            memory[at + lane] += 7
        if pause == 0:
            text += f"nanosleep.u32 {int(rng.integers(400))}; "
    return text + "add.u64 %d2, %d2, %slice; st.global.u32 [%d2], %r9; ", sums, memory


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sms", [1, 3])
def test_program_order(ptx: Any, seed: int, sms: int) -> None:
    """A warp sees its own stores and reductions, whatever of them the chip has answered; other SMs make it wait for answers."""
    text, sums, memory = random_program(seed, 40)
    place = "mov.u32 %r1, %ctaid.x; mul.wide.u32 %slice, %r1, 128; mul.wide.u32 %d9, %r1, 65536; add.u64 %data, %data, %d9; "
    text = f".reg .b64 %slice; {place} {text}"
    out, data = np.zeros((sms, 32), np.uint32), np.zeros((sms, 16384), np.uint32)
    data[:, :WORDS] = np.arange(WORDS)
    machine = load_machine("h200", (f"chip.sms={sms}",))
    ptx.run(text, "u64 out, u64 data", [out, data], grid=sms, machine=machine)
    assert (out == sums).all() and (data[:, :WORDS] == memory).all()


def test_a_bulk_store_is_seen_behind_its_wait(ptx: Any) -> None:
    """A line that is in the L1, changed by a bulk store of the same CTA, is read anew behind wait_group."""
    body = f"""{BASE} ld.global.u32 %r3, [%d1]; mov.u32 %r7, area; shl.b32 %r8, %r0, 2; add.u32 %r8, %r8, %r7; add.u32 %r4, %r3, 100; st.shared.u32 [%r8], %r4;
        fence.proxy.async; bar.sync 0; setp.eq.u32 %p1, %r0, 0;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%data], [%r7], 128; @%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;
        bar.sync 0; ld.global.u32 %r5, [%d1]; st.global.u32 [%d2], %r5;"""
    out, data = np.zeros(32, np.uint32), np.arange(32, dtype=np.uint32)
    ptx.run(body, "u64 out, u64 data", [out, data], shared=".shared .align 128 .b8 area[128];")
    assert (out == np.arange(32) + 100).all()


def test_another_sms_store_is_seen_behind_an_acquire(ptx: Any) -> None:
    """Data that lies in the L1 since before the other SM changed it is read anew once its flag was acquired."""
    body = f"""{BASE} mov.u32 %r1, %ctaid.x; ld.global.u32 %r3, [%d1]; setp.eq.u32 %p1, %r1, 1; @%p1 bra READER;
        nanosleep.u32 2000; mov.u32 %r5, 77; st.global.u32 [%d1], %r5; bar.warp.sync -1; st.release.gpu.global.u32 [%data+4096], %r5; bra DONE;
        READER: ld.acquire.gpu.global.u32 %r6, [%data+4096]; setp.eq.u32 %p2, %r6, 0; @%p2 bra READER; ld.global.u32 %r7, [%d1]; st.global.u32 [%d2], %r7; DONE:"""
    out, data = np.zeros(32, np.uint32), np.zeros(2048, np.uint32)
    ptx.run(body, "u64 out, u64 data", [out, data], grid=2, machine=load_machine("h200", ("chip.sms=2",)))
    assert (out == 77).all()


def test_the_machine_file_says_what_was_measured() -> None:
    """Hit latency: the median of rings of 32 to 160 KB."""
    chases = {params: value for (name, params), value in measured().items() if name == "l1_chase"}
    rows = [v for params, v in chases.items() if params.startswith("load=ld.global;") and "bytes=65536" in params]
    assert rows and load_machine("h200").value("unit.l1.hit_cy") == round(rows[0])
