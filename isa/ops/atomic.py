"""Atomic operations on memory: `atom`, `red` (PTX ISA 9.7.13.5, 9.7.13.7).

Every lane's operation takes effect at issue, lanes in ascending order; an element of a vector is an operation of
its own.  Memory order and scope change no value: see `isa.ops.memory`.
"""

from __future__ import annotations

from functools import partial

from isa.micro import Micro, unit
from isa.ops.address import generic_of, offset_of
from isa.ops.fence import acquire, release
from isa.ops.memory import check_policy, fresh
from isa.registry import Emitter, Match, Value, instruction

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
TYPES = ("u32", "s32", "u64", "s64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "b16", "b128")
BYTES = dict(zip(TYPES, (4, 4, 8, 8, 4, 8, 2, 2, 4, 4, 2, 16), strict=True))
# ptxas has an instruction for these on shared memory; of all others it makes a loop around compare-and-swap.
NATIVE = frozenset(("u32", "s32", "b32"))

_DOC = "imm: atomic word; sources: values, then those of the comparison; results: what was there"
ATOM = unit("ATOM", "UL->L", "atom", "atom_generic", _DOC, "loads", "stores")
ATOMG = unit("ATOMG", "UL->L", "atom", "atom_global", _DOC, "loads", "stores")
ATOMS = unit("ATOMS", "uL->L", "atoms", "atom_shared", _DOC, "loads", "stores")
ATOMS_CAS = unit("ATOMS.CAS", "uL->L", "atoms_cas", "atom_shared", _DOC, "loads", "stores")
ATOMS_CAST = unit("ATOMS.CAST.SPIN", "uL->L", "atoms_cast", "atom_shared", _DOC, "loads", "stores")
RED = unit("RED", "UL->", "red", "atom_generic", _DOC, "stores")
REDG = unit("REDG", "UL->", "red", "atom_global", _DOC, "stores")
REDS = unit("REDS", "uL->", "atoms", "atom_shared", _DOC, "stores")
ATOMS_CAST64 = unit("ATOMS.CAST.SPIN.64", "uL->L", "atoms_cast64", "atom_shared", _DOC, "loads", "stores")
REDS_CAST64 = unit("REDS.CAST.SPIN.64", "uL->", "atoms_cast64", "atom_shared", _DOC, "stores")
REDS_CAST = unit("REDS.CAST.SPIN", "uL->", "atoms_cast", "atom_shared", _DOC, "stores")
_MICROS: dict[str, tuple[tuple[Micro, Micro], tuple[Micro, Micro]]] = {
    "atom": ((ATOM, ATOMG), (ATOMS_CAST, ATOMS)),
    "red": ((RED, REDG), (REDS_CAST, REDS)),
}

_HOPPER_ON = ("sm_90", "sm_90a", "sm_100a")
# Operations and types that atomics and the reductions of bulk copies share.
REDUCTIONS = {
    "ADDED": (".u32", ".s32", ".u64", ".f32", ".f64"),
    "MM": (".min", ".max"),
    "BITS": (".and", ".or", ".xor"),
    "VHALF": (".f16", ".bf16"),
}
_SETS = REDUCTIONS | {
    "SEM": (".relaxed", ".acquire", ".release", ".acq_rel"),
    "RSEM": (".relaxed", ".release"),
    "SCOPE": (".cta", ".cluster", ".gpu", ".sys"),
    "SPACE": (".global", ".shared", ".shared::cta", ".shared::cluster"),
    "SIGNED": (".u32", ".s32", ".u64", ".s64"),
    "VPAIR": (".f16x2", ".bf16x2"),
    "AMM": (".add", ".min", ".max"),
}
_ORDER = "atomics take effect in program order at issue, which is stronger; releasing costs a fence, as ptxas has it"
_IGNORED = dict.fromkeys((*_SETS["SEM"], *_SETS["SCOPE"]), _ORDER) | {
    ".noftz": "what 16-bit types do anyway",
    ".L2::cache_hint": "a cache hint: changes no value",
}
_HEADS = {
    "atom": ("atom{.SEM}{.SCOPE}{.SPACE}", "d, [a], b{, policy};"),
    "red": ("red{.RSEM}{.SCOPE}{.SPACE}", "[a], b{, policy};"),
}
_atomic = partial(instruction, sets=_SETS, types={"policy": "b64"}, ignored=_IGNORED)
_HINT = "{.L2::cache_hint}"


def atomic_word(offset: int, operation: str, type: str, elements: int = 1) -> int:
    """The immediate: signed byte offset (32 bits), bits 32..35 the operation, 36..39 the type, 40..47 elements."""
    return (offset & 0xFFFFFFFF) | OPERATIONS.index(operation) << 32 | TYPES.index(type) << 36 | elements << 40


def operation_of(m: Match) -> str:
    """The operation among an instruction's qualifiers."""
    return next(word for word in m.mods if word in OPERATIONS)


def _rows(e: Emitter, value: Value, size: int) -> list[Value]:
    """The 32-bit rows of an element of `size` bytes."""
    if size <= 4:
        return [value]
    return [row for half in (e.lo(value), e.hi(value)) for row in _rows(e, half, size // 2)]


def _emit(e: Emitter, m: Match, operation: str, type: str, *sources: Value | list[Value]) -> None:
    """One micro-operation for every element: `sources` are the values, and for cas the comparison before them."""
    check_policy(e, m)
    size = BYTES[type]
    lists = [value if isinstance(value, list) else [value] for value in sources]
    for name, values in zip(("b", "c"), lists, strict=False):
        if None in values:
            raise e.error("'_' cannot stand in a source vector", operand=m.operand(name))
    opcode = m.form.opcode
    if opcode == "atom" and m.d is None and operation not in ("exch", "cas"):
        opcode = "red"  # as ptxas does with a result that nobody reads
    remote = m["SPACE"] == "shared::cluster" and e.clustered
    shared = m["SPACE"].startswith("shared") and not remote
    generic_or_cast, direct = _MICROS[opcode][shared]
    native = type in NATIVE or (operation in ("exch", "cas") and size == 8)
    if shared and operation == "cas":
        direct = ATOMS_CAS
    if shared and size > 4:
        generic_or_cast = ATOMS_CAST64 if opcode == "atom" else REDS_CAST64
    micro = direct if (native if shared else m["SPACE"] == "global") else generic_or_cast
    rows = [row for values in lists for value in values for row in _rows(e, value, size)]
    at = generic_of(e, m.a) if remote else m.a  # of the cluster by its generic address, as ptxas has it
    word = atomic_word(offset_of(e, at), operation, type, len(lists[0]))
    release(e, m)
    if opcode == "red":
        e(micro, None, at.base, rows, imm=word)
        return
    given = m.d if isinstance(m.d, list) else [m.d]
    found = [d if d is not None else fresh(e, size) for d in given]
    if len(found) != len(lists[0]):
        raise e.error(f"{len(found)} results of {len(lists[0])} values", operand=m.operand("d"))
    e(micro, [row for d in found for row in _rows(e, d, size)], at.base, rows, imm=word)
    acquire(e, m)


def _both(line: str, opcodes: tuple[str, ...] = ("atom", "red")) -> tuple[str, ...]:
    """The lines of atom and red for the qualifiers between space and operands."""
    return tuple(f"{head}{line} {tail}" for head, tail in map(_HEADS.__getitem__, opcodes))


@_atomic(*_both(f".MM{_HINT}.SIGNED"))
@_atomic(*_both(f".add{_HINT}.ADDED"))
@_atomic(*_both(f".{{inc,dec}}{_HINT}.u32"))
def arithmetic(e: Emitter, m: Match) -> None:
    """[a] = [a] op b; d = what was there.

    inc: 0 where the value is b or more, else one more; dec: b where the value is 0 or above b, else one less.
    f32 addition in global memory flushes subnormal operands and sums, in shared memory it does not.
    """
    _emit(e, m, operation_of(m), m.types[-1], m.b)


@_atomic(*_both(f".BITS{_HINT}.{{b32,b64}}"))
@_atomic(*_both(f".exch{_HINT}.{{b32,b64}}", ("atom",)))
def bitwise(e: Emitter, m: Match) -> None:
    """[a] = [a] and, or, xor b, or b itself; d = what was there."""
    _emit(e, m, operation_of(m), "u" + m.types[-1][1:], m.b)


@_atomic(*_both(f".add.noftz{_HINT}.{{f16,f16x2}}"))
@_atomic(*_both(f".add.noftz{_HINT}.{{bf16,bf16x2}}"), targets=_HOPPER_ON)
def add_half(e: Emitter, m: Match) -> None:
    """[a] = [a] + b in 16-bit floating point, both halves of a packed type; d = what was there."""
    _emit(e, m, "add", m.types[-1], m.b)


_VECTORS = _SETS | {"SPACE": (".global",)}


@_atomic(
    *_both(f".AMM.noftz{_HINT}.{{v2,v4,v8}}.VHALF"),
    *_both(f".AMM.noftz{_HINT}.{{v2,v4}}.VPAIR"),
    *_both(f".add{_HINT}.{{v2,v4}}.f32"),
    sets=_VECTORS,
    targets=_HOPPER_ON,
)
def vector(e: Emitter, m: Match) -> None:
    """An operation for each element of a vector in global memory, which is aligned as a whole."""
    _emit(e, m, operation_of(m), m.types[-1], m.b)


_CAS = "atom{.SEM}{.SCOPE}{.SPACE}"


@_atomic(
    f"{_CAS}.cas.{{b32,b64}} d, [a], b, c;",
    f"{_CAS}.cas.b16 d, [a], b, c;",
)
def compare_and_swap(e: Emitter, m: Match) -> None:
    """[a] = c where it equals b; d = what was there."""
    type = m.types[-1]
    _emit(e, m, "cas", type if type == "b16" else f"u{type[1:]}", m.c, m.b)


@_atomic(f"{_CAS}.exch{_HINT}.b128 d, [a], b{{, policy}};", targets=_HOPPER_ON)
def exchange_wide(e: Emitter, m: Match) -> None:
    """[a] = b; d = what was there."""
    _emit(e, m, "exch", "b128", m.b)


@_atomic(f"{_CAS}.cas{_HINT}.b128 d, [a], b, c{{, policy}};", targets=_HOPPER_ON)
def compare_and_swap_wide(e: Emitter, m: Match) -> None:
    """[a] = c where it equals b; d = what was there."""
    _emit(e, m, "cas", "b128", m.c, m.b)
