"""One instruction of fa3 changed: its check must fail, or the machine must say why it stopped.

The changes are made in the expanded PTX, one occurrence each.  Not among them is what only costs time, and
what the mathematics forgives: a row maximum of unfinished scores is as good as any other number, and the
queue of wgmma is shorter than a product, so that S is complete when the last of O's product has been issued.
"""

from __future__ import annotations

import re

import pytest

import emu
import programs
from isa.expand import expand
from isa.ptx import to_ptx

SHAPE = {"seqlen": 130, "seqlen_k": 528, "heads": 2}  # whole key blocks: no masking between a product and its first use

# name: (pattern, replacement, occurrence counted from 0; negative from the end)
MUTANTS: dict[str, tuple[str, str, int]] = {
    "no wait for Q": (r"mbarrier\.try_wait\.parity[^;]*? (%\S+), [^;]*;", r"setp.eq.u32 \1, 0, 0;", 6),
    "scores not scaled": (r"(fma\.rn\.ftz\.f32 %\w+, %\w+, )%\w+(, %\w+;)", r"\g<1>0f3F800000\2", 5),
    "one exponential missing": (r"ex2\.approx\.ftz\.f32 (%\w+), (%\w+);", r"mov.f32 \1, \2;", 20),
    "row sum forgets a score": (r"add\.rn\.ftz\.f32 (%\w+), (%\w+), (%\w+);", r"mov.f32 \1, \2;", 20),
    "halves of P swapped": (r"cvt\.rn\.f16x2\.f32 (%\w+), (%\w+), (%\w+);", r"cvt.rn.f16x2.f32 \1, \3, \2;", 7),
    "K not transposed": (r"(wgmma\.mma_async[^;]*m64n176k16[^;]*), 1, 1, 0, 0;", r"\1, 1, 1, 0, 1;", 0),
    "too many bytes expected": (r"(mbarrier\.arrive\.expect_tx[^;]*, )45056;", r"\g<1>45072;", 0),
    "too few bytes expected": (r"(mbarrier\.arrive\.expect_tx[^;]*, )45056;", r"\g<1>45040;", 0),
    "a stage never released": (r"@%\w+ mbarrier\.arrive\.shared::cta\.b64 _, \[[^;]*;", "", 0),
    "O stored from the wrong place": (r"(stmatrix[^;]*\[%\w+)\]", r"\1+16]", 0),
    "O not scaled": (r"mul\.rn\.ftz\.f32 (%o\d+), (%o\d+), (%\w+);", r"mov.f32 \1, \2;", -1),
}


def mutate(text: str, name: str) -> str:
    """The text with one occurrence of the mutant's pattern replaced."""
    pattern, replacement, occurrence = MUTANTS[name]
    found = list(re.finditer(pattern, text))
    assert found, f"{name}: nothing to change"
    hit = found[occurrence]
    return text[: hit.start()] + hit.expand(replacement) + text[hit.end() :]


@pytest.fixture(scope="module")
def problem() -> programs.problem.Problem:
    return programs.find("fa3").from_options(**SHAPE)


@pytest.fixture(scope="module")
def text(problem: programs.problem.Problem) -> str:
    path = problem.kernel_path
    return to_ptx(expand(path.read_text(), str(path), dict(problem.defines), (path.parent,)), comments=False)


def verdict(problem: programs.problem.Problem, text: str, chaos: int | None = None) -> str:
    """`right`, `wrong`, `deadlock`, `limit`, or the fault's rule."""
    inputs = problem.make_inputs(3)
    start = problem.launch(inputs, sms=132)
    result = emu.launch(
        emu.load(text=text), grid=start.grid, block=start.block, args=start.args, shared_bytes=start.shared_bytes,
        max_cycles=200_000, chaos=chaos,
    )  # fmt: skip
    if result.deadlock:
        return "deadlock"
    if result.findings and result.findings[0].severity in ("fault", "limit"):
        return result.findings[0].rule
    return "right" if problem.check({n: start.arrays[n] for n in problem.outputs}, inputs).passed else "wrong"


def test_unchanged_text_is_right(problem: programs.problem.Problem, text: str) -> None:
    assert {verdict(problem, text, chaos) for chaos in (None, 1, 2)} == {"right"}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_changed_instruction_is_noticed(problem: programs.problem.Problem, text: str, name: str) -> None:
    """In the usual timing, or at the latest when copies come late: a missing wait may be lucky."""
    changed = mutate(text, name)
    assert any(verdict(problem, changed, chaos) != "right" for chaos in (None, *range(1, 9)))
