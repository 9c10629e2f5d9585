"""Tensor copies by the TMA unit: `cp.async.bulk.tensor`, `prefetch.tensormap` (PTX ISA 9.7.9.27, 9.7.9.15)."""

from __future__ import annotations

from isa.errors import AssemblyError, UnsupportedError
from isa.micro import unit
from isa.ops.address import generic_whole, shared_whole
from isa.ops.atomic import OPERATIONS
from isa.registry import Emitter, Match, instruction
from isa.shorthand import Fresh, operands, reject, shorthand, text
from isa.syntax import Addr, Instr, Sym, TensorAddr

MULTICAST, PAIR = 1 << 8, 1 << 9

UTMALDG = unit(
    "UTMALDG", "UuuL->", "tma", "tma_load",
    "map, destination, mbarrier, [coordinates (, CTA mask)]; imm: tensor word", "barrier",
)  # fmt: skip
UTMASTG = unit("UTMASTG", "UuL->", "tma", "tma_store", "map, source, [coordinates]; imm: tensor word", "barrier")
UTMAPF = unit("UTMAPF", "U->", "tma_prefetch", "tma_prefetch", "map", "barrier")


def tensor_word(dims: int, multicast: bool = False, operation: str = "", pair: bool = False) -> int:
    """The immediate of UTMALDG and UTMASTG: bits 0..3 dimensions, bit 8 a CTA mask ends the list, 9 a pair of CTAs, 16..23 a reduction."""
    code = OPERATIONS.index(operation) + 1 if operation else 0
    return dims | (MULTICAST if multicast else 0) | (PAIR if pair else 0) | code << 16


_SETS = {
    "DIM": tuple(f".{n}d" for n in range(1, 6)),
    "DST": (".shared::cluster", ".shared::cta"),
    "MAP": (".param", ".const"),
    "OP": (".add", ".min", ".max", ".inc", ".dec", ".and", ".or", ".xor"),
}
_TYPES = {"dst": "shared", "src": "shared", "mbar": "shared", "mask": "b16", "policy": "b64", "a": "addr"}
_HOPPER_ON = ("sm_90", "sm_90a", "sm_100a")
_IGNORED = {
    ".tile": "the only mode here",
    ".L2::cache_hint": "an eviction hint: changes no value, and the L2 of the model keeps what it has seen",
}

_LOAD = "cp.async.bulk.tensor.DIM.DST.global{.tile}.mbarrier::complete_tx::bytes"
_GROUP = ".{cta_group::1,cta_group::2}"
_CLUSTER = _LOAD.replace("DST", "shared::cluster")
_STORE = "cp.async.bulk.tensor.DIM.global.shared::cta{.tile}.bulk_group"
_REDUCE = "cp.reduce.async.bulk.tensor.DIM.global.shared::cta.OP{.tile}.bulk_group"
_PREFETCH = "cp.async.bulk.prefetch.tensor.DIM.L2.global{.tile}"


def _check_map(e: Emitter, m: Match) -> int:
    """Dimensions, checked against the coordinates; the map is addressed generically."""
    dims = int(m["DIM"][0])
    if len(m.coords) != dims:
        raise e.error(f"a {dims}-d copy takes {dims} coordinates, found {len(m.coords)}", operand=m.operand("map"))
    node = m.operand("map")
    if isinstance(node, TensorAddr) and isinstance(node.base, Sym):
        hint = f"cvta.param.u64 %map, {node.base.name};"
        raise e.error(f"'{node.base.name}' is no generic address", hint, node)
    return dims


@instruction(
    f"{_LOAD}{_GROUP} [dst], [map, coords], [mbar];",
    f"{_LOAD}{_GROUP}.L2::cache_hint [dst], [map, coords], [mbar], policy;",
    f"{_CLUSTER}.multicast::cluster{_GROUP} [dst], [map, coords], [mbar], mask;",
    f"{_CLUSTER}.multicast::cluster{_GROUP}.L2::cache_hint [dst], [map, coords], [mbar], mask, policy;",
    sets=_SETS,
    types=_TYPES,
    ignored=_IGNORED,
    targets=("sm_100f",),
)
@instruction(
    f"{_LOAD} [dst], [map, coords], [mbar];",
    f"{_LOAD}.L2::cache_hint [dst], [map, coords], [mbar], policy;",
    f"{_CLUSTER}.multicast::cluster [dst], [map, coords], [mbar], mask;",
    f"{_CLUSTER}.multicast::cluster.L2::cache_hint [dst], [map, coords], [mbar], mask, policy;",
    f"{_CLUSTER}.L2::cache_hint.multicast::cluster [dst], [map, coords], [mbar], mask, policy;",
    sets=_SETS,
    types=_TYPES,
    ignored=_IGNORED,
    targets=_HOPPER_ON,
)
def tensor_load(e: Emitter, m: Match) -> None:
    """Copy a box of a tensor to shared memory; its bytes are signalled to the mbarrier (PTX ISA 9.7.9.27.1.2).

    Coordinates are signed elements, innermost first.  With a mask the copy and its signal go to the
    same offsets in every CTA of the cluster that the mask names.  With cta_group::2 the mbarrier may lie in the other CTA of the pair.
    """
    dims = _check_map(e, m)
    multicast, pair = m.has(".multicast::cluster"), m.has("cta_group::2")
    if multicast and pair:
        hint = "copy without .multicast::cluster in each CTA"
        error = e.error("multicasts of pairs of CTAs are not implemented", hint)
        assert isinstance(error, AssemblyError)
        raise UnsupportedError(error.diagnostics)
    destination = shared_whole(e, m.dst)
    barrier = shared_whole(e, m.mbar)
    values = [*m.coords, m.mask] if multicast else m.coords
    e(UTMALDG, None, m.map, destination, barrier, values, imm=tensor_word(dims, multicast, pair=pair))


@instruction(
    f"{_STORE} [map, coords], [src];",
    f"{_STORE}.L2::cache_hint [map, coords], [src], policy;",
    sets=_SETS,
    types=_TYPES,
    ignored=_IGNORED,
    targets=_HOPPER_ON,
)
def tensor_store(e: Emitter, m: Match) -> None:
    """Copy a box from shared memory to a tensor, as part of the thread's bulk group (PTX ISA 9.7.9.27.1.2)."""
    dims = _check_map(e, m)
    e(UTMASTG, None, m.map, shared_whole(e, m.src), m.coords, imm=tensor_word(dims))


@instruction(
    f"{_REDUCE} [map, coords], [src];",
    f"{_REDUCE}.L2::cache_hint [map, coords], [src], policy;",
    sets=_SETS,
    types=_TYPES,
    ignored=_IGNORED,
    targets=_HOPPER_ON,
)
def tensor_reduce(e: Emitter, m: Match) -> None:
    """Combine a box in shared memory with that of a tensor, element by element (PTX ISA 9.7.9.27.1.3)."""
    dims = _check_map(e, m)
    e(UTMASTG, None, m.map, shared_whole(e, m.src), m.coords, imm=tensor_word(dims, operation=m["OP"]))


@instruction(
    f"{_PREFETCH} [map, coords];",
    f"{_PREFETCH}.L2::cache_hint [map, coords], policy;",
    sets=_SETS,
    types=_TYPES,
    ignored=_IGNORED,
    targets=_HOPPER_ON,
)
def tensor_prefetch(e: Emitter, m: Match) -> None:
    """Bring a box to L2; changes no value (PTX ISA 9.7.9.27.1.4)."""
    _check_map(e, m)
    e(UTMAPF, None, m.map)


@instruction("prefetch{.MAP}.tensormap [a];", sets=_SETS, types=_TYPES, targets=_HOPPER_ON)
def prefetch_tensormap(e: Emitter, m: Match) -> None:
    """Bring a tensor map to the TMA unit's cache; changes no value (PTX ISA 9.7.9.15)."""
    node = m.operand("a")
    if not m["MAP"] and isinstance(node, Addr) and isinstance(node.base, Sym):
        raise e.error(f"'{node.base.name}' is no generic address", "write prefetch.param.tensormap", node)
    e(UTMAPF, None, generic_whole(e, m.a))


def _dimensions(instr: Instr) -> str:
    dims = instr.opcode.rsplit(".", 1)[-1]
    if f".{dims}" not in _SETS["DIM"]:
        raise reject(instr, f"'{instr.opcode}': a tensor copy has 1d to 5d")
    return dims


@shorthand("tma.load.")
def load_shorthand(instr: Instr, fresh: Fresh) -> str:
    """`tma.load.2d [dst], [map, {c0, c1}], [bar];`"""
    dims = _dimensions(instr)
    listed = operands(instr, 3, f"tma.load.{dims} [dst], [map, {{c0, ...}}], [bar];")
    opcode = f"cp.async.bulk.tensor.{dims}.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    return f"{opcode} {', '.join(map(text, listed))};"


@shorthand("tma.store.")
def store_shorthand(instr: Instr, fresh: Fresh) -> str:
    """`tma.store.2d [map, {c0, c1}], [src];`"""
    dims = _dimensions(instr)
    listed = operands(instr, 2, f"tma.store.{dims} [map, {{c0, ...}}], [src];")
    return f"cp.async.bulk.tensor.{dims}.global.shared::cta.tile.bulk_group {', '.join(map(text, listed))};"
