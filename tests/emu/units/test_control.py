"""Divergence against a model that runs each lane alone; warp-level exchange against PTX ISA 9.7.9.6 and 9.7.13."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from isa.errors import AssemblyError

LANES = np.arange(32, dtype=np.uint32)
OUT = "mov.u32 %r0, %tid.x; mul.wide.u32 %d0, %r0, 4; add.u64 %d0, %out, %d0;"


# ---- divergence: random structured programs ----------------------------------------------------------
# A program is a list of statements on one variable x: ("mix", k), ("guard", bit, k), ("exit", bit),
# ("if", bit, then, else), ("loop", body), whose trip count is x & 3 when it starts.


def make(rng: random.Random, depth: int) -> list[Any]:
    program: list[Any] = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["mix", "guard", "if", "if", "loop", "exit"] if depth else ["mix", "guard"])
        bit = rng.randrange(8)
        if kind == "mix":
            program.append(("mix", rng.randrange(1, 99)))
        elif kind == "guard":
            program.append(("guard", bit, rng.randrange(1, 99)))
        elif kind == "exit":
            program.append(("exit", bit, rng.random() < 0.5))
        elif kind == "if":
            program.append(("if", bit, make(rng, depth - 1), make(rng, depth - 1) if rng.random() < 0.6 else []))
        else:
            program.append(("loop", make(rng, depth - 1)))
    return program


def bit(x: int, k: int) -> bool:
    return bool((x >> (k + 7)) & 1)


def interpret(program: list[Any], x: int) -> tuple[int, bool]:
    """Final x of one lane, and whether it has left."""
    for op in program:
        left = False
        if op[0] == "mix":
            x = (x * 2654435761 + op[1]) & 0xFFFFFFFF
        elif op[0] == "guard":
            x = (x + op[2]) & 0xFFFFFFFF if bit(x, op[1]) else x
        elif op[0] == "exit":
            left = bit(x, op[1]) and bit(x, op[1] + 3)
        elif op[0] == "if":
            x, left = interpret(op[2] if bit(x, op[1]) else op[3], x)
        else:
            for _ in range(x & 3):
                x, left = interpret(op[1], x)
                if left:
                    break
        if left:
            return x, True
    return x, False


class Writer:
    """PTX of a program; x is %r1, %p1 the condition, loop counters are %r10 and up."""

    def __init__(self) -> None:
        self.labels = 0

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def test(self, k: int) -> str:
        return f"shr.u32 %r2, %r1, {k + 7}; and.b32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0;"

    def text(self, program: list[Any], depth: int = 0) -> str:
        out = []
        for op in program:
            if op[0] == "mix":
                out.append(f"mad.lo.u32 %r1, %r1, 2654435761, {op[1]};")
            elif op[0] == "guard":
                out.append(f"{self.test(op[1])} @%p1 add.u32 %r1, %r1, {op[2]};")
            elif op[0] == "exit":
                both = f"shr.u32 %r2, %r1, {op[1] + 7}; and.b32 %r2, %r2, 9; setp.eq.u32 %p1, %r2, 9;"
                stay = self.label()
                branch = f"@!%p1 bra {stay}; st.global.u32 [%d0], %r1; exit; {stay}:"
                out.append(f"{both} {branch if op[2] else '@%p1 st.global.u32 [%d0], %r1; @%p1 exit;'}")
            elif op[0] == "if":
                otherwise, done = self.label(), self.label()
                out.append(
                    f"{self.test(op[1])} @!%p1 bra {otherwise}; {self.text(op[2], depth)} bra {done};"
                    f" {otherwise}: {self.text(op[3], depth)} {done}:"
                )
            else:
                top, done, counter = self.label(), self.label(), f"%r{10 + depth}"
                out.append(
                    f"and.b32 {counter}, %r1, 3; {top}: setp.eq.u32 %p1, {counter}, 0; @%p1 bra {done};"
                    f" sub.u32 {counter}, {counter}, 1; {self.text(op[1], depth + 1)} bra {top}; {done}:"
                )
        return "\n".join(out)


@pytest.mark.parametrize("seed", range(20))
def test_structured_programs(ptx: Any, seed: int) -> None:
    program = make(random.Random(seed), 3)
    start = np.random.default_rng(seed).integers(0, 2**32, 50, dtype=np.uint32)
    expected = [interpret(program, int(x))[0] for x in start]
    out = start.copy()
    ptx.run(
        f"{OUT} ld.global.u32 %r1, [%d0]; {Writer().text(program)} st.global.u32 [%d0], %r1;",
        "u64 out",
        [out],
        block=50,
    )
    assert out.tolist() == expected


def masks(ptx: Any, body: str, block: int = 32) -> np.ndarray:
    """%r1 of every thread after `body`."""
    out = np.zeros(block, np.uint32)
    result = ptx.run(f"{OUT} {body} st.global.u32 [%d0], %r1;", "u64 out", [out], block=block)
    assert not result.findings and result.deadlock is None, result.findings
    return out


def test_paths_join_at_the_post_dominator(ptx: Any) -> None:
    """if/else and per-lane loops are whole again behind their ends; a guarded exit inside takes only its lanes away."""
    loop = "TOP: add.u32 %r5, %r5, 1; setp.le.u32 %p1, %r5, %r0; @%p1 bra TOP;"
    assert set(masks(ptx, f"mov.u32 %r5, 0; {loop} activemask.b32 %r1;")) == {0xFFFFFFFF}
    branch = """and.b32 %r5, %r0, 3; setp.eq.u32 %p1, %r5, 1; @%p1 bra A; setp.eq.u32 %p1, %r5, 2; @%p1 bra B;
        add.u32 %r6, %r5, 1; bra JOIN; A: add.u32 %r6, %r5, 2; bra JOIN; B: add.u32 %r6, %r5, 3; JOIN: activemask.b32 %r1;"""
    assert set(masks(ptx, branch)) == {0xFFFFFFFF}
    leave = "setp.lt.u32 %p1, %r0, 16; @%p1 bra SKIP; setp.gt.u32 %p2, %r0, 29; @%p2 exit; SKIP: activemask.b32 %r1;"
    assert set(masks(ptx, leave)) == {0x3FFFFFFF, 0}


@pytest.mark.parametrize("sense", ["lt", "ge"])
def test_lanes_that_return_early_do_not_hold_up_the_others(ptx: Any, sense: str) -> None:
    """`if (..) return; barrier`, with either side of the branch leaving."""
    leave, stay = "mov.u32 %r1, 7; st.global.u32 [%d0], %r1; exit;", "bar.sync 0; activemask.b32 %r1;"
    sides = f"{leave} ON: {stay}" if sense == "lt" else f"bra ON; OFF: {leave} ON: {stay}"
    body = f"setp.{sense}.u32 %p1, %r0, 9; @%p1 bra {'ON' if sense == 'lt' else 'OFF'}; {sides}"
    assert masks(ptx, body).tolist() == [0x1FF] * 9 + [7] * 23


def test_inside_a_branch_only_its_lanes_are_active(ptx: Any) -> None:
    body = "setp.lt.u32 %p1, %r0, 5; @%p1 bra A; activemask.b32 %r1; bra B; A: activemask.b32 %r1; B:"
    assert masks(ptx, body).tolist() == [31] * 5 + [0xFFFFFFE0] * 27


def test_a_partial_warp_has_only_its_lanes(ptx: Any) -> None:
    assert masks(ptx, "activemask.b32 %r1;", block=40).tolist() == [0xFFFFFFFF] * 32 + [0xFF] * 8


def test_too_many_nested_paths_are_a_fault(ptx: Any) -> None:
    """Each level splits one lane off; with the join and the waiting side a level takes two entries."""
    levels = "\n".join(
        f"setp.gt.u32 %p1, %r0, {k}; @%p1 bra IN{k}; add.u32 %r1, %r1, 1; bra OUT{k}; IN{k}:" for k in range(30)
    )
    ends = "\n".join(f"add.u32 %r1, %r1, {k}; OUT{k}: add.u32 %r1, %r1, 1;" for k in reversed(range(30)))
    result = ptx.run(f"{OUT} mov.u32 %r1, 0; {levels} {ends}", "u64 out", [np.zeros(32, np.uint32)])
    assert [f.rule for f in result.findings] == ["CTL101"]
    assert result.exit_code() == 6


# ---- exchange ------------------------------------------------------------------------------------------


def shuffle(mode: str, values: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[list[int], list[int]]:
    """The pseudocode of PTX ISA 9.7.9.6 with all lanes active."""
    got, inside = [], []
    for lane in range(32):
        bval, cval, segment = int(b[lane]) & 31, int(c[lane]) & 31, (int(c[lane]) >> 8) & 31
        high = (lane & segment) | (cval & ~segment)
        low = lane & segment
        j = {"up": lane - bval, "down": lane + bval, "bfly": lane ^ bval, "idx": low | (bval & ~segment & 31)}[mode]
        p = j >= high if mode == "up" else j <= high
        got.append(int(values[j if p else lane]))
        inside.append(int(p))
    return got, inside


def test_shfl_modes(ptx: Any) -> None:
    rng = np.random.default_rng(1)
    cases = 40
    modes = ("up", "down", "bfly", "idx")
    table = np.zeros((cases, 3, 32), np.uint32)
    table[:, 0] = rng.integers(0, 2**32, (cases, 32))
    table[:, 1] = rng.integers(0, 64, (cases, 1))
    table[::3, 1] = rng.integers(0, 32, table[::3, 1].shape)
    segments = np.array([0, 16, 24, 28, 30, 31, 5])[rng.integers(0, 7, (cases, 1))]
    table[:, 2] = segments << 8 | np.where(
        rng.random((cases, 1)) < 0.5, rng.integers(0, 2, (cases, 1)) * 31, rng.integers(0, 32, (cases, 1))
    )
    out = np.zeros((cases, 4, 2, 32), np.uint32)
    text = "\n".join(
        f"shfl.sync.{mode}.b32 %r5|%p1, %r1, %r2, %r3, -1; selp.u32 %r6, 1, 0, %p1;"
        f"st.global.u32 [%d1 + {256 * k}], %r5; st.global.u32 [%d1 + {256 * k + 128}], %r6;"
        for k, mode in enumerate(modes)
    )
    body = f"""
    mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, 4; add.u64 %d1, %out, %d0; add.u64 %d2, %in, %d0; mov.u32 %r7, 0;
    NEXT: ld.global.u32 %r1, [%d2]; ld.global.u32 %r2, [%d2 + 128]; ld.global.u32 %r3, [%d2 + 256];
    {text}
    add.u64 %d1, %d1, 1024; add.u64 %d2, %d2, 384; add.u32 %r7, %r7, 1; setp.lt.u32 %p1, %r7, {cases}; @%p1 bra NEXT;
    """
    ptx.run(body, "u64 in, u64 out", [table, out])
    for case in range(cases):
        for k, mode in enumerate(modes):
            got, inside = shuffle(mode, *table[case])
            assert out[case, k, 0].tolist() == got, (mode, table[case, 1:])
            assert out[case, k, 1].tolist() == inside, (mode, table[case, 1:])


def test_shfl_within_a_branch_and_in_place(ptx: Any) -> None:
    body = (
        "mov.u32 %r1, %r0; setp.ge.u32 %p1, %r0, 16; @%p1 bra DONE; shfl.sync.bfly.b32 %r1, %r1, 1, 31, 0xffff; DONE:"
    )
    assert masks(ptx, body).tolist() == [k ^ 1 for k in range(16)] + list(range(16, 32))


@pytest.mark.parametrize("lanes", [0, 1, 0x80000000, 0xFFFFFFFF, 0xFFFF0000, 0x12345678])
def test_votes(ptx: Any, lanes: int) -> None:
    """All lanes, and then the even ones only (inside a branch), with the predicate both ways."""
    body = f"""shr.u32 %r2, {lanes}, %r0; and.b32 %r2, %r2, 1; setp.ne.u32 %p1, %r2, 0; mov.u32 %r1, 0;
    .macro votes(mask, shift) {{
        vote.sync.all.pred %p2, %p1, mask; @%p2 or.b32 %r1, %r1, 1 << shift;
        vote.sync.any.pred %p2, %p1, mask; @%p2 or.b32 %r1, %r1, 2 << shift;
        vote.sync.uni.pred %p2, %p1, mask; @%p2 or.b32 %r1, %r1, 4 << shift;
        vote.sync.all.pred %p2, !%p1, mask; @%p2 or.b32 %r1, %r1, 8 << shift;
    }}
    votes(0xffffffff, 0);
    and.b32 %r3, %r0, 1; setp.ne.u32 %p3, %r3, 0; @%p3 bra DONE; votes(0x55555555, 4); DONE:"""

    def answers(mask: int) -> int:
        p = lanes & mask
        return (p == mask) | (p != 0) << 1 | (p in (0, mask)) << 2 | (p == 0) << 3

    full, even = answers(0xFFFFFFFF), answers(0x55555555)
    assert masks(ptx, body).tolist() == [full | even << 4, full] * 16


def test_ballot(ptx: Any) -> None:
    body = "and.b32 %r2, %r0, 3; setp.eq.u32 %p1, %r2, 1; vote.sync.ballot.b32 %r1, !%p1, -1;"
    assert set(masks(ptx, body)) == {0xDDDDDDDD}


def test_elect_as_recorded(ptx: Any) -> None:
    """Leaders that an H200 elected (CUDA 13.0, driver 580): the lowest lane of the mask; lanes outside stay out."""
    recorded = {0xFFFFFFFF: 0, 0xFFFFFFF0: 4, 0x80000000: 31, 0x00FF00F0: 4, 0x55555550: 4, 0x7FFFFFFE: 1}
    for mask, leader in recorded.items():
        body = f"""mov.u32 %r1, 99; shr.u32 %r2, {mask}, %r0; and.b32 %r2, %r2, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra DONE;
            elect.sync %r1|%p2, {mask}; @%p2 add.u32 %r1, %r1, 1000; DONE:"""
        expected = [(leader + (1000 if lane == leader else 0)) if mask >> lane & 1 else 99 for lane in range(32)]
        assert masks(ptx, body).tolist() == expected


@pytest.mark.parametrize(
    "text", ["elect.sync _|%p2, -1;", "bar.warp.sync -1;", "bar.sync 0;", "shfl.sync.idx.b32 %r1, %r0, 0, 31, -1;",
             "vote.sync.ballot.b32 %r1, %p1, -1;"]
)  # fmt: skip
def test_collectives_with_missing_lanes_are_faults(ptx: Any, text: str) -> None:
    """Silicon hangs or is undefined; here the instruction is named."""
    body = f"{OUT} setp.lt.u32 %p1, %r0, 7; @%p1 bra DONE; {text} DONE: st.global.u32 [%out], %r0;"
    result = ptx.run(body, "u64 out", [np.zeros(32, np.uint32)])
    assert [f.rule for f in result.findings] == ["WL103"]
    assert text in result.findings[0].message


@pytest.mark.parametrize(
    "text", ["shfl.sync.idx.b32 %r1, %r0, 0, 31, %r5;", "vote.sync.any.pred %p2, %p1, %r5;", "bar.warp.sync %r5;",
             "redux.sync.add.u32 %r1, %r0, %r5;", "elect.sync _|%p2, %r5;", "match.any.sync.b32 %r1, %r0, %r5;"]
)  # fmt: skip
def test_every_lane_is_in_its_mask(ptx: Any, text: str) -> None:
    """Halves of a warp with a mask each are right; a lane that its own mask leaves out is named."""
    body = f"""{OUT} mov.b32 %r5, 0xffff; setp.ge.u32 %p1, %r0, 16; @%p1 mov.b32 %r5, {{upper}};
        {text} st.global.u32 [%out], %r0;"""
    assert not ptx.run(body.format(upper="0xffff0000"), "u64 out", [np.zeros(32, np.uint32)]).findings
    result = ptx.run(body.format(upper="0xfffe0000"), "u64 out", [np.zeros(32, np.uint32)])
    assert [f.rule for f in result.findings] == ["WL104"] and "lane 16" in result.findings[0].message


# ---- special registers, time ---------------------------------------------------------------------------


def test_special_registers(ptx: Any) -> None:
    names = (
        "tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z",
        "laneid", "warpid", "smid", "nsmid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
        "dynamic_smem_size",
    )  # fmt: skip
    block, grid = (5, 4, 3), (2, 3, 2)
    threads, ctas = 60, 12
    out = np.zeros((ctas, threads, len(names)), np.uint32)
    reads = "\n".join(f"mov.u32 %r5, %{name}; st.global.u32 [%d0 + {4 * k}], %r5;" for k, name in enumerate(names))
    body = f"""
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mad.lo.u32 %r2, %r3, 4, %r2; mad.lo.u32 %r1, %r2, 5, %r1;
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mov.u32 %r4, %ctaid.z; mad.lo.u32 %r3, %r4, 3, %r3; mad.lo.u32 %r2, %r3, 2, %r2;
    mad.lo.u32 %r1, %r2, {threads}, %r1; mul.wide.u32 %d0, %r1, {4 * len(names)}; add.u64 %d0, %out, %d0;
    {reads}"""
    ptx.run(body, "u64 out", [out], block=block, grid=grid, shared_bytes=512)
    for cta in range(ctas):
        where = (cta % 2, cta // 2 % 3, cta // 6)
        for thread in range(threads):
            lane = thread % 32
            eq = 1 << lane
            place = (thread % 5, thread // 5 % 4, thread // 20)
            expected = [*place, *block, *where, *grid, lane, thread // 32, 0, 1]
            expected += [eq, 2 * eq - 1, eq - 1, 2**32 - eq, 2**32 - 2 * eq, 512]
            assert out[cta, thread].tolist() == expected


def test_clock_counts_cycles_and_the_timer_nanoseconds(ptx: Any) -> None:
    out = np.zeros(6, np.uint64)
    body = """mov.u32 %r1, %clock; mov.u32 %r2, %clock_hi; st.global.v2.u32 [%out + 32], {%r1, %r2}; mov.u64 %d1, %clock64; mov.u64 %d2, %globaltimer; nanosleep.u32 10000; mov.u64 %d3, %clock64; mov.u64 %d4, %globaltimer;
        st.global.v2.u64 [%out], {%d1, %d2}; st.global.v2.u64 [%out + 16], {%d3, %d4};"""
    result = ptx.run(body, "u64 out", [out])
    cycles, slept = int(out[2] - out[0]), int(out[3] - out[1])
    assert 0 < int(out[0]) - int(out[4]) < 100 and int(out[4]) < 2**32
    assert 0 < cycles < result.cycles and 10_000 <= slept <= 20_000
    assert cycles / slept == pytest.approx(result.clock_mhz / 1000, rel=0.01)


def test_trap_is_a_fault_with_line_and_lane(ptx: Any) -> None:
    result = ptx.run("mov.u32 %r0, %tid.x; setp.ge.u32 %p1, %r0, 9; @%p1 trap;")
    (finding,) = result.findings
    assert (finding.rule, finding.severity, result.exit_code()) == ("TRAP", "fault", 6)
    assert "warp 0, lane 9" in finding.message and "trap" in finding.message


def test_indexed_branches(ptx: Any) -> None:
    """Every lane to its own label, guarded and not; the paths meet again."""
    out = np.zeros((2, 32), np.uint32)
    body = """mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; mul.wide.u32 %d0, %r1, 4; add.u64 %d0, %out, %d0; setp.lt.u32 %p1, %r1, 16;
        TABLE: .branchtargets ZERO, ONE, TWO, ZERO;
        brx.idx %r2, TABLE;
        ZERO: mov.u32 %r3, 100; bra MEET;
        ONE: mov.u32 %r3, 101; bra MEET;
        TWO: mov.u32 %r3, 102;
        MEET: activemask.b32 %r4; popc.b32 %r4, %r4; add.u32 %r3, %r3, %r4; st.global.u32 [%d0], %r3;
        mov.u32 %r3, 7;
        OTHER: .branchtargets A, B;
        @%p1 brx.idx.uni %r2, OTHER;
        bra END;
        A: mov.u32 %r3, 8; bra END;
        B: mov.u32 %r3, 9;
        END: st.global.u32 [%d0+128], %r3;"""
    result = ptx.run(body, "u64 out", [out])
    assert not result.findings, result.findings
    lanes = np.arange(32)
    assert out[0].tolist() == [132 + (lane % 4 if lane % 4 < 3 else 0) for lane in lanes]
    assert out[1].tolist() == [7 if lane >= 16 else 8 if lane % 4 == 0 else 9 for lane in lanes]


def test_an_indexed_branch_needs_its_list(ptx: Any) -> None:
    with pytest.raises(AssemblyError, match="expected the label of a .branchtargets"):
        ptx.assemble("THERE: brx.idx %r1, THERE;")
