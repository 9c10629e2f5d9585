"""tcgen05.cp and tcgen05.shift: which bytes go where, order, time, faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isa.descriptors import matrix_descriptor
from isa.ops.tcgen05_copy import FORMATS, SHAPES
from tests.emu.units.tcgen05_reference import address
from tests.emu.units.tmem import found, registers, run, show

WORDS = 4096
# `in` to shared memory; `work` in thread 0, with %d10 the descriptor; commit, wait; columns 0 to 15 of all lanes and the
# cycles of it to `out`.
BODY = """
    .shared .align 1024 .b8 area[{bytes}];
    mov.u32 %r200, area; shl.b32 %r201, %r1, 2; add.u32 %r200, %r200, %r201; mov.u32 %r202, 0;
FILL: ld.global.u32 %r203, [%d1]; st.shared.u32 [%r200], %r203; add.u32 %r200, %r200, 512; add.s64 %d1, %d1, 512;
    add.u32 %r202, %r202, 1; setp.lt.u32 %p2, %r202, {rows}; @%p2 bra FILL;
    mov.u32 %r210, bar; setp.eq.u32 %p3, %r1, 0; @%p3 mbarrier.init.shared.b64 [%r210], 1;
    fence.proxy.async; bar.sync 0;
    mov.u32 %r221, area; shr.u32 %r221, %r221, 4; cvt.u64.u32 %d9, %r221; add.s64 %d10, %d9, {descriptor};
    setp.eq.u64 %p7, %d10, 7; @%p7 trap; mov.u32 %r280, %clock;
    {work}
    @%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r210];
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r210], 0; @!%p4 bra WAIT;
    mov.u32 %r281, %clock; sub.u32 %r282, %r281, %r280;
    tcgen05.ld.sync.aligned.32x32b.x16.b32 {registers}, [%r6]; tcgen05.wait::ld.sync.aligned;
    {show}"""


def execute(work: str, descriptor: int, data: np.ndarray, **options: Any) -> tuple[np.ndarray, int, Any]:
    """Cells [16 columns][128 lanes], the cycles of the work, the result."""
    body = BODY.format(
        work=work.replace("tcgen05", "@%p3 tcgen05"), descriptor=descriptor, bytes=4 * data.size, rows=data.size // 128, registers=registers(16),
        show=show(16, 128) + show(1, 128, first=282, row=16),
    )  # fmt: skip
    out, result = run(body, data, 17 * 128, block=128, **options)
    return out[: 16 * 128].reshape(16, 128), int(out[16 * 128]), result


def lanes_of(shape: str, r: int) -> list[int]:
    """The lanes that a row goes to (CUTLASS's copy_traits_sm100.hpp)."""
    match shape:
        case "4x256b":
            return [32 * r]
        case "64x128b.warpx2::02_13":
            return [r, r + 64]
        case "64x128b.warpx2::01_23":
            first = r % 32 + r // 32 * 64
            return [first, first + 32]
        case "32x128b.warpx4":
            return [r, r + 32, r + 64, r + 96]
        case _:
            return [r]


def unpacked(chunk: np.ndarray, format: str) -> np.ndarray:
    """16 bytes as they are in Tensor Memory."""
    if not format:
        return chunk
    bits = 4 if "b4" in format else 6
    line = np.unpackbits(chunk, bitorder="little")[: 16 * bits].reshape(16, bits)
    values = (line << np.arange(bits, dtype=np.uint8)).sum(1).astype(np.uint8)
    return values << 2 if bits == 4 else values


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("swizzle", ["none", "128B", "32B"])
def test_where_bytes_go(shape, format, swizzle):
    data = np.random.default_rng(3).integers(0, 1 << 32, WORDS, dtype=np.uint32)
    rows, width = int(shape.split("x")[0]), 32 if "256b" in shape else 16
    strides = {"none": (128, 256), "128B": (0, 1024), "32B": (0, 256)}[swizzle]
    descriptor = matrix_descriptor(0, lbo=strides[0], sbo=strides[1], swizzle=swizzle)
    down = 31 if shape == "4x256b" else 0
    words = f".{format}" if format else ""
    work = f"tcgen05.cp.cta_group::1.{shape}{words} [%r4 + {(down << 16) + 3}], %d10;"
    cells, _, result = execute(work, descriptor, np.resize(data, 4096 * 2))
    assert not found(result)
    memory, expected = np.resize(data, 4096 * 2).view(np.uint8), np.full((16, 128), 0xFFFFFFFF, np.uint32)
    for r in range(rows):
        for c in range(width // 16):
            at = [address(descriptor, 0, 1, r, 16 * c + i, 0) for i in range(16)]
            values = unpacked(memory[at], format).view(np.uint32)
            for lane in lanes_of(shape, r):
                expected[3 + 4 * c : 7 + 4 * c, down + lane] = values
    assert np.array_equal(cells, expected)


NARROW = matrix_descriptor(0, lbo=128, sbo=256, swizzle="none")
DATA = np.arange(WORDS, dtype=np.uint32)
FULL = "tcgen05.cp.cta_group::1.128x256b [%r4], %d10;"


def test_shift():
    """Every lane takes what the next one had, but the last one of each quarter, which .4x256b renews."""
    before, _, _ = execute(FULL, NARROW, DATA)
    after, _, result = execute(f"{FULL} tcgen05.shift.cta_group::1.down [%r4 + {32 << 16}];", NARROW, DATA)
    expected = before.copy()
    for lane in range(32, 128):
        if lane % 32 != 31:
            expected[:8, lane] = before[:8, lane + 1]
    assert np.array_equal(after, expected) and not found(result)
    work = f"{FULL} tcgen05.shift.cta_group::1.down [%r4]; tcgen05.cp.cta_group::1.4x256b [%r4 + {31 << 16}], %d10;"
    both, _, _ = execute(work, NARROW, DATA)
    assert np.array_equal(both[:8, 31::32], before[:8, :4]) and np.array_equal(both[:8, :31], before[:8, 1:32])


@pytest.mark.parametrize("copies", [1, 2, 4, 8])
def test_time(copies):
    """168 cycles for one, about 68 more for each further one (a public analysis of a B200, hardware-numbers 5.2)."""
    _, cycles, _ = execute(FULL * copies, NARROW, DATA)
    assert abs(cycles - (168 + 68 * (copies - 1))) <= 1


def test_a_full_queue_stalls():
    _, _, result = execute(FULL * 12, NARROW, DATA)
    assert result.stalls["main"]["math_pipe_throttle"] > 200


@pytest.mark.parametrize(
    ("work", "rule", "words"),
    [
        ("tcgen05.cp.cta_group::1.128x256b [%r4 + 65536], %d10;", "TM102", "lanes beyond 127"),
        ("tcgen05.cp.cta_group::1.128x256b [%r4 + 505], %d10;", "TM102", "8 columns"),
        ("tcgen05.cp.cta_group::1.128x256b [%r4 + 60], %d10;", "TM101", "column 64"),
        ("tcgen05.cp.cta_group::1.4x256b [%r4 + 2097152], %d10;", "TM102", "lanes beyond 127"),
        ("tcgen05.shift.cta_group::1.down [%r4 + 65536];", "TM111", "multiple of 32"),
        ("mov.u64 %d10, 4503599627370496; tcgen05.cp.cta_group::1.128x256b [%r4], %d10;", "TC102", "version"),
        ("add.s64 %d10, %d10, 14000; tcgen05.cp.cta_group::1.128x256b [%r4], %d10;", "TC103", "outside shared memory"),
    ],
)
def test_faults(work, rule, words):
    _, _, result = execute(work, NARROW, DATA, columns=64 if rule == "TM101" else 512)
    (finding,) = found(result)
    assert finding.rule == rule and words in finding.message and work.split()[0][:10] in finding.message
