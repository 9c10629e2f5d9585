"""Conversions that clamp and those between 16-bit floats, against exact conversion and clamping in Python."""

import numpy as np
import pytest

from emu.lanes import run_ptx
from isa import bits
from isa.bits import BF16, F16, F32, F64
from isa.ops.convert import TF32
from tests.isa.ops.cases import longs, same, shorts, words

FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
WIDTH = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}
REGISTER = {8: "h", 16: "h", 32: "r", 64: "rd"}
FLOAT = {"f16": "h", "bf16": "h", "f32": "f", "f64": "fd"}
MODES = ("rn", "rz", "rm", "rp")
INTEGERS = [f"{s}{w}" for s in "us" for w in (8, 16, 32, 64)]
TO_FLOAT = [f"cvt.{m}.sat.{d}.{a}" for m in MODES for d in ("f16", "f32", "f64") for a in INTEGERS]
NARROW = [f"cvt.{m}.sat.{d}.{a}" for m in MODES for d, a in (("f16", "f32"), ("f16", "f64"), ("f32", "f64"))]
INTEGRAL = [f"cvt.{m}i.sat.{t}.{t}" for m in MODES for t in ("f16", "f32", "f64")]
SAME = [
    "cvt.sat.f64.f32",
    "cvt.sat.f64.f16",
    "cvt.sat.f32.f16",
    "cvt.sat.f16.f16",
    "cvt.sat.f64.f64",
    "cvt.sat.f32.f32",
]
BETWEEN = [f"cvt{m}.{d}.{a}" for m in ("", *(f".{m}" for m in MODES)) for d, a in (("f16", "bf16"), ("bf16", "f16"))]
BETWEEN += ["cvt.f64.bf16", "cvt.rm.bf16.f32", "cvt.rp.bf16.f32", *(f"cvt.{m}i.bf16.bf16" for m in MODES)]
ALL = TO_FLOAT + NARROW + INTEGRAL + SAME + BETWEEN


def register(type: str) -> str:
    return FLOAT.get(type) or REGISTER[int(type[1:])]


def test_accepted(instructions):
    lines = []
    for opcode in ALL:
        d, a = opcode.split(".")[-2:]
        lines.append(f"{opcode} %{register(d)}1, %{register(a)}2;")
    lines += [
        "cvt.f16.f16 %h1, %h2;",
        "cvt.bf16.bf16 %h1, %h2;",
        "cvt.f64.f64 %fd1, %fd2;",
        "cvt.ftz.f32.bf16 %f1, %h2;",
    ]
    lines += [
        "cvt.rn.ftz.sat.f16.f32 %h1, %f2;",
        "cvt.rz.ftz.sat.f32.f64 %f1, %fd2;",
        "cvt.rni.ftz.sat.f32.f32 %f1, %f2;",
    ]
    lines += [
        f"cvt.{m}{r}.satfinite.{t}.f32 %h1, %f2;" for m in ("rn", "rz") for r in ("", ".relu") for t in ("f16", "bf16")
    ]
    lines += [
        f"cvt.{m}{r}.satfinite.{t}x2.f32 %r1, %f2, %f3;"
        for m in ("rn", "rz")
        for r in ("", ".relu")
        for t in ("f16", "bf16")
    ]
    lines += [
        "cvt.rna.satfinite.tf32.f32 %r1, %f2;",
        "cvt.rn.relu.tf32.f32 %r1, %f2;",
        "cvt.rz.relu.tf32.f32 %r1, %f2;",
    ]
    lines += [f"cvt.pack.sat.{t}.s32 %r1, %r2, %r3;" for t in ("u16", "s16")]
    lines += [f"cvt.pack.sat.{t}.s32.b32 %r1, %r2, %r3, %r4;" for t in ("u8", "s8", "u4", "s4", "u2", "s2")]
    instructions.accept(lines)


@pytest.mark.parametrize(
    "text",
    [
        "cvt.rn.satfinite.tf32.f32 %r1, %f2;",
        "cvt.sat.bf16.bf16 %h1, %h2;",
        "cvt.sat.f32.bf16 %f1, %h2;",
        "cvt.rm.satfinite.f16.f32 %h1, %f2;",
        "cvt.pack.sat.u32.s32 %r1, %r2, %r3;",
        "cvt.f16.f32 %h1, %f2;",
    ],
)
def test_rejected(instructions, text):
    instructions.reject(text)


def source(type: str, seed: int) -> np.ndarray:
    """Lanes of a type; integers also near 0 and 1."""
    width = WIDTH.get(type) or int(type[1:])
    values = {8: shorts, 16: shorts, 32: words, 64: longs}[width](seed, 512)
    if type not in FORMATS:
        values[::3] = np.random.default_rng(seed).integers(0, 4, len(values[::3]))
        values[1::7] = np.iinfo(values.dtype).max
    return values


def exact(opcode: str, x: int) -> int:
    """The plain conversion in Python's integers."""
    parts = opcode.split(".")
    d, a = parts[-2:]
    mode = next((m for m in MODES if m in parts or f"{m}i" in parts), "rn")
    f = FORMATS[d]
    if a not in FORMATS:
        width = int(a[1:])
        x &= (1 << width) - 1
        return bits.from_integer(f, bits.signed(x, width) if a[0] == "s" else x, mode)
    g = FORMATS[a]
    if f"{mode}i" in parts:
        value = bits.round_integral(g, x, mode)
        return (f.nan if bits.is_nan(g, x) else x) if value is None else bits.from_integer(f, value) | (x & f.sign)
    return x if d == a else bits.convert(g, f, x, mode)


@pytest.mark.parametrize("opcode", ALL)
def test_values(opcode):
    d, a = opcode.split(".")[-2:]
    values = source(a, len(opcode))
    out = {16: "b16", 32: "b32", 64: "b64"}[WIDTH[d]]
    got = run_ptx(f"{opcode} %d, %a;", a=values, d=out)["d"]
    if WIDTH[d] == 16:
        got = got & np.uint32(0xFFFF)
    f = FORMATS[d]
    plain = [exact(opcode, int(x)) for x in values]
    if ".sat." in opcode:
        plain = [bits.saturate(f, x) for x in plain]
    same(got, np.array(plain, np.uint64), values)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_satfinite(type, mode, relu):
    f, a, b = FORMATS[type], words(8, 1024), words(9, 1024)

    def one(x: int) -> int:
        r = bits.convert(F32, f, x, mode)
        if bits.is_inf(f, r):
            r = f.largest | r & f.sign
        return bits.relu(f, r) if relu else r

    word = ".relu" if relu else ""
    got = run_ptx(
        f"cvt.{mode}{word}.satfinite.{type}x2.f32 %d, %a, %b; cvt.{mode}{word}.satfinite.{type}.f32 %h, %a;",
        a=a,
        b=b,
        d="b32",
        h="b16",
    )
    expected = np.array([one(int(x)) << 16 | one(int(y)) for x, y in zip(a, b, strict=True)], np.uint32)
    same(got["d"], expected, a, b)
    same(got["h"] & np.uint32(0xFFFF), expected >> np.uint32(16), a)


def test_tf32():
    a = words(10, 1024)

    def narrow(x: int, mode: str, relu: bool, finite: bool) -> int:
        if bits.is_nan(F32, x):
            return 0x7FFFE000
        r = bits.convert(F32, TF32, x, mode)
        if finite and bits.is_inf(TF32, r):
            r = TF32.largest | r & TF32.sign
        return (bits.relu(TF32, r) if relu else r) << 13

    out = run_ptx(
        "cvt.rn.relu.tf32.f32 %d, %a; cvt.rz.relu.tf32.f32 %e, %a; cvt.rna.satfinite.tf32.f32 %f, %a;",
        a=a, d="b32", e="b32", f="b32",
    )  # fmt: skip
    for name, mode, relu, finite in (("d", "rn", True, False), ("e", "rz", True, False), ("f", "rna", False, True)):
        same(out[name], np.array([narrow(int(x), mode, relu, finite) for x in a], np.uint32), a)


@pytest.mark.parametrize("type", ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
def test_pack(type):
    a, b, c = words(11, 512), words(12, 512), words(13, 512)
    a[::2] = np.random.default_rng(1).integers(-300, 300, 256).astype(np.int32).view(np.uint32)
    width = int(type[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if type[0] == "s" else (0, (1 << width) - 1)
    small = width < 16
    line = f"cvt.pack.sat.{type}.s32{'.b32' if small else ''} %d, %a, %b{', %c' if small else ''};"
    clamped = [np.clip(x.view(np.int32).astype(np.int64), low, high) & ((1 << width) - 1) for x in (a, b)]
    expected = clamped[0] << width | clamped[1]
    if small:
        expected |= c.astype(np.int64) << 2 * width & 0xFFFFFFFF
    same(run_ptx(line, a=a, b=b, c=c, d="b32")["d"], expected.astype(np.uint32), a, b, c)
