"""Matrix products on Tensor Memory: `tcgen05.mma` and `tcgen05.commit` (PTX ISA 9.7.16.10, 9.7.16.12)."""

from __future__ import annotations

from isa.descriptors import (
    KINDS,
    WORD_A_TENSOR,
    WORD_BLOCKS,
    WORD_COLLECTOR,
    WORD_MASK,
    WORD_PAIR,
    WORD_SCALE_D,
    WORD_WS,
)
from isa.errors import AssemblyError, UnsupportedError
from isa.micro import unit
from isa.ops.address import offset_of, shared_whole
from isa.registry import Const, Emitter, Match, Value, instruction

FAMILY = ("sm_100f",)  # tcgen05 of the sm_100 family
EACH_ARCH = ("sm_100a", "sm_103a")  # what arch-specific targets alone have
ARCH = ("sm_100a",)  # what only one of them has: integers

_DOC = "[D, instruction descriptor, 4 words (of a pair of CTAs 8) of disable-output-lane or scales of A and B]; imm: tcgen05.mma word"
UTCMMA = unit(
    "UTCMMA", "UUpL->", "tcgen05_mma", "tcgen05_mma", f"descriptors of A and B, enable-input-d, {_DOC}", "barrier"
)
UTCMMA_TS = unit(
    "UTCMMA.TS", "uUpL->", "tcgen05_mma", "tcgen05_mma", f"A, descriptor of B, enable-input-d, {_DOC}", "barrier"
)
EVERY = 1 << 32
UTCBAR = unit("UTCBAR", "u->", "tcgen05_commit", "tcgen05_commit", "mbarrier; imm: byte offset", "barrier")
UTCBAR_MULTICAST = unit(
    "UTCBAR.MULTICAST",
    "uu->",
    "tcgen05_commit",
    "tcgen05_commit",
    "mbarrier, mask of CTAs; imm: byte offset, bit 32",
    "barrier",
)

COLLECTOR = ("discard", "lastuse", "fill", "use")
_SETS = {
    "FLOAT": (".kind::f16", ".kind::tf32"),
    "COLLECTOR": tuple(f".collector::a::{op}" for op in COLLECTOR),
    "WSKIND": (".kind::f16", ".kind::tf32", ".kind::f8f6f4"),
    "BUFFER": tuple(f".collector::b{n}::{op}" for n in range(4) for op in COLLECTOR),
}
_TYPES = {
    "d_tmem": "tmem", "a_tmem": "tmem", "scale_a_tmem": "tmem", "scale_b_tmem": "tmem", "a_desc": "desc", "b_desc": "desc",
    "idesc": "u32", "enable_input_d": "pred", "scale_input_d": "imm", "disable_output_lane": "vec:u32:4", "mbar": "shared",
    "zero_column_mask_desc": "b64", "cta_mask": "b16",
}  # fmt: skip
_HINT = "a collector buffer saves reading an operand again, which the model does not take time for"
_IGNORED = {word: _HINT for name in ("COLLECTOR", "BUFFER") for word in _SETS[name]}
_PAIR_TYPES = _TYPES | {"disable_output_lane": "vec:u32:8"}
_SS, _TS = "[d-tmem], a-desc, b-desc, idesc", "[d-tmem], [a-tmem], b-desc, idesc"


def _forms(kinds: str, rest: str, group: int = 1) -> list[str]:
    """A in shared or Tensor Memory, with and without disable-output-lane."""
    opcode = f"tcgen05.mma.cta_group::{group}.{kinds}{{.COLLECTOR}}"
    return [
        f"{opcode} {ab}{mask}, enable-input-d{rest};" for ab in (_SS, _TS) for mask in ("", ", {disable-output-lane}")
    ]


def _scaled(kinds: str, size: str) -> list[str]:
    opcode = f"tcgen05.mma.{{cta_group::1,cta_group::2}}.{kinds}.block_scale{size}{{.COLLECTOR}}"
    return [f"{opcode} {ab}, [scale-a-tmem], [scale-b-tmem], enable-input-d;" for ab in (_SS, _TS)]


def _stationary(kinds: str) -> list[str]:
    opcode = f"tcgen05.mma.ws.cta_group::1.{kinds}{{.BUFFER}}"
    return [f"{opcode} {ab}, enable-input-d{{, zero-column-mask-desc}};" for ab in (_SS, _TS)]


def mma_word(kind: str, *, a_tensor: bool = False, ws: bool = False, mask: bool = False, pair: bool = False, blocks: int = 1, scale_d: int = 0,
             collector: str = "discard") -> int:  # fmt: skip
    """The immediate of UTCMMA: the kind and what the instruction descriptor does not say (isa.descriptors)."""
    flags = (a_tensor and WORD_A_TENSOR) | (ws and WORD_WS) | (mask and WORD_MASK) | (pair and WORD_PAIR)
    fields = (blocks - 1) << WORD_BLOCKS | scale_d << WORD_SCALE_D | COLLECTOR.index(collector) << WORD_COLLECTOR
    return KINDS.index(kind) | flags | fields


def _blocks(m: Match, kind: str) -> int:
    """Blocks of K with a scale each, by the qualifiers or the kind's only choice."""
    if kind == "mxf8f6f4":
        return 1
    return 4 if m.has("scale_vec::4X") or m.has("block16") else 2


def _emit(e: Emitter, m: Match, more: list[Value], ws: bool = False, blocks: int = 1) -> None:
    kind = next(word for word in m.mods if word.startswith("kind::"))[6:]
    hints = [word.rsplit("::", 1)[1] for word in m.mods if word.startswith("collector::")]
    scale = m.scale_input_d if m.operand("scale_input_d") is not None else None
    if scale is not None and not 0 <= scale <= 15:
        raise e.error(f"scale-input-d is {scale}, expected 0 to 15", operand=m.operand("scale_input_d"))
    tensor = m.operand("a_tmem") is not None
    word = mma_word(
        kind, a_tensor=tensor, ws=ws, mask=m.operand("disable_output_lane") is not None, pair=m.has("cta_group::2"), blocks=blocks, scale_d=scale or 0,
        collector=hints[0] if hints else "discard",
    )  # fmt: skip
    values = [shared_whole(e, m.d_tmem), m.idesc, *more]
    if tensor:
        e(UTCMMA_TS, None, shared_whole(e, m.a_tmem), m.b_desc, m.enable_input_d, values, imm=word)
    else:
        e(UTCMMA, None, m.a_desc, m.b_desc, m.enable_input_d, values, imm=word)


@instruction(*_forms("FLOAT", "{, scale-input-d}"), sets=_SETS, types=_TYPES, targets=FAMILY, ignored=_IGNORED)
@instruction(*_forms("kind::f8f6f4", ""), sets=_SETS, types=_TYPES, targets=FAMILY, ignored=_IGNORED)
@instruction(*_forms("kind::i8", ""), sets=_SETS, types=_TYPES, targets=ARCH, ignored=_IGNORED)
@instruction(*_forms("FLOAT", "{, scale-input-d}", 2), sets=_SETS, types=_PAIR_TYPES, targets=FAMILY, ignored=_IGNORED)
@instruction(*_forms("kind::f8f6f4", "", 2), sets=_SETS, types=_PAIR_TYPES, targets=FAMILY, ignored=_IGNORED)
@instruction(*_forms("kind::i8", "", 2), sets=_SETS, types=_PAIR_TYPES, targets=ARCH, ignored=_IGNORED)
def mma(e: Emitter, m: Match) -> None:
    """D = A * B, plus D * 2^-scale-input-d where enable-input-d is true, asynchronously, in order (PTX ISA 9.7.16.10.9.1).

    D lies in Tensor Memory, A in shared memory (a descriptor) or in Tensor Memory, B in shared memory; shape and types are in the
    instruction descriptor (`warpsmith explain idesc`).  One thread issues it, and every active one its own.  Lanes whose bit of
    disable-output-lane is set are not written.  A commit says when it is done.  With cta_group::2 the rows of A and D are those of both CTAs of
    a pair, the even one first, and each has half of B's columns in its shared memory.
    """
    _emit(e, m, list(m.disable_output_lane) if m.operand("disable_output_lane") is not None else [])


@instruction(
    *_scaled("kind::mxf8f6f4", "{.block32}"),
    *_scaled("kind::mxf4", "{.block32}"),
    *_scaled("kind::mxf4nvf4", ".{block16,block32}"),
    sets=_SETS, types=_TYPES, targets=FAMILY, ignored=_IGNORED,
)  # fmt: skip
@instruction(
    *_scaled("kind::mxf8f6f4", ".scale_vec::1X"),
    *_scaled("kind::mxf4", ".scale_vec::2X"),
    *_scaled("kind::mxf4nvf4", ".{scale_vec::2X,scale_vec::4X}"),
    sets=_SETS, types=_TYPES, targets=EACH_ARCH, ignored=_IGNORED,
)  # fmt: skip
def mma_scaled(e: Emitter, m: Match) -> None:
    """D = the sum over blocks of 32 or 16 of K of A * B * scale of A's row * scale of B's column (+ D) (PTX ISA 9.7.16.10.7).

    The scales lie in Tensor Memory: row (column) r in lane r % 32 and column r / 32, a byte for each block, the descriptor's
    scale-factor id says which.
    """
    kind = next(word for word in m.mods if word.startswith("kind::"))[6:]
    _emit(e, m, [shared_whole(e, m.scale_a_tmem), shared_whole(e, m.scale_b_tmem)], blocks=_blocks(m, kind))


@instruction(*_stationary("WSKIND"), sets=_SETS, types=_TYPES, targets=FAMILY, ignored=_IGNORED)
@instruction(*_stationary("kind::i8"), sets=_SETS, types=_TYPES, targets=ARCH, ignored=_IGNORED)
def mma_ws(e: Emitter, m: Match) -> None:
    """The product of M = 32, 64 or 128 rows in 128, 64 or 32 columns a lane: weight stationary (PTX ISA 9.7.16.10.9.3).

    With M = 64 the right half of D's columns lies in lanes 64 to 127, with M = 32 each quarter has 32 lanes.  A zero-column mask is not
    implemented, but for the constant 0, which is none.
    """
    mask = m.zero_column_mask_desc
    if mask is not None and not (isinstance(mask, Const) and mask.bits == 0):
        error = e.error(
            "zero-column masks are not implemented", "leave the mask out, and zero the columns of B in shared memory"
        )
        assert isinstance(error, AssemblyError)
        raise UnsupportedError(error.diagnostics)
    _emit(e, m, [], ws=True)


_COMMIT = "tcgen05.commit.{cta_group::1,cta_group::2}.mbarrier::arrive::one{.shared::cluster}"


@instruction(f"{_COMMIT}.b64 [mbar];", types=_TYPES, targets=FAMILY)
@instruction(f"{_COMMIT}.multicast::cluster.b64 [mbar], cta-mask;", types=_TYPES, targets=FAMILY)
def commit(e: Emitter, m: Match) -> None:
    """One arrival on an mbarrier when all earlier tcgen05.mma, cp and shift of the thread are complete (PTX ISA 9.7.16.12.1).

    With a mask the mbarriers at the same place of all CTAs of the cluster that it names get one each.
    """
    offset = offset_of(e, m.mbar)
    if not m.has(".multicast::cluster"):
        e(UTCBAR, None, m.mbar.base, imm=offset & 0xFFFFFFFF)
        return
    if isinstance(m.cta_mask, Const):
        raise e.error("the mask of CTAs is a 16-bit register", operand=m.operand("cta_mask"))
    e(UTCBAR_MULTICAST, None, m.mbar.base, m.cta_mask, imm=offset & 0xFFFFFFFF | EVERY)
