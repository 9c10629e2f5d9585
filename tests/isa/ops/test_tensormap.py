"""tensormap.replace and cp_fenceproxy: what both assemblers take, and the bytes that change."""

import pytest

SPACES = ("", ".global", ".shared::cta")
REPLACE = "tensormap.replace.tile"
ACCEPTED = [
    *[f"{REPLACE}.global_address{s}.b1024.b64 [%rd1], %rd2;" for s in SPACES],
    *[f"{REPLACE}.rank{s}.b1024.b32 [%rd1], {v};" for s in SPACES for v in ("%r2", "2")],
    *[f"{REPLACE}.{f}{s}.b1024.b32 [%rd1], {k}, %r2;" for f in ("box_dim", "global_dim", "element_stride") for s in SPACES for k in (0, 4)],
    *[f"{REPLACE}.global_stride{s}.b1024.b64 [%rd1+128], {k}, %rd2;" for s in SPACES for k in (0, 3)],
    *[f"{REPLACE}.{f}{s}.b1024.b32 [%rd1], {v};" for f, v in (("elemtype", 12), ("interleave_layout", 2), ("swizzle_mode", 3), ("fill_mode", 1)) for s in SPACES],
    *[f"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{s}.sync.aligned [%rd1], [%rd2], 128;" for s in ("cta", "cluster", "gpu", "sys")],
]  # fmt: skip
REJECTED = [
    f"{REPLACE}.box_dim.global.b1024.b32 [%rd1], 5, %r2;",
    f"{REPLACE}.box_dim.global.b1024.b32 [%rd1], %r1, %r2;",
    f"{REPLACE}.global_stride.global.b1024.b32 [%rd1], 0, %r2;",
    f"{REPLACE}.elemtype.global.b1024.b32 [%rd1], 13;",
    f"{REPLACE}.elemtype.global.b1024.b32 [%rd1], %r1;",
    f"{REPLACE}.swizzle_mode.global.b1024.b32 [%rd1], 4;",
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%rd2], 64;",
]  # fmt: skip


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


def test_ampere_has_none(instructions):
    with pytest.raises(Exception, match="sm_90a"):
        instructions.lower(f"{REPLACE}.rank.b1024.b32 [%rd1], 2;", "sm_80")
