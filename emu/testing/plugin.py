"""The pytest plugin: fixture `warpsmith`, marker `warpsmith(machine=..., set=...)`.

pytest imports this file in every run of an environment that has warpsmith, so it imports nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from emu.testing.snippets import Snippets

_choice: list[tuple[str, tuple[str, ...], str]] = [("h200", (), ".")]  # machine, overrides, folder of the test


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    text = (
        "warpsmith(machine='h200', set=()): the machine of the fixture `warpsmith`, and parameters changed as by --set"
    )
    config.addinivalue_line("markers", text)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose the machine of the next test."""
    marker = item.get_closest_marker("warpsmith")
    options: dict[str, Any] = dict(marker.kwargs) if marker else {}
    if marker and marker.args:
        options.setdefault("machine", marker.args[0])
    if unknown := set(options) - {"machine", "set"}:
        raise pytest.UsageError(f"marker warpsmith takes machine and set, not {', '.join(sorted(unknown))}")
    _choice[0] = str(options.get("machine", "h200")), tuple(options.get("set", ())), str(item.path.parent)


class _Current:
    """The Snippets of the test that runs: the fixture is one for the session, so that Hypothesis may use it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[str, ...], str], Snippets] = {}

    def __getattr__(self, name: str) -> Any:
        from emu.testing.snippets import Snippets

        choice = _choice[0]
        if choice not in self._known:
            self._known[choice] = Snippets(*choice)
        return getattr(self._known[choice], name)


@pytest.fixture(scope="session")
def warpsmith() -> Any:
    """`emu.testing.Snippets` on the machine of the test's marker (h200 without one)."""
    return _Current()
