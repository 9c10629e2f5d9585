"""Tests for code that synchronises: generated barrier programs, a reference model, a pytest fixture.

    from emu.testing import Pipeline, barrier_programs, outcomes, execute

`docs/testing.md` has a worked example.  The strategies and the state machine need Hypothesis, the fixture pytest
(`pip install warpsmith[testing]`); nothing of this is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "BarrierProgram": "emu.testing.program",
    "Op": "emu.testing.program",
    "Outcome": "emu.testing.program",
    "Mbarrier": "emu.testing.model",
    "Trap": "emu.testing.model",
    "outcomes": "emu.testing.model",
    "execute": "emu.testing.interpreter",
    "Pipeline": "emu.testing.rings",
    "Fault": "emu.testing.rings",
    "faults": "emu.testing.rings",
    "barrier_programs": "emu.testing.strategies",
    "pipelines": "emu.testing.strategies",
    "mutants": "emu.testing.strategies",
    "mbarrier_operations": "emu.testing.strategies",
    "MbarrierMachine": "emu.testing.stateful",
    "ClusterProgram": "emu.testing.clusters",
    "cluster_programs": "emu.testing.clusters",
    "run_cluster": "emu.testing.clusters",
    "Snippets": "emu.testing.snippets",
    "assert_clean": "emu.testing.snippets",
    "assert_cycles": "emu.testing.snippets",
    "assert_unchanged": "emu.testing.snippets",
}
__all__ = [
    "BarrierProgram",
    "ClusterProgram",
    "Fault",
    "Mbarrier",
    "MbarrierMachine",
    "Op",
    "Outcome",
    "Pipeline",
    "Snippets",
    "Trap",
    "assert_clean",
    "assert_cycles",
    "assert_unchanged",
    "barrier_programs",
    "cluster_programs",
    "execute",
    "faults",
    "mbarrier_operations",
    "mutants",
    "outcomes",
    "pipelines",
    "run_cluster",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'emu.testing' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
