"""Bulk copies of ranges, their reductions, st.async and red.async; tensor reductions and maps made on the device."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from emu import TensorMap
from emu.machine import load_machine
from isa import bits
from isa.bits import BF16, F16, F32
from tests.isa.ops.cases import shorts, words

SHARED = ".shared .align 1024 .b8 data[8192]; .shared .align 8 .b64 bar;"
ONE = "mov.u32 %r90, %tid.x; setp.ne.u32 %p9, %r90, 0; @%p9 bra DONE;"
ARM = "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], {0};"
WAIT = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p8, [bar], 0; @!%p8 bra WAIT;"
LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
GROUP = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


def run(ptx, body, params, args, **options):
    return ptx.run(f"{ONE} {body} DONE:", params, args, shared=SHARED, **options)


@pytest.mark.parametrize("size", [16, 48, 1024, 8192])
def test_there_and_back(ptx, size):
    x, y = words(1, 2050)[:2048].copy(), np.zeros(2048, np.uint32)
    body = f"""{ARM.format(size)} mov.u32 %r1, {size}; mov.u32 %r2, data; mov.u32 %r3, bar;
        {LOAD} [%r2], [%x], %r1, [%r3]; {WAIT}
        cp.async.bulk.global.shared::cta.bulk_group [%y], [%r2], %r1; {GROUP}"""
    result = run(ptx, body, "u64 x, u64 y", [x, y])
    assert not result.findings
    assert (y[: size // 4] == x[: size // 4]).all() and not y[size // 4 :].any()


def test_a_skipped_wait_sees_old_data(ptx):
    x, y = np.full(256, 7, np.uint32), np.zeros(2, np.uint32)
    body = f"""{ARM.format(1024)} mov.u32 %r2, data; mov.u32 %r3, bar; st.shared.u32 [data], 1;
        {LOAD} [%r2], [%x], 1024, [%r3]; ld.shared.u32 %r4, [data]; st.global.u32 [%y], %r4; {WAIT}
        ld.shared.u32 %r4, [data]; st.global.u32 [%y+4], %r4;"""
    run(ptx, body, "u64 x, u64 y", [x, y])
    assert y.tolist() == [1, 7]


def half(f, op, a, b):
    return bits.add(f, a, b) if op == "add" else bits.extremum(f, a, b, op == "max")


REDUCTIONS = [("add", "u32"), ("min", "s32"), ("max", "u64"), ("inc", "u32"), ("xor", "b64"), ("add", "f32"), ("add", "f16"), ("max", "bf16")]  # fmt: skip


@pytest.mark.parametrize("op, type", REDUCTIONS)
def test_reductions(ptx, op, type):
    make = shorts if type in ("f16", "bf16") else words
    x, y = make(3, 512)[:256].copy(), make(4, 512)[:256].copy()
    if op == "inc":
        x, y = x % 9, y % 9
    expected = y.copy()
    wide = {"u64": np.uint64, "b64": np.uint64, "s32": np.int32}.get(type, x.dtype)
    a, b = x.view(wide), expected.view(wide)
    for k in range(len(b)):
        p, q = int(a[k]), int(b[k])
        if type == "f32":
            b[k] = bits.add(F32, q, p, ftz=True)
        elif type in ("f16", "bf16"):
            b[k] = half(F16 if type == "f16" else BF16, op, q, p)
        elif op == "inc":
            b[k] = 0 if q >= p else q + 1
        else:
            b[k] = {"add": (p + q) & 0xFFFFFFFF, "min": min(p, q), "max": max(p, q), "xor": p ^ q}[op]
    opcode = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}{'.noftz' if 'f16' in type and op == 'add' else ''}.{type}"
    body = f"""{ARM.format(x.nbytes)} mov.u32 %r2, data; mov.u32 %r3, bar;
        {LOAD} [%r2], [%x], {x.nbytes}, [%r3]; {WAIT}
        {opcode} [%y], [%r2], {x.nbytes}; {GROUP}"""
    result = run(ptx, body, "u64 x, u64 y", [x, y])
    assert not result.findings
    assert [hex(v) for v in y.tolist()] == [hex(v) for v in expected.tolist()]


def test_tensor_reduction(ptx):
    """Only the part of the box inside the tensor is added to."""
    x = np.random.default_rng(1).standard_normal((6, 32)).astype(np.float32)
    before = x.copy()
    body = (
        """mov.u32 %r2, 8192; mov.u32 %r1, 0;
        FILL: mov.f32 %f1, 0f3F800000; mov.u32 %r3, data; add.u32 %r3, %r3, %r1; st.shared.f32 [%r3], %f1;
        add.u32 %r1, %r1, 4; setp.lt.u32 %p1, %r1, 1024; @%p1 bra FILL;
        fence.proxy.async.shared::cta; mov.u32 %r3, data;
        cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%map, {16, 3}], [%r3]; """
        + GROUP
    )
    result = run(ptx, body, "tensormap map", [TensorMap(x, box=(16, 8), swizzle=0)])
    assert not result.findings
    before[3:, 16:] += 1
    assert np.array_equal(x, before)


@pytest.mark.parametrize(
    "line, rule",
    [
        ("mov.u32 %r1, 24; {load} [%r2], [%x], %r1, [%r3];", "TX105"),
        ("add.u64 %d1, %x, 8; {load} [%r2], [%d1], 32, [%r3];", "MEM104"),
        ("{load} [%r2+8], [%x], 32, [%r3];", "TX103"),
        ("{load} [%r2], [%x+1024], 32, [%r3];", "MEM103"),
        ("mov.u32 %r1, 65536; {load} [%r2], [%x], %r1, [%r3];", "MEM101"),
    ],
)
def test_faults(ptx, line, rule):
    body = f"{ARM.format(32)} mov.u32 %r2, data; mov.u32 %r3, bar; {line.format(load=LOAD)} {WAIT}"
    result = run(ptx, body, "u64 x", [np.zeros(256, np.uint32)], max_cycles=20_000)
    assert [f.rule for f in result.findings if f.severity == "fault"] == [rule], result.findings


def test_asynchronous_stores(ptx):
    """Every lane stores and adds; nothing is there before the barrier says so."""
    out = np.zeros(32 * 3, np.uint32)
    body = """
        mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mov.u32 %r3, bar; mov.u32 %r2, data;
        @%p1 mbarrier.init.shared.b64 [bar], 1;
        mad.lo.u32 %r4, %r1, 8, %r2; st.shared.u32 [%r4], %r1; st.shared.u32 [%r4+4], 5;
        bar.sync 0;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
        add.u32 %r5, %r1, 100;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4], %r5, [%r3];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r4+4], %r1, [%r3];
        ld.shared.u32 %r6, [%r4]; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %out, %d1; st.global.u32 [%d1], %r6;
        WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p8, [bar], 0; @!%p8 bra WAIT;
        ld.shared.u32 %r6, [%r4]; st.global.u32 [%d1+128], %r6;
        ld.shared.u32 %r6, [%r4+4]; st.global.u32 [%d1+256], %r6;
    """
    result = ptx.run(body, "u64 out", [out], shared=SHARED)
    assert not result.findings
    lanes = np.arange(32)
    assert out.tolist() == [*lanes, *(lanes + 100), *(lanes + 5)]


def test_a_map_made_on_the_device(ptx):
    """Every field replaced in a zeroed block, as Triton does it; then a load through the map."""
    x = np.arange(64 * 40, dtype=np.float16).reshape(40, 64)
    scratch, out = np.zeros(128, np.uint8), np.zeros((8, 64), np.float16)
    body = f"""
        mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, data; shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r2;
        st.shared.u32 [%r3], 0; bar.warp.sync -1;
        cvt.u64.u32 %d1, %r2; mov.u64 %d2, 128; mov.u32 %r10, 64; mov.u32 %r11, 8; mov.u32 %r12, 40; mov.u32 %r13, 1;
        @!%p1 bra MADE;
        tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%d1], %x;
        tensormap.replace.tile.rank.shared::cta.b1024.b32 [%d1], 1;
        tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%d1], 0, %r10;
        tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%d1], 1, %r11;
        tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%d1], 0, %r10;
        tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%d1], 1, %r12;
        tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%d1], 0, %d2;
        tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%d1], 0, %r13;
        tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%d1], 1, %r13;
        tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%d1], 6;
        tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%d1], 0;
        MADE: bar.warp.sync -1;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%scratch], [%d1], 128;
        fence.proxy.tensormap::generic.acquire.gpu [%scratch], 128;
        @!%p1 bra DONE;
        {ARM.format(1024)} mov.u32 %r3, bar; add.u32 %r2, %r2, 1024;
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%scratch, {{0, 5}}], [%r3];
        {WAIT} cp.async.bulk.global.shared::cta.bulk_group [%out], [%r2], 1024; {GROUP}
        DONE:
    """
    result = ptx.run(body, "u64 x, u64 scratch, u64 out", [x, scratch, out], shared=SHARED)
    assert not result.findings, result.findings
    assert np.array_equal(out, x[5:13])


def test_bfloat_tensor_reduction(ptx):
    x = np.ones((8, 64), ml_dtypes.bfloat16)
    body = f"""mov.u32 %r2, data; mov.u32 %r3, bar; {ARM.format(1024)}
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%map, {{0, 0}}], [%r3]; {WAIT}
        cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%map, {{0, 0}}], [%r2]; {GROUP}"""
    assert not run(ptx, body, "tensormap map", [TensorMap(x, box=(64, 8))]).findings
    assert (x == 2).all()


CANCEL = """mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r9, 0;
    mbarrier.init.shared.b64 [bar], 1;
NEXT: mad.lo.u32 %r3, %r2, {nx}, %r1; mul.wide.u32 %d1, %r3, 4; add.u64 %d1, %d1, %out;
    atom.global.add.u32 %r4, [%d1], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [data], [bar];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p8, [bar], %r9; @!%p8 bra WAIT;
    xor.b32 %r9, %r9, 1;
    ld.shared.b128 %q1, [data];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q1; @!%p1 bra DONE;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%r1, %r2, %r5, _}}, %q1;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r6, %q1; setp.ne.u32 %p2, %r1, %r6; @%p2 trap;
    bra NEXT;"""


@pytest.mark.parametrize("sms", [1, 3])
def test_cancelled_ctas_are_taken_over_once(ptx, sms):
    """Every index is worked on once, whether its CTA was launched or cancelled, in the order of the grid."""
    machine = load_machine("b200", (f"chip.sms={sms}", "sm.ctas=2"))
    nx, ny = 7, 5
    out = np.zeros(nx * ny, np.uint32)
    result = ptx.run(
        f"{ONE} .reg .b128 %q<2>; {CANCEL.format(nx=nx)} DONE:", "u64 out", [out], shared=SHARED, target="sm_100a",
        grid=(nx, ny), machine=machine,
    )  # fmt: skip
    assert not result.findings and (out == 1).all()


def test_cancel_into_a_wrong_place_is_a_fault(ptx):
    body = CANCEL.format(nx=1).replace("[data], [bar]", "[data+8], [bar]", 1)
    out = np.zeros(1, np.uint32)
    result = ptx.run(f"{ONE} .reg .b128 %q<2>; {body} DONE:", "u64 out", [out], shared=SHARED, target="sm_100a")
    assert result.findings
