"""Packed single precision (PTX ISA 9.7.3): add, sub, mul and fma of two f32 in a 64-bit register, the first at the bottom.

Each half is what the scalar instruction gives (`isa.ops.float32`); ptxas takes no constants and no .sat here.
"""

from __future__ import annotations

from typing import Any

from isa import bits
from isa.bits import F32, M32
from isa.micro import Micro, VectorBuilder, lane
from isa.ops import float32
from isa.registry import Const, Emitter, Match, instruction
from isa.vectors import nan32

BLACKWELL = ("sm_100",)
Emit = Any


def _both(operands: int, emit: Emit) -> Emit:
    """The emission of both halves from that of one; an immediate behind the operands goes to both."""

    def emit_both(v: VectorBuilder, *args: Any) -> Any:
        pairs, imm = [v.halves(x) for x in args[:operands]], args[operands:]
        low, high = (emit(v, *(v.bits(pair[k], "f32") for pair in pairs), *imm) for k in (0, 1))
        return v.pair(v.bits(low, "u32"), v.bits(high, "u32"))

    return emit_both


def _packed(name: str, operands: int, scalar: Any, emit: Emit, mode: str, ftz: bool | None) -> Micro:
    """A micro-operation on both halves; `ftz` None: an immediate steers it as in `isa.ops.float32`."""

    def half(shift: int, *args: int) -> int:
        imm = args[operands] if ftz is None else int(ftz)
        result = scalar(F32, *(x >> shift & M32 for x in args[:operands]), mode=mode, ftz=bool(imm & float32.FTZ))
        return bits.saturate(F32, result) if imm & float32.SAT else int(result)

    sig = "U" * operands + ("i" if ftz is None else "") + "->U"
    doc = f"{scalar.__name__} of both halves" + ("; imm bit 0 .ftz, bit 1 .sat" if ftz is None else "")
    return lane(name, sig, "fma2", lambda *args: half(32, *args) << 32 | half(0, *args), _both(operands, emit), doc)


def _nearest(name: str, operands: int, scalar: Any, plain: Emit, flushing: Emit) -> dict[bool, Micro]:
    return {
        False: _packed(name, operands, scalar, plain, "rn", False),
        True: _packed(f"{name}.FTZ", operands, scalar, flushing, "rn", True),
    }


def _directed(name: str, operands: int, scalar: Any, emit: Any) -> dict[str, Micro]:
    return {
        mode: _packed(f"{name}.{mode.upper()}", operands, scalar, emit(mode), mode, None) for mode in float32.ROUND[1:]
    }


def _minus(emit: Emit) -> Emit:
    return lambda v, a, b, *imm: emit(v, a, v.fneg(b), *imm)


def _mul(v: VectorBuilder, a: Any, b: Any) -> Any:
    return nan32(v, v.fmul(a, b))


def _fma(v: VectorBuilder, a: Any, b: Any, c: Any) -> Any:
    return nan32(v, v.fma(a, b, c))


NEAREST = {
    "add": _nearest("FADD2", 2, bits.add, float32.add_rn, float32.add_ftz),
    "sub": _nearest("FADD2.NEG", 2, bits.sub, _minus(float32.add_rn), _minus(float32.add_ftz)),
    "mul": _nearest("FMUL2", 2, bits.mul, _mul, float32.mul_ftz),
    "fma": _nearest("FFMA2", 3, bits.fma, _fma, float32.fma_ftz),
}
DIRECTED = {
    "add": _directed("FADD2", 2, bits.add, float32.add_directed),
    "sub": _directed("FADD2.NEG", 2, bits.sub, lambda mode: _minus(float32.add_directed(mode))),
    "mul": _directed("FMUL2", 2, bits.mul, float32.mul_directed),
    "fma": _directed("FFMA2", 3, bits.fma, float32.fma_directed),
}


@instruction(
    "add{.RND}{.ftz}.f32x2 d, a, b;",
    "sub{.RND}{.ftz}.f32x2 d, a, b;",
    "mul{.RND}{.ftz}.f32x2 d, a, b;",
    "fma.RND{.ftz}.f32x2 d, a, b, c;",
    sets={"RND": float32.ROUND},
    targets=BLACKWELL,
)
def packed(e: Emitter, m: Match) -> None:
    """d = a + b, a - b, a * b or a * b + c in both halves, each rounded once (rn unless said)."""
    op, ftz, mode = m.form.opcode, m.has(".ftz"), m["RND"] or "rn"
    sources = [m.a, m.b, m.c] if op == "fma" else [m.a, m.b]
    for name, source in zip("abc", sources, strict=False):
        if isinstance(source, Const):
            raise e.error("an .f32x2 operand takes no constant", "mov.b64 it into a register", m.operand(name))
    if mode == "rn":
        e(NEAREST[op][ftz], m.d, *sources)
    else:
        e(DIRECTED[op][mode], m.d, *sources, imm=int(ftz))
