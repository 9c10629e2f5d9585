"""Ask ptxas about every instruction of `patterns.txt` and record which it takes.

    python -m tools.forms                      # writes tests/golden/forms/sm_90a.txt
    python -m tools.forms --target sm_100a     # patterns of blackwell.txt, too
    python -m tools.forms --show               # also lists where the assembler here differs
    python -m tools.forms --patterns tcgen05 --target sm_103a     # those of tcgen05.txt, to tcgen05-sm_103a.txt

The recorded file has a line for every instruction: `+` taken, `-` refused.  tests/isa/test_forms.py holds the assembler to it.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from isa import registry
from isa.errors import AssemblyError
from isa.expand import expand
from isa.layout import Layout
from isa.lowering import Lowering

PATTERNS = Path(__file__).parent
GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "forms"
HEAD = """.version 8.8
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.const .align 16 .b8 cc[64];
.global .align 16 .b8 gg[256];
.visible .entry k(.param .u64 pointer, .param .align 64 .b8 map[128], .param .u32 count, .param .align 4 .b8 small[8])
{{
    .reg .b8 %b<8>; .reg .b16 %h<16>; .reg .b32 %r<300>; .reg .b64 %rd<16>; .reg .f32 %f<300>; .reg .f64 %fd<8>; .reg .pred %p<8>;
    .reg .b128 %q<8>; .local .align 16 .b8 stack[64];
"""


def instructions(target: str = "sm_90a", patterns: str = "patterns") -> list[str]:
    """Every instruction of a file of patterns, each once, in order; of `patterns` those of the target."""
    found: dict[str, None] = {}
    names = (patterns, "blackwell") if patterns == "patterns" and target.startswith("sm_10") else (patterns,)
    for line in (line for name in names for line in (PATTERNS / f"{name}.txt").read_text().splitlines()):
        pattern = line.split("//")[0].strip()
        if pattern and not pattern.startswith("#"):
            found |= dict.fromkeys(alternatives(pattern))
    return list(found)


def alternatives(pattern: str) -> Iterator[str]:
    """`ld<|.global>.u32` -> `ld.u32`, `ld.global.u32`."""
    parts = re.split(r"(<[^<>]*>)", pattern)
    choices = [part[1:-1].split("|") if part.startswith("<") else [part] for part in parts]
    return ("".join(chosen) for chosen in itertools.product(*choices))


def golden(patterns: str, target: str) -> Path:
    """The record of a file of patterns."""
    return GOLDEN / (f"{target}.txt" if patterns == "patterns" else f"{patterns}-{target}.txt")


def kernel(lines: Sequence[str], target: str) -> str:
    """A kernel with one instruction a line."""
    return HEAD.format(target=target) + "".join(f"{{ {line} }}\n" for line in lines) + "ret;\n}\n"


def refused(lines: Sequence[str], target: str) -> set[int]:
    """Indices of the instructions that ptxas refuses; it names some at a time."""
    bad: set[int] = set()
    first = HEAD.count("\n") + 1
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "k.ptx"
        while True:
            live = [k for k in range(len(lines)) if k not in bad]
            source.write_text(kernel([lines[k] for k in live], target))
            command = ["ptxas", f"-arch={target}", str(source), "-o", str(source.with_suffix(".cubin"))]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            named = {int(n) - first for n in re.findall(r"line (\d+); (?:error|fatal)", ran.stderr)}
            if not named:
                if ran.returncode:
                    raise RuntimeError(f"ptxas ended with {ran.returncode}: {ran.stderr[:300]}")
                return bad
            bad |= {live[k] for k in named}


def problem(line: str, target: str) -> AssemblyError | None:
    """What the assembler here has against an instruction."""
    registry.load()
    module = expand(kernel([line], target), "forms.ptx", {}, ())
    entry = module.kernels[0]
    try:
        Lowering(entry, target, Layout(module, entry), lambda pos: "").run()
    except AssemblyError as error:
        return error
    return None


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--patterns", default="patterns", help="a file of this folder, without .txt")
    parser.add_argument("--show", action="store_true", help="list where the assembler here differs")
    args = parser.parse_args(argv)
    lines = instructions(args.target, args.patterns)
    bad: set[int] = set()
    for pairs in (False, True):  # a function may not mix them
        own = [k for k, line in enumerate(lines) if ("cta_group::2" in line) == pairs]
        bad |= {own[k] for k in refused([lines[k] for k in own], args.target)}
    GOLDEN.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{'-' if k in bad else '+'} {line}\n" for k, line in enumerate(lines))
    golden(args.patterns, args.target).write_text(text)
    print(f"{len(lines)} instructions, {len(lines) - len(bad)} taken by ptxas for {args.target}")
    for k, line in enumerate(lines) if args.show else ():
        error = problem(line, args.target)
        if (error is None) == (k in bad):
            print(
                f"{'too much' if error is None else 'missing'}: {line}  {error.diagnostics[0].message if error else ''}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
