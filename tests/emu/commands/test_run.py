"""`warpsmith run`, mostly with a stand-in for the machine."""

import json
import re

import ml_dtypes
import numpy as np
import pytest

from emu.result import Deadlock, Finding, Result, StuckWarp
from tests.emu.commands.stand_in import fake_result


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


def test_a_run_that_did_not_end_has_no_rate(warpsmith):
    """What part of the problem it did is not known."""
    got = warpsmith("run", "softmax", "--rows", "64", "--cols", "128", "--max-cycles", "100", "--json", "-")
    result = json.loads(got.out)
    assert got.code == 5 and result["tflops"] is None and result["tensor_utilization"] is None
