"""An instruction as the core reads it: `isa.program.INSTR` plus the machine's numbers (emu/link.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.state import i32, i64, u8, u16

DEPS = 5  # dependences of an instruction that are looked at without a loop
RESULTS = 4  # a pair and two predicates

# One cache line: of a program of 2,000 instructions the first-level cache holds few, so their size is time.  Branches
# have no lists and no immediate, and put their targets there.
_RT_FIELDS: list[tuple[str, Any, int]] = [
    ("op", u16, 0),
    ("kind", u8, 2),
    ("pipe", u8, 3),
    ("d", u16, 4),
    ("a", u16, 6),
    ("b", u16, 8),
    ("c", u16, 10),
    ("guard", u8, 12),
    ("flip", u8, 13),
    ("pd", u8, 14),
    ("pd2", u8, 15),
    ("pa", u8, 16),
    ("pb", u8, 17),
    ("nd", u8, 18),
    ("ns", u8, 19),
    ("stall", u8, 20),  # encoded issue gap to the next instruction, cycles
    ("reason", u8, 21),  # stall reason of consumers of the result
    ("throttle", u8, 22),  # stall reason while the pipe is busy
    ("linger", u8, 23),  # cycles during which it delays the operands of another warp's mma.sync
    ("drag", u8, 55),  # cycles that it takes from a running mma.sync
    ("latency", u16, 24),  # cycles to the result
    ("interval", u16, 26),  # cycles that the pipe is busy
    ("slowed", u16, 28),  # the same while the tensor core runs
    ("flags", u16, 30),
    ("list", i32, 32),  # lists of registers: nd results, ns sources, ng slots that gate issue beyond `dep`
    ("target", i32, 32),
    ("dep", (u16, DEPS), 36),  # ready-time slots that gate issue; spare ones name a slot that is always 0
    ("res", (u16, RESULTS), 46),  # ready-time slots of the results; spare ones name a slot that nobody reads
    ("ng", u8, 54),
    ("imm", i64, 56),
    ("reconv", i32, 56),
]
RT_INSTR = np.dtype(
    {
        "names": [name for name, _, _ in _RT_FIELDS],
        "formats": [kind for _, kind, _ in _RT_FIELDS],
        "offsets": [offset for _, _, offset in _RT_FIELDS],
        "itemsize": 64,
    }
)
SPIN = 1  # a try_wait whose only continuation on false is itself
PAIR = 2  # the register result is a 64-bit pair
HAS_D = 8  # has a register result
LOADS = 16  # the result list is written like a register (not asynchronously)
BRANCH = 32  # a branch: its guard must be there earlier
REGS = 4  # uses the register file's ports: competes with the tensor core for them
GATED = 128  # operands may be late: encoded gaps alone do not cover them (emu/link.py)
STAMPED = 256  # someone may have to wait for the result beyond the encoded gaps
