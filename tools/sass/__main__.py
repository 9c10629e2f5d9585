"""Static counts per pipe: our micro-operations beside ptxas's SASS.

    python -m tools.sass fa3 [-D KV_TILE=128] [--option head_dim=64] [--opcodes]
    python -m tools.sass kernel.ptx

Counts are of the code, not of its execution.  A large difference in a pipe that carries work (fma, alu, xu,
mio, lsu, tensor) means a form whose lowering differs from ptxas's.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import emu
import programs
from isa.ptx import to_ptx
from tools.sass.disassemble import opcodes, sass
from tools.sass.pipes import PAIRS, pipe_of


def ours(kernel: emu.Kernel, machine: str = "h200") -> tuple[Counter[str], Counter[str]]:
    """Micro-operations per pipe and per `pipe name`."""
    timing = emu.load_machine(machine).timing
    pipes: Counter[str] = Counter()
    names: Counter[str] = Counter()
    program = kernel.program
    for record, name in zip(program.instrs, program.micro_names, strict=True):
        pipe = timing[program.timing_names[int(record["timing"])]].pipe
        if name == "MOV" and not record["guard"]:
            pipe = "move"  # under a guard it is what ptxas writes as a SEL or FSEL
        pipes[pipe] += 1
        names[f"{pipe} {name}"] += 1
    return pipes, names


def theirs(kernel: emu.Kernel) -> tuple[Counter[str], Counter[str]]:
    """SASS instructions of the same PTX per pipe and per `pipe opcode`."""
    found = opcodes(sass(to_ptx(kernel.assembly.module)))
    pipes: Counter[str] = Counter()
    for o in found:
        pipes[pipe_of(o)] += PAIRS.get(o, 1)
    return pipes, Counter(f"{pipe_of(o)} {o.split('.')[0]}" for o in found)


def report(kernel: emu.Kernel, with_opcodes: bool) -> str:
    """The table."""
    (mine, my_names), (other, their_names) = ours(kernel), theirs(kernel)
    lines = [f"{'pipe':8} {'micro-ops':>9} {'SASS':>6} {'ratio':>6}"]
    for pipe in sorted(set(mine) | set(other), key=lambda p: -max(mine[p], other[p])):
        ratio = f"{mine[pipe] / other[pipe]:6.2f}" if other[pipe] else "     -"
        lines.append(f"{pipe:8} {mine[pipe]:9d} {other[pipe]:6d} {ratio}")
        if with_opcodes:
            for label, names in (("ours", my_names), ("SASS", their_names)):
                parts = [f"{k.split()[1]} {v}" for k, v in names.most_common() if k.split()[0] == pipe]
                if parts:
                    lines.append(f"    {label}: {', '.join(parts)}")
    lines.append(f"{'all':8} {mine.total():9d} {other.total():6d} {mine.total() / other.total():6.2f}")
    return "\n".join(lines)


def load(
    name: str, defines: dict[str, int | float | str], options: Mapping[str, int | float | str] | None = None
) -> emu.Kernel:
    """A shipped program with its problem's default defines, or a file."""
    if name in programs.names():
        problem = programs.find(name).from_options(defines=defines, **(options or {}))
        return emu.load(problem.kernel_path, defines=problem.defines)
    return emu.load(Path(name), defines=defines)


def _define(text: str) -> tuple[str, int | float | str]:
    name, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="a shipped program's name, or a .mptx/.ptx file")
    parser.add_argument("-D", "--define", action="append", type=_define, default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--option", action="append", type=_define, default=[], metavar="NAME=VALUE", help="of the problem"
    )
    parser.add_argument("--opcodes", action="store_true", help="list the operations of every pipe")
    args = parser.parse_args(argv)
    print(report(load(args.program, dict(args.define), dict(args.option)), args.opcodes))


if __name__ == "__main__":
    main()
