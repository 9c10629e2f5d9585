"""Addresses: what unit operations take, `cvta` and `isspacep` (PTX ISA 9.7.9.20, 9.7.9.19).

Generic, global and constant addresses are the same 64-bit numbers (`isa.program`).  Shared and local memory and
the parameters are windows of the generic space whose low half is the address inside, so that converting costs
two moves, which allocation may coalesce.  Compilers keep such addresses in 32 bits (`mov.b32 %r, param;`).
"""

from __future__ import annotations

from typing import Any

from isa.micro import VectorBuilder, lane
from isa.ops.compare import ISETP
from isa.ops.integer import IADD3, IADD3_CC, IADD3_X, sub64
from isa.ops.logic import PAND, POR, PXOR, XOR
from isa.ops.move import MOV, PMOV
from isa.program import CLUSTER_WORD, LOCAL_WINDOW, PARAM_BASE, RANK_BIT, SHARED_WINDOW
from isa.registry import Address, Const, Emitter, Match, ParamWord, PredConst, Value, instruction

WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_BASE}
INT32 = range(-(1 << 31), 1 << 31)


def in_space(value: int, window: int) -> bool:
    """Whether a generic address lies in the 4 GiB window with this upper half."""
    return value >> 32 == window


def in_global(value: int) -> bool:
    """Whether a generic address lies in neither shared nor local memory."""
    return value >> 32 not in (SHARED_WINDOW >> 32, LOCAL_WINDOW >> 32)


def _emit_window(v: VectorBuilder, a: Any, window: Any) -> Any:
    return v.icmp("==", v.halves(a)[1], window)


def _emit_global(v: VectorBuilder, a: Any) -> Any:
    high = v.halves(a)[1]
    return v.and_(*(v.icmp("!=", high, v.const(window >> 32)) for window in (SHARED_WINDOW, LOCAL_WINDOW)))


QSPC = lane("QSPC.E", "Uu->p", "alu", in_space, _emit_window, "whether an address has this upper half")
QSPC_G = lane("QSPC.E.G", "U->p", "alu", in_global, _emit_global, "whether an address is in global memory")


QSPC_CTA = lane(
    "QSPC.E.S",
    "uuu->p",
    "alu",
    lambda a, high, window: a >> RANK_BIT == 0 and high == window,
    lambda v, a, high, window: v.and_(
        v.icmp("==", v.lshr(a, v.const(RANK_BIT)), v.const(0)), v.icmp("==", high, window)
    ),
    "whether an address has the upper half `high` == c, and a, its lower half xor the CTA's window, names this CTA",
)


def offset_of(e: Emitter, address: Address) -> int:
    """The byte offset of an address, which the immediate field must hold (signed 32 bits)."""
    if address.offset not in INT32:
        raise e.error(f"the offset {address.offset} does not fit 32 bits", "add it to the register")
    return address.offset


def shared_base(e: Emitter, address: Address, generic: bool) -> Value:
    """The 32-bit base of an address in shared memory; a `generic` one is known to point there."""
    return e.lo(address.base) if generic else address.base


def shared_whole(e: Emitter, address: Address) -> Value:
    """The 32-bit value of base + offset, for units without an offset field (one add when both are there)."""
    base = address.base
    offset = offset_of(e, address)
    if offset == 0:
        return base
    if isinstance(base, Const):
        return Const((base.bits + offset) & 0xFFFFFFFF)
    whole = e.tmp()
    e(IADD3, whole, base, Const(offset & 0xFFFFFFFF))
    return whole


def generic_of(e: Emitter, address: Address) -> Address:
    """The generic address of an address in shared memory."""
    base = e.tmp("d")
    e(MOV, e.lo(base), address.base)
    e(MOV, e.hi(base), Const(SHARED_WINDOW >> 32))
    return Address(base, address.offset)


def generic_whole(e: Emitter, address: Address) -> Value:
    """The 64-bit value of base + offset (two adds when the base is a register)."""
    base, offset = address.base, offset_of(e, address)
    if offset == 0:
        return base
    whole, carry = e.tmp("d"), e.tmp("p")
    e(IADD3_CC, (e.lo(whole), carry), e.lo(base), Const(offset & 0xFFFFFFFF))
    e(IADD3_X, e.hi(whole), e.hi(base), Const(0xFFFFFFFF if offset < 0 else 0), carry)
    return whole


_SPACES = (".shared", ".shared::cta", ".shared::cluster", ".local", ".global", ".const", ".param", ".param::entry")


def _upper_half(e: Emitter, m: Match, to: bool) -> Value:
    """The upper half of the converted address: the window's, zero, or the source's."""
    window = WINDOWS.get(m["SPACE"].split("::")[0])
    if window is None:
        return e.hi(m.a)
    return Const(0 if to else window >> 32)


@instruction("cvta.SPACE.u64 d, a;", sets={"SPACE": _SPACES})
def cvta(e: Emitter, m: Match) -> None:
    """d = the generic address of `a`, an address or variable in a state space (PTX ISA 9.7.9.20)."""
    e(MOV, e.lo(m.d), e.lo(m.a))
    e(MOV, e.hi(m.d), _upper_half(e, m, to=False))


@instruction("cvta.to.SPACE.u64 d, a;", sets={"SPACE": _SPACES})
def cvta_to(e: Emitter, m: Match) -> None:
    """d = the address in a state space of the generic address `a`, a register (PTX ISA 9.7.9.20)."""
    if isinstance(m.a, Const):
        raise e.error("cvta.to converts a register", operand=m.operand("a"))
    e(MOV, e.lo(m.d), e.lo(m.a))
    e(MOV, e.hi(m.d), _upper_half(e, m, to=True))


@instruction(
    "isspacep.SPACE p, a;",
    sets={"SPACE": (".shared", ".shared::cta", ".shared::cluster", ".local", ".param", ".param::entry")},
    types={"p": "pred", "a": "u64"},
)
def isspacep(e: Emitter, m: Match) -> None:
    """p = whether the generic address `a` lies in a window (PTX ISA 9.7.9.19); .shared is that of the CTA."""
    space = m["SPACE"].split("::")[0]
    if e.clustered and m["SPACE"] in ("shared", "shared::cta"):
        foreign = e.tmp()
        e(XOR, foreign, e.lo(m.a), ParamWord(CLUSTER_WORD))
        e(QSPC_CTA, m.p, foreign, e.hi(m.a), Const(WINDOWS[space] >> 32))
        return
    e(QSPC, m.p, m.a, Const(WINDOWS[space] >> 32))


def _constant(e: Emitter, a: Value) -> Value:
    """Whether a generic address lies in a .const variable."""
    found: Value = PredConst(False)
    for address, size in e.constants:
        offset, low, high, inside, both = e.tmp("d"), e.tmp("p"), e.tmp("p"), e.tmp("p"), e.tmp("p")
        sub64(e, offset, a, Const(address, "d"))
        e(ISETP["lt", "u32"], low, e.lo(offset), Const(size))
        e(ISETP["eq", "u32"], high, e.hi(offset), Const(0))
        e(PAND, inside, low, high)
        e(POR, both, inside, found)
        found = both
    return found


@instruction("isspacep.{global,const} p, a;", types={"p": "pred", "a": "u64"})
def isspacep_rest(e: Emitter, m: Match) -> None:
    """p = whether the generic address `a` lies in a .const variable, or (.global) in no other window (PTX ISA 9.7.9.19).

    Parameters of a kernel are in global memory too (recorded on an H200).
    """
    constant = _constant(e, m.a)
    if m.has(".const"):
        e(PMOV, m.p, constant)
    elif constant == PredConst(False):
        e(QSPC_G, m.p, m.a)
    else:
        elsewhere, outside = e.tmp("p"), e.tmp("p")
        e(QSPC_G, elsewhere, m.a)
        e(PXOR, outside, constant, PredConst(True))
        e(PAND, m.p, elsewhere, outside)


@instruction(
    "istypep.KIND p, a;", sets={"KIND": (".texref", ".samplerref", ".surfref")}, types={"p": "pred", "a": "u64"}
)
def istypep(e: Emitter, m: Match) -> None:
    """p = whether `a` points to a texture, sampler or surface: there are none here (PTX ISA 9.7.11.5)."""
    e(PMOV, m.p, PredConst(False))
