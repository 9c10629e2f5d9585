"""What a newcomer gets wrong, on the command line and from Python: each time a message that says what to do."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import emu
import programs
from emu.commands import run as run_command
from emu.memory_map import must_fit
from emu.result import Deadlock
from programs.errors import ErrorSum
from tests.emu.commands.stand_in import fake_result

ENTRY = ".visible .entry {}(.param .u64 x) {{ .reg .b64 %d; ld.param.u64 %d, [x]; st.global.u32 [%d+{}], {}; ret; }}\n"
TWO = f".version 8.5\n.target sm_90a\n.address_size 64\n{ENTRY.format('k', 0, 1)}{ENTRY.format('j', 4096, 2)}"
LAUNCH = ("--grid", "1", "--block", "32")


@pytest.fixture
def two(tmp_path):
    """A file with two kernels, of which the second leaves its array."""
    path = tmp_path / "two.ptx"
    path.write_text(TWO)
    return str(path)


def words(text: str) -> str:
    return " ".join(text.split())


# ---- several kernels ------------------------------------------------------------------------------


def test_one_of_two_kernels_must_be_named(warpsmith, two):
    for name in ((), ("--kernel", "kk")):
        got = warpsmith("run", two, *LAUNCH, *name)
        assert got.code == 2 and "name one of k, j with --kernel" in got.err and "two.ptx:4:" in got.err
    with pytest.raises(emu.AssemblyError, match="name one of k, j"):
        emu.load(text=TWO)


def test_a_kernel_is_chosen_by_name(warpsmith, two, tmp_path):
    file = str(tmp_path / "out.npz")
    got = warpsmith("run", two, "--kernel", "k", *LAUNCH, "--arg", "x=zeros:u32[4]", "--save", file)
    assert got.code == 0 and np.load(file)["x"].tolist() == [1, 0, 0, 0], got.err
    got = warpsmith("asm", two, "--kernel", "j")
    assert got.code == 0 and "j (sm_90a)" in got.out and "k (sm_90a)" not in got.out
    assert warpsmith("asm", two, "--kernel", "i").code == 2
    assert "--kernel is for files" in warpsmith("run", "fa3", "--kernel", "k").err


# ---- too large ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", ["fa3 --seqlen 1000000000", "gemm --m 1000000000 --n 1000000000 --k 1", "softmax --rows 1000000000000"]
)
def test_programs_that_do_not_fit_in_memory(warpsmith, args):
    got = warpsmith("run", *args.split())
    assert got.code == 2 and "GB for inputs and outputs do not fit in this computer's" in got.err


@pytest.mark.parametrize("name", programs.names())
def test_array_bytes_are_those_of_the_arrays(name):
    """The f32 log-sum-exp of attention counts as 16 bits: the figure is a lower bound."""
    problem = programs.find(name).from_options()
    arrays = problem.make_inputs()
    arrays |= {n: problem.launch(arrays, sms=1).arrays[n] for n in problem.outputs}
    assert 0.98 * sum(a.nbytes for a in arrays.values()) < problem.array_bytes <= sum(a.nbytes for a in arrays.values())


def test_memory_that_runs_out_is_no_internal_error(warpsmith, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr("emu.solve.solve", fail)
    got = warpsmith("run", "vector_add")
    assert got.code == 2 and "not enough memory: Unable to allocate 1 TiB" in got.err
    must_fit(1 << 20)


@pytest.mark.parametrize(
    ("option", "extents", "message"),
    [
        ("grid", "3000000000", "x of the grid is at most 2,147,483,647, not 3,000,000,000"),
        ("grid", "1,70000", "y of the grid is at most 65,535, not 70,000"),
        ("grid", "1,1,65536", "z of the grid is at most 65,535"),
        ("grid", "65535,65535,65535", "GB for a grid of so many CTAs do not fit"),
        ("block", "1,1,65", "z of the block is at most 64"),
        ("block", "1025", "x of the block is at most 1,024"),
    ],
)
def test_limits_of_a_launch(warpsmith, two, option, extents, message):
    launch = {"grid": "1", "block": "32"} | {option: extents}
    options = [word for name, text in launch.items() for word in (f"--{name}", text)]
    got = warpsmith("run", two, "--kernel", "k", *options, "--arg", "x=zeros:u32[4]")
    assert got.code == 2 and message in got.err and not got.out
    sizes = {name: tuple(map(int, text.split(","))) for name, text in launch.items()}
    with pytest.raises(emu.LaunchError, match=message):
        emu.launch(emu.load(text=TWO, kernel="k"), args=[np.zeros(4, np.uint32)], **sizes)


# ---- words that are wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("{two} --kernel k", "give --grid X[,Y[,Z]]"),
        ("{two} --kernel k --grid 1", "give --block X[,Y[,Z]]"),
        ("{two} --kernel k --grid 1 --block 32 --arg x=zeros:u32[4] --arg x=1:u64", "--arg x is given twice"),
        ("{two} --kernel k --grid 1 --block 32 --arg x=-1:u32", "a u32 is between 0 and 4294967295"),
        ("{two} --kernel k --grid 1 --block 32 --arg x=1e6:f16", "a f16 is between -65504.0 and 65504.0"),
        ("fa3 -D OVERLAP=yes", "define OVERLAP is a whole number (default 1), not 'yes'"),
        ("fa3 -D PINGPONG=yes", "the define PINGPONG is an integer (default 1), given 'yes'"),
        ("vector_add -D BLOCK=2.5", "define BLOCK is a whole number (default 256), not '2.5'"),
        ("vector_add --seqlen 17", "--seqlen is not an option of vector_add; it takes --n"),
        ("gemm --head-dim 64", "--head-dim is not an option of gemm; it takes --m, --n, --k, --dtype"),
        ("softmax --causal", "--causal is not an option of softmax"),
    ],
)
def test_wrong_words(warpsmith, two, args, message):
    got = warpsmith("run", *args.format(two=two).split())
    assert got.code == 2 and message in words(got.err) and not got.out


def test_scalars_up_to_the_ends_of_their_type(warpsmith, two):
    from emu.commands.arguments import read_value

    assert read_value("n", "255:u8") == 255 and read_value("n", "-128:s8") == -128
    assert read_value("n", "65504:f16") == 65504 and np.isinf(read_value("n", "inf:f32"))
    assert read_value("n", "0xffffffffffffffff:u64") == 2**64 - 1


def test_help_names_every_program():
    assert all(name in run_command.HELP for name in programs.names())


# ---- NaN, infinities and rounding -----------------------------------------------------------------


def test_nan_against_nan_is_no_error():
    errors = ErrorSum("x")
    special = np.array([np.nan, np.inf, -np.inf, 2.0])
    errors.add(special.astype(np.float32), (slice(None),), special)
    assert errors.relative == errors.max_abs == 0 and errors.numerics("x", 0.0).passed
    for got, expected in ((np.inf, -np.inf), (np.nan, 1.0), (1.0, np.nan), (np.inf, np.nan)):
        errors = ErrorSum("x")
        errors.add(np.array([got, 2.0]), (slice(None),), np.array([expected, 2.0]))
        assert not errors.numerics("x", 1e30).passed


@pytest.mark.parametrize("name", ["vector_add", "fa3"])
def test_inputs_with_nan(warpsmith, tmp_path, name):
    """The kernels carry NaN and infinities on as the reference does, and nothing is warned of."""
    problem = programs.find(name).from_options(**({"n": 300} if name == "vector_add" else {"seqlen": 64, "heads": 1}))
    inputs = problem.make_inputs()
    for array, special in zip(inputs.values(), (np.nan, np.inf, -np.inf), strict=False):
        array.flat[77] = special
    np.savez(tmp_path / "in.npz", **inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = warpsmith("run", name, "--inputs", str(tmp_path / "in.npz"))
    assert got.code == 0 and "which has NaN" in words(got.out) and not got.err, got.err


@pytest.mark.parametrize(("kind", "value"), [("fp16", 1e5), ("bf16", 1e39)])
def test_inputs_that_do_not_fit_their_type(warpsmith, tmp_path, kind, value):
    q = np.ones((1, 8, 1, 64))
    np.savez(tmp_path / "in.npz", q=q * value, k=q, v=q)
    got = warpsmith("run", "fa3", "--dtype", kind, "--inputs", str(tmp_path / "in.npz"))
    assert got.code == 2 and f"input q: values do not fit in {kind}" in words(got.err)


# ---- Python ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [1.5, (1, 2.0), 0, (), (1, 1, 1, 1), "8", None])
def test_a_grid_is_whole_numbers(grid):
    with pytest.raises(emu.LaunchError, match="one to three positive whole numbers"):
        emu.launch(emu.load(text=TWO, kernel="k"), grid=grid, block=32, args=[np.zeros(4, np.uint32)])


def test_load_takes_a_file_or_a_text(two):
    for wrong in ({}, {"source": two, "text": TWO}):
        with pytest.raises(ValueError, match="a file or a program's name, or else text="):
            emu.load(**wrong)


def test_a_list_is_no_array():
    with pytest.raises(emu.LaunchError, match=r"np.asarray\(x") as caught:
        emu.launch(emu.load(text=TWO, kernel="k"), block=32, args=[[1.0] * 100_000])
    assert len(str(caught.value)) < 200


# ---- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["/proc/nope", "/dev/null/x"])
def test_a_cache_that_cannot_be_written(monkeypatch, folder):
    from emu import generate

    monkeypatch.setenv("WARPSMITH_CACHE", folder)
    with pytest.raises(generate.CacheError, match=f"{folder}.*WARPSMITH_CACHE"):
        generate._path.__wrapped__(generate.SHARED)


def test_compiled_once_where_numba_keeps_its_files(tmp_path):
    """With Numba's own folder elsewhere an earlier run is found, too."""
    code = "from emu import generate; print(generate.is_cached('reduce')); generate.compiled_file('reduce')"
    env = os.environ | {"WARPSMITH_CACHE": str(tmp_path / "ours"), "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    run = [sys.executable, "-c", code]
    assert [subprocess.check_output(run, env=env, text=True).strip() for _ in range(2)] == ["False", "True"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = "m.toml"', "extends runs in a circle: m -> m"),
        ('extends = "h200', "not TOML: "),
        ('extends = "h200"\ntiming = 3', "timing: write { value = 3"),
        ('extends = "h200"\n[timing]\nfma = 4', "timing.fma: write { value = 4"),
        ('extends = "h200"\ntargets = 3', "targets: write the names"),
        ('extends = "h200"\ntargets = "sm_90"', "targets: write the names"),
    ],
)
def test_broken_machine_files(warpsmith, tmp_path, text, message):
    path = tmp_path / "m.toml"
    path.write_text(text)
    got = warpsmith("machine", "check", str(path))
    assert got.code == 2 and message in got.err and str(path) in got.err


# ---- how a run ended ------------------------------------------------------------------------------


def test_a_fault_is_said_on_stderr(warpsmith, two):
    got = warpsmith("run", two, "--kernel", "j", *LAUNCH, "--arg", "x=zeros:u32[4]")
    assert got.code == 6 and got.err.count("\n") == 1 and "[MEM103]" in got.err and got.err in got.out
    json = warpsmith("run", two, "--kernel", "j", *LAUNCH, "--arg", "x=zeros:u32[4]", "--json", "-")
    assert json.code == 6 and json.err == got.err and emu.Result.from_json(json.out).findings[-1].rule == "MEM103"


def test_a_deadlock_is_said_on_stderr(warpsmith, two, monkeypatch):
    stuck = Deadlock(cycle=7, message="no warp can go on", warps=[])
    monkeypatch.setattr("emu.api.launch", lambda *_, **__: fake_result(deadlock=stuck))
    got = warpsmith("run", two, "--kernel", "k", *LAUNCH, "--arg", "x=zeros:u32[4]")
    assert got.code == 3 and got.err == "deadlock at cycle 7: no warp can go on\n" and got.err in got.out
