"""The tables of docs/accuracy.md, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from emu.result import Result
from tools.accuracy.emulate import emulate
from tools.accuracy.recorded import Recorded, digest, flash_attention, programs
from tools.calibrate import composites
from tools.docs.blocks import table

ONE_WAVE = {"seqlen": 128, "seqlen_k": 4096, "heads": 132, "heads_k": 1}
SHORT = {"seqlen": 1024, "heads": 16}
# Shah et al., FlashAttention-3 (arXiv 2407.08608), table 2: 661 TFLOP/s; 582 without pipelining, 570 without specialisation.
PAPER = {"OVERLAP": 582 / 661, "SPECIALIZE": 570 / 661}
VARIANTS: tuple[tuple[dict[str, int], str], ...] = (
    ({}, "as shipped"),
    ({"PINGPONG": 0}, "no ping-pong"),
    ({"OVERLAP": 0}, "no overlap inside a warpgroup"),
    ({"PINGPONG": 0, "OVERLAP": 0}, "neither"),
    ({"SPECIALIZE": 0}, "no producer warpgroup"),
    ({"SETMAXNREG": 0}, "no setmaxnreg (96 keys a block)"),
    ({"KV_TILE": 128}, "128 keys a block"),
)
# Unit of the emulator -> the counter that measures the same share.
UNITS = {
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "xu": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "alu": "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
}
STALLED, PER_ISSUE = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"


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


def stalls(result: Result) -> str:
    """Shares of resident warp-cycles by reason, beside the library's."""
    ratios = {
        name.removeprefix(STALLED).removesuffix(PER_ISSUE): values["one_wave"]
        for name, values in flash_attention().items()
        if name.startswith(STALLED)
    }
    here: dict[str, int] = {}
    for reasons in result.stalls.values():
        for name, count in reasons.items():
            here[name] = here.get(name, 0) + count
    theirs, ours = sum(ratios.values()), sum(here.values())
    shares = [(name, ratios.get(name, 0.0) / theirs, here.get(name, 0) / ours) for name in {*ratios, *here}]
    shares = sorted((s for s in shares if max(s[1:]) >= 0.0005), key=lambda s: (-s[1], s[0]))
    rows = [(name, f"{100 * there:.1f} %", f"{100 * own:.1f} %") for name, there, own in shares]
    return table(("reason", "library on the H200", "fa3 on the emulator"), rows)


def ablations() -> str:
    """Speed of fa3's variants relative to the shipped one, for two numbers of keys."""
    rows = []
    base: dict[str, tuple[float, float]] = {}
    for defines, text in VARIANTS:
        cells = []
        for keys, options in (("4096", ONE_WAVE), ("1024", SHORT)):
            entry = find(options, defines)
            measured, emulated = entry.cycles, emulate(entry).cycles
            base.setdefault(keys, (measured, emulated))
            cells += [f"{base[keys][0] / measured:.3f}", f"{base[keys][1] / emulated:.3f}"]
        published = PAPER.get(next(iter(defines))) if len(defines) == 1 else None
        switches = " ".join(f"{name}={value}" for name, value in defines.items())
        name = f"{text} (`{switches}`)" if switches else text
        rows.append((name, *cells, f"{published:.3f}" if published else ""))
    header = ("variant", "H200, 4096 keys", "emulated", "H200, 1024 keys", "emulated", "paper, 8448 keys")
    return table(header, rows)
