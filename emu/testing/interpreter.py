"""Barrier programs on the machine: one kernel that reads them as data, so that nothing is assembled for each."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from emu.api import Kernel, launch, load
from emu.chaos import Chaos
from emu.machine import Machine, load_machine
from emu.result import Result
from emu.testing.program import ANSWERS, COPY_BYTES, KINDS, MBARRIERS, SLOTS, BarrierProgram, Outcome, Word
from emu.units.mbarrier_word import expected_of, pending_of, phase_of, tx_of
from programs.tensormap import TensorMap

REST = 20_000  # nanoseconds in which copies that nobody waits for end, before the mbarriers are invalidated
JOIN = 15  # the named barrier at which warps that have finished meet
# %bar: address of the mbarrier, %at: address of the slot; %b, %v, %n: barrier, value, amount of the operation.
CASES = {
    "arrive": "@%lead mbarrier.arrive.shared::cta.b64 _, [%bar], %v;",
    "drop": "@%lead mbarrier.arrive_drop.shared::cta.b64 _, [%bar], %v;",
    "expect": "@%lead mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], %v;",
    "complete": "@%lead mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], %v;",
    "arrive_expect": "@%lead mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], %v;",
    "wait": "mbarrier.wait [%bar], %v;",
    "test": "mbarrier.test_wait.parity.shared::cta.b64 %p, [%bar], %v; selp.u32 %answer, 1, 0, %p;",
    "keep": "@%lead mbarrier.arrive.shared::cta.b64 %kept, [%bar], %v; mov.b64 {%t, %h}, %kept; "
    "shfl.sync.idx.b32 %h, %h, 0, 31, -1; mov.b64 %kept, {%h, %h};",
    "wait_kept": "KEPT: mbarrier.try_wait.shared::cta.b64 %p, [%bar], %kept; @!%p bra KEPT;",
    "copy": "mul.lo.u32 %t, %v, 128; add.u32 %at, %slots, %t; mov.u32 %t, 0; "
    "@%lead tma.load.2d [%at], [%map, {%t, %n}], [%bar];",
    "sync": "shl.b32 %v, %v, 5; barrier.sync.aligned %b, %v;",
    "signal": "shl.b32 %v, %v, 5; barrier.arrive.aligned %b, %v;",
    "put": "mul.lo.u32 %t, %b, 128; add.u32 %at, %slots, %t; @%lead st.shared.u32 [%at], %v;",
    "get": "mul.lo.u32 %t, %b, 128; add.u32 %at, %slots, %t; ld.shared.u32 %answer, [%at];",
    "pause": "nanosleep.u32 %v;",
}
DISPATCH = "\n".join(
    f"    N{k}: setp.ne.u32 %p, %kind, {k}; @%p bra N{k + 1};\n    {CASES[kind]} bra NEXT;"
    for k, kind in enumerate(KINDS)
    if k
)
KERNEL = f"""
.version 8.5
.target sm_90a
.address_size 64
.visible .entry barrier_program(.param .align 64 .b8 words[128], .param .u64 program, .param .u64 counts,
    .param .u64 progress, .param .u64 answers, .param .u64 final, .param .u32 length)
{{
    .reg .pred %p, %lead, %first;
    .reg .b32 %thread, %warp, %i, %length, %kind, %b, %v, %n, %t, %h, %bar, %at, %bars, %slots, %answer;
    .reg .b64 %map, %ops, %counts, %progress, %answers, %out, %wide, %kept, %word;
    .shared .align 128 .b8 slots[{SLOTS * COPY_BYTES}];
    .shared .align 8 .b64 bars[{MBARRIERS}];
    mov.u32 %thread, %tid.x; shr.u32 %warp, %thread, 5; and.b32 %t, %thread, 31;
    setp.eq.u32 %lead, %t, 0; setp.eq.u32 %first, %thread, 0;
    mov.u32 %bars, bars; mov.u32 %slots, slots;
    mov.b64 %map, words; cvta.param.u64 %map, %map;
    ld.param.u32 %length, [length]; ld.param.u64 %ops, [program]; ld.param.u64 %counts, [counts];
    ld.param.u64 %progress, [progress]; ld.param.u64 %answers, [answers];
    mul.lo.u32 %t, %warp, %length; mul.wide.u32 %wide, %t, 16; add.u64 %ops, %ops, %wide;
    mul.wide.u32 %wide, %t, 4; add.u64 %answers, %answers, %wide;
    mul.wide.u32 %wide, %warp, 4; add.u64 %progress, %progress, %wide;
    mov.u32 %i, 0; mov.u64 %kept, 0;
    setp.ge.u32 %p, %thread, {MBARRIERS}; @%p bra READY;
    mul.wide.u32 %wide, %thread, 4; add.u64 %counts, %counts, %wide; ld.global.u32 %t, [%counts];
    setp.eq.u32 %p, %t, 0; @%p bra READY;
    shl.b32 %at, %thread, 3; add.u32 %at, %at, %bars; mbarrier.init.shared::cta.b64 [%at], %t;
READY:
    bar.sync {JOIN};
STEP:
    ld.global.v4.u32 {{%kind, %b, %v, %n}}, [%ops]; add.u64 %ops, %ops, 16;
    @%lead st.global.u32 [%progress], %i; mov.u32 %answer, 0;
    setp.eq.u32 %p, %kind, 0; @%p bra END;
    shl.b32 %bar, %b, 3; add.u32 %bar, %bar, %bars;
{DISPATCH}
    N{len(KINDS)}: trap;
NEXT:
    @%lead st.global.u32 [%answers], %answer; add.u64 %answers, %answers, 4; add.u32 %i, %i, 1;
    bra STEP;
END:
    bar.sync {JOIN};
    nanosleep.u32 {REST};
    setp.ge.u32 %p, %thread, {MBARRIERS}; @%p bra DONE;
    ld.global.u32 %t, [%counts]; setp.eq.u32 %p, %t, 0; @%p bra DONE;
    shl.b32 %at, %thread, 3; add.u32 %at, %at, %bars; mbarrier.inval.shared::cta.b64 [%at]; ld.shared.u64 %word, [%at];
    ld.param.u64 %out, [final]; mul.wide.u32 %wide, %thread, 8; add.u64 %out, %out, %wide; st.global.u64 [%out], %word;
DONE:
    ret;
}}
"""
WORDS = 64  # that copies can bring: row k of the source is 32 times k


@functools.cache
def kernel() -> Kernel:
    """The interpreter."""
    return load(text=KERNEL)


@functools.cache
def one_sm(machine: str = "h200") -> Machine:
    """A machine cut down to one SM."""
    return load_machine(machine, ("chip.sms=1",))


def run(
    program: BarrierProgram, chaos: Chaos | int | None = None, machine: Machine | None = None
) -> tuple[Outcome, Result]:
    """Execute a barrier program; how it ended, and the whole result (with the report on a deadlock)."""
    warps, length = len(program.warps), max(len(ops) for ops in program.warps) + 1
    code = np.zeros((warps, length, 4), np.uint32)
    for w, ops in enumerate(program.warps):
        for k, op in enumerate(ops):
            code[w, k] = KINDS.index(op.kind), op.barrier, op.value, op.amount
    counts = np.zeros(MBARRIERS, np.uint32)
    counts[: len(program.counts)] = program.counts
    progress, answers = np.zeros(warps, np.uint32), np.zeros((warps, length), np.uint32)
    bars = np.zeros(MBARRIERS, np.uint64)
    source = np.repeat(np.arange(WORDS, dtype=np.uint32)[:, None], COPY_BYTES // 4, axis=1)
    args = [TensorMap(source, (COPY_BYTES // 4, 1), 0), code, counts, progress, answers, bars, np.uint32(length)]
    result = launch(
        kernel(), machine=machine or one_sm(), block=32 * warps, args=args, max_cycles=5_000_000, chaos=chaos
    )
    return _outcome(program, result, progress, answers, bars), result


def execute(program: BarrierProgram, chaos: Chaos | int | None = None, machine: Machine | None = None) -> Outcome:
    """How a barrier program ends on the machine."""
    return run(program, chaos, machine)[0]


def _outcome(program: BarrierProgram, result: Result, progress: Any, answers: Any, bars: Any) -> Outcome:
    bad = [f for f in result.findings if f.severity in ("fault", "limit")]
    if bad:
        return Outcome("fault", bad[0].rule)
    at = tuple(int(x) for x in progress)
    given = [
        (w, k, int(answers[w, k]))
        for w, ops in enumerate(program.warps)
        for k, op in enumerate(ops)
        if op.kind in ANSWERS and k < at[w]
    ]
    if result.deadlock is None:
        words = [_word(int(bars[k])) for k in range(len(program.counts))]
        return Outcome("done", "", at, tuple(words), tuple(given))
    states = {b.address: b for b in result.deadlock.barriers if b.kind == "mbarrier"}
    first = min(states, key=lambda a: a or 0, default=0)
    words = []
    for k in range(len(program.counts)):
        b = states[(first or 0) + 8 * k]
        words.append(Word(b.expected, b.pending, b.bytes, b.parity or 0))
    return Outcome("stuck", "", at, tuple(words), tuple(given))


def _word(word: int) -> Word:
    return Word(*(int(f.py_func(word)) for f in (expected_of, pending_of, tx_of, phase_of)))
