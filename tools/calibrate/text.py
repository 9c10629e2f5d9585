"""The PTX skeleton that all microbenchmarks share.

A kernel runs its timed part twice: the first pass warms instruction cache, descriptors and L2, the
second is kept.  Chain values come from memory and go to memory under a condition that never holds,
so that ptxas can neither fold nor drop them.
"""

from __future__ import annotations

HEADER = """.version 8.3
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
"""

PROLOGUE = """    ld.param.u64 %out, [out];
    ld.param.u64 %data, [data];
    ld.param.u32 %turns, [turns];
    mov.u32 %thread, %tid.x;
    and.b32 %lane, %thread, 31;
    shr.u32 %warp, %thread, 5;
    mov.u32 %smem, smem;
    setp.eq.u32 %first_lane, %lane, 0;
    mul.wide.u32 %offset, %thread, 4;
    add.u64 %offset, %data, %offset;
"""

DECLARATIONS = """    .reg .b64 %out, %data, %offset, %start, %end, %row;
    .reg .b32 %turns, %thread, %lane, %warp, %smem, %turn, %pass, %sink, %wait;
    .reg .pred %first_lane, %loop, %again, %never;
"""


def kernel(
    timed: str,
    *,
    declare: str = "",
    setup: str = "",
    sinks: tuple[str, ...] = (),
    passes: int = 2,
    slots: int = 2,
    clocks: bool = True,
    tensor_map: bool = False,
    directives: str = "",
) -> str:
    """PTX text of one benchmark.

    `declare` holds `.reg` lines, `setup` runs once, `timed` is the part between the clocks,
    `sinks` are 32-bit registers whose values must stay alive.  With `clocks` False the timed part
    reads its clocks and calls `store` itself.
    """
    map_param = ",\n    .param .align 64 .b8 map[128]" if tensor_map else ""
    body = timed if not clocks else f"    mov.u64 %start, %clock64;\n{timed}    mov.u64 %end, %clock64;\n"
    stores = store((("%start", 0), ("%end", 1)), slots) if clocks else ""
    keep = "".join(f"    xor.b32 %sink, %sink, {name};\n" for name in sinks)
    return f"""{HEADER}
.visible .entry bench(
    .param .u64 out,
    .param .u64 data,
    .param .u32 turns{map_param}
) {directives}
{{
{DECLARATIONS}{declare}{PROLOGUE}{setup}    mov.u32 %pass, 0;
PASS:
    .pragma "nounroll";
    bar.sync 0;
    ld.shared.u32 %wait, [%smem];
    add.u32 %sink, %wait, 0;
{body}    add.u32 %pass, %pass, 1;
    setp.lt.u32 %again, %pass, {passes};
    @%again bra PASS;
{keep}{stores}    setp.eq.u32 %never, %turns, 0xffffffff;
    @%never st.global.u32 [%data], %sink;
    ret;
}}
"""


def store(values: tuple[tuple[str, int], ...], slots: int) -> str:
    """Lane 0 of the warp writes 64-bit registers to their slots of its row of the table."""
    lines = [f"    mul.wide.u32 %row, %warp, {8 * slots};", "    add.u64 %row, %out, %row;"]
    lines += [f"    @%first_lane st.global.u64 [%row+{8 * slot}], {name};" for name, slot in values]
    return "\n".join(lines) + "\n"


def loop(body: str, label: str = "TURN") -> str:
    """`turns` times the body; the counter runs early in the turn, where ptxas puts it too."""
    return f"""    mov.u32 %turn, %turns;
{label}:
    .pragma "nounroll";
    sub.u32 %turn, %turn, 1;
    setp.ne.u32 %loop, %turn, 0;
{body}    @%loop bra {label};
"""


COUNTED = (("%start", 0), ("%end", 1), ("%counted", 2))  # what `until_flag` leaves, and its slots


def until_flag(first: str, second: str, warps: int = 4, *, others: str = "%others", clear: str = "") -> str:
    """Warps below `warps` run `first` once, the others `second` until those are done, which a flag in shared memory says.

    The caller declares and sets %flag (its address) and %zero (thread 0), declares %count, %stop, %counted and the predicate
    `others`, and stores `COUNTED`: the clocks, and how often a warp has run `second`.  `clear` runs ahead of the barrier.
    """
    return f"""    @%zero st.shared.b32 [%flag], 0;
    mov.u32 %count, 0;
{clear}    bar.sync 0;
    setp.ge.u32 {others}, %warp, {warps};
    @{others} bra.uni BESIDE;
    mov.u64 %start, %clock64;
{first}    mov.u64 %end, %clock64;
    @%zero st.shared.b32 [%flag], 1;
    bra DONE;
BESIDE:
    mov.u64 %start, %clock64;
STREAM:
    .pragma "nounroll";
    ld.volatile.shared.b32 %stop, [%flag];
{second}    add.u32 %count, %count, 1;
    setp.eq.u32 %loop, %stop, 0;
    @%loop bra.uni STREAM;
    mov.u64 %end, %clock64;
DONE:
    cvt.u64.u32 %counted, %count;
"""


def registers(prefix: str, count: int, type_: str = "b32") -> str:
    """A `.reg` line for `prefix0..prefix<count-1>`."""
    return f"    .reg .{type_} %{prefix}<{count}>;\n"


def load_data(prefix: str, count: int, first: int = 0) -> str:
    """Fill 32-bit registers from the data array, a different word for every lane and register."""
    return "".join(f"    ld.global.b32 %{prefix}{i}, [%offset+{4 * 32 * (first + i)}];\n" for i in range(count))
