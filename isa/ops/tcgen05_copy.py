"""Copies from shared to Tensor Memory and shifts inside it: `tcgen05.cp`, `tcgen05.shift` (PTX ISA 9.7.16.9)."""

from __future__ import annotations

from isa.micro import unit
from isa.ops.address import offset_of
from isa.ops.tcgen05 import FAMILY, PAIR
from isa.registry import Emitter, Match, instruction

# Shape and multicast, in the order of their numbers in a copy word.
SHAPES = ("128x256b", "4x256b", "128x128b", "64x128b.warpx2::02_13", "64x128b.warpx2::01_23", "32x128b.warpx4")
FORMATS = ("", "b8x16.b4x16_p64", "b8x16.b6x16_p32")
ARCHITECTURES = ("sm_100a", "sm_103a")  # ptxas 13.0: no family has shift

UTCCP = unit("UTCCP", "uU->", "tcgen05_cp", "tcgen05_cp", "address, matrix descriptor; imm: tcgen05.cp word", "barrier")
_SHIFT = "address; imm: byte offset, bit 32 a pair of CTAs"
UTCSHIFT = unit("UTCSHIFT", "u->", "tcgen05_shift", "tcgen05_shift", _SHIFT, "barrier")
_TYPES = {"taddr": "tmem", "s_desc": "desc"}


PAIR_COPY = 1 << 37  # of a tcgen05.cp word: cta_group::2


def copy_word(shape: str, format: str = "", offset: int = 0, pair: bool = False) -> int:
    """The immediate of UTCCP: bits 0..31 signed offset of the address, 32..34 shape and multicast, 35..36 source format, 37 a pair."""
    word = offset & 0xFFFFFFFF | SHAPES.index(shape) << 32 | FORMATS.index(format) << 35
    return word | (PAIR_COPY if pair else 0)


def _spellings() -> list[str]:
    formats = ("", *(f"{{.{word}}}" for word in FORMATS[1:]))
    groups = ".{cta_group::1,cta_group::2}"
    return [f"tcgen05.cp{groups}.{shape}{word} [taddr], s-desc;" for shape in SHAPES for word in formats[1:]]


@instruction(*_spellings(), types=_TYPES, targets=FAMILY)
def copy(e: Emitter, m: Match) -> None:
    """Copy a matrix from shared memory to Tensor Memory, asynchronously, in the order of products (PTX ISA 9.7.16.9.2).

    With cta_group::2 each CTA of the pair copies, the same offsets in its own memories.  With .b8x16 elements of 4 or 6 bits, 16 from the start of each 16 bytes, become bytes.
    """
    shape = next(shape for shape in SHAPES if set(shape.split(".")) <= set(m.mods))
    format = next((f for f in FORMATS[1:] if set(f.split(".")) <= set(m.mods)), "")
    e(UTCCP, None, m.taddr.base, m.s_desc, imm=copy_word(shape, format, offset_of(e, m.taddr), m.has("cta_group::2")))


@instruction("tcgen05.shift.{cta_group::1,cta_group::2}.down [taddr];", types=_TYPES, targets=ARCHITECTURES)
def shift(e: Emitter, m: Match) -> None:
    """Move rows of 32 bytes down by one lane, asynchronously, in the order of products (PTX ISA 9.7.16.9.3).

    With cta_group::2 in both CTAs of the pair.
    """
    e(UTCSHIFT, None, m.taddr.base, imm=offset_of(e, m.taddr) & 0xFFFFFFFF | (PAIR if m.has("cta_group::2") else 0))
