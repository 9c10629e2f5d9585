"""Micro-operations: the machine-level instructions that PTX forms lower to.

A micro-operation has one name (SASS-like), one signature, one timing class (a *name*; numbers live
in machine files), and one meaning.  Two kinds exist:

* **lane**: a pure function of each lane's operands.  It has a scalar `meaning` on raw bit patterns
  (plain Python, the documentation) and an `emit` that builds the same function on 32-lane vectors
  (see `VectorBuilder`).  Tests prove that both agree.
* **unit**: executed by a routine of the machine (`emu/units`), named by `unit`.

Signatures are written `sources->results`, one letter an operand:

=====  ===========================================================================
`u`    32-bit register as unsigned integer          `f`  the same as float32
`U`    64-bit register pair as unsigned integer     `D`  the same as float64
`p`    predicate                                    `i`  immediate (one per instruction)
`L`    a list of 32-bit registers (vectors, matrix fragments); at most one a side
=====  ===========================================================================

At most three register sources (slots a, b, c), two predicate sources (pa, pb), one register result
(d) and two predicate results (pd, pd2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, eq=False)
class Micro:
    """One micro-operation.

    `meaning(*sources) -> result or tuple` works on Python ints: raw bits for u f U D operands,
    bools for p, the immediate for i.  `emit(v, *sources)` does the same on vectors typed by the
    signature.  `fast` names a cheaper lane micro-operation of the same signature that is less exact and stands in for this one
    in runs with fast numerics.
    """

    name: str
    sig: str
    timing: str
    meaning: Callable[..., Any] | None = None
    emit: Callable[..., Any] | None = None
    unit: str = ""
    doc: str = ""
    where: str = ""
    fast: str = ""
    flags: frozenset[str] = field(default_factory=frozenset)

    @property
    def sources(self) -> str:
        return self.sig.split("->")[0]

    @property
    def results(self) -> str:
        return self.sig.split("->")[1]

    @property
    def is_lane(self) -> bool:
        return not self.unit


MICROS: dict[str, Micro] = {}


def lane(
    name: str,
    sig: str,
    timing: str,
    meaning: Callable[..., Any],
    emit: Callable[..., Any],
    doc: str = "",
    fast: str = "",
) -> Micro:
    """Declare a lane micro-operation; a name can be declared once."""
    return _declare(Micro(name, sig, timing, meaning, emit, doc=doc, where=meaning.__module__, fast=fast))


def unit(name: str, sig: str, timing: str, routine: str, doc: str = "", *flags: str) -> Micro:
    """Declare a unit micro-operation that `routine` of `emu/units` executes.

    Flags: `branch` (ends a basic block), `exit`, `barrier` (keeps its place in scheduling),
    `loads`/`stores` (memory), `collective` (needs the whole warp).
    """
    return _declare(Micro(name, sig, timing, unit=routine, doc=doc, flags=frozenset(flags)))


def _declare(op: Micro) -> Micro:
    if op.name in MICROS:
        raise ValueError(f"micro-operation {op.name} is declared twice")
    MICROS[op.name] = op
    return op


class VectorBuilder(Protocol):
    """What `emit` functions may use: operations on 32-lane vectors.

    `emu.vector` implements it with LLVM; constants are splatted by `const`, types are
    "u32", "f32", "u64", "f64", "f16", "u16", "u8", "pred"; "u16x2", "f16x2", "f32x2", ... are the two
    16-bit halves of each 32-bit lane and what they widen to.  Comparisons return predicates.
    Shift counts must be below the width (clamp first).  An immediate is a 64-bit scalar: `splat` it,
    or ask for its `flag` bits as conditions of `select` that are the same in every lane.
    """

    def const(self, value: float, type: str = "u32") -> Any: ...
    def bits(self, x: Any, type: str) -> Any: ...  # reinterpret, same width
    def add(self, x: Any, y: Any) -> Any: ...
    def sub(self, x: Any, y: Any) -> Any: ...
    def mul(self, x: Any, y: Any) -> Any: ...
    def and_(self, x: Any, y: Any) -> Any: ...
    def or_(self, x: Any, y: Any) -> Any: ...
    def xor(self, x: Any, y: Any) -> Any: ...
    def not_(self, x: Any) -> Any: ...
    def shl(self, x: Any, n: Any) -> Any: ...
    def lshr(self, x: Any, n: Any) -> Any: ...
    def ashr(self, x: Any, n: Any) -> Any: ...
    def icmp(self, cmp: str, x: Any, y: Any, signed: bool = False) -> Any: ...  # == != < <= > >=
    def fcmp(self, cmp: str, x: Any, y: Any, ordered: bool = True) -> Any: ...
    def isnan(self, x: Any) -> Any: ...
    def select(self, p: Any, x: Any, y: Any) -> Any: ...
    def fadd(self, x: Any, y: Any) -> Any: ...
    def fsub(self, x: Any, y: Any) -> Any: ...
    def fmul(self, x: Any, y: Any) -> Any: ...
    def fdiv(self, x: Any, y: Any) -> Any: ...
    def fma(self, x: Any, y: Any, z: Any) -> Any: ...
    def fabs(self, x: Any) -> Any: ...
    def fneg(self, x: Any) -> Any: ...
    # llvm intrinsic: rint floor ceil trunc sqrt log2 ctpop ctlz bitreverse umin umax smin smax minimumnum maximumnum
    def call(self, name: str, *args: Any) -> Any: ...
    def zext(self, x: Any, type: str) -> Any: ...
    def sext(self, x: Any, type: str) -> Any: ...
    def trunc(self, x: Any, type: str) -> Any: ...
    def fext(self, x: Any, type: str) -> Any: ...  # f16/f32 -> wider float, exact
    def ftrunc(self, x: Any, type: str) -> Any: ...  # float -> narrower float, RNE
    def from_int(self, x: Any, type: str, signed: bool) -> Any: ...  # integer -> float, RNE
    def to_int(self, x: Any, type: str, signed: bool) -> Any: ...  # float -> integer, in range only
    def cast_pred(self, p: Any, type: str) -> Any: ...  # 0 or 1
    def splat(self, imm: Any, type: str = "u32") -> Any: ...
    def flag(self, imm: Any, bit: int) -> Any: ...
    def pair(self, low: Any, high: Any) -> Any: ...  # halves -> twice the width: u64, u32
    def halves(self, x: Any) -> Any: ...  # 64-bit -> (low, high) u32
    def permute(self, x: Any, lanes: list[int]) -> Any: ...  # constant lane permutation
    def lookup(self, table: Sequence[int], index: Any) -> Any: ...  # u64 entries of a constant table; in range only


def lanes() -> tuple[Micro, ...]:
    """Every declared lane micro-operation in numbering order (load the families first)."""
    return tuple(sorted((op for op in MICROS.values() if op.is_lane), key=lambda op: op.name))


def routines() -> tuple[str, ...]:
    """Every unit routine that a declared micro-operation names, in numbering order."""
    return tuple(sorted({op.unit for op in MICROS.values() if op.unit}))
