"""Cluster launch control (PTX ISA 9.7.13.18): take the place of a CTA that has not been launched, on Blackwell.

The response is opaque in PTX; here its words are the CTA's three indices and 1, or zeros where nothing was left to cancel.
"""

from __future__ import annotations

from isa.micro import unit
from isa.ops.address import shared_whole
from isa.ops.compare import EQ, ISETP_ANY, TRUE
from isa.ops.move import MOV
from isa.registry import Const, Emitter, Match, instruction

GETNEXT = unit(
    "UGETNEXTWORKID", "uu->", "cancel", "try_cancel", "address of the 16 bytes of the answer, mbarrier", "barrier"
)

BLACKWELL = ("sm_100",)
_IGNORED = {".multicast::cluster::all": "every CTA of the cluster gets the answer; clusters have one CTA here"}
_TRY = "clusterlaunchcontrol.try_cancel.async{.shared::cta}.mbarrier::complete_tx::bytes"
_QUERY = "clusterlaunchcontrol.query_cancel"


@instruction(f"{_TRY}.b128 [a], [mbar];", types={"a": "shared", "mbar": "shared"}, targets=BLACKWELL)
@instruction(
    f"{_TRY}.multicast::cluster::all.b128 [a], [mbar];",
    types={"a": "shared", "mbar": "shared"},
    ignored=_IGNORED,
    targets=("sm_100f",),
)
def try_cancel(e: Emitter, m: Match) -> None:
    """Ask for a CTA that is still to be launched, which then never is; 16 bytes arrive at `a` and count on `mbar`."""
    e(GETNEXT, None, shared_whole(e, m.a), shared_whole(e, m.mbar))


@instruction(f"{_QUERY}.is_canceled.pred.b128 p, a;", types={"p": "pred", "a": "b128"}, targets=BLACKWELL)
def is_canceled(e: Emitter, m: Match) -> None:
    """p = the answer `a` names a CTA."""
    e(ISETP_ANY["u32"], (m.p, None), e.hi(e.hi(m.a)), Const(1), TRUE, imm=EQ)


@instruction(
    f"{_QUERY}.get_first_ctaid.v4.b32.b128 {{d}}, a;", types={"d": "vec:b32:4", "a": "b128"}, targets=BLACKWELL
)
def first_ctaid(e: Emitter, m: Match) -> None:
    """d = the indices of the first CTA that the answer names, and zero."""
    words = [e.lo(e.lo(m.a)), e.hi(e.lo(m.a)), e.lo(e.hi(m.a)), Const(0)]
    for d, word in zip(m.d, words, strict=True):
        if d is not None:
            e(MOV, d, word)


@instruction(
    f"{_QUERY}.get_first_ctaid::x.b32.b128 d, a;",
    f"{_QUERY}.get_first_ctaid::y.b32.b128 d, a;",
    f"{_QUERY}.get_first_ctaid::z.b32.b128 d, a;",
    types={"d": "b32", "a": "b128"},
    targets=BLACKWELL,
)
def first_index(e: Emitter, m: Match) -> None:
    """d = one index of the first CTA that the answer names."""
    half, word = {"x": (e.lo, e.lo), "y": (e.lo, e.hi), "z": (e.hi, e.lo)}[m.form.syntax.split("::")[1][0]]
    e(MOV, m.d, word(half(m.a)))
