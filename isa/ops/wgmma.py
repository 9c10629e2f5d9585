"""Matrix products of a warpgroup: `wgmma` (PTX ISA 9.7.15)."""

from __future__ import annotations

from isa.micro import unit
from isa.registry import HOPPER, Emitter, Match, Value, instruction

KINDS = {name: code for code, name in enumerate(("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"))}
KINDS["b1"] = 10  # behind those of tcgen05

_DOC = "imm: wgmma word; the result list is read too, unless scale-d is constantly false"
HGMMA = unit("HGMMA", "UUp->L", "wgmma", "wgmma_mma", f"descriptors of A and B, scale-d; {_DOC}", "collective")
HGMMA_RS = unit("HGMMA.RS", "UpL->L", "wgmma", "wgmma_mma", f"descriptor of B, scale-d, [A]; {_DOC}", "collective")
ARRIVE = unit("WARPGROUP.ARRIVE", "->", "wgmma_fence", "wgmma_fence", "", "barrier", "collective")
COMMIT = unit("WARPGROUP.COMMIT", "->", "wgmma_commit", "wgmma_commit", "", "barrier", "collective")
DEPBAR = unit(
    "WARPGROUP.DEPBAR", "->", "wgmma_wait", "wgmma_wait", "imm: groups that may stay", "barrier", "collective"
)


def wgmma_word(
    n: int,
    a: str,
    b: str | None = None,
    *,
    d_f16: bool = False,
    negate_a: bool = False,
    negate_b: bool = False,
    trans_a: bool = False,
    trans_b: bool = False,
    a_registers: bool = False,
    satfinite: bool = False,
) -> int:
    """The immediate of HGMMA (docs/architecture.md 3).

    `n`: columns of D; `a`, `b`: element types by their PTX names (b None: as a).
    """
    flags = (d_f16, negate_a, negate_b, trans_a, trans_b, a_registers, satfinite)
    word = n | KINDS[a] << 12 | sum(flag << bit for bit, flag in enumerate(flags, 16))
    return word if b in (None, a) else word | KINDS[str(b)] << 24


def _shapes(k: int, columns: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f".m64n{n}k{k}" for n in columns)


COLUMNS = tuple(range(8, 257, 8))  # PTX ISA 9.7.15.2
INTEGER_COLUMNS = (8, 16, 24, 32, *range(48, 257, 16))
_SETS = {
    "K16": _shapes(16, COLUMNS),
    "K8": _shapes(8, COLUMNS),
    "K32": _shapes(32, COLUMNS),
    "I32": _shapes(32, INTEGER_COLUMNS),
    "I256": _shapes(256, INTEGER_COLUMNS),
}
_A = {"a_desc": "desc", "b_desc": "desc", "a": "vec:u32:4", "scale_d": "pred"}
_A |= dict.fromkeys(("imm_scale_a", "imm_scale_b", "imm_trans_a", "imm_trans_b"), "imm")
_F32, _U32 = _A | {"d": "vec:f32"}, _A | {"d": "vec:u32"}

_MMA = "wgmma.mma_async.sync.aligned"
_SS, _RS = "{d}, a-desc, b-desc, scale-d", "{d}, {a}, b-desc, scale-d"
_SCALES = "imm-scale-a, imm-scale-b"


def _half_forms(types: str) -> tuple[str, str]:
    """SS and RS lines of the 16-bit types, whose operands in shared memory may be transposed."""
    opcode = f"{_MMA}.K16.{types}"
    return f"{opcode} {_SS}, {_SCALES}, imm-trans-a, imm-trans-b;", f"{opcode} {_RS}, {_SCALES}, imm-trans-b;"


def _forms(shape: str, types: str, rest: str) -> tuple[str, str]:
    return f"{_MMA}.{shape}.{types} {_SS}{rest};", f"{_MMA}.{shape}.{types} {_RS}{rest};"


def _flag(e: Emitter, m: Match, name: str, legal: tuple[int, int]) -> bool:
    """An immediate flag: whether the second legal value is given.  Absent ones are the first."""
    node = m.operand(name)
    if node is None:
        return False
    value: int = getattr(m, name)
    if value not in legal:
        low, high = sorted(legal)
        raise e.error(f"{name.replace('_', '-')} is {value}, expected {low} or {high}", operand=node)
    return value == legal[1]


def _scale_d(e: Emitter, m: Match) -> Value:
    """scale-d: a predicate, or the constant 0 or 1."""
    value = getattr(m.operand("scale_d"), "value", 0)
    if value not in (0, 1):
        raise e.error(f"scale-d is {value}, expected a predicate, 0 or 1", operand=m.operand("scale_d"))
    found: Value = m.scale_d
    return found


def _columns(m: Match) -> int:
    shape = next(word for word in m.mods if word.startswith("m64n"))
    return int(shape[4 : shape.index("k")])


@instruction(*_half_forms("f32.f16.f16"), *_half_forms("f32.bf16.bf16"), sets=_SETS, types=_F32, targets=HOPPER)
@instruction(*_half_forms("f16.f16.f16"), sets=_SETS, types=_U32, targets=HOPPER)
@instruction(
    *_forms("K8", "f32.tf32.tf32", f", {_SCALES}"),
    *_forms("K32", "f32.{e4m3,e5m2}.{e4m3,e5m2}", f", {_SCALES}"),
    sets=_SETS,
    types=_F32,
    targets=HOPPER,
)
@instruction(*_forms("K32", "f16.{e4m3,e5m2}.{e4m3,e5m2}", f", {_SCALES}"), sets=_SETS, types=_U32, targets=HOPPER)
@instruction(*_forms("I32{.satfinite}", "s32.{s8,u8}.{s8,u8}", ""), sets=_SETS, types=_U32, targets=HOPPER)
@instruction(*_forms("I256", "s32.b1.b1.and.popc", ""), sets=_SETS, types=_U32, targets=HOPPER)
def mma_async(e: Emitter, m: Match) -> None:
    """D (64 x N) = A * B, plus D where scale-d is true, asynchronously (PTX ISA 9.7.15.5.2).

    A is a matrix descriptor or four registers, B a descriptor.  D's registers, N/2 of 32 bits (N/4
    packed ones for f16), and A's must not be touched before a wait_group covers the product.
    """
    n = _columns(m)
    d_type, a_type, b_type = m.types[-3:] if len(m.types) > 2 else ("s32", "b1", "b1")
    count = n // 4 if d_type == "f16" else n // 2
    if len(m.d) != count:
        raise e.error(f"D of n{n} in {d_type} has {count} registers, found {len(m.d)}", operand=m.operand("d"))
    if None in m.d:
        raise e.error("D is read and written: '_' cannot stand in it", operand=m.operand("d"))
    registers = m.operand("a") is not None
    word = wgmma_word(
        n,
        a_type,
        b_type,
        d_f16=d_type == "f16",
        negate_a=_flag(e, m, "imm_scale_a", (1, -1)),
        negate_b=_flag(e, m, "imm_scale_b", (1, -1)),
        trans_a=_flag(e, m, "imm_trans_a", (0, 1)),
        trans_b=_flag(e, m, "imm_trans_b", (0, 1)),
        a_registers=registers,
        satfinite=m.has(".satfinite"),
    )
    scale = _scale_d(e, m)
    if registers:
        e(HGMMA_RS, list(m.d), m.b_desc, scale, list(m.a), imm=word)
    else:
        e(HGMMA, list(m.d), m.a_desc, m.b_desc, scale, imm=word)


@instruction("wgmma.fence.sync.aligned;", targets=HOPPER)
def fence(e: Emitter, m: Match) -> None:
    """Registers that ordinary instructions wrote are ready for the next mma_async (PTX ISA 9.7.15.7.1)."""
    e(ARRIVE, None)


@instruction("wgmma.commit_group.sync.aligned;", targets=HOPPER)
def commit_group(e: Emitter, m: Match) -> None:
    """The products so far form a group (PTX ISA 9.7.15.7.2)."""
    e(COMMIT, None)


@instruction("wgmma.wait_group.sync.aligned n;", types={"n": "imm"}, targets=HOPPER)
def wait_group(e: Emitter, m: Match) -> None:
    """Wait until at most the `n` newest groups are pending (PTX ISA 9.7.15.7.3)."""
    if not 0 <= m.n < 1 << 31:
        raise e.error(f"{m.n} groups: expected a count that is not negative", operand=m.operand("n"))
    e(DEPBAR, None, imm=m.n)
