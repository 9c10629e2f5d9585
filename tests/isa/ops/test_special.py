"""Special registers through mov and cvt."""

import pytest

from isa.ops.special import CLOCK64, GLOBALTIMER, LONG_ZERO, RESERVED, SPECIAL, VECTORS, ZERO
from isa.registry import Const

LONG = ("%clock64", "%globaltimer", *LONG_ZERO)
SCALARS = [name for name in SPECIAL if name not in (*VECTORS, *LONG, "%is_explicit_cluster")]
ACCEPTED = [
    *(f"mov.u32 %r5, {name};" for name in SCALARS),
    "mov.b32 %f5, %tid.x;",
    "mov.s32 %r5, %laneid;",
    "mov.u16 %h5, %tid.y;",
    "mov.b16 %h5, %nctaid.z;",
    "mov.u64 %rd5, %clock64;",
    "mov.b64 %rd5, %globaltimer;",
    "mov.s64 %rd5, %clock64;",
    "mov.u64 %rd5, %gridid;",
    *(f"mov.u64 %rd5, {name};" for name in LONG_ZERO),
    "mov.pred %p1, %is_explicit_cluster;",
    *(f"mov.v4.u32 {{%r5,%r6,%r7,%r8}}, {name};" for name in VECTORS),
    "mov.v4.u16 {%h5,%h6,%h7,%h8}, %ctaid;",
    "mov.v4.b32 {%r5,_,%r7,%r8}, %tid;",
    "cvt.u64.u32 %rd5, %tid.x;",
    "cvt.u32.u32 %r5, %laneid;",
]
REJECTED = [
    "mov.u64 %rd5, %tid.x;",
    "mov.u64 %rd5, %clock;",
    "mov.u32 %r5, %clock64;",
    "mov.u32 %r5, %pm0_64;",
    "mov.u64 %rd5, %envreg1;",
    "mov.u32 %r5, %is_explicit_cluster;",
    "mov.f32 %f5, %tid.x;",
    "mov.u32 %r5, %foo;",
    "mov.u32 %tid.x, %r5;",
    "mov.u32 %r5, %ctaid;",
    "mov.u16 %h5, %laneid;",
    "mov.u16 %h5, %clusterid.x;",
    "mov.v2.u32 {%r5,%r7}, %ctaid;",
    "add.u32 %r5, %tid.x, 1;",
    "setp.eq.u32 %p1, %tid.x, 0;",
    "and.b32 %r5, %laneid, 1;",
]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


def test_every_scalar_is_one_read_by_its_index(instructions):
    for name in SCALARS:
        words = instructions.words(f"mov.u32 %r5, {name};")
        if name.endswith(".w") or name in ZERO | RESERVED:
            assert words == [("MOV", 0)]
        elif name.startswith("%globaltimer"):
            assert words == [("CS2R", GLOBALTIMER), ("MOV", 0)]
        else:
            assert words == [("CS2R.32" if name.startswith("%clock") else "S2R", SPECIAL.index(name))]


def test_wide_registers(instructions):
    assert instructions.words("mov.u64 %rd5, %clock64;") == [("CS2R", CLOCK64)]
    assert instructions.words("mov.u64 %rd5, %globaltimer;") == [("CS2R", GLOBALTIMER)]
    low, high = instructions.lower("cvt.u64.u32 %rd5, %tid.x;")
    assert (low.micro.name, high.micro.name, high.sources) == ("S2R", "MOV", (Const(0),))


def test_names_are_unique():
    assert len(set(SPECIAL)) == len(SPECIAL)
