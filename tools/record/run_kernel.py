"""Runs exported PTX kernels on a GPU: checks the outputs, records times, SM cycles and counters.

    python -m tools.record.run_kernel --ptx build/fa3.ptx --problem fa3 --set seqlen=1024 --out DIR
    python -m tools.record.run_kernel --jobs jobs.json --out DIR [--ncu]
    python -m tools.record.run_kernel --compile build/ptx --out DIR

A job list is a JSON list of objects with the fields of `Job`.  Every job runs in a process of its
own with a time limit, so that a fault, a hang or a bad argument loses one job only.  `DIR` gets
`results.json` (one object a job) and `outputs.npz` (arrays named job/array of the jobs with `save`).
Needs the standard library, NumPy and a CUDA driver; ptxas and ncu are used when they are on PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tools.record.driver import Gpu
from tools.record.kernel import Launch, Run, assemble, find_ptxas, run

NCU_METRICS = (
    "sm__cycles_active.max",
    "sm__cycles_elapsed.max",
    "smsp__inst_executed.sum",
    "smsp__inst_executed_pipe_fma.sum",
    "smsp__inst_executed_pipe_alu.sum",
    "smsp__inst_executed_pipe_xu.sum",
    "smsp__inst_executed_pipe_lsu.sum",
    "smsp__inst_executed_pipe_uniform.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "gpc__cycles_elapsed.avg.per_second",
    *(
        f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
        for reason in (
            *("barrier", "branch_resolving", "dispatch_stall", "gmma", "imc_miss", "long_scoreboard", "mio_throttle"),
            *(
                "math_pipe_throttle",
                "no_instruction",
                "not_selected",
                "selected",
                "short_scoreboard",
                "sleeping",
                "wait",
            ),
        )
    ),
)


@dataclass
class Job:
    """One thing to run.

    `problem` names a shipped program, `options` and `defines` are those that its PTX (the file `ptx`)
    was exported with, `check_tiles` how many of its tiles are compared with the reference (0: all); or `bench` names a
    calibration family (`only` filters its rows).  `repeat` counts the timed launches, `clocks` adds the build with
    clock readings, `save` keeps the arrays.
    """

    name: str
    ptx: str = ""
    problem: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    defines: dict[str, Any] = field(default_factory=dict)
    bench: str = ""
    only: str = ""
    repeat: int = 10
    clocks: bool = True
    save: bool = False
    check_tiles: int = 0
    seconds: float = 120.0


def run_problem(gpu: Gpu, job: Job, out: Path) -> dict[str, Any]:
    """Launch a shipped program on its problem and compare with the float64 reference."""
    from tools.record.problems import launch_of

    text = Path(job.ptx).read_text()
    sms = int(gpu.properties()["multiprocessors"])
    launch, check, arrays = launch_of(job.problem, text, sms, job.options, job.defines, job.check_tiles)
    done = run(gpu, launch, job.repeat, job.clocks)
    if job.save:
        _save(out / f"{job.name}.npz", {name: _plain(array) for name, array in arrays.items()})
    return {"launch": _geometry(launch), **_facts(done), "check": check()}


def run_bench(gpu: Gpu, job: Job, out: Path) -> dict[str, Any]:
    """Run a family of the calibration suite on the GPU; rows also go to a file as they come."""
    from tools.record.bench import measure_family

    rows = []
    with (out / f"{job.name}.rows").open("w") as file:
        for row in measure_family(gpu, job.bench, job.only, job.repeat):
            rows.append(row)
            print(json.dumps(row), file=file, flush=True)
    return {"rows": rows}


def _save(path: Path, arrays: dict[str, Any]) -> None:
    np.savez_compressed(path, **arrays)


def _plain(array: np.ndarray) -> np.ndarray:
    """Types that NumPy itself does not have (bf16, fp8) as the bits that they are."""
    return array if array.dtype.kind in "biuf" else array.view(f"u{array.itemsize}")


def _geometry(launch: Launch) -> dict[str, Any]:
    return {
        "kernel": launch.kernel,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "shared": launch.shared,
        "cluster": launch.cluster,
    }


def _facts(done: Run) -> dict[str, Any]:
    cycles = [c.cycles_max for c in done.cycles]
    return {
        "time_us": [round(1e3 * t, 3) for t in done.times_ms],
        "time_us_median": round(1e3 * statistics.median(done.times_ms), 3) if done.times_ms else None,
        "cycles_max": cycles,
        "cycles_max_median": statistics.median(cycles) if cycles else None,
        "sms": done.cycles[-1].sms if done.cycles else None,
        "cycles": [asdict(c) for c in done.cycles[-1:]],
        "clock_mhz": done.clock_mhz,
        **done.attributes,
        "ptxas": done.ptxas_log,
    }


def run_one(job: Job, out: Path) -> dict[str, Any]:
    """One job in this process."""
    with Gpu() as gpu:
        facts = {"device": gpu.properties()}
        return facts | (run_bench(gpu, job, out) if job.bench else run_problem(gpu, job, out))


def in_own_process(job: Job, out: Path, ncu: bool) -> dict[str, Any]:
    """One job in a process of its own; the result always has `job`, `ok` and, on failure, `error`."""
    path = out / f"{job.name}.job.json"
    path.write_text(json.dumps(asdict(job)))
    command = [sys.executable, "-m", "tools.record.run_kernel", "--one", str(path), "--out", str(out)]
    if ncu:
        metrics = ",".join(NCU_METRICS)
        # Launch 0 reads the clock, launch 1 is the first of the kernel: profile the next, warm one.
        options = ["--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw"]
        command = ["ncu", *options, "--metrics", metrics, "--launch-skip", "2", "--launch-count", "1", *command]
    started = time.monotonic()
    result: dict[str, Any] = {"job": asdict(job), "ok": False}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=job.seconds, check=False)
        answer = out / f"{job.name}.result.json"
        if answer.exists():
            result |= json.loads(answer.read_text())
            answer.unlink()
        else:
            result["error"] = f"exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        if ncu:
            result["ncu"] = done.stdout[max(done.stdout.find('"ID"'), 0) :]
    except subprocess.TimeoutExpired:
        result["error"] = f"no result after {job.seconds} s"
    except OSError as error:
        result["error"] = f"could not start: {error}"
    path.unlink()
    partial = out / f"{job.name}.rows"
    if partial.exists():  # all rows, or those before a time-out or a crash
        result.setdefault("rows", [json.loads(line) for line in partial.read_text().splitlines() if line])
        partial.unlink()
    result["wall_s"] = round(time.monotonic() - started, 2)
    return result


def compile_folder(folder: Path) -> list[dict[str, Any]]:
    """Assemble every PTX file below `folder` with ptxas; registers and spills are in the log."""
    if find_ptxas() is None:
        raise SystemExit("no ptxas on PATH")

    def compiled(path: Path) -> dict[str, Any]:
        try:
            return {"file": str(path), "ok": True, "ptxas": assemble(path.read_text())[1]}
        except RuntimeError as error:
            return {"file": str(path), "ok": False, "error": str(error)}

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compiled, sorted(folder.rglob("*.ptx"))))


def _summary(result: dict[str, Any]) -> str:
    name = result.get("file") or result["job"]["name"]
    if not result["ok"]:
        return f"FAIL {name}: {result.get('error', '?').strip().splitlines()[-1][:200]}"
    facts = [f"{k}={result[k]}" for k in ("time_us_median", "cycles_max_median", "registers") if k in result]
    if "rows" in result:
        failed = sum("error" in row for row in result["rows"])
        facts.append(f"{len(result['rows'])} rows, {failed} failed")
    check = result.get("check")
    if check:
        facts.append(f"rel_error={check['rel_error']:.3g} max_abs_error={check['max_abs_error']:.3g}")
    return f"{'ok   ' if not check or check['passed'] else 'WRONG'} {name}: {' '.join(facts)}"


def _gather(out: Path) -> None:
    """Pack the per-job outputs into one file."""
    arrays: dict[str, np.ndarray] = {}
    for path in sorted(out.glob("*.npz")):
        if path.name != "outputs.npz":
            with np.load(path) as saved:
                arrays |= {f"{path.stem}/{name}": saved[name] for name in saved.files}
            path.unlink()
    if arrays:
        _save(out / "outputs.npz", arrays)


def run_list(jobs: list[Job], out: Path, ncu: bool) -> int:
    """Run the jobs; results are written after every job.  Returns the number of failures."""
    results: list[dict[str, Any]] = []
    for job in jobs:
        results.append(in_own_process(job, out, ncu))
        print(_summary(results[-1]), flush=True)
        (out / "results.json").write_text(json.dumps(results, indent=1))
    _gather(out)
    return sum(not r["ok"] for r in results)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _pairs(texts: list[str]) -> dict[str, Any]:
    return {name: _value(value) for name, value in (text.split("=", 1) for text in texts)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=Path, help="JSON job list")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--compile", type=Path, metavar="DIR", help="only assemble every .ptx below DIR")
    parser.add_argument("--ptx", default="", help="PTX file of one job")
    parser.add_argument("--problem", default="", help="shipped program whose problem to run")
    parser.add_argument("--bench", default="", help="calibration family")
    parser.add_argument("--only", default="", help="rows of the family whose name contains this")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="problem option")
    parser.add_argument("-D", "--define", action="append", default=[], metavar="NAME=VALUE", help="as exported")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--ncu", action="store_true", help="run every job under Nsight Compute")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "recorded")))
    return parser


def main(argv: list[str] | None = None) -> int:
    """Command line; the exit code is 1 when a job failed."""
    args = _parser().parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.one:
        job = Job(**json.loads(args.one.read_text()))
        answer = args.out / f"{job.name}.result.json"
        try:
            answer.write_text(json.dumps({"ok": True} | run_one(job, args.out), default=float))
            return 0
        except Exception:  # noqa: BLE001 - whatever it is, the job list goes on and the result tells
            answer.write_text(json.dumps({"ok": False, "error": traceback.format_exc()[-6000:]}))
            return 1
    if args.compile:
        results = compile_folder(args.compile)
        (args.out / "compiled.json").write_text(json.dumps(results, indent=1))
        print(*[_summary(r) for r in results], sep="\n")
        return int(any(not r["ok"] for r in results))
    if args.jobs:
        jobs = [Job(**fields) for fields in json.loads(args.jobs.read_text())]
    else:
        name = args.problem or args.bench or "kernel"
        options, defines = _pairs(args.set), _pairs(args.define)
        jobs = [Job(name, args.ptx, args.problem, options, defines, args.bench, args.only, args.repeat, save=args.save)]
    return int(run_list(jobs, args.out, args.ncu) > 0)


if __name__ == "__main__":
    sys.exit(main())
