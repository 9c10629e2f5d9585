"""Warnings about loads and stores of Tensor Memory that are signalled before they are waited for."""

import pytest

from isa.assembler import assemble

TEXT = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u32 n)
{{
    .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<4>; .shared .align 8 .b64 bar;
    ld.param.u32 %r1, [n]; mov.u32 %r2, bar; setp.eq.u32 %p1, %r1, 0;
    {body}
    ret;
}}
"""
LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [%r1];"
STORE = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%r1};"
LOADED, STORED = "tcgen05.wait::ld.sync.aligned;", "tcgen05.wait::st.sync.aligned;"
ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%r2];"


def warnings(body: str) -> list[str]:
    return [w for w in assemble(text=TEXT.format(body=body)).program().warnings if "tcgen05" in w]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f"{LOAD}\n{ARRIVE}", "tcgen05.wait::ld comes between the tcgen05.ld of line 8 and this arrival"),
        (
            f"{STORE} {LOADED} bar.arrive 1, 64;",
            "tcgen05.wait::st comes between the tcgen05.st of line 8 and this arrival",
        ),
        (f"@%p1 bra OVER; {LOAD} OVER: {ARRIVE} {LOADED}", "tcgen05.ld of line 8"),
        (f"AGAIN: bar.arrive 1, 64; {LOAD} @%p1 bra AGAIN; {LOADED}", "tcgen05.ld of line 8 and this arrival"),
    ],
)
def test_signals_before_the_wait(body, words):
    (warning,) = warnings(body)
    assert words in warning


@pytest.mark.parametrize(
    "body",
    [
        f"{LOAD} {LOADED} {ARRIVE}",
        f"{ARRIVE} {LOAD} {STORE} bar.sync 0; {LOADED} {STORED} {ARRIVE}",
        f"{LOAD} st.shared.u32 [%r2], %r3;",
    ],
)
def test_silent_where_the_order_is_right(body):
    assert not warnings(body)
