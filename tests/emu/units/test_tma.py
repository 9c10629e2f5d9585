"""Bulk tensor copies against a NumPy model of PTX ISA 5.5 and of what an H200 did with narrow boxes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from programs.tensormap import TensorMap

AREA = 16384
SHARED = f".shared .align 1024 .b8 area[{AREA}]; .shared .align 8 .b64 bar;"
# 128 threads bring `image` to shared memory and, at the end, take all of it to `after`; thread 0 copies in between.
FRAME = """
    mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, 16; cvt.u32.u64 %r1, %d0; mov.u32 %r2, area; add.u32 %r1, %r1, %r2;
    add.u64 %d1, %image, %d0; add.u64 %d2, %after, %d0; add.u32 %r2, %r2, %at;
    .for i in (0, 8) {{ ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%d1 + 2048*i]; st.shared.v4.u32 [%r1 + 2048*i], {{%r10, %r11, %r12, %r13}}; }}
    .for i in (0, 5) {{ ld.global.u32 %r{{20+i}}, [%coords + 4*i]; }}
    setp.ne.u32 %p1, %r0, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [bar], 1; fence.proxy.async.shared::cta; READY: bar.sync 0; @%p1 bra WAIT;
    {copy}
    bar.sync 0;
    .for i in (0, 8) {{ ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r1 + 2048*i]; st.global.v4.u32 [%d2 + 2048*i], {{%r10, %r11, %r12, %r13}}; }}
"""
LOAD = """mbarrier.arrive.expect_tx.shared.b64 _, [bar], %bytes; tma.load.{rank}d [%r2], [%map, {coords}], [bar];
    WAIT: mbarrier.wait [bar], 0;"""
STORE = "tma.store.{rank}d [%map, {coords}], [%r2]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; WAIT:"
PARAMS = "tensormap map, u64 image, u64 after, u64 coords, u32 at, u32 bytes"


def body(copy: str, rank: int) -> str:
    listed = "{" + ", ".join(f"%r{20 + d}" for d in range(rank)) + "}"
    return FRAME.format(copy=copy.format(rank=rank, coords=listed))


@dataclass
class Case:
    """A tensor (shape innermost last), a box (innermost first), and where its corner is put."""

    array: np.ndarray
    map: TensorMap
    coords: np.ndarray
    at: int

    def places(self) -> Any:
        """(shared byte address relative to area, index into the array or None) of every element of the box."""
        box, steps = self.map.box, self.map.element_strides or (1,) * len(self.map.box)
        size, swizzle = self.array.itemsize, self.map.swizzle
        pitch = max(box[0] * size, swizzle)
        outer = [range(-(-n // s)) for n, s in zip(box[1:], steps[1:], strict=True)]
        for row, place in enumerate(itertools.product(*reversed(outer))):
            for x in range(box[0]):
                address = self.at + row * pitch + x * size
                if swizzle:
                    address ^= (address >> 7) % (swizzle // 16) * 16
                index = [c + s * k for c, s, k in zip(self.coords[1:], steps[1:], reversed(place), strict=True)]
                index = [*reversed([int(i) for i in index]), int(self.coords[0]) + x]
                inside = all(0 <= i < n for i, n in zip(index, self.array.shape, strict=True))
                yield address, tuple(index) if inside else None


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 5
    swizzle = int(rng.choice([0, 32, 64, 128]))
    dtype = np.dtype(rng.choice(["uint8", "uint16", "uint32", "float32", "uint64"]))
    inner_bytes = 16 * int(rng.integers(1, (swizzle or 160) // 16 + 1))
    box = [inner_bytes // dtype.itemsize]
    room = AREA // max(inner_bytes, swizzle)
    steps = [1]
    for _ in range(rank - 1):
        box.append(int(rng.integers(1, min(room, 12) + 1)))
        room //= box[-1]
        steps.append(int(rng.choice([1, 1, 2, 3])))
    unit = 16 // dtype.itemsize
    shape = [int(rng.integers(1, 9)) for _ in range(rank - 1)] + [unit * int(rng.integers(1, 14))]
    array = rng.integers(1, 200, shape).astype(dtype)
    coords = np.array(
        [int(rng.integers(-b, n + 2)) for b, n in zip(box, reversed(shape), strict=True)] + [0] * (5 - rank), np.int32
    )
    if seed % 3 == 0:
        coords[:rank] = np.maximum(coords[:rank], 0) // 2
    need = max(inner_bytes, swizzle) * int(np.prod(box[1:]))
    at = int(rng.integers(0, (AREA - need) // 128 + 1)) * 128
    kept = tuple(box)
    map_ = TensorMap(array, kept, swizzle, element_strides=tuple(steps) if max(steps) > 1 else ())
    return Case(array, map_, coords[:rank], at)


def execute(ptx: Any, copy: str, case: Case, image: np.ndarray) -> tuple[np.ndarray, Any]:
    rank = len(case.map.box)
    after = np.zeros(AREA, np.uint8)
    coords = np.zeros(5, np.int32)
    coords[:rank] = case.coords
    steps = case.map.element_strides or (1,) * rank
    moved = case.array.itemsize * int(np.prod([-(-n // s) for n, s in zip(case.map.box, steps, strict=True)]))
    args = [case.map, image, after, coords, case.at, moved]
    return after, ptx.run(body(copy, rank), PARAMS, args, shared=SHARED, block=128)


@pytest.mark.parametrize("seed", range(60))
def test_loads(ptx: Any, seed: int) -> None:
    """Every byte of shared memory, also those that the box must leave alone; zeros from outside the tensor."""
    case = random_case(seed)
    image = np.random.default_rng(seed).integers(0, 256, AREA, dtype=np.uint8)
    expected = image.copy()
    for address, index in case.places():
        value = np.zeros(1, case.array.dtype) if index is None else case.array[index].reshape(1)
        expected[address : address + case.array.itemsize] = value.view(np.uint8)
    after, result = execute(ptx, LOAD, case, image)
    assert result.deadlock is None and not result.findings, result
    assert np.array_equal(after, expected)


@pytest.mark.parametrize("seed", range(60, 100))
def test_stores(ptx: Any, seed: int) -> None:
    """Every element of the tensor: those in the box come from shared memory, what lies outside is dropped."""
    case = random_case(seed)
    image = np.random.default_rng(seed).integers(0, 256, AREA, dtype=np.uint8)
    expected = case.array.copy()
    for address, index in case.places():
        if index is not None:
            expected[index] = image[address : address + expected.itemsize].view(expected.dtype)[0]
    after, result = execute(ptx, STORE, case, image)
    assert result.deadlock is None and not result.findings, result
    assert case.array.tobytes() == expected.tobytes() and np.array_equal(after, image)


def test_fill_with_nan(ptx: Any) -> None:
    array = np.ones((4, 8), np.float32)
    case = Case(array, TensorMap(array, (8, 8), 0, fill="nan"), np.array([4, 0]), 0)
    after, _ = execute(ptx, LOAD, case, np.zeros(AREA, np.uint8))
    box = after[: 8 * 8 * 4].view(np.float32).reshape(8, 8)
    assert (box[:4, :4] == 1).all() and np.isnan(box[4:]).all() and np.isnan(box[:, 4:]).all()


def simple(swizzle: int = 0) -> Case:
    array = np.arange(16 * 16, dtype=np.uint32).reshape(16, 16)
    return Case(array, TensorMap(array, (8, 4), swizzle), np.array([0, 0]), 0)


def damaged(field: slice, value: int) -> str:
    """PTX that copies the map to global memory with one 32-bit word changed, and uses that one."""
    return f"""mov.u64 %d20, copied; .for i in (0, 16) {{ ld.global.b64 %d21, [%map + 8*i]; st.global.b64 [%d20 + 8*i], %d21; }}
        mov.u32 %r30, {value}; st.global.b32 [%d20 + {field.start}], %r30; mov.u64 %map, %d20; fence.proxy.tensormap::generic.acquire.gpu [%map], 128;"""


def with_damage(ptx: Any, copy: str, damage: str, case: Case, **options: Any) -> Any:
    text = FRAME.format(copy=damage + copy.format(rank=2, coords="{%r20, %r21}"))
    args = [case.map, np.zeros(AREA, np.uint8), np.zeros(AREA, np.uint8), np.zeros(5, np.int32), case.at, 128]
    outside = ".global .align 64 .b8 copied[192];"
    return ptx.run(text, PARAMS, args, shared=SHARED, block=128, outside=outside, **options)


@pytest.mark.parametrize("copy", [LOAD, STORE], ids=["load", "store"])
@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        ("mov.u64 %map, 4096;", "TX101"),  # not mapped
        ("add.u64 %map, %map, 16;", "TX101"),  # misaligned
        (damaged(slice(8, 12), 0x00020004), "TX101"),  # interleaved
        (damaged(slice(8, 12), 0x0000FF01), "TX101"),  # element type 255
        (damaged(slice(8, 12), 0x00000200), "TX102"),  # rank 1
        (damaged(slice(36, 40), 0), "TX101"),  # empty box
        (damaged(slice(36, 40), 7), "TX101"),  # rows of 28 bytes
        (damaged(slice(36, 40), 0x7FFFFFFF), "TX101"),
        (damaged(slice(20, 24), 0x10000), "MEM103"),  # more rows than the array has, and row 0x8000 wanted
        ("mov.u32 %r20, 0;" + damaged(slice(4, 8), 0x7FFF0000), "MEM103"),  # base address elsewhere
        ("add.u32 %r2, %r2, 8;", "TX103"),
        (f"add.u32 %r2, %r2, {AREA + 2048};", "MEM101"),
        ("mov.u32 %r2, 0xfffffff0;", "MEM101"),
        ("mov.u32 %r2, 0x1000000;", "MEM101"),
    ],
)
def test_faults(ptx: Any, copy: str, damage: str, rule: str) -> None:
    """Bad maps and bad addresses, never a crash; the line is the copy's, also for what shows only when it is executed."""
    far = "mov.u32 %r21, 0x8000;" if "+ 20]" in damage else ""
    result = with_damage(ptx, copy, damage + far, simple())
    assert [f.rule for f in result.findings] == [rule], result.findings
    assert "tma." in result.findings[0].message and result.exit_code() == 6


def test_swizzled_copies_need_128_byte_alignment(ptx: Any) -> None:
    result = with_damage(ptx, LOAD, "add.u32 %r2, %r2, 16;", simple(32))
    assert [f.rule for f in result.findings] == ["TX103"]


def test_store_to_a_read_only_array(ptx: Any) -> None:
    case = simple()
    case.array.flags.writeable = False
    result = with_damage(ptx, STORE, "", case)
    assert [f.rule for f in result.findings] == ["MEM105"]


def test_load_needs_a_live_barrier(ptx: Any) -> None:
    """At issue, and still at completion."""
    load = "tma.load.2d [%r2], [%map, {%r20, %r21}], [bar];"
    gone = "mbarrier.inval.shared.b64 [bar];"
    for text, rule in ((gone + load, "MB101"), (load + gone, "TX104")):
        result = with_damage(ptx, "WAIT: bar.sync 1, 128; nanosleep.u32 2000;", f"{text} bra WAIT;", simple())
        assert [f.rule for f in result.findings] == [rule]
        assert "tma.load" in result.findings[0].message
        assert (rule == "TX104") == ("it was invalidated" in result.findings[0].message)


def test_bulk_groups(ptx: Any) -> None:
    """Four stores, the first three a group each: wait_group N leaves N and waits for the others."""
    array = np.zeros((4, 8), np.uint32)
    out = np.zeros((3, 4), np.uint32)
    text = """
    mov.u32 %r1, area; mov.u32 %r2, 7; .for i in (0, 32) { st.shared.u32 [%r1 + 4*i], %r2; }
    fence.proxy.async.shared::cta; mov.u32 %r10, 0;
    .macro store(row) { mov.u32 %r11, row; tma.store.2d [%map, {%r10, %r11}], [%r1]; }
    .macro look(k) { .for i in (0, 4) { ld.global.u32 %r{17-i}, [%array + 96 - 32*i]; } st.global.v4.u32 [%out + 16*k], {%r14, %r15, %r16, %r17}; }
    mov.u32 %r0, %tid.x; setp.ne.u32 %p1, %r0, 0; @%p1 exit;
    store(0); cp.async.bulk.commit_group; store(1); cp.async.bulk.commit_group; store(2); cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 2; look(0); store(3); cp.async.bulk.wait_group 0; look(1);
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; look(2);
    """
    result = ptx.run(
        text, "tensormap map, u64 array, u64 out", [TensorMap(array, (8, 1), 0), array, out], shared=SHARED
    )
    assert not result.findings
    seen = (out == 7).tolist()
    assert seen[0][0] and not seen[0][3] and all(seen[1][:3]) and seen[2] == [True] * 4


def test_an_open_group_is_not_waited_for(ptx: Any) -> None:
    """`wait_group` waits for committed groups only: without the commit it returns at once (PTX ISA 9.7.9.25.3.3)."""
    text = """
    mov.u32 %r1, area; mov.u32 %r10, 0; mov.u32 %r0, %tid.x; setp.ne.u32 %p1, %r0, 0; @%p1 exit;
    tma.store.2d [%map, {{%r10, %r10}}], [%r1]; {commit}
    mov.u32 %r2, %clock; cp.async.bulk.wait_group 0; mov.u32 %r3, %clock; sub.u32 %r3, %r3, %r2; st.global.u32 [%out], %r3;
    """
    waits = []
    for commit in ("", "cp.async.bulk.commit_group;"):
        array, out = np.zeros((256, 8), np.uint32), np.zeros(1, np.uint32)
        result = ptx.run(
            text.format(commit=commit), "tensormap map, u64 out", [TensorMap(array, (8, 256), 0), out], shared=SHARED
        )
        assert not result.findings
        waits.append(int(out[0]))
    assert 4 * waits[0] < waits[1]


def test_lanes_copy_and_wait_on_their_own(ptx: Any) -> None:
    """Each lane loads its own row, and bulk groups belong to the lane that made them."""
    array = np.arange(32 * 4, dtype=np.uint32).reshape(32, 4)
    target = np.zeros_like(array)
    text = """
    mov.u32 %r0, %tid.x; mov.u32 %r1, area; mad.lo.u32 %r1, %r0, 16, %r1; mov.u32 %r10, 0;
    setp.ne.u32 %p1, %r0, 0; @%p1 bra GO; mbarrier.init.shared.b64 [bar], 32; GO: bar.warp.sync -1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16; tma.load.2d [%r1], [%from, {%r10, %r0}], [bar];
    mbarrier.wait [bar], 0; xor.b32 %r11, %r0, 1;
    tma.store.2d [%to, {%r10, %r11}], [%r1]; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
    """
    result = ptx.run(
        text, "tensormap from, tensormap to", [TensorMap(array, (4, 1), 0), TensorMap(target, (4, 1), 0)], shared=SHARED
    )
    assert not result.findings and result.deadlock is None
    assert np.array_equal(target, array[np.arange(32) ^ 1])


def test_more_copies_than_the_queue_holds(ptx: Any) -> None:
    """200 loads by one thread: issue waits for the queue, all bytes arrive."""
    array = np.arange(200 * 8, dtype=np.uint32).reshape(200, 8)
    out = np.zeros(1, np.uint32)
    text = """
    mov.u32 %r0, %tid.x; setp.ne.u32 %p1, %r0, 0; @%p1 exit; mov.u32 %r1, area; mov.u32 %r10, 0; mov.u32 %r11, 0;
    mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 6400;
    AGAIN: tma.load.2d [%r1], [%map, {%r10, %r11}], [bar]; add.u32 %r1, %r1, 32; add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, 200; @%p1 bra AGAIN;
    mbarrier.wait [bar], 0; mov.u32 %r1, area; mov.u32 %r2, 0; mov.u32 %r11, 0;
    SUM: ld.shared.u32 %r3, [%r1]; add.u32 %r2, %r2, %r3; add.u32 %r1, %r1, 4; add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, 1600; @%p1 bra SUM;
    st.global.u32 [%out], %r2;
    """
    ptx.run(text, "tensormap map, u64 out", [TensorMap(array, (8, 1), 0), out], shared=SHARED)
    assert out[0] == array.sum()
