"""mma.sync: latency, rate, and other warps beside it; cp.async: issue, latency, rate.

Rows of section F, and `cp_async16_*` of section B.  Beside the timed mma.sync warps others run an
instruction stream until a flag in shared memory says that the products are done; the rate of these
is counted in the same run.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.calibrate import alu
from tools.calibrate.bench import Bench, Row, Tables, interval, pair, rate, span
from tools.calibrate.text import COUNTED, kernel, loop, registers, store, until_flag

BODY = 128
TURNS = (4, 12)
# operation -> (shape and types, registers of A and of B, whether C and D are packed f16)
OPS = {
    "m16n8k16.f32.f16": ("m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4),
    "m16n8k16.f32.bf16": ("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, 4),
    "m16n8k16.f16.f16": ("m16n8k16.row.col.f16.f16.f16.f16", 4, 2, 2),
    "m16n8k8.f32.tf32": ("m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, 4),
    "m16n8k32.s32.s8": ("m16n8k32.row.col.s32.s8.s8.s32", 4, 2, 4),
    "m16n8k8.f32.f16": ("m16n8k8.row.col.f32.f16.f16.f32", 2, 1, 4),
}
POINTS = ((1, 8), (2, 8), (4, 8), (8, 8), (16, 8), (4, 2), (8, 2), (16, 2))  # (warps, chains)
STREAMS = {
    "ffma 8 chains": ("FFMA", 8),
    "ffma 2 chains": ("FFMA", 2),
    "ex2": ("MUFU_EX2", 8),
    "fmnmx": ("FMNMX", 8),
    "ldmatrix.x4+iadd": ("ldmatrix", 8),
}
FLAG = 16384
COPY = 16384  # bytes of a group of copies


def _vector(prefix: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{first + i}" for i in range(count)) + "}"


def products(op: str, chains: int, count: int) -> str:
    """`count` mma.sync, round robin over the chains' accumulators."""
    form, a, b, d = OPS[op]
    lines = []
    for n in range(count):
        acc = _vector("d", 4 * (n % chains), d)
        lines.append(f"    mma.sync.aligned.{form} {acc}, {_vector('a', 0, a)}, {_vector('b', 0, b)}, {acc};\n")
    return "".join(lines)


def _declare(chains: int) -> str:
    return registers("a", 4) + registers("b", 2) + registers("d", 4 * chains)


def _setup(chains: int) -> str:
    names = [f"a{i}" for i in range(4)] + [f"b{i}" for i in range(2)] + [f"d{i}" for i in range(4 * chains)]
    return "".join(f"    mov.b32 %{name}, 0;\n" for name in names)


def _sinks(op: str, chains: int) -> tuple[str, ...]:
    return tuple(f"%d{4 * n + i}" for n in range(chains) for i in range(OPS[op][3]))


def alone(op: str, chains: int) -> str:
    """A loop of BODY products."""
    body = loop(products(op, chains, BODY))
    return kernel(body, declare=_declare(chains), setup=_setup(chains), sinks=_sinks(op, chains))


def stream(name: str) -> str:
    """BODY steps of the instruction that runs beside the products."""
    op, chains = STREAMS[name]
    if op == "ldmatrix":
        steps = []
        for n in range(BODY):
            e, at = _vector("e", 4 * (n % chains), 4), f"%at{n % chains}"
            steps.append(f"    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {e}, [{at}];\n")
            if n % chains == chains - 1:
                steps += [f"    add.u32 %at{i}, %at{i}, %e{4 * i};\n" for i in range(chains)]
        return "".join(steps)
    return "".join(alu.step(op, n % chains, n // chains) for n in range(BODY))


def beside(name: str, warps: int) -> str:
    """Warps below `warps` run the products, the others the stream until the flag is set."""
    chains = 8
    declare = _declare(chains) + alu.declare(8) + registers("e", 32) + registers("at", 8)
    declare += "    .reg .b32 %flag, %count, %stop;\n    .reg .b64 %counted;\n    .reg .pred %zero, %others;\n"
    setup = _setup(chains) + alu.setup(8) + "    and.b32 %at0, %lane, 15;\n    shl.b32 %at0, %at0, 4;\n"
    setup += "    add.u32 %at0, %at0, %smem;\n" + "".join(f"    mov.b32 %at{i}, %at0;\n" for i in range(1, 8))
    setup += f"    add.u32 %flag, %smem, {FLAG};\n    setp.eq.u32 %zero, %thread, 0;\n"
    timed = until_flag(loop(products("m16n8k16.f32.f16", chains, BODY)), stream(name), warps) + store(COUNTED, 3)
    sinks = (*_sinks("m16n8k16.f32.f16", chains), *(f"%at{i}" for i in range(8)), *(f"%c{i}" for i in range(8)))
    return kernel(timed, declare=declare, setup=setup, sinks=sinks, clocks=False)


def _beside(name: str, warps: int) -> Bench:
    params = f"warps={warps} mma m16n8k16.f32.f16 + {warps} other;other={name}"
    turns, mine, others = 32, range(warps), range(warps, 2 * warps)

    def products_rate(tables: Tables) -> float:
        return turns * BODY * warps / span(tables[0], mine)

    def others_rate(tables: Tables) -> float:
        return float(tables[0][warps:, 2].sum()) * BODY / span(tables[0], others)

    rows = (Row("mma_rate_with_other", params, products_rate), Row("other_rate_with_mma", params, others_rate))
    return Bench("mma", beside(name, warps), 2 * warps, (turns,), rows, slots=3, shared=FLAG + 128)


def copies(groups: int) -> str:
    """Groups of 16 KB by 256 threads, `groups` of them in flight."""
    copy = "".join(
        f"    cp.async.cg.shared.global [%to+{4096 * i}], [%from+{4096 * i}], 16;\n" for i in range(COPY // 4096)
    )
    body = f"{copy}    cp.async.commit_group;\n    cp.async.wait_group {groups - 1};\n"
    return _copy_kernel(loop(body))


def _copy_kernel(timed: str, clocks: bool = True, declare: str = "") -> str:
    setup = "    shl.b32 %to, %thread, 4;\n    mul.wide.u32 %from, %thread, 16;\n    add.u64 %from, %from, %data;\n"
    setup += "    add.u32 %to, %to, %smem;\n"
    declare += "    .reg .b32 %to;\n    .reg .b64 %from;\n"
    return kernel(timed, declare=declare, setup=setup, clocks=clocks)


def latency() -> str:
    """One copy: clocks before it, behind the commit, and behind the wait."""
    timed = f"""    mov.u64 %start, %clock64;
    cp.async.cg.shared.global [%to], [%from], 16;
    cp.async.commit_group;
    mov.u64 %middle, %clock64;
    cp.async.wait_group 0;
    mov.u64 %end, %clock64;
{store((("%start", 0), ("%middle", 1), ("%end", 2)), 3)}"""
    return _copy_kernel(timed, clocks=False, declare="    .reg .b64 %middle;\n")


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for op in OPS:
        row = Row("mma_sync_latency", f"op={op}", interval(TURNS, BODY))
        yield Bench("mma", alone(op, 1), 1, TURNS, (row,))
        for warps, chains in POINTS:
            row = Row("mma_sync_throughput", f"op={op};warps={warps};chains={chains}", rate(TURNS, BODY * warps))
            yield Bench("mma", alone(op, chains), warps, TURNS, (row,))
    for name in STREAMS:
        for warps in (4, 8):
            yield _beside(name, warps)
    for threads in (32, 128, 256):
        issue = Row("cp_async16_issue", f"threads={threads}", pair(0, 1))
        whole = Row("cp_async16_latency", f"threads={threads};src=L2-hot", pair(0, 2))
        yield Bench("mma", latency(), threads // 32, (1,), (issue, whole), slots=3, shared=COPY)
    for groups in (1, 2, 4):
        params = f"threads=256;groups_in_flight={groups};bytes_per_group={COPY};src=L2-hot;sms=1"
        row = Row("cp_async16_throughput", params, rate(TURNS, COPY))
        yield Bench("mma", copies(groups), 8, TURNS, (row,), shared=COPY)
