"""The uniform datapath: integer work on values that are the same in all lanes.

Tensor-core descriptors and bulk-copy operands are uniform registers on sm_90, so ptxas computes them
there, outside the vector register file and its ports. Each twin means what its vector operation means;
`isa.uniform` decides where it stands in.
"""

from __future__ import annotations

from isa.micro import MICROS, Micro, lane
from isa.ops import compare, integer, logic, move, select, shift

SOURCES = (compare, integer, logic, move, select, shift)  # imported so that the vector operations exist
TWINS = (
    "IADD3", "IADD3.CC", "IADD3.X", "IADD3.NEG", "IADD3.NEG.CC", "IADD3.NEG.X",
    "IMAD", "LOP3.AND", "LOP3.OR", "LOP3.XOR", "SHF.L", "SHF.R.U32", "MOV", "SEL",
    *(op.name for op in compare.ISETP.values()),
)  # fmt: skip


def _twin(op: Micro) -> Micro:
    assert op.meaning is not None and op.emit is not None
    return lane(f"U{op.name}", op.sig, "uniform", op.meaning, op.emit, f"{op.doc} (uniform datapath)")


UNIFORM = {name: _twin(MICROS[name]) for name in TWINS if name in MICROS}
