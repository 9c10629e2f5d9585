"""Which instructions the encoded gaps do not cover.

An encoded gap keeps the next instruction behind its fixed-latency operands, so within a basic block the core need
not look at ready times that such instructions leave: instructions only ever issue later than encoded, and so does what
is between a result and its reader.  Nor at a time that the block has waited for already: whoever is there has come
through the block, in order; nor at times that nobody leaves.  What remains is GATED (the first to need what comes from another block, or from a
variable-latency instruction) and STAMPED (a result that might be late behind the end of the block).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emu.instruction import BRANCH, GATED, STAMPED
from emu.stalls import REASONS

FIXED = int(REASONS["wait"])


Slots = list[list[int]]  # ready-time slots of every instruction


def mark_gated(
    rt: np.ndarray, gates: Slots, results: Slots, blocks: Any, registers: int, branch_guard: int, mma: int
) -> Slots:
    """Set GATED and STAMPED in RT_INSTR; returns of `gates`, what instructions wait for, those to look at.

    `results`: what they write; `blocks`: the basic block of every instruction; `registers`: slots of registers,
    before those of predicates; `branch_guard`: cycles that a branch's guard must be there earlier; `mma`: the kind
    of mma.sync, whose results take as long as those of lane operations (what delays one delays all that follows).
    """
    fields = {name: rt[name].tolist() for name in ("kind", "stall", "reason", "latency", "flags", "guard")}
    fields["fixed"] = [k in (0, mma) and r == FIXED for k, r in zip(fields["kind"], fields["reason"], strict=True)]
    fields |= {"gates": gates, "results": results}
    late: Slots = []
    edges = np.flatnonzero(np.diff(blocks)) + 1
    for first, end in zip([0, *edges], [*edges, len(rt)], strict=True):
        late += _mark_block(fields, range(int(first), int(end)), registers, branch_guard)
    stamped = {s for k, flags in enumerate(fields["flags"]) if flags & STAMPED for s in results[k]}
    late = [[s for s in slots if s in stamped] for slots in late]
    rt["flags"] = [flags | (GATED if slots else 0) for flags, slots in zip(fields["flags"], late, strict=True)]
    return late


def _mark_block(f: dict[str, Any], block: range, registers: int, branch_guard: int) -> Slots:
    at, issue = {}, 0  # encoded issue cycles
    for k in block:
        at[k] = issue
        issue += f["stall"][k]
    covered: dict[int, int] = {}  # slot -> when a result is there that this block wrote, or has waited for
    writer: dict[int, int] = {}
    looked = []
    for k in block:
        late = [s for s in f["gates"][k] if s not in covered]
        looked.append(late)
        guard = registers + f["guard"][k]
        if f["flags"][k] & BRANCH and guard in covered and covered[guard] + branch_guard > at[k]:
            f["flags"][k] |= GATED
            if guard in writer:
                f["flags"][writer[guard]] |= STAMPED
        when = at[k] + f["latency"][k]
        guards = branch_guard if any(s >= registers for s in f["results"][k]) else 0
        f["flags"][k] |= 0 if f["fixed"][k] and when + guards <= issue else STAMPED
        covered |= dict.fromkeys(late, at[k])
        writer |= dict.fromkeys(f["results"][k], k)
        for slot in f["results"][k]:
            if f["fixed"][k]:
                covered[slot] = when
            else:
                covered.pop(slot, None)
    return looked
