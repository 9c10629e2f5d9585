"""What a key block costs in instructions, for each generation: the counters of the algorithms (arithmetic on the tile sizes).

The difference of two launches that differ by one block; warp instructions by source line.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import programs
from emu.machine import load_machine
from emu.solve import solve

Counts = Callable[..., int]


def block(name: str, machine: str, rows: int, keys: int) -> tuple[Counts, Counts]:
    """Counts of one key block more: of the lines that have all of some words, and of a role's instructions on a pipe."""
    results = []
    for blocks in (2, 3):
        problem = programs.find(name).from_options(seqlen=rows, seqlen_k=keys * blocks, heads=1)
        result = solve(problem, load_machine(machine, ("chip.sms=1",)))
        assert result.numerics is not None and result.numerics.passed
        results.append(result)

    def counts(*words: str) -> int:
        of = [
            sum(
                line.warp_instructions
                for line in r.lines
                if all(w in line.text for w in words) and line.role != "epilogue"
            )
            for r in results
        ]
        return of[1] - of[0]

    def pipe(role: str, pipe: str) -> int:
        before, after = (r.instruction_mix[role].get(pipe, 0) for r in results)
        return after - before

    return counts, pipe


def test_fa2() -> None:
    """128 rows, 64 keys, head dim 128, four warps: 1024 products, 8192 exponentials, 32 KB of K and V, two barriers, 32 shuffles."""
    counts, _ = block("fa2", "a100", 128, 64)
    assert counts("mma.sync") == 1024
    assert counts("ex2.approx") == 8192 // 32 + 4 * 4  # and a factor for each of a warp's four rows a lane
    assert counts("cp.async.cg") == 32768 // (16 * 32)
    assert counts("bar.sync") == 2 * 4
    assert counts("shfl.sync") == 32


def test_fa3() -> None:
    """128 rows, 176 keys: two warpgroups of 8 QK and 11 PV, 22,528 exponentials, 90,112 bytes, a token each, 32 shuffles."""
    counts, pipe = block("fa3", "h200", 128, 176)
    assert counts("wgmma.mma_async") == 2 * 4 * (8 + 11)
    assert counts("ex2.approx") == 22528 // 32 + 2 * 8
    assert counts("mbarrier.arrive.expect_tx") == 2
    assert pipe("producer", "tma") * 176 * 128 == 90112
    assert counts("bar.sync", "%token") == 2 * 4
    assert counts("shfl.sync") == 32


def test_fa4() -> None:
    """256 rows, 128 keys: 16 QK and 16 PV, 32,768 exponentials by MUFU or polynomial, 65,536 bytes, eight statistics, no shuffles."""
    counts, pipe = block("fa4", "b200", 256, 128)
    assert pipe("mma", "tc") == 16 + 16 + 4  # and the commits of S0, S1, K and V
    polynomials = counts("mad.lo.s32", "1 << 23")
    assert polynomials == 8 * 24  # 18.75 %
    assert counts("ex2.approx.ftz.f32 %s") + polynomials == 32768 // 32
    assert counts("ex2.approx.ftz.f32 %alpha") == 8
    assert counts("mbarrier.arrive.expect_tx") == 2
    assert pipe("load", "tma") * 128 * 128 == 65536
    assert counts("bar.arrive") == counts("bar.sync") == 8
    assert counts("shfl") == 0
    assert counts("max.ftz.f32 %top") == 8 * 64  # of three
    assert counts("fma.rn.ftz.f32x2 %d{p}, %d{p}, %scale2") == 8 * 64


@pytest.mark.parametrize("causal", [False, True])
def test_fa4_blocks_of_a_mask(causal: bool) -> None:
    """As many products as key blocks that a tile sees."""
    problem = programs.find("fa4").from_options(seqlen=600, heads=1, causal=causal)
    result = solve(problem, load_machine("b200", ("chip.sms=1",)))
    blocks = [problem.key_blocks(row) for row in range(3)]  # type: ignore[attr-defined]
    ends = 2 * 3  # commits of a tile: Q0, Q1, O0, O1, and two that a block more would have had
    assert result.instruction_mix["mma"]["tc"] == sum(36 * n for n in blocks) + (ends - 4) * 3 + 6
