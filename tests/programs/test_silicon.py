"""Whole kernels in silicon mode equal an H200 in every bit (tests/golden/outputs); `tools.record.compare` runs all 57 jobs."""

from __future__ import annotations

import numpy as np
import pytest

from tools.record.compare import against_golden, difference
from tools.record.outputs import Job, checksum, jobs, small

# One of every program, type, head dim, mask and sort of inputs; all switches of fa3 give the same bits on their tile.
CHOSEN = (
    "fa3-seqlen128-seqlen_k176-heads1-head_dim64-dtypefp16",
    "fa3-seqlen17-seqlen_k1300-heads2-heads_k1-head_dim64-dtypebf16",
    "fa3-seqlen200-heads2-inputsoutlier-head_dim128-dtypebf16",
    "fa3-seqlen17-seqlen_k1300-heads2-heads_k1-head_dim128-dtypefp16",
    "fa3-seqlen128-seqlen_k176-heads1-head_dim256-dtypefp16",
    "fa3-seqlen300-seqlen_k427-heads2-head_dim64-causalTrue",
    "fa3-seqlen300-seqlen_k427-heads2-PINGPONG0",
    "fa2-seqlen17-seqlen_k1300-heads2-heads_k1-head_dim64-dtypefp16",
    "fa2-seqlen200-heads2-inputsoutlier-head_dim64-dtypebf16",
    "fa1-seqlen300-seqlen_k427-heads2",
    "gemm-m129-n259-k101-dtypefp16",
    "gemm-m129-n259-k101-dtypebf16",
    "gemm-m129-n259-k101-dtypetf32",
    "softmax-rows66-cols1024",
)


def job(name: str) -> Job:
    return next(job for job in jobs() if job.name == name)


@pytest.mark.parametrize("name", CHOSEN)
def test_every_bit_is_the_cards(name: str) -> None:
    found = against_golden(job(name))
    assert found and not any(found.values()), found


def test_fast_mode_differs() -> None:
    """The comparison tells the modes apart: few elements of o differ, and by little, but some do."""
    found = against_golden(job(CHOSEN[0]), "fast")
    assert " of 8192 differ, first at " in found["o"] and " of 128 differ, first at " in found["lse"]


def test_arrays_kept_whole_are_those_of_the_checksums() -> None:
    outputs = {f"{job.name}/{name}": sum for job in jobs() for name, sum in job.outputs.items()}
    assert len(small()) > 10 and all(checksum(array) == outputs[name] for name, array in small().items())


def test_one_bit_is_a_difference() -> None:
    zeros = np.zeros((3, 4), np.float32)
    other = zeros.copy()
    other[2, 1] = -0.0
    assert difference(zeros.view(np.uint32), zeros) == ""
    assert difference(zeros.view(np.uint32), other).startswith(
        "1 of 12 differ, first at [2, 1]: card 0 (0x00000000), here -0 "
    )
