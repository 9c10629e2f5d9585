"""mma.sync beside what attention does between its products: in another warp, and between the products of one warp.

`stream_alone` is the cycles of one body of a stream on 4 and 8 warps, `stream_beside` the same for two streams of which each has a
warp a sub-partition, `mma_interleaved` the cycles of a product that `count` other instructions of its warp follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tools.calibrate import alu
from tools.calibrate.bench import Bench, Row, Tables, interval, span
from tools.calibrate.text import COUNTED, kernel, load_data, loop, registers, store, until_flag

TURNS = (8, 24)
ENDLESS_TURNS = 48
FLAG = 16384  # byte offset of the word that ends the second stream
BODY = 128  # products
SCORES = 64  # registers that softmax streams work on
PRODUCT = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
INTERLEAVED = ("FFMA", "FMUL", "FMNMX")


def _vector(prefix: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{first + i}" for i in range(count)) + "}"


def _product(n: int) -> str:
    d = _vector("d", 4 * (n % 16), 4)
    return f"    {PRODUCT} {d}, {_vector('a', 0, 4)}, {_vector('f', 2 * (n % 4), 2)}, {d};\n"


def hmma() -> str:
    """BODY products on 16 accumulators, operands that stay."""
    return "".join(_product(n) for n in range(BODY))


def rescale() -> str:
    """128 independent FMUL by two factors."""
    return "".join(f"    mul.rn.ftz.f32 %s{n % SCORES}, %s{n % SCORES}, %x{n // 2 % 2};\n" for n in range(2 * SCORES))


def row_max() -> str:
    """64 FMNMX in four chains."""
    return "".join(f"    max.ftz.f32 %m{n % 4}, %m{n % 4}, %s{n};\n" for n in range(SCORES))


def weights(ftz: bool = True) -> str:
    """64 weights: FFMA, EX2 (without FTZ: of the halved argument where small, squared), FADD, and a conversion a pair."""
    lag = 1 if ftz else 3
    lines = []

    def at(j: int, text: str) -> None:
        if 0 <= j < SCORES:
            lines.append(f"    {text.format(s=f'%s{j}', q=f'%u{j % 6}', m=f'%m{j // 2 % 4}')}\n")

    for j in range(SCORES + lag + 4):
        at(j, "fma.rn.ftz.f32 {s}, {s}, %x0, %x1;")
        if not ftz:
            at(j - 1, "setp.lt.f32 {q}, {s}, %x2;")
            at(j - 2, "@{q} mul.rn.f32 {s}, {s}, %x3;")
        at(j - lag, "ex2.approx.ftz.f32 {s}, {s};")
        if not ftz:
            at(j - 6, "@{q} mul.rn.f32 {s}, {s}, {s};")
        late = j - lag - 4
        at(late, "add.rn.f32 {m}, {m}, {s};")
        if late % 2 == 1:
            at(late, f"cvt.rn.f16x2.f32 %e{late // 2 % 32}, {{s}}, %s{max(late - 1, 0)};")
    return "".join(lines)


def softmax() -> str:
    """Maxima, their exchange in a quad, rescaling, weights."""
    quad = [
        "".join(f"    shfl.sync.bfly.b32 %y{r}, %m{r}, {mask}, 31, -1;\n" for r in range(4))
        + "".join(f"    max.ftz.f32 %m{r}, %m{r}, %y{r};\n" for r in range(4))
        for mask in (2, 1)
    ]
    return row_max() + "".join(quad) + rescale() + weights()


STREAMS: dict[str, Callable[[], str]] = {
    "hmma": hmma,
    "rescale": rescale,
    "row max": row_max,
    "weights": weights,
    "weights without ftz": lambda: weights(False),
    "softmax": softmax,
}
WORDS = (("d", 64), ("a", 4), ("f", 8), ("e", 32))
FLOATS = (("s", SCORES), ("m", 4), ("x", 4), ("y", 4))


def _kernel(timed: str, clocks: bool = True, slots: int = 2) -> str:
    """The skeleton with the registers of all streams; what they leave stays alive."""
    declare = "".join(registers(p, n) for p, n in WORDS) + "".join(registers(p, n, "f32") for p, n in FLOATS)
    declare += alu.declare(alu.CHAINS) + "    .reg .pred %u<6>, %zero, %others;\n"
    declare += "    .reg .b32 %flag, %count, %stop;\n    .reg .b64 %counted;\n"
    setup = "".join(f"    mov.b32 %{p}{i}, 0;\n" for p, n in WORDS for i in range(n))
    first = 0
    for prefix, count in FLOATS[:3]:
        setup += load_data(prefix, count, first).replace(".b32", ".f32")
        first += count
    setup += alu.setup(alu.CHAINS)
    setup += f"    add.u32 %flag, %smem, {FLAG};\n    setp.eq.u32 %zero, %thread, 0;\n"
    kept = "".join(
        f"    xor.b32 %sink, %sink, %{p}{i};\n" for p, n in (("d", 64), ("e", 32), ("c", 8)) for i in range(n)
    )
    kept += "".join(
        f"    mov.b32 %count, %{p}{i};\n    xor.b32 %sink, %sink, %count;\n"
        for p, n in (("s", SCORES), ("m", 4))
        for i in range(n)
    )
    text = kernel(timed, declare=declare, setup=setup, clocks=clocks, slots=slots)
    return text.replace("    setp.eq.u32 %never", kept + "    setp.eq.u32 %never")


def alone(name: str) -> str:
    """A loop over the stream's body."""
    return _kernel(loop(STREAMS[name]()))


def interleaved(other: str, count: int) -> str:
    """A loop of products, `count` instructions of another kind behind each."""
    lines = []
    for n in range(BODY):
        lines.append(_product(n))
        for k in range(n * count, (n + 1) * count):
            lines.append(alu.step(other, k % alu.CHAINS, k // alu.CHAINS))
    return _kernel(loop("".join(lines)))


def beside(first: str, second: str) -> str:
    """Warps 0 to 3 run `turns` bodies of `first`, warps 4 to 7 bodies of `second` until the flag is set."""
    timed = until_flag(loop(STREAMS[first]()), STREAMS[second]())
    return _kernel(timed + store(COUNTED, 3), clocks=False, slots=3)


def _beside(first: str, second: str) -> Bench:
    def mine(tables: Tables) -> float:
        return span(tables[0], range(4)) / ENDLESS_TURNS

    def others(tables: Tables) -> float:
        return float(span(tables[0], range(4, 8)) * 4 / tables[0][4:, 2].sum())

    rows = (
        Row("stream_beside", f"stream={first};beside={second}", mine),
        Row("stream_beside", f"stream={second};beside={first} (endless)", others),
    )
    return Bench("streams", beside(first, second), 8, (ENDLESS_TURNS,), rows, slots=3, shared=FLAG + 128)


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for warps in (4, 8):
        for name in STREAMS:
            row = Row("stream_alone", f"stream={name};warps={warps}", interval(TURNS, 1))
            yield Bench("streams", alone(name), warps, TURNS, (row,), shared=FLAG + 128)
        for other in INTERLEAVED:
            for count in (1, 2, 3):
                row = Row("mma_interleaved", f"other={other};count={count};warps={warps}", interval(TURNS, BODY))
                yield Bench("streams", interleaved(other, count), warps, TURNS, (row,), shared=FLAG + 128)
    for second in STREAMS:
        yield _beside("hmma", second)
