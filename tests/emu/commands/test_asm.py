"""`warpsmith asm` and `warpsmith ptx`, and what they say of wrong files."""

import pytest

from tests.emu.commands.stand_in import KERNEL


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
