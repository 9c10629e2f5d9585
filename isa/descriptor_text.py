"""Descriptors of tcgen05.mma and wgmma in words, for `warpsmith explain 0x...`."""

from __future__ import annotations

from isa.descriptors import (
    BLOCK_SCALED,
    D_TYPES,
    ELEMENTS,
    KINDS,
    MATRIX_PROBLEMS,
    PROBLEMS,
    SWIZZLES,
    VERSION,
    columns_of,
    d_type_of,
    matrix_problem,
    problem_of,
    rows_of,
    types_of,
)

HOPPER_SWIZZLES = ("none", "128B", "64B", "32B")
OWNERS = {0: "wgmma (version 0)", VERSION: f"tcgen05.mma (version {VERSION})"}
# Bits that are 0: beside the addresses, and of wgmma (PTX ISA 9.7.15.5.1) all between base offset and swizzle.
RESERVED = {True: (14, 15, 30, 31), False: (14, 15, 30, 31, *range(46, 49), *range(52, 62))}


def matrix_text(desc: int) -> str:
    """A 64-bit matrix descriptor: its fields, and what is wrong with it."""
    version = desc >> 46 & 7
    blackwell = version == VERSION
    start, lbo, sbo = ((desc >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    code = desc >> 61 & 7 if blackwell else desc >> 62 & 3
    swizzle = (SWIZZLES if blackwell else HOPPER_SWIZZLES)[code]
    lines = [
        f"matrix descriptor {desc:#018x} of {OWNERS.get(version, f'nothing: there is no version {version} (bits 46-48); read as one of wgmma')}",
        f"  start address {start:#x}, leading-dimension offset (LBO) {lbo} bytes, stride offset (SBO) {sbo} bytes",
        f"  swizzle {swizzle or 'that does not exist'} (code {code}), base offset {desc >> 49 & 7}",
    ]
    if blackwell:
        wrong = matrix_problem(desc, 2 if code == 1 else 0, code == 1)
        lines += [f"  wrong: {': '.join(MATRIX_PROBLEMS[wrong])}"] if wrong else []
    if stray := [str(bit) for bit in RESERVED[blackwell] if desc >> bit & 1]:
        lines.append(f"  wrong: reserved bits are set: {', '.join(stray)}")
    return "\n".join(lines) + "\n"


def instruction_text(idesc: int) -> str:
    """A 32-bit instruction descriptor, as each kind that takes it reads it."""
    readings: dict[str, list[str]] = {}
    refusals = []
    for kind, name in enumerate(KINDS):
        wrong = problem_of(kind | (4 if name == "mxf4nvf4" else 2 if name == "mxf4" else 1) - 1 << 8, idesc)
        if wrong:
            refusals.append(f"  not of kind::{name}: {PROBLEMS[wrong][0]}")
        else:
            readings.setdefault(_reading(kind, idesc), []).append(f"kind::{name}")
    lines = [f"instruction descriptor {idesc:#010x} of tcgen05.mma"]
    lines += [f"  {', '.join(kinds)}: {text}" for text, kinds in readings.items()]
    return "\n".join([*lines, *(refusals if not readings else [])]) + "\n"


def _reading(kind: int, idesc: int) -> str:
    a, b = (ELEMENTS[x].replace("packed", "e2m1, two a byte") for x in types_of(kind, idesc))
    parts = [f"M {rows_of(kind, idesc)}, N {columns_of(idesc)}, A {a}, B {b}, D {D_TYPES[d_type_of(kind, idesc)]}"]
    majors = [f"{name} {'MN' if idesc >> bit & 1 else 'K'}-major" for name, bit in (("A", 15), ("B", 16))]
    parts += majors if kind < KINDS.index("mxf4") else []
    parts += [f"{name} negated" for name, bit in (("A", 13), ("B", 14)) if idesc >> bit & 1]
    parts += ["saturating"] if idesc >> 3 & 1 else []
    if kind in BLOCK_SCALED:
        scale = "ue8m0" if idesc >> 23 & 1 else "ue4m3"
        parts.append(f"scales {scale}, scale-factor ids {idesc >> 29 & 3} (A) and {idesc >> 4 & 3} (B)")
    return ", ".join(parts)
