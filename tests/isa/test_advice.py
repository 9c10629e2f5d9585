"""Warnings around wgmma: a broken and a fixed twin for each rule, and silence for what ships."""

from __future__ import annotations

import pytest

import programs
from isa.assembler import assemble

D = "{" + ", ".join(f"%f{i}" for i in range(4)) + "}"
A = "{" + ", ".join(f"%r{i}" for i in range(4)) + "}"
SS = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D}, %d1, %d2, 1, 1, 1, 0, 0;"
RS = f"wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {D}, {A}, %d2, 1, 1, 1, 0;"
FENCE, COMMIT, WAIT = (f"wgmma.{x}.sync.aligned" for x in ("fence", "commit_group", "wait_group"))
ZERO = "".join(f"mov.f32 %f{i}, 0f00000000; mov.b32 %r{i}, 0; " for i in range(4)) + "mov.b64 %d1, 0; mov.b64 %d2, 0; "
STORE = "st.global.f32 [%out], %f2;"


def warnings(body: str) -> list[str]:
    """What the assembler says of a kernel."""
    text = f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) .reqntid 128
{{ .reg .f32 %f<9>; .reg .b32 %r<9>; .reg .b64 %d<9>, %out; .reg .pred %p; ld.param.u64 %out, [out];
{ZERO}
{body}
ret; }}"""
    return assemble(text=text).program().warnings


CASES = {
    "no wgmma.fence stands before": (f"{SS} {COMMIT}; {WAIT} 0; {STORE}", f"{FENCE}; {SS} {COMMIT}; {WAIT} 0; {STORE}"),
    "%f1 is touched since the last wgmma.fence": (
        f"{FENCE}; {SS} {COMMIT}; {WAIT} 0; add.f32 %f1, %f1, %f1; {SS} {COMMIT}; {WAIT} 0; {STORE}",
        f"{FENCE}; {SS} {COMMIT}; {WAIT} 0; add.f32 %f1, %f1, %f1; {FENCE}; {SS} {COMMIT}; {WAIT} 0; {STORE}",
    ),
    "%f2 is read while a wgmma still uses it": (
        f"{FENCE}; {SS} {COMMIT}; {STORE} {WAIT} 0;",
        f"{FENCE}; {SS} {COMMIT}; {WAIT} 0; {STORE}",
    ),
    "%f2 is read while": (
        f"{FENCE}; {SS} {COMMIT}; {SS} {COMMIT}; {WAIT} 1; {STORE} {WAIT} 0;",
        f"{FENCE}; {SS} {COMMIT}; {SS} {COMMIT}; {WAIT} 0; {STORE}",
    ),
    "%r3 is written while a wgmma still uses it": (
        f"{FENCE}; {RS} {COMMIT}; mov.b32 %r3, 1; {WAIT} 0; {STORE}",
        f"{FENCE}; {RS} {COMMIT}; add.u32 %r4, %r3, 1; {WAIT} 0; mov.b32 %r3, 1; {STORE}",
    ),
    "%r0 and 2 more are touched since": (  # on the way round the loop only
        f"{FENCE}; AGAIN: {RS} {COMMIT}; {WAIT} 0; setp.eq.f32 %p, %f1, %f2; @%p mov.b32 %r0, 1; @%p bra AGAIN; {STORE}",
        f"AGAIN: {FENCE}; {RS} {COMMIT}; {WAIT} 0; setp.eq.f32 %p, %f1, %f2; @%p mov.b32 %r0, 1; @%p bra AGAIN; {STORE}",
    ),
}


@pytest.mark.parametrize("message", CASES)
def test_twins(message: str) -> None:
    broken, fixed = CASES[message]
    found = warnings(broken)
    assert len(found) == 1 and message in found[0], found
    assert not warnings(fixed)


@pytest.mark.parametrize("name", programs.names())
def test_shipped_programs_are_silent(name: str) -> None:
    """No warning, and no register that is read but never written."""
    problem = programs.find(name).from_options({})
    program = assemble(str(problem.kernel_path), defines=problem.defines).program()
    assert not program.warnings and not program.unwritten
