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
BAR_RED = unit(
    "BAR.RED", "uup->", "bar", "bar_red", "barrier id, threads, predicate; imm 1: aligned", "barrier", "collective"
)
B2R = unit(
    "B2R.RESULT", "->u", "b2r", "barrier_result", "threads whose predicate held at the warp's last barrier", "barrier"
)
B2R_PRED = unit(
    "B2R.RESULT.PRED", "->p", "b2r_pred", "barrier_result", "imm 1: it held for all of them, 2: for any", "barrier"
)
ALL, ANY = 1, 2

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


_RED = {"p": "pred", "c": "pred", "d": "u32"} | _TYPES
_POPC = "red.popc{.aligned}.u32 d, a{, b}, {!}c;"
_PRED = "red.OP{.aligned}.pred p, a{, b}, {!}c;"


def _reduce(e: Emitter, m: Match) -> None:
    e(BAR_RED, None, *_operands(e, m), m.c, imm=_aligned(m))


@instruction(
    "bar.red.popc.u32 d, a{, b}, {!}c;",
    "bar.cta.red.popc.u32 d, a{, b}, {!}c;",
    f"barrier.{_POPC}",
    f"barrier.cta.{_POPC}",
    types=_RED,
    ignored=_ALIGNED,
)
def bar_popc(e: Emitter, m: Match) -> None:
    """As a sync; d = the threads of the barrier for which `c` holds."""
    if m.d is None:
        raise e.error("bar.red needs a destination register")
    _reduce(e, m)
    e(B2R, m.d)


@instruction(
    "bar.red.OP.pred p, a{, b}, {!}c;",
    "bar.cta.red.OP.pred p, a{, b}, {!}c;",
    f"barrier.{_PRED}",
    f"barrier.cta.{_PRED}",
    sets={"OP": (".and", ".or")},
    types=_RED,
    ignored=_ALIGNED,
)
def bar_predicate(e: Emitter, m: Match) -> None:
    """As a sync; p = whether `c` holds for all (and) or any (or) of the threads of the barrier."""
    if m.p is None:
        raise e.error("bar.red needs a destination register")
    _reduce(e, m)
    e(B2R_PRED, m.p, imm=ALL if m["OP"] == "and" else ANY)
