"""Run single lane micro-operations on arrays: what tests, `explain` and interactive exploration use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from emu.dispatch import ALL_LANES, lane_dispatch, lane_ids
from emu.vector import LANES
from isa.code import MicroOp
from isa.expand import expand
from isa.layout import Layout
from isa.lowering import Lowering
from isa.micro import MICROS, Micro
from isa.registry import Const, Half, NotPred, PredConst, VReg, load

FIRST = {"d": 0, "a": 4, "b": 8, "c": 12}  # rows of the scratch window


@njit(nogil=True)
def dispatch(count, op, row_base, step, d, a, b, c, pred_base, pred_step, pd, pd2, pa, pb, flip, imm, mask):
    """Execute one operation on `count` windows that lie `step` bytes apart (predicates: `pred_step`)."""
    for k in range(count):
        lane_dispatch(op, row_base + k * step, d, a, b, c, pred_base + k * pred_step, pd, pd2, pa, pb, flip, imm, mask)


def run_lanes(name: str, *sources: Any, mask: int = ALL_LANES, flip: int = 0, previous: Any = None) -> tuple[Any, ...]:
    """The results of micro-operation `name` on arrays of lanes.

    `sources` follow the signature: uint32 or uint64 bit patterns (u f U D) and bools (p) of one length that is a
    multiple of 32, an int for the immediate (i).  Returns one array per result, uint32, uint64 or bool.  Lanes
    outside `mask` keep `previous`, a list of arrays like the result (default: zeros).
    """
    op = lane_ids()[name]
    micro = MICROS[name]
    length = max(len(x) for x in sources if not isinstance(x, int))
    warps = length // LANES
    raw = np.zeros((warps * 16 * LANES + 32,), np.uint32)
    rows = raw[(-raw.ctypes.data // 4) % 32 :][: warps * 16 * LANES].reshape(warps, 16, LANES)
    preds = np.zeros((warps, 5), np.uint32)
    preds[:, 0] = ALL_LANES
    imm = _fill(micro, sources, rows, preds)
    if previous is not None:
        _write(micro.results, previous, rows, preds)
    dispatch(
        warps,
        op,
        rows.ctypes.data,
        rows.strides[0],
        *FIRST.values(),
        preds.ctypes.data,
        preds.strides[0],
        1,
        2,
        3,
        4,
        flip,
        imm,
        mask,
    )
    return tuple(_read(micro.results, rows, preds))


def _fill(micro: Micro, sources: Any, rows: Any, preds: Any) -> int:
    slots, names, imm = iter((3, 4)), iter("abc"), 0
    for kind, value in zip(micro.sources, sources, strict=True):
        if kind == "i":
            imm = int(value)
        elif kind == "p":
            preds[:, next(slots)] = _masks(value)
        else:
            _put(rows, FIRST[next(names)], kind, value)
    return imm


def _masks(lanes: Any) -> Any:
    return np.packbits(np.asarray(lanes, bool), bitorder="little").view(np.uint32)


def _put(rows: Any, at: int, kind: str, value: Any) -> None:
    if kind in "UD":
        words = np.asarray(value, np.uint64).reshape(-1, LANES)
        rows[:, at], rows[:, at + 1] = words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)
    else:
        rows[:, at] = np.asarray(value, np.uint32).reshape(-1, LANES)


def _write(results: str, values: Any, rows: Any, preds: Any) -> None:
    slots = iter((1, 2))
    for kind, value in zip(results, values, strict=True):
        if kind == "p":
            preds[:, next(slots)] = _masks(value)
        else:
            _put(rows, FIRST["d"], kind, value)


def _read(results: str, rows: Any, preds: Any) -> Any:
    slots = iter((1, 2))
    for kind in results:
        if kind == "p":
            packed = np.ascontiguousarray(preds[:, next(slots)]).view(np.uint8)
            yield np.unpackbits(packed, bitorder="little").astype(bool)
        elif kind in "UD":
            low, high = rows[:, 0].astype(np.uint64), rows[:, 1].astype(np.uint64)
            yield (low | high << np.uint64(32)).reshape(-1)
        else:
            yield rows[:, 0].reshape(-1).copy()


# ---- straight-line PTX -----------------------------------------------------------------------------------

PTX_TYPES = {np.dtype(bool): "pred", np.dtype(np.uint16): "b16", np.dtype(np.uint32): "b32", np.dtype(np.uint64): "b64"}


def run_ptx(body: str, target: str = "sm_90a", **registers: Any) -> dict[str, Any]:
    """Execute instructions without branches or memory on arrays of lanes.

    `body` uses registers `%name`; a keyword that is an array (bool, uint16, uint32, uint64) is an input, a string is
    an output's PTX type ("b32", "pred", ...).  Returns the outputs: bool, uint64, or uint32 of which a 16-bit type
    fills the low half.
        run_ptx("add.f32 %d, %a, %b;", a=x, b=y, d="f32")["d"]
    """
    types = {n: x if isinstance(x, str) else PTX_TYPES[x.dtype] for n, x in registers.items()}
    declared = " ".join(f".reg .{type} %{name};" for name, type in types.items())
    text = f".version 8.5\n.target {target}\n.address_size 64\n.entry k() {{ {declared}\n{body}\nexit; }}"
    load()
    module = expand(text, "<lanes>", {}, ())
    kernel = module.kernels[0]
    lowering = Lowering(kernel, target, Layout(module, kernel), lambda pos: text.splitlines()[pos.line - 1])
    code = lowering.run()
    inputs = {n: x for n, x in registers.items() if not isinstance(x, str)}
    length = len(next(iter(inputs.values())))
    names = {n: _virtual(lowering, n) for n in registers}
    file = RegisterFile(length + -length % LANES)
    for name, values in inputs.items():
        file.write(names[name], np.resize(values, file.length))
    for op in code.ops:
        if op.micro.is_lane:
            file.execute(op)
    return {n: file.read(names[n])[:length] for n, x in registers.items() if isinstance(x, str)}


def _virtual(lowering: Lowering, name: str) -> VReg:
    found = lowering.register(f"%{name}")
    assert found is not None and isinstance(found[0], VReg)
    return found[0]


class RegisterFile:
    """Virtual registers as arrays: uint32 words (two for a 64-bit register) and bool predicates."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.words: dict[tuple[int, int], Any] = {}
        self.preds: dict[int, Any] = {}

    def write(self, d: Any, values: Any) -> None:
        """Store into a register, a half of one, or nothing (None)."""
        if isinstance(d, Half):
            self.words[d.reg.id, d.index] = np.asarray(values, np.uint32)
        elif d is not None and d.kind == "p":
            self.preds[d.id] = np.asarray(values, bool)
        elif d is not None:
            wide = np.asarray(values, np.uint64)
            for index in range(2 if d.kind == "d" else 1):
                self.words[d.id, index] = (wide >> np.uint64(32 * index)).astype(np.uint32)

    def read(self, x: Any) -> Any:
        """The lanes of a source; what was never written is zero."""
        none = np.zeros(self.length, np.uint32)
        match x:
            case PredConst(value):
                return np.full(self.length, value)
            case NotPred(reg):
                return ~self.read(reg)
            case Const(bits, kind):
                return np.full(self.length, bits, np.uint64 if kind == "d" else np.uint32)
            case Half(reg, index):
                return self.words.get((reg.id, index), none)
            case VReg(id, "p"):
                return self.preds.get(id, np.zeros(self.length, bool))
            case VReg(id, "d"):
                low, high = (self.words.get((id, k), none).astype(np.uint64) for k in (0, 1))
                return low | high << np.uint64(32)
        return self.words.get((x.id, 0), none)

    def execute(self, op: MicroOp) -> None:
        """One lane micro-operation under its guard."""
        values = iter(op.sources)
        sources = [op.imm if kind == "i" else self.read(next(values)) for kind in op.micro.sources]
        enabled = np.ones(self.length, bool) if op.guard is None else self.read(op.guard)
        results = run_lanes(op.micro.name, *sources)
        for d, result in zip(op.results, results, strict=True):
            self.write(d, np.where(enabled, result, self.read(d)) if d is not None else result)
