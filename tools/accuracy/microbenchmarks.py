"""The calibration suite in short: how many rows of each family the model has within 10 %."""

from __future__ import annotations

import math

from tools.calibrate.run import MARK, compare
from tools.calibrate.suite import FAMILIES
from tools.docs.blocks import table


def summary(machine: str = "h200") -> str:
    """Rows of each family against the measurement and, where it was measured again, against the same PTX on the card."""
    rows = []
    for family in FAMILIES:
        found = list(compare(family, "", machine))
        ran = [r for r in found if not r.problem]
        again = [r for r in ran if math.isfinite(r.again)]
        within = sum(r.off <= MARK for r in ran)
        same = sum(r.off_again <= MARK for r in again)
        either = sum(min(r.off, r.off_again) <= MARK for r in ran)
        middle = sorted(r.ratio for r in ran)[len(ran) // 2]
        counts = (len(found), len(ran), within, f"{same} of {len(again)}", either)
        rows.append((family, *map(str, counts), f"{middle:.3f}"))
    header = ("family", "rows", "ran", "within 10 %", "same PTX within 10 %", "one of the two", "median ratio")
    return table(header, rows)
