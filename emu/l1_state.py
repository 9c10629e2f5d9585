"""The L1 data cache of an SM (emu/units/l1.py): its lines, the ways of a set side by side."""

from __future__ import annotations

import numpy as np

from emu.state import i32, i64

L1_WAYS = 4

# Times in cycles.
L1_LINE = np.dtype(
    [
        ("tag", i64),  # its number, and the epoch in which it came
        ("used", i64),  # when it was last used
        ("when", i64),  # when its sectors are there
        # from when on memory holds what the SM has stored to it, and `when` is what the chip has said
        ("settled", i64),
        ("sectors", i32),  # which ones it has, a bit each
        ("written", i32),  # and which ones a store has touched
    ],
    align=True,
)
