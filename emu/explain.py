"""Faults and deadlocks in words: where, which lane, which barrier, what is missing, what to do."""

from __future__ import annotations

import re
from typing import Any

from emu.memory_map import MemoryMap
from emu.result import Deadlock, Finding, StuckWarp
from emu.sm import StreamingMultiprocessor
from emu.state import (
    BLOCK_BAR,
    BLOCK_BULK_QUEUE,
    BLOCK_BULK_WAIT,
    BLOCK_COPY_QUEUE,
    BLOCK_MBAR,
    BLOCK_MMA_FENCE,
    BLOCK_MMA_QUEUE,
    BLOCK_MMA_WAIT,
    BLOCK_REGISTERS,
    LIVE,
    WARP_SLOTS,
)
from emu.units import common
from emu.units.mbarrier import expected_of, pending_of, phase_of, tx_of

# Fault kind -> (rule, message, remedy); `address`, `aux`, `where` are filled in.
TEMPLATES = {
    common.F_TRAP: ("TRAP", "the program executed trap", ""),
    common.F_SHARED_RANGE: (
        "MEM101",
        "shared memory access of {aux} bytes at {address:#x} is outside the CTA's shared memory",
        "check the index, or give the launch more dynamic shared memory",
    ),
    common.F_SHARED_ALIGN: (
        "MEM102",
        "shared memory access of {aux} bytes at {address:#x} is misaligned",
        "align the address to the size of the access",
    ),
    common.F_GLOBAL_RANGE: (
        "MEM103",
        "global access of {aux} bytes at {address:#x} is outside every array ({where})",
        "check the index and the array's extent",
    ),
    common.F_GLOBAL_ALIGN: (
        "MEM104",
        "global access of {aux} bytes at {address:#x} is misaligned ({where})",
        "align the address to the size of the access",
    ),
    common.F_READ_ONLY: ("MEM105", "write of {aux} bytes to read-only memory at {address:#x} ({where})", ""),
    common.F_LOCAL_RANGE: ("MEM106", "local access of {aux} bytes at {address:#x} is outside the thread's .local", ""),
    common.F_STACK: ("CTL101", "more than {aux} nested divergent paths", "make the inner branches uniform"),
    common.F_PC: ("CTL102", "execution ran past the end of the program", "end every path with ret or exit"),
    common.F_DIVERGED: (
        "WL103",
        "a collective instruction is executed by lanes {aux:#x} only",
        "let all lanes of its mask reach it together",
    ),
    common.F_MBAR_INVALID: (
        "MB101",
        "there is no initialised mbarrier at {address:#x}",
        "mbarrier.init it, and synchronise before others use it",
    ),
    common.F_MBAR_ALIGN: ("MB102", "mbarrier address {address:#x} is not a multiple of 8", ""),
    common.F_MBAR_COUNT: ("MB105", "mbarrier.init with a count of {aux}", "counts are 1 to 1048575"),
    common.F_MBAR_ARRIVALS: (
        "MB106",
        "{aux} arrivals on the mbarrier at {address:#x} are more than its phase still expects (silicon traps)",
        "the init count must equal the arrivals of a phase",
    ),
    common.F_MBAR_TX: (
        "MB107",
        "the mbarrier at {address:#x} would have a tx-count of {aux}, outside +-(2^20-1) (silicon traps)",
        "expect_tx exactly the bytes that copies bring in this phase",
    ),
    common.F_BAR_ID: ("BA101", "barrier {address} does not exist", "a CTA has barriers 0 to 15"),
    common.F_BAR_COUNT: (
        "BA102",
        "barrier {address} with {aux} threads",
        "the count is a multiple of 32, at most the CTA's threads",
    ),
    common.F_BAR_OVERFLOW: (
        "BA103",
        "barrier {address}: participants disagree on the thread count (here {aux})",
        "all participants of one barrier give the same count",
    ),
    common.F_WG_MISMATCH: (
        "WG103",
        "the four warps of the warpgroup do not execute the same wgmma with the same operands",
        "keep wgmma in warpgroup-uniform control flow with uniform descriptors",
    ),
    common.F_DESCRIPTOR: (
        "WG104",
        "wgmma descriptor {address:#018x} reaches outside shared memory",
        "check start address, strides and swizzle (`warpsmith explain wgmma`)",
    ),
    common.F_TMAP: ("TX101", "no valid tensor map at {address:#x}", "pass a TensorMap argument and cvta its address"),
    common.F_TMAP_RANK: ("TX102", "a {aux}-dimensional copy with a tensor map of rank {address}", ""),
    common.F_TMA_ALIGN: (
        "TX103",
        "bulk copy at shared address {address:#x}",
        "128-byte alignment with a swizzle, 16 bytes without; 1024 keeps the 128B pattern",
    ),
    common.F_TMA_MBAR: ("TX104", "the mbarrier of a bulk copy was invalidated before the copy completed", ""),
    common.F_BULK_SIZE: ("TX105", "bulk copy of {aux} bytes", "the size is a multiple of 16 bytes"),
    common.F_SETMAXNREG: (
        "SM103",
        "setmaxnreg to {address} registers from {aux}: inc must not lower, dec must not raise",
        "",
    ),
}
# The parts that are filled in, in the words of `warpsmith explain`.
WORDS = {"{where}": "the nearest array", "{aux:#x}": "<mask>", "{aux}": "<n>", "{address}": "<n>"}


def in_words(message: str) -> str:
    """The message of a fault with words for what a run fills in."""
    for part, word in WORDS.items():
        message = message.replace(part, word)
    return re.sub(r"\{address:[^}]*\}", "<address>", message)


# As `TEMPLATES`, for readers.
FAULTS = {kind: (rule, in_words(message), remedy) for kind, (rule, message, remedy) in TEMPLATES.items()}

# Rules of findings that are no fault of an instruction, and words of the reports: meaning and remedy.
NOTES = {
    "TRAP": (
        "fault",
        "the program executed trap, as programs do where they detect a mistake of their own",
        "see the line that it names",
    ),
    "LIMIT": (
        "limit",
        "the run stopped at its limit of cycles while warps were still running",
        "raise the limit, or look for a loop that does not end",
    ),
    "ASM": (
        "info",
        "a warning of the assembler, such as spills or an ignored setmaxnreg",
        "`warpsmith asm FILE` shows it too",
    ),
    "deadlock": (
        "result",
        "no warp can issue and no copy or wgmma is in flight; the report says what each warp waits for (exit code 3)",
        "find the missing arrival, bytes or warp that it names",
    ),
    "occupancy": (
        "result",
        "CTAs that reside on an SM together, limited by warps, threads, registers, shared memory and CTA slots",
        "",
    ),
    "swizzle": (
        "word",
        "the pattern that spreads 16-byte chunks of a tile over the banks: chunk c of row r lies at c ^ (r % 8) with 128 bytes",
        "tensor map and wgmma descriptor must agree, on tiles aligned to 1024 bytes",
    ),
}


def note(word: str) -> str:
    """`explain` of a finding's rule or a word of the reports; empty for any other word."""
    if word not in NOTES:
        return ""
    kind, meaning, remedy = NOTES[word]
    return f"{kind} {word}: {meaning}{f'; {remedy}' if remedy else ''}\n"


def place(sm: StreamingMultiprocessor, pc: int) -> tuple[str, str, str]:
    """(file:line:col, role, source text) of an instruction."""
    program = sm.program
    pc = min(max(pc, 0), len(program.lines) - 1)
    pos = program.lines[pc]
    text = program.source.get(pos.file, [])
    line = text[pos.line - 1].strip() if 0 < pos.line <= len(text) else program.micro_names[pc]
    return str(pos), program.roles[program.role_of[pc]], line


def explain_fault(sm: StreamingMultiprocessor, memory: MemoryMap) -> Finding:
    """The first fault of a run."""
    S = sm.sm[0]
    rule, message, remedy = TEMPLATES[int(S["fault"])]
    address = int(S["fault_address"])
    message = message.format(address=address, aux=int(S["fault_aux"]), where=memory.describe(address))
    location, _, text = place(sm, int(S["fault_pc"]))
    warp, lane = int(S["fault_warp"]) % WARP_SLOTS, int(S["fault_lane"])
    cta = int(sm.ctas[int(S["fault_warp"]) // WARP_SLOTS]["id"])
    help_text = f"; {remedy}" if remedy else ""
    full = f"{message} (CTA {cta}, warp {warp}, lane {lane}, cycle {int(S['now']):,}: `{text}`){help_text}"
    return Finding(rule=rule, severity="fault", location=location, message=full)


def explain_deadlock(sm: StreamingMultiprocessor) -> Deadlock:
    """What every warp waits for when nothing can move any more."""
    stuck = []
    for k in range(WARP_SLOTS):
        W = sm.warps[k]
        if W["state"] != LIVE:
            continue
        parked = W["block"] in (BLOCK_MBAR,)
        pc = int(W["wait_pc"]) if parked else max(int(W["pc"]) - (0 if _retries(W) else 1), 0)
        location, role, text = place(sm, pc)
        stuck.append(
            StuckWarp(
                cta=int(sm.ctas[int(W["cta"])]["id"]),
                warp=int(W["index"]),
                role=role,
                location=location,
                instruction=text,
                waits_for=waits_for(sm, W),
            )
        )
    cycle = int(sm.sm[0]["now"])
    text = f"no warp can issue and no copy or wgmma is in flight: {len(stuck)} warps wait for each other"
    return Deadlock(cycle=cycle, message=text, warps=stuck)


def _retries(W: Any) -> bool:
    return int(W["block"]) in (BLOCK_MMA_QUEUE, BLOCK_BULK_QUEUE, BLOCK_COPY_QUEUE, BLOCK_REGISTERS)


def waits_for(sm: StreamingMultiprocessor, W: Any) -> str:
    """What a parked warp needs, with the state of the thing that it waits on."""
    block = int(W["block"])
    if block == BLOCK_MBAR:
        return _mbarrier(sm, W)
    if block == BLOCK_BAR:
        cta, slot = sm.ctas[int(W["cta"])], int(W["wait_slot"])
        have, need = int(cta["bar_arrived"][slot]), int(cta["bar_expected"][slot])
        return f"barrier {slot}: {have} of {need} threads have arrived, {need - have} are missing"
    if block == BLOCK_MMA_FENCE:
        count = int(sm.groups[int(W["slot"]) // 4]["fence_count"])
        return f"wgmma.fence: {count} of the warpgroup's 4 warps are here"
    if block in (BLOCK_MMA_WAIT, BLOCK_MMA_QUEUE):
        group = sm.groups[int(W["slot"]) // 4]
        k = int(group["started"]) % len(group["arrived"])
        return f"wgmma: the next one has been issued by {int(group['arrived'][k])} of the warpgroup's 4 warps"
    if block == BLOCK_REGISTERS:
        pool, need = int(sm.ctas[int(W["cta"])]["pool"]), int(W["wait_aux"])
        return f"setmaxnreg.inc: needs {need} registers, the CTA's pool has {pool}"
    if block == BLOCK_BULK_WAIT:
        return "bulk groups that never complete"
    return "its own instruction stream"


def _mbarrier(sm: StreamingMultiprocessor, W: Any) -> str:
    cell = int(W["wait_slot"])
    word = int(sm.mbars[cell])
    offset = cell * 8 - int(W["smem_base"])
    pending, tx = pending_of.py_func(word), tx_of.py_func(word)
    symbols = [(at, name) for name, at in sm.program.shared_symbols.items() if at <= offset]
    name = ""
    if symbols:
        at, symbol = max(symbols)
        name = f" ({symbol}{f' + {offset - at}' if offset > at else ''})"
    missing = [f"{pending} of {expected_of.py_func(word)} arrivals"] if pending else []
    if tx:
        missing.append(f"{tx} bytes" if tx > 0 else f"an expect_tx for {-tx} bytes more: copies brought more than was announced")
    return (
        f"mbarrier at {offset:#x}{name}: waits for the phase of parity {int(W['wait_aux'])}, "
        f"current parity {phase_of.py_func(word)}, pending: {' and '.join(missing) or 'nothing'}"
    )
