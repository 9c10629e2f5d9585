"""Kernels: every define expands, ptxas takes the PTX without spills or advice, sizes agree with the problems."""

import itertools
import re
from collections.abc import Callable

import pytest

import programs
from isa.errors import AssemblyError
from isa.expand import expand
from isa.ptx import to_ptx
from isa.syntax import Block, Instr, Kernel, Module, Stmt, VarDecl
from programs.problem import Define

Ptxas = Callable[..., tuple[bool, str]]

SWITCHES = ("SPECIALIZE", "SETMAXNREG", "PINGPONG", "OVERLAP")


def module(name: str, defines: dict[str, Define] | None = None) -> Module:
    path = programs.find(name).from_options().kernel_path
    return expand(path.read_text(), str(path), defines or {}, (path.parent,))


def instructions(body: tuple[Stmt, ...]) -> list[Instr]:
    found: list[Instr] = []
    for statement in body:
        if isinstance(statement, Block):
            found += instructions(statement.body)
        elif isinstance(statement, Instr):
            found.append(statement)
    return found


def accept(ptxas: Ptxas, name: str, defines: dict[str, Define]) -> None:
    """ptxas takes the program, keeps everything in registers and has no advice about wgmma (C75xx)."""
    accepted, messages = ptxas(to_ptx(module(name, defines)), "sm_90a", "-v")
    assert accepted, messages
    assert "0 bytes spill stores, 0 bytes spill loads" in messages, messages
    assert "C75" not in messages and "warning" not in messages.lower(), messages


@pytest.mark.parametrize("switches", list(itertools.product((1, 0), repeat=4)))
def test_fa3_expands_in_every_combination(switches: tuple[int, ...]) -> None:
    defines: dict[str, Define] = dict(zip(SWITCHES, switches, strict=True))
    for stages, dtype in ((1, "bf16"), (2, "f16")):
        (kernel,) = module("fa3", {**defines, "STAGES": stages, "DTYPE": dtype}).kernels
        roles = {i.role for i in instructions(kernel.body)}
        assert roles == {"setup", "producer", "mma", "softmax", "epilogue"}


@pytest.mark.parametrize(
    "defines",
    [
        {},
        {"DTYPE": "bf16"},
        {"OVERLAP": 0},
        {"PINGPONG": 0, "KV_TILE": 192},
        {"SETMAXNREG": 0},
        {"SPECIALIZE": 0},
        {"SPECIALIZE": 0, "OVERLAP": 0, "STAGES": 1},
        {"KV_TILE": 128, "STAGES": 3},
    ],
    ids=str,
)
def test_ptxas_takes_fa3(ptxas: Ptxas, defines: dict[str, Define]) -> None:
    accept(ptxas, "fa3", defines)


@pytest.mark.parametrize(
    ("name", "defines"),
    [
        ("gemm", {}),
        ("gemm", {"TILE_N": 64, "STAGES": 5, "DTYPE": "bf16"}),
        ("softmax", {}),
        ("softmax", {"VECTORS": 1, "WARPS": 8}),
        ("vector_add", {}),
    ],
    ids=str,
)
def test_ptxas_takes_the_others(ptxas: Ptxas, name: str, defines: dict[str, Define]) -> None:
    accept(ptxas, name, defines)


@pytest.mark.parametrize(
    ("name", "defines", "message"),
    [
        ("fa3", {"STAGES": 3}, r"needs 303224 bytes of shared memory, at most 232448"),
        ("fa3", {"HEAD_DIM": 64}, "HEAD_DIM = 128"),
        ("fa3", {"DTYPE": "f32"}, "f16 or bf16"),
        ("fa3", {"KV_TILE": 100}, "multiple of 16"),
        ("fa3", {"KV_TILE": 208}, "more registers"),
        ("fa3", {"KV_TILE": 112, "SETMAXNREG": 0}, "more registers"),
        ("gemm", {"STAGES": 4}, "needs 262208 bytes"),
        ("gemm", {"STAGES": 1}, "at least 2"),
        ("gemm", {"TILE_N": 96}, "64, 128, 192 or 256"),
        ("softmax", {"WARPS": 33}, "1..32"),
    ],
)
def test_refused_defines(name: str, defines: dict[str, Define], message: str) -> None:
    with pytest.raises(AssemblyError, match=message):
        module(name, defines)


def barrier_end(kernel: Kernel) -> int:
    """The byte after the last mbarrier: where the kernel's shared memory ends."""
    code = instructions(kernel.body)
    base = next(i for i in code if i.opcode == "add.u32" and getattr(i.operands[0], "name", "") == "%bars")
    offsets = [i.operands[0].offset for i in code if i.opcode.startswith("mbarrier.init")]  # type: ignore[union-attr]
    return int(base.operands[2].value) + max(offsets) + 8  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "defines"),
    [
        ("fa3", {}),
        ("fa3", {"KV_TILE": 48, "STAGES": 1}),
        ("fa3", {"SPECIALIZE": 0, "SETMAXNREG": 0}),
        ("fa3", {"SETMAXNREG": 0}),
        ("gemm", {}),
        ("gemm", {"TILE_N": 128, "STAGES": 4}),
    ],
    ids=str,
)
def test_launch_agrees_with_the_kernel(name: str, defines: dict[str, Define]) -> None:
    """Shared bytes, block, parameters and boxes are those that the expanded kernel has."""
    problem = programs.find(name).from_options(defines=defines)
    expanded = module(name, problem.defines)
    (kernel,) = expanded.kernels
    launch = problem.launch(problem.make_inputs(), sms=4)
    assert launch.shared_bytes == barrier_end(kernel)
    assert dict(kernel.performance)["reqntid"] == launch.block
    assert len(kernel.params) == len(launch.args)
    assert any(isinstance(i, VarDecl) and i.count is None for i in expanded.items)
    expected = {i.operands[2].value for i in instructions(kernel.body) if "expect_tx" in i.opcode}  # type: ignore[union-attr]
    boxes = [m.box_bytes for m in launch.args if hasattr(m, "box")]
    if name == "fa3":
        assert expected == {2 * boxes[0], 2 * boxes[1]} and boxes[1] == boxes[2]
    else:
        assert expected == {boxes[0] + boxes[1] * problem.tile_n // 64}  # type: ignore[attr-defined]


def test_defaults_of_problems_are_the_kernels() -> None:
    """A problem's default defines change nothing in the kernel."""
    for name in programs.names():
        plain, defined = (to_ptx(module(name, d)) for d in ({}, programs.find(name).from_options().defines))
        assert plain == defined


def test_one_exponential_an_element() -> None:
    """One FFMA and one EX2 a score, two more EX2 a block for the old maxima; the products' counts (section 3)."""
    text = to_ptx(module("fa3"))
    assert len(re.findall(r"\bex2\.approx\.ftz\.f32", text)) == 2 * 88 + 2
    assert len(re.findall(r"wgmma\.mma_async\.\S*m64n176k16", text)) == 2 * 8
    assert len(re.findall(r"wgmma\.mma_async\.\S*m64n128k16", text)) == 2 * 11
