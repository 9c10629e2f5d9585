"""Device functions and calls: values on the machine, what is refused, and printing that ptxas accepts."""

from __future__ import annotations

import numpy as np
import pytest

import emu
from isa.assembler import assemble
from isa.errors import AssemblyError, UnsupportedError
from isa.expand import expand
from isa.ptx import to_ptx

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
# As nvcc 13.0 writes them: by-value structs, results, several returns, a call in a loop, a function that calls one.
NVCC = (
    HEAD
    + """
.extern .func (.param .b32 func_retval0) vprintf (.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
.const .align 4 .b8 cc[16] = {0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 128, 64};
.func (.param .align 4 .b8 func_retval0[16]) make(.param .align 4 .b8 make_param_0[16], .param .b32 make_param_1)
{
    .reg .f32 %f<5>; .reg .b32 %r<4>;
    ld.param.u32 %r1, [make_param_1];
    ld.param.u32 %r2, [make_param_0+12];
    add.s32 %r3, %r2, %r1;
    ld.param.f32 %f1, [make_param_0+4];
    add.f32 %f2, %f1, %f1;
    ld.param.v2.f32 {%f3, %f4}, [make_param_0];
    st.param.f32 [func_retval0+0], %f3;
    st.param.f32 [func_retval0+4], %f2;
    st.param.f32 [func_retval0+8], %f4;
    st.param.b32 [func_retval0+12], %r3;
    ret;
}
.func (.param .b32 func_retval0) poly(.param .b32 poly_param_0, .param .b32 poly_param_1)
{
    .reg .pred %p<3>; .reg .f32 %f<5>; .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.f32 %f1, [poly_param_0];
    ld.param.u32 %r1, [poly_param_1];
    mov.f32 %f2, 0f00000000;
    setp.lt.s32 %p1, %r1, 1;
    @%p1 bra DONE;
    mov.u64 %rd1, cc;
    mul.wide.s32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
NEXT:
    ld.const.f32 %f3, [%rd3+-4];
    fma.rn.f32 %f2, %f2, %f1, %f3;
    add.s64 %rd3, %rd3, -4;
    setp.ne.s64 %p2, %rd3, %rd1;
    @%p2 bra NEXT;
DONE:
    st.param.f32 [func_retval0+0], %f2;
    ret;
}
.func put(.param .b64 put_param_0, .param .b32 put_param_1, .param .b32 put_param_2)
{
    .reg .pred %p<2>; .reg .f32 %f<3>; .reg .b32 %r<2>; .reg .b64 %rd<5>;
    ld.param.u64 %rd2, [put_param_0];
    ld.param.u32 %r1, [put_param_1];
    ld.param.f32 %f1, [put_param_2];
    mul.wide.s32 %rd4, %r1, 4;
    add.s64 %rd1, %rd2, %rd4;
    setp.gt.f32 %p1, %f1, 0f41200000;
    @!%p1 bra SMALL;
    st.global.f32 [%rd1], %f1;
    ret;
SMALL:
    { .param .b32 param0; st.param.f32 [param0+0], %f1; .param .b32 param1; st.param.b32 [param1+0], 2; .param .b32 retval0;
      call.uni (retval0), poly, (param0, param1);
      ld.param.f32 %f2, [retval0+0]; }
    neg.f32 %f2, %f2;
    st.global.f32 [%rd1], %f2;
    ret;
}
.visible .entry k(.param .u64 k_param_0, .param .align 4 .b8 k_param_1[16])
{
    .reg .f32 %f<13>; .reg .b32 %r<6>; .reg .b64 %rd<5>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [k_param_0];
    mov.u32 %r1, %tid.x;
    {
    .reg .b32 temp_param_reg;
    .param .align 4 .b8 param0[16];
    ld.param.f32 %f2, [k_param_1]; st.param.f32 [param0+0], %f2;
    ld.param.f32 %f3, [k_param_1+4]; st.param.f32 [param0+4], %f3;
    ld.param.f32 %f4, [k_param_1+8]; st.param.f32 [param0+8], %f4;
    ld.param.b32 %r2, [k_param_1+12]; st.param.b32 [param0+12], %r2;
    .param .b32 param1; st.param.b32 [param1+0], %r1;
    .param .align 4 .b8 retval0[16];
    call.uni (retval0), make, (param0, param1);
    ld.param.f32 %f5, [retval0+0]; ld.param.f32 %f6, [retval0+4]; ld.param.b32 %r3, [retval0+12];
    }
    cvt.rn.f32.s32 %f7, %r3;
    add.f32 %f8, %f6, %f7;
    setp.ge.u32 %p1, %r1, 24;
    @%p1 mov.f32 %f8, %f5;
    {
    .param .b64 param0; st.param.b64 [param0+0], %rd1;
    .param .b32 param1; st.param.b32 [param1+0], %r1;
    .param .b32 param2; st.param.f32 [param2+0], %f8;
    call.uni put, (param0, param1, param2);
    }
    ret;
}
"""
)


def expected(lane: int, p: tuple[float, float, float, int]) -> float:
    v = np.float32(p[0] if lane >= 24 else 2 * p[1] + p[3] + lane)
    return float(v) if v > 10 else -(1 + 2 * float(v))


def test_functions_as_nvcc_writes_them() -> None:
    y = np.zeros(32, np.float32)
    struct = np.array([1.5, 2.0, 3.0], np.float32).tobytes() + np.int32(-5).tobytes()
    result = emu.launch(emu.load(text=NVCC, kernel="k"), machine="h200", grid=1, block=32, args=[y, struct])
    assert not result.findings
    assert y.tolist() == [expected(lane, (1.5, 2.0, 3.0, -5)) for lane in range(32)]


def test_printing(ptxas) -> None:
    module = expand(NVCC, "a.ptx", {}, ())
    text = to_ptx(module)
    again = expand(text, "b.ptx", {}, ())
    assert to_ptx(again) == text
    accepted, messages = ptxas(text, "sm_90a")
    assert accepted, messages


FUNCTION = """.func (.param .b32 out) twice(.param .b32 in) { .reg .b32 %r<3>; ld.param.b32 %r1, [in]; add.u32 %r2, %r1, %r1; st.param.b32 [out], %r2; ret; }
.func recurse(.param .b32 in) { .param .b32 x; st.param.b32 [x], 1; call recurse, (x); ret; }
.extern .func nothing();
.extern .func (.param .b32 func_retval0) vprintf (.param .b64 a, .param .b64 b);
.func (.param .align 2 .b8 out[4]) halves(.param .b32 in) { .reg .b16 %h<3>; .reg .b32 %r<2>; ld.param.b32 %r1, [in]; mov.b32 {%h1, %h2}, %r1; st.param.b16 [out], %h2; st.param.b16 [out+2], %h1; ret; }
"""


def kernel(body: str) -> str:
    return f"{HEAD}{FUNCTION}.visible .entry k(.param .u64 y) {{ .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<4>; ld.param.u64 %rd1, [y];\n{body}\nret; }}"


@pytest.mark.parametrize(
    "body, kind, message",
    [
        ("{ .param .b32 a; st.param.b32 [a], 1; call recurse, (a); }", UnsupportedError, "calls itself"),
        ("call nothing;", UnsupportedError, "has no body here"),
        ("call missing;", AssemblyError, "expected the name of a function"),
        ("{ .param .b32 a; call (a), twice; }", AssemblyError, "1 arguments, found 0"),
        ("{ .param .b64 a; .param .b32 b; call (b), twice, (a); }", AssemblyError, "'in' has 4 bytes, found 8"),
        ("{ .param .b32 a; st.param.b64 [a], %rd1; }", AssemblyError, "outside the 4 bytes"),
        ("{ .param .b32 a; mov.b64 %rd1, a; }", AssemblyError, "address of the function parameter"),
        ("st.param.b64 [y], %rd1;", AssemblyError, "parameters of a kernel cannot be written"),
    ],
)
def test_refusals(body, kind, message) -> None:
    with pytest.raises(kind, match=message):
        assemble(text=kernel(body), kernel="k")


def test_a_guarded_call_and_registers_as_arguments() -> None:
    y = np.zeros(32, np.uint32)
    body = """mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; mov.u32 %r2, 7; setp.lt.u32 %p1, %r1, 5;
        @%p1 call (%r2), twice, (%r1);
        st.global.u32 [%rd1], %r2;"""
    result = emu.launch(emu.load(text=kernel(body), kernel="k"), machine="h200", grid=1, block=32, args=[y])
    assert not result.findings
    assert y.tolist() == [0, 2, 4, 6, 8] + [7] * 27


def test_parts_of_a_word() -> None:
    y = np.zeros(1, np.uint32)
    body = "mov.u32 %r1, 0x12345678; { .param .align 2 .b8 o[4]; call (o), halves, (%r1); ld.param.b32 %r2, [o]; } st.global.u32 [%rd1], %r2;"
    emu.launch(emu.load(text=kernel(body), kernel="k"), machine="h200", grid=1, block=32, args=[y])
    assert y[0] == 0x56781234


def test_unused_functions_cost_nothing() -> None:
    plain = assemble(text=kernel("st.global.u32 [%rd1], 1;"), kernel="k").program("k")
    assert plain.micro_names.count("STG") == 1 and len(plain.instrs) < 5
