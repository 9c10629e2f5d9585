"""Tensor copies, their prefetches, and the short spellings."""

import pytest

from isa.expand import expand
from isa.ops.tma import tensor_word
from isa.ptx import to_ptx
from isa.registry import Const

LOAD = "cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group"
L2 = LOAD.format(2)
COORDS = [f"{{{', '.join(f'%r{k}' for k in range(5, 5 + n))}}}" for n in range(6)]
TAIL = f"[%r1], [%rd4, {COORDS[2]}], [%r2]"
LOADS = {
    **{f"{LOAD.format(n)} [%r1], [%rd4, {COORDS[n]}], [%r2];": tensor_word(n) for n in range(1, 6)},
    f"{L2.replace('.tile', '')} {TAIL};": tensor_word(2),
    f"{L2.replace('::cluster', '::cta')} {TAIL};": tensor_word(2),
    f"{L2} [smem+1024], [%rd4, {{0, -8}}], [smem];": tensor_word(2),
    f"{L2} [%rd3], [%rd4, {COORDS[2]}], [%rd2];": tensor_word(2),
    f"{L2}.L2::cache_hint {TAIL}, 0x14F0000000000000;": tensor_word(2),
    f"{L2.replace('::cluster', '::cta')}.L2::cache_hint {TAIL}, %rd5;": tensor_word(2),
    f"{L2}.multicast::cluster {TAIL}, %h1;": tensor_word(2, True),
    f"{L2}.multicast::cluster {TAIL}, 3;": tensor_word(2, True),
    f"{L2}.multicast::cluster.L2::cache_hint {TAIL}, %h1, %rd5;": tensor_word(2, True),
    f"{L2}.L2::cache_hint.multicast::cluster {TAIL}, 3, %rd5;": tensor_word(2, True),
}
STORES = {
    **{f"{STORE.format(n)} [%rd4, {COORDS[n]}], [%r1];": tensor_word(n) for n in range(1, 6)},
    f"{STORE.format(2)}.L2::cache_hint [%rd4, {COORDS[2]}], [%r1], %rd5;": tensor_word(2),
    f"cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd4, {COORDS[2]}], [smem];": tensor_word(2),
}
PREFETCHES = [
    f"cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd4, {COORDS[2]}];",
    f"cp.async.bulk.prefetch.tensor.1d.L2.global [%rd4, {COORDS[1]}];",
    f"cp.async.bulk.prefetch.tensor.2d.L2.global.tile.L2::cache_hint [%rd4, {COORDS[2]}], %rd5;",
    "prefetch.tensormap [%rd4];",
    "prefetch.param.tensormap [map];",
    "prefetch.const.tensormap [%rd4];",
]
REJECTED = [
    f"{L2} [%r1], [map, {COORDS[2]}], [%r2];",
    f"{L2} [%r1], [%rd4, {COORDS[1]}], [%r2];",
    f"{L2} [%r1], [%rd4, {COORDS[2]}];",
    f"{LOAD.format(6)} [%r1], [%rd4, {COORDS[5]}], [%r2];",
    f"{L2.replace('::cluster', '')} {TAIL};",
    f"{L2.replace('.mbarrier::complete_tx::bytes', '')} {TAIL};",
    f"{L2.replace('::cluster', '::cta')}.multicast::cluster {TAIL}, %h1;",
    f"{L2}.multicast::cluster {TAIL}, %r9;",
    f"{L2}.multicast::cluster {TAIL};",
    f"{L2}.L2::cache_hint {TAIL};",
    f"{L2} {TAIL}, %rd5;",
    f"{STORE.format(2).replace('.bulk_group', '')} [%rd4, {COORDS[2]}], [%r1];",
    f"{STORE.format(2).replace('::cta', '::cluster')} [%rd4, {COORDS[2]}], [%r1];",
    f"{STORE.format(3)} [%rd4, {COORDS[2]}], [%r1];",
    f"cp.async.bulk.prefetch.tensor.2d.global.tile [%rd4, {COORDS[2]}];",
    "prefetch.tensormap [map];",
    "prefetch.global.tensormap [%rd4];",
]


def test_accepted(instructions):
    instructions.accept([*LOADS, *STORES, *PREFETCHES])


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", [*LOADS, *STORES])
def test_words(instructions, text):
    name = "UTMALDG" if text in LOADS else "UTMASTG"
    assert instructions.words(text) == [(name, (LOADS | STORES)[text])]


@pytest.mark.parametrize("text", PREFETCHES)
def test_prefetches(instructions, text):
    assert instructions.words(text) == [("UTMAPF", 0)]


def test_multicast_puts_the_mask_behind_the_coordinates(instructions):
    (op,) = instructions.lower(f"{L2}.multicast::cluster [%r1], [%rd4, {{1, -2}}], [%r2], 5;")
    assert op.sources[3] == (Const(1), Const(0xFFFFFFFE), Const(5))


def test_offsets_are_added_first_or_folded(instructions):
    """UTMALDG has no offset fields: a register needs an add, a variable's address is a constant."""
    names = [name for name, _ in instructions.words(f"{L2} [%r1+1024], [%rd4, {COORDS[2]}], [%r2+8];")]
    assert names == ["IADD3", "IADD3", "UTMALDG"]
    (op,) = instructions.lower(f"{L2} [smem+1024], [%rd4, {COORDS[2]}], [smem+8];")
    assert op.sources[1].bits - op.sources[2].bits == 1016


def test_prefetch_offset_is_a_64_bit_add(instructions):
    text = "prefetch.tensormap [%rd4+128];"
    instructions.accept([text])
    assert [name for name, _ in instructions.words(text)] == ["IADD3.CC", "IADD3.X", "UTMAPF"]


@pytest.mark.parametrize("dims", range(1, 6))
def test_short_spellings(instructions, ptxas, dims):
    short = [
        f"tma.load.{dims}d [%r1], [%rd4, {COORDS[dims]}], [%r2];",
        f"tma.store.{dims}d [%rd4, {COORDS[dims]}], [%r1];",
    ]
    assert instructions.words(short[0]) == [("UTMALDG", tensor_word(dims))]
    assert instructions.words(short[1]) == [("UTMASTG", tensor_word(dims))]
    printed = to_ptx(expand(instructions.kernel("\n".join([*short, "ret;"])), "test.mptx", {}, ()))
    accepted, messages = ptxas(printed, "sm_90a")
    assert accepted, messages


@pytest.mark.parametrize(
    "text, message",
    [
        ("tma.load.6d [%r1], [%rd4, {0}], [%r2];", "1d to 5d"),
        ("tma.load.2d [%r1], [%rd4, {0, 0}];", "takes 3 operands"),
        ("tma.store.2d [%rd4, {0}], [%r1];", "2 coordinates"),
    ],
)
def test_wrong_short_spellings(instructions, text, message):
    with pytest.raises(Exception, match=message):
        instructions.lower(text)


def test_im2col_is_known_but_not_implemented(instructions):
    with pytest.raises(Exception, match="not implemented"):
        instructions.lower(f"{LOAD.format(3).replace('tile', 'im2col')} [%r1], [%rd4, {COORDS[3]}], [%r2], {{%h1}};")
