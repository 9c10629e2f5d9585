"""Adds clock readings to a kernel's PTX, so that a GPU without counters still reports SM cycles.

Every warp writes three 64-bit words: the SM that it runs on, its clock at the kernel's first
instruction, and its clock when it leaves.  The kernel gets one more parameter, the address of the
table.  The start clock is stored at once, so the kernel keeps its register count; what is added is a
few instructions at the entry and before each exit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

TABLE_PARAMETER = "clock_table"
WORDS = 3  # sm, start, end

_ROW = """
    {{
    .reg .b32 %ck<8>;
    .reg .b64 %cd<6>;
    .reg .pred %cp;
    mov.u32 %ck0, %tid.x;
    mov.u32 %ck1, %ntid.x;
    mov.u32 %ck2, %tid.y;
    mad.lo.u32 %ck0, %ck2, %ck1, %ck0;
    and.b32 %ck3, %ck0, 31;
    setp.eq.u32 %cp, %ck3, 0;
    mov.u32 %ck2, %ntid.y;
    mul.lo.u32 %ck1, %ck1, %ck2;
    shr.u32 %ck0, %ck0, 5;
    shr.u32 %ck1, %ck1, 5;
    mov.u32 %ck2, %ctaid.z;
    mov.u32 %ck3, %nctaid.y;
    mov.u32 %ck4, %ctaid.y;
    mad.lo.u32 %ck2, %ck2, %ck3, %ck4;
    mov.u32 %ck3, %nctaid.x;
    mov.u32 %ck4, %ctaid.x;
    mad.lo.u32 %ck2, %ck2, %ck3, %ck4;
    mad.lo.u32 %ck0, %ck2, %ck1, %ck0;
    ld.param.u64 %cd0, [{parameter}];
    mul.wide.u32 %cd1, %ck0, {row};
    add.u64 %cd0, %cd0, %cd1;
{work}
    }}
"""

_START = """    mov.u32 %ck5, %smid;
    cvt.u64.u32 %cd2, %ck5;
    mov.u64 %cd3, %clock64;
    @%cp st.global.u64 [%cd0], %cd2;
    @%cp st.global.u64 [%cd0+8], %cd3;"""

_END = """    mov.u64 %cd2, %clock64;
    @%cp st.global.u64 [%cd0+16], %cd2;"""

_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*\(([^)]*)\)([^{]*)\{", re.DOTALL)
_EXIT = re.compile(r"(?<=[;:{}\s])(?:@(!?)(%[\w$]+)\s+)?(ret|exit)(?:\.uni)?\s*;")


class InstrumentError(Exception):
    """The text has no kernel of the wanted name, or is not block structured as expected."""


def with_clocks(text: str, kernel: str) -> str:
    """The PTX text with the clock table added to `kernel` as its last parameter.

    Blocks of fewer than 32 threads, or with x*y not a multiple of 32, are not supported: the table
    has one row a full warp.
    """
    text = re.sub(r"//[^\n]*", "", text)
    match = next((m for m in _ENTRY.finditer(text) if m.group(1) == kernel), None)
    if match is None:
        raise InstrumentError(f"no kernel {kernel} in the PTX")
    close = _matching_brace(text, match.end())
    body = text[match.end() : close]
    parameters = match.group(2).rstrip()
    comma = "," if parameters.strip() else ""
    head = f".entry {kernel}({parameters}{comma}\n    .param .u64 {TABLE_PARAMETER}\n){match.group(3)}{{"
    start = _ROW.format(parameter=TABLE_PARAMETER, row=8 * WORDS, work=_START)
    end = _ROW.format(parameter=TABLE_PARAMETER, row=8 * WORDS, work=_END)
    labels = iter(range(len(body)))

    def before_exit(exit_: re.Match[str]) -> str:
        negated, predicate, opcode = exit_.groups()
        if predicate is None:
            return f"{end}    {opcode};"
        label = f"CLOCK_SKIP_{next(labels)}"
        condition = predicate if negated else f"!{predicate}"
        return f"@{condition} bra {label};{end}    {opcode};\n{label}:"

    return text[: match.start()] + head + start + _EXIT.sub(before_exit, body) + text[close:]


def _matching_brace(text: str, start: int) -> int:
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return at
    raise InstrumentError("unbalanced braces in the PTX")


@dataclass(frozen=True)
class SmTimes:
    """What the table says: cycles of the busiest SM, and the SM clock seen across the launch."""

    cycles_max: int
    sms: int
    warps: int

    @staticmethod
    def of(table: np.ndarray) -> SmTimes:
        """`table` is uint64 [warps, 3] as the kernel wrote it; warps that wrote nothing are left out."""
        rows = table[table[:, 2] != 0]
        spans = []
        for sm in np.unique(rows[:, 0]):
            mine = rows[rows[:, 0] == sm]
            spans.append(int(mine[:, 2].max() - mine[:, 1].min()))
        if not spans:
            return SmTimes(0, 0, 0)
        return SmTimes(max(spans), len(spans), len(rows))
