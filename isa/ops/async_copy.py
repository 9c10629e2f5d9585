"""Asynchronous copies by threads: `cp.async`, its groups, and its arrival on mbarriers (PTX ISA 9.7.9.25.3)."""

from __future__ import annotations

from isa.micro import unit
from isa.ops.address import generic_whole, offset_of, shared_whole
from isa.registry import Address, Const, Emitter, Match, PredConst, Value, instruction

OFFSET = range(-(1 << 23), 1 << 23)  # of both addresses; SASS has as many bits
ALL = 1 << 32  # of a wait: also the copies that no group holds yet
NOINC = 1 << 32

LDGSTS = unit(
    "LDGSTS", "uUup->", "ldgsts", "copy_async", "target, source, bytes read, whether to read none; imm: copy word",
    "loads", "stores",
)  # fmt: skip
LDGDEPBAR = unit("LDGDEPBAR", "->", "copy_commit", "copy_commit", "close the thread's group of copies", "barrier")
DEPBAR = unit(
    "DEPBAR.LE", "->", "copy_wait", "copy_wait", "imm: groups that may stay; bit 32 no copy at all", "barrier"
)
ARRIVES = unit(
    "ARRIVES.LDGSTSBAR", "u->", "copy_arrive", "copy_arrive", "mbarrier; imm: byte offset, bit 32 .noinc", "barrier"
)

_SETS = {
    "SHARED": (".shared", ".shared::cta"),
    "PREFETCH": (".L2::64B", ".L2::128B", ".L2::256B"),
    "SIZE": (".ca", ".cg"),
}
_IGNORED = {
    ".ca": "an L1 is not modelled",
    ".cg": "an L1 is not modelled",
    ".L2::cache_hint": "what L2 keeps is not modelled",
} | dict.fromkeys(_SETS["PREFETCH"], "a hint: no value changes")  # fmt: skip
_HEAD = "cp.async.SIZE.SHARED.global{.L2::cache_hint}{.PREFETCH} [a], [b], size"
_TYPES = {"a": "shared", "b": "global", "size": "imm", "policy": "b64"}


def copy_word(target: int, source: int, size: int) -> int:
    """The immediate of LDGSTS: signed 24-bit offsets of target and source, bits 48.. log2(bytes / 4)."""
    return target & 0xFFFFFF | (source & 0xFFFFFF) << 24 | {4: 0, 8: 1, 16: 2}[size] << 48


def _copy(e: Emitter, m: Match, read: Value, ignore: Value) -> None:
    """One LDGSTS of `read` bytes, none where `ignore` holds."""
    sizes = (16,) if m["SIZE"] == "cg" else (4, 8, 16)
    if m.size not in sizes:
        listed = ", ".join(map(str, sizes))
        raise e.error(f"cp.async.{m['SIZE']} copies {listed} bytes, not {m.size}", operand=m.operand("size"))
    if m.has(".L2::cache_hint") != (m.policy is not None):
        raise e.error("a cache policy and .L2::cache_hint come together")
    target: Value = m.a.base
    source: Value = m.b.base
    to, where = offset_of(e, m.a), offset_of(e, m.b)
    if to not in OFFSET:
        target, to = shared_whole(e, m.a), 0
    if where not in OFFSET:
        source, where = generic_whole(e, Address(m.b.base, where)), 0
    e(LDGSTS, None, target, source, read, ignore, imm=copy_word(to, where, m.size))


@instruction(f"{_HEAD}{{, src_size}}{{, policy}};", sets=_SETS, types=_TYPES | {"src_size": "u32"}, ignored=_IGNORED)
def cp_async(e: Emitter, m: Match) -> None:
    """Copy `size` bytes from global to shared memory, asynchronously (PTX ISA 9.7.9.25.3.1).

    Only the first `src_size` bytes are read; zeros fill the rest.
    """
    if isinstance(m.src_size, Const) and m.src_size.bits > m.size:
        raise e.error(f"src-size {m.src_size.bits} is above cp-size {m.size}", operand=m.operand("src_size"))
    _copy(e, m, Const(m.size) if m.src_size is None else m.src_size, PredConst(False))


@instruction(f"{_HEAD}, ignore_src{{, policy}};", sets=_SETS, types=_TYPES | {"ignore_src": "pred"}, ignored=_IGNORED)
def cp_async_ignore(e: Emitter, m: Match) -> None:
    """The same; where `ignore_src` holds, nothing is read and zeros are written (PTX ISA 9.7.9.25.3.1)."""
    _copy(e, m, Const(m.size), m.ignore_src)


@instruction("cp.async.commit_group;")
def commit_group(e: Emitter, m: Match) -> None:
    """The thread's copies so far form a group, which may be empty (PTX ISA 9.7.9.25.3.2)."""
    e(LDGDEPBAR, None)


@instruction("cp.async.wait_group n;", types={"n": "imm"})
def wait_group(e: Emitter, m: Match) -> None:
    """Wait until at most the `n` newest groups are pending (PTX ISA 9.7.9.25.3.3)."""
    if not 0 <= m.n < ALL:
        raise e.error(f"{m.n} groups: expected a count that is not negative", operand=m.operand("n"))
    e(DEPBAR, None, imm=m.n)


@instruction("cp.async.wait_all;")
def wait_all(e: Emitter, m: Match) -> None:
    """Wait for every copy of the thread, whether in a group or not (PTX ISA 9.7.9.25.3.3)."""
    e(DEPBAR, None, imm=ALL)


@instruction(
    "cp.async.mbarrier.arrive{.noinc}.SHARED.b64 [a];",
    "cp.async.mbarrier.arrive{.noinc}.b64 [a];",
    sets=_SETS,
)
def mbarrier_arrive(e: Emitter, m: Match) -> None:
    """Arrive on the mbarrier when all earlier copies of the thread are complete (PTX ISA 9.7.13.15.13).

    Without .noinc the arrival is added to the phase's pending count first.
    """
    base = m.a.base if m["SHARED"] else e.lo(m.a.base)
    e(ARRIVES, None, base, imm=offset_of(e, m.a) & 0xFFFFFFFF | (NOINC if m.has(".noinc") else 0))
