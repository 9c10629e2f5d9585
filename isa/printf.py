"""`vprintf`, the function of the system behind CUDA's printf (CUDA programming guide, "Formatted Output").

A module that declares it gets a body in PTX: a call takes a record of a buffer in global memory by an atomic, and writes the address
of its format there and the bytes that its values point to.  What a run printed is read from the buffer afterwards
(`emu.printed`).  As on a GPU the buffer is finite: later calls are counted only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from isa.declarations import type_bytes
from isa.expand import expand
from isa.syntax import Block, Function, Kernel, Module, Stmt, VarDecl

NAME, BUFFER, ROOM = "vprintf", "$printf", "$printf_room"
BYTES = 1 << 20  # of the buffer: cudaLimitPrintfFifoSize
HEADER = 8  # bytes in front of the records: how many calls there were, bytes of a record
MOST_VALUES = 256  # bytes of a call's values (32 of them)


def with_printf(module: Module) -> Module:
    """The module with a body for vprintf where it declares one without."""
    declared = [f for f in module.items if isinstance(f, Function) and f.name == NAME]
    if not declared or any(f.body is not None for f in declared):
        return module
    size = _values(module)
    system = expand(_text(size, module.target), "<vprintf>")
    taken = {item.name for item in module.items if isinstance(item, VarDecl)}
    if BUFFER in taken:
        return module
    kept = tuple(item for item in module.items if not (isinstance(item, Function) and item.name == NAME))
    return replace(module, items=(*system.items, *kept))


def _values(module: Module) -> int:
    """Bytes that a call copies: no more than any function keeps in local memory, where compilers put the values."""
    bodies = [item.body or () for item in module.items if isinstance(item, Kernel | Function)]
    return min(max([_local(body) for body in bodies], default=0), MOST_VALUES)


def _local(body: Iterable[Stmt]) -> int:
    total = 0
    for statement in body:
        if isinstance(statement, VarDecl) and statement.space == "local":
            total += type_bytes(statement.type) * (statement.count or 0) + statement.align
        elif isinstance(statement, Block):
            total += _local(statement.body)
    return -(-total // 8) * 8


def _text(size: int, target: str) -> str:
    record = 8 + size  # the address of the format, then the values
    words = range(0, size, 8)
    # The values may lie at the end of local memory: what is read beyond them is there, and is not looked at.
    room = f".local .align 8 .b8 {ROOM}[{size}];" if size else ""
    loads = "".join(f"    ld.b64 %w, [%v+{k}];\n    st.global.b64 [%at+{HEADER + 8 + k}], %w;\n" for k in words)
    return f""".version 8.0
.target {target}
.address_size 64
.global .align 8 .b32 {BUFFER}[{BYTES // 4}] = {{0, {record}}};
.func (.param .b32 out) {NAME}(.param .b64 format, .param .b64 values)
{{
    .reg .b64 %f, %v, %w, %at, %base;
    .reg .b32 %n;
    .reg .pred %p;
    {room}
    ld.param.b64 %f, [format];
    ld.param.b64 %v, [values];
    mov.b64 %base, {BUFFER};
    atom.global.add.u32 %n, [%base], 1;
    st.param.b32 [out], -1;
    setp.ge.u32 %p, %n, {(BYTES - HEADER) // record};
    @%p bra DONE;
    st.param.b32 [out], 0;
    mad.wide.u32 %at, %n, {record}, %base;
    st.global.b64 [%at+{HEADER}], %f;
    setp.eq.u64 %p, %v, 0;
    @%p bra DONE;
{loads}DONE:
    ret;
}}
"""
