"""Here `warpsmith` is the plugin's fixture, not the command line of the tests beside."""

from __future__ import annotations

from emu.testing.plugin import warpsmith

__all__ = ["warpsmith"]
