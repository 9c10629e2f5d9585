"""mbarrier objects: random operation sequences against a small model, and the words that an H200 stored."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

RECORDED = Path(__file__).parents[2] / "golden" / "h200" / "mbarrier-words.csv"
MOST = 2**20 - 1
OPS = {
    "init": "mbarrier.init.shared.b64 [bar], %r2;",
    "arrive": "mbarrier.arrive.shared.b64 %d3, [bar], %r2;",
    "arrive_drop": "mbarrier.arrive_drop.shared.b64 %d3, [bar], %r2;",
    "expect_tx": "mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], %r2;",
    "complete_tx": "mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], %r2;",
    "arrive_expect_tx": "mbarrier.arrive.expect_tx.shared.b64 %d3, [bar], %r2;",
    "test_parity": "mbarrier.test_wait.parity.shared.b64 %p2, [bar], %r2; selp.u64 %d3, 1, 0, %p2;",
    "try_parity": "mbarrier.try_wait.parity.shared.b64 %p2, [bar], %r2; selp.u64 %d3, 1, 0, %p2;",
    "test_state": "mbarrier.test_wait.shared.b64 %p2, [bar], %d4; selp.u64 %d3, 1, 0, %p2;",
    "arrivals": "mbarrier.pending_count.b64 %r3, %d4; cvt.u64.u32 %d3, %r3;",
    "peek": "ld.shared.u64 %d3, [bar];",
    "inval": "mbarrier.inval.shared.b64 [bar]; ld.shared.u64 %d3, [bar];",
}
CODES = {name: k for k, name in enumerate(OPS)}
CASES = "\n".join(
    f"N{k}: setp.ne.u32 %p1, %r1, {k}; @%p1 bra N{k + 1}; {text} bra DONE;" for k, text in enumerate(OPS.values())
)
# One thread reads (operation, argument) pairs and writes a 64-bit answer to each; %d4 is the state of the last arrival.
INTERPRETER = f"""
    mov.u32 %r0, %tid.x; setp.ne.u32 %p1, %r0, 0; @%p1 exit; mov.u64 %d4, 0; mov.u32 %r4, 0;
    NEXT: ld.global.v2.u32 {{%r1, %r2}}, [%ops]; mov.u64 %d3, 0;
    {CASES}
    N{len(OPS)}: trap;
    DONE: st.global.u64 [%out], %d3; add.u64 %out, %out, 8; add.u64 %ops, %ops, 8;
    setp.eq.u32 %p1, %r1, {CODES["arrive"]}; @%p1 mov.u64 %d4, %d3;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, %n; @%p1 bra NEXT;
"""


def execute(ptx: Any, operations: list[tuple[str, int]]) -> tuple[list[int], Any]:
    ops = np.array([(CODES[name], value) for name, value in operations], np.uint32)
    out = np.zeros(len(operations), np.uint64)
    shared = ".shared .align 8 .b64 bar;"
    result = ptx.run(INTERPRETER, "u64 ops, u64 out, u32 n", [ops, out, len(operations)], shared=shared)
    return [int(x) for x in out], result


class Trap(Exception):
    """Silicon stops the program."""


@dataclass
class Model:
    """PTX ISA 9.7.13.15, with the traps of an H200."""

    expected: int = 0
    pending: int = 0
    tx: int = 0
    phase: int = 0

    def word(self) -> int:
        fields = (-self.expected % 2**20) << 1 | (-self.tx % 2**21) << 21 | (-self.pending % 2**20) << 43
        return fields | self.phase << 63

    def change(self, arrivals: int, tx: int, drop: int = 0) -> int:
        before = self.word()
        if not 0 <= arrivals <= self.pending or abs(self.tx + tx) > MOST:
            raise Trap
        self.pending, self.tx, self.expected = self.pending - arrivals, self.tx + tx, self.expected - drop
        if self.pending == 0 and self.tx == 0:
            self.pending, self.phase = self.expected, 1 - self.phase
        return before

    def apply(self, name: str, value: int, state: int) -> int:
        if name == "init":
            self.__init__(value, value)  # type: ignore[misc]
        elif name in ("arrive", "arrive_drop"):
            return self.change(value, 0, value if name == "arrive_drop" else 0)
        elif name == "expect_tx":
            self.change(0, value)
        elif name == "complete_tx":
            self.change(0, -value)
        elif name == "arrive_expect_tx":
            return self.change(1, value)
        elif name in ("test_parity", "try_parity"):
            return int(self.phase != value)
        elif name == "test_state":
            return int(self.phase != state >> 63)
        elif name == "arrivals":
            return 2**20 - (state >> 43 & MOST)
        return 0


COUNTS = st.integers(1, 4)
BYTES = st.sampled_from([1, 7, 16, 64, 1000, 2**19, MOST])
OPERATION = st.one_of(
    st.tuples(st.sampled_from(["arrive", "arrive", "arrive_drop"]), COUNTS),
    st.tuples(st.sampled_from(["expect_tx", "complete_tx", "arrive_expect_tx"]), BYTES),
    st.tuples(st.sampled_from(["test_parity", "try_parity"]), st.integers(0, 1)),
    st.tuples(st.sampled_from(["test_state", "arrivals", "peek"]), st.just(0)),
)


@settings(max_examples=80, deadline=None)
@given(st.one_of(COUNTS, st.just(MOST)), st.lists(OPERATION, max_size=40))
def test_sequences(ptx: Any, count: int, operations: list[tuple[str, int]]) -> None:
    """Every answer and the final word; the first operation that traps on silicon is the fault here."""
    model, state, answers, trapped = Model(), 0, [], None
    sequence = [("init", count), *operations]
    for name, value in sequence:
        try:
            answer = model.apply(name, value, state)
        except Trap:
            trapped = name
            break
        state = answer if name == "arrive" else state
        answers.append(answer)
    else:
        sequence.append(("inval", 0))
        answers.append(model.word())
    got, result = execute(ptx, sequence)
    assert got[: len(answers)] == answers
    assert [f.rule for f in result.findings] == (
        [] if trapped is None else ["MB106" if got_arrivals(trapped, result) else "MB107"]
    )
    assert trapped is None or OPS[trapped].split()[0] in result.findings[0].message


def got_arrivals(name: str, result: Any) -> bool:
    """An arrival traps for its count, or for its bytes; the message says which."""
    return "arrive" in name and "arrivals on the mbarrier" in result.findings[0].message


def recorded() -> list[dict[str, str]]:
    with RECORDED.open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def test_recorded_words(ptx: Any) -> None:
    """Words and traps of an H200.  Counts outside 1 .. 2^20-1, which silicon stores as the word 0, are faults here."""
    rows = recorded()
    assert len(rows) == 36
    for row in rows:
        operations = [(name, int(value)) for name, value in re.findall(r"(\w+)\((\d+)\)", row["operations"])]
        got, result = execute(ptx, [*operations, ("inval", 0)])
        if row["word"].startswith("trap"):
            assert result.findings[0].rule in ("MB106", "MB107"), row
        elif row["word"] == "0" * 16:
            assert result.findings[0].rule == "MB105", row
        else:
            assert not result.findings and got[-1] == int(row["word"], 16), row


def test_a_live_barrier_is_not_visible_to_loads(ptx: Any) -> None:
    got, _ = execute(ptx, [("init", 3), ("peek", 0), ("arrive", 1), ("peek", 0), ("inval", 0), ("peek", 0)])
    assert got[1] == got[3] == 0 and got[5] == got[4] == Model(3, 2).word()


@pytest.mark.parametrize(
    ("operations", "rule"),
    [
        ([("arrive", 1)], "MB101"),
        ([("init", 1), ("inval", 0), ("test_parity", 0)], "MB101"),
        ([("init", 1), ("inval", 0), ("inval", 0)], "MB101"),
        ([("init", 0)], "MB105"),
    ],
)
def test_misuse_is_a_fault(ptx: Any, operations: list[tuple[str, int]], rule: str) -> None:
    _, result = execute(ptx, operations)
    assert [f.rule for f in result.findings] == [rule] and result.exit_code() == 6


@pytest.mark.parametrize(
    ("address", "rule"), [("bar + 4", "MB102"), ("bar + 0x100000", "MEM101"), ("bar + 0x1000000", "MEM101")]
)
def test_addresses_are_checked(ptx: Any, address: str, rule: str) -> None:
    result = ptx.run(
        f"mov.u32 %r1, bar; add.u32 %r1, %r1, {address[6:]}; mbarrier.init.shared.b64 [%r1], 1;",
        shared=".shared .align 8 .b64 bar;",
    )
    assert [f.rule for f in result.findings] == [rule]


def test_every_lane_arrives(ptx: Any) -> None:
    """32 lanes arrive in lane order: the states that they get count down, and the phase is over once."""
    out = np.zeros((2, 32), np.uint32)
    body = """mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [bar], 32; bar.warp.sync -1;
        mbarrier.arrive.shared.b64 %d1, [bar]; mbarrier.pending_count.b64 %r1, %d1;
        mbarrier.test_wait.shared.b64 %p1, [bar], %d1; selp.u32 %r2, 1, 0, %p1;
        mul.wide.u32 %d2, %r0, 4; add.u64 %d2, %out, %d2; st.global.u32 [%d2], %r1; st.global.u32 [%d2 + 128], %r2;"""
    ptx.run(body, "u64 out", [out], shared=".shared .align 8 .b64 bar;")
    assert out.tolist() == [list(range(32, 0, -1)), [1] * 32]


def test_lanes_wait_on_barriers_of_their_own(ptx: Any) -> None:
    """A warp goes on when all its lanes may; a diverged test answers each lane for itself."""
    out = np.zeros(64, np.uint32)
    body = """mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; shl.b32 %r2, %r1, 3; mov.u32 %r3, bars; add.u32 %r2, %r2, %r3;
        setp.lt.u32 %p1, %r0, 32; @%p1 mbarrier.init.shared.b64 [%r2], 1; bar.sync 0; @!%p1 bra ARRIVE;
        AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra AGAIN; mov.u32 %r5, %clock; bra DONE;
        ARRIVE: and.b32 %r4, %r0, 1; setp.eq.u32 %p2, %r4, 1; @%p2 mbarrier.arrive.shared.b64 _, [%r2];
        mbarrier.test_wait.parity.shared.b64 %p3, [%r2], 0; nanosleep.u32 1000; mov.u32 %r5, %clock;
        @!%p2 mbarrier.arrive.shared.b64 _, [%r2]; selp.u32 %r6, 0x80000000, 0, %p3; or.b32 %r5, %r5, %r6;
        DONE: mul.wide.u32 %d0, %r0, 4; add.u64 %d0, %out, %d0; st.global.u32 [%d0], %r5;"""
    ptx.run(body, "u64 out", [out], shared=".shared .align 8 .b64 bars[32];", block=64)
    waiting, arriving = out[:32], out[32:]
    assert (arriving >> 31).tolist() == [0, 1] * 16
    assert waiting.min() > (arriving & 0x7FFFFFFF).max()  # whoever was complete already waited for the others


def test_try_wait_gives_up_after_its_time(ptx: Any) -> None:
    """Without a loop around it, try_wait on a phase that never completes answers false, whatever else happens."""
    out = np.zeros(6, np.uint32)
    body = """mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;
        setp.ge.u32 %p1, %r0, 32; @%p1 bra OTHER;
        mov.u32 %r1, %clock; mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; selp.u32 %r3, 1, 0, %p2; mov.u32 %r2, %clock;
        mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0, 100; selp.u32 %r5, 1, 0, %p3; mov.u32 %r4, %clock;
        st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4}; st.global.u32 [%out + 16], %r5; bra DONE;
        OTHER: nanosleep.u32 100; ld.global.u32 %r6, [%out + 20]; add.u32 %r6, %r6, 1; st.global.u32 [%out + 20], %r6; DONE:"""
    result = ptx.run(body, "u64 out", [out], shared=".shared .align 8 .b64 bar;", block=64)
    limit = ptx.machine().value("unit.mbarrier.suspend_cy")
    assert result.deadlock is None and not result.findings
    assert out[[2, 4]].tolist() == [0, 0]
    hint = 100 * ptx.machine().value("clock.boost_mhz") // 1000  # nanoseconds
    assert limit <= out[1] - out[0] <= limit + 100 and hint <= out[3] - out[1] <= hint + 100


def test_waiters_see_what_was_written_before_the_arrival(ptx: Any) -> None:
    """Four phases between one producing and three waiting warps, in both directions."""
    out = np.zeros((4, 3), np.uint32)
    body = """mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; setp.ne.u32 %p1, %r0, 0; @%p1 bra READY;
        mbarrier.init.shared.b64 [bars], 32; mbarrier.init.shared.b64 [bars + 8], 96; READY: bar.sync 0; mov.u32 %r2, 0;
        setp.eq.u32 %p1, %r1, 3; @%p1 bra PRODUCE;
        CONSUME: and.b32 %r3, %r2, 1; mbarrier.wait [bars], %r3; ld.shared.u32 %r4, [value]; mbarrier.arrive.shared.b64 _, [bars + 8];
        mad.lo.u32 %r5, %r2, 3, %r1; mul.wide.u32 %d0, %r5, 4; add.u64 %d0, %out, %d0; st.global.u32 [%d0], %r4;
        add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 4; @%p1 bra CONSUME; bra DONE;
        PRODUCE: add.u32 %r4, %r2, 100; st.shared.u32 [value], %r4; mbarrier.arrive.shared.b64 _, [bars];
        and.b32 %r3, %r2, 1; mbarrier.wait [bars + 8], %r3; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 4; @%p1 bra PRODUCE; DONE:"""
    result = ptx.run(body, "u64 out", [out], shared=".shared .align 8 .b64 bars[2]; .shared .b32 value;", block=128)
    assert result.deadlock is None
    assert out.tolist() == [[100 + k] * 3 for k in range(4)]
