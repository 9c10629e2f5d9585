"""The first table of a run: what ran, how long it took, how busy the units were, whether it is right."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from emu.result import Result
from emu.views.text import count, percent, table


def summary(result: Result) -> Table:
    """Cycles, time, rates, busy units, resources and numerics of one run."""
    out = table(f"{result.kernel} on {result.machine}", "", "", left=2)
    out.show_header = False
    for name, text in _rows(result):
        out.add_row(name, text)
    return out


def _rows(result: Result) -> Iterator[tuple[str, str]]:
    if result.problem:
        shape = "  ".join(f"{name} {extent}" for name, extent in result.problem.shape.items())
        yield "problem", f"{shape}  {result.problem.dtype}{'  causal' if result.problem.causal else ''}"
    yield "cycles", f"{count(result.cycles)} active, {count(result.cycles_elapsed)} elapsed"
    yield "time", f"{result.time_us:,.2f} us at {result.clock_mhz:,.0f} MHz"
    if result.tflops is not None:
        yield "rate", f"{result.tflops:,.1f} TFLOP/s"
    if result.tensor_utilization is not None:
        yield "tensor utilization", percent(result.tensor_utilization) or "0.0 %"
    busy = sorted(result.pipes.items(), key=lambda item: (-item[1], item[0]))
    if any(share for _, share in busy):
        yield "busy units", "  ".join(f"{name} {percent(share)}" for name, share in busy if share)
    slots = result.issue.selected + result.issue.idle
    issued = percent(result.issue.selected / max(slots, 1))
    yield "warp instructions", f"{count(result.warp_instructions)} ({issued} of issue slots)"
    yield (
        "resources",
        (
            f"{result.registers_per_thread} registers a thread, {count(result.shared_bytes)} bytes shared, "
            f"occupancy {percent(result.occupancy)}"
        ),
    )
    if result.numerics:
        verdict = "passed" if result.numerics.passed else "FAILED"
        yield (
            "numerics",
            (
                f"{verdict}: relative error {result.numerics.rel_error:.2e}, largest {result.numerics.max_abs_error:.2e} "
                f"against {result.numerics.reference}, {count(result.numerics.tiles_checked)} tiles"
                f"{'; bit for bit as the card' if result.numerics.mode == 'silicon' else ''}"
            ),
        )
        for text in result.numerics.failed:
            yield "", text
    if result.chaos:
        changed = any(f.rule == "CHAOS" for f in result.findings)
        verdict = "outputs changed, see below" if changed else "outputs unchanged"
        yield (
            "chaos",
            (
                f"seed {result.chaos.seed}: {count(result.chaos.made)} perturbations, {verdict}; "
                "cycles are those of this timing, not of the plain run"
            ),
        )
    yield (
        "host",
        (
            f"{result.host_seconds:.3f} s in the core, "
            f"{result.warp_instructions_per_second / 1e6:.1f} M warp instructions/s"
        ),
    )
