"""Writes the PTX that a recording needs, and its job list, into one folder.

    python -m tools.record.export --out build/record                      # every list of `lists`, and the calibration suite
    python -m tools.record.run_kernel --jobs build/record/jobs.json --out DIR       # on the GPU
    python -m tools.record.export --out build/sweep --sweep               # small shapes, and every combination of switches
    python -m tools.record.sweep build/sweep/sweep.zip --out DIR          # on the GPU
    python -m tools.record.export --out build/bits --bits                 # outputs to compare bit for bit
    python -m tools.record.run_kernel --jobs build/bits/jobs.json --out DIR         # on the GPU
    python -m tools.record.compare DIR                                    # here

Export runs where the assembler is installed; the GPU machine needs only the folder and this checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import programs
from isa.errors import AssemblyError
from isa.expand import expand
from isa.ptx import to_ptx
from tools.record.lists import BITS, LISTS, SWITCHES, Case, combinations, numerics

CHECKED_TILES = 64  # of a long problem: the float64 reference of all would take minutes
LONG = 1 << 33  # floating-point operations
SAVED = {"repeat": 0, "clocks": False, "save": True}  # what a job adds whose outputs count, not its time


def ptx(program: str, options: dict[str, Any], defines: dict[str, Any]) -> str:
    """The program's expansion for a problem, as PTX."""
    problem = programs.find(program).from_options(defines=defines, **options)
    path = problem.kernel_path
    return to_ptx(expand(path.read_text(), str(path), dict(problem.defines), (path.parent,)))


def label(program: str, options: dict[str, Any], defines: dict[str, Any]) -> str:
    """A file name for a job."""
    return "-".join([program, *(f"{k}{v}" for k, v in (options | defines).items())])


def export_jobs(out: Path, cases: Iterable[Case], families: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Write the cases' PTX; one job a case and one a calibration family."""
    jobs: list[dict[str, Any]] = []
    for program, options, defines in {label(*case): case for case in cases}.values():
        name = label(program, options, defines)
        path = out / f"{name}.ptx"
        path.write_text(ptx(program, options, defines))
        flops = programs.find(program).from_options(defines=defines, **options).flops
        job = {"name": name, "ptx": str(path), "problem": program, "options": options, "defines": defines}
        jobs.append(job | {"check_tiles": CHECKED_TILES if flops > LONG else 0})
    return jobs + [{"name": f"bench-{family}", "bench": family, "repeat": 3, "seconds": 240} for family in families]


def export_sweep(file: Path, cases: Iterable[Case]) -> int:
    """Write every case that the program's own checks allow into one archive; return how many."""
    count = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        listing, written = [], set()
        for program, options, defines in cases:
            try:
                text = ptx(program, options, defines)
            except AssemblyError as error:  # an .assert of the program: not a combination
                print(f"skipped {options} {defines}: {str(error).splitlines()[0]}")
                continue
            member = hashlib.sha256(text.encode()).hexdigest()[:16] + ".ptx"
            if member not in written:
                archive.writestr(member, text)
                written.add(member)
            listing.append({"ptx": member, "problem": program, "options": options, "defines": defines})
            count += 1
        archive.writestr("sweep.json", json.dumps(listing))
    return count


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/record"))
    parser.add_argument("--lists", nargs="*", choices=sorted(LISTS), default=sorted(LISTS), help="default: all")
    parser.add_argument("--families", nargs="*", help="calibration families (default: all)")
    parser.add_argument("--bits", action="store_true", help="the cases for `compare` instead")
    parser.add_argument("--sweep", action="store_true", help="the archive for `sweep` instead")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.sweep:
        cases = [*numerics(), *(case for program in SWITCHES for case in combinations(program))]
        print(f"{export_sweep(args.out / 'sweep.zip', cases)} cases in {args.out}/sweep.zip")
        return
    if args.bits:
        jobs = [job | SAVED for job in export_jobs(args.out, BITS)]
        (args.out / "jobs.json").write_text(json.dumps(jobs, indent=1))
        print(f"{len(jobs)} jobs in {args.out}/jobs.json")
        return
    from tools.calibrate.suite import FAMILIES

    cases = [case for name in args.lists for case in LISTS[name]]
    jobs = export_jobs(args.out, cases, list(FAMILIES) if args.families is None else args.families)
    (args.out / "jobs.json").write_text(json.dumps(jobs, indent=1))
    print(f"{len(jobs)} jobs in {args.out}/jobs.json")


if __name__ == "__main__":
    main()
