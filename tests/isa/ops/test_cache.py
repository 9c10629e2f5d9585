"""ldu, prefetches, discards and policies: what both assemblers take."""

import pytest

from isa.ops.memory import memory_word

LEVELS = ("L1", "L2")
ACCEPTED = [
    *[f"ldu{s}.u8 %h1, [%rd1];" for s in ("", ".global")],
    "ldu.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];",
    "ldu.v2.u64 {%rd1, %rd2}, [%rd1];",
    *[f"prefetch{s}.{level} [%rd1+64];" for s in ("", ".global", ".local") for level in LEVELS],
    "prefetch.global.L2::evict_last [%rd1];",
    "prefetch.global.L2::evict_normal [%rd1];",
    "prefetchu.L1 [%rd1];",
    *[f"discard{s}.L2 [%rd1], 128;" for s in ("", ".global")],
    *[f"applypriority{s}.L2::evict_normal [%rd1], 128;" for s in ("", ".global")],
    *[f"createpolicy.fractional.L2::evict_{k}.b64 %rd1, 0.5;" for k in ("last", "normal", "first", "unchanged")],
    "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd1, %f1;",
    "createpolicy.fractional.L2::evict_first.b64 %rd1;",
    "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd1, [%rd2], %r1, %r2;",
    "createpolicy.range.L2::evict_first.b64 %rd1, [%rd2], 0x100000, 0x200000;",
    "createpolicy.cvt.L2.b64 %rd1, %rd2;",
]
REJECTED = [
    "ldu.shared.u32 %r1, [%r2];",
    "prefetch.shared.L1 [%rd1];",
    "prefetchu.L2 [%rd1];",
    "discard.L2 [%rd1], 64;",
    "applypriority.L2::evict_last [%rd1], 128;",
    "createpolicy.fractional.L2::evict_last.L2::evict_last.b64 %rd1, 0.5;",
]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


def test_words(instructions):
    assert instructions.words("ldu.global.u16 %h1, [%rd1+2];") == [("LDG", memory_word(2, 2))]
    assert instructions.words("prefetch.global.L2 [%rd1+-4];") == [("CCTL.PF2", 0xFFFFFFFC)]
    assert instructions.words("prefetch.local.L1 [%rd1];") == []
