"""vprintf: the text of a run, against C's printf of the same values, and what does not fit."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import emu
from emu.result import Result

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.extern .func (.param .b32 func_retval0) vprintf (.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
"""


def variable(name: str, text: str) -> str:
    data = [*text.encode(), 0]
    return f".global .align 1 .b8 {name}[{len(data)}] = {{{', '.join(map(str, data))}}};\n"


def launch(form: str, values: str, size: int, extra: str = "", block: int = 1) -> Result:
    """A kernel as nvcc writes printf: the values in local memory, their address and the format's as parameters."""
    depot = f".local .align 8 .b8 depot[{size}];" if size else ""
    address = "mov.b64 %l, depot; cvta.local.u64 %g, %l;" if size else "mov.b64 %g, 0;"
    text = f"""{HEAD}{variable("form", form)}{extra}
.visible .entry k(.param .u64 out)
{{
    {depot} .reg .b64 %l, %g, %s; .reg .b32 %r, %t, %n; .reg .b64 %out, %d; .reg .pred %p;
    mov.u32 %t, %tid.x;
    {address}
    {values}
    mov.b64 %s, form; cvta.global.u64 %s, %s;
    {{ .param .b64 param0; st.param.b64 [param0], %s; .param .b64 param1; st.param.b64 [param1], %g;
      .param .b32 retval0; call.uni (retval0), vprintf, (param0, param1); ld.param.b32 %n, [retval0]; }}
    ld.param.u64 %out, [out]; mad.wide.u32 %out, %t, 4, %out; st.global.u32 [%out], %n;
    ret;
}}"""
    out = np.full(block, 7, np.int32)
    result = emu.launch(emu.load(text=text), machine="h200", grid=1, block=block, args=[out])
    assert not result.findings, result.findings
    assert not out.any()
    return result


def c_printf(form: str, *values: Any) -> str:
    buffer = ctypes.create_string_buffer(4096)
    ctypes.CDLL(None).snprintf(buffer, 4096, form.encode(), *values)
    return buffer.value.decode()


def test_text_alone() -> None:
    assert launch("100 %% of it\n", "", 0).printed == "100 % of it\n"


CASES = [
    ("%d|%i|%u|%x|%X|%o|%c\n", "i", [-5, 2**31 - 1, 2**32 - 1, 0xBEEF, 0xBEEF, 8, 65]),
    ("%5d|%-5d|%05d|%+d|% d|%#x|%.4d\n", "i", [42, 42, 42, 42, 42, 42, 42]),
    ("%hhd|%hd|%hhu|%hu\n", "i", [300, 70000, 300, 70000]),
    ("%f|%.3f|%8.2e|%g|%G|%-10.1f|\n", "f", [1.5, -2.25, 12345.678, 1e-7, 1e20, 3.14159]),
    ("%ld|%llu|%lx\n", "l", [-(2**40), 2**64 - 1, 2**50]),
    ("%*d|%-*d|%.*d\n", "i", [6, 1, 6, 2, 3, 4]),
]


@pytest.mark.parametrize(("form", "kind", "values"), CASES)
def test_as_in_c(form: str, kind: str, values: list[Any]) -> None:
    size = 4 if kind == "i" else 8
    words = [np.float64(v).view(np.int64) if kind == "f" else v for v in values]
    stores = "".join(
        f"mov.b{8 * size} %{'r' if size == 4 else 'd'}, {int(w)}; st.local.b{8 * size} [%l+{size * k}], %{'r' if size == 4 else 'd'};\n"
        for k, w in enumerate(words)
    )
    kinds = {"i": ctypes.c_int, "l": ctypes.c_longlong, "f": ctypes.c_double}
    given = [kinds[kind](v - (1 << 64 if kind == "l" and v >> 63 > 0 else 0)) for v in values]
    if kind == "i":
        given = [ctypes.c_int(ctypes.c_int32(v & 0xFFFFFFFF).value) for v in values]
    assert launch(form, stores, size * len(values)).printed == c_printf(form, *given)


def test_mixed_values_and_strings() -> None:
    """Natural alignment; a string in the program's variables, a pointer that leads nowhere."""
    stores = """mov.b32 %r, 3; st.local.b32 [%l], %r; mov.b64 %d, word; cvta.global.u64 %d, %d; st.local.b64 [%l+8], %d;
        mov.b64 %d, 0d3FF8000000000000; st.local.b64 [%l+16], %d; mov.b64 %d, 64; st.local.b64 [%l+24], %d;"""
    result = launch("%d %s %.2f %s", stores, 32, variable("word", "häuser"))
    assert result.printed == "3 häuser 1.50 <no string at 0x40>"
    assert '"printed": "3 ' in result.to_json()


def test_every_thread_prints_and_the_buffer_ends() -> None:
    """Records are taken lane after lane; what comes beyond the buffer is counted."""
    result = launch("%d,", "st.local.b32 [%l], %t;", 8, block=128)
    assert result.printed == "".join(f"{k}," for k in range(128))


def test_the_command_prints_it(warpsmith: Any, tmp_path: Any) -> None:
    path = tmp_path / "hello.ptx"
    path.write_text(
        f"""{HEAD}{variable("form", "hello")}.visible .entry k() {{ .reg .b64 %s; mov.b64 %s, form;
        {{ .param .b64 a; st.param.b64 [a], %s; .param .b64 b; st.param.b64 [b], 0; .param .b32 r; call (r), vprintf, (a, b); }} ret; }}"""
    )
    got = warpsmith("run", str(path), "--grid", "2", "--block", "1")
    assert got.code == 0 and got.out.startswith("hellohello\n"), got.err
