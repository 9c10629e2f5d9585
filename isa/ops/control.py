"""Control flow: branches, the end of a thread, traps, sleeping, dependent launch (PTX ISA 9.7.12, 9.7.13.13, 9.7.19)."""

from __future__ import annotations

from isa.micro import unit
from isa.ops.compare import EQ, ISETP_ANY, TRUE
from isa.registry import Const, Emitter, Match, instruction

BRA = unit("BRA", "->", "branch", "bra", "the lanes of the guard go to the label", "branch")
EXIT = unit("EXIT", "->", "exit", "exit", "the lanes of the guard end", "exit")
NOP = unit("NOP", "->", "nop", "nop", "nothing")
TRAP = unit("BPT.TRAP", "->", "nop", "trap", "stop with a fault", "barrier")
NANOSLEEP = unit("NANOSLEEP", "u->", "nanosleep", "nanosleep", "suspend for about that many nanoseconds", "barrier")

_UNI = {".uni": "a promise that the branch does not diverge; the machine sees it"}


@instruction("bra{.uni} target;", types={"target": "label"}, ignored=_UNI)
def bra(e: Emitter, m: Match) -> None:
    """Continue at a label (PTX ISA 9.7.12.3)."""
    e(BRA, None, label=m.target)


@instruction("brx.idx{.uni} a, table;", types={"a": "u32", "table": "labels"}, ignored=_UNI)
def brx(e: Emitter, m: Match) -> None:
    """Continue at the a-th label of a .branchtargets (PTX ISA 9.7.12.4): a chain of compares and branches.

    Indices beyond the list, which are undefined, go to the last label.
    """
    guard = e.guard if e.guard is not None else TRUE
    with e.under(None):
        for k, label in enumerate(m.table[:-1]):
            p = e.tmp("p")
            e(ISETP_ANY["u32"], (p, None), m.a, Const(k), guard, imm=EQ)
            e.branch(p, label)
    e(BRA, None, label=m.table[-1])


@instruction(
    "call{.uni} target;",
    "call{.uni} target, a;",
    "call{.uni} d, target;",
    "call{.uni} d, target, a;",
    types={"d": "arguments", "target": "function", "a": "arguments"},
    ignored=_UNI,
)
def call(e: Emitter, m: Match) -> None:
    """Call a function (PTX ISA 9.7.12.5): its body stands here, parameters are registers (`isa.calls`)."""
    e.call(m.target, getattr(m, "d", []), getattr(m, "a", []))


@instruction("ret{.uni};", ignored=_UNI)
def ret(e: Emitter, m: Match) -> None:
    """Return from a function; at the level of a kernel the thread ends (PTX ISA 9.7.12.6)."""
    if e.leave is not None:
        e(BRA, None, label=e.leave)
    else:
        e(EXIT, None)


@instruction("exit;")
def exit_(e: Emitter, m: Match) -> None:
    """The thread ends (PTX ISA 9.7.12.7)."""
    e(EXIT, None)


@instruction("trap;", "brkpt;")
def trap(e: Emitter, m: Match) -> None:
    """Stop the program with a fault; a breakpoint, having no debugger to hand over to, too (PTX ISA 9.7.19)."""
    e(TRAP, None)


@instruction("pmevent{.mask} events;", types={"events": "imm"})
def pmevent(e: Emitter, m: Match) -> None:
    """Trigger performance monitor events, which nothing counts here (PTX ISA 9.7.19.2)."""
    e(NOP, None)


@instruction("nanosleep.u32 t;", types={"t": "u32"})
def nanosleep(e: Emitter, m: Match) -> None:
    """Suspend the thread for a time near `t` nanoseconds, at most twice that (PTX ISA 9.7.19.3)."""
    e(NANOSLEEP, None, m.t)


@instruction("griddepcontrol.{launch_dependents,wait};", targets=("sm_90", "sm_90a", "sm_100a"))
def griddepcontrol(e: Emitter, m: Match) -> None:
    """Programmatic dependent launch: one grid runs here, so nothing to wait for (PTX ISA 9.7.13.13)."""
    e(NOP, None)
