"""Moves (PTX ISA 9.7.9): mov in all types, packing and unpacking, prmt."""

from __future__ import annotations

from typing import Any

from isa.micro import Micro, VectorBuilder, lane
from isa.registry import Const, Emitter, Match, Value, instruction

# ---- micro-operations ---------------------------------------------------------------------------


def permute_bytes(a: int, b: int, selector: int) -> int:
    """Each selector nibble picks a byte of {b, a}; its top bit replicates that byte's sign."""
    source, result = b << 32 | a, 0
    for k in range(4):
        nibble = selector >> 4 * k & 15
        byte = source >> 8 * (nibble & 7) & 255
        result |= ((255 if byte >> 7 else 0) if nibble & 8 else byte) << 8 * k
    return result


def _permute_emit(v: VectorBuilder, a: Any, b: Any, selector: Any) -> Any:
    source, result = v.pair(a, b), v.const(0)
    for k in range(4):
        nibble = v.and_(v.lshr(selector, v.const(4 * k)), v.const(15))
        count = v.zext(v.shl(v.and_(nibble, v.const(7)), v.const(3)), "u64")
        byte = v.halves(v.lshr(source, count))[0]
        sign = v.ashr(v.shl(byte, v.const(24)), v.const(31))
        wanted = v.select(v.icmp(">", nibble, v.const(7)), sign, byte)
        result = v.or_(result, v.shl(v.and_(wanted, v.const(255)), v.const(8 * k)))
    return result


def _fixed(selector: int, emit: Any, doc: str) -> Micro:
    """prmt with a constant selector that compilers use all the time, in a few vector operations."""
    return lane(f"PRMT.{selector:04x}", "uu->u", "alu", lambda a, b: permute_bytes(a, b, selector), emit, doc)


MOV = lane("MOV", "u->u", "mov", lambda a: a, lambda v, a: a, "a")
PMOV = lane("PLOP3.MOV", "p->p", "predicate", lambda a: a, lambda v, a: a, "a (negated by the operand)")
PRMT = lane("PRMT", "uuu->u", "alu", permute_bytes, _permute_emit, "bytes of {b, a} chosen by the nibbles of c")
PRMT_FIXED = {
    0x5410: _fixed(
        0x5410,
        lambda v, a, b: v.or_(v.and_(a, v.const(0xFFFF)), v.shl(b, v.const(16))),
        "low halves of a (low) and b (high)",
    ),
    0x7632: _fixed(
        0x7632,
        lambda v, a, b: v.or_(v.lshr(a, v.const(16)), v.and_(b, v.const(0xFFFF0000))),
        "high halves of a (low) and b (high)",
    ),
    0x7610: _fixed(
        0x7610,
        lambda v, a, b: v.or_(v.and_(a, v.const(0xFFFF)), v.and_(b, v.const(0xFFFF0000))),
        "low half of a, high half of b",
    ),
    0x1032: _fixed(
        0x1032,
        lambda v, a, b: v.or_(v.lshr(a, v.const(16)), v.shl(a, v.const(16))),
        "halves of a exchanged",
    ),
}


# prmt modes: the selector for each value of c's two low bits (PTX ISA, table of prmt modes).
MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


def _mode(name: str, table: tuple[int, ...]) -> Micro:
    def emit(v: VectorBuilder, a: Any, b: Any, c: Any) -> Any:
        low = v.and_(c, v.const(3))
        selector = v.const(table[3])
        for k in (2, 1, 0):
            selector = v.select(v.icmp("==", low, v.const(k)), v.const(table[k]), selector)
        return _permute_emit(v, a, b, selector)

    return lane(
        f"PRMT.{name.upper()}",
        "uuu->u",
        "alu",
        lambda a, b, c: permute_bytes(a, b, table[c & 3]),
        emit,
        f"prmt with the selectors of mode {name}",
    )


PRMT_MODE = {name: _mode(name, table) for name, table in MODES.items()}


def pack16(e: Emitter, d: Value, low: Value, high: Value) -> None:
    """d = two 16-bit values."""
    e(PRMT_FIXED[0x5410], d, low, high)


def move64(e: Emitter, d: Value, a: Value) -> None:
    """d = a, a MOV per word."""
    e(MOV, e.lo(d), e.lo(a))
    e(MOV, e.hi(d), e.hi(a))


# ---- forms ----------------------------------------------------------------------------------------


@instruction("mov.{b16,u16,s16,b32,u32,s32,f32} d, a;")
def mov(e: Emitter, m: Match) -> None:
    """d = a: a register, a constant, or the address of a variable."""
    e(MOV, m.d, m.a)


@instruction("mov.{b64,u64,s64,f64} d, a;")
def mov64(e: Emitter, m: Match) -> None:
    """d = a, 64 bits."""
    move64(e, m.d, m.a)


@instruction("mov.pred p, a;")
def mov_pred(e: Emitter, m: Match) -> None:
    """p = a."""
    e(PMOV, m.p, m.a)


@instruction("mov.b32 d, {a};", types={"a": "vec:b16:2"})
def mov_pack32(e: Emitter, m: Match) -> None:
    """Two 16-bit values into 32 bits, the first at the bottom."""
    pack16(e, m.d, *m.a)


@instruction("mov.b32 {d}, a;", types={"d": "vec:b16:2"})
def mov_unpack32(e: Emitter, m: Match) -> None:
    """32 bits into two 16-bit registers; None (`_`) discards one."""
    low, high = m.d
    if high is not None:
        e(PRMT_FIXED[0x7632], high, m.a, Const(0))
    if low is not None:
        e(MOV, low, m.a)


@instruction("mov.b64 d, {a};", types={"a": "vec:b32:2"})
def mov_pack64(e: Emitter, m: Match) -> None:
    """Two 32-bit values into 64 bits, the first at the bottom."""
    low, high = m.a
    e(MOV, e.lo(m.d), low)
    e(MOV, e.hi(m.d), high)


@instruction("mov.b64 {d}, a;", types={"d": "vec:b32:2"})
def mov_unpack64(e: Emitter, m: Match) -> None:
    """64 bits into two 32-bit registers."""
    for d, half in zip(m.d, (e.lo(m.a), e.hi(m.a)), strict=True):
        if d is not None:
            e(MOV, d, half)


@instruction("mov.b32 d, {a};", types={"a": "vec:b8:4"})
def mov_pack32_8(e: Emitter, m: Match) -> None:
    """Four 8-bit values into 32 bits, the first at the bottom."""
    low, high = e.tmp(), e.tmp()
    e(PRMT, low, m.a[0], m.a[1], Const(0x0040))
    e(PRMT, high, m.a[2], m.a[3], Const(0x0040))
    pack16(e, m.d, low, high)


@instruction("mov.b32 {d}, a;", types={"d": "vec:b8:4"})
def mov_unpack32_8(e: Emitter, m: Match) -> None:
    """32 bits into four 8-bit registers."""
    word = e.tmp()
    e(MOV, word, m.a)
    for index, d in enumerate(m.d):
        if d is not None:
            e(PRMT, d, word, Const(0), Const(0x4440 | index))


@instruction("mov.b128 d, a;")
def mov128(e: Emitter, m: Match) -> None:
    """d = a, 128 bits."""
    for half in (e.lo, e.hi):
        move64(e, half(m.d), half(m.a))


@instruction("mov.b128 d, {a};", types={"a": "vec:b64:2"})
def mov_pack128(e: Emitter, m: Match) -> None:
    """Two 64-bit values into 128 bits, the first at the bottom."""
    for half, a in zip((e.lo, e.hi), m.a, strict=True):
        move64(e, half(m.d), a)


@instruction("mov.b128 {d}, a;", types={"d": "vec:b64:2"})
def mov_unpack128(e: Emitter, m: Match) -> None:
    """128 bits into two 64-bit registers."""
    for half, d in zip((e.lo, e.hi), m.d, strict=True):
        if d is not None:
            move64(e, d, half(m.a))


@instruction("mov.b64 d, {a};", types={"a": "vec:b16:4"})
def mov_pack64_16(e: Emitter, m: Match) -> None:
    """Four 16-bit values into 64 bits."""
    pack16(e, e.lo(m.d), *m.a[:2])
    pack16(e, e.hi(m.d), *m.a[2:])


@instruction("mov.b64 {d}, a;", types={"d": "vec:b16:4"})
def mov_unpack64_16(e: Emitter, m: Match) -> None:
    """64 bits into four 16-bit registers."""
    for index, d in enumerate(m.d):
        word = (e.lo, e.hi)[index // 2](m.a)
        if d is not None and index % 2:
            e(PRMT_FIXED[0x7632], d, word, Const(0))
        elif d is not None:
            e(MOV, d, word)


@instruction("prmt.b32{.MODE} d, a, b, c;", sets={"MODE": tuple(PRMT_MODE)}, types={"c": "u32"})
def prmt(e: Emitter, m: Match) -> None:
    """Bytes of {b, a} by the selector c, or by a mode and c's two low bits."""
    if m["MODE"]:
        e(PRMT_MODE[m["MODE"]], m.d, m.a, m.b, m.c)
    elif isinstance(m.c, Const) and m.c.bits & 0xFFFF in PRMT_FIXED:
        e(PRMT_FIXED[m.c.bits & 0xFFFF], m.d, m.a, m.b)
    else:
        e(PRMT, m.d, m.a, m.b, m.c)
