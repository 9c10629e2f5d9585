"""What an H200 did: the shipped programs as recorded by `tools.record`, and FlashAttention-3 under Nsight Compute.

python -m tools.accuracy.recorded results.json [more.json ...]      # rewrite tests/golden/h200/programs.json
python -m tools.accuracy.recorded --synchronous results.json        # ... programs-sync.json
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.record.export import ptx

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "golden" / "h200"
PROGRAMS, FLASH_ATTENTION = FOLDER / "programs.json", FOLDER / "flash-attention-3.csv"
SYNCHRONOUS = FOLDER / "programs-sync.json"  # fa1 and fa2
RATES = FOLDER / "flash-attention-3-rates.csv"


@dataclass(frozen=True)
class Recorded:
    """One program on the card: medians of several launches.  `digest` is that of the PTX that ran.

    `time_us` is the time between two events; `cycles` the most SM cycles of any SM, from the first start clock to
    the last end clock of its warps; `registers` what ptxas gave each thread; `rel_error` the Frobenius error of the
    output against float64.
    """

    name: str
    program: str
    time_us: float
    cycles: float
    registers: int
    rel_error: float
    digest: str
    options: dict[str, Any] = field(default_factory=dict)
    defines: dict[str, Any] = field(default_factory=dict)


def load(path: Path) -> list[Recorded]:
    """The recorded runs of a file."""
    return [Recorded(**entry) for entry in json.loads(path.read_text())]


def programs() -> list[Recorded]:
    """Every recorded run of a shipped program but those of the synchronous generations (tools.accuracy.synchronous)."""
    return load(PROGRAMS)


def digest(program: str, options: dict[str, Any], defines: dict[str, Any]) -> str:
    """Which PTX a program expands to now, by the start of its SHA-256; the defines in its comments do not count."""
    code = "".join(line for line in ptx(program, options, defines).splitlines(True) if not line.startswith("//"))
    return hashlib.sha256(code.encode()).hexdigest()[:12]


def flash_attention() -> dict[str, dict[str, float]]:
    """Metric -> workload -> value, of the FlashAttention-3 library's kernel."""
    with FLASH_ATTENTION.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return {row["metric"]: {k: float(v) for k, v in row.items() if k not in ("metric", "unit") and v} for row in rows}


def rates() -> list[dict[str, float]]:
    """The library's rates over head dim, mask and length; TFLOP/s, and the clock in MHz."""
    with RATES.open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [{name: float(value) for name, value in row.items() if name != "dtype"} for row in rows]


def distil(results: list[dict[str, Any]]) -> list[Recorded]:
    """The jobs of `tools.record.run_kernel` that ran a program; of two with one name the last one counts.

    The programs must still expand to what was recorded.
    """
    found: dict[str, Recorded] = {}
    for result in results:
        job = result["job"]
        if not result["ok"] or not job["problem"]:
            continue
        found[job["name"]] = Recorded(
            name=job["name"],
            program=job["problem"],
            time_us=round(result["time_us_median"], 3),
            cycles=result["cycles_max_median"],
            registers=result["registers"],
            rel_error=float(f"{result['check']['rel_error']:.4g}"),
            digest=digest(job["problem"], job["options"], job["defines"]),
            options=job["options"],
            defines=job["defines"],
        )
    return list(found.values())


def main(files: list[str]) -> None:
    """Merge result files into a golden file."""
    into = PROGRAMS
    if files[:1] == ["--synchronous"]:
        into, files = SYNCHRONOUS, files[1:]
    results = [result for file in files for result in json.loads(Path(file).read_text())]
    entries = [json.dumps(asdict(entry)) for entry in distil(results)]
    into.write_text("[\n" + ",\n".join(entries) + "\n]\n")
    print(f"{len(entries)} programs in {into}")


if __name__ == "__main__":
    main(sys.argv[1:])
