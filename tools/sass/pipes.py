"""Which pipe a SASS opcode of Hopper uses, in the names of `emu/machines/parameters.toml`.

Sources: the pipe descriptions of the Nsight Compute documentation (section "Pipelines": alu, fma, fp16,
fp64, lsu, uniform, xu, tensor, cbu, adu), and our H200 throughput rows (section A: an opcode that runs at 4
warp instructions a cycle and SM is on a full-rate pipe, at 2 on a half-rate one, at 0.5 on the XU).
Groups beside the pipes: `move` (copies and constants, which ptxas spreads over the pipes as it finds room: MOV, IMAD.MOV,
IMAD.U32 with two RZ, CS2R of a pair of zeros; also R2UR, LDC and ULDC, where our operations read the other file or the
constant bank themselves), `control` (branches, convergence) and `none` (no pipe: padding, what only orders).
"""

from __future__ import annotations

PIPES: dict[str, str] = {}


def _declare(pipe: str, opcodes: str) -> None:
    PIPES.update(dict.fromkeys(opcodes.split(), pipe))


# FFMA, FADD, FMUL: 3.95 warp instructions a cycle and SM.
_declare("fma", "FFMA FADD FMUL FFMA32I FADD32I FMUL32I")
# IMAD: 2.00, in the heavy half of the FP32 pipe.  ptxas also writes moves and adds as IMAD.
_declare("imad", "IMAD IMUL IDP")
# 1.99 and 4 cycles of latency.  VIADD and VIMNMX are Hopper's spellings of two-input IADD3 and IMNMX.
_declare(
    "alu",
    "IADD3 IADD VIADD VIADDMNMX VIMNMX IMNMX IABS LOP3 LOP32I PLOP3 SHF SHL SHR LEA PRMT SEL FSEL FMNMX FSETP ISETP "
    "FSET ISET FCHK FSWZADD SGXT BMSK P2R R2P F2FP I2FP I2IP VABSDIFF VOTE",
)
# Packed 16-bit arithmetic: HFMA2 and HADD2 reach 3.9 because ptxas alternates two pipes.
_declare("half", "HFMA2 HADD2 HMUL2 HSET2 HSETP2 HMNMX2")
_declare("fp64", "DFMA DADD DMUL DSETP")
# 0.5 and 17 cycles of latency.
_declare("xu", "MUFU F2I I2F F2F FRND POPC FLO BREV")
# Instructions that leave the sub-partition through the memory input/output queue.
_declare(
    "mio",
    "LDS LDSM STS STSM ATOMS SHFL REDUX MATCH S2R S2UR BAR SYNCS ELECT LDGSTS NANOSLEEP",
)
_declare("lsu", "LDG STG LD ST LDL STL ATOM ATOMG RED CCTL CCTLL")
_declare("tma", "UTMALDG UTMASTG UTMAPF UTMAREDG UBLKCP UBLKRED UBLKPF UTMACCTL")
_declare("tensor", "HGMMA QGMMA IGMMA BGMMA HMMA IMMA BMMA DMMA")
_declare(
    "uniform",
    "UIADD3 UMOV ULEA UISETP USHF ULOP3 USEL UIMAD UPLOP3 UPRMT UFLO UPOPC UBREV USGXT UBMSK UP2UR UR2UP VOTEU R2UP",
)
_declare("control", "BRA BRX JMP CALL RET EXIT BSSY BSYNC BREAK BMOV YIELD KILL BPT RTT USETMAXREG ACQBULK CGAERRBAR")
_declare("none", "NOP CS2R WARPGROUP WARPGROUPSET WARPSYNC FENCE MEMBAR ERRBAR DEPBAR LDGDEPBAR UTMACMDFLUSH")
_declare("move", "MOV MOV32I R2UR LDC ULDC CS2R.SRZ IMAD.MOV IMAD.U32")
PAIRS = {"CS2R.SRZ": 2}  # opcodes that do the work of several of our operations


def pipe_of(opcode: str) -> str:
    """The pipe of an opcode such as `MUFU.EX2`: its first two components decide, or the first; `?` for an unknown one."""
    first, *rest = opcode.split(".")
    return PIPES.get(".".join((first, *rest[:1])), PIPES.get(first, "?"))
