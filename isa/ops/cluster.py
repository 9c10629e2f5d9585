"""Clusters: addresses of other CTAs' shared memory, and the cluster's barrier (PTX ISA 9.7.9.23-24, 9.7.13.3).

A shared address is `rank << 24 | offset` (as `ptxas` lays it out), in 32 bits, in 64, or as the low half of a generic one.
"""

from __future__ import annotations

from isa.micro import unit
from isa.ops.fence import CCTL_IVALL, MEMBAR
from isa.ops.move import MOV, PRMT
from isa.ops.shift import SHF_R_U32
from isa.program import RANK_BIT
from isa.registry import Const, Emitter, Match, Value, instruction

ALIGNED = 1
RANK_AND_OFFSET = 0x0654  # prmt: byte 0 of a above bytes 0 to 2 of b

_DOC = "imm 1: aligned"
UCGABAR_ARV = unit("UCGABAR_ARV", "->", "cluster_arrive", "cluster_arrive", _DOC, "barrier", "collective")
UCGABAR_WAIT = unit("UCGABAR_WAIT", "->", "cluster_wait", "cluster_wait", _DOC, "barrier", "collective")

_HOPPER_ON = ("sm_90", "sm_90a", "sm_100a")
_ALIGNED = {".aligned": "a promise that the warp is converged; the machine checks it"}


def _mapped(e: Emitter, d: Value, low: Value, rank: Value) -> None:
    e(PRMT, d, rank, low, Const(RANK_AND_OFFSET))


@instruction("mapa{.shared::cluster}.u32 d, a, b;", targets=_HOPPER_ON)
def mapa(e: Emitter, m: Match) -> None:
    """d = the address in the CTA of rank `b` that corresponds to the shared address or variable `a` of this one."""
    _mapped(e, m.d, m.a, m.b)


@instruction("mapa{.shared::cluster}.u64 d, a, b;", types={"b": "u32"}, targets=_HOPPER_ON)
def mapa64(e: Emitter, m: Match) -> None:
    """The same for 64 bits; without a space `a` and d are generic addresses."""
    _mapped(e, e.lo(m.d), e.lo(m.a), m.b)
    e(MOV, e.hi(m.d), e.hi(m.a))


@instruction("getctarank{.shared::cluster}.u32 d, a;", targets=_HOPPER_ON)
def getctarank(e: Emitter, m: Match) -> None:
    """d = the rank of the CTA that a shared address lies in."""
    e(SHF_R_U32, m.d, m.a, Const(RANK_BIT))


@instruction("getctarank{.shared::cluster}.u64 d, a;", types={"d": "u32"}, targets=_HOPPER_ON)
def getctarank64(e: Emitter, m: Match) -> None:
    """The same for 64 bits; without a space `a` is a generic address."""
    e(SHF_R_U32, m.d, e.lo(m.a), Const(RANK_BIT))


@instruction(
    "barrier.cluster.arrive{.SEM}{.aligned};",
    sets={"SEM": (".release", ".relaxed")},
    targets=_HOPPER_ON,
    ignored=_ALIGNED,
)
def barrier_arrive(e: Emitter, m: Match) -> None:
    """The thread has come to the cluster's barrier, and goes on; .release (the default) is a fence of the cluster."""
    if m["SEM"] != "relaxed":
        e(MEMBAR["ALL", "GPU"], None)
    e(UCGABAR_ARV, None, imm=ALIGNED if m.has(".aligned") else 0)


@instruction("barrier.cluster.wait{.acquire}{.aligned};", targets=_HOPPER_ON, ignored=_ALIGNED)
def barrier_wait(e: Emitter, m: Match) -> None:
    """Wait until all threads of the cluster that have not exited have come to the barrier."""
    e(UCGABAR_WAIT, None, imm=ALIGNED if m.has(".aligned") else 0)
    e(CCTL_IVALL, None)
