"""`warpsmith explain`: words, rules, machines, descriptors."""

import pytest


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("long_scoreboard", "an mbarrier phase has not completed"),
        ("add.u32", "add.T d, a, b;"),
        ("mbarrier.try_wait", "mbarrier.try_wait"),
        ("IADD3", "timing class alu"),
        ("mufu", "pipe xu for 8 cycles"),
        ("unit.tma.queue", "copies in flight"),
        ("timing.fma.latency", "FFMA"),
        ("unit.tensor", "unit.tensor.operand_b_per_cy"),
        ("tensor", "pipe tensor"),
        ("HGMMA", "executed by wgmma_mma"),
        ("mbarrier.wait", "mbarrier.wait [bar], parity;"),
        ("tma.load.3d", "short spelling"),
        ("wgmma queue", "a cause of mio_throttle"),
        ("PINGPONG", "define PINGPONG of fa3, default 1"),
        ("fa3", "--seqlen-k"),
        ("fa3", "from Python only, inputs="),
        ("gemm", "--inputs FILE.npz  your own a [m, k], b [k, n]"),
        ("WG103", "four warps of the warpgroup"),
        ("multimem", "recognised, but not implemented"),
        ("LIMIT", "the run stopped at its limit"),
        ("swizzle", "16-byte chunks"),
        ("0x08200010", "kind::f16: M 128, N 128, A f16, B f16, D f32, A K-major, B K-major"),
        ("136314896", "kind::f8f6f4: M 128, N 128, A e4m3"),
        ("0x4000404000000040", "start address 0x400, leading-dimension offset (LBO) 0 bytes, stride offset (SBO) 1024"),
        ("0x4000004000000040", "of wgmma (version 0)"),
        ("0xffffffffffffffff", "of nothing: there is no version 7 (bits 46-48)"),
        ("0x4010004000004040", "wrong: reserved bits are set: 14, 52"),
        ("0x400040400001c040", "wrong: reserved bits are set: 14, 15"),
        ("LDSM", "micro-operation LDSM.16.M88.4"),
        ("CA101", "cp.async.wait_group N leaves the N newest groups out"),
        ("0xffffffff", "not of kind::tf32: reserved bits are set"),
    ],
)
def test_explain(warpsmith, word, text):
    got = warpsmith("explain", word)
    assert got.code == 0, got.err
    assert text in got.out


WORDS = [
    "descriptor", "a-desc", "LBO", "SBO", "parity", "phase", "expect_tx", "swizzle", "sm_90a", "sm_103a", 
    "MB101", "MEM103", "TX103", "WG104", "LIMIT",
]  # fmt: skip


@pytest.mark.parametrize("word", [*WORDS, "pending count", "Pending_Count", "imm-trans-b"])
def test_explain_the_manual_s_words(warpsmith, word):
    got = warpsmith("explain", word)
    assert got.code == 0 and got.out.count("\n") <= 12, got.out + got.err


def test_explain_lists_the_rules(warpsmith):
    got = warpsmith("explain", "rules")
    assert got.code == 0 and got.out == warpsmith("explain", "codes").out
    assert all(f"\n{rule} " in got.out for rule in ("MB101", "MEM103", "TX103", "WG104", "LIMIT", "CHAOS"))


def test_explain_suggests_nothing_far_off(warpsmith):
    got = warpsmith("explain", "zarity")
    assert got.code == 2 and "did you mean 'parity'" in got.err
    assert "did you mean" not in warpsmith("explain", "xylophone").err


def test_explain_names_the_nearest(warpsmith):
    got = warpsmith("explain", "long_scorebord")
    assert got.code == 2 and "did you mean 'long_scoreboard'" in got.err


def test_explain_a_machine(warpsmith):
    got = warpsmith("explain", "h200")
    assert got.code == 0 and got.out.startswith("machine h200: NVIDIA H200") and "machine show h200" in got.out
