"""Run the kernels of a corpus folder and check their outputs.

    python -m tools.corpus                            # the `one` launch of every kernel
    python -m tools.corpus --only softmax --target sm_90a --json -
    python -m tools.corpus --launch full --limit 5e6  # full launches of up to five million recorded warp instructions

Exit code 1 when a kernel came out wrong or stopped, 0 when all others were right or refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from emu.machine import load_machine
from tools.corpus.launch import Outcome, attempt
from tools.corpus.manifest import Corpus, Entry, Recorded, load, recorded
from tools.docs.blocks import ROOT, table, update

PAGE = ROOT / "docs" / "corpus.md"
SHARED = ROOT.parent / "shared"
MAX_CYCLES = 20_000_000
WIDTH = 44


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=SHARED / "corpus", help="folder with manifest.json")
    parser.add_argument("--recorded", type=Path, default=SHARED / "hw" / "h200-corpus.csv", help="cycles of the card")
    parser.add_argument("--only", default="", help="part of a file name, or a pattern")
    parser.add_argument("--target", action="append", help="default: sm_90a, sm_80 and sm_100a")
    parser.add_argument("--launch", choices=("one", "full"), default="one")
    parser.add_argument("--limit", type=float, default=2e6, help="full: most warp instructions the card executed")
    parser.add_argument("--machine", help="default: h200, for sm_100a b200")
    parser.add_argument("--warm", action="store_true", help="start with the data in L2, as after an earlier launch")
    parser.add_argument("--max-cycles", type=int, default=MAX_CYCLES)
    parser.add_argument("--page", action="store_true", help="rewrite the tables of docs/corpus.md")
    parser.add_argument("--json", metavar="FILE|-", help="write the rows as JSON")
    args = parser.parse_args(argv)
    corpus, card = load(args.corpus), recorded(args.recorded)
    targets = tuple(args.target or ("sm_90a", "sm_80", "sm_100a"))
    entries = [e for e in corpus.pick(args.only, targets) if affordable(e, args.launch, card, args.limit)]
    rows = []
    for outcome, seconds in attempts(corpus, entries, args):
        rows.append(row(outcome, card, seconds))
        print(line(rows[-1]), file=sys.stderr if args.json == "-" else sys.stdout, flush=True)
    counts = Counter(r["verdict"] for r in rows)
    total = ", ".join(f"{counts[word]} {word}" for word in ("right", "refused", "wrong", "fault"))
    print(f"{len(rows)} kernels: {total}", file=sys.stderr if args.json == "-" else sys.stdout)
    if args.page:
        args.warm = True
        for cells, (outcome, _) in zip(rows, attempts(corpus, entries, args), strict=True):
            cells["warm_cycles"] = outcome.result.cycles if outcome.result else None
        update(PAGE, {"counts": counted(rows), "cycles": cycles(rows)})
    if args.json:
        text = json.dumps(rows, indent=1) + "\n"
        sys.stdout.write(text) if args.json == "-" else Path(args.json).write_text(text)
    return int(counts["wrong"] + counts["fault"] > 0)


def affordable(entry: Entry, launch: str, card: dict[tuple[str, str], Recorded], limit: float) -> bool:
    """Whether a launch is small enough; only full launches are judged, by what the card executed."""
    if launch == "one":
        return True
    known = card.get((entry.name, launch))
    return known is not None and known.warp_instructions <= limit


def machine_of(target: str) -> str:
    """The machine on which kernels of a target run."""
    return "b200" if target.startswith("sm_10") else "h200"


def attempts(corpus: Corpus, entries: list[Entry], args: argparse.Namespace) -> Iterator[tuple[Outcome, float]]:
    """Outcome and seconds of each kernel."""
    for entry in entries:
        machine = load_machine(args.machine or machine_of(entry.target))
        begin = time.perf_counter()
        yield attempt(corpus, entry, machine, args.launch, args.max_cycles, args.warm), time.perf_counter() - begin


def row(outcome: Outcome, card: dict[tuple[str, str], Recorded], seconds: float = 0) -> dict[str, Any]:
    """The cells of an outcome; those of the card for the target that it was recorded with."""
    entry, result = outcome.entry, outcome.result
    there = card.get((entry.name, outcome.launch)) if entry.target == "sm_90a" else None
    cells: dict[str, Any] = {"file": entry.file, "target": entry.target, "launch": outcome.launch}
    cells |= {"verdict": outcome.verdict, "reason": outcome.reason, "seconds": round(seconds, 2)}
    cells |= {"cycles": result.cycles if result else None, "card_cycles": there.cycles if there else None}
    cells["ratio"] = round(result.cycles / there.cycles, 3) if result and there else None
    cells["warp_instructions"] = result.warp_instructions if result else None
    cells["card_warp_instructions"] = there.warp_instructions if there else None
    return cells


def counted(rows: list[dict[str, Any]]) -> str:
    """Verdicts by target."""
    words = ("right", "refused", "wrong", "fault")
    targets = dict.fromkeys(r["target"] for r in rows)
    table_rows = []
    for target in targets:
        verdicts = Counter(r["verdict"] for r in rows if r["target"] == target)
        table_rows.append((target, str(verdicts.total()), *(str(verdicts[word]) for word in words)))
    refused = sorted({f"`{word}`" for r in rows if r["verdict"] == "refused" for word in r["reason"].split(", ")})
    named = f"\n\nRefused for: {', '.join(refused)}." if refused else ""
    return table(("target", "kernels", *words), table_rows) + named


def cycles(rows: list[dict[str, Any]]) -> str:
    """The kernels that ran and were recorded, with L2 empty and with the data in it."""
    names = ("card_cycles", "cycles", "warm_cycles", "card_warp_instructions", "warp_instructions")
    header = ("kernel", "H200 cycles", "cold", "ratio", "warm", "ratio", "H200 warp instructions", "emulated")
    listed = [r for r in rows if r["ratio"] is not None and r["verdict"] == "right"]
    found = []
    for r in listed:
        there, cold, warm, card, own = (f"{r[name]:,}" for name in names)
        ratios = (f"{r[name] / r['card_cycles']:.3f}" for name in ("cycles", "warm_cycles"))
        found.append((r["file"].split(".")[0], there, cold, next(ratios), warm, next(ratios), card, own))
    spreads = [
        spread(word, [r[name] / r["card_cycles"] for r in listed])
        for word, name in (("cold", "cycles"), ("warm", "warm_cycles"))
    ]
    return "\n".join([table(header, found), "", *spreads]) if listed else "none"


def spread(word: str, ratios: list[float]) -> str:
    """The middle of the ratios in a sentence."""
    low, middle, high = (sorted(ratios)[len(ratios) * quarter // 4] for quarter in (1, 2, 3))
    return f"Median ratio {word} {middle:.2f}; half of the kernels lie between {low:.2f} and {high:.2f}."


def line(cells: dict[str, Any]) -> str:
    """One row of the table on a terminal."""
    numbers = [f"{cells[name]:,}" if cells[name] is not None else "" for name in ("cycles", "card_cycles")]
    ratio = f"{cells['ratio']:.3f}" if cells["ratio"] is not None else ""
    counts = [f"{cells[n]:,}" if cells[n] is not None else "" for n in ("warp_instructions", "card_warp_instructions")]
    words = [f"{cells['file']:{WIDTH}}", f"{cells['verdict']:8}", *(f"{n:>10}" for n in numbers), f"{ratio:>7}"]
    words += [f"{n:>9}" for n in counts]
    return " ".join([*words, cells["reason"]]).rstrip()


if __name__ == "__main__":
    raise SystemExit(main())
