"""From allocated micro-operations to `isa.program.Program`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isa import micro
from isa.budget import launch_registers
from isa.cfg import Graph, reconvergence
from isa.code import Code, MicroOp
from isa.layout import Layout
from isa.program import INSTR, NO_PRED, NO_ROW, SHARED_BASE, Program
from isa.registers import Allocation
from isa.registry import Const, Half, NotPred, ParamWord, PredConst, VReg
from isa.simplify import RowPair, words

MAX_DEPS = 8
DEFAULT_ROLE = "main"

Word = Const | ParamWord


@dataclass
class _Pool:
    """Constant rows: pairs first on even rows, then single words that no pair holds already."""

    start: int
    rows: list[Word] = field(default_factory=list)
    pair_at: dict[RowPair, int] = field(default_factory=dict)
    at: dict[Word, int] = field(default_factory=dict)

    def fill(self, ops: Iterable[MicroOp]) -> None:
        """Collect every constant of the operations."""
        found = [v for op in ops for v in _flat(op.sources)]
        pairs = dict.fromkeys(v for v in found if isinstance(v, RowPair))
        held = {w for pair in pairs for w in (pair.lo, pair.hi)}
        singles = [w for w in dict.fromkeys(v for v in found if isinstance(v, Const | ParamWord)) if w not in held]
        if self.start % 2 and pairs:
            self._append(singles.pop() if singles else Const(0))
        for pair in pairs:
            self.pair_at[pair] = self.start + len(self.rows)
            self._append(pair.lo)
            self._append(pair.hi)
        for word in singles:
            self._append(word)

    def _append(self, word: Word) -> None:
        self.at.setdefault(word, self.start + len(self.rows))
        self.rows.append(word)


def _flat(values: Iterable[Any]) -> list[Any]:
    return [x for v in values for x in (v if isinstance(v, tuple) else (v,))]


class _Encoder:
    def __init__(self, code: Code, g: Graph, allocation: Allocation) -> None:
        self.code = code
        self.graph = g
        self.row = allocation.row
        self.pool = _Pool(allocation.registers)
        self.pool.fill(code.ops)
        self.rows = allocation.registers + len(self.pool.rows)
        self.lists: list[int] = []
        self.lane_index = {op.name: i for i, op in enumerate(micro.lanes())}
        self.routine_index = {name: i for i, name in enumerate(micro.routines())}
        self.timings = sorted({op.micro.timing for op in code.ops})
        self.meeting = reconvergence(g)

    def instructions(self) -> np.ndarray:
        """The INSTR array."""
        out = np.zeros(len(self.code.ops), INSTR)
        for i, op in enumerate(self.code.ops):
            record = out[i]
            record["block"] = self.graph.block_of[i]
            self._identity(record, op)
            deps = self._operands(record, op)
            self._flow(record, op, i, deps)
            deps = [d for d in dict.fromkeys(deps) if not self.pool.start <= d < self.rows][:MAX_DEPS]
            record["ndep"] = len(deps)
            record["dep"][: len(deps)] = deps
        return out

    def _identity(self, record: Any, op: MicroOp) -> None:
        lane = op.micro.is_lane
        record["kind"] = 0 if lane else 1
        record["op"] = self.lane_index[op.micro.name] if lane else self.routine_index[op.micro.unit]
        record["timing"] = self.timings.index(op.micro.timing)
        record["imm"] = _signed(op.imm)

    def _operands(self, record: Any, op: MicroOp) -> list[int]:
        """Fill the operand slots; returns the ready-time slots that gate issue (lists excepted)."""
        deps: list[int] = []
        registers, predicates = iter("abc"), iter(("pa", "pb"))
        source_list: tuple[Any, ...] = ()
        for letter, value in zip(op.micro.sources.replace("i", ""), op.sources, strict=True):
            if letter == "L":
                source_list = value
            elif letter == "p":
                name = next(predicates)
                slot, flipped = self._predicate(value)
                record[name] = slot
                record["flip"] |= flipped << (1 if name == "pa" else 2)
                deps += [self.rows + slot] if slot else []
            else:
                row = self._row(value)
                record[next(registers)] = row
                deps += [row, row + 1] if letter in "UD" else [row]
        outputs = iter(("pd", "pd2"))
        record["d"] = NO_ROW
        result_list: tuple[Any, ...] = ()
        for letter, value in zip(op.micro.results, op.results, strict=True):
            if letter == "L":
                result_list = value
            elif letter == "p":
                slot = NO_PRED if value is None else self.row[words(value)[0]]
                record[next(outputs)] = slot
                deps += [self.rows + slot] if slot else []
            elif value is not None:
                record["d"] = row = self._row(value)
                deps += [row, row + 1] if letter in "UD" else [row]
        record["nd"], record["ns"], record["list"] = len(result_list), len(source_list), len(self.lists)
        self.lists += [self._row(v) for v in (*result_list, *source_list)]
        return deps

    def _flow(self, record: Any, op: MicroOp, i: int, deps: list[int]) -> None:
        record["target"] = record["reconv"] = -1
        if op.guard is not None:
            slot, flipped = self._predicate(op.guard)
            record["guard"] = slot
            record["flip"] |= flipped
            deps.append(self.rows + slot)
        if op.label is not None:
            record["target"] = self.code.labels[op.label]
            if op.guard is not None:
                record["reconv"] = self.meeting[self.graph.block_of[i]]

    def _predicate(self, value: Any) -> tuple[int, int]:
        match value:
            case PredConst(true):
                return NO_PRED, 0 if true else 1
            case NotPred(reg):
                return self.row[words(reg)[0]], 1
            case _:
                return self.row[words(value)[0]], 0

    def _row(self, value: Any) -> int:
        match value:
            case RowPair():
                return self.pool.pair_at[value]
            case Const() | ParamWord():
                return self.pool.at[value]
            case VReg() | Half():
                return self.row[words(value)[0]]
            case _:
                raise TypeError(f"{value} has no row")


def _signed(imm: int) -> int:
    imm &= (1 << 64) - 1
    return imm - (1 << 64) if imm >> 63 else imm


def encode(code: Code, g: Graph, allocation: Allocation, layout: Layout, source: dict[str, list[str]]) -> Program:
    """The encoded program of one kernel (its register cap is judged by `isa.assembler`)."""
    encoder = _Encoder(code, g, allocation)
    moves = any(op.micro.unit == "setmaxnreg" for op in code.ops)  # registers: then the launch takes them all
    instrs = encoder.instructions()
    roles = list(dict.fromkeys(op.role or DEFAULT_ROLE for op in code.ops))
    performance = dict(code.kernel.performance)
    hint = (*performance["reqntid"], 1, 1) if "reqntid" in performance else None
    cluster = (*performance["reqnctapercluster"], 1, 1) if "reqnctapercluster" in performance else None
    pool = encoder.pool.rows
    return Program(
        name=code.kernel.name,
        target=code.target,
        instrs=instrs,
        lists=np.array(encoder.lists, np.uint16),
        registers=allocation.registers,
        predicates=allocation.predicates,
        const_bits=np.array([w.bits if isinstance(w, Const) else 0 for w in pool], np.uint32),
        const_param=np.array([w.offset if isinstance(w, ParamWord) else -1 for w in pool], np.int32),
        timing_names=encoder.timings,
        micro_names=[op.micro.name for op in code.ops],
        args=layout.args,
        param_bytes=layout.param_bytes,
        shared_static=layout.shared_end - SHARED_BASE,
        shared_symbols=layout.in_space("shared"),
        block_hint=(hint[0], hint[1], hint[2]) if hint else None,
        max_registers=launch_registers(code.kernel) if moves else performance.get("maxnreg", (None,))[0],
        min_ctas=performance.get("minnctapersm", (0,))[0],
        lines=[op.pos for op in code.ops],
        roles=roles,
        role_of=np.array([roles.index(op.role or DEFAULT_ROLE) for op in code.ops], np.uint8),
        source=source,
        global_image=bytes(layout.image),
        global_symbols=layout.in_space("global", "const"),
        local_bytes=layout.local_bytes,
        clustered=code.clustered,
        cluster=(cluster[0], cluster[1], cluster[2]) if cluster else None,
        explicit_cluster="explicitcluster" in performance,
        max_cluster=performance.get("maxclusterrank", (None,))[0],
        blocks_are_clusters="blocksareclusters" in performance,
    )
