"""atom and red: what both assemblers take, and the operations that they become."""

import itertools

import pytest

from isa.ops.atomic import atomic_word

SEMS = ["", ".relaxed", ".acquire.cta", ".release.sys", ".acq_rel.gpu", ".relaxed.cluster"]
SPACES = {
    "": "[%rd1]",
    ".global": "[%rd1+4]",
    ".shared": "[%r9]",
    ".shared::cta": "[%r9+-8]",
    ".shared::cluster": "[%r9]",
}
SCALARS = [
    *[(f".{op}.{t}", "r") for op in ("add", "min", "max") for t in ("u32", "s32")],
    (".inc.u32", "r"), (".dec.u32", "r"), (".and.b32", "r"), (".or.b32", "r"), (".xor.b32", "r"), (".exch.b32", "r"),
    *[(f".{op}.{t}64", "rd") for op in ("min", "max") for t in "us"],
    (".add.u64", "rd"), (".and.b64", "rd"), (".or.b64", "rd"), (".xor.b64", "rd"), (".exch.b64", "rd"),
    (".add.f32", "f"), (".add.f64", "fd"),
    *[(f".add.noftz.{t}", "h") for t in ("f16", "bf16")],
    *[(f".add.noftz.{t}", "r") for t in ("f16x2", "bf16x2")],
]  # fmt: skip
VECTORS = [
    *[(f".add.v{n}.f32", "f", n) for n in (2, 4)],
    *[(f".{op}.noftz.v{n}.{t}", "h", n) for op in ("add", "min", "max") for n in (2, 4, 8) for t in ("f16", "bf16")],
    *[(f".{op}.noftz.v{n}.{t}x2", "r", n) for op in ("add", "min", "max") for n in (2, 4) for t in ("f16", "bf16")],
]
ACCEPTED = [
    f"atom{s}{m}{t} %{r}1, {a}, %{r}2;"
    for (m, a), (t, r) in itertools.product(SPACES.items(), SCALARS)
    for s in SEMS[:1]
]
ACCEPTED += [f"atom{sem}.global.add.u32 %r1, [%rd1], 7;" for sem in SEMS]
ACCEPTED += [f"red{m}{t} {a}, %{r}2;" for m, a in SPACES.items() for t, r in SCALARS if "exch" not in t]
ACCEPTED += [f"atom.cas.b{w} %{r}1, [%rd1], %{r}2, %{r}3;" for w, r in ((16, "h"), (32, "r"), (64, "rd"))]
for _type, _register, _count in VECTORS:
    _values = [", ".join(f"%{_register}{k}" for k in range(at, at + _count)) for at in (1, 3)]
    ACCEPTED += [
        f"atom.global{_type} {{{_values[0]}}}, [%rd1], {{{_values[1]}}};",
        f"red{_type} [%rd1], {{{_values[1]}}};",
    ]
ACCEPTED += [
    "atom.global.gpu.acq_rel.add.u32 %r1, [%rd1], %r2;",
    "atom.relaxed.sys.shared.add.u32 %r1, [%r9], 1;",
    "red.global.gpu.relaxed.add.noftz.f16x2 [%rd1], %r2;",
    "atom.global.add.u32 _, [%rd1], %r2;",
    "atom.global.add.L2::cache_hint.u32 %r1, [%rd1], %r2, %rd3;",
    "red.global.add.noftz.L2::cache_hint.f16x2 [%rd1], %r2, %rd3;",
    "{ .reg .b128 %q<4>; atom.global.exch.b128 %q1, [%rd1], %q2; atom.cas.b128 %q1, [%rd1], %q2, %q3; }",
]  # fmt: skip
REJECTED = [
    "atom.add.s64 %rd1, [%rd2], %rd3;",
    "atom.shared.add.v2.f32 {%f1, %f2}, [%r9], {%f3, %f4};",
    "atom.global.add.f16 %h1, [%rd1], %h2;",
    "atom.min.f32 %f1, [%rd1], %f2;",
    "atom.local.add.u32 %r1, [%rd1], %r2;",
    "atom.global.cas.b32 %r1, [%rd1], %r2;",
    "red.exch.b32 [%rd1], %r2;",
    "red.acquire.gpu.add.u32 [%rd1], %r2;",
    "atom.inc.s32 %r1, [%rd1], %r2;",
    "atom.global.add.L2::cache_hint.u32 %r1, [%rd1], %r2;",
    "atom.global.add.v4.f32 {%f1, %f2}, [%rd1], {%f3, %f4, %f5, %f6};",
]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize(
    "text, name, word",
    [
        ("atom.add.u32 %r1, [%rd1+8], %r2;", "ATOM", atomic_word(8, "add", "u32")),
        ("atom.global.min.s64 %rd1, [%rd1], %rd2;", "ATOMG", atomic_word(0, "min", "s64")),
        ("red.global.add.f32 [%rd1+-4], %f1;", "REDG", atomic_word(-4, "add", "f32")),
        ("red.add.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};", "RED", atomic_word(0, "add", "f32", 4)),
        ("atom.shared.xor.b32 %r1, [%r9], %r2;", "ATOMS", atomic_word(0, "xor", "u32")),
        ("atom.shared.cas.b64 %rd1, [%r9], %rd2, %rd3;", "ATOMS.CAS", atomic_word(0, "cas", "u64")),
        ("atom.shared.add.f32 %f1, [%r9], %f2;", "ATOMS.CAST.SPIN", atomic_word(0, "add", "f32")),
        ("red.shared.add.u64 [%r9], %rd2;", "REDS.CAST.SPIN.64", atomic_word(0, "add", "u64")),
    ],
)
def test_words(instructions, text, name, word):
    assert instructions.words(text) == [(name, word)]


def test_a_wrong_target_says_so(instructions):
    with pytest.raises(Exception, match="needs sm_90 or later"):
        instructions.lower("red.global.add.v2.f32 [%rd1], {%f1, %f2};", "sm_80")
