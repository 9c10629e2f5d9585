"""One Numba intrinsic that executes any lane micro-operation on 32 lanes.

The generated code is a jump table over all registered lane micro-operations: load the operands from the warp's
register window, compute, go to the store that all operations with the same results share.  Call it from one
place of the compiled core: every call site gets its own copy of the table.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from emu.vector import LANES, LlvmVectors, vector_type
from isa.micro import MICROS, Micro
from isa.registry import load

I32, I64 = ir.IntType(32), ir.IntType(64)
ROW_BYTES = 4 * LANES
ALL_LANES = (1 << LANES) - 1
ARGUMENTS = ("op", "row_base", "d", "a", "b", "c", "pred_base", "pd", "pd2", "pa", "pb", "flip", "imm", "mask")


def lane_micros() -> list[Micro]:
    """Every lane micro-operation in name order; an operation's place is its id."""
    load()
    return [MICROS[name] for name in sorted(MICROS) if MICROS[name].is_lane]


def lane_ids() -> dict[str, int]:
    """Name of a lane micro-operation -> the `op` that `lane_dispatch` takes."""
    return {micro.name: index for index, micro in enumerate(lane_micros())}


@intrinsic
def lane_dispatch(typing, op, row_base, d, a, b, c, pred_base, pd, pd2, pa, pb, flip, imm, mask):
    """Execute lane micro-operation `op` (all arguments int64, addresses in bytes; an unknown `op` does nothing).

    Row r of the warp's window is 32 x u32 at `row_base + 128 * r` (128-byte aligned); a 64-bit value is rows r
    (low) and r + 1 (high).  Predicate slot s is a u32 lane mask at `pred_base + 4 * s`; slot 0 reads as all ones
    and `pd`/`pd2` = 0 discards a result.  Bits 1 and 2 of `flip` negate `pa` and `pb`.  Results change only in
    the lanes of `mask`.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        Dispatch(builder, dict(zip(ARGUMENTS, args, strict=True))).build(lane_micros())
        return context.get_dummy_value()

    return types.void(*[types.int64] * len(ARGUMENTS)), generate


class Dispatch:
    """The code of one dispatch: a case per operation, a shared store per kind of results."""

    def __init__(self, builder: ir.IRBuilder, args: dict[str, ir.Value]) -> None:
        self.builder = builder
        self.args = args
        self.vectors = LlvmVectors(builder)
        self.mask = builder.trunc(args["mask"], I32)
        self.exits: dict[str, list[tuple[ir.Block, list[ir.Value]]]] = {}
        self.stores: dict[str, ir.Block] = {}

    def build(self, micros: list[Micro]) -> None:
        """Emit the switch, its cases and the shared stores; leave the builder behind them."""
        b = self.builder
        done = b.append_basic_block("lane.done")
        switch = b.switch(self.args["op"], done)
        for index, micro in enumerate(micros):
            block = b.append_basic_block(f"lane.{micro.name}")
            switch.add_case(ir.Constant(I64, index), block)
            b.position_at_end(block)
            self.case(micro)
        for results, incoming in self.exits.items():
            self.store(results, incoming, done)
        b.position_at_end(done)

    def case(self, micro: Micro) -> None:
        """One operation: operands, emission, and its values on the way to the shared store."""
        assert micro.emit is not None
        value = micro.emit(self.vectors, *self.operands(micro))
        values = list(value) if isinstance(value, tuple) else [value]
        raw = [row for kind, item in zip(micro.results, values, strict=True) for row in self.raw(kind, item)]
        results = micro.results.replace("f", "u").replace("D", "uu").replace("U", "uu")
        if results not in self.stores:
            self.stores[results] = self.builder.append_basic_block(f"lane.store.{results}")
        self.exits.setdefault(results, []).append((self.builder.block, raw))
        self.builder.branch(self.stores[results])

    def operands(self, micro: Micro) -> list[ir.Value]:
        """The sources in signature order, typed by their letters."""
        rows, slots = iter("abc"), iter("ab")
        load = {"p": lambda: self.load_pred(next(slots)), "i": lambda: self.args["imm"]}
        return [load[k]() if k in load else self.load_rows(k, self.args[next(rows)]) for k in micro.sources]

    def raw(self, kind: str, value: ir.Value) -> tuple[ir.Value, ...]:
        """A result as the bits that are stored: a lane mask, or u32 rows, of which 64-bit lanes have two.

        Rows are split here, where an operation on halves has just joined them and nothing is left of either.
        """
        if kind == "p":
            return (self.builder.bitcast(value, I32),)
        if kind in "UD":
            return tuple(self.vectors.halves(self.vectors.bits(value, "u64")))
        return (self.vectors.bits(value, "u32"),)

    def row(self, index: ir.Value, offset: int = 0) -> ir.Value:
        b = self.builder
        address = b.add(self.args["row_base"], b.mul(index, ir.Constant(I64, ROW_BYTES)))
        return b.inttoptr(b.add(address, ir.Constant(I64, offset * ROW_BYTES)), vector_type("u32").as_pointer())

    def load_row(self, index: ir.Value, offset: int = 0) -> ir.Value:
        return self.builder.load(self.row(index, offset), align=32)

    def load_rows(self, kind: str, index: ir.Value) -> ir.Value:
        low = self.load_row(index)
        if kind in "uf":
            return self.vectors.bits(low, "f32") if kind == "f" else low
        wide = self.vectors.pair(low, self.load_row(index, 1))
        return self.vectors.bits(wide, "f64") if kind == "D" else wide

    def pred(self, slot: ir.Value) -> ir.Value:
        b = self.builder
        address = b.add(self.args["pred_base"], b.mul(slot, ir.Constant(I64, 4)))
        return b.inttoptr(address, I32.as_pointer())

    def load_pred(self, which: str) -> ir.Value:
        b = self.builder
        value = b.load(self.pred(self.args[f"p{which}"]), align=4)
        negated = self.vectors.flag(self.args["flip"], 1 + "ab".index(which))
        return b.bitcast(b.xor(value, b.sext(negated, I32)), vector_type("pred"))

    def store(self, results: str, incoming: list[tuple[ir.Block, list[ir.Value]]], done: ir.Block) -> None:
        """The store that all operations with these results share."""
        b = self.builder
        b.position_at_end(self.stores[results])
        values = []
        for index, first in enumerate(incoming[0][1]):
            phi = b.phi(first.type)
            for block, raw in incoming:
                phi.add_incoming(raw[index], block)
            values.append(phi)
        slots = iter(("pd", "pd2"))
        for kind, value in zip(results, values, strict=True):
            if kind == "p":
                self.store_pred(self.args[next(slots)], value)
        self.store_rows([value for kind, value in zip(results, values, strict=True) if kind == "u"])
        b.branch(done)

    def store_pred(self, slot: ir.Value, value: ir.Value) -> None:
        b = self.builder
        pointer = self.pred(slot)
        old = b.load(pointer, align=4)
        new = b.xor(old, b.and_(b.xor(old, value), self.mask))
        discard = b.icmp_unsigned("==", slot, ir.Constant(I64, 0))
        b.store(b.select(discard, old, new), pointer, align=4)

    def store_rows(self, rows: list[ir.Value]) -> None:
        """Write rows from d on, under the mask.

        The merge with old rows has a block of its own before the store: a select right at the store would
        become a masked store, which many hosts execute several times slower.
        """
        if not rows:
            return
        b, d = self.builder, self.args["d"]
        whole, partial, write = b.block, *(b.append_basic_block(f"lane.{n}") for n in ("partial", "write"))
        b.cbranch(b.icmp_unsigned("==", self.mask, ir.Constant(I32, ALL_LANES)), write, partial)
        b.position_at_end(partial)
        lanes = b.bitcast(self.mask, vector_type("pred"))
        merged = [b.select(lanes, value, self.load_row(d, offset)) for offset, value in enumerate(rows)]
        b.branch(write)
        b.position_at_end(write)
        for offset, pair in enumerate(zip(rows, merged, strict=True)):
            value = b.phi(vector_type("u32"))
            for item, block in zip(pair, (whole, partial), strict=True):
                value.add_incoming(item, block)
            rows[offset] = value
        for offset, value in enumerate(rows):
            b.store(value, self.row(d, offset), align=32)
