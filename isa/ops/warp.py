"""Warp-level exchange: `shfl.sync`, `vote.sync`, `match.sync`, `redux.sync`, `elect.sync`, `bar.warp.sync`, `activemask`."""

from __future__ import annotations

from isa.micro import unit
from isa.registry import Emitter, Match, instruction

SHUFFLES = {"up": 0, "down": 1, "bfly": 2, "idx": 3}
VOTES = {"all": 0, "any": 1, "uni": 2}
BALLOT = 3
REDUCTIONS = ("add", "min", "max", "and", "or", "xor")
MATCH_ALL, MATCH_WIDE = 1, 2

SHFL = unit("SHFL", "uuuL->up", "shfl", "shfl", "value, lane, clamp, [mask]; imm: SHUFFLES", "collective")
VOTE = unit("VOTE", "pL->p", "vote", "vote", "predicate, [mask]; imm: VOTES", "collective")
VOTE_BALLOT = unit("VOTE.BALLOT", "pL->u", "vote", "vote", "predicate, [mask]; imm: BALLOT", "collective")
ACTIVEMASK = unit("VOTE.ACTIVE", "->u", "vote", "activemask", "the executing lanes")
REDUX = unit("REDUX", "uL->u", "redux", "redux", "value, [mask]; imm: REDUCTIONS, bit 8 signed", "collective")
REDUX_F32 = unit(
    "CREDUX.F32", "uL->u", "redux_f32", "redux_f32", "f32, [mask]; imm: REDUCTIONS, bit 9 .abs, 10 .NaN", "collective"
)
_MATCH = "value, [mask]; imm bit 0 all lanes must agree, 1 of 64 bits"
MATCH_OPS = {
    ("any", "b32"): unit("MATCH.ANY", "uL->u", "match", "match", _MATCH, "collective"),
    ("any", "b64"): unit("MATCH.ANY.U64", "UL->u", "match", "match", _MATCH, "collective"),
    ("all", "b32"): unit("MATCH.ALL", "uL->up", "match", "match", _MATCH, "collective"),
    ("all", "b64"): unit("MATCH.ALL.U64", "UL->up", "match", "match", _MATCH, "collective"),
}
ELECT = unit("ELECT", "u->up", "elect", "elect", "mask -> leader's lane, whether it is me", "collective")
WARPSYNC = unit("WARPSYNC", "u->", "warpsync", "warpsync", "the lanes of the mask meet", "barrier", "collective")

_MASK = {"membermask": "u32"}


@instruction(
    "shfl.sync.MODE.b32 d|p, a, b, c, membermask;",
    sets={"MODE": tuple(f".{mode}" for mode in SHUFFLES)},
    types=_MASK | {"b": "u32", "c": "u32"},
)
def shfl(e: Emitter, m: Match) -> None:
    """d = `a` of another lane of the warp, p = whether that lane is in range (PTX ISA 9.7.9.6).

    `c`: bits 0..4 clamp, bits 8..12 segment mask.
    """
    if m.d is None:
        raise e.error("shfl needs a destination register; only the predicate may be left out")
    e(SHFL, (m.d, m.p), m.a, m.b, m.c, [m.membermask], imm=SHUFFLES[m["MODE"]])


@instruction(
    "vote.sync.MODE.pred p, a, membermask;",
    sets={"MODE": tuple(f".{mode}" for mode in VOTES)},
    types=_MASK | {"a": "pred"},
)
def vote(e: Emitter, m: Match) -> None:
    """p = whether `a` holds in all, any, or equally in all lanes of the mask (PTX ISA 9.7.13.9)."""
    if m.p is None:
        raise e.error("vote needs a destination register")
    e(VOTE, m.p, m.a, [m.membermask], imm=VOTES[m["MODE"]])


@instruction("vote.sync.ballot.b32 d, a, membermask;", types=_MASK | {"a": "pred"})
def vote_ballot(e: Emitter, m: Match) -> None:
    """d = the lanes of the mask in which `a` holds (PTX ISA 9.7.13.9)."""
    if m.d is None:
        raise e.error("vote needs a destination register")
    e(VOTE_BALLOT, m.d, m.a, [m.membermask], imm=BALLOT)


@instruction(
    "redux.sync.OP.TYPE d, a, membermask;",
    sets={"OP": (".add", ".min", ".max"), "TYPE": (".u32", ".s32")},
    types=_MASK | {"d": "TYPE", "a": "TYPE"},
)
@instruction("redux.sync.OP.b32 d, a, membermask;", sets={"OP": (".and", ".or", ".xor")}, types=_MASK)
def redux(e: Emitter, m: Match) -> None:
    """d = `a` of all lanes of the mask, combined (PTX ISA 9.7.13.12)."""
    if m.d is None:
        raise e.error("redux needs a destination register")
    e(REDUX, m.d, m.a, [m.membermask], imm=REDUCTIONS.index(m["OP"]) | m.has(".s32") << 8)


@instruction(
    "redux.sync.OP{.abs}{.NaN}.f32 d, a, membermask;",
    sets={"OP": (".min", ".max")},
    types=_MASK | {"d": "f32", "a": "f32"},
    targets=("sm_100f",),
)
def redux_f32(e: Emitter, m: Match) -> None:
    """d = the least or largest `a`, or |a|, of the lanes of the mask (PTX ISA 9.7.13.12); NaN as in min and max."""
    if m.d is None:
        raise e.error("redux needs a destination register")
    e(REDUX_F32, m.d, m.a, [m.membermask], imm=REDUCTIONS.index(m["OP"]) | m.has(".abs") << 9 | m.has(".NaN") << 10)


_VALUE: dict[str, tuple[str, ...]] = {"TYPE": (".b32", ".b64")}


@instruction("match.any.sync.TYPE d, a, membermask;", sets=_VALUE, types=_MASK | {"d": "b32", "a": "TYPE"})
def match_any(e: Emitter, m: Match) -> None:
    """d = the lanes of the mask whose `a` is this lane's (PTX ISA 9.7.13.10)."""
    if m.d is None:
        raise e.error("match needs a destination register")
    e(MATCH_OPS["any", m["TYPE"]], m.d, m.a, [m.membermask], imm=(m["TYPE"] == "b64") * MATCH_WIDE)


@instruction("match.all.sync.TYPE d|p, a, membermask;", sets=_VALUE, types=_MASK | {"d": "b32", "a": "TYPE"})
def match_all(e: Emitter, m: Match) -> None:
    """d = the mask and p = true if all lanes of the mask have the same `a`, else 0 and false (PTX ISA 9.7.13.10)."""
    imm = MATCH_ALL | (m["TYPE"] == "b64") * MATCH_WIDE
    e(MATCH_OPS["all", m["TYPE"]], (m.d, m.p), m.a, [m.membermask], imm=imm)


@instruction("activemask.b32 d;")
def activemask(e: Emitter, m: Match) -> None:
    """d = the lanes that execute this instruction together (PTX ISA 9.7.13.11)."""
    e(ACTIVEMASK, m.d)


@instruction("elect.sync d|p, membermask;", types=_MASK | {"d": "u32"}, targets=("sm_90", "sm_90a", "sm_100a"))
def elect(e: Emitter, m: Match) -> None:
    """p = true in one lane of the mask, the lowest as on silicon; d = that lane's id (PTX ISA 9.7.13.14)."""
    if m.p is None:
        raise e.error("elect.sync needs a predicate", "write elect.sync _|p, membermask;")
    e(ELECT, (m.d, m.p), m.membermask)


@instruction("bar.warp.sync membermask;", types=_MASK)
def bar_warp_sync(e: Emitter, m: Match) -> None:
    """The lanes of the mask wait for each other; orders memory among them (PTX ISA 9.7.13.2)."""
    e(WARPSYNC, None, m.membermask)
