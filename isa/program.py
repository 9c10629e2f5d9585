"""The encoded program: structured arrays that the machine executes, and what reports need.

Nothing here depends on the text that the program came from, except the line map.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from isa.syntax import Pos

NO_PRED = 0  # predicate slot 0 is always true; never written
NO_ROW = 0xFFFF  # in INSTR.d: no register result

# Windows of the generic address space.  Shared addresses are offsets (32 bits); the first kilobyte of
# shared memory belongs to the system on sm_90 and later (as ptxas lays it out).
PARAM_BASE = 0x0000_7000_0000_0000  # the parameter block, read-only
GLOBAL_BASE = 0x0000_7100_0000_0000  # the module's .global and .const variables
SHARED_BASE = 0x400
# In place of a parameter's offset: where a CTA's shared memory begins in its cluster's (rank << 24).
CLUSTER_WORD = 1 << 20
RANK_BIT = 24  # of a shared address: the CTA's rank in its cluster from this bit on (as ptxas lays it out)
WINDOW_SIZE = 1 << 32  # of the two windows below: the low half of a generic address is the address inside
LOCAL_WINDOW = 0x0000_7E00_0000_0000
SHARED_WINDOW = 0x0000_7F00_0000_0000

INSTR = np.dtype(
    [
        ("op", np.uint16),  # lane: index among lane micro-operations; unit: index among unit routines
        ("kind", np.uint8),  # 0 lane, 1 unit
        ("timing", np.uint8),  # index into Program.timing_names
        ("d", np.uint16),  # result row (a pair starts here), NO_ROW without one
        ("a", np.uint16),  # source rows
        ("b", np.uint16),
        ("c", np.uint16),
        ("guard", np.uint8),  # predicate slot that enables lanes (0: all)
        ("flip", np.uint8),  # bit 0: guard negated, 1: pa negated, 2: pb negated
        ("pd", np.uint8),  # predicate results (0: none)
        ("pd2", np.uint8),
        ("pa", np.uint8),  # predicate sources
        ("pb", np.uint8),
        ("nd", np.uint8),  # 32-bit rows in the result list (count minus one never used: 0..255)
        ("ns", np.uint8),  # 32-bit rows in the source list
        ("list", np.int32),  # offset of the lists in Program.lists: nd results, then ns sources
        ("target", np.int32),  # branch target, or -1
        ("reconv", np.int32),  # reconvergence point of a branch that may diverge, or -1
        ("ndep", np.uint8),  # how many of `dep` are used
        ("stall", np.uint8),  # fixed issue gap to the next instruction of the warp (0: by timing class)
        ("dep", np.uint16, 8),  # ready-time slots that gate issue: rows, and rows+slot for predicates
        ("imm", np.int64),
        ("block", np.int32),  # basic block
    ],
    align=True,
)


@dataclass
class ArgSlot:
    """A kernel parameter in the parameter block: byte `offset`, `size`, PTX `type`, `align`."""

    name: str
    type: str
    offset: int
    size: int
    align: int


@dataclass
class Program:
    """One kernel, encoded for one target; independent of any machine's numbers.

    Rows: 0..registers-1 are registers, then `constants` rows (`const_bits`; a row that mirrors a
    parameter word has its byte offset in `const_param`, else -1).  Ready-time slots: the rows,
    then `predicates` slots starting at `rows`.
    """

    name: str
    target: str
    instrs: np.ndarray  # INSTR
    lists: np.ndarray  # uint16 rows
    registers: int  # physical 32-bit registers a thread, as ptxas would report
    predicates: int  # slots, slot 0 included
    const_bits: np.ndarray  # uint32 per constant row
    const_param: np.ndarray  # int32: parameter byte offset or -1
    timing_names: list[str]
    micro_names: list[str]  # per instruction
    args: list[ArgSlot]
    param_bytes: int
    shared_static: int  # bytes of .shared variables (dynamic ones start after), from SHARED_BASE
    shared_symbols: dict[str, int]  # shared addresses
    block_hint: tuple[int, int, int] | None  # .reqntid
    max_registers: int | None  # .maxnreg; with setmaxnreg what the directives fix for the launch
    min_ctas: int
    lines: list[Pos]  # per instruction
    roles: list[str]  # role names; index per instruction in role_of
    role_of: np.ndarray  # uint8 per instruction
    source: dict[str, list[str]]  # file -> lines
    spilled: int = 0
    warnings: list[str] = field(default_factory=list)
    unwritten: list[str] = field(default_factory=list)  # registers that are read but that nothing writes, in words
    global_image: bytes = b""  # initialised .global/.const variables
    global_symbols: dict[str, int] = field(default_factory=dict)  # generic addresses, from GLOBAL_BASE
    local_bytes: int = 0  # .local variables a thread; their addresses start at 0
    clustered: bool = False  # it knows of clusters: shared addresses carry the CTA's rank
    cluster: tuple[int, int, int] | None = None  # .reqnctapercluster
    explicit_cluster: bool = False  # .explicitcluster: a launch gives its clusters
    max_cluster: int | None = None  # .maxclusterrank
    blocks_are_clusters: bool = False  # .blocksareclusters: the grid counts clusters

    @functools.cached_property
    def nobodys(self) -> np.ndarray:
        """bool per instruction: its role is only that of the lines above, for it follows a label to which another role branches."""
        found = np.zeros(len(self.instrs), bool)
        for pc in np.flatnonzero(self.instrs["target"] > 0):
            at = int(self.instrs["target"][pc])
            if self.role_of[at - 1] == self.role_of[at] != self.role_of[pc]:
                others = np.flatnonzero(self.role_of[at:] != self.role_of[at])
                found[at : at + others[0] if len(others) else None] = True
        return found

    @property
    def rows(self) -> int:
        """Rows of a warp's register window: registers and constants."""
        return self.registers + len(self.const_bits)
