"""Writes the PTX that a recording needs, and its job list, into one folder.

    python -m tools.record.export --out build/record                 # the default list below
    python -m tools.record.export --out build/record --defines fa3   # every combination of its switches
    python -m tools.record.run_kernel --jobs build/record/jobs.json --out DIR       # on the GPU

Export runs where the assembler is installed; the GPU machine needs only the folder and this checkout.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import programs
from isa.errors import AssemblyError
from isa.expand import expand
from isa.ptx import to_ptx

# (program, options, defines): shapes that the accuracy tables need.
DEFAULT: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("vector_add", {}, {}),
    ("softmax", {"rows": 1024, "cols": 4096}, {}),
    ("softmax", {"rows": 528, "cols": 1024}, {}),
    ("gemm", {}, {}),
    ("fa3", {"seqlen": 128, "seqlen_k": 176, "heads": 1}, {}),
    ("fa3", {"seqlen": 1024, "heads": 1}, {}),
    ("fa3", {"seqlen": 1000, "seqlen_k": 777, "heads": 2}, {}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {}),
    ("fa3", {"seqlen": 4096, "heads": 16}, {}),
    ("fa3", {"seqlen": 4096, "heads": 16, "batch": 4}, {}),
    ("fa3", {"seqlen": 128, "seqlen_k": 4096, "heads": 132, "heads_k": 1}, {}),
    ("fa3", {"seqlen": 1, "heads": 3, "batch": 2}, {}),
    ("fa3", {"seqlen": 17, "seqlen_k": 200, "heads": 2}, {}),
    ("fa3", {"seqlen": 200, "heads": 2, "inputs": "outlier"}, {}),
    ("fa3", {"seqlen": 513, "heads": 2, "dtype": "bf16", "inputs": "outlier"}, {}),
    ("fa3", {"seqlen": 1024, "heads": 16, "dtype": "bf16"}, {}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"PINGPONG": 0}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"OVERLAP": 0}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"PINGPONG": 0, "OVERLAP": 0}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"SPECIALIZE": 0}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"SETMAXNREG": 0}),
    ("fa3", {"seqlen": 1024, "heads": 16}, {"KV_TILE": 128}),
)

# Values that every combination is made of, where a program's own limits allow them.
SWITCHES: dict[str, dict[str, tuple[Any, ...]]] = {
    "fa3": {
        "DTYPE": ("f16", "bf16"),
        "SPECIALIZE": (0, 1),
        "SETMAXNREG": (0, 1),
        "PINGPONG": (0, 1),
        "OVERLAP": (0, 1),
        "STAGES": (1, 2),
        "KV_TILE": (0, 64, 128),
    },
}


def ptx(program: str, options: dict[str, Any], defines: dict[str, Any]) -> str:
    """The program's expansion for a problem, as PTX."""
    problem = programs.find(program).from_options(defines=defines, **options)
    path = problem.kernel_path
    return to_ptx(expand(path.read_text(), str(path), dict(problem.defines), (path.parent,)))


def label(program: str, options: dict[str, Any], defines: dict[str, Any]) -> str:
    """A file name for a job."""
    return "-".join([program, *(f"{k}{v}" for k, v in (options | defines).items())])


def export_jobs(out: Path, families: list[str]) -> list[dict[str, Any]]:
    """Write the default list and one job per calibration family; return the jobs."""
    jobs: list[dict[str, Any]] = []
    for program, options, defines in DEFAULT:
        name = label(program, options, defines)
        path = out / f"{name}.ptx"
        path.write_text(ptx(program, options, defines))
        jobs.append({"name": name, "ptx": str(path), "problem": program, "options": options, "defines": defines})
    jobs += [{"name": f"bench-{family}", "bench": family, "repeat": 3, "seconds": 240} for family in families]
    return jobs


def export_combinations(out: Path, program: str) -> int:
    """Write every combination of a program's switches that its own checks allow; return how many."""
    switches = SWITCHES[program]
    count = 0
    for values in itertools.product(*switches.values()):
        defines = dict(zip(switches, values, strict=True))
        try:
            text = ptx(program, {}, defines)
        except AssemblyError as error:  # an .assert of the program: not a combination
            print(f"skipped {defines}: {str(error).splitlines()[0]}")
            continue
        (out / f"{label(program, {}, defines)}.ptx").write_text(text)
        count += 1
    return count


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/record"))
    parser.add_argument("--defines", choices=sorted(SWITCHES), help="write every combination of this program")
    parser.add_argument("--families", nargs="*", help="calibration families (default: all)")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.defines:
        print(f"{export_combinations(args.out, args.defines)} files in {args.out}")
        return
    from tools.calibrate.suite import FAMILIES

    jobs = export_jobs(args.out, list(FAMILIES) if args.families is None else args.families)
    (args.out / "jobs.json").write_text(json.dumps(jobs, indent=1))
    print(f"{len(jobs)} jobs in {args.out}/jobs.json")


if __name__ == "__main__":
    main()
