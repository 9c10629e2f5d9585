"""Bulk copies and reductions without a tensor map, st.async, red.async: what both assemblers take."""

import pytest

from isa.ops.bulk_copy import reduction_code

_BYTES = "mbarrier::complete_tx::bytes"
REDUCTIONS = [
    *[f".{op}.{t}" for op in ("and", "or", "xor") for t in ("b32", "b64")],
    *[f".add.{t}" for t in ("u32", "s32", "u64", "f32", "f64")],
    *[f".{op}.{t}" for op in ("min", "max") for t in ("u32", "s32", "u64", "s64", "f16", "bf16")],
    ".inc.u32", ".dec.u32", ".add.noftz.f16", ".add.noftz.bf16",
]  # fmt: skip
GROUP = "cp.reduce.async.bulk.global.shared::cta.bulk_group"
ACCEPTED = [
    f"cp.async.bulk.shared::cluster.global.{_BYTES} [%r1], [%rd1], %r2, [%r3];",
    f"cp.async.bulk.shared::cta.global.{_BYTES} [%r1+16], [%rd1+256], 256, [%r3+8];",
    f"cp.async.bulk.shared::cluster.global.{_BYTES}.L2::cache_hint [%rd1], [%rd2], %r2, [%rd3], %rd4;",
    "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;",
    "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%rd1], [%rd2], 1024, %rd4;",
    *[f"{GROUP}{line} [%rd1], [%r1], %r2;" for line in REDUCTIONS],
    f"{GROUP}.L2::cache_hint.add.noftz.bf16 [%rd1], [%r1], %r2, %rd4;",
    "cp.async.bulk.prefetch.L2.global [%rd1], %r2;",
    "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd1], 64, %rd4;",
    *[f"st.async.shared::cluster.{_BYTES}.{t}{w} [%r1], %{r}2, [%r3];" for w, r in ((32, "r"), (64, "rd")) for t in "bus"],
    f"st.async.weak.shared::cluster.{_BYTES}.f32 [%rd1+4], %f2, [%rd3];",
    f"st.async.shared::cluster.{_BYTES}.v2.b64 [%r1], {{%rd1, %rd2}}, [%r3];",
    f"st.async.shared::cluster.{_BYTES}.v4.b32 [%r1], {{%r1, %r2, %r3, %r4}}, [%r3];",
    *[f"red.async.relaxed.cluster.shared::cluster.{_BYTES}.{op}.u32 [%r1], %r2, [%r3];" for op in ("add", "min", "max", "inc", "dec")],
    *[f"red.async.relaxed.cluster.shared::cluster.{_BYTES}.{op}.b32 [%r1], %r2, [%r3];" for op in ("and", "or", "xor")],
    *[f"red.async.relaxed.cluster.shared::cluster.{_BYTES}.add.{t}64 [%r1], %rd2, [%r3];" for t in "us"],
]  # fmt: skip
REJECTED = [
    f"cp.async.bulk.shared::cluster.global.{_BYTES} [%r1], [%rd1], 20, [%r3];",
    "cp.async.bulk.global.shared::cta [%rd1], [%r1], %r2;",
    f"{GROUP}.add.s64 [%rd1], [%r1], %r2;",
    f"{GROUP}.max.f32 [%rd1], [%r1], %r2;",
    f"{GROUP}.add.f16 [%rd1], [%r1], %r2;",
    f"red.async.relaxed.cluster.shared::cluster.{_BYTES}.min.u64 [%r1], %rd2, [%r3];",
    f"st.async.shared::cluster.{_BYTES}.b16 [%r1], %h2, [%r3];",
]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


def test_words(instructions):
    assert instructions.words(ACCEPTED[0]) == [("UBLKCP.S.G", 0)]
    assert instructions.words(f"{GROUP}.min.s64 [%rd1], [%r1], %r2;") == [("UBLKCP.G.S", reduction_code("min", "s64"))]
    assert instructions.words(f"{GROUP}.xor.b32 [%rd1], [%r1], %r2;") == [("UBLKCP.G.S", reduction_code("xor", "u32"))]
    assert instructions.words(f"st.async.shared::cluster.{_BYTES}.v2.b64 [%r1], {{%rd1, %rd2}}, [%r3];") == [
        ("STAS", 16 << 32)
    ]


def test_ampere_has_none(instructions):
    with pytest.raises(Exception, match="needs sm_90 or later"):
        instructions.lower("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;", "sm_80")
