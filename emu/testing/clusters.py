"""Programs of a cluster's barrier as data, the machine that runs them, and what must come of them (PTX ISA 9.7.13.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypothesis import strategies as st

ARRIVE, WAIT, PAUSE = "arrive", "wait", "pause"


@dataclass(frozen=True)
class ClusterProgram:
    """What each warp of each CTA does, in order: `arrive`, `wait`, `pause`; then it exits.  CTAs have as many warps each."""

    ctas: tuple[tuple[tuple[str, ...], ...], ...]

    def outcome(self) -> str:
        """`done`, `stuck`, or `fault`: a phase is over when every warp that has not exited has come to it.

        The order of the warps does not matter: arrivals and exits only ever add up.  A warp that arrives twice without a wait is a fault,
        one that waits without having arrived is stuck unless it has to wait for nobody else.
        """
        warps = [list(ops) for cta in self.ctas for ops in cta]
        at, came = [0] * len(warps), [0] * len(warps)  # next operation; arrivals so far
        phase, moved = 0, True
        while moved:
            moved = False
            for k, ops in enumerate(warps):
                while at[k] < len(ops) and not (ops[at[k]] == WAIT and came[k] > phase):
                    if ops[at[k]] == WAIT and not came[k]:
                        break
                    if ops[at[k]] == WAIT:
                        came[k] = 0
                    elif ops[at[k]] == ARRIVE:
                        if came[k]:  # it has not waited since
                            return "fault"
                        came[k] = phase + 1
                    at[k], moved = at[k] + 1, True
            there = [k for k, ops in enumerate(warps) if at[k] < len(ops)]
            if there and all(came[k] == phase + 1 for k in there):
                phase, moved = phase + 1, True
        return "done" if all(at[k] == len(ops) for k, ops in enumerate(warps)) else "stuck"

    def text(self) -> str:
        """The program as PTX."""
        lines, many = [], len(self.ctas[0])
        for k, ops in enumerate(ops for cta in self.ctas for ops in cta):
            lines += [f"setp.ne.u32 %p, %warp, {k};", f"@%p bra NOT{k};"]
            lines += [
                f"nanosleep.u32 {97 * (k + n) % 700};" if op == PAUSE else f"barrier.cluster.{op};"
                for n, op in enumerate(ops)
            ]
            lines += ["ret;", f"NOT{k}:"]
        return "\n".join(
            [
                ".version 8.5", ".target sm_90a", ".address_size 64", ".visible .entry cluster()",
                f".reqntid {32 * many}, 1, 1", ".explicitcluster", f".reqnctapercluster {len(self.ctas)}, 1, 1",
                "{", ".reg .pred %p;", ".reg .b32 %warp, %rank;", "mov.u32 %warp, %tid.x;", "shr.u32 %warp, %warp, 5;",
                f"mov.u32 %rank, %cluster_ctarank; mad.lo.u32 %warp, %rank, {many}, %warp;", *lines, "ret;", "}", "",
            ]
        )  # fmt: skip


def run_cluster(program: ClusterProgram, chaos: int | None = None) -> str:
    """How a program ends on the machine: `done`, `stuck` or `fault`."""
    from emu.api import launch, load

    result = launch(load(text=program.text()), grid=len(program.ctas), chaos=chaos, max_cycles=1_000_000)
    if result.deadlock is not None:
        return "stuck"
    return "fault" if any(f.severity == "fault" for f in result.findings) else "done"


def cluster_programs(most: int = 4) -> st.SearchStrategy[ClusterProgram]:
    """Clusters of up to `most` CTAs whose warps mostly arrive and wait in turn, and sometimes do not."""
    from hypothesis import strategies as st

    turn = st.sampled_from([(ARRIVE, WAIT)] * 5 + [(ARRIVE, PAUSE, WAIT), (PAUSE,), (ARRIVE,), (WAIT,)])
    warp = st.lists(turn, max_size=3).map(lambda turns: tuple(op for ops in turns for op in ops))
    sizes = st.tuples(st.integers(2, most), st.integers(1, 2))
    return sizes.flatmap(lambda size: st.tuples(*[st.tuples(*[warp] * size[1])] * size[0]).map(ClusterProgram))
