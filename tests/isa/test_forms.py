"""Every instruction that ptxas 13.0 was asked about (`tools.forms`): taken where it takes it, refused where it refuses it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from isa import registry
from isa.errors import AssemblyError, UnsupportedError
from isa.expand import expand
from isa.layout import Layout
from isa.lowering import Lowering
from isa.matching import spelled
from tools.forms.__main__ import golden, instructions, kernel, problem

GOLDEN = Path(__file__).parents[1] / "golden"
TARGETS = ("sm_80", "sm_90a", "sm_100a")
TCGEN05 = ("sm_100f", "sm_100a", "sm_103a")


def recorded(target: str, patterns: str = "patterns") -> list[tuple[bool, str]]:
    """Whether ptxas takes it, and the instruction."""
    lines = golden(patterns, target).read_text().splitlines()
    return [(line[0] == "+", line[2:]) for line in lines]


# What ptxas takes and the assembler here refuses by name: clusters, memory of several GPUs, im2col.
MISSING = re.compile(
    r"barrier\.cluster|mapa|getctarank|multimem"
    r"|cp\.(reduce\.)?async\.bulk\.shared::cluster\.shared::cta|cp\.async\.bulk.*multicast|.*\.im2col"
    r"|cp\.async\.bulk.*\.cp_mask|red\.async\.mmio|st\.bulk|ldmatrix.*\.m16n16|stmatrix.*\.m16n8"
    r"|tensormap\.replace\.tile\.swizzle_atomicity"
)
TAKEN_FOR_MISTAKES = re.compile(r"shared::cluster\.shared::cta")  # an error instead: all of their words are known
# What ptxas refuses for reasons that the assembler here does not look into.
TOLERATED = re.compile(r"cvta\.const\.u64 %rd1, gg;|cvta\.shared\.u64 %rd1, stack\+4;")
# Of tcgen05: sparse and shifted A, masks of columns.
REFUSED = re.compile(r"\.sp\.|\.ashift|\.ws\..*, %rd3;")
SM_86 = re.compile(r"m(in|ax).*\.xorsign")  # from sm_86 on, which is read as sm_80


@pytest.mark.parametrize("target", TARGETS)
def test_the_record_is_of_these_patterns(target: str) -> None:
    lines = [line for _, line in recorded(target)]
    assert lines == instructions(target), f"run python -m tools.forms --target {target}"


@pytest.mark.parametrize("target", TARGETS)
def test_what_ptxas_takes_is_taken(target: str) -> None:
    registry.load()
    lines = [line for taken, line in recorded(target) if taken and not MISSING.match(line)]
    assert len(lines) > 2100
    module = expand(kernel(lines, target), "forms.ptx", {}, ())
    entry = module.kernels[0]
    Lowering(entry, target, Layout(module, entry), lambda pos: "").run()


@pytest.mark.parametrize("target", TARGETS[1:])
def test_what_is_missing_is_refused_by_name(target: str) -> None:
    for line in (line for taken, line in recorded(target) if taken and MISSING.match(line)):
        found = problem(line, target)
        if found is not None:  # a family may have come since
            assert isinstance(found, UnsupportedError) or TAKEN_FOR_MISTAKES.search(line), line


@pytest.mark.parametrize("target", TARGETS)
def test_what_ptxas_refuses_is_refused(target: str) -> None:
    lines = [line for good, line in recorded(target) if not good and not TOLERATED.match(line)]
    taken = [line for line in lines if problem(line, target) is None]
    assert not [line for line in taken if not (target == "sm_80" and SM_86.match(line))]


@pytest.mark.parametrize("target", TCGEN05)
def test_tcgen05_as_ptxas(target: str) -> None:
    """What `tools/forms/tcgen05.txt` lists: taken where ptxas takes it, refused where it refuses it."""
    lines = recorded(target, "tcgen05")
    assert [line for _, line in lines] == instructions(target, "tcgen05")
    differing = [line for taken, line in lines if taken != (problem(line, target) is None)]
    assert not [line for line in differing if not REFUSED.search(line)]


@pytest.mark.parametrize("target", TARGETS)
def test_every_opcode_of_real_kernels(target: str) -> None:
    """The opcodes of Triton, nvcc, CuTe and FlashAttention kernels (tests/golden/forms/README.md)."""
    registry.load()
    with (GOLDEN / "forms" / f"opcodes-{target}.csv").open() as file:
        opcodes = [row["opcode"] for row in csv.DictReader(file)]
    assert len(opcodes) > 180
    unknown = [o for o in opcodes if not any(target in form.targets for form, _, _ in spelled(o))]
    assert {o.split(".")[0] for o in unknown} <= {"wmma", "mapa", "barrier", "tcgen05", "cp"}, unknown


def test_an_unknown_instruction_is_an_error() -> None:
    assert isinstance(problem("frobnicate.u32 %r1, %r2;", "sm_90a"), AssemblyError)
