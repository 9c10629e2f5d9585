"""Who is stuck, and on what: warps of a warpgroup that wait for the same thing at the same place are one party."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from emu.explain.places import role, short, warps_text
from emu.state import (
    BLOCK_BAR,
    BLOCK_BULK_QUEUE,
    BLOCK_BULK_WAIT,
    BLOCK_CLUSTER,
    BLOCK_COPY_QUEUE,
    BLOCK_MBAR,
    BLOCK_MMA_FENCE,
    BLOCK_MMA_QUEUE,
    BLOCK_MMA_WAIT,
    BLOCK_REGISTERS,
    BLOCK_TC_QUEUE,
    BLOCK_TMEM_ALLOC,
    LIVE,
    WARP_SLOTS,
)
from isa.micro import MICROS

if TYPE_CHECKING:
    from emu.sm import StreamingMultiprocessor

RETRIES = (BLOCK_MMA_QUEUE, BLOCK_BULK_QUEUE, BLOCK_COPY_QUEUE, BLOCK_REGISTERS, BLOCK_TC_QUEUE, BLOCK_TMEM_ALLOC)
KIND = {
    BLOCK_MBAR: "mbarrier",
    BLOCK_BAR: "barrier",
    BLOCK_REGISTERS: "registers",
    BLOCK_TMEM_ALLOC: "tmem",
    BLOCK_MMA_FENCE: "warpgroup",
    BLOCK_MMA_WAIT: "warpgroup",
    BLOCK_MMA_QUEUE: "warpgroup",
    BLOCK_BULK_WAIT: "bulk",
    BLOCK_CLUSTER: "cluster",
}
POLLS = ("mbar_wait", "mbar_wait_state")


class Thing(NamedTuple):
    """What can be waited for: in a CTA (its slot, and its SM's place in the team), an mbarrier by address, a barrier by number, ..."""

    kind: str  # mbarrier, barrier, cluster, registers, warpgroup, tmem, memory, bulk, or none
    cta: int
    number: int
    place: int = 0


@dataclass(frozen=True)
class Party:
    """Warps that are stuck together; `spins` are the instructions of the loop that they repeat."""

    thing: Thing
    slots: tuple[int, ...]
    warps: tuple[int, ...]
    pc: int
    asked: int
    role: str
    spins: tuple[int, ...] = ()
    place: int = 0  # of its SM in the team
    cta: int = -1  # its CTA, where there are several

    @property
    def name(self) -> str:
        """`producer (warp 0)`, in a cluster `producer (warp 0) of CTA 1`."""
        text = f"{self.role} ({warps_text(self.warps)})" if self.role != "main" else warps_text(self.warps)
        return f"{text} of CTA {self.cta}" if self.cta >= 0 else text


def stuck_parties(team: list[StreamingMultiprocessor]) -> list[Party]:
    """All live warps of the SMs of a team, those in `spinning` (slot -> instructions of the loop) by what they poll."""
    return [party for place, sm in enumerate(team) for party in _stuck(sm, place, sm.spinning)]


def _stuck(sm: StreamingMultiprocessor, place: int, spinning: dict[int, list[int]]) -> list[Party]:
    groups: dict[Any, list[int]] = {}
    for k in range(WARP_SLOTS):
        if sm.warps[k]["state"] == LIVE:
            thing, pc, asked = _waits_on(sm, k, spinning)
            thing = thing._replace(place=0 if thing.kind == "cluster" else place)
            group = (int(sm.warps[k]["cta"]), int(sm.warps[k]["index"]) // 4)
            groups.setdefault((group, thing, pc, asked), []).append(k)
    found = []
    for (_, thing, pc, asked), slots in groups.items():
        warps = tuple(int(sm.warps[k]["index"]) for k in slots)
        loop = tuple(spinning.get(slots[0], ()))
        cta = int(sm.ctas[int(sm.warps[slots[0]]["cta"])]["id"]) if sm.peers else -1
        found.append(Party(thing, tuple(slots), warps, pc, asked, role(sm, pc), loop, place, cta))
    return found


def _waits_on(sm: StreamingMultiprocessor, k: int, spinning: dict[int, list[int]]) -> tuple[Thing, int, int]:
    """(what a warp waits for, its instruction, parity asked for or -1)."""
    W = sm.warps[k]
    cta, block = int(W["cta"]), int(W["block"])
    if k in spinning:
        return _polled(sm, k, spinning[k])
    pc = int(W["wait_pc"]) if block == BLOCK_MBAR else max(int(W["pc"]) - (0 if block in RETRIES else 1), 0)
    kind = KIND.get(block, "none")
    if block == BLOCK_MBAR:
        return Thing(kind, cta, int(W["wait_slot"]) * 8 - int(W["smem_base"])), pc, int(W["wait_aux"])
    if kind == "warpgroup":
        return Thing(kind, cta, int(W["index"]) // 4), pc, -1
    return Thing(kind, cta, int(W["wait_slot"]) if block == BLOCK_BAR else 0), pc, -1


def _polled(sm: StreamingMultiprocessor, k: int, loop: list[int]) -> tuple[Thing, int, int]:
    """What a spinning warp looks at: the mbarrier of a wait in its loop, or the address of a load."""
    W, program = sm.warps[k], sm.program
    cta = int(W["cta"])
    lane = (int(W["active"]) & -int(W["active"])).bit_length() - 1
    units = {pc: MICROS[program.micro_names[pc]].unit for pc in loop}
    for pc in loop:
        if units[pc] in POLLS:
            instr = sm.linked.instrs[pc]
            address = register(sm, k, int(instr["a"]), lane) + _signed(int(instr["imm"]))
            row = int(instr["b"])
            asked = (
                register(sm, k, row + 1, lane) >> 31 if units[pc] == "mbar_wait_state" else register(sm, k, row, lane)
            )
            return Thing("mbarrier", cta, address - int(W["window"]) & 0xFFFFFFFF), pc, asked & 1
    for pc in loop:
        if (units[pc] or "").startswith("ld_"):
            address = register(sm, k, int(sm.linked.instrs[pc]["a"]), lane) + _signed(int(sm.linked.instrs[pc]["imm"]))
            return Thing("memory", cta, address - int(W["window"]) if units[pc] == "ld_shared" else -1), pc, -1
    return Thing("none", cta, 0), loop[0], -1


def register(sm: StreamingMultiprocessor, k: int, row: int, lane: int) -> int:
    """A 32-bit register of a warp slot."""
    return int(sm.windows[(k * (sm.program.rows + 1) + row) * 32 + lane])


def _signed(imm: int) -> int:
    return int(np.int32(np.uint32(imm & 0xFFFFFFFF)))


def where(sm: StreamingMultiprocessor, party: Party) -> str:
    """The place of a party's wait, in short."""
    return short(sm, party.pc)
