"""SMs, their shared memory system and the grid: a launch from its first cycle to its last."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from emu.chaos import Chaos
from emu.chip_state import ARRAY, CHIP, CLUSTER, L2, LINE_STATE, RING, SERVER, WRITES
from emu.chip_state import HBM as MEMORY
from emu.clusters import in_order, teams
from emu.config import configure
from emu.generate import CORE, SHARED, code_address, compiled_file
from emu.link import Linked
from emu.livelock import Watch, look_together
from emu.machine import Machine
from emu.memory_map import MemoryMap
from emu.representative import Pace, Sample, shares
from emu.sm import Shape, StreamingMultiprocessor
from emu.state import DEADLOCK, FAULT, FINISHED, GIVEN, LIMIT, QUANTUM, RUNNING, SM
from emu.units.supply import LINE
from isa.program import Program

QUANTUM_CYCLES = 1 << 22  # 32-bit stall counters cannot overflow in between: 64 warps * 2^22 < 2^32
ROUNDS = 256  # before Python looks: milliseconds
LONG_AGO = (1 << 32) - 4096  # a line's last fetch, of lines that were there before the launch (modulo 2^32)

Progress = Callable[[int, int], None]


class Chip:
    """SMs that take the CTAs of a grid; `run` executes them to the end.

    CTAs start breadth first: one on every SM in order, then a second one on every SM.  A slot that is free again takes
    the next CTA.  With `warm`, arrays lie in L2 at the start, the last arguments first when they do not all fit.
    With a `sample` only its CTAs run, on as many SMs as it says.
    """

    def __init__(
        self,
        program: Program,
        machine: Machine,
        linked: Linked,
        shape: Shape,
        memory: MemoryMap,
        warm: bool = False,
        chaos: Chaos | None = None,
        sample: Sample | None = None,
    ) -> None:
        self.shape = shape
        grid, together = int(np.prod(shape.grid)), shape.together
        self.order = np.array(sample.ctas, np.int64) if sample else in_order(shape.grid, shape.cluster)
        self.ctas = len(self.order)
        self.spans, self.where = np.zeros(grid, np.int64), np.zeros(grid, np.int64)
        places = [sm for team in teams(machine, together) for sm in team] if together > 1 else range(self.ctas)
        count = len(sample.weights) if sample else min(int(machine.value("chip.sms")), len(places), self.ctas)
        records = np.zeros(count, SM)
        self.config = configure(machine)
        self.sms = [
            StreamingMultiprocessor(
                program, machine, linked, shape, memory, self.config, records[k : k + 1], places[k], k
            )
            for k in range(count)
        ]
        if chaos:
            for sm in self.sms:
                sm.disturb(chaos)
        self.records, self.chip = records, np.zeros(1, CHIP)
        warps = together * shape.warps
        self.clusters = np.full(max(count // together, 1) * shape.slots, np.array((0, warps, warps, 0), CLUSTER))
        self.pace = Pace.of(machine, int(records["warps_per_cta"][0]))
        records["weight"] = sample.weights if sample else 1
        segments = self.sms[0].segments
        self.arrays = np.zeros(len(segments), ARRAY)
        if sample and sample.arrays is not None:
            self.arrays, self.chip["sampled"] = shares(sample.arrays, segments["size"] // LINE + 1), 1
        for k, sm in enumerate(self.sms):
            sm.chip, sm.clusters = self.chip, self.clusters
            first = k // together * together
            sm.team = self.sms[first : first + together] if sm.peers else [sm]
        self.servers = np.zeros(3, SERVER)
        _, lines = memory.segments()
        self.lines = np.zeros(lines, LINE_STATE)
        self.dirty = np.zeros(RING, np.int64)
        self.host_seconds = 0.0
        self._wire(machine, warm)
        self._place(shape.slots)

    def _wire(self, machine: Machine, warm: bool) -> None:
        H, v = self.chip[0], machine.value
        H["sm_at"], H["sms"], H["ctas"] = self.records.ctypes.data, len(self.sms), self.ctas
        H["cluster"], H["peers"], H["slots"] = self.shape.together, self.sms[0].peers, self.shape.slots
        H["cluster_at"] = self.clusters.ctypes.data
        H["array_at"] = self.arrays.ctypes.data
        H["order_at"], H["span_at"], H["where_at"] = (a.ctypes.data for a in (self.order, self.spans, self.where))
        H["server_at"], H["line_at"] = self.servers.ctypes.data, self.lines.ctypes.data
        H["capacity"] = int(v("unit.l2.capacity_b") * v("unit.l2.held_share")) // LINE
        H["dirty_at"], H["ring_shift"] = self.dirty.ctypes.data, int(2 * H["capacity"] // RING).bit_length()
        H["request_b"] = v("unit.l2.chip_b_per_cy") / v("unit.l2.requests_per_cy")
        H["far_share"], H["turns"] = v("unit.l2.far_share"), 4 * (1 / v("unit.hbm.mixed_share") - 1)
        H["merge"], H["merge_share"] = v("unit.l2.merge_cy"), v("unit.l2.merge_share")
        H["cta_cy"] = v("chip.cta_cy")
        window = v("unit.l2.window_cy")
        for which, rate, unit in (
            (L2, "unit.l2.chip_b_per_cy", "l2"),
            (WRITES, "unit.l2.write_b_per_cy", "l2"),
            (MEMORY, "unit.hbm.b_per_cy", "hbm"),
        ):
            self.servers[which] = (0, 0, 0, v(rate), v(f"unit.{unit}.knee_cy"), v(f"unit.{unit}.free_share"), window)
        if warm:
            self.lines["fill"], self.lines["when"] = np.arange(1, len(self.lines) + 1), LONG_AGO
            H["fills"] = len(self.lines)

    def _place(self, slots: int) -> None:
        """Give the first CTAs to slots, whole clusters to teams; those of an SM start one after the other."""
        H = self.chip[0]
        for slot in range(slots):
            for sm in self.sms:
                if H["next_cta"] < self.ctas:
                    sm.ctas["state"][slot], sm.ctas["id"][slot] = GIVEN, self.order[H["next_cta"]]
                    sm.ctas["born"][slot] = int(slot * self.pace.fill)
                    sm.sm["open"] += 1
                    H["next_cta"] += 1

    def run(
        self, max_cycles: int, threads: int = 1, progress: Progress | None = None, shed: bool = True
    ) -> list[StreamingMultiprocessor]:
        """Execute the grid; the SMs, of which the last one is the first that failed, if any did.

        `progress` is called now and then with the CTAs that have ended and all of them; `shed` drops what reports do not read.
        """
        H, C = self.chip[0], self.config[0]
        for sm in self.sms:
            sm.load()
        H["core_at"], code = code_address(CORE), compiled_file(SHARED)
        H["rounds"] = ROUNDS if progress else 1 << 30
        if len(self.sms) == 1:
            self._let_answer(code)
        watches = [Watch(sm, max_cycles, alone=len(self.sms) == 1) for sm in self.sms]
        pool = ThreadPoolExecutor(threads) if threads > 1 else None
        try:
            while not H["stop"] and H["horizon"] < max_cycles:
                H["limit"] = min(w.until(int(H["horizon"]) + QUANTUM_CYCLES) for w in watches)
                begin = time.perf_counter()
                while not H["stop"] and H["horizon"] < H["limit"]:
                    if pool is None:
                        code(H, C, 0, 1)
                    else:
                        list(pool.map(lambda k: code(H, C, k, threads), range(threads)))
                        code(H, C, 0, 0)
                    if progress:
                        progress(int(self.records["finished_ctas"].sum()), self.ctas)
                self.host_seconds += time.perf_counter() - begin
                self._look(watches)
                code(H, C, 0, 0)
        finally:
            if pool is not None:
                pool.shutdown()
        self._let_answer(code)
        done = self._end()
        return [sm.shed() for sm in done] if shed else done

    @property
    def failed(self) -> bool:
        """Whether an SM did not get to its end."""
        return bool((self.records["status"] != FINISHED).any())

    @property
    def running(self) -> bool:
        """Whether the limit of cycles ended the run, and nothing worse."""
        return self.failed and bool(np.isin(self.records["status"], (FINISHED, LIMIT)).all())

    def scales(self, sample: Sample) -> list[float]:
        """For every SM of a sample, the CTAs that one of those that it executed stands for."""
        mine: list[list[float]] = [[] for _ in self.sms]
        for cta, count in zip(sample.ctas, sample.stands_for, strict=True):
            mine[int(self.where[cta])].append(count)
        return [sum(counts) / len(counts) for counts in mine]

    def _let_answer(self, code: Callable[..., None]) -> None:
        """Let each SM have its answers for itself: it is the only one, or the others have stopped."""
        for k, sm in enumerate(self.sms):
            sm.answer = functools.partial(code, self.chip[0], self.config[0], k, -1)

    def _look(self, watches: list[Watch]) -> None:
        """Collect stalls; end SMs that repeat themselves for ever."""
        for sm in self.sms:
            sm.collect_stalls()
        many = self.sms[0].peers
        if many:
            for first in range(0, len(watches), many):
                look_together(watches[first : first + many])
            return
        for sm, watch in zip(self.sms, watches, strict=True):
            if sm.sm["status"][0] == QUANTUM:
                watch.look()

    def _end(self) -> list[StreamingMultiprocessor]:
        """Charge what warps have waited that are cut off; the SM that failed first comes last."""
        going = self.records["status"]
        failed = [k for k, status in enumerate(going) if status not in (RUNNING, QUANTUM, FINISHED)]
        first = min(failed, key=lambda k: int(self.records["now"][k]), default=None)
        for sm in self.sms:
            if sm.sm["status"][0] in (RUNNING, QUANTUM):
                sm.sm["status"] = LIMIT
                failed = failed or [len(self.sms)]
            if sm.sm["status"][0] in (LIMIT, FAULT, DEADLOCK):
                sm.advance(int(sm.sm["now"][0]), int(sm.sm["status"][0]))
                sm.collect_stalls()
        order = list(self.sms)
        if first is not None:
            order.append(order.pop(first))
        elif failed:
            order.sort(key=lambda sm: sm.sm["status"][0] != FINISHED)
        return order
