"""Other warps beside a running tensor core: who slows whom.

Rows `wgmma_alone`, `wgmma_with_alu`, `alu_rate_alone`, `alu_rate_with_wgmma` of section E.  Warpgroup 0
issues batches of 32 products, each batch waited for; 4 or 8 more warps run an instruction stream
until a flag in shared memory says that the products are done.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.calibrate import alu
from tools.calibrate.bench import Bench, Row, Tables, rate, span
from tools.calibrate.text import COUNTED, kernel, loop, registers, store, until_flag
from tools.calibrate.wgmma import COMMIT, FENCE, SHARED, WAIT, Shape

BODY = 128
BATCH = 32
BATCHES = 8
BURSTS = (8, 16, 32, 64, 96, 128, 160, 256)
PAUSE = 32  # least instructions of the chain between two bursts
CHASE = SHARED  # 16 bytes a thread, whose first word is its own address
FLAG = SHARED + 16 * 512
TOTAL = FLAG + 16
GROUP = range(4)

# stream -> (steps of a repeating pattern, chains); steps are keys of `alu.OPS` or of `_SHARED` below
STREAMS: dict[str, tuple[tuple[str, ...], int]] = {
    "ffma": (("FFMA",), 8),
    "ffma 1 chain": (("FFMA",), 1),
    "ffma 2 chains": (("FFMA",), 2),
    "ffma 3 chains": (("FFMA",), 3),
    "ffma 4 chains": (("FFMA",), 4),
    "ffma xxxx": (("FFMA_xxx",), 8),
    "ffma immediates": (("FFMA_imm",), 8),
    "fadd": (("FADD",), 8),
    "fmul": (("FMUL",), 8),
    "fmnmx": (("FMNMX",), 8),
    "fmnmx 1 chain": (("FMNMX",), 1),
    "imad": (("IMAD",), 8),
    "lop3": (("LOP3",), 8),
    "f2fp": (("F2FP_F16",), 8),
    "ex2": (("MUFU_EX2",), 8),
    "shfl": (("SHFL_BFLY",), 8),
    "ffma+fmnmx 1:1": (("FFMA", "FMNMX"), 8),
    "ffma3+ex2": (("FFMA",) * 3 + ("MUFU_EX2",), 8),
    "ffma7+ex2": (("FFMA",) * 7 + ("MUFU_EX2",), 8),
    "ex2+max+2ffma": (("MUFU_EX2", "FMNMX", "FFMA", "FFMA"), 8),
    "4ffma+3ex2+f2fp": (("FFMA",) * 4 + ("MUFU_EX2",) * 3 + ("F2FP_F16",), 8),
    "lds128": (("lds128",), 4),
    "sts128": (("sts128",), 8),
    "stsm4": (("stsm4",), 8),
    "softmax": (("FFMA", "FFMA", "MUFU_EX2", "MUFU_EX2", "FADD", "FADD", "F2FP_F16", "FMNMX", "FMNMX"), 8),
    # so many independent instructions, then a chain of dependent ones
    **{
        f"{op.lower()} burst {n}": ((op,) * n + ("FMNMX",) * max(BODY - n, PAUSE), 8)
        for op in ("FMUL", "FFMA")
        for n in BURSTS
    },
}
_SHARED = {
    "stsm4": "    stmatrix.sync.aligned.m8n8.x4.shared.b16 [%mine], {{%c{c}, %k0, %k1, %k2}};\n",
    "lds128": "    ld.shared.v4.b32 {{%c{c}, %l{c}, %m{c}, %n{c}}}, [%c{c}];\n",
    "sts128": "    st.volatile.shared.v4.b32 [%mine], {{%c{c}, %k0, %k1, %k2}};\n",
}

# (type, n, a) -> streams that were measured beside it, with 4 and with 8 warps
BESIDE = {
    ("F16", 256, "SS"): (
        "ffma", "ex2", "fmnmx", "lds128", "ffma7+ex2", "f2fp", "sts128", "lop3", "ffma xxxx", "ffma immediates", "fadd",
        "fmul", "ffma+fmnmx 1:1", "ffma3+ex2", "shfl", "ffma 1 chain", "ffma 2 chains", "ffma 3 chains",
        "ffma 4 chains", "fmnmx 1 chain", *(f"{op} burst {n}" for op in ("fmul", "ffma") for n in BURSTS), "stsm4",
    ),
    ("F16", 128, "SS"): ("ffma", "ex2", "lds128", "sts128", "ex2+max+2ffma"),
    ("F16", 128, "RS"): (
        "ffma", "ex2", "fmnmx", "lds128", "fadd", "ffma+fmnmx 1:1", "ffma 1 chain", "ffma 2 chains", "ffma 3 chains",
        "ffma 4 chains", "fmnmx 1 chain", "ex2+max+2ffma", "imad", "4ffma+3ex2+f2fp", "lop3", "f2fp", "shfl", "sts128",
        *(f"fmul burst {n}" for n in BURSTS), "softmax",
    ),
    ("F16", 64, "SS"): ("ffma", "lds128", "sts128", "stsm4", "fmnmx", "ex2+max+2ffma", "softmax"),
    ("F16", 64, "RS"): (
        "ex2+max+2ffma", "fmnmx", "ex2", "ffma", "sts128", "stsm4", "softmax", "4ffma+3ex2+f2fp", "ffma 1 chain",
        "ffma 2 chains", "ffma 3 chains", *(f"fmul burst {n}" for n in BURSTS),
    ),
    ("F16", 8, "SS"): ("ffma", "fmnmx", "lds128"),
    ("H16", 256, "SS"): ("ffma",),
    ("F16", 176, "SS"): (
        "sts128", "stsm4", "ex2", "fmnmx", "ex2+max+2ffma", "softmax", "4ffma+3ex2+f2fp", "ffma 1 chain", "ffma 2 chains",
    ),
}  # fmt: skip


def length(name: str) -> int:
    """Instructions of a turn of a stream."""
    return max(BODY, len(STREAMS[name][0]))


def stream(name: str) -> str:
    """A turn of a stream."""
    pattern, chains = STREAMS[name]
    lines = []
    for j in range(length(name)):
        op = pattern[j % len(pattern)]
        if "burst" in name and op == "FMNMX":
            lines.append(alu.step(op, 0, j))
            continue
        chain = j % chains
        lines.append(_SHARED[op].format(c=chain) if op in _SHARED else alu.step(op, chain, j // chains))
    return "".join(lines)


def _declare(name: str) -> str:
    chains = STREAMS[name][1]
    vectors = "".join(registers(prefix, chains) for prefix in "lmn")
    return (
        alu.declare(chains) + vectors + "    .reg .b32 %mine, %flag, %count, %stop;\n    .reg .pred %zero, %beside;\n"
    )


def _setup(name: str) -> str:
    """Chain values from memory; for loads, every thread's 16 bytes hold their own address."""
    chains = STREAMS[name][1]
    chase = ""
    if name == "lds128":
        chase = "".join(f"    mov.b32 %{name}{i}, %mine;\n" for name in "clmn" for i in range(chains))
        chase += "    st.shared.b32 [%mine], %mine;\n"
    return f"""{alu.setup(chains)}    shl.b32 %mine, %thread, 4;
    add.u32 %mine, %mine, %smem;
    add.u32 %mine, %mine, {CHASE};
    add.u32 %flag, %smem, {FLAG};
    setp.eq.u32 %zero, %thread, 0;
{chase}"""


def _sinks(name: str) -> tuple[str, ...]:
    """Registers of the stream that stay alive; of loads, whole vectors, so that chains share none."""
    prefixes = "clmn" if name == "lds128" else "c"
    return tuple(f"%{prefix}{i}" for prefix in prefixes for i in range(STREAMS[name][1]))


def alone(name: str) -> str:
    """The stream only, `turns` turns."""
    body = "    ld.shared.b32 %stop, [%flag];\n" + stream(name)
    return kernel(loop(body), declare=_declare(name), setup=_setup(name), sinks=(*_sinks(name), "%stop"))


def products(shape: Shape) -> str:
    """`turns` batches of products; labels are the caller's."""
    return loop(FENCE + shape.text() * BATCH + COMMIT + WAIT, label="BATCHES")


def together(shape: Shape, name: str) -> str:
    """Warpgroup 0 runs the products, the other warps the stream until the flag is set."""
    timed = until_flag(products(shape), stream(name), others="%beside") + store(COUNTED, 3)
    declare = shape.declare() + _declare(name) + "    .reg .b64 %counted;\n"
    setup = shape.setup() + _setup(name)
    return kernel(timed, declare=declare, setup=setup, sinks=("%d0", *_sinks(name)), clocks=False)


def products_alone(shape: Shape) -> str:
    """The batches on an idle SM."""
    return kernel(products(shape), declare=shape.declare(), setup=shape.setup(), sinks=("%d0",))


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    done = set()
    for fields, names in BESIDE.items():
        shape = Shape(*fields)
        base = f"type={shape.type};n={shape.n};a={shape.a}"
        for name in names:
            for warps in (4, 8, 12) if shape.n < 256 else (4, 8):  # 12: 128 registers a thread
                params = f"{base};alu={name};aluwarps={warps}"
                yield _together(shape, name, warps, params)
                if (name, warps) not in done:
                    done.add((name, warps))
                    turns = (8, 24)
                    row = Row("alu_rate_alone", params, rate(turns, length(name) * warps))
                    yield Bench("mixed", alone(name), warps, turns, (row,), shared=TOTAL)
        params = f"{base};alu={names[0]};aluwarps=4"
        row = Row("wgmma_alone", params, lambda tables: span(tables[0]) / (BATCH * BATCHES))
        yield Bench("mixed", products_alone(shape), 4, (BATCHES,), (row,), shared=TOTAL)


def _together(shape: Shape, name: str, warps: int, params: str) -> Bench:
    beside = range(4, 4 + warps)

    def issued(tables: Tables) -> float:
        return float(tables[0][4:, 2].sum()) * length(name) / span(tables[0], beside)

    rows = (
        Row("wgmma_with_alu", params, lambda tables: span(tables[0], GROUP) / (BATCH * BATCHES)),
        Row("alu_rate_with_wgmma", params, issued),
    )
    return Bench("mixed", together(shape, name), 4 + warps, (BATCHES,), rows, slots=3, shared=TOTAL)
