"""Kernels for tests of tcgen05: an instruction between memories that are filled and shown, and a clock around products."""

from __future__ import annotations

from typing import Any

import numpy as np

import emu
from emu.machine import load_machine
from emu.units.tcgen05_math import D_F16, D_F32, D_S32
from isa.descriptors import instruction_descriptor
from tests.emu.units.tcgen05_reference import Case

TEXT = """
.version 9.0
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry test(.param .u64 shared, .param .u64 tensor, .param .u64 out)
{{
    .reg .pred %p<8>; .reg .b32 %r<100>; .reg .b64 %d<20>;
    .shared .align 16 .b32 slot[4]; .shared .align 8 .b64 bar[4];
    ld.param.u64 %d1, [shared]; ld.param.u64 %d2, [tensor]; ld.param.u64 %d3, [out];
    mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r1, 0;
    mul.wide.u32 %d4, %r1, 4; add.s64 %d1, %d1, %d4; add.s64 %d2, %d2, %d4; add.s64 %d3, %d3, %d4;
    mov.u32 %r3, tile; mad.lo.u32 %r4, %r1, 4, %r3; add.u32 %r5, %r3, {shared};
FILL:
    ld.global.u32 %r6, [%d1]; st.shared.u32 [%r4], %r6; add.s64 %d1, %d1, 512; add.u32 %r4, %r4, 512;
    setp.lt.u32 %p3, %r4, %r5; @%p3 bra FILL;
    @%p2 mbarrier.init.shared.b64 [bar], 1; @%p2 mbarrier.init.shared.b64 [bar + 8], 1;
    @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
    fence.proxy.async.shared::cta; bar.sync 0;
    shl.b32 %r7, %r2, 21; mov.u32 %r8, 0;  // the warp's lanes
STORE:
    {fetch}
    add.u32 %r9, %r7, %r8; tcgen05.st.sync.aligned.32x32b.x8.b32 [%r9], {{{registers}}};
    add.s64 %d2, %d2, 4096; add.u32 %r8, %r8, 8; setp.lt.u32 %p3, %r8, 512; @%p3 bra STORE;
    tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
    {body}
    bar.sync 0;
    mov.u32 %r8, 0;
LOAD:
    add.u32 %r9, %r7, %r8; tcgen05.ld.sync.aligned.32x32b.x8.b32 {{{registers}}}, [%r9]; tcgen05.wait::ld.sync.aligned;
    {show}
    add.s64 %d3, %d3, 4096; add.u32 %r8, %r8, 8; setp.lt.u32 %p3, %r8, 512; @%p3 bra LOAD;
    bar.sync 0;
    @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 512;
    ret;
}}
"""
REGISTERS = ", ".join(f"%r{20 + k}" for k in range(8))
FETCH = " ".join(f"ld.global.u32 %r{20 + k}, [%d2 + {512 * k}];" for k in range(8))
SHOW = " ".join(f"st.global.u32 [%d3 + {512 * k}], %r{20 + k};" for k in range(8))
COMMIT = "@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
CLOCKS = """
.version 9.0
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 tile[];
.visible .entry clocks(.param .u64 out, .param .u32 count)
{{
    .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<8>;
    .shared .align 16 .b32 slot[4]; .shared .align 8 .b64 bar;
    ld.param.u64 %d1, [out]; ld.param.u32 %r1, [count];
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
    mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; bar.warp.sync -1;
    mov.u32 %r3, 0; mov.u32 %r4, 256; mov.b64 %d2, {a:#x}; mov.b64 %d3, {b:#x}; mov.u32 %r5, {idesc:#x};
    mov.u32 %r6, %clock;
MORE:
    @%p1 tcgen05.mma.cta_group::1.kind::{kind} [%r3], {operand}, %d3, %r5{scales}, 1;
    sub.u32 %r1, %r1, 1; setp.ne.u32 %p2, %r1, 0; @%p2 bra MORE;
    @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra WAIT;
    mov.u32 %r7, %clock;
    sub.u32 %r7, %r7, %r6; st.global.u32 [%d1], %r7;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 512;
    ret;
}}
"""


def run(body: str, shared: Any, tensor: Any, machine: str = "b200", target: str = "sm_100a", **options: Any) -> Any:
    """Tensor Memory behind the body, and the result; the body has %p2 for thread 0 and the mbarriers bar, bar + 8."""
    text = TEXT.format(
        body=body, target=target, shared=shared.nbytes, registers=REGISTERS, fetch=FETCH, show=SHOW,
    )  # fmt: skip
    out = np.zeros((512, 128), np.uint32)
    result = emu.launch(
        emu.load(text=text), machine=load_machine(machine, ("chip.sms=1",)), block=128,
        args=[shared.view(np.uint32), tensor, out], shared_bytes=shared.nbytes, **({"max_cycles": 1_000_000} | options),
    )  # fmt: skip
    return out, result


def address_of_tile() -> int:
    """The shared address of dynamic memory in `TEXT`."""
    text = TEXT.format(body="", target="sm_100a", shared=512, registers=REGISTERS, fetch=FETCH, show=SHOW)
    program = emu.load(text=text).program
    from isa.program import SHARED_BASE

    return -(-(SHARED_BASE + program.shared_static) // 1024) * 1024


def product(case: Case, kind: str, shift: int, guard: str = "@%p2 ", first: int = 0) -> str:
    """The instruction of a case whose shared memory lies `shift` bytes into the CTA's."""
    types = {D_F16: "f16", D_F32: "f32", D_S32: "s32"}
    names = [x.replace("packed", "e2m1") for x in (case.a, case.b)]
    idesc = instruction_descriptor(
        kind, *names, case.m, case.n, d=types[case.d_type], negate_a=bool(case.negate), transpose_a=bool(case.trans_a),
        transpose_b=bool(case.trans_b), saturate=bool(case.saturate), scale_type="ue8m0" if case.ue8m0 else "ue4m3",
        scale_a=case.sfa_id, scale_b=case.sfb_id,
    )  # fmt: skip
    descs = [desc + (shift >> 4) for desc in (case.desc_a, case.desc_b)]
    lane = case.first_lane << 16
    lines = [
        f"mov.u32 %r50, {lane + case.D}; mov.u32 %r51, {lane + case.A}; mov.u32 %r52, {case.SFA}; mov.u32 %r53, {case.SFB};"
    ]
    lines += [f"mov.b64 %d10, {descs[0]:#x}; mov.b64 %d11, {descs[1]:#x}; mov.u32 %r54, {idesc:#x};"]
    lines += [f"mov.u32 %r{60 + k}, {word:#x};" for k, word in enumerate(case.mask)]
    a = "[%r51]" if case.tensor else "%d10"
    ws = ".ws" if case.ws else ""
    size = {0: "", 1: ".block_scale", 2: ".block_scale.block32", 4: ".block_scale.block16"}[case.blocks]
    more = ", [%r52], [%r53]" if case.blocks else ", {%r60, %r61, %r62, %r63}" if any(case.mask) else ""
    scale = f", {case.scale_d}" if case.scale_d else ""
    opcode = f"tcgen05.mma{ws}.cta_group::1.kind::{kind}{size}"
    return "\n".join([*lines, f"{guard}{opcode} [%r50], {a}, %d11, %r54{more}, {case.accumulate}{scale};"])
