"""Barriers of a CTA: `bar`, `barrier` (PTX ISA 9.7.13.1)."""

from __future__ import annotations

from isa.micro import unit
from isa.registry import Const, Emitter, Match, Value, instruction

BARRIERS = 16  # per CTA (PTX ISA 9.7.13.1)
WARP = 32

ALIGNED = 1

_DOC = "barrier id, threads (0: all of the CTA that have not exited); imm 1: aligned"
BAR_SYNC = unit("BAR.SYNC", "uu->", "bar", "bar_sync", _DOC, "barrier", "collective")
BAR_ARV = unit("BAR.ARV", "uu->", "bar_arrive", "bar_arrive", _DOC, "barrier", "collective")

_TYPES = {"a": "u32", "b": "u32"}
_ALIGNED = {".aligned": "a promise that the warp is converged; the machine checks it"}


def _aligned(m: Match) -> int:
    """`bar` is `barrier.aligned`; without it the lanes of a warp may come from different places."""
    return ALIGNED if m.has(".aligned") or m.form.syntax.startswith("bar.") else 0


def _operands(e: Emitter, m: Match) -> tuple[Value, Value]:
    """Barrier and thread count, constants checked; registers are checked at run time."""
    if isinstance(m.a, Const) and m.a.bits >= BARRIERS:
        raise e.error(f"barrier {m.a.bits} is out of range", f"a CTA has barriers 0..{BARRIERS - 1}", m.operand("a"))
    threads: Value = m.b if m.b is not None else Const(0)
    if isinstance(threads, Const) and threads.bits % WARP:
        message = f"{threads.bits} threads are not a multiple of the warp size"
        raise e.error(message, f"a barrier counts whole warps of {WARP}", m.operand("b"))
    return m.a, threads


@instruction(
    "bar.sync a{, b};",
    "bar.cta.sync a{, b};",
    "barrier.sync{.aligned} a{, b};",
    "barrier.cta.sync{.aligned} a{, b};",
    types=_TYPES,
    ignored=_ALIGNED,
)
def bar_sync(e: Emitter, m: Match) -> None:
    """Wait until `b` threads (all of the CTA by default) have reached barrier `a`."""
    e(BAR_SYNC, None, *_operands(e, m), imm=_aligned(m))


@instruction(
    "bar.arrive a, b;",
    "bar.cta.arrive a, b;",
    "barrier.arrive{.aligned} a, b;",
    "barrier.cta.arrive{.aligned} a, b;",
    types=_TYPES,
    ignored=_ALIGNED,
)
def bar_arrive(e: Emitter, m: Match) -> None:
    """Count this warp on barrier `a` without waiting; `b` threads complete it."""
    a, b = _operands(e, m)
    if b == Const(0):
        raise e.error("an arrival needs a thread count other than 0", operand=m.operand("b"))
    e(BAR_ARV, None, a, b, imm=_aligned(m))
