"""Shared memory: latency and interval of LDS, STS, LDSM and STSM with and without bank conflicts.

Rows `lds_latency`, `lds_interval`, `sts_interval`, `ldsm_latency_plus_add`, `ldsm_interval`,
`stsm_interval` of section B.  Loads chase pointers: the word at every address that is loaded is that
address itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.calibrate.bench import Bench, Row, interval
from tools.calibrate.text import kernel, loop, registers

SHARED = 16384  # 32 lanes, 256 bytes apart at most, from byte 1024 on
PER_TURN = 64
TURNS = (4, 12)
STRIDES = {32: (0, 4, 8, 16, 32, 64, 128, 132, 256), 64: (0, 8, 16, 32, 64, 128, 256), 128: (0, 16, 32, 64, 128, 256)}
STORE_STRIDES = {
    32: (0, 4, 8, 16, 32, 64, 128, 132, 144),
    64: (0, 8, 16, 32, 64, 128, 144),
    128: (0, 16, 32, 64, 128, 144),
}
ROW_STRIDES = (16, 32, 64, 128, 144)
CHAINS = 4


def vector(bits: int) -> str:
    """The vector suffix of an access."""
    return {32: "", 64: ".v2", 128: ".v4"}[bits]


def operand(bits: int, first: str, others: str) -> str:
    """One register, or a vector that starts with it."""
    count = bits // 32
    return (
        f"%{first}"
        if count == 1
        else "{" + ", ".join([f"%{first}"] + [f"%{others}{i}" for i in range(count - 1)]) + "}"
    )


def lane_address(stride: int) -> str:
    """%mine = the lane's address, the same for every warp."""
    return f"    mad.lo.u32 %mine, %lane, {stride}, %smem;\n    add.u32 %mine, %mine, 1024;\n"


def load(bits: int, stride: int, chains: int) -> str:
    """Chains of dependent loads."""
    steps = [
        f"    ld.shared{vector(bits)}.b32 {operand(bits, f'c{i % chains}', f'v{i % chains}_')}, [%c{i % chains}];\n"
        for i in range(PER_TURN)
    ]
    setup = lane_address(stride) + "    st.shared.b32 [%mine], %mine;\n"
    setup += "".join(f"    mov.b32 %c{i}, %mine;\n" for i in range(chains))
    extra = "".join(registers(f"v{i}_", 3) for i in range(chains))
    declare = registers("c", chains) + extra + "    .reg .b32 %mine;\n"
    # The rest of a vector is kept alive too: dead registers would be shared, and the chains would wait for each other.
    rest = [f"%v{i}_{word}" for i in range(chains) for word in range(bits // 32 - 1)]
    setup += "".join(f"    mov.b32 {name}, 0;\n" for name in rest)
    sinks = (*(f"%c{i}" for i in range(chains)), *rest)
    return kernel(loop("".join(steps)), declare=declare, setup=setup, sinks=sinks)


def store(bits: int, stride: int) -> str:
    """Independent stores to the same addresses."""
    step = f"    st.volatile.shared{vector(bits)}.b32 [%mine], {operand(bits, 'c0', 'k')};\n"
    setup = (
        lane_address(stride) + "    mov.b32 %c0, %lane;\n" + "".join(f"    mov.b32 %k{i}, %mine;\n" for i in range(3))
    )
    declare = registers("c", 1) + registers("k", 3) + "    .reg .b32 %mine;\n"
    return kernel(loop(step * PER_TURN), declare=declare, setup=setup)


def matrices(prefix: str, count: int) -> str:
    """The fragment registers of ldmatrix and stmatrix."""
    return "{" + ", ".join(f"%{prefix}{i}" for i in range(count)) + "}"


def load_matrix(count: int, trans: bool, stride: int, chained: bool) -> str:
    """ldmatrix: a chain through the address (memory holds zeros), or four independent chains."""
    name = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16"
    chains = 1 if chained else CHAINS
    steps = []
    for i in range(PER_TURN):
        c = i % chains
        steps.append(f"    {name} {matrices(f'f{c}_', count)}, [%c{c}];\n    add.u32 %c{c}, %mine, %f{c}_0;\n")
    zero = """    mov.u32 %at, %thread;
CLEAR:
    shl.b32 %to, %at, 2;
    add.u32 %to, %to, %smem;
    st.shared.b32 [%to], 0;
    add.u32 %at, %at, %size;
    setp.lt.u32 %more, %at, 4096;
    @%more bra CLEAR;
"""
    setup = (
        "    mov.u32 %size, %ntid.x;\n"
        + zero
        + lane_address(stride)
        + "".join(f"    mov.b32 %c{i}, %mine;\n" for i in range(chains))
    )
    declare = registers("c", chains) + "".join(registers(f"f{i}_", count) for i in range(chains))
    declare += "    .reg .b32 %mine, %at, %to, %size;\n    .reg .pred %more;\n"
    fragments = [f"%f{i}_{word}" for i in range(chains) for word in range(count)]
    setup += "".join(f"    mov.b32 {name}, 0;\n" for name in fragments)
    sinks = (*(f"%c{i}" for i in range(chains)), *fragments)
    return kernel(loop("".join(steps)), declare=declare, setup=setup, sinks=sinks)


def store_matrix(count: int, trans: bool, stride: int) -> str:
    """Independent stmatrix to the same rows."""
    name = f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16"
    setup = lane_address(stride) + "".join(f"    mov.b32 %f{i}, %lane;\n" for i in range(count))
    declare = registers("f", count) + "    .reg .b32 %mine;\n"
    step = f"    {name} [%mine], {matrices('f', count)};\n"
    return kernel(loop(step * PER_TURN), declare=declare, setup=setup)


def _bench(text: str, warps: int, name: str, params: str) -> Bench:
    return Bench("shared", text, warps, TURNS, (Row(name, params, interval(TURNS, PER_TURN * warps)),), shared=SHARED)


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for bits, strides in STRIDES.items():
        for stride in strides:
            params = f"bits={bits};lane_stride_bytes={stride}"
            yield _bench(load(bits, stride, 1), 1, "lds_latency", params)
            for warps in (4, 16):
                yield _bench(load(bits, stride, CHAINS), warps, "lds_interval", f"{params};warps={warps}")
    for bits, strides in STORE_STRIDES.items():
        for stride in strides:
            for warps in (1, 16):
                params = f"bits={bits};lane_stride_bytes={stride};warps={warps}"
                yield _bench(store(bits, stride), warps, "sts_interval", params)
    for count in (1, 2, 4):
        for trans in (False, True):
            for stride in ROW_STRIDES:
                params = f"x={count};trans={int(trans)};row_stride_bytes={stride}"
                yield _bench(load_matrix(count, trans, stride, True), 1, "ldsm_latency_plus_add", params)
                text = load_matrix(count, trans, stride, False)
                yield _bench(text, 16, "ldsm_interval", f"{params};warps=16")
                for warps in (1, 16):
                    yield _bench(store_matrix(count, trans, stride), warps, "stsm_interval", f"{params};warps={warps}")
