"""The list of stall reasons is complete and closed."""

from emu.stalls import CAUSES, MEANINGS, REASONS, Reason

NSIGHT = (
    "selected not_selected wait long_scoreboard short_scoreboard math_pipe_throttle mio_throttle lg_throttle barrier "
    "gmma warpgroup_arrive dispatch_stall branch_resolving no_instruction imc_miss sleeping membar drain misc"
)


def test_names_are_nsights():
    assert sorted(REASONS) == sorted(NSIGHT.split())


def test_numbers_are_dense_from_zero():
    assert [int(r) for r in Reason] == list(range(len(Reason)))
    assert Reason.SELECTED == 0


def test_every_reason_has_a_meaning_of_its_own():
    assert set(MEANINGS) == set(Reason)
    assert len(set(MEANINGS.values())) == len(Reason)


def test_causes_are_named_once():
    assert len({cause.name for cause in CAUSES}) == len(CAUSES)
