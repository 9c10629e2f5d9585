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
from tools.forms.__main__ import instructions, kernel, problem

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDED = [(line[0] == "+", line[2:]) for line in (GOLDEN / "forms" / "sm_90a.txt").read_text().splitlines()]
# What ptxas takes and the assembler here refuses by name: clusters, images, video instructions, dynamic stack, im2col.
MISSING = re.compile(
    r"barrier\.cluster|mapa|getctarank|multimem|alloca|stack(save|restore)|istypep|isspacep\.const|v(add|abs|max|set|shl|mad)"
    r"|cp\.(reduce\.)?async\.bulk\.shared::cluster\.shared::cta|cp\.async\.bulk.*multicast|.*\.im2col|fma\.rn\.oob"
    r"|(rcp|rsqrt)\.approx(\.ftz)?\.f64|wgmma.*\.b1\."
)
TAKEN_FOR_MISTAKES = re.compile(r"approx.*f64|k256|shared::cluster\.shared::cta")  # an error instead: all of their words are known
# What ptxas refuses for reasons that the assembler here does not look into.
TOLERATED = ("cvta.const.u64 %rd1, gg;", "cvta.shared.u64 %rd1, stack+4;")


def test_the_record_is_of_these_patterns() -> None:
    assert [line for _, line in RECORDED] == instructions(), "run python -m tools.forms"


def test_what_ptxas_takes_is_taken() -> None:
    registry.load()
    lines = [line for taken, line in RECORDED if taken and not MISSING.match(line)]
    assert len(lines) > 2700
    module = expand(kernel(lines, "sm_90a"), "forms.ptx", {}, ())
    entry = module.kernels[0]
    Lowering(entry, "sm_90a", Layout(module, entry), lambda pos: "").run()


def test_what_is_missing_is_refused_by_name() -> None:
    for line in (line for taken, line in RECORDED if taken and MISSING.match(line)):
        found = problem(line, "sm_90a")
        if found is not None:  # a family may have come since
            assert isinstance(found, UnsupportedError) or TAKEN_FOR_MISTAKES.search(line), line


def test_what_ptxas_refuses_is_refused() -> None:
    taken = [line for good, line in RECORDED if not good and line not in TOLERATED and problem(line, "sm_90a") is None]
    assert not taken


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_every_opcode_of_real_kernels(target: str) -> None:
    """The opcodes of Triton, nvcc, CuTe and FlashAttention kernels (tests/golden/forms/README.md)."""
    registry.load()
    with (GOLDEN / "forms" / f"opcodes-{target}.csv").open() as file:
        opcodes = [row["opcode"] for row in csv.DictReader(file)]
    assert len(opcodes) > 180
    unknown = [o for o in opcodes if not any(target in form.targets for form, _, _ in spelled(o))]
    assert {o.split(".")[0] for o in unknown} <= {"wmma", "mapa", "barrier"}, unknown


def test_an_unknown_instruction_is_an_error() -> None:
    assert isinstance(problem("frobnicate.u32 %r1, %r2;", "sm_90a"), AssemblyError)
