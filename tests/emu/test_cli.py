"""The command line: output, errors and exit codes; `run` with a stand-in for the machine."""

import json
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from emu.cli import COMMANDS, execute
from emu.result import Deadlock, Finding, Issue, Result, StuckWarp

KERNEL = """
.version 8.0
.target sm_90a
.address_size 64
.define N = 2
.visible .entry add(.param .u64 x, .param .u32 n)
.reqntid 32, 1, 1
{
    .reg .b32 %r<4>;
    mov.u32 %r0, %tid.x;
    .for i in (0, N) { add.u32 %r1, %r0, 7 + i; }
    exit;
}
"""


@pytest.fixture
def warpsmith(capsys):
    """Run a command line; gives exit code, stdout and stderr."""

    def run(*args: str) -> SimpleNamespace:
        code = execute(args)
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def kernel(tmp_path):
    path = tmp_path / "add.mptx"
    path.write_text(KERNEL)
    return str(path)


# ---- help and usage -------------------------------------------------------------------------------


def test_help_lists_every_command_without_heavy_imports():
    code = (
        "import sys; from emu.cli import execute; execute(['--help']);"
        "print([m for m in ('numba', 'numpy', 'lark', 'isa.registry', 'emu.machine') if m in sys.modules])"
    )
    start = time.perf_counter()
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - start < 2  # 0.1 s on an idle machine
    assert run.stdout.splitlines()[-1] == "[]"
    assert all(name in run.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", [*COMMANDS, "machine show"])
def test_every_command_has_help(warpsmith, name):
    got = warpsmith(*name.split(), "--help")
    assert got.code == 0 and "Usage" in got.out


def test_a_misspelt_command_names_the_nearest(warpsmith):
    got = warpsmith("rnu")
    assert got.code == 2 and "did you mean 'run'" in got.err and not got.out


def test_an_unknown_option_is_a_usage_error(warpsmith):
    assert warpsmith("ptx", "--colour", "x").code == 2


def test_unexpected_errors_are_internal(warpsmith, monkeypatch):
    monkeypatch.setattr("emu.commands.ptx.expand", lambda *_: 1 / 0)
    got = warpsmith("ptx", __file__)
    assert got.code == 70 and "internal error" in got.err


# ---- machine --------------------------------------------------------------------------------------


def test_machine_list(warpsmith):
    got = warpsmith("machine", "list")
    assert got.code == 0 and "h100" in got.out and "h200" in got.out


def test_machine_show_gives_value_status_and_source(warpsmith):
    got = warpsmith("machine", "show", "h200", "unit.sfu")
    assert got.code == 0
    assert "unit.sfu.lanes" in got.out and "16" in got.out and "derived" in got.out and "MUFU" in got.out


def test_machine_show_obeys_overrides(warpsmith):
    got = warpsmith("machine", "show", "h200", "timing.mufu.interval", "--set", "unit.sfu.lanes=32")
    assert got.code == 0 and " 4 " in got.out


def test_machine_diff(warpsmith):
    got = warpsmith("machine", "diff", "h100", "h200")
    assert got.code == 0 and "unit.hbm.gb_per_s" in got.out and "unit.sfu.lanes" not in got.out


def test_machine_check(warpsmith, tmp_path):
    assert "no findings" in warpsmith("machine", "check", "h200").out
    path = tmp_path / "bad.toml"
    path.write_text('extends = "h200"\n[unit.sfu]\nlane = { value = 1, source = "s", status = "assumed" }')
    got = warpsmith("machine", "check", str(path))
    assert got.code == 2 and "did you mean 'unit.sfu.lanes'" in got.err and not got.out


def test_unknown_machine(warpsmith):
    got = warpsmith("machine", "show", "h2000")
    assert got.code == 2 and "did you mean 'h200'" in got.err


# ---- explain --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("long_scoreboard", "an mbarrier phase has not completed"),
        ("add.u32", "add.T d, a, b;"),
        ("mbarrier.try_wait", "mbarrier.try_wait"),
        ("IADD3", "timing class alu"),
        ("mufu", "pipe xu for 8 cycles"),
        ("unit.tma.queue", "copies in flight"),
        ("timing.fma.latency", "FFMA"),
        ("unit.tensor", "unit.tensor.operand_b_per_cy"),
        ("tensor", "pipe tensor"),
        ("HGMMA", "executed by wgmma_mma"),
        ("mbarrier.wait", "mbarrier.wait [bar], parity;"),
        ("tma.load.3d", "short spelling"),
        ("wgmma queue", "a cause of gmma"),
        ("PINGPONG", "define PINGPONG of fa3, default 1"),
        ("fa3", "--seqlen-k"),
        ("WG103", "four warps of the warpgroup"),
    ],
)
def test_explain(warpsmith, word, text):
    got = warpsmith("explain", word)
    assert got.code == 0, got.err
    assert text in got.out


def test_explain_names_the_nearest(warpsmith):
    got = warpsmith("explain", "long_scorebord")
    assert got.code == 2 and "did you mean 'long_scoreboard'" in got.err


# ---- asm and ptx ----------------------------------------------------------------------------------


def test_ptx_prints_plain_ptx(warpsmith, kernel):
    got = warpsmith("ptx", kernel, "-D", "N=3")
    assert got.code == 0
    assert got.out.count("add.u32 %r1") == 3 and ".for" not in got.out


def test_asm_prints_operations_and_pipes(warpsmith, kernel):
    got = warpsmith("asm", kernel)
    assert got.code == 0, got.err
    assert "micro-operations by pipe" in got.out and "EXIT" in got.out


def test_assembly_errors_point_at_the_line(warpsmith, tmp_path):
    path = tmp_path / "bad.mptx"
    path.write_text(KERNEL.replace("add.u32", "ad.u32"))
    for name in ("asm",):
        got = warpsmith(name, str(path))
        assert got.code in (2, 4) and "bad.mptx:11:" in got.err and "^" in got.err and not got.out


@pytest.mark.parametrize("args", [("nowhere.mptx",), (".",)])
def test_files_that_are_not_there(warpsmith, args):
    got = warpsmith("ptx", *args)
    assert got.code == 2 and args[0] in got.err


def test_files_that_are_not_text(warpsmith, tmp_path):
    (tmp_path / "x.ptx").write_bytes(b"\xff\xfe\x00")
    assert warpsmith("asm", str(tmp_path / "x.ptx")).code == 2


@pytest.mark.parametrize("text", ["=3", "1N=3", ""])
def test_bad_defines(warpsmith, kernel, text):
    assert warpsmith("ptx", kernel, "-D", text).code == 2


# ---- run ------------------------------------------------------------------------------------------


def fake_result(**changes: object) -> Result:
    fields: dict[str, object] = {
        "warpsmith_version": "0",
        "kernel": "add",
        "machine": "h200",
        "mode": "full",
        "cycles": 100,
        "cycles_elapsed": 200,
        "time_us": 0.05,
        "clock_mhz": 1980.0,
        "pipes": {"alu": 0.5},
        "warp_instructions": 5,
        "instruction_mix": {"": {"alu": 5}},
        "host_seconds": 0.001,
        "warp_instructions_per_second": 5000.0,
        "registers_per_thread": 8,
        "shared_bytes": 0,
        "occupancy": 0.5,
        "stalls": {"": {"selected": 5, "wait": 3}},
        "issue": Issue(selected=5, idle=35),
    }
    return Result(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def launches(monkeypatch):
    """Replace the machine; the list holds the keyword arguments of every launch."""
    calls: list[dict[str, object]] = []

    def launch(kernel: object, **kwargs: object) -> Result:
        calls.append(kwargs)
        return fake_result()

    monkeypatch.setattr("emu.api.launch", launch)
    monkeypatch.setattr("emu.solve.launch", launch)
    return calls


def test_run_a_file(warpsmith, kernel, launches):
    got = warpsmith("run", kernel, "--grid", "2,3", "--shared", "64", "--arg", "x=zeros:f32[32]", "--arg", "n=32:u32")
    assert got.code == 0, got.err
    (call,) = launches
    assert call["shared_bytes"] == 64
    assert call["grid"] == (2, 3, 1) and call["block"] == (32, 1, 1)
    x, n = call["args"]
    assert x.dtype == np.float32 and x.shape == (32,) and n == 32 and n.dtype == np.uint32
    assert "add on h200" in got.out and "warp states" in got.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "give --grid"),
        (("--grid", "1"), "missing: --arg x=SPEC --arg n=SPEC"),
        (("--grid", "0"), "positive"),
        (("--grid", "1,1,1,1"), "X,Y,Z"),
        (("--grid", "1", "--arg", "x"), "write NAME=SPEC"),
        (("--grid", "1", "--arg", "x=zeros:f32"), "TYPE\\[EXTENT"),
        (("--grid", "1", "--arg", "x=42:u33"), "--arg x=42:u33"),
        (("--grid", "1", "--arg", "x=tensormap:y:box=8,8"), "not an array"),
        (("--grid", "1", "--arg", "x=zeros:f32[4]", "--arg", "n=1:u32", "--arg", "nn=1:u32"), "no such parameter.*'n'"),
        (("--heads", "2"), "--heads is for shipped programs"),
        (("--inputs", "x.npz"), "--inputs belongs to shipped programs"),
        (("--set", "unit.sfu.lane=1"), "did you mean 'unit.sfu.lanes'"),
        (("--machine", "h300"), "did you mean"),
    ],
)
def test_wrong_file_runs(warpsmith, kernel, launches, args, message):
    got = warpsmith("run", kernel, *args)
    assert got.code == 2 and not launches and not got.out
    assert re.search(message, re.sub(r"\s*\n\s*", " ", got.err)), got.err


def test_run_names_programs_for_an_unknown_kernel(warpsmith):
    got = warpsmith("run", "fa33")
    assert got.code == 2 and "did you mean 'fa3'" in got.err


def test_run_json_on_stdout_is_only_json(warpsmith, kernel, launches):
    got = warpsmith("run", kernel, "--grid", "1", "--arg", "x=ones:f16[8]", "--arg", "n=8:u32", "--json", "-")
    assert json.loads(got.out)["cycles"] == 100
    assert Result.from_json(got.out).kernel == "add"


def test_run_json_to_a_file(warpsmith, kernel, launches, tmp_path):
    path = tmp_path / "r.json"
    got = warpsmith("run", kernel, "--grid", "1", "--arg", "x=ones:f16[8]", "--arg", "n=8:u32", "--json", str(path))
    assert got.code == 0 and Result.from_json(path.read_text()).cycles == 100 and "warp states" in got.out


def test_run_saves_arrays_and_the_bits_of_foreign_types(warpsmith, kernel, launches, tmp_path):
    path = tmp_path / "out.npz"
    got = warpsmith(
        "run", kernel, "--grid", "1", "--arg", "x=randn:bf16[4,2]:seed=3", "--arg", "n=8:u32", "--save", str(path)
    )
    assert got.code == 0, got.err
    saved = np.load(path)
    expected = np.random.default_rng(3).standard_normal((4, 2)).astype(ml_dtypes.bfloat16)
    assert saved["x"].dtype == np.uint16
    np.testing.assert_array_equal(saved["x"], expected.view(np.uint16))


def test_run_passes_overrides_and_limits(warpsmith, kernel, launches):
    warpsmith("run", kernel, "--grid", "1", "--arg", "x=ones:f16[8]", "--arg", "n=8:u32", "--set", "unit.sfu.lanes=32",
              "--max-cycles", "77")  # fmt: skip
    (call,) = launches
    assert call["machine"].timing["mufu"].interval == 4 and call["max_cycles"] == 77


def test_tensor_maps_may_use_arrays_that_are_no_parameters(warpsmith, kernel, launches):
    got = warpsmith("run", kernel, "--grid", "1", "--arg", "a=zeros:f16[128,64]",
                    "--arg", "x=tensormap:a:box=64,64:swizzle=128", "--arg", "n=8:u32")  # fmt: skip
    assert got.code == 0, got.err
    tensor_map = launches[0]["args"][0]
    assert tensor_map.dims == (64, 128) and tensor_map.box == (64, 64) and tensor_map.swizzle == 128


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"findings": [Finding(rule="address", severity="fault", location="k:1:1", message="outside")]}, 6, "outside"),
        ({"findings": [Finding(rule="cycles", severity="limit", location="", message="limit")]}, 5, "limit"),
        (
            {
                "deadlock": Deadlock(
                    cycle=5,
                    message="nothing moves",
                    warps=[StuckWarp(cta=0, warp=0, role="", location="k:1:1", instruction="bar", waits_for="bar 1")],
                )
            },
            3,
            "nothing moves",
        ),
    ],
)
def test_exit_codes_of_runs(warpsmith, kernel, monkeypatch, changes, code, text):
    monkeypatch.setattr("emu.api.launch", lambda *_, **__: fake_result(**changes))
    got = warpsmith("run", kernel, "--grid", "1", "--arg", "x=ones:f16[8]", "--arg", "n=8:u32")
    assert got.code == code and text in got.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("vector_add", "--heads", "2"), "unknown option heads"),
        (("fa3", "--head-dim", "96"), "head_dim"),
        (("fa3", "--dtype", "fp17"), "dtype must be one of"),
        (("fa3", "--grid", "1"), "--grid is for files"),
        (("softmax", "--seqlen", "0"), "0 is not in the range"),
    ],
)
def test_wrong_program_runs(warpsmith, launches, args, message):
    got = warpsmith("run", *args)
    assert got.code == 2 and not launches
    assert message in " ".join(got.err.split())


def test_own_inputs_must_fit(warpsmith, launches, tmp_path):
    np.savez(tmp_path / "in.npz", q=np.zeros((1, 2, 3, 4), np.float32))
    got = warpsmith("run", "fa3", "--seqlen", "128", "--heads", "1", "--inputs", str(tmp_path / "in.npz"))
    assert got.code == 2 and "input q must have shape" in " ".join(got.err.split())


def test_inputs_must_be_an_npz_file(warpsmith, launches, kernel):
    got = warpsmith("run", "fa3", "--seqlen", "128", "--inputs", kernel)
    assert got.code == 2 and "not an .npz file" in " ".join(got.err.split())


def test_defines_that_do_not_fit_the_launch(warpsmith, launches, monkeypatch):
    monkeypatch.setattr("emu.solve.load", lambda *_, **__: None)
    got = warpsmith("run", "vector_add", "-D", "BLOCK=0")
    assert got.code == 2 and "cannot be launched with these defines" in got.err


def test_arrays_from_files(warpsmith, launches, kernel, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.int32))
    got = warpsmith("run", kernel, "--grid", "1", "--arg", f"x={tmp_path / 'x.npy'}", "--arg", "n=0x10:s32")
    assert got.code == 0, got.err
    x, n = launches[0]["args"]
    np.testing.assert_array_equal(x, np.arange(4))
    assert n == 16
    (tmp_path / "y.npy").write_text("nothing")
    assert warpsmith("run", kernel, "--grid", "1", "--arg", f"x={tmp_path / 'y.npy'}").code == 2


def test_wrong_numbers_are_a_finding(warpsmith, launches, monkeypatch):
    monkeypatch.setattr("emu.solve.load", lambda *_, **__: None)
    got = warpsmith("run", "softmax", "--rows", "8", "--cols", "32")
    assert got.code == 1, got.err  # the stand-in computes nothing
    assert "FAILED" in got.out
