"""Special registers: `mov` (and integer `cvt`) from `%tid.x`, `%laneid`, `%clock64`, ... (PTX ISA 10)."""

from __future__ import annotations

from isa.micro import unit
from isa.ops.compare import ISETP
from isa.ops.move import MOV, move64
from isa.program import SHARED_BASE
from isa.registry import Const, Emitter, Match, Value, instruction

VECTORS = (
    "%tid", "%ntid", "%ctaid", "%nctaid",
    "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid",
)  # fmt: skip

# The index of a name is the immediate of S2R and CS2R.32: append, do not reorder.
SPECIAL = (
    *(f"{vector}.{part}" for vector in VECTORS for part in "xyzw"),
    "%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid",
    "%cluster_ctarank", "%cluster_nctarank",
    "%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt",
    "%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi",
    "%dynamic_smem_size", "%total_smem_size",
    *VECTORS,
    "%aggr_smem_size", *(f"%reserved_smem_offset_{x}" for x in ("begin", "end", "cap", "0", "1")),
    *(f"%pm{n}" for n in range(8)), *(f"%pm{n}_64" for n in range(8)), *(f"%envreg{n}" for n in range(32)),
    "%current_graph_exec", "%is_explicit_cluster",
)  # fmt: skip
# Counters of a profiler and registers of a driver, which nobody sets here; the reserved kilobyte begins at 0.
ZERO = frozenset(
    name for name in SPECIAL
    if name.startswith(("%pm", "%envreg", "%reserved_smem_offset_begin", "%current_graph_exec"))
)  # fmt: skip
LONG_ZERO = frozenset(name for name in ZERO if name.endswith("_64") or name == "%current_graph_exec")
RESERVED = frozenset(name for name in SPECIAL if name.startswith("%reserved_smem_offset_") and name not in ZERO)

CLOCK64, GLOBALTIMER = 0, 1  # immediates of CS2R

S2R = unit("S2R", "->u", "s2r", "s2r", "a special register; imm: its index in SPECIAL")
CS2R_32 = unit("CS2R.32", "->u", "clock", "clock", "a half of the cycle counter; imm: its index in SPECIAL")
CS2R = unit("CS2R", "->U", "clock", "clock", "imm 0: %clock64, 1: %globaltimer")

_WIDE = {"%clock64": CLOCK64, "%globaltimer": GLOBALTIMER}
_SHORT = tuple(f"{vector}." for vector in VECTORS[:4])  # the ones that ptxas also reads as 16 bits


def _read(e: Emitter, d: Value, name: str) -> None:
    """d (32 bits) = a special register."""
    if e.target == "sm_80" and ("cluster" in name or name == "%aggr_smem_size"):
        raise e.error(f"{name} needs sm_90 or later, this module targets sm_80")
    if name == "%is_explicit_cluster":
        raise e.error(f"{name} is a predicate", f"write mov.pred .. {name}")
    if name in _WIDE or name in LONG_ZERO or name in VECTORS:
        need = "mov.u64" if name not in VECTORS else "mov.v4.u32, or one component:"
        raise e.error(f"{name} does not fit a 32-bit register", f"write {need} .. {name}")
    if name.endswith(".w") or name in ZERO:  # .w: defined as zero (PTX ISA 10.1)
        e(MOV, d, Const(0))
    elif name in RESERVED:
        e(MOV, d, Const(SHARED_BASE))
    elif name.startswith("%globaltimer_"):
        timer = e.tmp("d")
        e(CS2R, timer, imm=GLOBALTIMER)
        e(MOV, d, e.lo(timer) if name.endswith("lo") else e.hi(timer))
    else:
        e(CS2R_32 if name.startswith("%clock") else S2R, d, imm=SPECIAL.index(name))


@instruction("mov.{u32,s32,b32} d, a;", types={"a": "special"})
def mov_special(e: Emitter, m: Match) -> None:
    """d = a special register of 32 bits (PTX ISA 10).  `.w` components are 0."""
    _read(e, m.d, m.a.name)


@instruction("mov.{u16,s16,b16} d, a;", types={"a": "special"})
def mov_special_16(e: Emitter, m: Match) -> None:
    """d = the low 16 bits of a component of %tid, %ntid, %ctaid or %nctaid, the only ones with a 16-bit form."""
    if not m.a.name.startswith(_SHORT):
        raise e.error(f"{m.a.name} has no 16-bit form", "write mov.u32")
    _read(e, m.d, m.a.name)


@instruction("mov.{u64,s64,b64} d, a;", types={"a": "special"})
def mov_special_64(e: Emitter, m: Match) -> None:
    """d = %clock64, %globaltimer or %gridid (PTX ISA 10.21-10.24)."""
    name = m.a.name
    if name in _WIDE:
        e(CS2R, m.d, imm=_WIDE[name])
    elif name in LONG_ZERO:
        move64(e, m.d, Const(0, "d"))
    elif name == "%gridid":
        _read(e, e.lo(m.d), name)
        e(MOV, e.hi(m.d), Const(0))
    else:
        raise e.error(f"{name} is not 64 bits wide", "write mov.u32")


@instruction("mov.pred p, a;", types={"p": "pred", "a": "special"}, targets=("sm_90", "sm_90a", "sm_100a"))
def mov_special_predicate(e: Emitter, m: Match) -> None:
    """p = %is_explicit_cluster: whether the launch says how large its clusters are (PTX ISA 10)."""
    if m.a.name != "%is_explicit_cluster":
        raise e.error(f"{m.a.name} is no predicate", "write mov.u32")
    word = e.tmp()
    e(S2R, word, imm=SPECIAL.index(m.a.name))
    e(ISETP["ne", "u32"], m.p, word, Const(0))


@instruction("mov.v4.{u32,s32,b32,u16,s16,b16} d, a;", types={"a": "special"})
def mov_special_vector(e: Emitter, m: Match) -> None:
    """The four components of %tid, %ntid, %ctaid, %nctaid or a cluster register; `_` skips one."""
    if m.a.name not in VECTORS or (m.types[0].endswith("16") and f"{m.a.name}." not in _SHORT):
        raise e.error(f"{m.a.name} is not a vector of four .{m.types[0]}")
    for d, part in zip(m.d, "xyzw", strict=True):
        if d is not None:
            _read(e, d, f"{m.a.name}.{part}")


@instruction("cvt.{u32,s32,u64,s64}.u32 d, a;", types={"a": "special"})
def cvt_special(e: Emitter, m: Match) -> None:
    """d = a 32-bit special register, zero-extended: the one arithmetic instruction that ptxas lets read them."""
    if m.types[0].endswith("64"):
        _read(e, e.lo(m.d), m.a.name)
        e(MOV, e.hi(m.d), Const(0))
    else:
        _read(e, m.d, m.a.name)
