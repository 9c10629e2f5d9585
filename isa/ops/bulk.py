"""Groups of bulk copies: `cp.async.bulk.commit_group`, `.wait_group` (PTX ISA 9.7.9.25.6)."""

from __future__ import annotations

from isa.micro import unit
from isa.registry import Emitter, Match, instruction

READ = 1 << 32

UTMACMDFLUSH = unit("UTMACMDFLUSH", "->", "bulk_commit", "bulk_commit", "close the thread's bulk group", "barrier")
DEPBAR_BULK = unit("DEPBAR.BULK", "->", "bulk_wait", "bulk_wait", "imm: groups that may stay; bit 32 .read", "barrier")

_HOPPER_ON = ("sm_90", "sm_90a", "sm_100a")


@instruction("cp.async.bulk.commit_group;", targets=_HOPPER_ON)
def commit_group(e: Emitter, m: Match) -> None:
    """The thread's bulk stores so far form a group."""
    e(UTMACMDFLUSH, None)


@instruction("cp.async.bulk.wait_group{.read} n;", types={"n": "imm"}, targets=_HOPPER_ON)
def wait_group(e: Emitter, m: Match) -> None:
    """Wait until at most the `n` newest groups are pending; with .read only for their reads of shared memory."""
    if not 0 <= m.n < READ:
        raise e.error(f"{m.n} groups: expected a count that is not negative", operand=m.operand("n"))
    e(DEPBAR_BULK, None, imm=m.n | (READ if m.has(".read") else 0))
