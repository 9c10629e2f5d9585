"""Bulk copies without a tensor map, their reductions, and asynchronous stores (PTX ISA 9.7.9.25.4, 9.7.9.12, 9.7.13.8).

The copy engine treats a range of bytes as a tensor of one dimension.
"""

from __future__ import annotations

from functools import partial

from isa.micro import unit
from isa.ops.address import generic_whole, shared_whole
from isa.ops.atomic import OPERATIONS, REDUCTIONS, TYPES, operation_of
from isa.ops.memory import rows
from isa.ops.tma import MULTICAST, UTMAPF
from isa.registry import Address, Const, Emitter, Match, Value, instruction

_HOPPER_ON = ("sm_90", "sm_90a", "sm_100a")

UBLKCP_LOAD = unit(
    "UBLKCP.S.G", "uUuL->", "tma", "bulk_load", "destination, source, mbarrier, [bytes (, CTA mask)]", "barrier"
)
UBLKCP_PEER = unit(
    "UBLKCP.S.S", "uuuL->", "tma", "bulk_send", "destination, source, mbarrier, [bytes]; imm: reduction code", "barrier"
)
UBLKCP_STORE = unit(
    "UBLKCP.G.S", "UuL->", "tma", "bulk_store", "destination, source, [bytes]; imm: reduction code", "barrier"
)
STAS = unit(
    "STAS",
    "uuL->",
    "stas",
    "async_store",
    "address, mbarrier, [values]; imm: reduction code, bits 32.. bytes",
    "barrier",
)


def reduction_code(operation: str, type: str) -> int:
    """The code of a job (`emu.copy_state.JOB`): an operation of `isa.ops.atomic` from 1 on, its type in bits 8 and up."""
    return OPERATIONS.index(operation) + 1 | TYPES.index(type) << 8


def _reduction(m: Match) -> int:
    """The code of the reduction that an instruction spells; bits are combined as unsigned integers."""
    type = m.types[-1]
    return reduction_code(operation_of(m), "u" + type[1:] if type in ("b32", "b64") else type)


def _size(e: Emitter, m: Match) -> Value:
    if isinstance(m.size, Const) and m.size.bits % 16:
        raise e.error(f"{m.size.bits} bytes are not a multiple of 16", operand=m.operand("size"))
    size: Value = m.size
    return size


_SETS = REDUCTIONS | {
    "DST": (".shared::cluster", ".shared::cta"),
    "BTYPE": (".b32", ".b64"),
    "MTYPE": (".u32", ".s32", ".u64", ".s64", ".f16", ".bf16"),
    "STEP": (".inc", ".dec"),
    "LONG": (".u64", ".s64"),
    "WORD": (".u32", ".s32"),
}
_TYPES = {"dst": "shared", "src": "global", "mbar": "shared", "size": "u32", "mask": "b16", "policy": "b64"}
_STORE_TYPES = {"dst": "global", "src": "shared", "size": "u32", "policy": "b64"}
_IGNORED = {".L2::cache_hint": "an eviction hint: changes no value", ".noftz": "what 16-bit types do anyway"}
_bulk = partial(instruction, sets=_SETS, ignored=_IGNORED, targets=_HOPPER_ON)
_LOAD = "cp.async.bulk.DST.global.mbarrier::complete_tx::bytes"
_CLUSTER = _LOAD.replace("DST", "shared::cluster")
_STORE = "cp.async.bulk.global.shared::cta.bulk_group"
_REDUCE = "cp.reduce.async.bulk.global.shared::cta.bulk_group"


@_bulk(
    f"{_LOAD} [dst], [src], size, [mbar];",
    f"{_LOAD}.L2::cache_hint [dst], [src], size, [mbar], policy;",
    f"{_CLUSTER}.multicast::cluster [dst], [src], size, [mbar], mask;",
    f"{_CLUSTER}.multicast::cluster.L2::cache_hint [dst], [src], size, [mbar], mask, policy;",
    f"{_CLUSTER}.L2::cache_hint.multicast::cluster [dst], [src], size, [mbar], mask, policy;",
    types=_TYPES,
)
def bulk_load(e: Emitter, m: Match) -> None:
    """Copy `size` bytes of global memory to shared memory; they are signalled to the mbarrier.

    `size` is a multiple of 16 and both addresses are aligned to 16 bytes.  With a mask the copy and its signal go to
    the same offsets in every CTA of the cluster that the mask names.
    """
    multicast = m.has(".multicast::cluster")
    values = [_size(e, m), m.mask] if multicast else [_size(e, m)]
    places = shared_whole(e, m.dst), generic_whole(e, m.src), shared_whole(e, m.mbar)
    e(UBLKCP_LOAD, None, *places, values, imm=MULTICAST if multicast else 0)


_PEER = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
_PEER_TYPES = {"dst": "shared", "src": "shared", "mbar": "shared", "size": "u32"}


@_bulk(f"{_PEER} [dst], [src], size, [mbar];", types=_PEER_TYPES)
def bulk_send(e: Emitter, m: Match) -> None:
    """Copy `size` bytes to the shared memory of a CTA of the cluster, which `dst` and `mbar` lie in."""
    _send(e, m, 0)


def _send(e: Emitter, m: Match, code: int) -> None:
    places = (shared_whole(e, place) for place in (m.dst, m.src, m.mbar))
    e(UBLKCP_PEER, None, *places, [_size(e, m)], imm=code)


@_bulk(
    *(
        f"{_PEER.replace('cp.', 'cp.reduce.', 1)}.{line} [dst], [src], size, [mbar];"
        for line in ("{add,min,max}.WORD", "STEP.u32", "BITS.b32", "add.LONG")
    ),
    types=_PEER_TYPES,
)
def bulk_reduce_peer(e: Emitter, m: Match) -> None:
    """Combine `size` bytes with the shared memory of a CTA of the cluster, element by element."""
    _send(e, m, _reduction(m))


@_bulk(
    f"{_STORE} [dst], [src], size;",
    f"{_STORE}.L2::cache_hint [dst], [src], size, policy;",
    types=_STORE_TYPES,
)
def bulk_store(e: Emitter, m: Match) -> None:
    """Copy `size` bytes of shared memory to global memory, as part of the thread's bulk group."""
    e(UBLKCP_STORE, None, generic_whole(e, m.dst), shared_whole(e, m.src), [_size(e, m)])


def _reductions(line: str) -> tuple[str, str]:
    return f"{_REDUCE}{line} [dst], [src], size;", f"{_REDUCE}.L2::cache_hint{line} [dst], [src], size, policy;"


@_bulk(
    *_reductions(".BITS.BTYPE"),
    *_reductions(".add.ADDED"),
    *_reductions(".STEP.u32"),
    *_reductions(".MM.MTYPE"),
    *_reductions(".add.noftz.VHALF"),
    types=_STORE_TYPES,
)
def bulk_reduce(e: Emitter, m: Match) -> None:
    """Combine `size` bytes of shared memory with global memory, element by element; f32 sums flush subnormals."""
    e(UBLKCP_STORE, None, generic_whole(e, m.dst), shared_whole(e, m.src), [_size(e, m)], imm=_reduction(m))


@_bulk(
    "cp.async.bulk.prefetch.L2.global [src], size;",
    "cp.async.bulk.prefetch.L2.global.L2::cache_hint [src], size, policy;",
    types=_TYPES,
)
def bulk_prefetch(e: Emitter, m: Match) -> None:
    """Bring `size` bytes to L2: a hint."""
    _size(e, m)
    e(UTMAPF, None, generic_whole(e, m.src))


# ---- st.async, red.async ----------------------------------------------------------------------------

_ASYNC_TYPES = tuple(f".{t}{w}" for w in (32, 64) for t in "bus") + (".f32", ".f64")
_ASYNC = {
    "TYPE": _ASYNC_TYPES,
    "VEC": (".v2", ".v4"),
    "SIGNED": (".u32", ".s32"),
    "LONG": (".u64", ".s64"),
    "OP": (".min", ".max", ".add"),
    "STEP": (".inc", ".dec"),
    "BITS": REDUCTIONS["BITS"],
}
_ASYNC_OPERANDS = {"a": "shared", "mbar": "shared"}
_ORDER = {
    ".weak": "the only order of st.async",
    ".relaxed": "the only order of red.async",
    ".cluster": "its scope",
}
_asynchronously = partial(instruction, sets=_ASYNC, ignored=_ORDER, targets=_HOPPER_ON)


def _asynchronous(e: Emitter, m: Match, code: int) -> None:
    values = m.b if isinstance(m.b, list) else [m.b]
    size = int(m.types[-1][1:]) // 8
    if size * len(values) > 16:
        raise e.error("a vector has 16 bytes at most", operand=m.operand("b"))
    words = rows(e, values, size)
    places: list[Address] = [m.a, m.mbar]
    if not m.has(".shared::cluster"):  # generic addresses, which point there
        places = [Address(e.lo(place.base), place.offset) for place in places]
    address, barrier = (shared_whole(e, place) for place in places)
    e(STAS, None, address, barrier, words, imm=code | 4 * len(words) << 32)


_SIGNAL = "mbarrier::complete_tx::bytes"
_ST = f"st.async{{.weak}}.shared::cluster.{_SIGNAL}{{.VEC}}.TYPE [a], b, [mbar];"
_RED = f"red.async.relaxed.cluster.shared::cluster.{_SIGNAL}"
_GENERIC = {"a": "addr", "mbar": "addr"}


@_asynchronously(_ST.replace(".shared::cluster", ""), types=_GENERIC)
@_asynchronously(_ST, types=_ASYNC_OPERANDS)
def store_async(e: Emitter, m: Match) -> None:
    """Shared memory at `a` = b, later; its bytes are signalled to the mbarrier."""
    _asynchronous(e, m, 0)


def _reductions_async(head: str) -> tuple[str, ...]:
    return tuple(f"{head}.{line} [a], b, [mbar];" for line in ("OP.SIGNED", "add.LONG", "STEP.u32", "BITS.b32"))


@_asynchronously(*_reductions_async(_RED.replace(".shared::cluster", "")), types=_GENERIC)
@_asynchronously(*_reductions_async(_RED), types=_ASYNC_OPERANDS)
def reduce_async(e: Emitter, m: Match) -> None:
    """Shared memory at `a` = its value op b, later; the bytes are signalled to the mbarrier."""
    _asynchronous(e, m, _reduction(m))
