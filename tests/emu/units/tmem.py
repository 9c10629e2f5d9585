"""A kernel that allocates Tensor Memory, for tests; and PTX's layouts of it, written down independently."""

from __future__ import annotations

from typing import Any

import numpy as np

import emu
from emu.machine import load_machine

TEXT = """
.version 9.0
.target {target}
.address_size 64
.visible .entry test(.param .u64 in, .param .u64 out)
{{
    .reg .pred %p<8>; .reg .b32 %r<300>; .reg .b64 %d<20>; .reg .f32 %f<8>;
    .shared .align 16 .b32 slot[4]; .shared .align 8 .b64 bar;
    ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out];
    mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4; add.s64 %d1, %d1, %d3; add.s64 %d2, %d2, %d3;
    mov.u32 %r2, slot; shr.u32 %r3, %r1, 5; setp.eq.u32 %p1, %r3, 0;
    @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], {columns};
    bar.sync 0; ld.shared.u32 %r4, [%r2];
    and.b32 %r5, %r3, 3; shl.b32 %r5, %r5, 21; add.u32 %r6, %r4, %r5;  // the warp's own lanes
    {body}
    bar.sync 0;
    @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, {columns};
    ret;
}}
"""
# Shape -> (lanes, registers a repetition, most repetitions), PTX ISA 9.7.16.2.3 and CUTLASS's copy_traits_sm100.hpp.
SHAPES = {
    "32x32b": (32, 1, 128),
    "16x64b": (16, 1, 128),
    "16x128b": (16, 2, 64),
    "16x256b": (16, 4, 32),
    "16x32bx2": (16, 1, 128),
}


def run(
    body: str, source: Any = None, out: int = 32, *, block: int = 32, columns: int = 512, target: str = "sm_100a",
    machine: str = "b200", overrides: tuple[str, ...] = (), **options: Any,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    """What the kernel wrote (uint32) and the result; the body has %r1 = tid, %r3 = warp, %r4 = base, %r6 = its own lanes,
    %d1 and %d2 = in and out, 4 bytes a thread."""
    kernel = emu.load(text=TEXT.format(body=body, columns=columns, target=target))
    given, written = np.array(0 if source is None else source, np.uint32).reshape(-1), np.zeros(out, np.uint32)
    machine = load_machine(machine, ("chip.sms=1", *overrides))
    options = {"max_cycles": 1_000_000} | options
    return written, emu.launch(kernel, machine=machine, block=block, args=[given, written], **options)


def found(result: Any) -> list[Any]:
    """Findings, but for what the assembler remarks about registers that only keep a place."""
    return [finding for finding in result.findings if finding.severity != "info"]


def registers(count: int, first: int = 10) -> str:
    """A vector of registers."""
    return "{" + ", ".join(f"%r{first + k}" for k in range(count)) + "}"


def show(count: int, block: int = 32, first: int = 10, row: int = 0) -> str:
    """Write registers to `out`, from a row of all threads on, one each."""
    return " ".join(f"st.global.u32 [%d2 + {4 * block * (row + k)}], %r{first + k};" for k in range(count))


def fetch(count: int, block: int = 32, first: int = 10) -> str:
    """Read registers from `in`."""
    return " ".join(f"ld.global.u32 %r{first + k}, [%d1 + {4 * block * k}];" for k in range(count))


def cells(columns: int, block: int = 32, first: int = 0) -> str:
    """Store to `columns` columns of each warp's lanes, by .32x32b.x1, the value lane << 16 | column."""
    lines = [f"shl.b32 %r290, %r1, 16; add.u32 %r290, %r290, {first};"]
    for k in range(columns):
        lines.append(f"tcgen05.st.sync.aligned.32x32b.x1.b32 [%r6 + {first + k}], {{%r290}}; add.u32 %r290, %r290, 1;")
    return "\n".join([*lines, "tcgen05.wait::st.sync.aligned;"])


def place(shape: str, t: int, r: int, split: int = 0) -> tuple[int, int]:
    """Lane and column of register r of thread t."""
    match shape:
        case "32x32b":
            return t, r
        case "16x64b":
            return t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * r
        case "16x128b":
            return t // 4 + 8 * (r % 2), t % 4 + 4 * (r // 2)
        case "16x256b":
            return t // 4 + 8 * (r // 2 % 2), 2 * (t % 4) + r % 2 + 8 * (r // 4)
        case _:
            return t % 16, r + (split if t >= 16 else 0)
