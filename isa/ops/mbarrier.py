"""mbarrier objects in shared memory (PTX ISA 9.7.13.15).

All operations take the barrier's address in shared memory, generic or not.  Memory order and scope
are accepted as `ptxas` accepts them; accesses of the model take effect in program order at issue.
"""

from __future__ import annotations

from typing import Any

from isa.micro import VectorBuilder, lane, unit
from isa.ops.address import offset_of, shared_base
from isa.ops.fence import MEMBAR
from isa.registry import Const, Emitter, Match, Value, instruction
from isa.shorthand import Fresh, operands, shorthand, text
from isa.syntax import Instr

DROP, NO_COMPLETE, EXPECT_TX, CLUSTER = 1 << 32, 1 << 33, 1 << 34, 1 << 35
TEST_ONLY, HINTED = 1 << 32, 1 << 33

_INIT = "address, count; imm: byte offset"
SYNCS_INIT = unit("SYNCS.INIT", "uu->", "mbar_init", "mbar_init", _INIT, "barrier")
SYNCS_INVAL = unit("SYNCS.INVAL", "u->", "mbar_init", "mbar_inval", "address; imm: byte offset", "barrier")
SYNCS_ARRIVE = unit(
    "SYNCS.ARRIVE", "uu->U", "mbar_arrive", "mbar_arrive",
    "address, count or bytes -> state before; imm: barrier word", "barrier",
)  # fmt: skip
SYNCS_EXPECT = unit("SYNCS.EXPECT", "uu->", "mbar_tx", "mbar_expect_tx", "address, bytes; imm: byte offset", "barrier")
SYNCS_COMPLETE = unit(
    "SYNCS.COMPLETE", "uu->", "mbar_tx", "mbar_complete_tx", "address, bytes; imm: byte offset", "barrier"
)
SYNCS_TRYWAIT = unit(
    "SYNCS.TRYWAIT", "uuu->p", "mbar_wait", "mbar_wait", "address, parity, hint; imm: wait word", "barrier"
)
SYNCS_TRYWAIT_STATE = unit(
    "SYNCS.TRYWAIT.STATE",
    "uUu->p",
    "mbar_wait",
    "mbar_wait_state",
    "address, state, hint; imm: wait word",
    "barrier",
)


def _pending(state: int) -> int:
    """Pending arrivals of a state word: bits 43..62 hold 2^20 minus them (as an H200 stores it)."""
    return (1 << 20) - (state >> 43 & 0xFFFFF)


def _emit_pending(v: VectorBuilder, state: Any) -> Any:
    stored = v.and_(v.lshr(v.halves(state)[1], v.const(43 - 32)), v.const(0xFFFFF))
    return v.sub(v.const(1 << 20), stored)


MBAR_PENDING = lane("SYNCS.PENDING", "U->u", "alu", _pending, _emit_pending, "pending arrivals of a state")


def barrier_word(offset: int, flags: int = 0) -> int:
    """The immediate of SYNCS operations: signed byte offset (32 bits) and the flags of this module."""
    return (offset & 0xFFFFFFFF) | flags


_ORDER = "accesses of the model take effect in program order at issue, which is stronger"
_SETS = {
    "LOCAL": (".shared", ".shared::cta"),
    "SHARED": (".shared", ".shared::cta", ".shared::cluster"),
    "ASEM": (".release", ".relaxed"),
    "WSEM": (".acquire", ".relaxed"),
    "SCOPE": (".cta", ".cluster"),
}
_IGNORED = dict.fromkeys((*_SETS["ASEM"], *_SETS["WSEM"], *_SETS["SCOPE"]), _ORDER)
_TYPES = {"state": "b64", "p": "pred", "count": "u32", "tx": "u32", "parity": "u32", "hint": "u32"}
_HOPPER_ON = ("sm_90", "sm_90a", "sm_100a")


def _address(e: Emitter, m: Match) -> Value:
    return shared_base(e, m.a, generic=not any(q.startswith("shared") for q in m.mods))


@instruction("mbarrier.init{.LOCAL}.b64 [a], count;", sets=_SETS, types=_TYPES)
def init(e: Emitter, m: Match) -> None:
    """A barrier that expects `count` arrivals a phase (9.7.13.15.9)."""
    e(SYNCS_INIT, None, _address(e, m), m.count, imm=barrier_word(offset_of(e, m.a)))


@instruction("mbarrier.inval{.LOCAL}.b64 [a];", sets=_SETS, types=_TYPES)
def inval(e: Emitter, m: Match) -> None:
    """The location is ordinary memory again (9.7.13.15.10)."""
    e(SYNCS_INVAL, None, _address(e, m), imm=barrier_word(offset_of(e, m.a)))


def _cluster(e: Emitter, m: Match) -> int:
    """The flag of an address that may lie in another CTA."""
    return CLUSTER if m.has(".shared::cluster") and e.clustered else 0


def _arrive(e: Emitter, m: Match, amount: Value, flags: int) -> None:
    if m.has(".shared::cluster") and m.state is not None:
        raise e.error("an arrival in .shared::cluster returns no state", "write '_' as the destination")
    flags |= DROP if m.has(".arrive_drop") else 0
    if m.has(".release") and m.has(".cluster"):
        e(MEMBAR["ALL", "GPU"], None)
    flags |= _cluster(e, m)
    e(SYNCS_ARRIVE, m.state, _address(e, m), amount, imm=barrier_word(offset_of(e, m.a), flags))


@instruction(
    "mbarrier.{arrive,arrive_drop}{.ASEM.SCOPE}{.SHARED}.b64 state, [a]{, count};",
    "mbarrier.{arrive,arrive_drop}.noComplete{.release.cta}{.LOCAL}.b64 state, [a], count;",
    sets=_SETS,
    types=_TYPES,
    ignored=_IGNORED,
)
def arrive(e: Emitter, m: Match) -> None:
    """`count` (1) arrivals; state = the phase before (9.7.13.15.13-14).  arrive_drop expects fewer from then on."""
    count = m.count if m.count is not None else Const(1)
    if isinstance(count, Const) and not 0 < count.bits < 1 << 31:
        raise e.error("the count of arrivals must be positive", operand=m.operand("count"))
    _arrive(e, m, count, NO_COMPLETE if m.has(".noComplete") else 0)


@instruction(
    "mbarrier.{arrive,arrive_drop}.expect_tx{.ASEM.SCOPE}{.SHARED}.b64 state, [a], tx;",
    sets=_SETS,
    types=_TYPES,
    ignored=_IGNORED,
    targets=_HOPPER_ON,
)
def arrive_expect_tx(e: Emitter, m: Match) -> None:
    """Expect `tx` bytes more in this phase, then arrive once, in one step (9.7.13.15.13)."""
    _arrive(e, m, m.tx, EXPECT_TX)


@instruction(
    "mbarrier.{expect_tx,complete_tx}{.relaxed.SCOPE}{.SHARED}.b64 [a], tx;",
    sets=_SETS,
    types=_TYPES,
    ignored=_IGNORED,
    targets=_HOPPER_ON,
)
def change_tx(e: Emitter, m: Match) -> None:
    """Raise or lower the bytes that the phase still waits for (9.7.13.15.11-12)."""
    op = SYNCS_EXPECT if m.has(".expect_tx") else SYNCS_COMPLETE
    e(op, None, _address(e, m), m.tx, imm=barrier_word(offset_of(e, m.a), _cluster(e, m)))


def _wait_word(e: Emitter, m: Match, hint: Value | None) -> int:
    flags = (TEST_ONLY if m.has(".test_wait") else 0) | (HINTED if hint is not None else 0)
    return barrier_word(offset_of(e, m.a), flags)


def _wait_parity(e: Emitter, m: Match, hint: Value | None) -> None:
    if isinstance(m.parity, Const) and m.parity.bits > 1:
        raise e.error("the phase parity is 0 or 1", operand=m.operand("parity"))
    word = _wait_word(e, m, hint)
    e(SYNCS_TRYWAIT, m.p, _address(e, m), m.parity, hint or Const(0), imm=word)


@instruction(
    "mbarrier.test_wait.parity{.WSEM.SCOPE}{.LOCAL}.b64 p, [a], parity;", sets=_SETS, types=_TYPES, ignored=_IGNORED
)
def test_wait_parity(e: Emitter, m: Match) -> None:
    """p = whether the phase with that parity is the one just completed; never waits (9.7.13.15.16)."""
    _wait_parity(e, m, None)


@instruction(
    "mbarrier.try_wait.parity{.WSEM.SCOPE}{.LOCAL}.b64 p, [a], parity{, hint};",
    sets=_SETS,
    types=_TYPES,
    ignored=_IGNORED,
    targets=_HOPPER_ON,
)
def try_wait_parity(e: Emitter, m: Match) -> None:
    """As test_wait, but may suspend the thread for a limited time, `hint` nanoseconds if given (9.7.13.15.16)."""
    _wait_parity(e, m, m.hint)


@instruction("mbarrier.test_wait{.WSEM.SCOPE}{.LOCAL}.b64 p, [a], state;", sets=_SETS, types=_TYPES, ignored=_IGNORED)
def test_wait(e: Emitter, m: Match) -> None:
    """p = whether the phase of `state`, which an arrival returned, is complete; never waits (9.7.13.15.16)."""
    e(SYNCS_TRYWAIT_STATE, m.p, _address(e, m), m.state, Const(0), imm=_wait_word(e, m, None))


@instruction(
    "mbarrier.try_wait{.WSEM.SCOPE}{.LOCAL}.b64 p, [a], state{, hint};",
    sets=_SETS,
    types=_TYPES,
    ignored=_IGNORED,
    targets=_HOPPER_ON,
)
def try_wait(e: Emitter, m: Match) -> None:
    """As test_wait with a state, but may suspend the thread for a limited time (9.7.13.15.16)."""
    e(SYNCS_TRYWAIT_STATE, m.p, _address(e, m), m.state, m.hint or Const(0), imm=_wait_word(e, m, m.hint))


@instruction("mbarrier.pending_count.b64 d, state;", types={"d": "u32", "state": "b64"})
def pending_count(e: Emitter, m: Match) -> None:
    """d = the arrivals that `state` still waited for (9.7.13.15.17)."""
    e(MBAR_PENDING, m.d, m.state)


@shorthand("mbarrier.wait")
def wait(instr: Instr, fresh: Fresh) -> str:
    """`mbarrier.wait [bar], parity;`: the loop around try_wait.parity that compilers write."""
    bar, parity = (text(operand) for operand in operands(instr, 2, "mbarrier.wait [bar], parity;"))
    again, done = fresh("WAIT"), f"%{fresh('done')}"
    return f"""{{
    .reg .pred {done};
    {again}:
    mbarrier.try_wait.parity.shared::cta.b64 {done}, {bar}, {parity};
    @!{done} bra {again};
    }}"""
