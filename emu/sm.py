"""The arrays of one SM, wired together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.aligned import aligned
from emu.chaos import Chaos
from emu.chip_state import CHIP, CLUSTER, MESSAGE, REQUEST, REQUESTS, SENDING
from emu.copy_state import COPY, JOB, TMAP
from emu.generate import CORE, UNITS, advances, code_address, compiled_file, prepare
from emu.l1_state import L1_LINE, L1_WAYS
from emu.link import Linked, time_slots
from emu.machine import Machine
from emu.memory_map import MemoryMap
from emu.stalls import Reason
from emu.state import (
    CELL,
    COPIES,
    CTA,
    CTA_SLOTS,
    DEADLOCK,
    EVENT,
    EVENTS,
    FINISHED,
    HOT,
    JOBS,
    NEVER,
    PERTURBATION,
    PERTURBATIONS,
    PIPES,
    QUANTUM,
    REASONS,
    RUNNING,
    SUBPARTITIONS,
    TC_RING,
    TMEM_LANES,
    TMEM_RING,
    TMEM_RINGS,
    WARP,
    WARP_SLOTS,
    WARPGROUPS,
    WGROUP,
)
from emu.tmem_state import TC_JOB, TMEM_STAGE, TMOVE
from emu.units.l1 import EPOCH
from isa.budget import entry_cap
from isa.program import CLUSTER_WORD, SHARED_BASE, Program

PAGE = 1024


@dataclass(frozen=True)
class Shape:
    """What a launch needs of an SM."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_dynamic: int
    shared_cta: int  # bytes of a CTA's window, reserved part included
    slots: int  # resident CTAs
    silicon: bool = False  # numerics of the tensor cores
    cluster: tuple[int, int, int] = (1, 1, 1)  # CTAs of a cluster
    explicit_cluster: bool = False  # whether the launch says so

    @property
    def threads(self) -> int:
        return int(np.prod(self.block))

    @property
    def together(self) -> int:
        """CTAs of a cluster."""
        return int(np.prod(self.cluster))

    @property
    def warps(self) -> int:
        return -(-self.threads // 32)


class StreamingMultiprocessor:
    """One SM: its state arrays, which can be looked at after a run (`emu.chip.Chip.run`)."""

    def __init__(
        self,
        program: Program,
        machine: Machine,
        linked: Linked,
        shape: Shape,
        memory: MemoryMap,
        config: Any,
        record: np.ndarray,
        sm_id: int,
        place: int,
    ) -> None:
        self.program, self.machine, self.shape, self.memory = program, machine, shape, memory
        self.linked, self.config, self.sm = linked, config, record
        self.warps = np.zeros(WARP_SLOTS, WARP)
        self.ctas = np.zeros(CTA_SLOTS, CTA)
        self.groups = np.zeros(WARPGROUPS, WGROUP)
        self._make_copies()
        self.ready, self.next, self.order = (np.full(WARP_SLOTS, NEVER, np.int64) for _ in range(3))
        self.free = np.zeros(SUBPARTITIONS * PIPES, np.int64)
        self.warp_stalls = np.zeros((WARP_SLOTS, REASONS), np.int64)
        self.stalls = np.zeros((len(program.instrs), REASONS), np.int64)
        self._hot = aligned(len(program.instrs) * HOT, np.uint32).reshape(-1, HOT)
        self._cold = np.zeros((len(program.instrs), REASONS - HOT), np.uint32)
        self.shared = aligned(shape.slots * shape.shared_cta, np.uint8, PAGE)
        self.mbars = np.zeros(len(self.shared) // 8, np.int64)
        self.live = np.zeros(len(self.shared) // 8, np.uint8)
        self.cells = np.zeros(len(self.shared) // 8, CELL)
        self.events = np.zeros(EVENTS, EVENT)
        self.marked = np.zeros(len(self.shared) // PAGE if "async_copy" in linked.units else 0, np.uint64)
        self.copied = np.empty(len(self.marked) * PAGE // 16, np.int64)
        self.versions = np.zeros(len(self.shared) // PAGE + 1, np.int64)
        self._make_tensor_cores()
        self.log = np.empty(REQUESTS, REQUEST)
        self.l1 = np.zeros(l1_lines(program, machine, shape) // L1_WAYS * L1_WAYS, L1_LINE)
        self.windows = aligned(WARP_SLOTS * (program.rows + 1) * 32, np.uint32)
        self.predicates = np.zeros(WARP_SLOTS * program.predicates, np.uint32)
        self.times = np.zeros(WARP_SLOTS * time_slots(program), np.int64)
        self.constants = memory.constants()
        self.segments, _ = memory.segments()
        self.copies = np.zeros(COPIES, COPY)
        self.window_list = np.zeros(4, np.int64)
        self.local = np.zeros(max(WARP_SLOTS * 32 * program.local_bytes, 1), np.uint8)
        self.staging = np.empty(JOBS * shape.shared_cta, np.uint8)
        self.perturbations = np.zeros(1, PERTURBATION)
        self.spinning: dict[int, list[int]] = {}  # warp slot -> the loop that it repeats for ever
        self.chip = np.zeros(1, CHIP)  # of which it is a part
        self.clusters = np.zeros(1, CLUSTER)
        self.team: list[StreamingMultiprocessor] = [self]  # the SMs that its clusters run on
        self.answer: Callable[[], None] | None = None  # its requests, when no other SM moves
        self._wire(sm_id)
        self.sm["place"] = place

    def _make_copies(self) -> None:
        """Bulk copies in flight, and messages of other SMs."""
        shape = self.shape
        self.peers = shape.together if self.program.clustered and shape.together > 1 else 0
        inbox = 1 << (self.peers * (SENDING + JOBS + WARP_SLOTS)).bit_length() if self.peers else 0
        self.jobs = np.zeros(JOBS + inbox, JOB)
        self.tmaps = np.zeros(JOBS + inbox, TMAP)
        self.messages = np.empty(inbox, MESSAGE)
        self.inbox = np.zeros(inbox, np.int32)
        self.spare = np.arange(inbox, dtype=np.int32)[::-1].copy()
        self.sent = np.zeros(SENDING if inbox else 0, np.int64)

    def _make_tensor_cores(self) -> None:
        """Tensor Memory with what is on its way to it, and scratch of products."""
        from emu.units.mma import WORK_BYTES as FRAGMENT_BYTES
        from emu.units.tcgen05_math import SCRATCH_BYTES as PRODUCT_BYTES
        from emu.units.tensor_math import SCRATCH_BYTES

        self.tmem = aligned(int(self.config["tmem_columns"][0]) * TMEM_LANES, np.uint32).reshape(-1, TMEM_LANES)
        self.commands = np.zeros(TC_RING, TC_JOB)
        self.products = aligned(PRODUCT_BYTES if self.tmem.size else 0, np.uint8)
        self.moves = np.zeros(TMEM_RINGS * TMEM_RING, TMOVE)
        self.stage = aligned(TMEM_STAGE * SUBPARTITIONS * TMEM_RING if self.tmem.size else 0, np.uint8)
        self.scratch = aligned(SCRATCH_BYTES, np.uint8)
        self.fragments = aligned(FRAGMENT_BYTES, np.uint8)

    def _wire(self, sm_id: int) -> None:
        S, program, shape = self.sm[0], self.program, self.shape
        addresses = {
            "instr_at": self.linked.instrs, "list_at": self.linked.lists, "ready_at": self.ready, "next_at": self.next, "free_at": self.free,
            "order_at": self.order, "warp_at": self.warps, "cta_at": self.ctas,
            "wg_at": self.groups, "job_at": self.jobs, "const_at": self.constants, "smem_at": self.shared,
            "mbar_at": self.mbars, "live_at": self.live, "copied_at": self.copied, "marked_at": self.marked, "version_at": self.versions, "segment_at": self.segments,
            "message_at": self.messages, "inbox_at": self.inbox, "spare_at": self.spare, "sent_at": self.sent,
            "log_at": self.log, "l1_at": self.l1, "tmap_at": self.tmaps, "hot_at": self._hot, "cold_at": self._cold,
            "scratch_at": self.scratch, "window_at": self.window_list, "local_at": self.local,
            "tmem_at": self.tmem, "tc_at": self.commands, "tc_scratch_at": self.products, "tmem_move_at": self.moves, "tmem_stage_at": self.stage,
            "fragment_at": self.fragments, "copy_at": self.copies, "cell_at": self.cells, "event_at": self.events,
        }  # fmt: skip
        for name, array in addresses.items():
            S[name] = array.ctypes.data if array.size else 0
        S["sub_next"], S["give_up"], S["due"] = NEVER, NEVER, NEVER
        S["next_event"], S["mma_wg"], S["sub_last"] = 0, -1, -1
        S["chaos_only"] = -1
        S["l1_sets"], S["l1_epoch"] = len(self.l1) // L1_WAYS, EPOCH
        S["ntid"], S["nctaid"] = shape.block, shape.grid
        S["threads"], S["warps_per_cta"], S["cta_slots"] = shape.threads, shape.warps, shape.slots
        S["smem_per_cta"], S["smem_bytes"] = shape.shared_cta, len(self.shared)
        S["smem_dynamic"], S["smem_static"] = shape.shared_dynamic, program.shared_static
        S["regs_entry"] = entry_registers(program, self.machine)
        S["rows"], S["const_first"], S["const_rows"] = program.rows, program.registers, len(program.const_bits)
        S["shuffle_row"], S["slots"], S["predicates"] = program.rows, time_slots(program), program.predicates
        S["sm_id"], S["sms"], S["npc"] = sm_id, int(self.machine.value("chip.sms")), len(program.instrs)
        S["silicon"], S["tensor_pipe"] = shape.silicon, 8 * self.linked.pipes.index("tensor")
        S["clustered"], S["cluster"], S["peers"] = program.clustered, shape.cluster, self.peers
        S["explicit_cluster"], S["inbox_size"], S["spares"] = shape.explicit_cluster, len(self.inbox), len(self.spare)
        window = np.flatnonzero(program.const_param == CLUSTER_WORD)
        S["window_row"] = program.registers + window[0] if len(window) else -1
        S["segments"], S["local_bytes"] = len(self.segments), program.local_bytes
        for k in range(WARP_SLOTS):
            self.warps["stall_at"][k] = self.warp_stalls[k].ctypes.data
            self.warps["row_at"][k] = self.windows.ctypes.data + k * (program.rows + 1) * 128
            self.warps["pred_at"][k] = self.predicates.ctypes.data + k * program.predicates * 4
            self.warps["time_at"][k] = self.times.ctypes.data + k * time_slots(program) * 8
        for k in range(JOBS):
            self.jobs["staging_at"][k] = self.staging.ctypes.data + k * shape.shared_cta

    def disturb(self, chaos: Chaos) -> None:
        """Run with adversarial timing."""
        S = self.sm[0]
        self.perturbations = np.zeros(PERTURBATIONS, PERTURBATION)
        self._only = np.array(chaos.only or (), np.int64)
        S["chaos"], S["chaos_at"], S["chaos_only_at"] = (
            2 * chaos.seed + 1,
            self.perturbations.ctypes.data,
            self._only.ctypes.data,
        )
        S["chaos_left"] = -1 if chaos.limit is None else chaos.limit
        S["chaos_only"] = -1 if chaos.only is None else len(self._only)

    def advance(self, limit: int, status: int = RUNNING) -> int:
        """Let the core run up to a cycle, or until it needs an answer that it cannot get; returns the status."""
        S, answer_cy = self.sm[0], int(self.config["answer_cy"][0])
        while True:
            asked = int(self.log["time"][S["log_head"] % REQUESTS]) if S["log_head"] < S["log_tail"] else NEVER
            S["status"], S["limit"] = status, min(limit, asked + answer_cy, int(S["due"]))
            compiled_file(CORE)(S, self.config[0])
            if self.answer:
                self.answer()
            if self.answer and S["status"] == QUANTUM and S["idle"] and S["log_head"] == S["log_tail"]:
                S["status"] = DEADLOCK  # the other SMs of its team stand still
            if not self.answer or S["status"] != QUANTUM or S["now"] >= limit:
                return int(S["status"])

    def load(self) -> None:
        """Put the machine code of the units that the program uses in place."""
        S, used = self.sm[0], self.linked.units
        if self.peers and "cluster" not in used:
            used = [*used, "cluster"]
        prepare(used)
        for name in used:
            S["unit_at"][1 + UNITS.index(name)] = code_address(name)
        acting = [code_address(name) for name in used if advances(name)]
        S["advance_at"][: len(acting)], S["advancing"] = acting, len(acting)

    def shed(self) -> StreamingMultiprocessor:
        """Drop the large arrays of a finished SM; what reports read stays."""
        if self.sm["status"][0] == FINISHED:
            for name in (
                "shared", "windows", "times", "staging", "local", "scratch", "versions", "log", "copies", "copied", "cells", "events", "tmem", "products", "stage",
            ):  # fmt: skip
                delattr(self, name)
        return self

    def selected_since_collect(self) -> np.ndarray:
        """How often each instruction has issued since `collect_stalls`."""
        return self._hot[:, Reason.SELECTED]

    def collect_stalls(self) -> None:
        """Add the core's 32-bit counters to `stalls`."""
        self.stalls[:, :HOT] += self._hot
        self.stalls[:, HOT:] += self._cold
        self._hot[:] = 0
        self._cold[:] = 0


def entry_registers(program: Program, machine: Machine) -> int:
    """Registers a thread at launch in allocation units: .maxnreg when given, else the program's count, of which
    `ptxas` would spill what `isa.budget.entry_cap` does not allow."""
    unit = int(machine.value("sm.register_unit"))
    wanted = program.max_registers or min(program.registers, entry_cap(program))
    return -(-max(wanted, 1) // unit) * unit


def occupancy(program: Program, machine: Machine, threads: int, shared_cta: int) -> int:
    """Resident CTAs an SM by warps, threads, registers, shared memory and slots (0: does not fit)."""
    warps = -(-threads // 32)
    room = -(-warps // 4) * 4  # whole warpgroups, so that warp w of a CTA lives on sub-partition w mod 4
    v = machine.value
    limits = (
        v("sm.ctas"),
        v("sm.threads") // (room * 32),
        v("sm.registers") // (entry_registers(program, machine) * warps * 32),
        v("unit.smem.capacity_b") // shared_cta,
    )
    return int(min(limits))


def l1_lines(program: Program, machine: Machine, shape: Shape) -> int:
    """Lines of the L1: what is left of the memory that it divides with the shared memory of as many CTAs as an SM holds."""
    v = machine.value
    used = occupancy(program, machine, shape.threads, shape.shared_cta) * shape.shared_cta
    return int(v("unit.l1.unified_b") - carve_out(machine, used)) // int(v("unit.l1.line_b"))


def carve_out(machine: Machine, used: int) -> int:
    """The least size of shared memory that holds `used` bytes: powers of two up to two steps, then three steps and a little, four ..."""
    v = machine.value
    least, step, extra = (int(v(f"unit.smem.carveout_{name}_b")) for name in ("least", "step", "extra"))
    if used <= 2 * step:
        return 0 if used == 0 else 1 << (max(used, least) - 1).bit_length()
    return extra + max(-((extra - used) // step), 3) * step


def shared_window(program: Program, machine: Machine, dynamic: int) -> int:
    """Bytes of a CTA's shared window: the system's part, static and dynamic, in whole pages."""
    unit = int(machine.value("unit.smem.unit_b"))
    need = SHARED_BASE + program.shared_static + dynamic
    return -(-need // max(unit, PAGE)) * max(unit, PAGE)
