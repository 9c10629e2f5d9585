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
from programs.tensormap import TensorMap

Ptxas = Callable[..., tuple[bool, str]]

# Switches of fa3 whose combinations must all be sound; `pairwise` samples them.
SWITCHES: dict[str, tuple[Define, ...]] = {
    "HEAD_DIM": (64, 128, 192, 256),
    "CAUSAL": (0, 1),
    "DTYPE": ("f16", "bf16"),
    "SPECIALIZE": (0, 1),
    "SETMAXNREG": (0, 1),
    "PINGPONG": (0, 1),
    "OVERLAP": (0, 1),
    "SCHEDULE": (0, 1),
    "STAGES": (1, 2),
}

FA4_SWITCHES: dict[str, tuple[Define, ...]] = {
    "HEAD_DIM": (64, 128),
    "CAUSAL": (0, 1),
    "DTYPE": ("f16", "bf16"),
    "SCHEDULE": (0, 1),
    "TILES": (1, 2),
    "CORRECTION": (0, 1),
    "RESCALE_LIMIT": (0, 8),
    "EMULATE": (0, 6, 10, 16),
    "EMULATE_FROM": (0, 1, 3),
    "SPLIT_P": (0, 1),
    "KV_STAGES": (0, 2),
}


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
    accepted, messages = ptxas(to_ptx(module(name, defines)), "sm_100a" if name == "fa4" else "sm_90a", "-v")
    assert accepted, messages
    assert "0 bytes spill stores, 0 bytes spill loads" in messages, messages
    assert "C75" not in messages and "warning" not in messages.lower(), messages


def pairwise(switches: dict[str, tuple[Define, ...]]) -> list[dict[str, Define]]:
    """Combinations in which every two values of two switches meet: the one with most new pairs, again and again."""
    rows = list(itertools.product(*(range(len(values)) for values in switches.values())))
    met = [{(i, j, r[i], r[j]) for i, j in itertools.combinations(range(len(r)), 2)} for r in rows]
    missing, chosen = set().union(*met), []
    while missing:
        best = max(range(len(rows)), key=lambda k: len(met[k] & missing))
        missing -= met[best]
        chosen.append({name: switches[name][v] for name, v in zip(switches, rows[best], strict=True)})
    return chosen


@pytest.mark.parametrize("defines", pairwise(SWITCHES), ids=str)
def test_fa3_combinations(ptxas: Ptxas, defines: dict[str, Define]) -> None:
    """Any two switches together: all roles are there, and ptxas is content (`tools.record.sweep` runs all of them)."""
    (kernel,) = module("fa3", defines).kernels
    assert {i.role for i in instructions(kernel.body)} == {"setup", "producer", "mma", "softmax", "epilogue"}
    accept(ptxas, "fa3", defines)


@pytest.mark.parametrize(
    "defines",
    [
        {},
        {"KV_TILE": 192, "PINGPONG": 0},
        {"KV_TILE": 128, "STAGES": 3},
        {"HEAD_DIM": 64, "P_SHARED": 0},
        {"HEAD_DIM": 64, "CAUSAL": 1, "P_SHARED": 1, "CONSUMERS": 2},
        {"CONSUMERS": 3, "KV_TILE": 80},
        {"SPECIALIZE": 0, "OVERLAP": 0, "STAGES": 1},
    ],
    ids=str,
)
def test_ptxas_takes_fa3(ptxas: Ptxas, defines: dict[str, Define]) -> None:
    accept(ptxas, "fa3", defines)


@pytest.mark.parametrize("defines", [{}, *pairwise(FA4_SWITCHES)], ids=str)
def test_fa4_combinations(ptxas: Ptxas, defines: dict[str, Define]) -> None:
    (kernel,) = module("fa4", defines).kernels
    roles = {"setup", "load", "store", "mma", "softmax", "correction", "epilogue"}
    assert {i.role for i in instructions(kernel.body)} == roles
    accept(ptxas, "fa4", defines)


@pytest.mark.parametrize(
    ("name", "defines"),
    [
        ("gemm", {}),
        ("gemm", {"TILE_N": 64, "STAGES": 5, "DTYPE": "bf16"}),
        ("gemm", {"DTYPE": "tf32"}),
        ("gemm", {"DTYPE": "tf32", "TILE_N": 64}),
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
        ("fa3", {"STAGES": 7, "HEAD_DIM": 64}, r"needs 254200 bytes"),
        ("fa3", {"STAGES": 3, "HEAD_DIM": 256}, r"needs 311416 bytes"),
        ("fa3", {"HEAD_DIM": 96}, "64, 128, 192 or 256"),
        ("fa3", {"CONSUMERS": 4}, "2 or 3"),
        ("fa3", {"HEAD_DIM": 256, "CONSUMERS": 3}, "160 registers of a thread hold 0 keys"),
        ("fa3", {"DTYPE": "f32"}, "f16 or bf16"),
        ("fa3", {"KV_TILE": 100}, "multiple of 16"),
        ("fa3", {"KV_TILE": 208}, "240 registers of a thread hold 192 keys"),
        ("fa3", {"KV_TILE": 112, "SETMAXNREG": 0}, "168 registers of a thread hold 96 keys"),
        ("fa4", {"KV_STAGES": 4}, r"needs 264416 bytes of shared memory, at most 232448"),
        ("fa4", {"HEAD_DIM": 256}, "64 or 128"),
        ("fa4", {"TILES": 3}, "1 or 2"),
        ("fa4", {"EMULATE": 5}, "0 or even"),
        ("fa4", {"RESCALE_LIMIT": 9}, "between 0 and 8"),
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
    ("name", "defines", "options"),
    [
        *(("fa3", {}, {"head_dim": d, "causal": c}) for d in (64, 128, 192, 256) for c in (False, True)),
        ("fa3", {"KV_TILE": 48, "STAGES": 1}, {}),
        ("fa3", {"SPECIALIZE": 0, "SETMAXNREG": 0}, {}),
        ("fa3", {"SETMAXNREG": 0}, {}),
        ("fa3", {"SETMAXNREG": 0}, {"head_dim": 64}),
        ("fa3", {"SETMAXNREG": 0}, {"head_dim": 256}),
        ("fa3", {"P_SHARED": 1, "KV_TILE": 80}, {}),
        ("fa3", {"CONSUMERS": 3, "SPECIALIZE": 0}, {}),
        ("fa3", {"OVERLAP": 0}, {"head_dim": 64}),
        *(("fa4", {}, {"head_dim": d, "causal": c}) for d in (64, 128) for c in (False, True)),
        ("fa4", {"TILES": 1}, {}),
        ("fa4", {"CORRECTION": 0, "KV_STAGES": 2}, {}),
        ("gemm", {}, {}),
        ("gemm", {"TILE_N": 128, "STAGES": 4}, {}),
        ("gemm", {}, {"dtype": "tf32"}),
        ("gemm", {"TILE_N": 64}, {"dtype": "tf32"}),
    ],
    ids=str,
)
def test_launch_agrees_with_the_kernel(name: str, defines: dict[str, Define], options: dict[str, object]) -> None:
    """Shared bytes, block, parameters and boxes are those that the expanded kernel has."""
    problem = programs.find(name).from_options(defines=defines, **options)
    expanded = module(name, problem.defines)
    (kernel,) = expanded.kernels
    launch = problem.launch(problem.make_inputs(), sms=4)
    assert launch.shared_bytes == barrier_end(kernel) + 8 * (name == "fa4")  # the address of Tensor Memory
    assert dict(kernel.performance)["reqntid"] == launch.block
    assert len(kernel.params) == len(launch.args)
    assert any(isinstance(i, VarDecl) and i.count is None for i in expanded.items)
    expected = {i.operands[2].value for i in instructions(kernel.body) if "expect_tx" in i.opcode}  # type: ignore[union-attr]
    boxes = [m.box_bytes for m in launch.args if isinstance(m, TensorMap)]
    columns = getattr(problem, "head_dim", 0) // 64
    if name == "fa4":
        assert expected == {columns * boxes[0]} and len(set(boxes)) == 1
    elif name == "fa3":
        assert expected == {columns * boxes[0], columns * boxes[1]} and boxes[1] == boxes[2]
    else:
        assert expected == {128 * (128 + problem.tile_n)}  # type: ignore[attr-defined]
        assert boxes[1] in (64 * 128, 128 * problem.tile_n)  # type: ignore[attr-defined]


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
