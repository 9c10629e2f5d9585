"""dp4a, dp2a against NumPy."""

import numpy as np
import pytest

from emu.lanes import run_ptx
from tests.isa.ops.cases import same, words

SIGNS = ("u32", "s32")
ACCEPTED = [f"dp4a.{a}.{b} %r1, %r2, %r3, %r4;" for a in SIGNS for b in SIGNS]
ACCEPTED += [f"dp2a.{h}.{a}.{b} %r1, %r2, %r3, %r4;" for h in ("lo", "hi") for a in SIGNS for b in SIGNS]


def test_accepted(instructions):
    instructions.accept(ACCEPTED)


@pytest.mark.parametrize(
    "text", ["dp4a.u32 %r1, %r2, %r3, %r4;", "dp2a.u32.u32 %r1, %r2, %r3, %r4;", "dp4a.u64.u64 %rd1, %r2, %r3, %rd4;"]
)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("opcode", [text.split()[0] for text in ACCEPTED])
def test_values(opcode):
    a, b, c = (words(k, 1024) for k in (1, 2, 3))
    base, *rest = opcode.split(".")
    kinds = [np.dtype(np.int8 if t == "s32" else np.uint8) for t in rest[-2:]]
    if base == "dp4a":
        x, y = a.view(kinds[0]).reshape(-1, 4), b.view(kinds[1]).reshape(-1, 4)
    else:
        x = a.view(np.int16 if kinds[0] == np.int8 else np.uint16).reshape(-1, 2)
        y = b.view(kinds[1]).reshape(-1, 4)[:, 2:] if rest[0] == "hi" else b.view(kinds[1]).reshape(-1, 4)[:, :2]
    expected = ((x.astype(np.int64) * y).sum(1) + c).astype(np.uint64).astype(np.uint32)
    same(run_ptx(f"{opcode} %d, %a, %b, %c;", a=a, b=b, c=c, d="b32")["d"], expected, a, b, c)
