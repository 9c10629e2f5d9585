"""What a program printed with `vprintf`: the records of its buffer (`isa.printf`) as text."""

from __future__ import annotations

import re
import struct

from emu.memory_map import MemoryMap
from isa.printf import BUFFER, BYTES, HEADER
from isa.program import GLOBAL_BASE, Program

LONGEST = 4096  # bytes of a string
SPEC = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?(?P<size>hh|h|ll|l|j|z|t|L)?(?P<kind>[diouxXfFeEgGaAcsp%])"
)


def printed(program: Program, memory: MemoryMap) -> str:
    """The text of all calls in the order in which they took their records; empty for programs that cannot print."""
    at = program.global_symbols.get(BUFFER)
    if at is None:
        return ""
    start = at - GLOBAL_BASE
    buffer = memory.image[start : start + BYTES].tobytes()
    count = int.from_bytes(buffer[:4], "little")
    record = max(int.from_bytes(buffer[4:8], "little"), 8)
    most = (BYTES - HEADER) // record
    parts = []
    for n in range(min(count, most)):
        entry = buffer[HEADER + n * record : HEADER + (n + 1) * record]
        form = _string(memory, int.from_bytes(entry[:8], "little"))
        parts.append(_Values(entry[8:], memory).text(form))
    if count > most:
        parts.append(f"\n... and {count - most:,} more calls of printf, beyond its buffer of {BYTES:,} bytes\n")
    return "".join(parts)


def _string(memory: MemoryMap, address: int) -> str:
    """The bytes up to a zero at an address of the program's variables or arrays."""
    data = memory.bytes_at(address, LONGEST)
    if data is None:
        return f"<no string at {address:#x}>"
    return data.split(b"\0")[0].decode("utf-8", "replace")


class _Values:
    """The values of one call, taken from its bytes one after the other (C's default promotions, natural alignment)."""

    def __init__(self, data: bytes, memory: MemoryMap) -> None:
        self.data, self.memory, self.at = data, memory, 0

    def text(self, form: str) -> str:
        """The format with its values in place."""
        return SPEC.sub(self._one, form)

    def _take(self, size: int) -> bytes:
        self.at = -(-self.at // size) * size
        found = self.data[self.at : self.at + size].ljust(size, b"\0")
        self.at += size
        return found

    def _count(self, text: str | None) -> str:
        """A width or precision, perhaps a value."""
        return str(int.from_bytes(self._take(4), "little", signed=True)) if text == "*" else text or ""

    def _one(self, spec: re.Match[str]) -> str:
        kind = spec["kind"]
        if kind == "%":
            return "%"
        flags, width = spec["flags"], self._count(spec["width"])
        if width.startswith("-"):
            flags, width = flags + "-", width[1:]
        precision = self._count(spec["precision"]) if spec["precision"] is not None else None
        if int(width or 0) > LONGEST or int(precision or 0) > LONGEST:
            return spec[0]
        points = "" if precision is None or precision.startswith("-") else f".{precision}"
        shape = f"%{flags}{width}{points}"
        if kind in "fFeEgGaA":
            value = float(struct.unpack("<d", self._take(8))[0])
            return f"%{flags}{width}s" % str(value.hex()) if kind in "aA" else f"{shape}{kind}" % float(value)
        if kind == "s":
            return f"{shape}s" % _string(self.memory, int.from_bytes(self._take(8), "little"))
        if kind == "p":
            return f"%{flags}{width}s" % hex(int.from_bytes(self._take(8), "little"))
        return self._integer(spec, shape)

    def _integer(self, spec: re.Match[str], shape: str) -> str:
        kind, size = spec["kind"], spec["size"] or ""
        raw = self._take(8 if size in ("l", "ll", "j", "z", "t") else 4)
        if kind == "c":
            return f"{shape}s" % chr(raw[0])
        value = int.from_bytes(raw, "little", signed=kind in "di")
        bits = {"hh": 8, "h": 16}.get(size)
        if bits:
            value &= (1 << bits) - 1
            value -= (value >> bits - 1 << bits) if kind in "di" else 0
        return f"{shape}{'d' if kind == 'u' else kind}" % value
