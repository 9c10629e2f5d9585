"""Loads and stores: `ld`, `st` (PTX ISA 9.7.9.8, 9.7.9.11).

Memory order, scopes, cache operators and hints change no value on one SM that executes accesses in
order; each is accepted where `ptxas` accepts it and listed in `ignored` with the reason.
"""

from __future__ import annotations

from isa.micro import Micro, unit
from isa.ops.address import generic_of, offset_of, shared_whole
from isa.ops.fence import acquire, release
from isa.ops.move import MOV, PRMT
from isa.program import PARAM_BASE
from isa.registry import HEIRS, Address, Const, Emitter, LocalParam, Match, ParamWord, Value, instruction

_DOC = "imm: memory word; the list: rows of the elements"
LDG = unit("LDG", "U->L", "ldg", "ld_global", _DOC, "loads")
LD = unit("LD", "U->L", "ldg", "ld_generic", _DOC, "loads")
LDL = unit("LDL", "U->L", "local", "ld_local", _DOC, "loads")
LDS = unit("LDS", "u->L", "lds", "ld_shared", "up to 4 bytes a lane; imm: memory word", "loads")
LDS_64 = unit("LDS.64", "u->L", "lds64", "ld_shared", "8 bytes a lane; imm: memory word", "loads")
LDS_128 = unit("LDS.128", "u->L", "lds128", "ld_shared", "16 bytes a lane; imm: memory word", "loads")
STG = unit("STG", "UL->", "stg", "st_global", _DOC, "stores")
ST = unit("ST", "UL->", "stg", "st_generic", _DOC, "stores")
STL = unit("STL", "UL->", "local", "st_local", _DOC, "stores")
STS = unit("STS", "uL->", "sts", "st_shared", "up to 4 bytes a lane; imm: memory word", "stores")
STS_64 = unit("STS.64", "uL->", "sts64", "st_shared", "8 bytes a lane; imm: memory word", "stores")
STS_128 = unit("STS.128", "uL->", "sts128", "st_shared", "16 bytes a lane; imm: memory word", "stores")

_LOADS = {"": LD, "global": LDG, "const": LDG, "local": LDL}
_STORES = {"": ST, "global": STG, "local": STL}


PAST_L1 = 48  # bit of a memory word


def memory_word(offset: int, size: int, elements: int = 1, signed: bool = False, past_l1: bool = False) -> int:
    """The immediate of loads and stores (docs/architecture.md 3).

    `offset`: signed byte offset (32 bits); `size`: bytes of an element, 1 to 16 (16: as two of 8); `elements`: of
    the vector; `signed`: 1- and 2-byte loads extend the sign into the 32-bit row instead of zeros; `past_l1`: a load that
    neither looks into the L1 nor leaves anything there.
    """
    if size == 16:
        size, elements = 8, 2 * elements
    return (offset & 0xFFFFFFFF) | (size.bit_length() - 1) << 32 | signed << 36 | elements << 40 | past_l1 << PAST_L1


def _by_width(ops: tuple[Micro, Micro, Micro], size: int) -> Micro:
    """The shared-memory operation for `size` bytes a lane."""
    return ops[max(0, size.bit_length() - 3)]


def rows(e: Emitter, values: list[Value], size: int) -> list[Value]:
    """The 32-bit rows of a vector: low and high halves of 8-byte elements, four of 16-byte ones."""
    if size <= 4:
        return values
    return rows(e, [half for v in values for half in (e.lo(v), e.hi(v))], size // 2)


def _elements(e: Emitter, m: Match, value: Value | list[Value | None]) -> tuple[list[Value], int]:
    """The elements of the data operand (registers made up for `_`) and the bytes of one."""
    size = int(m["TYPE"].lstrip("busf")) // 8
    given = value if isinstance(value, list) else [value]
    elsewhere = any(word.split("::")[0] in ("shared", "local", "const", "param") for word in m.mods)
    wide = e.target in HEIRS["sm_100"] and size in (4, 8) and not elsewhere
    if size * len(given) > (32 if wide else 16) or len(given) == 8 and size != 4:
        message = f"a vector of {len(given)} x {size} bytes is larger than 16 bytes"
        raise e.error(message, "256-bit accesses need sm_100 or later, global memory and elements of 32 or 64 bits")
    return [v if v is not None else fresh(e, size) for v in given], size


def fresh(e: Emitter, size: int) -> Value:
    """A register for an element of `size` bytes."""
    return e.quad() if size == 16 else e.tmp("d" if size == 8 else "r")


def check_policy(e: Emitter, m: Match) -> None:
    """`.L2::cache_hint` and the policy operand come together."""
    if m.has(".L2::cache_hint") != (getattr(m, "policy", None) is not None):
        raise e.error("the qualifier .L2::cache_hint and a cache-policy operand go together")


def _destination(e: Emitter, m: Match) -> Value | list[Value | None]:
    if m.d is None:
        raise e.error("ld needs a destination register; '_' may only stand inside a vector")
    found: Value | list[Value | None] = m.d
    return found


def past_l1(m: Match) -> bool:
    """Whether a load's words send it to L2 (`l1_chase`, an H200): strong ones of a scope beyond the CTA, and these."""
    strong = (m.has(".relaxed") or m.has(".acquire")) and not m.has(".cta")
    return strong or any(m.has(word) for word in (".cg", ".cv", ".lu", ".volatile", ".mmio", ".L1::no_allocate"))


def load(e: Emitter, m: Match, op: Micro | tuple[Micro, Micro, Micro], at: Address | None = None) -> None:
    """d = memory at `at` or the address `a` of the match, by one operation or that for its width."""
    elements, size = _elements(e, m, _destination(e, m))
    micro = op if isinstance(op, Micro) else _by_width(op, size * len(elements))
    at = at or m.a
    signed, past = size < 4 and m["TYPE"].startswith("s"), micro in (LD, LDG) and past_l1(m)
    word = memory_word(offset_of(e, at), size, len(elements), signed, past)
    e(micro, rows(e, elements, size), at.base, imm=word)
    acquire(e, m)


def _store(e: Emitter, m: Match, op: Micro | tuple[Micro, Micro, Micro], at: Address | None = None) -> None:
    elements, size = _elements(e, m, m.b)
    micro = op if isinstance(op, Micro) else _by_width(op, size * len(elements))
    at = at or m.a
    word = memory_word(offset_of(e, at), size, len(elements))
    release(e, m)
    e(micro, None, at.base, rows(e, elements, size), imm=word)


_SETS = {
    "TYPE": tuple(f".{t}{w}" for w in (8, 16, 32, 64) for t in "bus") + (".f32", ".f64", ".b128"),
    "VEC": (".v2", ".v4", ".v8"),
    "COP": (".ca", ".cg", ".cs", ".lu", ".cv"),
    "NCOP": (".ca", ".cg", ".cs"),
    "WCOP": (".wb", ".cg", ".cs", ".wt"),
    "EVICT": tuple(
        f".L1::{x}" for x in ("evict_normal", "evict_unchanged", "evict_first", "evict_last", "no_allocate")
    ),
    "KEEP": (".L2::evict_last", ".L2::evict_normal", ".L2::evict_first"),
    "PREFETCH": (".L2::64B", ".L2::128B", ".L2::256B"),
    "LSEM": (".relaxed", ".acquire"),
    "SSEM": (".relaxed", ".release"),
    "SCOPE": (".cta", ".cluster", ".gpu", ".sys"),
    "SHARED": (".shared", ".shared::cta", ".shared::cluster"),
    "LCONST": (".local", ".const"),
    "PARAM": (".param", ".param::entry", ".param::func"),
}
_ORDER = "accesses take effect in program order at issue, which is stronger; releasing costs a fence, as ptxas has it"
_CACHE = "a cache hint: changes no value; those that keep a load out of the L1 are those of `past_l1`"
_IGNORED = (
    dict.fromkeys((".weak", ".volatile", ".mmio", *_SETS["LSEM"], *_SETS["SSEM"], *_SETS["SCOPE"]), _ORDER)
    | dict.fromkeys(
        (*_SETS["COP"], *_SETS["WCOP"], *_SETS["EVICT"], *_SETS["KEEP"], *_SETS["PREFETCH"], ".L2::cache_hint"), _CACHE
    )
    | {".nc": "the read-only path: same values, same latency in the model"}
)
_POLICY = {"policy": "b64"}


@instruction(
    "ld{.weak}{.global}{.COP}{.L2::cache_hint}{.PREFETCH}{.VEC}.TYPE d, [a]{, policy};",
    "ld{.weak}{.global}.EVICT{.L2::cache_hint}{.PREFETCH}{.VEC}.TYPE d, [a]{, policy};",
    "ld{.global}.LSEM.SCOPE{.EVICT}{.L2::cache_hint}{.PREFETCH}{.VEC}.TYPE d, [a]{, policy};",
    "ld.global.nc{.NCOP}{.L2::cache_hint}{.PREFETCH}{.VEC}.TYPE d, [a]{, policy};",
    "ld.global.nc.EVICT{.L2::cache_hint}{.PREFETCH}{.VEC}.TYPE d, [a]{, policy};",
    "ld.nc.global{.NCOP}{.L2::cache_hint}{.PREFETCH}{.VEC}.TYPE d, [a]{, policy};",
    sets=_SETS,
    types=_POLICY,
    ignored=_IGNORED,
)
def ld(e: Emitter, m: Match) -> None:
    """d = memory at `a` in global memory or, without a space, at a generic address (PTX ISA 9.7.9.8).

    8- and 16-bit values are extended to 32 bits: signs for .s8 and .s16, zeros otherwise.
    """
    check_policy(e, m)
    load(e, m, _LOADS["global" if m.has(".global") else ""])


def ld_kept(e: Emitter, m: Match) -> None:
    """A 256-bit load with an eviction priority for L2 (PTX ISA 9.7.9.8)."""
    ld(e, m)


@instruction(
    "ld.volatile{.global}{.PREFETCH}{.VEC}.TYPE d, [a];",
    "ld.mmio{.global}.relaxed.sys.TYPE d, [a];",
    sets=_SETS,
    ignored=_IGNORED,
)
def ld_volatile(e: Emitter, m: Match) -> None:
    """A volatile or memory-mapped load; as an ordinary one here (PTX ISA 9.7.9.8)."""
    load(e, m, _LOADS["global" if m.has(".global") else ""])


@instruction(
    "ld.SHARED{.weak}{.COP}{.VEC}.TYPE d, [a];",
    "ld.SHARED{.volatile}{.VEC}.TYPE d, [a];",
    "ld.SHARED{.LSEM.SCOPE}{.VEC}.TYPE d, [a];",
    sets=_SETS,
    ignored=_IGNORED,
)
def ld_shared(e: Emitter, m: Match) -> None:
    """d = shared memory at `a` (PTX ISA 9.7.9.8); of the cluster by its generic address, as `ptxas` has it."""
    if m.has(".shared::cluster") and e.clustered:
        return load(e, m, LD, generic_of(e, m.a))
    load(e, m, (LDS, LDS_64, LDS_128))


@instruction("ld.LCONST{.weak}{.COP}{.VEC}.TYPE d, [a];", sets=_SETS, ignored=_IGNORED)
def ld_local(e: Emitter, m: Match) -> None:
    """d = local or constant memory at `a`; .const variables live beside the global ones (PTX ISA 9.7.9.8)."""
    load(e, m, _LOADS[m["LCONST"]])


@instruction(
    "ld.PARAM{.weak}{.COP}{.VEC}.TYPE d, [a];",
    sets=_SETS,
    ignored=_IGNORED | {".param::entry": "the name says whose it is", ".param::func": "the name says whose it is"},
)
def ld_param(e: Emitter, m: Match) -> None:
    """d = a parameter (PTX ISA 9.7.9.8): copies of words that are there from launch on, or in registers in functions.

    Bytes and half words are cut out of the 32-bit word that holds them.  An address in a register is a
    load from the window of the parameters, in which it wraps at 32 bits.
    """
    if isinstance(m.a, Address):
        base = e.tmp("d")
        e(MOV, e.lo(base), shared_whole(e, m.a))
        e(MOV, e.hi(base), Const(PARAM_BASE >> 32))
        return load(e, m, LD, Address(base, 0))
    elements, size = _elements(e, m, _destination(e, m))
    for i, d in enumerate(elements):
        offset = m.a.offset + i * size
        if offset % size:
            raise e.error(f"the parameter byte {offset} is not aligned to {size} bytes", operand=m.operand("a"))
        if size < 4:
            selector = _extract(offset % 4, size, m["TYPE"].startswith("s"))
            e(PRMT, d, _param_word(e, m, offset, size), Const(0), Const(selector))
        else:
            for k, row in enumerate(rows(e, [d], size)):
                e(MOV, row, _param_word(e, m, offset + 4 * k, 4))


def _param_word(e: Emitter, m: Match, offset: int, size: int) -> Value:
    """The word that holds the bytes at an offset of a parameter."""
    local = isinstance(m.a, LocalParam)
    most = 4 * len(m.a.words) if local else e.param_bytes
    if not 0 <= offset <= most - size:
        raise e.error(f"bytes {offset} to {offset + size - 1} are outside the {most} bytes of parameters")
    word: Value = m.a.words[offset // 4] if local else ParamWord(offset & ~3)
    return word


@instruction("st.PARAM{.weak}{.VEC}.TYPE [a], b;", sets=_SETS | {"PARAM": (".param", ".param::func")}, ignored=_IGNORED)
def st_param(e: Emitter, m: Match) -> None:
    """A parameter of a call, or a result of a function, = b (PTX ISA 9.7.9.11): words in registers."""
    if not isinstance(m.a, LocalParam):
        raise e.error("parameters of a kernel cannot be written", operand=m.operand("a"))
    elements, size = _elements(e, m, m.b)
    for i, value in enumerate(elements):
        offset = m.a.offset + i * size
        if offset % size:
            raise e.error(f"the parameter byte {offset} is not aligned to {size} bytes", operand=m.operand("a"))
        if size >= 4:
            for k, row in enumerate(rows(e, [value], size)):
                e(MOV, _param_word(e, m, offset + 4 * k, 4), row)
            continue
        word, at = _param_word(e, m, offset, size), offset % 4
        selector = sum((4 + k - at if at <= k < at + size else k) << 4 * k for k in range(4))
        e(PRMT, word, e.written(word), value, Const(selector))


def _extract(at: int, size: int, signed: bool) -> int:
    """The prmt selector that moves `size` bytes from byte `at` of the first word down and extends them."""
    bytes_ = [at + i for i in range(size)]
    fill = 8 | bytes_[-1] if signed else 4  # 8: copies of the byte's sign; 4: byte 0 of the zero word
    return sum(b << 4 * i for i, b in enumerate(bytes_ + [fill] * (4 - size)))


@instruction(
    "st{.weak}{.global}{.WCOP}{.L2::cache_hint}{.VEC}.TYPE [a], b{, policy};",
    "st{.weak}{.global}.EVICT{.L2::cache_hint}{.VEC}.TYPE [a], b{, policy};",
    "st{.global}.SSEM.SCOPE{.EVICT}{.L2::cache_hint}{.VEC}.TYPE [a], b{, policy};",
    sets=_SETS,
    types=_POLICY,
    ignored=_IGNORED,
)
def st(e: Emitter, m: Match) -> None:
    """Memory at `a`, global or generic, = b (PTX ISA 9.7.9.11)."""
    check_policy(e, m)
    _store(e, m, _STORES["global" if m.has(".global") else ""])


def st_kept(e: Emitter, m: Match) -> None:
    """A 256-bit store with an eviction priority for L2 (PTX ISA 9.7.9.11)."""
    st(e, m)


_KEPT_LOADS = (
    "ld{.weak}{.global}{.EVICT}.KEEP{.L2::cache_hint}{.PREFETCH}VEC.TYPE d, [a]{, policy};",
    "ld{.global}.LSEM.SCOPE{.EVICT}.KEEP{.L2::cache_hint}{.PREFETCH}VEC.TYPE d, [a]{, policy};",
    "ld.global.nc{.EVICT}.KEEP{.L2::cache_hint}{.PREFETCH}VEC.TYPE d, [a]{, policy};",
)
_KEPT_STORES = (
    "st{.weak}{.global}{.EVICT}.KEEP{.L2::cache_hint}VEC.TYPE [a], b{, policy};",
    "st{.global}.SSEM.SCOPE{.EVICT}.KEEP{.L2::cache_hint}VEC.TYPE [a], b{, policy};",
)
for _vector, _wide in ((".v8", (".b32", ".u32", ".s32", ".f32")), (".v4", (".b64", ".u64", ".s64", ".f64"))):
    for _lines, _lower in ((_KEPT_LOADS, ld_kept), (_KEPT_STORES, st_kept)):
        instruction(
            *(line.replace("VEC", _vector) for line in _lines),
            sets=_SETS | {"TYPE": _wide},
            types=_POLICY,
            ignored=_IGNORED,
            targets=("sm_100",),
        )(_lower)


@instruction(
    "st.volatile{.global}{.VEC}.TYPE [a], b;",
    "st.mmio{.global}.relaxed.sys.TYPE [a], b;",
    sets=_SETS,
    ignored=_IGNORED,
)
def st_volatile(e: Emitter, m: Match) -> None:
    """A volatile or memory-mapped store; as an ordinary one here (PTX ISA 9.7.9.11)."""
    _store(e, m, _STORES["global" if m.has(".global") else ""])


@instruction(
    "st.SHARED{.weak}{.WCOP}{.VEC}.TYPE [a], b;",
    "st.SHARED{.volatile}{.VEC}.TYPE [a], b;",
    "st.SHARED{.SSEM.SCOPE}{.VEC}.TYPE [a], b;",
    sets=_SETS,
    ignored=_IGNORED,
)
def st_shared(e: Emitter, m: Match) -> None:
    """Shared memory at `a` = b (PTX ISA 9.7.9.11); of the cluster by its generic address, as `ptxas` has it."""
    if m.has(".shared::cluster") and e.clustered:
        return _store(e, m, ST, generic_of(e, m.a))
    _store(e, m, (STS, STS_64, STS_128))


@instruction("st.local{.weak}{.WCOP}{.VEC}.TYPE [a], b;", sets=_SETS, ignored=_IGNORED)
def st_local(e: Emitter, m: Match) -> None:
    """Local memory at `a` = b (PTX ISA 9.7.9.11)."""
    _store(e, m, STL)
