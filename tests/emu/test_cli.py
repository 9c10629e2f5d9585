"""The command line: output, errors and exit codes; `run` with a stand-in for the machine."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from emu.cli import COMMANDS, EXIT_CODES
from emu.result import Deadlock, Finding, Issue, Result, StuckWarp

ROOT = Path(__file__).parents[2]
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
        ("wgmma queue", "a cause of mio_throttle"),
        ("PINGPONG", "define PINGPONG of fa3, default 1"),
        ("fa3", "--seqlen-k"),
        ("fa3", "from Python only, inputs="),
        ("gemm", "--inputs FILE.npz  your own a [m, k], b [k, n]"),
        ("WG103", "four warps of the warpgroup"),
        ("multimem", "recognised, but not implemented"),
        ("LIMIT", "the run stopped at its limit"),
        ("swizzle", "16-byte chunks"),
        ("0x08200010", "kind::f16: M 128, N 128, A f16, B f16, D f32, A K-major, B K-major"),
        ("136314896", "kind::f8f6f4: M 128, N 128, A e4m3"),
        ("0x4000404000000040", "start address 0x400, leading-dimension offset (LBO) 0 bytes, stride offset (SBO) 1024"),
        ("0x4000004000000040", "of wgmma (version 0)"),
        ("0xffffffffffffffff", "of nothing: there is no version 7 (bits 46-48)"),
        ("0x4010004000004040", "wrong: reserved bits are set: 14, 52"),
        ("0x400040400001c040", "wrong: reserved bits are set: 14, 15"),
        ("LDSM", "micro-operation LDSM.16.M88.4"),
        ("CA101", "cp.async.wait_group N leaves the N newest groups out"),
        ("0xffffffff", "not of kind::tf32: reserved bits are set"),
    ],
)
def test_explain(warpsmith, word, text):
    got = warpsmith("explain", word)
    assert got.code == 0, got.err
    assert text in got.out


WORDS = [
    "descriptor", "a-desc", "LBO", "SBO", "parity", "phase", "expect_tx", "swizzle", "sm_90a", "sm_103a", 
    "MB101", "MEM103", "TX103", "WG104", "LIMIT",
]  # fmt: skip


@pytest.mark.parametrize("word", [*WORDS, "pending count", "Pending_Count", "imm-trans-b"])
def test_explain_the_manual_s_words(warpsmith, word):
    got = warpsmith("explain", word)
    assert got.code == 0 and got.out.count("\n") <= 12, got.out + got.err


def test_explain_lists_the_rules(warpsmith):
    got = warpsmith("explain", "rules")
    assert got.code == 0 and got.out == warpsmith("explain", "codes").out
    assert all(f"\n{rule} " in got.out for rule in ("MB101", "MEM103", "TX103", "WG104", "LIMIT", "CHAOS"))


def test_explain_suggests_nothing_far_off(warpsmith):
    got = warpsmith("explain", "zarity")
    assert got.code == 2 and "did you mean 'parity'" in got.err
    assert "did you mean" not in warpsmith("explain", "xylophone").err


def test_help_lists_the_exit_codes(warpsmith):
    got = warpsmith("--help")
    text = " ".join(got.out.replace("│", " ").split())
    assert all(f"{code} {meaning}" in text for code, meaning in EXIT_CODES.items()), got.out
    readme = (ROOT / "README.md").read_text()
    assert all(f"| {code} | {meaning}".split(" (")[0] in readme for code, meaning in EXIT_CODES.items() if code < 100)


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


def test_asm_and_ptx_know_shipped_programs(warpsmith):
    got = warpsmith("asm", "gemm", "-D", "STAGES=2")
    assert got.code == 0 and got.out.startswith("gemm (sm_90a)"), got.err
    got = warpsmith("ptx", "softmax", "-D", "WARPS=2")
    assert got.code == 0 and ".entry" in got.out and ".define" not in got.out, got.err
    got = warpsmith("asm", "fa33")
    assert got.code == 2 and "did you mean 'fa3'" in got.err


def test_ptx_of_one_kernel(warpsmith, tmp_path):
    """Its functions and variables stay; an unknown name lists the kernels that there are."""
    path = tmp_path / "two.ptx"
    path.write_text(
        ".version 8.0\n.target sm_90a\n.global .u32 g;\n.func f() { ret; }\n.entry one() { ret; }\n.entry two() { exit; }\n"
    )
    got = warpsmith("ptx", str(path), "--kernel", "two")
    assert got.code == 0 and ".entry two" in got.out and ".entry one" not in got.out
    assert ".func" in got.out and ".global" in got.out
    got = warpsmith("ptx", str(path), "--kernel", "tow")
    assert got.code == 2 and "did you mean 'two'" in got.err


def test_a_run_that_did_not_end_has_no_rate(warpsmith):
    """What part of the problem it did is not known."""
    got = warpsmith("run", "softmax", "--rows", "64", "--cols", "128", "--max-cycles", "100", "--json", "-")
    result = json.loads(got.out)
    assert got.code == 5 and result["tflops"] is None and result["tensor_utilization"] is None


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


@pytest.mark.parametrize("text", ["=3", "1N=3", "", "N", "N="])
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


MAPPED = ("--arg", "a=zeros:f32[128,128]", "--arg")


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
        (("--grid", "1", "--arg", "x=zeros:f32[99999999999999]"), "do not fit in this computer"),
        (("--grid", "1", "--arg", "x=zeros:f32[-5]"), "extent '-5' must be a whole number"),
        (("--grid", "1", "--arg", "x=zeros:f32[]"), "extent '' must be"),
        (("--grid", "1", "--arg", "x=randn:f32[4]:seed=x"), "seed 'x' must be"),
        (("--grid", "1", "--arg", "n=8192"), "as in n=8192:u32"),
        (("--grid", "1", "--arg", "n=-2"), "as in n=-2:s32"),
        (("--grid", "1", "--arg", "n=1.5"), "as in n=1.5:f32"),
        (("--grid", "1", "--arg", "n=one:u32"), "'one' is no u32"),
        (("--grid", "1", *MAPPED, "x=tensormap:a:box=a,b"), "box size 'a' must be"),
        (("--grid", "1", *MAPPED, "x=tensormap:a:box=8,8:swizzle=none"), "swizzle 'none' must be one of 0, 32"),
        (("--grid", "1", *MAPPED, "x=tensormap:a:box=128,1"), "swizzle=0"),
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
        (("vector_add", "--heads", "2"), "--heads is not an option of vector_add; it takes --n"),
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


@pytest.fixture
def own(tmp_path):
    """Save arrays in an .npz file and give its name."""

    def save(**arrays: np.ndarray) -> str:
        np.savez(tmp_path / "in.npz", **arrays)  # type: ignore[arg-type]
        return str(tmp_path / "in.npz")

    return save


def test_own_inputs_must_fit(warpsmith, launches, own):
    keys = np.zeros((1, 40, 1, 128), np.float16)
    file = own(q=np.zeros((1, 17, 1, 128), np.float16), k=keys, v=keys)
    got = warpsmith("run", "fa3", "--seqlen", "128", "--inputs", file)
    assert got.code == 2 and not launches
    assert "pass --batch 1 --seqlen 17 --heads 1 --head-dim 128 --seqlen-k 40" in " ".join(got.err.split())
    got = warpsmith("run", "fa3", "--inputs", own(q=keys))
    assert got.code == 2 and "input k is missing" in " ".join(got.err.split())
    got = warpsmith("run", "fa3", "--inputs", own(q=keys, k=keys, v=keys[:, :8]))
    assert got.code == 2 and "input v has seqlen_k 8" in " ".join(got.err.split())


def test_own_inputs_set_the_sizes(warpsmith, launches, own, monkeypatch):
    monkeypatch.setattr("emu.solve.load", lambda *_, **__: None)
    warpsmith("run", "gemm", "--inputs", own(a=np.zeros((9, 16), np.float32), b=np.zeros((16, 8), np.float32)))
    a, b, c = (argument.array for argument in launches[0]["args"][:3])
    assert a.shape == (9, 16) and b.shape == (16, 8) and c.shape == (9, 8) and a.dtype == np.float16


def test_saved_bf16_is_read_back_as_bits(warpsmith, launches, own, monkeypatch):
    monkeypatch.setattr("emu.solve.load", lambda *_, **__: None)
    values = np.arange(1, 129).reshape(1, 1, 1, 128).astype(ml_dtypes.bfloat16)
    file = own(**dict.fromkeys("qkv", values.view(np.uint16)))
    warpsmith("run", "fa3", "--dtype", "bf16", "--inputs", file)
    q = launches[0]["args"][0].array
    assert q.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(q, values)
    got = warpsmith("run", "fa3", "--inputs", file)
    assert got.code == 2 and "--dtype bf16" in " ".join(got.err.split())
    got = warpsmith("run", "fa3", "--dtype", "bf16", "--inputs", own(**dict.fromkeys("qkv", values.astype(np.int32))))
    assert got.code == 2 and "must hold floating-point numbers, or bits of bf16" in " ".join(got.err.split())


def test_nan_in_the_reference_is_said(warpsmith, launches, own, monkeypatch):
    got = warpsmith("run", "softmax", "--inputs", own(x=np.full((4, 8), np.nan, np.float32)))
    assert got.code == 1 and "which has NaN" in " ".join(got.out.split())


def test_save_keeps_the_name(warpsmith, kernel, launches, tmp_path):
    path = tmp_path / "s.txt"
    got = warpsmith("run", kernel, "--grid", "1", "--arg", "x=ones:f16[8]", "--arg", "n=8:u32", "--save", str(path))
    assert got.code == 0 and np.load(path)["x"].shape == (8,)


def test_help_gives_the_default_of_max_cycles():
    from emu.api import DEFAULT_MAX_CYCLES
    from emu.commands import run

    assert run.DEFAULT_MAX_CYCLES == DEFAULT_MAX_CYCLES


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


def test_wrong_numbers_are_a_finding(warpsmith, launches):
    got = warpsmith("run", "softmax", "--rows", "8", "--cols", "32")
    assert got.code == 1, got.err  # the stand-in computes nothing
    assert "FAILED" in got.out


def test_files_that_hold_no_arrays(warpsmith, launches, kernel, own, tmp_path):
    objects = np.array([{}], dtype=object)
    np.save(tmp_path / "o.npy", objects)
    got = warpsmith("run", kernel, "--grid", "1", "--arg", f"x={tmp_path / 'o.npy'}")
    assert got.code == 2 and "o.npy: not an .npy file, or one that holds Python objects" in " ".join(got.err.split())
    np.save(tmp_path / "t.npy", np.array(["text"]))
    got = warpsmith("run", kernel, "--grid", "1", "--arg", f"x={tmp_path / 't.npy'}")
    assert got.code == 2 and "elements of type <U4" in " ".join(got.err.split())
    got = warpsmith("run", "softmax", "--inputs", own(x=objects))
    assert got.code == 2 and "in.npz: damaged" in " ".join(got.err.split())


# ---- outputs that fail ----------------------------------------------------------------------------


def shell(line: str, **environment: str) -> SimpleNamespace:
    """Run a line of bash in which `warpsmith` is the command line."""
    script = f'warpsmith() {{ "{sys.executable}" -m emu.cli "$@"; }}; {line}'
    run = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    return SimpleNamespace(code=run.returncode, out=run.stdout, err=run.stderr)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_one_line():
    got = shell("warpsmith machine show h200 > /dev/full")
    assert got.code == 2 and got.err == "warpsmith: No space left on device\n"


def test_a_reader_that_leaves_is_no_error():
    got = shell("warpsmith machine show h200 | true; exit ${PIPESTATUS[0]}")
    assert got.code == 141 and not got.err


def test_machines_are_listed_in_ascii():
    got = shell("warpsmith machine list", PYTHONIOENCODING="ascii", LC_ALL="C")
    assert got.code == 0 and got.out.isascii() and "h200" in got.out


def test_outputs_that_cannot_be_written_are_noticed_before_the_run(warpsmith, kernel, tmp_path):
    """And a file that can be is not left behind empty."""
    for option in ("--save", "--json"):
        got = warpsmith("run", kernel, "--grid", "1", option, str(tmp_path / "nowhere" / "x"))
        assert got.code == 2 and got.err == f"{tmp_path / 'nowhere' / 'x'}: No such file or directory\n"
        assert warpsmith("run", kernel, option, str(tmp_path / "x")).code == 2 and not (tmp_path / "x").exists()


def test_explain_a_machine(warpsmith):
    got = warpsmith("explain", "h200")
    assert got.code == 0 and got.out.startswith("machine h200: NVIDIA H200") and "machine show h200" in got.out


def test_tables_in_ascii():
    code = "from emu import cli; cli.execute = lambda: print('\u2500 \u00e9'); cli.main()"
    got = shell(f'"{sys.executable}" -c "{code}"', PYTHONIOENCODING="ascii", LC_ALL="C.UTF-8")
    assert got.out == "- ?\n", got.err


def test_a_hang_is_said_first_and_to_one_reader_once():
    hang = Path(__file__).parents[1] / "golden" / "hangs" / "seed07_each_waits_first.mptx"
    both = shell(f"warpsmith run {hang} --grid 1 2>&1")
    assert both.code == 3 and both.out.startswith("deadlock at cycle") and both.out.count("deadlock at cycle") == 1
    assert both.out.index("right_ready, CTA 0") < both.out.index("warp states")
    apart = shell(f"warpsmith run {hang} --grid 1")
    assert (
        apart.out.split("\n\n")[0] == both.out.split("\n\n")[0]
        and apart.err.startswith("deadlock at cycle")
        and "MB201" in apart.err
    )
