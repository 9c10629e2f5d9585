"""Mutants of fa3's barrier protocol: a sample of the list in docs/mutants.md."""

from __future__ import annotations

import functools

import pytest

from isa.syntax import Instr
from tools.mutants.__main__ import Bench, Verdict
from tools.mutants.sites import Mutant, without

SAMPLE = 16


@functools.cache
def bench() -> Bench:
    return Bench("fa3")


@functools.cache
def every() -> tuple[Mutant, ...]:
    return tuple(bench().mutants())


def judge(what: str, barrier: str, seeds: int = 0) -> list[Verdict]:
    found = [m for m in every() if m.what == what and m.barrier == barrier]
    assert found, f"no mutant: {what}, {barrier}"
    return [bench().judge(m, seeds) for m in found]


def test_the_program_itself_is_right() -> None:
    kernel = bench().assemble(Mutant("nothing", "", "", bench().module))
    assert all(bench().run(kernel, seed)[1] for seed in range(-1, 5))


def test_there_are_many_and_each_is_another_program() -> None:
    assert len(every()) >= 60 and len({m.name for m in every()}) > 60
    assert len({m.what for m in every()}) >= 15 and all(m.barrier for m in every())


@pytest.mark.parametrize("k", range(SAMPLE))
def test_a_hang_s_report_names_the_barrier(k: int) -> None:
    """Every mutant of the sample ends, and a report on a hang has the barrier that was changed."""
    mutant = every()[k * len(every()) // SAMPLE]
    found = bench().judge(mutant, 1)
    assert found.how in ("deadlock", "livelock", "fault", "wrong", "unchanged"), (mutant.name, found)
    assert found.named or found.how == "fault", (mutant.name, found)


@pytest.mark.parametrize(
    ("what", "barrier", "rules"),
    [
        ("drop the arrival", "Q_EMPTY", {"MB204"}),
        ("count one more", "K_EMPTY", {"MB204"}),
        ("expect 16 bytes more", "V_FULL", {"TX101"}),
        ("drop the copy", "K_FULL", {"TX101"}),
        ("double the arrival", "K_FULL", {"MB106"}),
        ("flip the parity", "K_EMPTY", {"MB201"}),
        ("drop the setmaxnreg", "the register pool", {"RG101", ""}),
    ],
)
def test_what_the_report_says(what: str, barrier: str, rules: set[str]) -> None:
    verdicts = judge(what, barrier)
    assert {v.rule for v in verdicts} <= rules and all(v.blamed for v in verdicts if v.rule.startswith(("MB2", "TX")))


def test_o_free_keeps_v_off_o() -> None:
    """Property 3 of attention-kernels.md 6.2: without it V of the next tile overwrites O, which nobody reports."""
    assert [v.how for v in judge("remove the wait", "O_FREE", 5)] == ["wrong"]


def test_the_first_token_must_be_given() -> None:
    """Property 4: without the first arrival the warpgroups wait for each other's token."""
    (found,) = [
        bench().judge(m, 0) for m in every() if m.what == "drop the bar.arrive" and m.place.startswith("fa3.mptx")
    ]
    assert found.how == "deadlock" and found.rule == "MB201"


def test_a_token_for_both_costs_exclusion_only() -> None:
    """Property 4: given to both warpgroups at the start, the result is right in the usual timing.

    In others a warpgroup that is ahead passes a token twice before it is taken, which hangs: the report says so.
    """

    def guard_of_the_first_token(code: list[Instr], k: int) -> bool:
        following = code[k + 1] if k + 1 < len(code) else code[k]
        return code[k].opcode == "bra" and following.opcode == "bar.arrive" and "fa3.mptx" in following.pos.file

    module = without(bench().module, guard_of_the_first_token)
    kernel = bench().assemble(Mutant("", "", "", module))
    plain = bench().assemble(Mutant("", "", "", bench().module))
    result, right = bench().run(kernel)
    assert right and result.cycles != bench().run(plain)[0].cycles
    for seed in range(5):
        result, right = bench().run(kernel, seed)
        assert right or (result.deadlock is not None and "NB102" in {c.rule for c in result.deadlock.causes})


@pytest.mark.parametrize(
    ("what", "barrier"),
    [("count one less", "K_EMPTY"), ("count one more", "V_EMPTY"), ("count a warp more", "barrier 1")],
)
def test_counts_that_do_not_match_show(what: str, barrier: str) -> None:
    """Property 8, on fa3's barriers: early release is a wrong result or a lapped waiter, a late one a hang."""
    found = judge(what, barrier, 3)
    assert all(v.how in ("wrong", "deadlock", "fault", "unchanged") for v in found)
    assert any(v.how != "unchanged" for v in found)
