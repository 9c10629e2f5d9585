"""Atomics on global and shared memory, and what looks at a whole warp: match, barriers with a result.

Rows `atom_latency` (each operation takes the last one's result as its operand), `atom_interval` and `red_interval` (eight
operations in flight a warp, cycles for each of a warp's), `match_*`, `bar_red_*`.  `lanes` is where the lanes' words lie:
`same` all at one address, `warp` one address a warp, `line` side by side, `apart` 128 bytes from each other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tools.calibrate.bench import Bench, Row, interval
from tools.calibrate.text import kernel, load_data, loop, registers

TURNS = (2, 6)
PER_TURN = 32
CHAINS = 8
WARPS = (1, 4, 8, 16)
PLACES = ("same", "warp", "line", "apart")
DATA = np.zeros(1 << 18, np.uint32)
SHARED = 1024 + 16 * 4096
# Operation and type -> the operand after the address ({v} the value that depends on the last result).
OPERATIONS = {
    "add.u32": "{v}", "add.f32": "{v}", "add.noftz.f16x2": "{v}", "add.u64": "{w}", "cas.b32": "{v}, {v}",
}  # fmt: skip
WIDE = ("add.u64",)


def place(where: str, wide: bool) -> str:
    """%at = the lane's word, from %base on."""
    size = 8 if wide else 4
    steps = {"same": (0, 0), "warp": (0, 128), "line": (size, 32 * size), "apart": (128, 4096)}[where]
    return f"    mad.lo.u32 %mine, %lane, {steps[0]}, %first;\n    mad.lo.u32 %mine, %warp, {steps[1]}, %mine;\n"


def _kernel(space: str, op: str, where: str, chains: int, returns: bool) -> str:
    wide = op in WIDE
    steps = []
    for k in range(PER_TURN):
        v, w = f"%c{k % chains}", f"%w{k % chains}"
        target = (w if wide else v) + ", " if returns else ""
        value = OPERATIONS[op].format(v=v, w=w)
        steps.append(f"    {'atom' if returns else 'red'}.{space}.{op} {target}[%at], {value};\n")
    base = "    mov.u32 %first, 0;\n" if space == "global" else "    add.u32 %first, %smem, 1024;\n"
    address = "    cvt.u64.u32 %at, %mine;\n" + ("    add.u64 %at, %at, %data;\n" if space == "global" else "")
    setup = load_data("c", chains) + "".join(f"    cvt.u64.u32 %w{i}, %c{i};\n" for i in range(chains))
    declare = (
        registers("c", chains) + registers("w", chains, "b64") + "    .reg .b32 %mine, %first;\n    .reg .b64 %at;\n"
    )
    narrow = "".join(f"    cvt.u32.u64 %c{i}, %w{i};\n" for i in range(chains)) if wide else ""
    sinks = tuple(f"%c{i}" for i in range(chains))
    body = loop("".join(steps))
    text = kernel(body, declare=declare, setup=setup + base + place(where, wide) + address, sinks=sinks)
    return text.replace("    xor.b32 %sink, %sink, %c0;", f"{narrow}    xor.b32 %sink, %sink, %c0;", 1)


def _warp_kernel(step: str, chains: int) -> str:
    """Steps on registers; `{r}` is the chain's, `{p}` a predicate of it."""
    lines = "".join(f"    {step.format(r=f'%c{k % chains}', p=f'%p{k % chains}')}\n" for k in range(PER_TURN))
    declare = registers("c", chains) + registers("p", chains, "pred")
    sinks = tuple(f"%c{i}" for i in range(chains))
    return kernel(loop(lines), declare=declare, setup=load_data("c", chains), sinks=sinks)


WARP_STEPS = {
    "match_any_same": "match.any.sync.b32 {r}, {r}, 0xffffffff;",
    "match_any_lane": "add.u32 {r}, {r}, %lane; match.any.sync.b32 {r}, {r}, 0xffffffff;",
    "match_all": "match.all.sync.b32 {r}, {r}, 0xffffffff;",
    "redux_min": "redux.sync.min.u32 {r}, {r}, 0xffffffff;",
    "bar_red_popc": "setp.ne.u32 {p}, {r}, 0; bar.red.popc.u32 {r}, 0, {p};",
    "bar_red_and": "setp.ne.u32 {p}, {r}, 0; bar.red.and.pred {p}, 0, {p}; selp.u32 {r}, 1, 0, {p};",
}


def _bench(text: str, warps: int, row: Row) -> Bench:
    return Bench("atomics", text, warps, TURNS, (row,), shared=SHARED, data=DATA)


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for space in ("global", "shared"):
        for op in OPERATIONS:
            for where in PLACES:
                if (op, where) == ("add.u32", "same"):  # ptxas adds up the warp's values first
                    continue
                params = f"space={space};op={op};lanes={where}"
                if where != "warp":
                    text = _kernel(space, op, where, 1, True)
                    yield _bench(text, 1, Row("atom_latency", params, interval(TURNS, PER_TURN)))
                for name in ("atom", "red"):
                    if name == "red" and op == "cas.b32":
                        continue
                    text = _kernel(space, op, where, CHAINS, name == "atom")
                    for warps in WARPS:
                        row = Row(f"{name}_interval", f"{params};warps={warps}", interval(TURNS, PER_TURN))
                        yield _bench(text, warps, row)
    for name, step in WARP_STEPS.items():
        barrier = name.startswith("bar_")
        if not barrier:
            yield _bench(_warp_kernel(step, 1), 1, Row(f"{name}_latency", "warps=1", interval(TURNS, PER_TURN)))
        for warps in WARPS:
            row = Row(f"{name}_interval", f"warps={warps}", interval(TURNS, PER_TURN))
            yield _bench(_warp_kernel(step, 1 if barrier else CHAINS), warps, row)
