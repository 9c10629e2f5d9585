"""Words of the PTX manual that authors of wgmma and mbarrier code look up, beside those that the code declares."""

from __future__ import annotations

import inspect
import re
import textwrap

from isa import registry
from isa.assembler import TARGETS

DESCRIPTOR = """the 64-bit description of a matrix in shared memory that wgmma takes as a-desc or b-desc (PTX ISA 9.7.15.5.1.2.2):
    bits  0..13  start address >> 4 (of its low 18 bits; 16-byte aligned)
    bits 16..29  LBO >> 4, the leading-dimension byte offset
    bits 32..45  SBO >> 4, the stride-dimension byte offset
    bits 49..51  base offset: 0 where the swizzle pattern begins at a multiple of 1024, 512 or 256 bytes
                 (128B, 64B, 32B), else (address of the pattern's begin >> 7) & 7
    bits 62..63  swizzle: 0 none, 1 128B, 2 64B, 3 32B
  128B, K-major, tiles of 64 16-bit columns: 0x4000004000000000 | (address & 0x3ffff) >> 4 (SBO 1024); the next 32 bytes
  of K are the start address + 2 in that field
  tcgen05.mma (9.7.16.4.1): the same fields but bits 46..48 are 1, the version, and
    bits 61..63  swizzle: 0 none, 1 128B with 32B atoms (MN-major tf32 only), 2 128B, 4 64B, 6 32B
  so 128B, K-major is 0x4000404000000000 | ...; `warpsmith explain 0x4000404000000040` reads one"""

IDESC = """the 32-bit instruction descriptor of tcgen05.mma: shape and types (PTX ISA 9.7.16.4.2); `warpsmith explain 0x8200010` reads one:
    bits  4..5   type of D: 0 f16, 1 f32, 2 s32
    bits  7..9   type of A; bits 10..12 type of B: f16: 0 f16, 1 bf16; tf32: 2; f8f6f4: 0 e4m3, 1 e5m2, 3 e2m3, 4 e3m2, 5 e2m1;
                 i8: 0 u8, 1 s8; mxf4: 1 (B in bits 10..11)
    bits 13, 14  A, B negated;  bits 15, 16  A, B MN-major;  bit 3  integers saturate
    bits 17..22  N >> 3;  bits 24..28  M >> 4;  bits 30..31  shift (.ws)
    block-scaled kinds: bits 4..5 scale-factor id of B, 23 scale type (1 ue8m0, 0 ue4m3), 27..28 M >> 7, 29..30 scale-factor id of A"""

WORDS = {
    "descriptor": DESCRIPTOR,
    "idesc": IDESC,
    "LBO": """leading-dimension byte offset of a matrix descriptor (bits 16..29, in units of 16 bytes). K-major without swizzle:
        from 16 bytes of K to the next 16; with swizzle unused. MN-major with swizzle: from one swizzle span of M or N to the
        next; without: from 8 rows of K to the next 8 (`warpsmith explain descriptor`)""",
    "SBO": """stride-dimension byte offset of a matrix descriptor (bits 32..45, in units of 16 bytes). K-major: from 8 rows of
        M or N to the next 8 (1024 with 128B swizzle). MN-major with swizzle: from 8 rows of K to the next 8; without: from
        16 bytes of M or N to the next 16 (`warpsmith explain descriptor`)""",
    "scale-d": "predicate operand of wgmma: true D = A*B + D, false D = A*B",
    "enable-input-d": "predicate operand of tcgen05.mma: true D = A*B + D, false D = A*B",
    "scale-input-d": "immediate of tcgen05.mma of kinds f16 and tf32, 0 to 15: D is multiplied by 2^-scale-input-d before A*B is added",
    "disable-output-lane": """four words of tcgen05.mma: bit L % 32 of word L / 32 set means that lane L of D is not written
        (PTX ISA 9.7.16.10.9.1)""",
    "scale-factor-id": """which bytes of a 32-bit cell of Tensor Memory hold the scales of a block-scaled tcgen05.mma: byte id with one scale
        a row (mxf8f6f4), bytes id and id + 1 with two (mxf4: id 0 or 2), all four with four (mxf4nvf4: id 0). Row (column) r has
        its scales in lane r % 32 and column r / 32; bits 29..30 (A) and 4..5 (B) of the instruction descriptor""",
    "imm-scale-a": "immediate of wgmma, 1 or -1: A (imm-scale-b: B) is negated with -1; integers have none",
    "imm-trans-a": """immediate of wgmma with 16-bit types: 0 A in shared memory is K-major, 1 M-major (imm-trans-b: B, 0 K-major,
        1 N-major)""",
    "parity": """parity of a phase of an mbarrier: 0 for its phases 0, 2, 4, ..., 1 for 1, 3, 5, .... test_wait.parity and
        try_wait.parity (and the short mbarrier.wait) are true when the phase of that parity has ended, that is when the
        current phase has the other parity: a consumer starts with 0, a producer that waits for empty slots with 1, and both
        flip whenever their slot wraps (PTX ISA 9.7.13.15)""",
    "phase": """a round of an mbarrier: it ends when pending arrivals and tx-count are both 0; then the next one begins with the
        count of mbarrier.init and the other parity. Waiters must not fall two phases behind: they cannot tell""",
    "expect_tx": """adds bytes to the tx-count of an mbarrier's current phase, which copies (complete_tx) take away again; the
        phase ends when that and the pending count are 0. mbarrier.arrive.expect_tx also arrives. The bytes are those of full
        boxes, whatever lies outside the tensor""",
    "pending count": """arrivals that the current phase of an mbarrier still lacks, 0 to 2^20-1: the count of mbarrier.init less the
        arrivals so far. mbarrier.pending_count reads it from the state that an arrive returned""",
    "tx-count": "bytes that the current phase of an mbarrier still expects, -(2^20-1) to 2^20-1 (`warpsmith explain expect_tx`)",
    "swizzle": """the pattern that spreads the 16-byte chunks of a tile over the banks, on absolute address bits: bits 4..6 ^= bits
        7..9 with 128B, 4..5 ^= 7..8 with 64B, 4 ^= 7 with 32B. So with 128B chunk c of row r lies at c ^ (r % 8). Tensor map
        (swizzle=) and wgmma descriptor (bits 62..63) must agree, on tiles aligned to 1024 bytes""",
}  # fmt: skip
ALIASES = {
    "a-desc": "descriptor", "b-desc": "descriptor", "desc": "descriptor", "matrix-descriptor": "descriptor",
    "imm-scale-b": "imm-scale-a", "imm-trans-b": "imm-trans-a", "pending": "pending-count", "phase-bit": "phase",
    "instruction-descriptor": "idesc", "sfa-id": "scale-factor-id", "sfb-id": "scale-factor-id", "i-desc": "idesc", "leading-dimension-byte-offset": "lbo", "stride-dimension-byte-offset": "sbo", "complete-tx": "expect-tx",
}  # fmt: skip


def plain(word: str) -> str:
    """A word without case, and with hyphens where people also write spaces, dots or underlines."""
    return re.sub(r"[ _.-]+", "-", word.lower())


KNOWN = {plain(word): word for word in WORDS}


def glossary(word: str) -> str:
    """What a word of the manual means; empty for any other."""
    found = KNOWN.get(ALIASES.get(plain(word), plain(word)))
    if found is None:
        return ""
    text = WORDS[found]
    if "\n    bits" not in text:
        text = textwrap.fill(" ".join(inspect.cleandoc(text).split()), 110, subsequent_indent="  ")
    return f"word {found}: {text}\n"


def target(word: str) -> str:
    """A `.target`: how it is read, and how many forms of instructions it has."""
    if word not in TARGETS:
        return ""
    meant = TARGETS[word]
    count = sum(meant in form.targets for form in registry.forms())
    own = "" if meant == word else f"read as {meant}: "
    others = ", ".join(
        f"{name} {sum(name in form.targets for form in registry.forms())}" for name in registry.ALL_TARGETS
    )
    only = (
        " An `a` target has the instructions of its architecture alone (wgmma: sm_90a), an `f` target those of its family (tcgen05: sm_100f)."
        if int(word[3:].rstrip("af")) >= 90
        else ""
    )
    return f"target {word}: {own}{count} forms of instructions ({others}).{only}\n"
