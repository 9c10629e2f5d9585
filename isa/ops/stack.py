"""The stack of a thread in local memory: `alloca`, `stacksave`, `stackrestore` (PTX ISA 9.7.16).

It begins behind the kernel's `.local` variables and grows upwards; what goes beyond it is out of bounds.
"""

from __future__ import annotations

from isa.ops.integer import IADD3, VIMNMX, add64
from isa.ops.logic import AND, OR
from isa.ops.move import MOV, move64
from isa.ops.shift import SHF_L
from isa.registry import Const, Emitter, Match, Value, instruction

LEAST = 8  # bytes of alignment without one given
BEYOND = 24  # 2 to this is behind every thread's local memory (512 KB, CUDA programming guide)


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
    align = LEAST if m.align is None else m.align
    if align < 1 or align & (align - 1) or align > 1 << 23:
        raise e.error(f"an alignment of {align}, expected a power of two up to 8388608", operand=m.operand("align"))
    align = max(align, LEAST)
    top, raised = e.stack(), e.tmp("d")
    add64(e, raised, top, Const(align - 1, "d"))
    e(AND, e.lo(raised), e.lo(raised), Const(-align & 0xFFFFFFFF))
    # The top never passes 2^BEYOND: whatever sizes are asked for, what lies behind the stack is out of bounds.
    least, limit = VIMNMX["min", "u32"], Const(1 << BEYOND)
    size = e.tmp()
    e(least, size, _low(e, m.size), limit)
    if m["T"] == "u64":
        huge = e.tmp()
        e(least, huge, e.hi(m.size), Const(1))
        e(SHF_L, huge, huge, Const(BEYOND))
        e(OR, size, size, huge)
    e(IADD3, size, size, e.lo(raised))
    e(least, e.lo(top), size, limit)
    e(MOV, e.hi(top), Const(0))
    _copy(e, m["T"], m.d, raised)


@instruction("stacksave.T d;", sets=_SETS)
def stacksave(e: Emitter, m: Match) -> None:
    """d = the top of the stack."""
    _copy(e, m["T"], m.d, e.stack())


@instruction("stackrestore.T a;", sets=_SETS)
def stackrestore(e: Emitter, m: Match) -> None:
    """The top of the stack is again what stacksave gave: later allocas are gone."""
    _copy(e, m["T"], e.stack(), m.a)
