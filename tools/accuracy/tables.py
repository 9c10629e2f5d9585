"""The tables of docs/accuracy.md, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from emu.result import Result
from tools.accuracy.emulate import emulate
from tools.accuracy.recorded import Recorded, digest, flash_attention, programs
from tools.calibrate import composites
from tools.docs.blocks import table

ONE_WAVE = {"seqlen": 128, "seqlen_k": 4096, "heads": 132, "heads_k": 1}
# Unit of the emulator -> the counter that measures the same share.
UNITS = {
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "xu": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "alu": "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
}


def label(entry: Recorded) -> str:
    """Program, options and defines; starred when the program has changed since it was recorded."""
    options = " ".join(f"{name} {value}" for name, value in (entry.options | entry.defines).items())
    changed = digest(entry.program, entry.options, entry.defines) != entry.digest
    return f"{entry.program} {options}".strip() + (" *" if changed else "")


def find(options: dict[str, int], defines: dict[str, int]) -> Recorded:
    """The recorded run of fa3 with these options and defines; KeyError when there is none."""
    for entry in programs():
        if (entry.program, entry.options, entry.defines) == ("fa3", options, defines):
            return entry
    raise KeyError(f"fa3 {options} {defines}")


def cycles(entries: Iterable[Recorded]) -> str:
    """Cycles of whole programs."""
    rows = []
    for entry in entries:
        result = emulate(entry)
        ratio = result.cycles / entry.cycles
        rows.append((label(entry), f"{entry.cycles:,.0f}", f"{result.cycles:,}", f"{ratio:.3f}"))
    return table(("program", "H200 cycles", "emulated cycles", "ratio"), rows)


def numerics(entries: Iterable[Recorded]) -> str:
    """Relative errors of the outputs, same inputs on both."""
    rows = []
    for entry in entries:
        result = emulate(entry, whole=True)
        assert result.numerics is not None, label(entry)
        rows.append((label(entry), f"{entry.rel_error:.3e}", f"{result.numerics.rel_error:.3e}"))
    return table(("program", "H200 error", "emulated error"), rows)


def composite_cycles(only: str = "") -> str:
    """The compiled composite kernels; `per turn` is the difference of the two lengths."""
    rows: list[tuple[str, ...]] = []
    before: tuple[composites.Composite, int] | None = None
    for composite, value in composites.compare(only, "h200", "scheduled"):
        name = f"{composite.name} {composite.params}"
        if isinstance(value, str):
            rows.append((name, f"{composite.measured:,.0f}", "does not run", ""))
            continue
        rows.append((name, f"{composite.measured:,.0f}", f"{value:,}", f"{value / composite.measured:.3f}"))
        if before and before[0].file == composite.file:
            turns = composite.iterations - before[0].iterations
            there, here = (composite.measured - before[0].measured) / turns, (value - before[1]) / turns
            rows.append(("per turn", f"{there:,.1f}", f"{here:,.1f}", f"{here / there:.3f}"))
        before = (composite, value)
    return table(("kernel", "H200 cycles", "emulated cycles", "ratio"), rows)


def units(result: Result) -> str:
    """Busy units of fa3 here beside those of the FlashAttention-3 library on the card, one wave."""
    counters = flash_attention()
    rows = [
        (unit, f"{counters[name]['one_wave']:.1f} %", f"{100 * result.pipes[unit]:.1f} %")
        for unit, name in UNITS.items()
    ]
    slots = result.issue.selected + result.issue.idle
    issued = counters["smsp__issue_active.avg.pct_of_peak_sustained_active"]["one_wave"]
    rows.append(("issue slots", f"{issued:.1f} %", f"{100 * result.issue.selected / slots:.1f} %"))
    active = counters["sm__cycles_active.max"]["one_wave"]
    rows.append(("active cycles", f"{active:,.0f}", f"{result.cycles:,}"))
    return table(("unit", "library on the H200", "fa3 on the emulator"), rows)
