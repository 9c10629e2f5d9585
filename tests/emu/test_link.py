"""Programs bound to a machine: encoded gaps, flags, spinning waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emu.instruction import BRANCH, HAS_D, LOADS, PAIR, SPIN
from emu.link import link, pipe_names, spins
from emu.machine import load_machine


def linked(ptx: Any, body: str, params: str = "", shared: str = "") -> tuple[Any, list[str], Any]:
    program = ptx.assemble(body, params, shared).program
    bound = link(program, ptx.machine())
    return bound.instrs, program.micro_names, bound.pipes


def test_dependent_and_independent_gaps(ptx: Any) -> None:
    """FFMA is followed at once by an independent one, after 4 cycles by one that needs it (encoded by ptxas: 1 and 4)."""
    body = "mov.f32 %f2, 0f3f800000; mov.f32 %f3, 0f40000000; AGAIN: .for k in (0, 4) { fma.rn.f32 %f1, %f1, %f2, %f3; } .for k in (0, 4) { fma.rn.f32 %f{4+k}, %f{4+k}, %f2, %f3; } bra AGAIN;"
    rt, names, _ = linked(ptx, body)
    first = next(k for k, name in enumerate(names) if name.startswith("FFMA"))
    assert rt["stall"][first : first + 8].tolist() == [4, 4, 4, 1, 1, 1, 1, 1]


def test_variable_latency_is_left_to_the_scoreboard(ptx: Any) -> None:
    body = "AGAIN: ex2.approx.ftz.f32 %f1, %f2; add.f32 %f2, %f1, %f1; bra AGAIN;"
    rt, names, _ = linked(ptx, body)
    k = next(k for k, name in enumerate(names) if name.startswith("MUFU"))
    assert rt["stall"][k] < rt["latency"][k]


def test_gaps_do_not_cross_blocks(ptx: Any) -> None:
    rt, names, _ = linked(
        ptx, "mov.u32 %r1, %tid.x; AGAIN: mul.lo.u32 %r1, %r1, %r1; NEXT: add.u32 %r1, %r1, 1; bra AGAIN;"
    )
    assert (rt["stall"] >= 1).all() and len(rt) == len(names)


def test_flags(ptx: Any) -> None:
    rt, names, _ = linked(
        ptx,
        "ld.global.v2.u32 {%r1, %r2}, [%p]; mov.u64 %d1, %clock64; st.global.v2.u32 [%p + 8], {%r1, %r2}; st.global.u64 [%p], %d1;",
        "u64 p",
    )
    flags = dict(zip(names, rt["flags"], strict=True))
    assert (
        flags["LDG"] & LOADS
        and flags["CS2R"] & HAS_D
        and flags["CS2R"] & PAIR
        and not flags["STG"] & (LOADS | HAS_D)
        and flags["EXIT"] & BRANCH
    )


WAIT = "mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mbarrier.wait [bar], 0;", True),
        (f"AGAIN: {WAIT} @%p1 bra DONE; bra AGAIN; DONE:", True),
        (f"AGAIN: {WAIT} @%p1 bra DONE; add.u32 %r5, %r5, 1; bra AGAIN; DONE: st.shared.u32 [bar], %r5;", True),
        (WAIT, False),
        (f"AGAIN: {WAIT} @%p1 bra DONE; st.shared.u32 [other], %r1; bra AGAIN; DONE:", False),
        (f"AGAIN: {WAIT} @%p1 bra DONE; setp.gt.u32 %p2, %r1, 9; @%p2 bra DONE; bra AGAIN; DONE:", False),
        (f"AGAIN: {WAIT} @!%p1 bra OTHER; bra DONE; OTHER: trap; DONE:", False),
    ],
)
def test_spinning_waits(ptx: Any, text: str, expected: bool) -> None:
    """A wait that only leads back to itself may be part of a deadlock; one that gives up may not."""
    program = ptx.assemble(text, shared=".shared .align 8 .b64 bar; .shared .b32 other;").program
    k = next(k for k, name in enumerate(program.micro_names) if name.startswith("SYNCS.TRYWAIT"))
    assert spins(program, k) == expected
    assert bool(link(program, ptx.machine()).instrs["flags"][k] & SPIN) == expected


def test_every_machine_has_every_timing_class(ptx: Any) -> None:
    import isa.registry
    from isa.micro import MICROS

    isa.registry.load()
    for name in ("h200", "h100", "b200", "b300"):
        machine = load_machine(name)
        needed = {op.timing for op in MICROS.values()}
        assert machine.has("tcgen05") or not {c for c in machine.timing if c.startswith("tcgen05_")}
        assert {c for c in needed if machine.has("tcgen05") or not c.startswith("tcgen05_")} <= set(machine.timing)
        assert pipe_names(machine)[0] == "none" and len(pipe_names(machine)) == len(set(pipe_names(machine)))


def test_the_numbers_are_the_machines(ptx: Any) -> None:
    slow = load_machine("h200", ("timing.fma.latency=9",))
    program = ptx.assemble("AGAIN: fma.rn.f32 %f1, %f1, %f2, %f3; fma.rn.f32 %f1, %f1, %f2, %f3; bra AGAIN;").program
    k = next(k for k, name in enumerate(program.micro_names) if name.startswith("FFMA"))
    assert link(program, slow).instrs["latency"][k] == 9 and link(program, slow).instrs["stall"][k] == 9
    assert np.array_equal(link(program, slow).instrs["op"], link(program, load_machine("h200")).instrs["op"])
