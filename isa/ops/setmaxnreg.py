"""`setmaxnreg`: registers move between warpgroups (PTX ISA 9.7.19.5)."""

from __future__ import annotations

from isa.micro import unit
from isa.registry import Emitter, Match, instruction

LOW, HIGH, STEP = 24, 256, 8  # legal counts (PTX ISA 9.7.19.5)
INC = 1 << 32

USETMAXREG = unit(
    "USETMAXREG", "->", "setmaxnreg", "setmaxnreg", "imm: registers a thread; bit 32 inc", "barrier", "collective"
)


@instruction("setmaxnreg.{inc,dec}.sync.aligned.u32 n;", types={"n": "imm"}, targets=("sm_90a", "sm_100f"))
def setmaxnreg(e: Emitter, m: Match) -> None:
    """The warpgroup releases registers (.dec) or waits until it gets them (.inc); `n` a thread."""
    if m.n not in range(LOW, HIGH + 1, STEP):
        raise e.error(f"{m.n} registers: expected a multiple of {STEP} from {LOW} to {HIGH}", operand=m.operand("n"))
    e(USETMAXREG, None, imm=m.n | (INC if m.has(".inc") else 0))
