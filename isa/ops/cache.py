"""Caches: `ldu`, `prefetch`, `discard`, `applypriority`, `createpolicy` (PTX ISA 9.7.9.10 to 9.7.9.18).

Hints change no value, and the model's caches take none; a prefetch takes its turn in the memory pipe.
"""

from __future__ import annotations

from isa.micro import unit
from isa.ops.address import generic_whole, offset_of
from isa.ops.memory import LD, LDG, load
from isa.ops.move import MOV, move64
from isa.registry import Const, Emitter, Match, instruction

CCTL = unit("CCTL.PF2", "U->", "stg", "nop", "address; imm: byte offset")

_TYPES = tuple(f".{t}{w}" for w in (8, 16, 32, 64) for t in "bus") + (".f32", ".f64", ".b128")


@instruction("ldu{.global}{.VEC}.TYPE d, [a];", sets={"TYPE": _TYPES, "VEC": (".v2", ".v4")})
def ldu(e: Emitter, m: Match) -> None:
    """d = read-only memory at an address that is the same in all lanes: as ld, which the hardware makes of it too."""
    load(e, m, LDG if m.has(".global") else LD)


_LEVELS: dict[str, tuple[str, ...]] = {"LEVEL": (".L1", ".L2"), "EVICT": (".L2::evict_last", ".L2::evict_normal")}


@instruction("prefetch.global.EVICT [a];", sets=_LEVELS)
@instruction("prefetch{.global}.LEVEL [a];", "prefetchu.L1 [a];", sets=_LEVELS)
def prefetch(e: Emitter, m: Match) -> None:
    """Bring the line of an address closer: a hint."""
    e(CCTL, None, m.a.base, imm=offset_of(e, m.a) & 0xFFFFFFFF)


@instruction("prefetch.local.LEVEL [a];", sets=_LEVELS)
def prefetch_local(e: Emitter, m: Match) -> None:
    """Local memory is always there in the model."""


@instruction(
    "discard{.global}.L2 [a], size;", "applypriority{.global}.L2::evict_normal [a], size;", types={"size": "imm"}
)
def discard(e: Emitter, m: Match) -> None:
    """Drop a line of 128 bytes without writing it back, or let it be evicted: nothing that the model's L2 does."""
    if m.size != 128:
        raise e.error(f"the size is {m.size}, a line has 128 bytes", operand=m.operand("size"))
    generic_whole(e, m.a)


# What CUTLASS passes as cache hints, which is what createpolicy makes of a fraction of one (cute/arch/copy_sm90_tma.hpp).
POLICY = {
    "L2::evict_last": 0x14F0000000000000,
    "L2::evict_normal": 0x16F0000000000000,
    "L2::evict_first": 0x12F0000000000000,
    "L2::evict_unchanged": 0x10F0000000000000,
}
_POLICY = {
    "FIRST": tuple(f".{name}" for name in POLICY),
    "RANGED": (".L2::evict_last", ".L2::evict_normal", ".L2::evict_first"),
    "SECOND": (".L2::evict_first", ".L2::evict_unchanged"),
}


@instruction(
    "createpolicy.fractional.FIRST{.SECOND}.b64 d{, fraction};", sets=_POLICY, types={"d": "b64", "fraction": "f32"}
)
@instruction(
    "createpolicy.range{.global}.FIRST{.SECOND}.b64 d, [a], primary, total;",
    sets=_POLICY,
    types={"d": "b64", "a": "addr", "primary": "u32", "total": "u32"},
)
def create_policy(e: Emitter, m: Match) -> None:
    """d = a cache policy.  Its bits mean nothing here: they are those of the whole fraction."""
    move64(e, m.d, Const(POLICY[m["FIRST"]], "d"))


@instruction("createpolicy.cvt.L2.b64 d, a;", types={"d": "b64", "a": "b64"})
def convert_policy(e: Emitter, m: Match) -> None:
    """d = the cache policy of an access property, bit for bit here."""
    for half in (e.lo, e.hi):
        e(MOV, half(m.d), half(m.a))
