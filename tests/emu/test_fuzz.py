"""Operations on random addresses, descriptors, counts and coordinates: whatever they do, the process lives and the result has an exit code."""

from __future__ import annotations

import ast
import collections
import random
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]

OPERATIONS = [
    "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d1];", "ld.global.u8 %r4, [%d1];", "st.global.v2.u64 [%d1], {%d2, %d3};", "st.global.u16 [%d1], %h1;",
    "ld.u64 %d4, [%d1];", "st.v4.u32 [%d1], {%r4, %r5, %r6, %r7};", "ld.local.u32 %r4, [%d1];", "st.local.u64 [%d1], %d2;",
    "ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1];", "st.shared.u8 [%r1], %r4;", "st.shared.v2.u64 [%r1], {%d2, %d3};",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r1];", "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {%r4, %r5};",
    "mbarrier.init.shared.b64 [%r1], %r2;", "mbarrier.arrive.shared.b64 %d4, [bar], %r2;", "mbarrier.arrive.expect_tx.shared.b64 _, [bar], %r2;",
    "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;", "mbarrier.inval.shared.b64 [%r1];", "mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], %r2;",
    "tma.load.2d [%r1], [%map, {%r2, %r3}], [bar];", "tma.load.2d [box], [%map, {%r2, %r3}], [%r1];", "tma.load.2d [box], [%d1, {%r2, %r3}], [bar];",
    "tma.store.2d [%map, {%r2, %r3}], [%r1];", "tma.store.2d [%d1, {%r2, %r3}], [box];", "bar.sync %r2, %r3;", "bar.arrive %r2, %r3;",
    "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%f0..%f7}, %d1, %d2, 1, 1, 1, 0, 0; wgmma.wait_group.sync.aligned 0;",
    "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%f0..%f7}, {%r4, %r5, %r6, %r7}, %d2, 1, 1, 1, 0; wgmma.wait_group.sync.aligned 0;",
    "shfl.sync.idx.b32 %r4, %r5, %r1, %r2, %r3;", "elect.sync %r4|%p1, %r2;", "nanosleep.u32 %r2;",
]  # fmt: skip
KERNEL = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry test(.param .align 64 .b8 map[128], .param .u64 values)
{{
    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b64 %d<6>; .reg .f32 %f<8>; .reg .b64 %map, %values;
    .shared .align 1024 .b8 box[4096]; .shared .align 8 .b64 bar; .local .align 16 .b8 mine[64];
    mov.b64 %map, map; cvta.param.u64 %map, %map; ld.param.u64 %values, [values]; mov.u32 %r0, %tid.x; mov.u64 %d5, mine; mov.u32 %r8, box;
    setp.eq.u32 %p2, %r0, 0; @%p2 mbarrier.init.shared.b64 [bar], 5; bar.sync 0;
    ld.global.v2.u64 {{%d1, %d2}}, [%values]; ld.global.u64 %d3, [%values + 16]; ld.global.v2.u32 {{%r1, %r2}}, [%values + 24]; ld.global.u32 %r3, [%values + 32];
    {text} nanosleep.u32 3000; bar.sync 1; ret;
}}
"""


def operands(seeds: range) -> dict[int, int]:
    """Each operation with random addresses, descriptors, counts and coordinates: near valid ones and far out."""
    import emu
    from programs.tensormap import TensorMap

    kernels = [emu.load(text=KERNEL.format(text=text)) for text in OPERATIONS]
    codes: collections.Counter[int] = collections.Counter()
    for seed in seeds:
        rng = random.Random(seed)
        array, target = np.zeros((64, 64), np.uint16), np.zeros(64, np.uint64)
        near = [
            0x200_0000_0000,
            0x7000_0000_0000,
            0x7E00_0000_0000,
            0x7F00_0000_0400,
            0x7F00_0000_1400,
            0x400,
            0x1400,
            0x1000080040,
            2**63,
            2**64 - 1,
            0,
        ]
        target[:5] = [
            (rng.choice(near) + rng.choice([0, 16, 64, -16, 1, 8, 2**31, 4096])) % 2**64
            if rng.random() < 0.8
            else rng.getrandbits(64)
            for _ in range(5)
        ]
        for kernel in kernels:
            result = emu.launch(kernel, block=128, args=[TensorMap(array, (64, 8), 128), target], max_cycles=20_000)
            codes[result.exit_code()] += 1
    return codes


def in_a_process(call: str) -> dict[int, int]:
    """Exit codes of a batch in a process of its own, so that a crash fails the test and does not end the run."""
    load = f"import importlib.util as u; s = u.spec_from_file_location('fuzz', {__file__!r}); m = u.module_from_spec(s)"
    code = f"{load}; s.loader.exec_module(m); print(dict(m.{call}))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, (run.returncode, run.stderr[-3000:])
    codes: dict[int, int] = ast.literal_eval(run.stdout.splitlines()[-1])
    assert set(codes) <= {0, 1, 3, 5, 6}, codes
    return codes


def test_random_operands_do_not_crash() -> None:
    codes = in_a_process("operands(range(12))")
    assert codes[6] > 50 and codes[0] > 20
