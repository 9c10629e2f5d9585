"""Immediates in words: the packed fields of memory, matrix, barrier, tensor and wgmma operations (docs/architecture.md 3).

Which layout an operation uses stands in its description, as `imm: memory word`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from isa.micro import Micro
from isa.ops import atomic, mbarrier, tma
from isa.ops.special import SPECIAL
from isa.ops.warp import SHUFFLES, VOTES
from isa.ops.wgmma import KINDS

NAMED = re.compile(r"imm: ([\w ]+)")
MMA_FLAGS = ("f16 result", "negate A", "negate B", "transpose A", "transpose B", "A in registers", "satfinite")


def readable(op: Micro, imm: int) -> str:
    """The immediate of an operation as its description says; hexadecimal where that names no layout."""
    found = NAMED.search(op.doc)
    read = READERS.get(found[1].strip()) if found else None
    return read(imm) if read else hex(imm)


def offset(word: int) -> str:
    """The low 32 bits as a signed byte offset, nothing for zero."""
    low = word & 0xFFFFFFFF
    signed = low - (low >> 31 << 32)
    return f"{signed:+#x}" if signed else ""


def memory(word: int) -> str:
    """`+0x10 s16 x4`: offset, element, elements."""
    bits, elements = 8 << (word >> 32 & 15), word >> 40 & 255
    return _join(offset(word), f"{'s' if word >> 36 & 1 else 'b'}{bits}", f"x{elements}" if elements > 1 else "")


def matrix(word: int) -> str:
    """`+0x10 x4 trans`."""
    return _join(offset(word), f"x{word >> 40 & 255}", "trans" if word >> 32 & 1 else "")


def barrier(word: int) -> str:
    """Of an arrival."""
    flags = {"drop": mbarrier.DROP, "noComplete": mbarrier.NO_COMPLETE, "expect_tx": mbarrier.EXPECT_TX}
    return _join(offset(word), *(name for name, flag in flags.items() if word & flag))


def wait(word: int) -> str:
    """Of a wait on a barrier."""
    flags = {"test": mbarrier.TEST_ONLY, "hint": mbarrier.HINTED}
    return _join(offset(word), *(name for name, flag in flags.items() if word & flag))


def tensor(word: int) -> str:
    """`2d multicast`."""
    return _join(f"{word & 15}d", "multicast" if word & tma.MULTICAST else "")


def wgmma(word: int) -> str:
    """`n64 f16, negate A`."""
    kinds = {code: name for name, code in KINDS.items()}
    a = kinds.get(word >> 12 & 15, "?")
    b = kinds.get(word >> 24 & 15, a) if word >> 24 & 15 else a
    flags = [name for bit, name in enumerate(MMA_FLAGS, 16) if word >> bit & 1]
    return ", ".join([f"n{word & 511} {a if a == b else f'{a} {b}'}", *flags])


def mma(word: int) -> str:
    """`k16 f16, f16 result`."""
    kinds = {code: name for name, code in KINDS.items()}
    a, b = (kinds.get(word >> at & 15, "?") for at in (8, 12))
    flags = [name for bit, name in enumerate(("f16 result", "f16 sum", "satfinite"), 16) if word >> bit & 1]
    return ", ".join([f"k{word & 255} {a if a == b else f'{a} {b}'}", *flags])


def copy(word: int) -> str:
    """`+0x10 -> +0x20, 16 bytes`: offsets of source and target."""
    target, source = ((word >> at & 0xFFFFFF ^ 1 << 23) - (1 << 23) for at in (0, 24))
    moved = f"{source:+#x} -> {target:+#x}, " if source or target else ""
    return f"{moved}{4 << (word >> 48 & 3)} bytes"


def atom(word: int) -> str:
    """`+0x10 add f32 x4`."""
    elements = word >> 40 & 255
    names = atomic.OPERATIONS[word >> 32 & 15], atomic.TYPES[word >> 36 & 15]
    return _join(offset(word), *names, f"x{elements}" if elements > 1 else "")


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _one_of(names: dict[str, int]) -> Callable[[int], str]:
    return {code: name for name, code in names.items()}.__getitem__


READERS: dict[str, Callable[[int], str]] = {
    "memory word": memory,
    "matrix word": matrix,
    "barrier word": barrier,
    "wait word": wait,
    "byte offset": offset,
    "tensor word": tensor,
    "wgmma word": wgmma,
    "mma word": mma,
    "copy word": copy,
    "atomic word": atom,
    "groups that may stay": lambda word: _join(str(word & 0xFFFFFFFF), "read" if word >> 32 else ""),
    "registers a thread": lambda word: str(word & 0xFFFFFFFF),
    "its index in SPECIAL": SPECIAL.__getitem__,
    "SHUFFLES": _one_of(SHUFFLES),
    "VOTES": _one_of(VOTES),
    "BALLOT": lambda _: "",
}
