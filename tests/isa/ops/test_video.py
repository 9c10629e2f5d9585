"""Video instructions against the pseudo-code of the manual (PTX ISA 9.7.17, 9.7.18), in Python's integers."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa.bits import signed
from tests.isa.ops.cases import same, words

M32 = (1 << 32) - 1
TYPES = ("u32", "s32")
COUNT = 64
COMPARE = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
BASIC = {
    "add": operator.add, "sub": operator.sub, "absdiff": lambda a, b: abs(a - b), "min": min, "max": max,
    "avrg": lambda a, b: (a + b + (a + b >= 0)) >> 1,
}  # fmt: skip


def scalar_lines() -> Iterator[str]:
    """A sample of every scalar instruction."""
    for op, d, a, b in itertools.product(("vadd", "vsub", "vabsdiff", "vmin", "vmax"), TYPES, TYPES, TYPES):
        yield f"{op}.{d}.{a}.{b} %d, %a, %b;"
        yield f"{op}.{d}.{a}.{b}.sat %d, %a.h1, %b.b2;"
        yield f"{op}.{d}.{a}.{b}.sat.max %d, %a, %b, %c;"
        yield f"{op}.{d}.{a}.{b}.min %d, %a, %b, %c;"
        yield f"{op}.{d}.{a}.{b}.add %d, %a.b3, %b.h0, %c;"
        yield f"{op}.{d}.{a}.{b}.sat %d.b1, %a, %b, %c;"
        yield f"{op}.{d}.{a}.{b} %d.h1, %a.h0, %b.b1, %c;"
    for op, d, a, mode in itertools.product(("vshl", "vshr"), TYPES, TYPES, ("clamp", "wrap")):
        yield f"{op}.{d}.{a}.u32.{mode} %d, %a, %b;"
        yield f"{op}.{d}.{a}.u32.sat.{mode} %d, %a.h1, %b.b0;"
        yield f"{op}.{d}.{a}.u32.{mode}.add %d, %a, %b, %c;"
    for a, b, cmp in itertools.product(TYPES, TYPES, COMPARE):
        yield f"vset.{a}.{b}.{cmp} %d, %a, %b;"
        yield f"vset.{a}.{b}.{cmp}.add %d, %a.h0, %b.b1, %c;"
        yield f"vset.{a}.{b}.{cmp} %d.b3, %a.b0, %b.b1, %c;"


def lane_lines() -> Iterator[str]:
    """A sample of every instruction on lanes."""
    for n, (sa, sb, mask) in {"2": (".h12", ".h03", ".h1"), "4": (".b0527", ".b3416", ".b310")}.items():
        for op, d, a, b in itertools.product(BASIC, TYPES, TYPES, TYPES):
            yield f"v{op}{n}.{d}.{a}.{b} %d, %a, %b, %c;"
            yield f"v{op}{n}.{d}.{a}.{b}.sat %d{mask}, %a{sa}, %b{sb}, %c;"
            yield f"v{op}{n}.{d}.{a}.{b}.add %d{mask}, %a{sa}, %b, %c;"
        for a, b, cmp in itertools.product(TYPES, TYPES, COMPARE):
            yield f"vset{n}.{a}.{b}.{cmp} %d{mask}, %a, %b, %c;"
            yield f"vset{n}.{a}.{b}.{cmp}.add %d, %a, %b{sb}, %c;"


def product_lines() -> Iterator[str]:
    """Every kind of vmad."""
    for d, a, b, sat, scale in itertools.product(TYPES, TYPES, TYPES, ("", ".sat"), ("", ".shr7", ".shr15")):
        for na, nb, nc in (("", "", ""), ("-", "", ""), ("", "-", ""), ("", "", "-"), ("-", "-", "")):
            yield f"vmad.{d}.{a}.{b}{sat}{scale} %d, {na}%a, {nb}%b, {nc}%c;"
        yield f"vmad.{d}.{a}.{b}.po{sat}{scale} %d, %a, %b, %c;"
        yield f"vmad.{d}.{a}.{b}{sat}{scale} %d, %a.h1, %b.b1, %c;"


def field(word: int, type: str, selector: str) -> int:
    width = {"": 32, "b": 8, "h": 16}[selector[:1]]
    value = word >> int(selector[1:] or 0) * width & ((1 << width) - 1)
    return signed(value, width) if type == "s32" else value


def clamp(x: int, type: str, width: int) -> int:
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if type == "s32" else (0, (1 << width) - 1)
    return max(low, min(high, x))


def parse(line: str) -> tuple[list[str], list[tuple[str, str]]]:
    """The qualifiers, and sign and selector of each operand."""
    opcode, rest = line.rstrip(";").split(" ", 1)
    parts = [re.fullmatch(r"(-?)%\w\.?(\w*)", x.strip()) for x in rest.split(",")]
    return opcode.split("."), [(p[1], p[2]) for p in parts if p]


def scalar(line: str, a: int, b: int, c: int) -> int:
    """What a scalar instruction gives."""
    (name, *mods), ops = parse(line)
    selector = ops[0][1]
    if name == "vset":
        x, y = field(a, mods[0], ops[1][1]), field(b, mods[1], ops[2][1])
        t, d_type = int(COMPARE[mods[2]](x, y)), "u32"
        second = mods[3] if len(mods) > 3 else ""
    else:
        d_type = mods[0]
        x, y = field(a, mods[1], ops[1][1]), field(b, mods[2], ops[2][1])
        second = mods[-1] if mods[-1] in ("add", "min", "max") else ""
        if name in ("vshl", "vshr"):
            y = min(y, 32) if "clamp" in mods else y & 31
            t = x << y if name == "vshl" else x >> y
        else:
            t = BASIC[name[1:]](x, y)
    width = {"": 32, "b": 8, "h": 16}[selector[:1]]
    if "sat" in mods:
        t = clamp(t, d_type, width)
    other = signed(c, 32) if d_type == "s32" else c
    if second:
        return BASIC[second](t, other) & M32
    if not selector:
        return t & M32
    at, mask = int(selector[1:]) * width, (1 << width) - 1
    return c & ~(mask << at) & M32 | (t & mask) << at


def lanes(line: str, a: int, b: int, c: int) -> int:
    """What an instruction on lanes gives."""
    (name, *mods), ops = parse(line)
    count = int(name[-1])
    width, defaults = 32 // count, {2: ("10", "10", "32"), 4: ("3210", "3210", "7654")}[count]
    mask, *selectors = [(ops[k][1][1:] or defaults[k])[::-1] for k in range(3)]
    both = b << 32 | a
    types = mods[:2] if name.startswith("vset") else mods[1:3]
    x, y = (
        [field(both >> int(digit) * width & ((1 << width) - 1), "u32", "") for digit in chosen] for chosen in selectors
    )
    x, y = (
        [signed(v, width) if type == "s32" else v for v in values] for values, type in zip((x, y), types, strict=True)
    )
    function = COMPARE[mods[2]] if name.startswith("vset") else BASIC[name[1:-1]]
    t = [int(function(p, q)) for p, q in zip(x, y, strict=True)]
    if "sat" in mods:
        t = [clamp(v, mods[0], width) for v in t]
    for i in map(int, mask):
        part = ((1 << width) - 1) << i * width
        c = c + t[i] if "add" in mods else c & ~part | t[i] << i * width & part
    return c & M32


def product(line: str, a: int, b: int, c: int) -> int:
    """What vmad gives: the manual's 128 bits."""
    (_, *mods), ops = parse(line)
    x, y = field(a, mods[1], ops[1][1]), field(b, mods[2], ops[2][1])
    minus, minus_c = ops[1][0] != ops[2][0], ops[3][0] == "-"
    is_signed = "s32" in mods[1:3] or minus or minus_c
    t, added = x * y, signed(c, 32) if is_signed else c
    if minus:
        t = -t
    elif minus_c:
        added = -added
    total = t + added + ("po" in mods)
    total >>= 7 if "shr7" in mods else 15 if "shr15" in mods else 0
    total &= (1 << 64) - 1
    if "sat" in mods:
        total = clamp(signed(total, 64), "s32", 32) if is_signed else clamp(total, "u32", 32)
    return total & M32


FAMILIES = {"scalar": (scalar_lines, scalar), "lanes": (lane_lines, lanes), "product": (product_lines, product)}


@pytest.mark.parametrize("family", FAMILIES)
def test_values(family: str) -> None:
    lines, expected = FAMILIES[family]
    a, b, c = (words(k, COUNT) for k in (1, 2, 3))
    b[: COUNT // 4] %= 70  # shift counts
    for line in lines():
        want = [expected(line, *map(int, lane)) for lane in zip(a, b, c, strict=True)]
        same(run_ptx(line, a=a, b=b, c=c, d="b32")["d"], np.array(want, np.uint32), a, b, c)


def test_reference_against_a_card() -> None:
    """What an H200 gave (tests/golden/numerics/README.md says which instructions ptxas gets wrong)."""
    with np.load(Path(__file__).parents[2] / "golden" / "numerics" / "video.npz") as stored:
        arrays = dict(stored)
    for line, out in zip(arrays["lines"].astype(str), arrays["out"], strict=True):
        name = line.split(".")[0]
        function = product if name == "vmad" else lanes if name[-1] in "24" else scalar
        want = [function(line, *map(int, lane)) for lane in zip(*(arrays[x] for x in "abc"), strict=True)]
        same(out, np.array(want, np.uint32))


def test_accepted(instructions) -> None:
    """By ptxas too; the registers of the tests' kernel."""
    every = [line for lines, _ in FAMILIES.values() for line in lines()]
    instructions.accept(re.sub(r"%([abcd])", lambda m: f"%r{'dabc'.index(m[1]) + 1}", line) for line in every[::5])


REJECTED = [
    "vadd.u32.u32.u32 %r1.b1, %r2, %r3;",
    "vadd.u32.u32.u32.add %r1.b1, %r2, %r3, %r4;",
    "vadd.u32.u32.u32 %r1, %r2.b4, %r3;",
    "vadd.u32.u32.u32 %r1, %r2.x, %r3;",
    "vmad.u32.u32.u32.po %r1, -%r2, %r3, %r4;",
    "vadd2.u32.u32.u32 %r1, %r2.h1, %r3, %r4;",
    "vadd4.u32.u32.u32.sat.add %r1, %r2, %r3, %r4;",
    "vset.u32.u32.equ %r1, %r2, %r3;",
    "vshl.u32.u32.u32 %r1, %r2, %r3;",
]


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text: str) -> None:
    instructions.reject(text)
