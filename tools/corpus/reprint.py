"""Read PTX files, print them from the tree alone, read the print again, and show it to ptxas.

    python -m tools.corpus.reprint ../shared/corpus            # every .ptx of the folder
    python -m tools.corpus.reprint ../shared/corpus --ptxas    # slower: ptxas must take every print

Exit code 1 when a file does not come back equal, or ptxas refuses a print.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from isa.errors import AssemblyError
from isa.expand import expand
from isa.ptx import to_ptx
from isa.syntax import Pos
from tools.sass.disassemble import find

HERE = Pos("", 0, 0)
NEWEST = "9.0"  # .version of ptxas 13.0; compilers write newer ones for the same instructions


def bare(node: Any) -> Any:
    """A tree without positions."""
    if isinstance(node, Pos):
        return HERE
    if isinstance(node, tuple):
        return tuple(bare(item) for item in node)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return dataclasses.replace(node, **{f.name: bare(getattr(node, f.name)) for f in dataclasses.fields(node)})
    return node


def trouble(text: str, name: str, ptxas: bool = False) -> str:
    """What is wrong with the print of a text; empty when it comes back equal and `ptxas` (asked for) takes it."""
    try:
        module = expand(text, name)
        shown = to_ptx(module)
        if bare(expand(shown, name)) != bare(module):
            return "the print reads differently"
    except AssemblyError as error:
        return str(error).splitlines()[0]
    return refusal(shown, module.target) if ptxas else ""


def refusal(text: str, target: str) -> str:
    """The first message of ptxas when it does not take a text; RuntimeError's kin when there is no ptxas."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "k.ptx")
        source.write_text(re.sub(r"^\.version 9\.\d+", f".version {NEWEST}", text, flags=re.MULTILINE))
        command = [
            find("ptxas"),
            f"-arch={target.split(',')[0]}",
            "-O1",
            "-o",
            str(source.with_suffix(".o")),
            str(source),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else (done.stderr or done.stdout).splitlines()[0]


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ptxas", action="store_true", help="show every print to ptxas")
    parser.add_argument("--only", default="", help="part of a file name")
    args = parser.parse_args(argv)
    files = [path for path in sorted(args.folder.glob("*.ptx")) if args.only in path.name]
    bad = 0
    for path in files:
        if problem := trouble(path.read_text(), path.name, args.ptxas):
            print(f"{path.name}: {problem}", flush=True)
            bad += 1
    print(f"{len(files)} files, {len(files) - bad} come back equal{' and are taken by ptxas' if args.ptxas else ''}")
    return int(bad > 0)


if __name__ == "__main__":
    raise SystemExit(main())
