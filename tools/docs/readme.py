"""Output of commands in marked blocks of README.md, docs/speed.md and docs/compare.md.

    python -m tools.docs.readme                 # run every command and rewrite its block
    python -m tools.docs.readme --page README.md

A block shows the command as a user types it, and what it printed.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from dataclasses import dataclass

from tools.docs.blocks import ROOT, names, update


@dataclass(frozen=True)
class Shown:
    """A command of a page: `argv` is what runs, `text` what the reader sees; output is cut after `lines` lines."""

    page: str
    text: str
    argv: tuple[str, ...]
    lines: int = 40


def warpsmith(page: str, arguments: str, lines: int = 40) -> Shown:
    """The command line of the package."""
    argv = (sys.executable, "-m", "emu.cli", *shlex.split(arguments))
    return Shown(page, f"warpsmith {arguments}", argv, lines)


def tool(page: str, arguments: str, lines: int = 40) -> Shown:
    """A module of `tools`."""
    return Shown(page, f"python -m {arguments}", (sys.executable, "-m", *shlex.split(arguments)), lines)


COMMANDS: dict[str, Shown] = {
    "run-fa3": warpsmith("README.md", "run fa3 --seqlen 1024 --heads 1", 14),
    "explain": warpsmith("README.md", "explain gmma"),
    "compare-short": warpsmith("README.md", "compare fa2 fa3 fa4", 14),
    "engine": tool("docs/speed.md", "tools.bench.engine"),
    "mma": tool("docs/speed.md", "tools.bench.mma"),
    "startup": tool("docs/speed.md", "tools.bench.startup"),
    "tensor": tool("docs/speed.md", "tools.bench.tensor"),
    "compare": warpsmith("docs/compare.md", "compare", 80),
    "losses": warpsmith("docs/compare.md", "compare --losses fa2"),
}


def output(shown: Shown) -> str:
    """The block's text; CalledProcessError when the command fails."""
    run = subprocess.run(shown.argv, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.rstrip() for line in run.stdout.strip("\n").splitlines()]
    if len(lines) > shown.lines:
        lines = [*lines[: shown.lines], "..."]
    return "\n".join(["```", f"$ {shown.text}", *lines, "```"])


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="append", choices=sorted({shown.page for shown in COMMANDS.values()}))
    args = parser.parse_args(argv)
    for page in args.page or dict.fromkeys(shown.page for shown in COMMANDS.values()):
        path = ROOT / page
        wanted = [name for name in names(path.read_text()) if name in COMMANDS and COMMANDS[name].page == page]
        update(path, {name: output(COMMANDS[name]) for name in wanted})


if __name__ == "__main__":
    main()
