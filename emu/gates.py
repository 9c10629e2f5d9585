"""Which instructions the encoded gaps do not cover.

An encoded gap keeps the next instruction behind its fixed-latency operands, so within a basic block the core need
not look at ready times that such instructions leave: instructions only ever issue later than encoded, and so does what
is between a result and its reader.  What remains is GATED (an operand comes from another block, or from a
variable-latency instruction) and STAMPED (a result that might be late behind the end of the block).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.stalls import REASONS
from emu.state import BRANCH, GATED, LISTS, STAMPED

FIXED = int(REASONS["wait"])


def mark_gated(rt: np.ndarray, lists: np.ndarray, blocks: Any, registers: int, zero: int, branch_guard: int) -> None:
    """Set GATED and STAMPED in RT_INSTR.

    `blocks`: the basic block of every instruction; `registers`: rows that have ready times; `zero`: the slot that
    is always ready, predicates lie before it; `branch_guard`: cycles that a branch's guard must be there earlier.
    """
    fields = {
        name: rt[name].tolist()
        for name in ("kind", "dep", "res", "list", "nd", "ns", "stall", "reason", "latency", "flags", "guard")
    }
    rows = lists.tolist()
    edges = np.flatnonzero(np.diff(blocks)) + 1
    for first, end in zip([0, *edges], [*edges, len(rt)], strict=True):
        _mark_block(fields, rows, range(int(first), int(end)), registers, zero, branch_guard)
    rt["flags"] = fields["flags"]


def _mark_block(f: dict[str, Any], rows: list[int], block: range, registers: int, zero: int, branch_guard: int) -> None:
    at, issue = {}, 0  # encoded issue cycles
    for k in block:
        at[k] = issue
        issue += f["stall"][k]
    covered: dict[int, int] = {}  # slot -> when a fixed-latency result of this block is there
    for k in block:
        gates = [s for s in f["dep"][k] if s != zero]
        listed = rows[f["list"][k] : f["list"][k] + f["nd"][k] + f["ns"][k]] if f["flags"][k] & LISTS else []
        gates += listed if f["kind"][k] == 0 else [row for row in listed if row < registers]
        late = any(s not in covered for s in gates)
        if f["flags"][k] & BRANCH and f["guard"][k]:
            late = late or covered[registers + f["guard"][k]] + branch_guard > at[k]
        fixed = f["kind"][k] == 0 and f["reason"][k] == FIXED
        when = at[k] + f["latency"][k]
        guards = branch_guard if any(registers <= s < zero for s in f["res"][k]) else 0
        f["flags"][k] |= (GATED if late else 0) | (0 if fixed and when + guards <= issue else STAMPED)
        for slot in (*f["res"][k], *listed[: f["nd"][k]]):
            if fixed:
                covered[slot] = when
            else:
                covered.pop(slot, None)
