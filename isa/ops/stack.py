"""The stack of a thread in local memory: `alloca`, `stacksave`, `stackrestore` (PTX ISA 9.7.16).

It begins behind the kernel's `.local` variables and grows upwards; what goes beyond it is out of bounds.
"""

from __future__ import annotations

from isa.ops.integer import add64
from isa.ops.logic import AND
from isa.ops.move import MOV, move64
from isa.registry import Const, Emitter, Match, Value, instruction

LEAST = 8  # bytes of alignment without one given


_SETS: dict[str, tuple[str, ...]] = {"T": (".u32", ".u64")}


def _copy(e: Emitter, type: str, to: Value, value: Value) -> None:
    """Between a register of the instruction's type and the 64-bit top of the stack, whose upper half is zero."""
    if type == "u64":
        move64(e, to, value)
    else:
        e(MOV, _low(e, to), _low(e, value))


def _low(e: Emitter, x: Value) -> Value:
    return e.lo(x) if getattr(x, "kind", "r") == "d" else x


@instruction("alloca.T d, size{, align};", sets=_SETS, types={"align": "imm"})
def alloca(e: Emitter, m: Match) -> None:
    """d = the local address of `size` new bytes, aligned as said or to 8 bytes; they live until the function returns."""
    align = LEAST if m.align is None else max(m.align, LEAST)
    if align & (align - 1) or align > 1 << 23:
        raise e.error(f"an alignment of {align}, expected a power of two up to 8388608", operand=m.operand("align"))
    top, raised, size = e.stack(), e.tmp("d"), m.size
    add64(e, raised, top, Const(align - 1, "d"))
    e(AND, e.lo(raised), e.lo(raised), Const(-align & 0xFFFFFFFF))
    if m["T"] == "u32":
        size = e.tmp("d")
        e(MOV, e.lo(size), m.size)
        e(MOV, e.hi(size), Const(0))
    add64(e, top, raised, size)
    _copy(e, m["T"], m.d, raised)


@instruction("stacksave.T d;", sets=_SETS)
def stacksave(e: Emitter, m: Match) -> None:
    """d = the top of the stack."""
    _copy(e, m["T"], m.d, e.stack())


@instruction("stackrestore.T a;", sets=_SETS)
def stackrestore(e: Emitter, m: Match) -> None:
    """The top of the stack is again what stacksave gave: later allocas are gone."""
    _copy(e, m["T"], e.stack(), m.a)
