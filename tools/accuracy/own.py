"""Tables about our own kernels on the card and on the emulator: lengths, variants, counters, stalls, opcodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from emu.result import Result
from tools.accuracy import counters
from tools.accuracy.emulate import emulated, problem_of
from tools.accuracy.recorded import Recorded, flash_attention, programs, rates
from tools.docs.blocks import table

SMS = 132
PEAK = 4096 * SMS  # useful operations a cycle with 16-bit operands
ONE_WAVE = "fa3-seqlen128-seqlen_k4096-heads132-heads_k1"
PROFILED = {
    "fa3, d 128": ONE_WAVE,
    "fa3, d 64, P through shared memory": "fa3-seqlen128-seqlen_k1024-heads132-heads_k1-head_dim64-P_SHARED1",
    "fa3, batch 4": "fa3-seqlen4096-heads16-batch4-head_dim128-causalFalse",
    "gemm 4096": "gemm-m4096-n4096-k4096-dtypefp16",
}
COLUMN = {"fa3, batch 4": "fa3-seqlen4096-heads16-batch4", "gemm 4096": "gemm-m4096-n4096-k4096"}
# Shah et al., FlashAttention-3 (arXiv 2407.08608), table 2: 661 TFLOP/s; 582 without pipelining, 570 without specialisation.
PAPER = {"OVERLAP=0": 582 / 661, "SPECIALIZE=0": 570 / 661}
# Counter of executed instructions -> the pipes of the model that it counts.
PIPES = {
    "smsp__inst_executed": (),
    "smsp__inst_executed_pipe_alu": ("alu",),
    "smsp__inst_executed_pipe_fma": ("fma", "imad", "half"),
    "smsp__inst_executed_pipe_xu": ("xu",),
    "smsp__inst_executed_pipe_uniform": ("uniform",),
    "sm__inst_executed_pipe_tensor_op_gmma": ("tensor",),
}


def options_text(values: dict[str, Any]) -> str:
    """Options or defines in a row's name."""
    return " ".join(f"{name} {value}" for name, value in values.items())


def lengths() -> str:
    """Share of the tensor cores' peak that useful operations use, over the length: the library, ours, ours emulated."""
    found = {(e.options["head_dim"], e.options["causal"], e.options["seqlen"]): e for e in programs() if is_length(e)}
    rows, ours_off, emulated_off = [], [], []
    for entry in rates():
        dim, causal, seqlen = int(entry["head_dim"]), bool(entry["causal"]), int(entry["seqlen"])
        library = 1e6 * entry["tflops"] / (PEAK * entry["sm_mhz"])
        row = [f"d {dim}{', causal' if causal else ''}, {seqlen}", f"{100 * library:.1f} %"]
        if e := found.get((dim, causal, seqlen)):
            flops, result = problem_of(e).flops, emulated(e.name)
            ours, here = (flops / (PEAK * cycles) for cycles in (e.cycles, result.cycles))
            ours_off.append(abs(ours - library))
            emulated_off.append(abs(here - ours))
            row += [f"{100 * ours:.1f} %", f"{100 * here:.1f} %", f"{100 * (here - ours):+.1f}"]
        rows.append((*row, *[""] * (5 - len(row))))
    mean = [f"{100 * sum(off) / len(off):.1f}" for off in (ours_off, emulated_off)]
    rows.append(("mean difference, points", "", f"{mean[0]} to the library", "", f"{mean[1]} to ours"))
    return table(("shape", "library on the H200", "fa3 on the H200", "fa3 emulated", "difference"), rows)


def is_length(entry: Recorded) -> bool:
    """Whether a recording belongs to the curve over lengths: 16,384 tokens, every switch at its default."""
    return entry.program == "fa3" and not entry.defines and {"head_dim", "causal"} <= entry.options.keys()


def variants() -> str:
    """Every recorded combination of defines: cycles on both, and its speed relative to the defaults."""
    groups: dict[str, list[Recorded]] = defaultdict(list)
    for entry in programs():
        groups[f"{entry.program} {sorted(problem_of(entry).values.items())}"].append(entry)
    rows = []
    for members in groups.values():
        members.sort(key=lambda e: len(e.defines))
        base = members[0]
        if len(members) == 1 and not base.defines:
            continue
        for entry in members:
            cycles = emulated(entry.name).cycles
            switches = " ".join(f"{key}={value}" for key, value in entry.defines.items())
            speeds = ["", ""]
            if not base.defines:
                speeds = [f"{base.cycles / entry.cycles:.3f}", f"{emulated(base.name).cycles / cycles:.3f}"]
            published = f"{PAPER[switches]:.3f}" if switches in PAPER else ""
            name = f"**{entry.program} {options_text(entry.options)}**" if entry is base else ""
            what = f"{name} `{switches}`".strip() if switches else name
            cells = (f"{entry.cycles:,.0f}", f"{cycles:,}", f"{cycles / entry.cycles:.3f}")
            rows.append((what, *cells, *speeds, published))
    header = ("variant", "H200 cycles", "emulated", "ratio", "H200 speed", "emulated speed", "paper")
    return table(header, rows)


def column(workload: str) -> str:
    """The column of a profiled workload in the table of counters."""
    return COLUMN.get(workload, PROFILED[workload])


def instructions() -> str:
    """Warp instructions of the busiest SM by pipe, on the card and in the model."""
    card, rows = counters.read(), []
    for metric, pipes in PIPES.items():
        cells = []
        for workload, name in PROFILED.items():
            there = card[f"{metric}.max"][column(workload)] * (4 if metric.startswith("smsp") else 1)
            counts: Counter[str] = Counter()
            for mix in emulated(name).instruction_mix.values():
                counts.update(mix)
            here = sum(counts[p] for p in pipes) if pipes else counts.total()
            cells.append(f"{here / there:.3f}")
        rows.append((", ".join(pipes) or "all", *cells))
    tensor = [
        f"{100 * emulated(name).pipes['tensor'] - card[counters.TENSOR][column(workload)]:+.1f}"
        for workload, name in PROFILED.items()
    ]
    rows.append(("tensor cycles, points", *tensor))
    return table(("pipe", *PROFILED), rows)


def shares(result: Result) -> dict[str, float]:
    """Reason -> share of resident warp-cycles, all roles."""
    total: Counter[str] = Counter()
    for reasons in result.stalls.values():
        total.update(reasons)
    return {name: count / total.total() for name, count in total.items()}


def stalls() -> str:
    """Shares of resident warp-cycles by reason: the library's kernel and ours, on the card and emulated."""
    card = counters.read()
    columns = [counters.stall_shares(flash_attention(), "one_wave")]
    for workload, name in PROFILED.items():
        columns += [counters.stall_shares(card, column(workload)), shares(emulated(name))]
    reasons = sorted({r for c in columns for r, share in c.items() if share >= 0.0005})
    reasons.sort(key=lambda r: -columns[1].get(r, 0.0))
    rows = [(reason, *(f"{100 * c.get(reason, 0.0):.1f} %" for c in columns)) for reason in reasons]
    means = [
        sum(abs(columns[k].get(r, 0.0) - columns[k + 1].get(r, 0.0)) for r in reasons) / len(reasons)
        for k in range(1, len(columns), 2)
    ]
    rows.append(("mean difference, points", "", *(cell for mean in means for cell in ("", f"{100 * mean:.1f}"))))
    header = ["reason", "library, d 128", *(f"{w}{end}" for w in PROFILED for end in (": H200", ": emulated"))]
    return table(header, rows)


def opcodes() -> str:
    """Warp-cycles that each executed SASS instruction of fa3 costs on the card, by reason."""
    card = counters.opcodes()
    reasons = ("selected", "wait", "not_selected", "dispatch", "math", "mio", "short_sb", "long_sb", "barrier", "gmma")
    executed = sum(entry["executed"] for entry in card.values())
    per_sample = executed / sum(entry["selected"] for entry in card.values())  # executed instructions a sample
    rows = []
    for name, entry in sorted(card.items(), key=lambda item: -sum(item[1][r] for r in reasons))[:16]:
        cells = [entry[r] * per_sample / entry["executed"] for r in reasons]
        rows.append(
            (name, f"{100 * entry['executed'] / executed:.1f} %", *(f"{c:.1f}" if c >= 0.05 else "" for c in cells))
        )
    return table(("opcode", "of instructions", *reasons), rows)
