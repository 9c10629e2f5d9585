"""The pages: generated tables are current, links lead somewhere, examples run, words are explained."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from emu.machine import load_machine
from isa import registry
from tools.docs import instructions
from tools.docs.blocks import ROOT, content, names
from tools.docs.examples import lowered
from tools.docs.readme import COMMANDS

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "tests" / "golden").glob("*/README.md")])
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
README = ROOT / "README.md"


def test_the_instruction_tables_are_current() -> None:
    assert instructions.main(["--check"]) == 0, "run python -m tools.docs.instructions"


def test_every_form_has_an_example_of_its_own_opcode() -> None:
    for form in registry.forms():
        example, _ = lowered(form)
        assert example.startswith(form.opcode), form.syntax


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("https:") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem != "howto"], ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    """But for the how-to, whose reader writes the files."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    found = re.findall(r"`((?:emu|isa|programs|tools|tests|docs)/[\w./-]+)`", text)
    missing = [name for name in found if "NAME" not in name and not (ROOT / name).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tools_that_a_page_names_exist(page: Path) -> None:
    for module in re.findall(r"python -m ((?:tools|emu)[\w.]*)", page.read_text()):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


def test_parameters_that_the_machine_page_names_exist() -> None:
    known = load_machine("h200").numbers.keys() | load_machine("b200").numbers.keys()
    text = (ROOT / "docs" / "machine.md").read_text()
    for path in re.findall(r"`((?:unit|chip|clock|sm)\.[\w.]+)`", text):
        assert path in known, path


def test_the_architecture_page_has_every_unit() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text[text.index("| file of `emu/units`") :]
    assert [p.stem for p in (ROOT / "emu" / "units").glob("[a-z]*.py") if f"`{p.stem}`" not in table] == []


def test_the_readme_is_short_and_its_blocks_are_filled() -> None:
    text = README.read_text()
    assert len(text.splitlines()) < 200
    for name in names(text):
        assert content(text, name).strip(), name
        assert name not in COMMANDS or f"$ {COMMANDS[name].text}" in content(text, name)


def test_the_readme_s_python_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = CODE.findall(README.read_text())
    (tmp_path / "example.py").write_text(example)
    runpy.run_path(str(tmp_path / "example.py"))
    assert capsys.readouterr().out.split()[0].isdigit()


def test_the_readme_s_commands_exist() -> None:
    from emu.cli import COMMANDS as KNOWN

    for line in re.findall(r"^warpsmith (.*)$", README.read_text(), re.MULTILINE):
        assert shlex.split(line, comments=True)[0] in KNOWN
