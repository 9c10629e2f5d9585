"""A sample of the long job of barrier programs."""

from __future__ import annotations

import pytest

from tools.barriers import __main__ as job


@pytest.mark.parametrize("part", range(4))
def test_a_sample_agrees(part: int) -> None:
    ends = [job.check(seed) for seed in range(10**9 + 250 * part, 10**9 + 250 * (part + 1))]
    assert ends.count("done") > 20 and ends.count("stuck") > 20 and ends.count("skipped") < 40
    assert any(end.startswith("fault") for end in ends)


def test_a_difference_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(job, "outcomes", lambda *_: set())
    monkeypatch.setattr(job.os, "nice", lambda _: 0)
    assert job.main(["--programs", "3"]) == 1
    assert "program 0:" in capsys.readouterr().out
