"""Changing tensor maps in memory: `tensormap.replace`, `tensormap.cp_fenceproxy` (PTX ISA 9.7.9.28, 9.7.13.16).

A tensor map is 128 bytes laid out as in `programs.tensormap`, so that replacing a field is a store.
"""

from __future__ import annotations

from isa.ops.address import generic_whole, offset_of, shared_whole
from isa.ops.fence import MEMBAR
from isa.ops.integer import IADD3, add64
from isa.ops.memory import LDS, ST, STG, STS, STS_64, memory_word
from isa.ops.move import MOV
from isa.ops.shift import SHF_L
from isa.ops.special import S2R, SPECIAL
from isa.ops.warp import WARPSYNC
from isa.registry import HOPPER, Const, Emitter, Match, Value, instruction

BYTES = 128
# Field -> byte in the map; fields with one value for each dimension have 4 or 8 bytes each.
FIELDS = {
    "global_address": 0,
    "rank": 8,
    "elemtype": 9,
    "interleave_layout": 10,
    "swizzle_mode": 11,
    "fill_mode": 13,
    "global_dim": 16,
    "box_dim": 36,
    "element_stride": 56,
    "global_stride": 80,
}
# PTX ISA 9.7.9.28, tables of the immediates; what ptxas takes for sm_90a.
LIMITS = {"elemtype": 12, "interleave_layout": 2, "swizzle_mode": 3, "fill_mode": 1}
_TARGETS = (*HOPPER, "sm_100f")
_SETS = {
    "SPACE": (".global", ".shared::cta"),
    "WORD": (".box_dim", ".global_dim", ".element_stride"),
    "BYTE": tuple(f".{name}" for name in LIMITS),
    "SCOPE": (".cta", ".cluster", ".gpu", ".sys"),
}


def _store(e: Emitter, m: Match, at: int, size: int, words: list[Value]) -> None:
    """Store a field of 1, 4 or 8 bytes."""
    word = memory_word(offset_of(e, m.a) + at, size)
    if m["SPACE"].startswith("shared"):
        e(STS_64 if size == 8 else STS, None, m.a.base, words, imm=word)
    else:
        e(STG if m["SPACE"] else ST, None, m.a.base, words, imm=word)


def _ordinal(e: Emitter, m: Match, most: int) -> int:
    if not 0 <= m.ord <= most:
        raise e.error(f"the dimension is {m.ord}, expected 0 to {most}", operand=m.operand("ord"))
    found: int = m.ord
    return found


@instruction("tensormap.replace.tile.global_address{.SPACE}.b1024.b64 [a], value;", sets=_SETS, targets=_TARGETS)
def replace_address(e: Emitter, m: Match) -> None:
    """The address of the tensor."""
    _store(e, m, FIELDS["global_address"], 8, [e.lo(m.value), e.hi(m.value)])


@instruction("tensormap.replace.tile.rank{.SPACE}.b1024.b32 [a], value;", sets=_SETS, targets=_TARGETS)
def replace_rank(e: Emitter, m: Match) -> None:
    """The number of dimensions less one."""
    _store(e, m, FIELDS["rank"], 1, [m.value])


@instruction(
    "tensormap.replace.tile.WORD{.SPACE}.b1024.b32 [a], ord, value;", sets=_SETS, types={"ord": "imm"}, targets=_TARGETS
)
def replace_word(e: Emitter, m: Match) -> None:
    """The box, size or element stride of dimension `ord`, in elements."""
    _store(e, m, FIELDS[m["WORD"]] + 4 * _ordinal(e, m, 4), 4, [m.value])


@instruction(
    "tensormap.replace.tile.global_stride{.SPACE}.b1024.b64 [a], ord, value;",
    sets=_SETS,
    types={"ord": "imm"},
    targets=_TARGETS,
)
def replace_stride(e: Emitter, m: Match) -> None:
    """The bytes between elements of dimension `ord` + 1."""
    at = FIELDS["global_stride"] + 8 * _ordinal(e, m, 3)
    _store(e, m, at, 8, [e.lo(m.value), e.hi(m.value)])


@instruction(
    "tensormap.replace.tile.BYTE{.SPACE}.b1024.b32 [a], value;", sets=_SETS, types={"value": "imm"}, targets=_TARGETS
)
def replace_byte(e: Emitter, m: Match) -> None:
    """The element type, interleaving, swizzle or fill mode, by their numbers in the manual."""
    most = LIMITS[m["BYTE"]]
    if not 0 <= m.value <= most:
        raise e.error(f".{m['BYTE']} is {m.value}, expected 0 to {most}", operand=m.operand("value"))
    _store(e, m, FIELDS[m["BYTE"]], 1, [Const(m.value)])


@instruction(
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.SCOPE.sync.aligned [dst], [src], size;",
    sets=_SETS,
    types={"dst": "global", "src": "shared", "size": "imm"},
    targets=_TARGETS,
)
def copy_and_fence(e: Emitter, m: Match) -> None:
    """The warp copies a map from shared to global memory, a word a lane, and releases it to its readers."""
    if m.size != BYTES:
        raise e.error(f"the size is {m.size}, a tensor map has {BYTES} bytes", operand=m.operand("size"))
    place, wide, source, target, word = e.tmp(), e.tmp("d"), e.tmp(), e.tmp("d"), e.tmp()
    e(WARPSYNC, None, Const(0xFFFFFFFF))
    e(S2R, place, imm=SPECIAL.index("%laneid"))
    e(SHF_L, place, place, Const(2))
    e(IADD3, source, shared_whole(e, m.src), place)
    e(LDS, [word], source, imm=memory_word(0, 4))
    e(MOV, e.lo(wide), place)
    e(MOV, e.hi(wide), Const(0))
    add64(e, target, generic_whole(e, m.dst), wide)
    e(STG, None, target, [word], imm=memory_word(0, 4))
    e(MEMBAR["ALL", {"cta": "CTA", "sys": "SYS"}.get(m["SCOPE"], "GPU")], None)
