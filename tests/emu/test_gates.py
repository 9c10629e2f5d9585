"""Ready times that the core does not look at change nothing."""

from __future__ import annotations

from typing import Any

import pytest

import emu.link
from emu.imports import closure
from emu.instruction import GATED, STAMPED
from emu.link import link
from tests.emu.test_engine import WORK, outcome


@pytest.mark.parametrize("name", WORK)
def test_looking_at_every_ready_time_gives_the_same(ptx: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, args, *rest = WORK[name](ptx)
    flags = link(kernel.program, ptx.machine()).instrs["flags"]
    assert (flags & GATED == 0).any() and (flags & STAMPED == 0).any()
    marked = outcome(ptx.step(kernel, args, *rest), args)

    def mark_all(rt: Any, gates: Any, *_: Any) -> Any:
        rt["flags"] |= GATED | STAMPED
        return gates

    monkeypatch.setattr(emu.link, "mark_gated", mark_all)
    kernel, args, *rest = WORK[name](ptx)
    everything = outcome(ptx.step(kernel, args, *rest), args)
    assert [key for key in marked if marked[key] != everything[key]] == []


def test_a_unit_is_made_from_what_it_imports() -> None:
    """What a change recompiles: the tensor core's file knows its panels, and nothing of the TMA."""
    names = {path.stem for path in closure(["emu.units.tensor"])}
    assert {"tensor", "tensor_math", "tensor_panels", "state", "common", "raw"} <= names
    assert not names & {"tma", "boxes", "engine", "wgmma"}


def test_a_time_is_looked_at_once_in_a_block(ptx: Any) -> None:
    """The first reader of a load waits for it, the second comes later anyway; a second load starts anew."""
    body = """ld.global.u32 %r1, [%p]; add.u32 %r2, %r1, 1; add.u32 %r3, %r1, 2; ld.global.u32 %r1, [%p + 4];
        add.u32 %r4, %r1, %r2; st.global.v4.u32 [%p], {%r1, %r2, %r3, %r4};"""
    program = ptx.assemble(body, "u64 p").program
    flags = link(program, ptx.machine()).instrs["flags"]
    adds = [bool(flags[k] & GATED) for k, name in enumerate(program.micro_names) if name.startswith("IADD")]
    assert adds == [True, False, True]
