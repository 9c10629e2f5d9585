"""Clusters of a launch: which CTAs form one, and which SMs take them.

The CTAs of a cluster run at the same time on different SMs of one GPC.  The SMs of a GPC are taken in teams of neighbours, as many as
a cluster has CTAs; SMs that are left over stay idle.  A team's slot takes the next cluster when all CTAs of the one before
have ended.
"""

from __future__ import annotations

import numpy as np

from emu.machine import Machine
from emu.memory_map import LaunchError
from isa.program import Program

Extent = tuple[int, int, int]
ALONE: Extent = (1, 1, 1)


def extent(program: Program, machine: Machine, grid: Extent, asked: Extent | None) -> Extent:
    """The clusters of a launch: those that it asks for, or the program requires; LaunchError when they do not fit."""
    if asked and program.cluster and asked != program.cluster:
        raise LaunchError(
            f"{program.name} requires clusters of {program.cluster} (.reqnctapercluster), not {asked}; leave --cluster out"
        )
    cluster = asked or program.cluster or ALONE
    if program.explicit_cluster and not asked and not program.cluster:
        raise LaunchError(f"{program.name} wants a cluster size (.explicitcluster); give --cluster")
    size = int(np.prod(cluster))
    if size == 1:
        return cluster
    if program.target == "sm_80":
        raise LaunchError(f"{program.name} is assembled for sm_80, which has no clusters; sm_90 has")
    most = min(program.max_cluster or 1 << 30, int(machine.value("chip.cluster_ctas")))
    if size > most:
        raise LaunchError(f"a cluster has at most {most} CTAs here, not {size}")
    if any(n % c for n, c in zip(grid, cluster, strict=True)):
        raise LaunchError(f"the grid {grid} is no multiple of the cluster {cluster}")
    if not teams(machine, size):
        raise LaunchError(f"no GPC of {machine.name} has {size} SMs for a cluster")
    return cluster


def gpcs(machine: Machine) -> list[list[int]]:
    """The SMs of every GPC.  One GPC is small, the others share the rest evenly; SM numbers go round the GPCs, TPC by TPC."""
    sms, pair = int(machine.value("chip.sms")), int(machine.value("chip.tpc_sms"))
    tpcs, count = -(-sms // pair), int(machine.value("chip.gpcs"))
    small = min(int(machine.value("chip.small_gpc_tpcs")), tpcs) if count > 1 else tpcs
    rest = [(tpcs - small) // (count - 1) + (k < (tpcs - small) % (count - 1)) for k in range(count - 1)]
    left, found = [*rest, small], [[] for _ in range(count)]  # type: list[int], list[list[int]]
    tpc = 0
    while tpc < tpcs:
        for k in range(count):
            if left[k]:
                left[k] -= 1
                found[k] += range(tpc * pair, min((tpc + 1) * pair, sms))
                tpc += 1
    return found


def teams(machine: Machine, size: int) -> list[list[int]]:
    """SMs that take the clusters of `size` CTAs, in the order in which they take them: one in each GPC, then the next in each."""
    chunks = [[gpc[at : at + size] for at in range(0, len(gpc) - size + 1, size)] for gpc in gpcs(machine)]
    return [teams[k] for k in range(max(map(len, chunks))) for teams in chunks if k < len(teams)]


def in_order(grid: Extent, cluster: Extent) -> np.ndarray:
    """The CTAs of a grid, cluster by cluster, in each by rank; x runs first in both."""
    x, y, z = (np.arange(n) for n in grid)
    shape = tuple(k for n, c in zip(reversed(grid), reversed(cluster), strict=True) for k in (n // c, c))
    numbers = (x + grid[0] * (y[:, None] + grid[1] * z[:, None, None])).reshape(shape)
    return numbers.transpose(0, 2, 4, 1, 3, 5).reshape(-1)
