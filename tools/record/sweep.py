"""Runs an archive of small cases on a GPU and compares each with float64: no times, many cases a process.

    python -m tools.record.sweep build/sweep/sweep.zip --out DIR

A case that faults or hangs ends its process; the next one goes on behind it.  `DIR/sweep.json` gets one object a case:
problem, options, defines, `ok`, `check`, and `error` or what `ptxas -v` said about spills and wgmma.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SMS = 5  # few, so that every CTA has several tiles
CHUNK = 128  # cases a process
SECONDS = 240.0  # for a process
FRUITLESS = 3  # processes in a row without a result: it is not the cases
_ADVICE = re.compile(r".*(?:C75\d\d|[1-9]\d* bytes spill).*")


def run_chunk(archive: Path, first: int, out: Path) -> None:
    """Run the cases from number `first` on in this process; a JSON line each as it ends."""
    from tools.record.driver import Gpu
    from tools.record.kernel import assemble, run_once
    from tools.record.problems import launch_of

    with zipfile.ZipFile(archive) as files:
        cases = json.loads(files.read("sweep.json"))[first : first + CHUNK]
        texts = [files.read(case["ptx"]).decode() for case in cases]
    with ThreadPoolExecutor() as pool:
        list(pool.map(assemble, dict.fromkeys(texts)))
    with Gpu() as gpu, out.open("a") as sink:
        for case, text in zip(cases, texts, strict=True):
            launch, check, _ = launch_of(case["problem"], text, SMS, case["options"], case["defines"])
            run_once(gpu, launch)
            advice = _ADVICE.findall(assemble(text)[1])
            print(json.dumps({"ok": True, "check": check(), "ptxas": advice}, default=float), file=sink, flush=True)


def run_all(archive: Path, out: Path) -> list[dict[str, Any]]:
    """Every case of the archive, in processes of up to CHUNK cases; RuntimeError when none of them gets anywhere."""
    with zipfile.ZipFile(archive) as files:
        cases = json.loads(files.read("sweep.json"))
    results: list[dict[str, Any]] = []
    lines = out / "chunk.jsonl"
    fruitless = 0
    while len(results) < len(cases):
        lines.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tools.record.sweep", str(archive), "--out", str(lines)]
        command += ["--first", str(len(results))]
        error = ""
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
            error = done.stderr[-2000:] if done.returncode else ""
        except subprocess.TimeoutExpired:
            error = f"no result after {SECONDS} s"
        found = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        results += found + ([{"ok": False, "error": error}] if error else [])
        fruitless = 0 if found else fruitless + 1
        if fruitless == FRUITLESS:
            raise RuntimeError(f"{FRUITLESS} processes in a row without a result:\n{error}")
        print(f"{len(results)} of {len(cases)}", flush=True)
    lines.unlink(missing_ok=True)
    return [case | result for case, result in zip(cases, results, strict=True)]


def main(argv: list[str] | None = None) -> int:
    """Command line; the exit code is 1 when a case failed or is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--out", type=Path, default=Path("recorded"))
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.first is not None:
        run_chunk(args.archive, args.first, args.out)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    results = run_all(args.archive, args.out)
    (args.out / "sweep.json").write_text(json.dumps(results))
    bad = [r for r in results if not r["ok"] or not r["check"]["passed"] or r["ptxas"]]
    for r in bad:
        what = r.get("error") or r["ptxas"] or r["check"]
        print(f"BAD {r['problem']} {r['options']} {r['defines']}: {str(what).strip()[-300:]}")
    print(f"{len(results) - len(bad)} of {len(results)} cases are right, without spills or advice of ptxas")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
