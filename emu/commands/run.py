"""`warpsmith run`: a shipped program by name, or any kernel file.

The machine itself is imported only when something runs, so that help and usage errors are instant.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

import programs
from emu.commands.common import (
    Define,
    define_option,
    kernel_option,
    machine_option,
    no_kernel,
    order_option,
    read_defines,
    read_source,
    set_option,
)
from emu.machine import Machine, load_machine
from emu.result import Result

if TYPE_CHECKING:
    from emu.chaos import Chaos
    from emu.chip import Progress
    from programs.problem import Problem

DEFAULT_MAX_CYCLES = 2_000_000_000  # `emu.api`'s, which is too heavy to import for help
SHAPE = {
    "seqlen": "attention: query rows",
    "seqlen_k": "attention: keys",
    "head_dim": "attention: columns of q, k and v",
    "heads": "attention: heads",
    "heads_k": "attention: heads of k and v",
    "batch": "attention: batch",
    "m": "gemm: rows of the result",
    "n": "gemm: columns of the result; vector_add: elements",
    "k": "gemm: depth",
    "rows": "softmax: rows",
    "cols": "softmax: columns",
}

OF_FILES = {name: name for name in ("grid", "block", "cluster", "shared", "order")}
OF_FILES |= {"specs": "arg", "entry": "kernel"}


def shape_options(command: Any) -> Any:
    """The options of all shipped programs; a program refuses those that it does not know."""
    for name, text in reversed(SHAPE.items()):
        command = click.option(f"--{name.replace('_', '-')}", name, type=click.IntRange(min=1), help=text)(command)
    return command


HELP = f"""Run KERNEL, a shipped program ({", ".join(programs.names())}) or a file (.mptx, .ptx; `-`: stdin).

Arguments of files: `--arg x=randn:f16[128,64]:seed=1`, `zeros:f32[64]`, `ones:...`, `arange:...`, `data.npy`,
`42:u32`, `tensormap:x:box=64,64:swizzle=128` (box innermost first; swizzle 0, 32, 64 or 128, the default; x another
`--arg`).
"""


@click.command("run", help=HELP)
@click.argument("kernel")
@machine_option
@set_option
@shape_options
@click.option("--causal", is_flag=True, default=None, help="attention: a row sees no keys behind its own place.")
@click.option("--dtype", metavar="TYPE", help="Type of the operands (fp16, bf16; gemm: tf32).")
@define_option
@kernel_option
@click.option("--grid", metavar="X[,Y[,Z]]", help="File: CTAs.")
@click.option("--block", metavar="X[,Y[,Z]]", help="File: threads of a CTA; default: the kernel's .reqntid.")
@click.option("--cluster", metavar="X[,Y[,Z]]", help="File: CTAs of a cluster; default: its .reqnctapercluster, or 1.")
@click.option("--shared", type=click.IntRange(min=0), help="File: bytes of dynamic shared memory.")
@order_option
@click.option(
    "--numerics", type=click.Choice(["fast", "silicon"]), help="silicon: results equal the card's in every bit."
)
@click.option("--arg", "specs", metavar="NAME=SPEC", multiple=True, help="File: a kernel argument, as above.")
@click.option("--inputs", metavar="FILE.npz", help="Program: your own tensors, which also set the sizes.")
@click.option("--save", metavar="FILE.npz", help="Write every array argument after the run.")
@click.option("--json", "json_file", metavar="FILE|-", help="Write the whole result as JSON.")
@click.option(
    "--mode",
    type=click.Choice(["full", "representative"]),
    default="full",
    help="Execute every CTA, or some of each kind that stand for the others.",
)
@click.option("--threads", type=click.IntRange(min=1), default=1, help="SMs on so many threads; results do not change.")
@click.option("--warm", is_flag=True, help="Start with the arrays in L2, as after an earlier launch.")
@click.option(
    "--max-cycles",
    type=click.IntRange(min=1),
    help=f"Stop after so many cycles (default {DEFAULT_MAX_CYCLES:,}).",
)
@click.option(
    "--chaos",
    metavar="SEED[:N]",
    help="Run under other timing that PTX allows (at most N perturbations an SM) and compare with the plain run.",
)
def command(
    kernel: str,
    machine: str,
    overrides: tuple[str, ...],
    defines: tuple[str, ...],
    inputs: str | None,
    save: str | None,
    json_file: str | None,
    max_cycles: int | None,
    chaos: str | None,
    mode: str,
    threads: int,
    warm: bool,
    numerics: str | None,
    **options: Any,
) -> int:
    """Run a shipped program or a file; exit codes are `Result.exit_code`'s."""
    loaded = load_machine(machine, overrides)
    for file in filter(None, (save, json_file if json_file != "-" else None)):
        check_writable(Path(file))
    given = {name: value for name, value in options.items() if value not in (None, ())}
    if inputs and kernel not in programs.names():
        raise click.UsageError("--inputs belongs to shipped programs; give a file's arguments with --arg")
    if save and mode == "representative":
        raise click.UsageError("--save needs --mode full: in representative mode most tiles are not computed")
    disturbance = read_chaos(chaos)
    with bar() as progress:
        how: dict[str, Any] = {"max_cycles": max_cycles, "mode": mode, "threads": threads, "warm": warm}
        how |= {"progress": progress, "numerics": numerics or "fast"}
        if kernel in programs.names():
            result = run_program(kernel, loaded, given, read_defines(defines), inputs, how, disturbance)
        else:
            result = run_file(kernel, loaded, given, read_defines(defines), how, disturbance)
    if save:
        save_arrays(save, result)
    report(result, json_file)
    return result.exit_code()


@contextlib.contextmanager
def bar() -> Iterator[Progress | None]:
    """A bar of CTAs on stderr while a launch takes more than a moment; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("CTAs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("CTAs", total=None)
        yield lambda ended, total: shown.update(task, completed=ended, total=total)


def run_program(
    name: str,
    machine: Machine,
    given: dict[str, Any],
    defines: dict[str, Define],
    inputs: str | None,
    how: dict[str, Any],
    chaos: Chaos | None = None,
) -> Result:
    """A shipped program; its problem judges the options."""
    from emu.commands.arguments import read_npz
    from emu.solve import solve

    for option, spelling in OF_FILES.items():
        if option in given:
            raise click.UsageError(f"--{spelling} is for files; {name} launches itself")
    kind = programs.find(name)
    known = {option.name: f"--{option.name.replace('_', '-')}" for option in kind.options if option.command_line}
    if alien := [option for option in given if option not in known]:
        takes = ", ".join(known.values())
        raise click.UsageError(f"--{alien[0].replace('_', '-')} is not an option of {name}; it takes {takes}")
    try:
        arrays = read_npz(inputs) if inputs else None
        if arrays is not None:
            given |= own_sizes(kind, arrays, given)
        problem = kind.from_options(defines, **given)
        if arrays is not None:
            arrays = problem.adopt(arrays)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return under(chaos, lambda timing: solve(problem, machine, arrays, chaos=timing, **how))


def read_chaos(text: str | None) -> Chaos | None:
    """`--chaos SEED[:N]`."""
    from emu.chaos import Chaos

    try:
        return Chaos.of(text)
    except ValueError as error:
        raise click.UsageError(f"--chaos {text}: {error}") from None


def under(chaos: Chaos | None, run: Callable[[Chaos | None], Result]) -> Result:
    """A run; under chaos with a finding when its result is not that of the plain run."""
    if chaos is None:
        return run(None)
    from emu.explain.chaos import compare

    return compare(run, chaos, lambda text: print(text, file=sys.stderr) if sys.stderr.isatty() else None)


def own_sizes(kind: type[Problem], arrays: dict[str, Any], given: dict[str, Any]) -> dict[str, int]:
    """The size options that the user's arrays imply; an error when the options given say otherwise."""
    sizes = kind.sizes_of(arrays)
    for name, size in sizes.items():
        if given.get(name, size) != size:
            options = " ".join(f"--{other.replace('_', '-')} {n}" for other, n in sizes.items())
            shapes = ", ".join(f"{array} {list(arrays[array].shape)}" for array in kind.axes)
            raise click.UsageError(
                f"--{name.replace('_', '-')} {given[name]} does not fit --inputs, which has {shapes}: "
                f"pass {options}, or no sizes at all"
            )
    return sizes


def run_file(
    file: str,
    machine: Machine,
    given: dict[str, Any],
    defines: dict[str, Define],
    how: dict[str, Any],
    chaos: Chaos | None = None,
) -> Result:
    """A kernel file with `--grid`, `--block` and one `--arg` a parameter."""
    from emu.api import launch, load_text
    from emu.commands.arguments import read_arguments

    if file != "-" and not Path(file).exists():
        raise click.UsageError(no_kernel(file))
    alien = [option for option in given if option in SHAPE or option in ("dtype", "causal")]
    if alien:
        raise click.UsageError(f"--{alien[0].replace('_', '-')} is for shipped programs; use -D for a file's defines")
    if "grid" not in given:
        raise click.UsageError("give --grid X[,Y[,Z]], the number of CTAs")
    grid = extent("--grid", given["grid"])
    name, text = read_source(file)
    kernel = load_text(name, text, defines, given.get("entry"), given.get("order"))
    for warning in kernel.program.unwritten:
        print(f"warning: {warning}", file=sys.stderr)
    block = extent("--block", given["block"]) if "block" in given else kernel.program.block_hint
    if block is None:
        raise click.UsageError("give --block X[,Y[,Z]], the threads of a CTA: the kernel has no .reqntid")
    cluster = extent("--cluster", given["cluster"]) if "cluster" in given else None
    names, specs = [slot.name for slot in kernel.program.args], given.get("specs", ())

    def run(timing: Chaos | None) -> Result:
        args, arrays = read_arguments(names, specs)
        result = launch(
            kernel, machine=machine, grid=grid, block=block, cluster=cluster, args=args,
            shared_bytes=given.get("shared", 0), chaos=timing, **how,
        )  # fmt: skip
        result.outputs.update(arrays)
        return result

    return under(chaos, run)


def extent(option: str, text: str) -> tuple[int, int, int]:
    """`X[,Y[,Z]]` as three positive numbers."""
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(p.strip().isdecimal() and int(p) > 0 for p in parts):
        raise click.UsageError(f"{option} {text}: write X, X,Y or X,Y,Z with positive numbers")
    x, y, z = [int(p) for p in parts] + [1] * (3 - len(parts))
    return x, y, z


def check_writable(path: Path) -> None:
    """OSError when a result could not be written there after the run; a file that was not there is not left behind."""
    if path.is_fifo():
        return
    there = path.exists()
    with path.open("ab"):
        pass
    if not there:
        path.unlink()


def save_arrays(file: str, result: Result) -> None:
    """All array arguments by name; types that NumPy does not know as their bits (bf16 uint16, fp8 uint8)."""
    import numpy as np

    bits = {1: np.uint8, 2: np.uint16}
    own = {name: array for name, array in result.outputs.items() if array.dtype.isbuiltin == 1}
    others = {name: array.view(bits[array.itemsize]) for name, array in result.outputs.items() if name not in own}
    with open(file, "wb") as sink:  # given a name, savez would append .npz to some
        np.savez(sink, **own, **others)


def report(result: Result, json_file: str | None) -> None:
    """On stdout JSON, or what is wrong and tables; on stderr in short what ended the run, unless the same reader gets both."""
    from emu.views.deadlock import deadlock, ending, findings

    if json_file == "-" or not _one_reader():
        print(ending(result), end="", file=sys.stderr)
    if json_file == "-":
        print(result.to_json())
        return
    if json_file:
        Path(json_file).write_text(result.to_json() + "\n")
    if result.printed:
        print(result.printed, end="" if result.printed.endswith("\n") else "\n")
    wrong = findings(result) + deadlock(result)
    print(wrong + "\n" if wrong else "", end="")
    from rich.console import Console

    from emu.views.mix import mix
    from emu.views.source import source
    from emu.views.stalls import stalls
    from emu.views.summary import summary

    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = 120
    for view in (summary(result), stalls(result), mix(result), source(result, limit=12)):
        console.print(view)


def _one_reader() -> bool:
    """Whether stdout and stderr go to the same terminal or file."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):
        return False
