"""wmma."""

import pytest

F8, R8, R4 = ("{" + ",".join(f"%{c}{10 + k}" for k in range(n)) + "}" for c, n in (("f", 8), ("r", 8), ("r", 4)))
R1, R2 = "{%r1}", "{%r1,%r2}"
FRAGMENTS = {  # of A and B
    ("f16", "m16n16k16"): (R8, R8), ("f16", "m32n8k16"): (R8, R8), ("f16", "m8n32k16"): (R8, R8),
    ("bf16", "m16n16k16"): (R4, R4), ("bf16", "m32n8k16"): (R8, R2), ("bf16", "m8n32k16"): (R2, R8),
    ("s8", "m16n16k16"): (R2, R2), ("u8", "m32n8k16"): (R4, R1), ("s8", "m8n32k16"): (R1, R4),
}  # fmt: skip
MMA = "wmma.mma.sync.aligned"
LOADS = [
    f"wmma.load.{which}.sync.aligned.{layout}.{shape}{space}.{kind} {both[which == 'b']}, [{at}+32]{stride};"
    for (kind, shape), both in FRAGMENTS.items()
    for which, layout, space, at, stride in (
        ("a", "row", ".global", "%rd1", ", %r5"), ("b", "col", ".shared", "%r9", ""), ("a", "col", "", "%rd1", ", 40"),
    )
]  # fmt: skip
PRODUCTS = [
    *(f"{MMA}.row.col.{shape}.f32.bf16.bf16.f32 {F8}, {a}, {b}, {F8};" for (k, shape), (a, b) in FRAGMENTS.items() if k == "bf16"),
    *(f"{MMA}.col.row.m16n16k16.{d}.{c} {r[d]}, {R8}, {R8}, {r[c]};" for r in ({"f16": R4, "f32": F8},) for d in r for c in r),
    f"{MMA}.row.col.m16n16k16.s32.s8.s8.s32.satfinite {R8}, {R2}, {R2}, {R8};",
    f"{MMA}.row.row.m32n8k16.s32.u8.u8.s32 {R8}, {R4}, {R1}, {R8};",
]  # fmt: skip
OTHERS = [
    f"wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {F8}, [%rd1], %r5;",
    f"wmma.load.c.sync.aligned.col.m8n32k16.shared.f16 {R4}, [smem];",
    f"wmma.store.d.sync.aligned.col.m32n8k16.global.s32 [%rd1], {R8}, 64;",
    f"wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [%r9], {R4}, %r5;",
]
REJECTED = [
    f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {R4}, [%rd1];",
    f"wmma.load.b.sync.aligned.row.m8n32k16.global.bf16 {R2}, [%rd1];",
    f"wmma.load.a.sync.aligned.m16n16k16.global.f16 {R8}, [%rd1];",
    f"wmma.load.a.sync.aligned.row.m16n8k16.global.f16 {R8}, [%rd1];",
    f"wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {R4}, [%rd1];",
    f"wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd1], {R8};",
    f"{MMA}.row.col.m16n16k16.f32.f32 {F8}, {R8}, {R4}, {F8};",
    f"{MMA}.row.col.m16n16k16.s32.s8.u8.s32 {R8}, {R2}, {R2}, {R8};",
    f"{MMA}.row.m16n16k16.f32.f32 {F8}, {R8}, {R8}, {F8};",
]


def test_accepted(instructions):
    instructions.accept([*LOADS, *PRODUCTS, *OTHERS])


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        (LOADS[0], "LDG", 4),  # the other four registers of an f16 fragment repeat these
        (LOADS[1], "LDS", 4),
        (LOADS[2], "MOVM.16.MT88", 4),
        (PRODUCTS[0], "HMMA.16816", 2),
        (PRODUCTS[-1], "IMMA.16816", 2),
        (OTHERS[0], "LDG", 4),
        (OTHERS[2], "STG", 8),
    ],
)
def test_operations(instructions, text, name, count):
    """What nvdisasm shows of ptxas 13.0: one load a register along K, two products, pairs of f32 in one access."""
    assert [found for found, _ in instructions.words(text)].count(name) == count
