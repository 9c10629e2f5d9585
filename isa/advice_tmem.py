"""Loads and stores of Tensor Memory that a warp signals behind without having waited for them (PTX ISA 9.7.16.6).

`tcgen05.wait::ld` stands between a load and the arrival that lets others overwrite or free its columns, `tcgen05.wait::st` between a
store and whoever reads it.  Found on every path of the program as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from isa.cfg import Graph, graph, reverse_postorder
from isa.code import Code, MicroOp

# A bar.sync is none: compilers put those of shared memory between a load and its wait.
SIGNALS = {
    "mbar_arrive": "arrival",
    "bar_arrive": "arrival",
    "cluster_arrive": "arrival",
    "tmem_dealloc": "tcgen05.dealloc",
    "tcgen05_mma": "tcgen05.mma",
    "tcgen05_cp": "tcgen05.cp",
}
NONE = -1

Pending = tuple[int, int]  # the latest load and the latest store that are not waited for, by their place in the program


def _after(op: MicroOp, place: int, pending: Pending) -> Pending:
    load, store = pending
    match op.micro.unit:
        case "tmem_load":
            return place, store
        case "tmem_store":
            return load, place
        case "tmem_wait":
            return (load, NONE) if op.imm else (NONE, store)
    return pending


def _states(code: Code, g: Graph) -> list[Pending]:
    """What is pending before each block, on some path."""
    into: list[Pending] = [(NONE, NONE)] * g.count
    order, changed = reverse_postorder(g.successors, 0), True
    while changed:
        changed = False
        for b in order:
            pending = into[b]
            for i in g.span(b):
                pending = _after(code.ops[i], i, pending)
            for s in g.successors[b]:
                joined = max(into[s][0], pending[0]), max(into[s][1], pending[1])
                changed |= joined != into[s]
                into[s] = joined
    return into


def tmem_advice(code: Code) -> Iterator[str]:
    """Warnings in words, the first place of each kind; nothing for kernels without Tensor Memory."""
    if not any(op.micro.unit in ("tmem_load", "tmem_store") for op in code.ops):
        return
    g = graph(code.ops, code.labels)
    found: dict[str, str] = {}
    for b, pending in enumerate(_states(code, g)):
        for i in g.span(b):
            op = code.ops[i]
            if op.micro.unit in SIGNALS:
                for kind, place in zip(("ld", "st"), pending, strict=True):
                    if place != NONE:
                        text = f"tcgen05.wait::{kind} comes between the tcgen05.{kind} of line {code.ops[place].pos.line} and"
                        found.setdefault(kind, f"{code.kernel.name}: {op.pos}: {text} this {SIGNALS[op.micro.unit]}")
            pending = _after(op, i, pending)
    yield from found.values()
