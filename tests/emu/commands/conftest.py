"""A file with a kernel, and a machine that runs nothing."""

import pytest

import emu.api
import emu.solve  # before a test replaces `emu.api.launch`, which it would keep
from emu.result import Result
from tests.emu.commands.stand_in import KERNEL, fake_result


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "add.mptx"
    path.write_text(KERNEL)
    return str(path)


@pytest.fixture
def launches(monkeypatch):
    """Replace the machine; the list holds the keyword arguments of every launch."""
    calls: list[dict[str, object]] = []

    def launch(kernel: object, **kwargs: object) -> Result:
        calls.append(kwargs)
        return fake_result()

    monkeypatch.setattr(emu.api, "launch", launch)
    monkeypatch.setattr(emu.solve, "launch", launch)
    return calls
