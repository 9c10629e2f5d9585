"""Latency and throughput of scalar instructions: dependent chains, and eight chains on 1 to 16 warps.

Rows `latency` and `throughput` of section A.  One turn holds 256 instructions, as in the
measurement, so the cost of the loop is part of the rows on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.calibrate.bench import Bench, Row, interval, rate
from tools.calibrate.text import kernel, load_data, loop, registers

BODY = 256
CHAINS = 8
WARPS = (1, 2, 4, 8, 16)
TURNS = (4, 12)

# One step of a chain, in PTX.  {r} is the chain's register, {h} its 16-bit helper, {p} a predicate of
# the chain, {a} and {b} values that change from step to step (so that two steps never fold into one),
# {n} a small number that changes too.
OPS: dict[str, str] = {
    "FFMA": "fma.rn.f32 {r}, {r}, {a}, {b};",
    "FADD": "add.f32 {r}, {r}, {a};",
    "FMUL": "mul.f32 {r}, {r}, {a};",
    "FMNMX": "{max}.f32 {r}, {r}, {a};",
    "IADD3": "@{q} add.s32 {r}, {r}, {a};",  # guarded (always true): ptxas merges plain pairs into one IADD3
    "IMAD": "mad.lo.s32 {r}, {r}, {a}, {b};",
    "LOP3": "lop3.b32 {r}, {r}, {a}, {b}, 0x6a;",
    "SHF": "shf.l.wrap.b32 {r}, {r}, {a}, {b};",
    "SEL": "selp.b32 {r}, {r}, {a}, {q};",
    "IMNMX": "{max}.s32 {r}, {r}, {a};",
    "PRMT": "prmt.b32 {r}, {r}, {a}, {b};",
    "F2FP_F16": "cvt.rn.f16x2.f32 {r}, {a}, {r};",
    "F2FP_BF16": "cvt.rn.bf16x2.f32 {r}, {a}, {r};",
    "F32_FROM_F16": "mov.b32 {{{h}, {g}}}, {r}; cvt.f32.f16 {r}, {h};",
    "HFMA2": "fma.rn.f16x2 {r}, {r}, {a}, {b};",
    "HFMA2_BF16": "fma.rn.bf16x2 {r}, {r}, {a}, {b};",
    "HADD2": "add.f16x2 {r}, {r}, {a};",
    "HMUL2": "mul.f16x2 {r}, {r}, {a};",
    "HMNMX2": "{max}.f16x2 {r}, {r}, {a};",
    "SHFL_BFLY": "shfl.sync.bfly.b32 {r}, {r}, {n}, 31, 0xffffffff;",
    "VOTE+ISETP": "setp.ne.s32 {p}, {r}, {a}; vote.sync.ballot.b32 {r}, {p}, 0xffffffff;",
    "REDUX_ADD": "redux.sync.add.s32 {r}, {r}, 0xffffffff;",
    "MUFU_EX2": "ex2.approx.ftz.f32 {r}, {r};",
    "MUFU_RCP+FADD": "rcp.approx.ftz.f32 {r}, {r}; add.f32 {r}, {r}, {a};",
    "MUFU_LG2": "lg2.approx.ftz.f32 {r}, {r};",
    "MUFU_RSQ": "rsqrt.approx.ftz.f32 {r}, {r};",
    "MUFU_TANH": "tanh.approx.f32 {r}, {r};",
    "I2F": "cvt.rn.f32.s32 {r}, {r};",
    "F2I": "cvt.rzi.s32.f32 {r}, {r};",
    "POPC": "popc.b32 {r}, {r};",
    "FFMA_imm": "fma.rn.f32 {r}, {r}, 0f3F800347, 0f3A83126F;",
    "FADD_imm": "add.f32 {r}, {r}, 0f3A83126F;",
    "FFMA_xxx": "fma.rn.f32 {r}, {r}, {r}, {r};",
    "FSETP+FSEL": "setp.lt.f32 {p}, {r}, {a}; selp.b32 {r}, {r}, {b}, {p};",
}

MIXES = (
    "FFMA*1+IADD3*1", "FFMA*1+LOP3*1", "FFMA*1+FMNMX*1", "FMNMX*1+IADD3*1", "FFMA*1+IMAD*1", "FFMA*1+HFMA2*1",
    "FFMA*1+FADD*1", "FFMA*3+IADD3*1", "FFMA*1+F2FP_F16*1", "MUFU_EX2*1+F2FP_F16*1", "FMNMX*1+F2FP_F16*1",
    "FFMA*1+MUFU_EX2*1", "FFMA*3+MUFU_EX2*1", "FFMA*7+MUFU_EX2*1", "FFMA*15+MUFU_EX2*1", "MUFU_EX2*1+FMNMX*1",
    "MUFU_EX2*1+IADD3*3", "FFMA*1+SHFL_BFLY*1", "MUFU_EX2*1+SHFL_BFLY*1", "FFMA*1+FMNMX*1+MUFU_EX2*1",
    "FFMA*4+FMNMX*2+MUFU_EX2*1+F2FP_F16*1",
)  # fmt: skip
INDEPENDENT = (
    "FFMA*1+MUFU_EX2*1", "FFMA*3+MUFU_EX2*1", "FFMA*5+MUFU_EX2*1", "FFMA*7+MUFU_EX2*1", "FFMA*9+MUFU_EX2*1",
    "FFMA*15+MUFU_EX2*1", "FMNMX*1+MUFU_EX2*1", "FMNMX*3+MUFU_EX2*1", "IMAD*3+MUFU_EX2*1", "FFMA*3+SHFL_BFLY*1",
    "FFMA*7+SHFL_BFLY*1", "FFMA*1+FMNMX*1", "FFMA*3+F2FP_F16*1",
)  # fmt: skip
CONSTANTS = 8


def step(op: str, chain: int, index: int) -> str:
    """One step of `op` on a chain; `index` counts the steps of that chain."""
    text = OPS[op].format(
        r=f"%c{chain}",
        h=f"%h{2 * chain}",
        g=f"%h{2 * chain + 1}",
        p=f"%p{chain}",
        q=f"%q{index % 4}",
        a=f"%k{index % CONSTANTS}",
        b=f"%k{(index + 3) % CONSTANTS}",
        n=1 << (index % 5),
        max="min" if index % 2 else "max",
    )
    return f"    {text}\n"


def declare(chains: int) -> str:
    """Registers of the steps: chains, constants, helpers."""
    return (
        registers("c", chains)
        + registers("k", CONSTANTS)
        + registers("h", 2 * chains, "b16")
        + registers("p", chains, "pred")
        + registers("q", 4, "pred")
    )


def setup(chains: int) -> str:
    """Chains and constants from memory; four predicates, all true because the data ascend."""
    predicates = "".join(f"    setp.lt.f32 %q{i}, %k{i}, %k{i + 1};\n" for i in range(4))
    return load_data("k", CONSTANTS) + load_data("c", chains, first=CONSTANTS) + predicates


def chain_kernel(body: str, chains: int) -> str:
    """A kernel that loops over `body`."""
    sinks = tuple(f"%c{i}" for i in range(chains))
    return kernel(loop(body), declare=declare(chains), setup=setup(chains), sinks=sinks)


def single(op: str, chains: int) -> str:
    """BODY steps of one kind, round robin over the chains.

    Steps of two instructions are interleaved, the first ones of all chains before the second ones, as
    ptxas orders them.
    """
    lines = []
    for index in range(BODY // chains):
        parts = [step(op, chain, index).strip().split("; ") for chain in range(chains)]
        lines += [f"    {part.rstrip(';')};\n" for level in zip(*parts, strict=True) for part in level]
    return "".join(lines)


def mixed(mix: str, independent: bool) -> str:
    """BODY instructions of a repeating pattern such as `FFMA*3+MUFU_EX2*1`.

    Instruction j is pattern[j mod length] on chain j mod 8; with independent registers every kind
    has eight chains of its own.
    """
    kinds = [part.split("*") for part in mix.split("+")]
    pattern = [(k, name) for k, (name, count) in enumerate(kinds) for _ in range(int(count))]
    lines, seen = [], [0] * len(kinds)
    for j in range(BODY // len(pattern) * len(pattern)):
        kind, name = pattern[j % len(pattern)]
        if independent:
            lines.append(step(name, CHAINS * kind + seen[kind] % CHAINS, seen[kind] // CHAINS))
        else:
            lines.append(step(name, j % CHAINS, j // CHAINS))
        seen[kind] += 1
    return "".join(lines)


def _bench(text: str, warps: int, row: Row) -> Bench:
    return Bench("alu", text, warps, TURNS, (row,))


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for op in OPS:
        text = chain_kernel(single(op, 1), 1)
        yield _bench(text, 1, Row("latency", f"op={op};warps=1;chains=1", interval(TURNS, BODY)))
        text = chain_kernel(single(op, CHAINS), CHAINS)
        for warps in WARPS:
            row = Row("throughput", f"op={op};warps={warps};chains=8", rate(TURNS, BODY * warps))
            yield _bench(text, warps, row)
    for prefix, mixes, independent, counts in (
        ("mix:", MIXES, False, (4, 16)),
        ("mix (independent registers): ", INDEPENDENT, True, (4, 8, 16)),
    ):
        for mix in mixes:
            body = mixed(mix, independent)
            text = chain_kernel(body, CHAINS * (len(mix.split("+")) if independent else 1))
            for warps in counts:
                name = f"op={prefix}{mix};warps={warps};chains=8"
                yield _bench(text, warps, Row("throughput", name, rate(TURNS, body.count("\n") * warps)))
