"""tcgen05.mma and tcgen05.commit: every spelling that ptxas takes or refuses for sm_100a, and the word."""

import pytest

from isa.errors import AssemblyError, UnsupportedError
from isa.ops.tcgen05_mma import COLLECTOR, mma_word
from isa.registry import NotPred, PredConst

PAIR = "tcgen05.mma.cta_group::2"
MMA, AB, TB = "tcgen05.mma.cta_group::1", "[%r1], %rd1, %rd2, %r2", "[%r1], [%r3], %rd2, %r2"
MASK, SCALES = "{%r4,%r5,%r6,%r7}", "[%r8], [%r9]"
PLAIN = ("f16", "tf32", "f8f6f4", "i8")
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one"
WORDS = {
    **{f"{MMA}.kind::{kind} {AB}, %p1;": mma_word(kind) for kind in PLAIN},
    **{f"{MMA}.kind::{kind} {TB}, %p1;": mma_word(kind, a_tensor=True) for kind in PLAIN},
    **{f"{MMA}.kind::{kind} {AB}, {MASK}, %p1;": mma_word(kind, mask=True) for kind in PLAIN},
    **{f"{MMA}.kind::f16.collector::a::{op} {AB}, %p1;": mma_word("f16", collector=op) for op in COLLECTOR},
    **{f"{MMA}.kind::{kind} {TB}, {MASK}, 1, {s};": mma_word(kind, a_tensor=True, mask=True, scale_d=s) for kind in PLAIN[:2] for s in (0, 15)},
    f"{MMA}.kind::f16 {AB}, 1, 7;": mma_word("f16", scale_d=7),
    **{f"tcgen05.mma.ws.cta_group::1.kind::{kind} {AB}, %p1;": mma_word(kind, ws=True) for kind in PLAIN},
    f"tcgen05.mma.ws.cta_group::1.kind::f16.collector::b3::fill {TB}, %p1;": mma_word("f16", ws=True, a_tensor=True, collector="fill"),
    **{f"{MMA}.kind::mxf8f6f4.block_scale{x} {AB}, {SCALES}, %p1;": mma_word("mxf8f6f4") for x in ("", ".block32", ".scale_vec::1X")},
    **{f"{MMA}.kind::mxf4.block_scale{x} {TB}, {SCALES}, 0;": mma_word("mxf4", a_tensor=True, blocks=2) for x in ("", ".block32", ".scale_vec::2X")},
    **{f"{MMA}.kind::mxf4nvf4.block_scale{x} {AB}, {SCALES}, %p1;": mma_word("mxf4nvf4", blocks=2) for x in (".block32", ".scale_vec::2X")},
    **{f"{MMA}.kind::mxf4nvf4.block_scale{x}.collector::a::use {AB}, {SCALES}, %p1;": mma_word("mxf4nvf4", blocks=4, collector="use")
       for x in (".block16", ".scale_vec::4X")},
}  # fmt: skip
COMMITS = {
    f"{COMMIT}.b64 [%r1];": 0, f"{COMMIT}.shared::cluster.b64 [%r1+8];": 8, f"{COMMIT}.b64 [%rd1];": 0, f"{COMMIT}.shared::cluster.b64 [smem];": 0,
}  # fmt: skip
MASKS = "{%r4,%r5,%r6,%r7,%r8,%r9,%r10,%r11}"
PAIRS = {
    **{f"{PAIR}.kind::{kind} {ab}, %p1;": mma_word(kind, pair=True, a_tensor=ab == TB) for kind in PLAIN for ab in (AB, TB)},
    f"{PAIR}.kind::f16 {AB}, {MASKS}, %p1, 3;": mma_word("f16", pair=True, mask=True, scale_d=3),
    f"{PAIR}.kind::mxf8f6f4.block_scale {AB}, {SCALES}, %p1;": mma_word("mxf8f6f4", pair=True),
    f"{PAIR}.kind::mxf4nvf4.block_scale.block16 {TB}, {SCALES}, %p1;": mma_word("mxf4nvf4", pair=True, a_tensor=True, blocks=4),
}  # fmt: skip
PAIRED = [
    "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r1], 64;",
    "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r1, 64;",
    "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;",
    "tcgen05.cp.cta_group::2.32x128b.warpx4 [%r1], %rd1;",
    "tcgen05.shift.cta_group::2.down [%r1];",
    "tcgen05.commit.cta_group::2.mbarrier::arrive::one.b64 [%r1];",
    "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1+8], %h1;",
]
REJECTED = [
    f"{PAIR}.kind::f16 {AB}, {MASK}, %p1;",
    f"tcgen05.mma.ws.cta_group::2.kind::f16 {AB}, %p1;",
    f"{MMA}.kind::f16 [5], %rd1, %rd2, %r2, %p1;",
    f"{MMA}.kind::f16 [smem], %rd1, %rd2, %r2, %p1;",
    f"{MMA}.kind::f16 [%rd3], %rd1, %rd2, %r2, %p1;",
    f"{MMA}.kind::f16 %r1, %rd1, %rd2, %r2, %p1;",
    f"{MMA}.kind::f16 [%r1], %r3, %rd2, %r2, %p1;",
    f"{MMA}.kind::f16 [%r1], %rd1, %rd2, %rd3, %p1;",
    f"{MMA}.kind::f16 {AB};",
    f"{MMA}.kind::f16 {AB}, %p1, 16;",
    f"{MMA}.kind::f8f6f4 {AB}, %p1, 3;",
    f"{MMA}.kind::f16 {AB}, {{%r4,%r5,%r6,%r7,%r8,%r9,%r10,%r11}}, %p1;",
    f"{MMA}.kind::f16.collector::b::fill {AB}, %p1;",
    f"{MMA}.kind::f16.block_scale {AB}, {SCALES}, %p1;",
    f"{MMA}.kind::mxf4nvf4.block_scale {AB}, {SCALES}, %p1;",
    f"{MMA}.kind::mxf8f6f4.block_scale.scale_vec::2X {AB}, {SCALES}, %p1;",
    f"{MMA}.kind::mxf4.block_scale.block16 {AB}, {SCALES}, %p1;",
    f"{MMA}.kind::mxf8f6f4.block_scale {AB}, {SCALES}, {MASK}, %p1;",
    f"{MMA}.kind::mxf8f6f4.block_scale {AB}, {SCALES}, %p1, 3;",
    f"{MMA}.kind::mxf8f6f4 {AB}, %p1;",
    f"tcgen05.mma.kind::f16 {AB}, %p1;",
    f"{MMA} {AB}, %p1;",
    f"tcgen05.mma.ws.cta_group::1.kind::f16 {AB}, {MASK}, %p1;",
    f"tcgen05.mma.ws.cta_group::1.kind::f16.collector::a::fill {AB}, %p1;",
    f"{COMMIT}.multicast::cluster.b64 [%r1], 3;",
    f"{COMMIT}.multicast::cluster.b64 [%r1], %r3;",
    f"{COMMIT}.shared::cta.b64 [%r1];",
    f"{COMMIT}.shared::cluster [%r1];",
]
UNSUPPORTED = [
    f"{MMA}.kind::f16.ashift {TB}, %p1;",
    "tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %rd1, %rd2, [%r6], %r2, %p1;",
]


def assembled(instructions, ptxas, text):
    return ptxas(instructions.kernel(f"{text}\nret;", "sm_100a").replace("8.6", "8.8"), "sm_100a")


def test_what_ptxas_takes(instructions, ptxas):
    text = "\n".join(f"{{ {line} }}" for line in (*WORDS, *COMMITS))
    instructions.lower(text, "sm_100a")
    accepted, messages = assembled(instructions, ptxas, text)
    assert accepted, messages


def test_pairs(instructions, ptxas):
    text = "\n".join(f"{{ {line} }}" for line in (*PAIRS, *PAIRED))
    instructions.lower(text, "sm_100a")
    accepted, messages = assembled(instructions, ptxas, text)
    assert accepted, messages
    for line, word in PAIRS.items():
        (op,) = instructions.lower(line, "sm_100a")
        assert op.imm == word and len(op.sources[3]) == (10 if MASKS in line else 4 if SCALES in line else 2)


@pytest.mark.parametrize("text", REJECTED)
def test_what_ptxas_refuses(instructions, ptxas, text):
    with pytest.raises(AssemblyError):
        instructions.lower(text, "sm_100a")
    assert not assembled(instructions, ptxas, text)[0]


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_what_is_not_implemented(instructions, ptxas, text):
    with pytest.raises(UnsupportedError):
        instructions.lower(text, "sm_100a")
    assert assembled(instructions, ptxas, text)[0]


@pytest.mark.parametrize("text", WORDS)
def test_words(instructions, text):
    (op,) = instructions.lower(text, "sm_100a")
    assert op.imm == WORDS[text]
    assert op.micro.name == ("UTCMMA.TS" if "[%r3]" in text else "UTCMMA")
    assert len(op.sources[3]) == (6 if MASK in text else 4 if SCALES in text else 2)


@pytest.mark.parametrize("text", COMMITS)
def test_commits(instructions, text):
    (op,) = instructions.lower(text, "sm_100a")
    assert (op.micro.name, op.imm) == ("UTCBAR", COMMITS[text])


def test_a_commit_to_several_ctas(instructions, ptxas):
    text = f"{COMMIT}.shared::cluster.multicast::cluster.b64 [%r1+8], %h1;"
    (op,) = instructions.lower(text, "sm_100a")
    assert (op.micro.name, op.imm) == ("UTCBAR.MULTICAST", 1 << 32 | 8)
    assert assembled(instructions, ptxas, text)[0]


@pytest.mark.parametrize("enable, kind", [("0", PredConst(False)), ("2", PredConst(True)), ("!%p1", NotPred)])
def test_enable_input_d(instructions, enable, kind):
    (op,) = instructions.lower(f"{MMA}.kind::f16 {AB}, {enable};", "sm_100a")
    found = op.sources[2]
    assert found == kind if isinstance(kind, PredConst) else isinstance(found, kind)


def test_address_offsets_are_added(instructions):
    names = [op.micro.name for op in instructions.lower(f"{MMA}.kind::f16 [%r1+64], [%r3+8], %rd2, %r2, 1;", "sm_100a")]
    assert names == ["IADD3", "IADD3", "UTCMMA.TS"]


@pytest.mark.parametrize("target, taken", [("sm_100f", True), ("sm_103a", True), ("sm_100", False), ("sm_90a", False)])
def test_targets(instructions, target, taken):
    for text, here in ((f"{MMA}.kind::f16 {AB}, 1;", taken), (f"{MMA}.kind::i8 {AB}, 1;", False)):
        if here:
            instructions.lower(text, target)
        else:
            with pytest.raises(AssemblyError, match="only, this module targets"):
                instructions.lower(text, target)
