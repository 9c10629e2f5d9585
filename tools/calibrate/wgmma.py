"""Warpgroup matrix products: latency, issue, sustained rates, one to three warpgroups.

Rows `wgmma_latency`, `wgmma_issue_phase`, `wgmma_sustained`, `wgmma_sustained_two_accumulators` of
section E.  Operands are K-major with 128-byte swizzle, whatever shared memory holds; every warpgroup
has its own A tile, B is common.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tools.calibrate.bench import Bench, Row, interval, pair
from tools.calibrate.text import kernel, load_data, loop, registers, store

# name -> (operand types, accumulator type, K, transpose immediates in the syntax)
TYPES = {
    "F16": ("f16.f16", "f32", 16, True),
    "BF16": ("bf16.bf16", "f32", 16, True),
    "H16": ("f16.f16", "f16", 16, True),
    "E4M3": ("e4m3.e4m3", "f32", 32, False),
    "TF32": ("tf32.tf32", "f32", 8, False),
}
A_TILE = 8192  # 64 rows of 128 bytes
B_TILE = 32768  # up to 256 rows of 128 bytes
SHARED = 4 * A_TILE + B_TILE
# Swizzled K-major tiles: start address >> 4, leading offset 1 (ignored), stride 1024 >> 4, layout 1 (128 bytes).
DESCRIPTOR_HIGH = (1 << 62) | ((1024 >> 4) << 32) | (1 << 16)
PER_TURN = 16


@dataclass(frozen=True)
class Shape:
    """One instruction: operand type, N, and where A comes from (SS: shared memory, RS: registers)."""

    type: str
    n: int
    a: str

    @property
    def registers(self) -> int:
        """Accumulator registers a thread."""
        return self.n // (4 if TYPES[self.type][1] == "f16" else 2)

    def text(self, accumulator: str = "d") -> str:
        """The instruction on accumulator registers `%<accumulator>0..`."""
        operands, result, k, transposes = TYPES[self.type]
        d = ", ".join(f"%{accumulator}{i}" for i in range(self.registers))
        a = "{%a0, %a1, %a2, %a3}" if self.a == "RS" else "%da"
        flags = {(True, "SS"): ", 0, 0", (True, "RS"): ", 0"}.get((transposes, self.a), "")
        opcode = f"wgmma.mma_async.sync.aligned.m64n{self.n}k{k}.{result}.{operands}"
        return f"    {opcode} {{{d}}}, {a}, %db, %accumulate, 1, 1{flags};\n"

    def declare(self, accumulators: tuple[str, ...] = ("d",)) -> str:
        """Registers that the instruction needs."""
        type_ = "b32" if TYPES[self.type][1] == "f16" else "f32"
        sets = "".join(registers(name, self.registers, type_) for name in accumulators)
        return (
            sets
            + registers("a", 4)
            + "    .reg .b64 %da, %db, %high;\n    .reg .b32 %at, %bt, %group;\n    .reg .pred %accumulate;\n"
        )

    def setup(self, accumulators: tuple[str, ...] = ("d",)) -> str:
        """Descriptors of this warpgroup's A tile and of B, zero accumulators, A fragments from memory."""
        type_ = "b32" if TYPES[self.type][1] == "f16" else "f32"
        zero = "0" if type_ == "b32" else "0f00000000"
        clear = "".join(
            f"    mov.{type_} %{name}{i}, {zero};\n" for name in accumulators for i in range(self.registers)
        )
        fragments = load_data("a", 4) if self.a == "RS" else ""
        return f"""{clear}    shr.u32 %group, %warp, 2;
    mad.lo.u32 %at, %group, {A_TILE}, %smem;
    add.u32 %bt, %smem, {4 * A_TILE};
    mov.u64 %high, {DESCRIPTOR_HIGH:#x};
    shr.u32 %at, %at, 4;
    shr.u32 %bt, %bt, 4;
    cvt.u64.u32 %da, %at;
    cvt.u64.u32 %db, %bt;
    or.b64 %da, %da, %high;
    or.b64 %db, %db, %high;
    setp.eq.u32 %accumulate, 0, 0;
{fragments}"""


FENCE = "    wgmma.fence.sync.aligned;\n"
COMMIT = "    wgmma.commit_group.sync.aligned;\n"
WAIT = "    wgmma.wait_group.sync.aligned 0;\n"


def sinks(shape: Shape, accumulators: tuple[str, ...]) -> tuple[str, ...]:
    """Accumulators that must stay alive; one word of each is enough, the instruction writes them all."""
    return tuple(f"%{name}0" for name in accumulators)


def sustained(shape: Shape, accumulators: tuple[str, ...] = ("d",)) -> str:
    """`turns` times 16 instructions, one commit a turn, one wait at the end."""
    body = FENCE + "".join(shape.text(accumulators[i % len(accumulators)]) for i in range(PER_TURN)) + COMMIT
    return kernel(
        loop(body) + WAIT,
        declare=shape.declare(accumulators),
        setup=shape.setup(accumulators),
        sinks=sinks(shape, accumulators),
    )


def straight(shape: Shape, count: int) -> str:
    """Straight line: clock, `count` instructions, commit, clock, wait, clock."""
    timed = (
        FENCE
        + "    mov.u64 %start, %clock64;\n"
        + shape.text() * count
        + COMMIT
        + "    mov.u64 %issued, %clock64;\n"
        + WAIT
        + "    mov.u64 %end, %clock64;\n"
    )
    stores = store((("%start", 0), ("%issued", 1), ("%end", 2)), 3)
    return kernel(
        timed + stores,
        declare=shape.declare() + "    .reg .b64 %issued;\n",
        setup=shape.setup(),
        sinks=sinks(shape, ("d",)),
        clocks=False,
    )


LATENCIES = (
    *(("F16", n, "SS") for n in (8, 16, 32, 64, 96, 128, 192, 256)),
    *(("F16", n, "RS") for n in (8, 64, 128, 256)),
    ("BF16", 128, "SS"),
    ("H16", 128, "SS"),
    ("E4M3", 128, "SS"),
    ("E4M3", 128, "RS"),
    ("TF32", 128, "SS"),
)
SUSTAINED = (
    *(("F16", n, a) for a in ("SS", "RS") for n in (8, 16, 32, 64, 96, 128, 192, 256)),
    *(("BF16", n, a) for a in ("SS", "RS") for n in (64, 128, 256)),
    *(("E4M3", n, a) for a in ("SS", "RS") for n in (64, 128, 256)),
    *(("TF32", n, "SS") for n in (64, 128, 256)),
    *(("H16", n, "SS") for n in (64, 128, 256)),
)
TWO_ACCUMULATORS = tuple(
    ("F16", n, a) for n, a in ((8, "RS"), (8, "SS"), (32, "RS"), (64, "RS"), (64, "SS"), (128, "SS"), (128, "RS"))
)


def benches() -> Iterator[Bench]:
    """Every row of the family; a row that was not measured is dropped by the caller."""
    for shape in (Shape(*fields) for fields in LATENCIES):
        for count in (1, 2, 4, 8):
            params = f"type={shape.type};n={shape.n};a={shape.a};R={count}"
            rows = (Row("wgmma_latency", params, pair(0, 2)), Row("wgmma_issue_phase", params, pair(0, 1)))
            yield Bench("wgmma", straight(shape, count), 4, (1,), rows, slots=3, shared=SHARED)
    turns = (4, 20)
    for shape in (Shape(*fields) for fields in SUSTAINED):
        for groups in (1, 2, 3):
            k = TYPES[shape.type][2]
            params = f"type={shape.type};n={shape.n};k={k};a={shape.a};bmajor=K;swizzle=128B;wgs={groups}"
            row = Row("wgmma_sustained", params, interval(turns, PER_TURN * groups))
            yield Bench("wgmma", sustained(shape), 4 * groups, turns, (row,), shared=SHARED)
    for shape in (Shape(*fields) for fields in TWO_ACCUMULATORS):
        for groups in (1, 2):
            params = f"type={shape.type};n={shape.n};a={shape.a};wgs={groups}"
            row = Row("wgmma_sustained_two_accumulators", params, interval(turns, PER_TURN * groups))
            yield Bench("wgmma", sustained(shape, ("d", "e")), 4 * groups, turns, (row,), shared=SHARED)
