"""The command line as a whole: help, usage, exit codes, outputs that fail."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from emu.cli import COMMANDS, EXIT_CODES

ROOT = Path(__file__).parents[3]

# ---- help and usage -------------------------------------------------------------------------------


def test_help_lists_every_command_without_heavy_imports():
    code = (
        "import sys; from emu.cli import execute; execute(['--help']);"
        "print([m for m in ('numba', 'numpy', 'lark', 'isa.registry', 'emu.machine') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
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


def test_help_lists_the_exit_codes(warpsmith):
    got = warpsmith("--help")
    text = " ".join(got.out.replace("│", " ").split())
    assert all(f"{code} {meaning}" in text for code, meaning in EXIT_CODES.items()), got.out
    readme = (ROOT / "README.md").read_text()
    assert all(f"| {code} | {meaning}".split(" (")[0] in readme for code, meaning in EXIT_CODES.items() if code < 100)


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


def test_tables_in_ascii():
    code = "from emu import cli; cli.execute = lambda: print('\u2500 \u00e9'); cli.main()"
    got = shell(f'"{sys.executable}" -c "{code}"', PYTHONIOENCODING="ascii", LC_ALL="C.UTF-8")
    assert got.out == "- ?\n", got.err


def test_a_hang_is_said_first_and_to_one_reader_once():
    hang = ROOT / "tests" / "golden" / "hangs" / "seed07_each_waits_first.mptx"
    both = shell(f"warpsmith run {hang} --grid 1 2>&1")
    assert both.code == 3 and both.out.startswith("deadlock at cycle") and both.out.count("deadlock at cycle") == 1
    assert both.out.index("right_ready, CTA 0") < both.out.index("warp states")
    apart = shell(f"warpsmith run {hang} --grid 1")
    assert (
        apart.out.split("\n\n")[0] == both.out.split("\n\n")[0]
        and apart.err.startswith("deadlock at cycle")
        and "MB201" in apart.err
    )
