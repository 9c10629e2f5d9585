"""tcgen05.alloc and dealloc: the allocator against a model, waiting, faults, reports."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import emu
from emu.machine import load_machine
from emu.views.deadlock import deadlock
from tests.emu.units.tmem import found, registers, run

ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32"
CLOSE = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
LOAD = "tcgen05.ld.sync.aligned"
BARE = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry test(.param .u64 out)
{{
    .reg .pred %p<4>; .reg .b32 %r<300>; .reg .b64 %d<4>; .shared .align 16 .b32 slot[4]; .shared .align 8 .b64 bar;
    ld.param.u64 %d1, [out]; mov.u32 %r1, slot; mov.u32 %r3, %ctaid.x; mul.wide.u32 %d2, %r3, 256; add.s64 %d1, %d1, %d2;
    {body}
    ret;
}}
"""


def bare(body: str, out: int = 64, **options):
    """A kernel of one warp that allocates for itself (%r1: shared memory, %d1: 64 words of the CTA)."""
    written = np.full(out, 0xDEAD, np.uint32)
    machine = load_machine("b200", ("chip.sms=1",))
    options = {"block": 32, "max_cycles": 500_000} | options
    return written, emu.launch(emu.load(text=BARE.format(body=body)), machine=machine, args=[written], **options)


class Allocator(RuleBasedStateMachine):
    """One warp allocates and frees at will; a model says which columns it gets, or how it ends."""

    def __init__(self):
        super().__init__()
        self.units, self.live, self.text, self.given, self.end, self.closed = [False] * 16, {}, [], [], "", False

    @rule(columns=st.sampled_from([32, 32, 64, 64, 128, 256, 512, 48]))
    def alloc(self, columns):
        if self.end:
            return
        k = len(self.given)
        self.text.append(
            f"mov.u32 %r9, {columns}; {ALLOC} [%r1], %r9; ld.shared.u32 %r{10 + k}, [%r1]; st.global.u32 [%d1 + {4 * k}], %r{10 + k};"
        )
        parts = columns // 32
        places = [p for p in range(0, 16, parts) if not any(self.units[p : p + parts])]
        self.end = "TM107" if columns == 48 else "TM108" if self.closed else "" if places else "blocked"
        if not self.end:
            self.units[places[0] : places[0] + parts] = [True] * parts
            self.live[k] = (places[0] * 32, columns)
            self.given.append(places[0] * 32)

    @precondition(lambda self: not self.end and self.live)
    @rule(data=st.data(), columns=st.sampled_from([0, 0, 0, 32]))
    def dealloc(self, data, columns):
        k = data.draw(st.sampled_from(sorted(self.live)))
        first, size = self.live[k]
        self.text.append(f"{DEALLOC} %r{10 + k}, {columns or size};")
        if columns not in (0, size):
            self.end = "TM109"
            return
        self.units[first // 32 : (first + size) // 32] = [False] * (size // 32)
        del self.live[k]

    @rule()
    def relinquish(self):
        if self.end:
            return
        self.text.append(CLOSE)
        self.closed = True

    def teardown(self):
        if not self.end:
            self.end = "TM110" if len(self.live) % 2 else ""
            self.text += [f"{DEALLOC} %r{10 + k}, {size};" for k, (_, size) in self.live.items() if not self.end]
        out, result = bare("\n".join(self.text), 64)
        rules = [finding.rule for finding in found(result)]
        assert rules == ([] if self.end in ("", "blocked") else [self.end]) and (result.deadlock is not None) == (
            self.end == "blocked"
        )
        assert out[: len(self.given)].tolist() == self.given and (out[len(self.given) :] == 0xDEAD).all()


TestAllocator = Allocator.TestCase
TestAllocator.settings = settings(max_examples=30, stateful_step_count=12, deadline=None)


def test_alloc_takes_time_and_the_next_cta_waits_for_its_retry():
    """253 cycles with columns free (QRC); without, a look every 100 ns (SASS of ptxas) until somebody has freed some."""
    work = f"""mov.u32 %r4, %clock; {ALLOC} [%r1], 512; mov.u32 %r5, %clock; sub.u32 %r6, %r5, %r4; nanosleep.u32 2000;
        ld.shared.u32 %r7, [%r1]; {DEALLOC} %r7, 512; st.global.u32 [%d1], %r6; st.global.u32 [%d1 + 4], %r7;"""
    out, result = bare(work, 128, grid=2)
    assert not found(result) and result.deadlock is None and out[1] == out[65] == 0
    first, second = sorted([int(out[0]), int(out[64])])
    assert abs(first - 253) <= 4 and second > 253 + 2000 and (second - first) % 185 <= 4


@pytest.mark.parametrize(
    ("body", "rule", "words"),
    [
        (f"{LOAD}.32x32b.x1.b32 {{%r9}}, [%r6 + 64];", "TM101", "column 64 is not allocated"),
        (f"{LOAD}.32x32b.x32.b32 {registers(32)}, [%r6 + 48];", "TM101", "column 64"),
        (f"{LOAD}.16x256b.x8.b32 {registers(32)}, [%r6 + 480];", "TM102", "64 columns"),
        (f"{LOAD}.32x32b.x1.b32 {{%r9}}, [%r6 + 8388608];", "TM102", "lane << 16"),
        (f"{LOAD}.16x32bx2.x1.b32 {{%r9}}, [%r6], 70000;", "TM102", "columns from there"),
        (f"{LOAD}.16x32bx2.x1.b32 {{%r9}}, [%r6], -1;", "TM102", "columns from there"),
        (f"{LOAD}.32x32b.x1.b32 {{%r9}}, [%r6 + {32 << 16}];", "TM105", "lanes 0 to 0+31 only"),
        (f"{LOAD}.32x32b.x1.b32 {{%r9}}, [%r6 + {16 << 16}];", "TM105", "lanes 0 to 0+31 only"),
        ("tcgen05.st.sync.aligned.16x64b.x1.b32 [%r6 + 1572864], {%r9};", "TM105", "lanes 0 to 0+31 only"),
        (f"add.u32 %r9, %r6, %r1; {LOAD}.32x32b.x1.b32 {{%r9}}, [%r9];", "TM112", "different Tensor Memory addresses"),
        (f"@%p1 {ALLOC} [%r2 + 65536], 32;", "MEM101", "outside the CTA's shared memory"),
        (f"setp.lt.u32 %p2, %r1, 7; @%p2 {LOAD}.32x32b.x1.b32 {{%r9}}, [%r6];", "WL103", "lanes 0x7f only"),
        (f"{LOAD}.32x32b.x64.b32 {registers(64)}, [%r6];", "TM203", "warp 0 still uses"),
        ("exit;", "TM110", "64 columns of Tensor Memory allocated"),
    ],
)  # fmt: skip
def test_faults(body, rule, words):
    """What silicon traps or corrupts has a name, the instruction, and a remedy."""
    _, result = run(body, columns=64)
    (finding,) = found(result)
    assert finding.rule == rule and words in finding.message, finding.message
    assert body.split()[-2 if rule == "TM112" else 0][:4] in finding.message or rule in ("TM110", "TM203")


def test_a_leak_names_the_allocation():
    _, result = bare(f"{ALLOC} [%r1], 64;\n{ALLOC} [%r1], 32;")
    assert "96 columns" in found(result)[0].message and "tcgen05.alloc" in found(result)[0].message


def test_an_alloc_that_nobody_serves_is_explained():
    _, result = bare(f"{ALLOC} [%r1], 512;\n{ALLOC} [%r1], 32;")
    text = deadlock(result)
    assert [cause.rule for cause in result.deadlock.causes] == ["TM106"]
    assert "needs 32 columns side by side, 0 are free" in text
    assert "columns 0-511 of CTA 0, from <text>:" in text


def test_columns_that_another_cta_keeps_are_named():
    """The first CTA waits for an arrival that does not come, with all columns; the second one cannot allocate."""
    work = f"""mov.u32 %r8, bar; mbarrier.init.shared.b64 [%r8], 99; {ALLOC} [%r1], 512; ld.shared.u32 %r7, [%r1];
WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r8], 0; @!%p1 bra WAIT;
    {DEALLOC} %r7, 512;"""
    _, result = bare(work, 128, grid=2)
    text = deadlock(result)
    assert "columns 0-511 of CTA 0" in text and "could still get columns from warp 0" in text
    assert "MB204" in [cause.rule for cause in result.deadlock.causes]


# ---- any operands --------------------------------------------------------------------------------------

ANY = """
.version 9.0
.target sm_100a
.address_size 64
.visible .entry any(.param .u64 desc, .param .u32 taddr, .param .u32 columns, .param .u32 at)
{{
    .reg .pred %p<4>; .reg .b32 %r<300>; .reg .b64 %d<4>; .shared .align 16 .b32 slot[4];
    ld.param.u64 %d1, [desc]; ld.param.u32 %r1, [taddr]; ld.param.u32 %r2, [columns]; ld.param.u32 %r3, [at];
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 256;
    {work}
    tcgen05.wait::ld.sync.aligned; tcgen05.wait::st.sync.aligned;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 256;
    ret;
}}
"""
WORK = (
    f"{ALLOC} [%r3], %r2;",
    f"{DEALLOC} %r1, %r2;",
    f"{LOAD}.32x32b.x32.b32 {registers(32)}, [%r1];",
    f"{LOAD}.16x256b.x16.pack::16b.b32 {registers(64)}, [%r1 + 3];",
    f"{LOAD}.16x32bx2.x8.b32 {registers(8)}, [%r1], -5;",
    f"tcgen05.st.sync.aligned.16x64b.x64.unpack::16b.b32 [%r1], {registers(64)};",
    f"tcgen05.st.sync.aligned.16x32bx2.x2.b32 [%r1], 524287, {registers(2)};",
    "tcgen05.cp.cta_group::1.128x256b [%r1], %d1;",
    "tcgen05.cp.cta_group::1.4x256b.b8x16.b6x16_p32 [%r1], %d1;",
    "tcgen05.shift.cta_group::1.down [%r1];",
)
WORDS = st.one_of(
    st.integers(0, 600),
    st.sampled_from([0x200000, 0x1F0000, 0x7F0000, 0x8000_0000, 0xFFFF_FFFF]),
    st.integers(0, 2**32 - 1),
)


@functools.cache
def any_kernel(work: str) -> emu.Kernel:
    return emu.load(text=ANY.format(work=work))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WORK), st.integers(0, 2**64 - 1), WORDS, WORDS, WORDS, st.booleans())
def test_any_operands_end_in_a_result_or_a_named_fault(work, desc, taddr, columns, at, version):
    desc = desc & ~(7 << 46 | 0x1FF << 52) | 1 << 46 if version else desc
    result = emu.launch(
        any_kernel(work),
        machine=load_machine("b200", ("chip.sms=1",)),
        block=32,
        args=[desc, taddr, columns, at],
        max_cycles=50_000,
    )
    rules = {f.rule for f in result.findings if f.severity == "fault"}
    assert rules <= {"MEM101", "MEM102", "TC102", "TC103", *(f"TM{n}" for n in (101, 102, 105, 107, 109, 110, 111))}, (
        rules
    )
    assert rules or result.deadlock or result.exit_code() == 0
