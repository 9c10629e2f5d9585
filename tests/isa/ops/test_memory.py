"""ld and st: what is accepted, and the words that the machine gets."""

import pytest

from isa.ops.memory import memory_word
from isa.program import PARAM_BASE
from isa.registry import Const, Half, ParamWord

V4 = "{%r5,%r6,%r7,%r8}"
LOADS = {
    "ld.global.u32 %r5, [%rd1];": ("LDG", memory_word(0, 4)),
    "ld.weak.global.u32 %r5, [%rd1+8];": ("LDG", memory_word(8, 4)),
    "ld.global.ca.f32 %f5, [%rd1+-4];": ("LDG", memory_word(-4, 4)),
    "ld.global.lu.b32 %f5, [%rd1];": ("LDG", memory_word(0, 4, past_l1=True)),
    "ld.global.cv.s32 %r5, [%rd1];": ("LDG", memory_word(0, 4, past_l1=True)),
    "ld.global.nc.b16 %h1, [%rd1];": ("LDG", memory_word(0, 2)),
    "ld.global.ca.nc.u32 %r5, [%rd1];": ("LDG", memory_word(0, 4)),
    "ld.global.nc.L1::evict_last.L2::cache_hint.L2::128B.u32 %r5, [%rd1], %rd5;": ("LDG", memory_word(0, 4)),
    "ld.volatile.global.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1];": ("LDG", memory_word(0, 4, 4, past_l1=True)),
    "ld.volatile.global.L2::128B.u32 %r5, [%rd1];": ("LDG", memory_word(0, 4, past_l1=True)),
    "ld.relaxed.gpu.global.L1::evict_last.u32 %r5, [%rd1];": ("LDG", memory_word(0, 4, past_l1=True)),
    "ld.global.acquire.cta.u32 %r5, [%rd1];": ("LDG", memory_word(0, 4)),
    "ld.mmio.relaxed.sys.global.u32 %r5, [%rd1];": ("LDG", memory_word(0, 4, past_l1=True)),
    "ld.acquire.sys.v2.u32 {%r5,%r6}, [%rd1];": ("LD", memory_word(0, 4, 2, past_l1=True)),
    "ld.L2::128B.u32 %r5, [%rd1];": ("LD", memory_word(0, 4)),
    "ld.global.L1::no_allocate.L2::128B.u32 %r5, [%rd1];": ("LDG", memory_word(0, 4, past_l1=True)),
    "ld.global.L1::evict_first.L2::cache_hint.L2::256B.v2.u64 {%rd7,%rd8}, [%rd1], %rd5;": (
        "LDG", memory_word(0, 8, 2)),
    f"ld.global.v4.u8 {V4}, [%rd1];": ("LDG", memory_word(0, 1, 4)),
    "ld.global.s8 %r5, [%rd1];": ("LDG", memory_word(0, 1, 1, True)),
    "ld.global.s16 %h5, [%rd1];": ("LDG", memory_word(0, 2, 1, True)),
    "ld.global.v2.b32 {%r5,_}, [%rd1];": ("LDG", memory_word(0, 4, 2)),
    "ld.global.f64 %fd1, [%rd1];": ("LDG", memory_word(0, 8)),
    "ld.const.v2.u32 {%r5,%r6}, [%rd1];": ("LDG", memory_word(0, 4, 2)),
    "ld.local.u32 %r5, [stack+4];": ("LDL", memory_word(0, 4)),
    "ld.local.cg.u32 %r5, [%rd1];": ("LDL", memory_word(0, 4)),
    "ld.shared.u32 %r5, [%r1+16];": ("LDS", memory_word(16, 4)),
    "ld.shared::cta.u8 %r5, [%r1];": ("LDS", memory_word(0, 1)),
    "ld.shared::cluster.b32 %r5, [%r1];": ("LDS", memory_word(0, 4)),
    "ld.volatile.shared.v2.b16 {%h1,%h2}, [%r1];": ("LDS", memory_word(0, 2, 2)),
    "ld.acquire.cta.shared.u64 %rd5, [%r1];": ("LDS.64", memory_word(0, 8)),
    "ld.shared.v2.f32 {%f1,%f2}, [%rd2+4];": ("LDS.64", memory_word(4, 4, 2)),
    f"ld.shared.v4.b32 {V4}, [%r1];": ("LDS.128", memory_word(0, 4, 4)),
    "ld.shared.cg.v2.f64 {%fd1,%fd2}, [%r1];": ("LDS.128", memory_word(0, 8, 2)),
    "ld.shared.u32 %r5, [smem+16];": ("LDS", memory_word(0, 4)),
}  # fmt: skip
STORES = {
    "st.global.u32 [%rd1], 5;": ("STG", memory_word(0, 4)),
    "st.global.f32 [%rd1], 0f3F800000;": ("STG", memory_word(0, 4)),
    "st.global.wt.b32 [%rd1+4], %f5;": ("STG", memory_word(4, 4)),
    "st.global.wb.L2::cache_hint.u32 [%rd1], %r5, %rd5;": ("STG", memory_word(0, 4)),
    "st.relaxed.gpu.global.L1::evict_last.L2::cache_hint.u32 [%rd1], %r5, %rd5;": ("STG", memory_word(0, 4)),
    "st.volatile.global.u64 [%rd1], %rd5;": ("STG", memory_word(0, 8)),
    "st.mmio.relaxed.sys.u32 [%rd1], %r5;": ("ST", memory_word(0, 4)),
    "st.release.sys.v2.u32 [%rd1], {%r5,%r6};": ("ST", memory_word(0, 4, 2)),
    "st.v2.u16 [%rd1], {%h1,%h2};": ("ST", memory_word(0, 2, 2)),
    "st.local.wt.u32 [stack], %r5;": ("STL", memory_word(0, 4)),
    "st.shared.b8 [%r1], %rd5;": ("STS", memory_word(0, 1)),
    "st.shared.relaxed.cta.u32 [%r1], %r5;": ("STS", memory_word(0, 4)),
    "st.volatile.shared.b16 [%r1], %h5;": ("STS", memory_word(0, 2)),
    "st.shared.v2.f32 [%r1], {0f00000000, %f1};": ("STS.64", memory_word(0, 4, 2)),
    "st.shared.v4.b32 [%r1], {%r5,0,%r7,5};": ("STS.128", memory_word(0, 4, 4)),
    "st.shared::cta.v2.b64 [%r1+16], {%rd5,%rd6};": ("STS.128", memory_word(16, 8, 2)),
}
REJECTED = [
    "ld.global.cv.nc.u32 %r5, [%rd1];",
    "ld.shared.nc.u32 %r5, [%r1];",
    "ld.volatile.global.ca.u32 %r5, [%rd1];",
    "ld.volatile.local.u32 %r5, [%rd1];",
    "ld.acquire.global.u32 %r5, [%rd1];",
    "ld.release.sys.u32 %r5, [%rd1];",
    "ld.acquire.gpu.local.u32 %r5, [%rd1];",
    "ld.relaxed.sys.const.u32 %r5, [%rd1];",
    "ld.global.u32 %r5, [%rd1], %rd5;",
    "ld.global.L2::cache_hint.u32 %r5, [%rd1];",
    "ld.global.ca.L1::evict_last.u32 %r5, [%rd1];",
    "ld.shared.L1::evict_last.u32 %r5, [%r1];",
    "ld.shared.L2::128B.u32 %r5, [%r1];",
    "ld.volatile.global.L2::cache_hint.u32 %r5, [%rd1], %rd5;",
    "ld.mmio.relaxed.gpu.global.u32 %r5, [%rd1];",
    "ld.mmio.relaxed.sys.shared.u32 %r5, [%r1];",
    "ld.global.f16 %h1, [%rd1];",
    "ld.global.v4.b64 {%rd7,%rd8,%rd9,%rd10}, [%rd1];",
    "ld.global.v2.b32 %rd7, [%rd1];",
    "ld.global.b32 _, [%rd1];",
    "ld.global.u32 %f7, [%rd1];",
    "ld.global.b64 %r5, [%rd1];",
    "ld.global.b32 %h1, [%rd1];",
    "ld.global.pred %p1, [%rd1];",
    "ld.shared.u32 %r5, [stack];",
    "ld.volatile.param.u32 %r5, [count];",
    "ld.param.u64 %r5, [pointer];",
    "st.global.ca.u32 [%rd1], %r5;",
    "st.global.nc.u32 [%rd1], %r5;",
    "st.volatile.global.wt.u32 [%rd1], %r5;",
    "st.release.shared.u32 [%r1], %r5;",
    "st.acquire.gpu.global.u32 [%rd1], %r5;",
    "st.global.L2::128B.u32 [%rd1], %r5;",
    "st.shared.L1::evict_last.u32 [%r1], %r5;",
    "st.const.u32 [%rd1], %r5;",
    "st.param.u32 [count], %r5;",
    "st.global.v2.b32 [%rd1], {%r5,_};",
    "st.global.v4.b64 [%rd1], {%rd5,%rd5,%rd5,%rd5};",
    "st.global.u64 [%rd1], %r5;",
    "st.shared.b64 [%r1], {%r5,%r6};",
]


def test_accepted(instructions):
    instructions.accept([*LOADS, *STORES])


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", [*LOADS, *STORES])
def test_words(instructions, text):
    words = [word for word in instructions.words(text) if not word[0].startswith(("MEMBAR", "CCTL"))]
    assert words == [(LOADS | STORES)[text]]


@pytest.mark.parametrize(
    "text, names",
    [
        ("ld.acquire.gpu.global.u32 %r1, [%rd1];", ["LDG", "CCTL.IVALL"]),
        ("ld.acquire.cta.global.u32 %r1, [%rd1];", ["LDG"]),
        ("ld.acquire.cluster.u32 %r1, [%rd1];", ["LD", "CCTL.IVALL"]),
        ("st.release.gpu.global.u32 [%rd1], %r1;", ["MEMBAR.ALL.GPU", "STG"]),
        ("st.release.cta.shared.u32 [%r2], %r1;", ["MEMBAR.ALL.CTA", "STS"]),
        ("st.relaxed.sys.u32 [%rd1], %r1;", ["ST"]),
        ("atom.acq_rel.gpu.global.add.u32 %r1, [%rd1], %r2;", ["MEMBAR.ALL.GPU", "ATOMG", "CCTL.IVALL"]),
        ("atom.acq_rel.global.add.u32 %r1, [%rd1], %r2;", ["MEMBAR.ALL.GPU", "ATOMG", "CCTL.IVALL"]),
        ("atom.release.sys.shared.add.u32 %r1, [%r3], %r2;", ["MEMBAR.ALL.SYS", "ATOMS"]),
        ("atom.acquire.cta.add.u32 %r1, [%rd1], %r2;", ["ATOM"]),
        ("red.release.cluster.global.add.u32 [%rd1], %r2;", ["MEMBAR.ALL.GPU", "REDG"]),
        ("atom.global.add.u32 _, [%rd1], %r2;", ["REDG"]),
        ("atom.global.exch.b32 _, [%rd1], %r2;", ["ATOMG"]),
    ],
)
def test_fences_of_ptxas(instructions, text, names):
    """SASS of ptxas 13.0 for sm_90a: a fence before what releases, an emptied L1 behind what acquires beyond the CTA."""
    instructions.accept([text])
    assert [name for name, _ in instructions.words(text)] == names


def test_rows_of_wide_elements(instructions):
    (load,) = instructions.lower("ld.global.v2.u64 {%rd7,%rd8}, [%rd1];")
    rows = load.results[0]
    assert [type(row) for row in rows] == [Half] * 4
    assert [row.index for row in rows] == [0, 1, 0, 1]
    assert rows[0].reg == rows[1].reg != rows[2].reg == rows[3].reg
    (store,) = instructions.lower("st.shared.b64 [%r1], 0x0000000500000007;")
    assert store.sources[1] == (Const(7), Const(5))


def test_parameters_are_copies_of_launch_words(instructions):
    (word,) = instructions.lower("ld.param.u32 %r5, [count];")
    assert (word.micro.name, word.sources) == ("MOV", (ParamWord(192),))
    instructions.accept(["ld.param.u64 %rd5, [pointer];", "ld.param.v2.u64 {%rd5, %rd6}, [map+16];"])
    words = instructions.lower("ld.param.v2.u64 {%rd5, %rd6}, [map+16];")
    assert [op.sources[0] for op in words] == [ParamWord(64 + 16 + 4 * k) for k in range(4)]


@pytest.mark.parametrize("kind, at, size", [(t, at, s) for t, s in (("u8", 1), ("s8", 1), ("u16", 2), ("s16", 2))
                                            for at in range(0, 4, s)])  # fmt: skip
def test_small_parameters_are_cut_out_and_extended(instructions, kind, at, size):
    text = f"ld.param.{kind} %r5, [small+{at}];"
    instructions.accept([text])
    (op,) = instructions.lower(text)
    block = bytes((0x85, 0x16, 0x97, 0xA8))
    source, zero, selector = op.sources
    assert source == ParamWord(196)
    found = op.micro.meaning(int.from_bytes(block, "little"), zero.bits, selector.bits)
    expected = int.from_bytes(block[at : at + size], "little", signed=kind[0] == "s")
    assert found == expected & 0xFFFFFFFF


def test_misaligned_parameter(instructions):
    with pytest.raises(Exception, match="not aligned"):
        instructions.lower("ld.param.u32 %r5, [small+2];")


@pytest.mark.parametrize("offset", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_word_fields(offset):
    word = memory_word(offset, 8, 2, True)
    low = word & 0xFFFFFFFF
    assert (low ^ 1 << 31) - (1 << 31) == offset
    assert (word >> 32 & 15, word >> 36 & 1, word >> 40) == (3, 1, 2)
    assert word >= 0


def test_far_offset_is_refused(instructions):
    with pytest.raises(Exception, match="does not fit"):
        instructions.lower("ld.global.u32 %r5, [%rd1+2147483648];")


def test_parameters_at_addresses_in_registers(instructions):
    """Loads from the window of the parameters, whatever the upper half of the register holds."""
    for text, before in (("ld.param.u32 %r1, [%r2+4];", ["IADD3"]), ("ld.param.v2.f32 {%f1, %f2}, [%rd5];", [])):
        instructions.accept([text])
        *_, high, load = ops = instructions.lower(text)
        assert [op.micro.name for op in ops] == [*before, "MOV", "MOV", "LD"] and load.imm & 0xFFFFFFFF == 0
        assert high.sources == (Const(PARAM_BASE >> 32),)


QUAD = ".reg .b128 %q<4>;"
WIDE = [
    *[f"{{ {QUAD} ld{s}.b128 %q1, {a}; st{s}.b128 {a}, %q1; }}" for s, a in (("", "[%rd1]"), (".global", "[%rd1+16]"), (".shared", "[%r9]"), (".local", "[stack]"))],
    f"{{ {QUAD} ld.param.b128 %q1, [map+16]; mov.b128 %q2, %q1; mov.b128 {{%rd1, _}}, %q2; mov.b128 %q3, {{%rd1, %rd2}}; }}",
    f"{{ {QUAD} ld.global.nc.b128 %q1, [%rd1]; ld.relaxed.gpu.global.b128 %q1, [%rd1]; st.release.gpu.global.b128 [%rd1], %q1; }}",
    "ld.param.v4.b32 {%r1, %r2, %r3, %r4}, [map+16];",
]  # fmt: skip


def test_128_bits(instructions):
    instructions.accept(WIDE)
    assert instructions.words(f"{{ {QUAD} ld.global.b128 %q1, [%rd1]; }}") == [("LDG", memory_word(0, 8, 2))]


def test_32_bytes_need_blackwell(instructions):
    line = "ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1];"
    assert "256-bit accesses need sm_100 or later" in str(instructions.reject(line))
    assert [op.imm for op in instructions.lower(line, "sm_100a")] == [memory_word(0, 4, 8)]
