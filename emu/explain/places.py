"""Instructions, warps and barriers by the names that the program's author knows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emu.sm import StreamingMultiprocessor

WORD = re.compile(r"(?<![%\w])[A-Za-z_]\w+")
MACRO = re.compile(r"\s*\.macro\s+(\w+)")
LONGEST_CALL = 40  # characters of a call that are shown
LINES_OF_ONE = 4  # that an instruction is looked for in
OPERAND = re.compile(r"\[([^\]]*)\]")


def place(sm: StreamingMultiprocessor, pc: int) -> tuple[str, str, str]:
    """(file:line:col, role, source text) of an instruction."""
    program = sm.program
    pc = min(max(pc, 0), len(program.lines) - 1)
    pos = program.lines[pc]
    return str(pos), role(sm, pc), _line(sm, pos) or program.micro_names[pc]


def short(sm: StreamingMultiprocessor, pc: int, quote: bool = False) -> str:
    """`ring.mptx:30 (release(K_EMPTY, %slot) at fa3_tile.mptx:24)`: the line, its text if `quote`, and the call that it came from."""
    pos = sm.program.lines[min(max(pc, 0), len(sm.program.lines) - 1)]
    text = f"{PurePath(pos.file).name}:{pos.line}"
    if quote:
        text += f" `{_statement(sm, pos)}`"
    if pos.via:
        text += f" ({_call(sm, pos)} at {PurePath(pos.via[0].file).name}:{pos.via[0].line})"
    return text


def _call(sm: StreamingMultiprocessor, pos: Any) -> str:
    """The call that an expanded line came from: of a long line only the name of the macro that the line lies in."""
    line = _bare(_line(sm, pos.via[0])).rstrip("; {")
    if len(line) <= LONGEST_CALL and not line.startswith("."):
        return line
    heads = (MACRO.match(text) for text in reversed(sm.program.source.get(pos.file, [])[: pos.line]))
    name = next((head.group(1) for head in heads if head), "")
    if not re.search(rf"\b{name}\(", line):
        return line if len(line) <= LONGEST_CALL else line.split()[0] + " ..."
    return f"{name}()" if re.search(rf"\b{name}\(\)", line) else f"{name}(...)"


def _bare(line: str) -> str:
    """A source line without its comment."""
    return re.sub(r"\s*//.*", "", line)


def _statement(sm: StreamingMultiprocessor, pos: Any) -> str:
    """An instruction as written, with the lines that it goes on in."""
    lines = sm.program.source.get(pos.file, [])[pos.line - 1 : pos.line + LINES_OF_ONE - 1]
    found: list[str] = []
    for line in map(_bare, lines):
        found.append(line.strip())
        if ";" in line:
            break
    return " ".join(found if ";" in found[-1] else found[:1]) if found else ""


def _line(sm: StreamingMultiprocessor, pos: Any) -> str:
    text: list[str] = sm.program.source.get(pos.file, [])
    return text[pos.line - 1].strip() if 0 < pos.line <= len(text) else ""


def role(sm: StreamingMultiprocessor, pc: int) -> str:
    """The role of an instruction; `main` for code where warps of several roles meet, as at a common exit."""
    program = sm.program
    pc = min(max(pc, 0), len(program.lines) - 1)
    return "main" if program.nobodys[pc] else str(program.roles[program.role_of[pc]])


def span(numbers: Iterable[int]) -> str:
    """`0-3, 5`."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in runs)


def warps_text(numbers: Iterable[int]) -> str:
    """`warp 3` or `warps 4-7`."""
    members = sorted(set(numbers))
    return f"warp{'s' if len(members) > 1 else ''} {span(members)}"


def barrier_name(sm: StreamingMultiprocessor, cta: Any, address: int) -> str:
    """An mbarrier by its variable, or by the words of its mbarrier.init, with its number among those of that line."""
    symbol, at = nearest_symbol(sm, address)
    words = _init_words(sm, cta, address)
    if words and words[0] not in sm.program.shared_symbols:
        pcs = [pc for _, pc in _siblings(sm, cta, address)]
        number = f"[{[a for a, _ in _siblings(sm, cta, address)].index(address)}]" if len(pcs) > 1 else ""
        return words[0] + number
    return symbol + (f" + {address - at}" if address > at else "") if symbol else f"{address:#x}"


def nearest_symbol(sm: StreamingMultiprocessor, address: int) -> tuple[str, int]:
    """The shared variable at or before an address, and where it starts."""
    before = [(at, name) for name, at in sm.program.shared_symbols.items() if at <= address]
    at, name = max(before, default=(0, ""))
    return name, at


def _cell(cta: Any, address: int) -> int:
    return (int(cta["smem_base"]) + address) >> 3


def _init_words(sm: StreamingMultiprocessor, cta: Any, address: int) -> list[str]:
    return operand_words(sm, int(sm.cells["init_pc"][_cell(cta, address)]))


def operand_words(sm: StreamingMultiprocessor, pc: int) -> list[str]:
    """The words of an instruction's address, such as K_EMPTY in [%bars + K_EMPTY]."""
    found = OPERAND.search(_statement(sm, sm.program.lines[pc]))
    return WORD.findall(found.group(1)) if found else []


def _siblings(sm: StreamingMultiprocessor, cta: Any, address: int) -> list[tuple[int, int]]:
    """(address, init pc) of the CTA's mbarriers that were initialised from the same line."""
    mine = sm.program.lines[int(sm.cells["init_pc"][_cell(cta, address)])]
    found = []
    for other in live_mbarriers(sm, cta):
        pc = int(sm.cells["init_pc"][_cell(cta, other)])
        pos = sm.program.lines[pc]
        if (pos.file, pos.line) == (mine.file, mine.line):
            found.append((other, pc))
    return found


def live_mbarriers(sm: StreamingMultiprocessor, cta: Any) -> list[int]:
    """Addresses of a CTA's live mbarriers."""
    first = int(cta["smem_base"]) >> 3
    live = sm.live[first : first + sm.shape.shared_cta // 8].nonzero()[0]
    return [int(k) * 8 for k in live]
