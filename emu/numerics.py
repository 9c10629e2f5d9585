"""The two modes of numerics: what silicon mode does that fast mode does not, and by how much they can differ.

Bounds are relative: of a tensor-core instruction to the sum of the magnitudes that it adds, of ex2 to its result.
"""

from __future__ import annotations

from emu.machine import Machine
from isa.micro import MICROS
from isa.program import Program

FAST, SILICON = "fast", "silicon"
MODES = (FAST, SILICON)
EX2_BOUND = 2.0**-22  # 2 ulp (tools.sweep_mufu)
HALF_STEP = 2.0**-10  # two results that each round once to f16
_F8, _INTEGERS, _TF32 = (3, 4), (5, 6), 2

# Opcode (or micro-operation) -> what differs; the tensor core's bound follows from the machine.
TENSOR = (
    "silicon: every product and the accumulator are truncated to {fraction} fraction bits below the largest term, added exactly "
    "and truncated once to f32 (8-bit floats of wgmma: {f8} bits, of which the result keeps {kept}; f16 results round to nearest).\n"
    "fast: one float32 fused multiply-add a product, k ascending, rounded to nearest; f16 results round once.  Integers are exact "
    "in both.\n"
    "difference: at most {bound:.2g} of the sum of magnitudes for 16-bit operands (16 products), {f8_bound:.2g} for 8-bit floats of wgmma."
)
EX2 = (
    "silicon: the table of the special function unit, bit for bit.  fast: for f32 a polynomial within 1 ulp of 2^a, which "
    "differs by at most 2 ulp (2^-22); halves are bit for bit."
)
SAME = "the special function unit's table, bit for bit, in both modes."
UNKNOWN = (
    "not bit for bit in either mode: the unit's table is not known.  A polynomial, within 2^-20.9 of the unit's value and of "
    "the true one."
)
BLACKWELL = (
    "not known bit for bit: no Blackwell was measured, and silicon mode refuses tcgen05.mma.\n"
    "fast: one float32 fused multiply-add a product, k ascending from D, rounded to nearest; f16 results round once.  Blocks with scales: "
    "their products so from 0, then D + sum * scale A * scale B, rounded once.  Integers are exact."
)
NOTES = {
    "wgmma": TENSOR, "mma": TENSOR, "HGMMA": TENSOR, "HGMMA.RS": TENSOR, "HMMA.16816": TENSOR, "HMMA.1688": TENSOR,
    "ex2": EX2, "MUFU.EX2": EX2, "MUFU.EX2.FAST": EX2, "sin": UNKNOWN, "cos": UNKNOWN, "MUFU.SIN": UNKNOWN, "MUFU.COS": UNKNOWN,
    "tcgen05": BLACKWELL, "UTCMMA": BLACKWELL, "UTCMMA.TS": BLACKWELL,
} | dict.fromkeys(("lg2", "rcp", "rsqrt", "sqrt", "tanh", "MUFU.LG2", "MUFU.RCP", "MUFU.RSQ", "MUFU.SQRT", "MUFU.TANH"), SAME)  # fmt: skip


def note(word: str, machine: Machine) -> str:
    """How an opcode's or micro-operation's results compare with the card's, by mode; empty when there is nothing to say."""
    if word.startswith("tcgen05.") and not word.startswith("tcgen05.mma"):
        return ""
    text = NOTES.get(word) or NOTES.get(word.split(".")[0], "")
    bits = [
        int(machine.value(f"unit.tensor.{name}")) for name in ("fraction_bits", "f8_fraction_bits", "f8_result_bits")
    ]
    fraction, f8, kept = bits
    bounds = {"bound": dot_bound(16, fraction, 23), "f8_bound": dot_bound(32, f8, kept)}
    return text.format(fraction=fraction, f8=f8, kept=kept, **bounds)


def dot_bound(products: int, fraction: int, kept: int) -> float:
    """Largest difference of the modes over the sum of magnitudes: roundings of fast mode, truncations of silicon mode."""
    return products * 2.0**-24 + (products + 1) * 2.0**-fraction + 2.0**-kept


def unknown(program: Program) -> str:
    """An instruction of the program whose results silicon mode cannot give; empty when there is none."""
    return next((name for name in program.micro_names if NOTES.get(name) is BLACKWELL), "")


def bound(program: Program, machine: Machine) -> float:
    """The largest bound of the instructions of a program: 0 when fast mode, too, equals the card bit for bit."""
    bounds = [0.0]
    for name, imm in zip(program.micro_names, program.instrs["imm"], strict=True):
        if MICROS[name].fast:
            bounds.append(EX2_BOUND)
        elif name.startswith("HGMMA"):
            bounds.append(_tensor_bound(int(imm) >> 12 & 15, 0, int(imm) >> 16 & 1, machine))
        elif name.startswith("HMMA"):
            bounds.append(_tensor_bound(int(imm) >> 8 & 15, int(imm) & 255, int(imm) >> 16 & 1, machine))
    return max(bounds)


def _tensor_bound(kind: int, k: int, half: int, machine: Machine) -> float:
    if kind in _INTEGERS:
        return 0.0
    fraction, kept = machine.value("unit.tensor.fraction_bits"), 23.0
    if kind in _F8:
        fraction, kept = (machine.value(f"unit.tensor.f8_{name}_bits") for name in ("fraction", "result"))
    products = k or (32 if kind in _F8 else 8 if kind == _TF32 else 16)
    return dot_bound(products, int(fraction), int(kept)) + half * HALF_STEP
