"""Faults, deadlocks and livelocks in words: where, who, which barrier, what is missing, what to do."""

from __future__ import annotations

from emu.explain.deadlock import explain_deadlock
from emu.explain.faults import explain_fault
from emu.explain.rules import FAULTS, TEMPLATES, note, rules

__all__ = ["FAULTS", "TEMPLATES", "explain_deadlock", "explain_fault", "note", "rules"]
