"""Who waits for the tensor core: clocks of every warp around groups of wgmma, against those of an H200."""

from __future__ import annotations

import numpy as np
import pytest

from tools.calibrate.groups import benches, events
from tools.calibrate.run import Emulator

SECOND = "products=4;left=1;wait=none;wgs=2"
# n=256, A in shared memory, two warpgroups, groups of four: cycles on the card, tools/calibrate/measured.csv and its tables
FIRST_WARP = 968  # from before the fence to behind the commit, mean; then it waits for 8 to 34
OTHER_WARPS = (28, 28, 30, 8, 782)  # second to fourth product, commit, wait


def steps(params: str) -> np.ndarray:
    """Cycles between the clocks, [warps, groups, events - 1]."""
    bench = next(b for b in benches() if b.rows[0].params == params and b.rows[0].name == "wgmma_group_issue")
    count = int(params.split("products=")[1].split(";")[0])
    clocks = Emulator()(bench, 1).astype(np.int64).reshape(bench.warps, -1, events(count, "none"))
    return np.diff(clocks, axis=2)


def test_only_the_first_warp_of_a_warpgroup_waits_for_the_queue() -> None:
    """Two warpgroups fill the queue: the first warp waits at every product, the others at the fence and for the group."""
    mine = steps("type=F16;n=256;a=SS;" + SECOND)[:, 2:]
    assert mine[0, :, :5].sum(1).mean() == pytest.approx(FIRST_WARP, rel=0.06) and mine[0, :, 5].max() < 16
    for warp in (1, 2, 3):
        assert np.abs(mine[warp, :, 1:5] - OTHER_WARPS[:4]).max() <= 3
        assert mine[warp, :, 5] == pytest.approx(OTHER_WARPS[4], rel=0.05)


def test_a_queue_with_room_holds_nobody_up() -> None:
    """One warpgroup, four products: its warps do the same."""
    mine = steps("type=F16;n=256;a=SS;products=4;left=0;wait=none;wgs=1")
    assert (mine == mine[:1]).all(where=np.arange(mine.shape[1])[None, :, None] > 0)
    assert mine[0, 2, 5] == pytest.approx(465, rel=0.05)
