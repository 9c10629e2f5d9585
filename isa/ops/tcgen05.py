"""Tensor Memory: allocation, loads, stores, their waits and fences (PTX ISA 9.7.16.7, 9.7.16.8, 9.7.16.11)."""

from __future__ import annotations

from isa.micro import unit
from isa.ops.address import offset_of, shared_base
from isa.registry import Const, Emitter, Match, Value, VReg, instruction

FAMILY = ("sm_100f",)
LEAST_COLUMNS, MOST_COLUMNS = 32, 512  # of an allocation (9.7.16.7)
PAIR = 1 << 32  # of the immediates of alloc, dealloc, shift: cta_group::2
MOST_REGISTERS = 128  # of a thread that a load or a store moves
# Shape -> its number in a Tensor Memory word, registers of a thread per repetition.
SHAPES = {"32x32b": (0, 1), "16x64b": (1, 1), "16x128b": (2, 2), "16x256b": (3, 4), "16x32bx2": (4, 1)}
NUMBERS = tuple(f".x{1 << k}" for k in range(8))
PACKED = 1 << 35
RED, RED_MAX, RED_ABS, RED_NAN, RED_SIGNED, RED_FLOAT = (1 << k for k in range(56, 62))

ALLOC = unit(
    "UTCATOMSWS.FIND_AND_SET", "uu->", "tcgen05_alloc", "tmem_alloc",
    "shared address of the result, columns; imm: byte offset, bit 32 a pair of CTAs", "barrier", "collective",
)  # fmt: skip
DEALLOC = unit(
    "UTCATOMSWS.AND",
    "uu->",
    "tcgen05_dealloc",
    "tmem_dealloc",
    "Tensor Memory address, columns; imm: bit 32 a pair of CTAs",
    "barrier",
    "collective",
)
RELINQUISH = unit(
    "UVIRTCOUNT.DEALLOC",
    "->",
    "tcgen05_dealloc",
    "tmem_relinquish",
    "the CTA allocates no more",
    "barrier",
    "collective",
)
_WORD = "imm: Tensor Memory word"
LDTM = unit("LDTM", "u->L", "tcgen05_ld", "tmem_load", f"address; {_WORD}", "loads", "collective")
LDTM_RED = unit(
    "LDTM.RED", "u->uL", "tcgen05_ld", "tmem_load", f"address; also each lane's least or greatest; {_WORD}",
    "loads", "collective",
)  # fmt: skip
STTM = unit("STTM", "uL->", "tcgen05_st", "tmem_store", f"address; {_WORD}", "stores", "collective")
WAIT = unit(
    "FENCE.VIEW.ASYNC.T",
    "->",
    "tcgen05_wait",
    "tmem_wait",
    "imm 0: the warp's loads, 1: its stores",
    "barrier",
    "collective",
)

_SETS = {"SHAPE": tuple(f".{shape}" for shape in SHAPES if shape != "16x32bx2"), "NUM": NUMBERS}
_RED_SETS = {"NUM": NUMBERS[1:], "MM": (".min", ".max"), "INT": (".u32", ".s32")}
_TYPES = {"d": "vec:b32", "source": "vec:b32", "taddr": "tmem", "split": "imm", "redval": "b32"}


# ---- allocation ----------------------------------------------------------------------------------


def _pair(m: Match) -> int:
    return PAIR if m.has("cta_group::2") else 0


def _columns(e: Emitter, m: Match) -> Value:
    """The number of columns; a register is looked at when it runs."""
    columns: Value = m.ncols
    if isinstance(columns, Const):
        n = columns.bits
        if not LEAST_COLUMNS <= n <= MOST_COLUMNS or n & n - 1:
            raise e.error(
                f"{n} columns: expected a power of two from {LEAST_COLUMNS} to {MOST_COLUMNS}",
                operand=m.operand("ncols"),
            )
    return columns


@instruction(
    "tcgen05.alloc.{cta_group::1,cta_group::2}.sync.aligned.shared::cta.b32 [a], ncols;",
    "tcgen05.alloc.{cta_group::1,cta_group::2}.sync.aligned.b32 [a], ncols;",
    types={"ncols": "u32"},
    targets=FAMILY,
)
def alloc(e: Emitter, m: Match) -> None:
    """Allocate `ncols` columns of Tensor Memory to the CTA and write their address to shared memory (PTX ISA 9.7.16.7.1).

    The warp waits until so many are free, aligned to their number.  With cta_group::2 a warp of each CTA of the pair executes it, and both
    get the same columns.
    """
    base = shared_base(e, m.a, generic=not m.has(".shared::cta"))
    e(ALLOC, None, base, _columns(e, m), imm=offset_of(e, m.a) & 0xFFFFFFFF | _pair(m))


@instruction(
    "tcgen05.dealloc.{cta_group::1,cta_group::2}.sync.aligned.b32 taddr, ncols;", types={"taddr": "u32"}, targets=FAMILY
)
def dealloc(e: Emitter, m: Match) -> None:
    """Free the columns of one tcgen05.alloc (PTX ISA 9.7.16.7.1); with cta_group::2 each CTA of the pair frees its own."""
    if isinstance(m.ncols, Const) and m.ncols.bits % LEAST_COLUMNS:
        raise e.error(f"{m.ncols.bits} columns: expected a multiple of {LEAST_COLUMNS}", operand=m.operand("ncols"))
    e(DEALLOC, None, m.taddr, m.ncols, imm=_pair(m))


@instruction("tcgen05.relinquish_alloc_permit.{cta_group::1,cta_group::2}.sync.aligned;", targets=FAMILY)
def relinquish(e: Emitter, m: Match) -> None:
    """The CTA will not allocate Tensor Memory any more (PTX ISA 9.7.16.7.1)."""
    e(RELINQUISH, None)


# ---- loads and stores ----------------------------------------------------------------------------


def tmem_word(shape: str, offset: int = 0, split: int = 0, *, packed: bool = False, reduction: int = 0) -> int:
    """The immediate of LDTM and STTM: bits 0..31 signed offset of the address, 32..34 shape, 35 two halves a register,
    36..55 columns to the second half of .16x32bx2, 56.. reduction.
    """
    return (
        offset & 0xFFFFFFFF | SHAPES[shape][0] << 32 | (PACKED if packed else 0) | (split & 0xFFFFF) << 36 | reduction
    )


def _registers(e: Emitter, m: Match, name: str, shape: str) -> list[Value]:
    """The data of a load or a store, as many registers as shape and number say."""
    values: list[Value] = getattr(m, name)
    count = int(m["NUM"][1:]) * SHAPES[shape][1]
    if count > MOST_REGISTERS:
        most = MOST_REGISTERS // SHAPES[shape][1]
        raise e.error(f".{shape} goes up to .x{most}, .{m['NUM']} would be {count} registers")
    if len(values) != count:
        raise e.error(f".{shape}.{m['NUM']} moves {count} registers, found {len(values)}", operand=m.operand(name))
    if any(v is None for v in values):
        raise e.error("'_' cannot stand for a register of Tensor Memory's loads", operand=m.operand(name))
    return values


def _split(e: Emitter, m: Match) -> int:
    """The columns between the halves of .16x32bx2; beyond Tensor Memory any number is as wrong as another."""
    if m.operand("split") is None:
        return 0
    return int(max(min(m.split, 1 << 18), -(1 << 18)))


@instruction(
    "tcgen05.ld.sync{.aligned}.SHAPE.NUM{.pack::16b}.b32 d, [taddr];", sets=_SETS, types=_TYPES, targets=FAMILY
)
@instruction(
    "tcgen05.ld.sync{.aligned}.16x32bx2.NUM{.pack::16b}.b32 d, [taddr], split;",
    sets=_SETS,
    types=_TYPES,
    targets=FAMILY,
)
def load(e: Emitter, m: Match) -> None:
    """Load from Tensor Memory, asynchronously: warp w of a CTA from lanes 32 (w % 4) to +31 (PTX ISA 9.7.16.8.1)."""
    shape = m["SHAPE"] or "16x32bx2"
    values = _registers(e, m, "d", shape)
    word = tmem_word(shape, offset_of(e, m.taddr), _split(e, m), packed=m.has(".pack::16b"))
    e(LDTM, values, m.taddr.base, imm=word)


_RED = "tcgen05.ld.red.sync.aligned"


@instruction(
    f"{_RED}.32x32b.NUM.MM.INT d, redval, [taddr];",
    f"{_RED}.32x32b.NUM.MM{{.abs}}{{.NaN}}.f32 d, redval, [taddr];",
    f"{_RED}.16x32bx2.NUM.MM.INT d, redval, [taddr], split;",
    f"{_RED}.16x32bx2.NUM.MM{{.abs}}{{.NaN}}.f32 d, redval, [taddr], split;",
    sets=_RED_SETS,
    types=_TYPES,
    targets=("sm_103f",),
)
def load_reduce(e: Emitter, m: Match) -> None:
    """The same, and the least or greatest of each lane's registers in `redval` (PTX ISA 9.7.16.8.1)."""
    shape = "16x32bx2" if m.has(".16x32bx2") else "32x32b"
    if not isinstance(m.redval, VReg):
        raise e.error("the result of the reduction goes to a register", operand=m.operand("redval"))
    flags = RED | (RED_MAX if m["MM"] == "max" else 0) | (RED_ABS if m.has(".abs") else 0)
    flags |= (RED_NAN if m.has(".NaN") else 0) | {"u32": 0, "s32": RED_SIGNED, "": RED_FLOAT}[m["INT"]]
    word = tmem_word(shape, offset_of(e, m.taddr), _split(e, m), reduction=flags)
    e(LDTM_RED, (m.redval, _registers(e, m, "d", shape)), m.taddr.base, imm=word)


@instruction(
    "tcgen05.st.sync.aligned.SHAPE.NUM{.unpack::16b}.b32 [taddr], source;", sets=_SETS, types=_TYPES, targets=FAMILY
)
@instruction(
    "tcgen05.st.sync.aligned.16x32bx2.NUM{.unpack::16b}.b32 [taddr], split, source;",
    sets=_SETS, types=_TYPES, targets=FAMILY,
)  # fmt: skip
def store(e: Emitter, m: Match) -> None:
    """Store to Tensor Memory, asynchronously (PTX ISA 9.7.16.8.2)."""
    shape = m["SHAPE"] or "16x32bx2"
    values = _registers(e, m, "source", shape)
    if all(isinstance(v, Const) for v in values):
        raise e.error("at least one register is stored", operand=m.operand("source"))
    word = tmem_word(shape, offset_of(e, m.taddr), _split(e, m), packed=m.has(".unpack::16b"))
    e(STTM, None, m.taddr.base, values, imm=word)


@instruction("tcgen05.wait::ld.sync.aligned;", "tcgen05.wait::st.sync.aligned;", targets=FAMILY)
def wait(e: Emitter, m: Match) -> None:
    """Wait until the warp's loads, or stores, of Tensor Memory are complete (PTX ISA 9.7.16.8.3)."""
    e(WAIT, None, imm=1 if m.has(".wait::st") else 0)


@instruction("tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;", targets=FAMILY)
def fence(e: Emitter, m: Match) -> None:
    """Order Tensor Memory's operations around a synchronisation of threads: nothing to execute (PTX ISA 9.7.16.11)."""
