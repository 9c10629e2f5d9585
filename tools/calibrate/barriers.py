"""Barriers, mbarriers, fences, setmaxnreg: section D.

`*_dep` rows feed the result into the next address; rows of one event between two clocks
(`mbar_wakeup_*`, `setmaxnreg_*`) contain the second clock's issue slot, as measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tools.calibrate.bench import END, START, Bench, Row, Tables, interval, pair
from tools.calibrate.text import kernel, loop, registers, store

SHARED = 4096
BARRIERS = 1024  # byte offset of the mbarriers
MANY = 1 << 19  # arrivals that no phase completes
TURNS = (4, 20)
DECLARE = "    .reg .b32 %bar, %other, %parity, %value, %address;\n    .reg .b64 %state;\n    .reg .pred %done, %one, %side;\n"


def init(counts: tuple[int, ...]) -> str:
    """Thread 0 initialises mbarriers at %bar, %bar+8, ...; then all see them."""
    lines = [f"    add.u32 %bar, %smem, {BARRIERS};", "    setp.eq.u32 %one, %thread, 0;"]
    lines += [f"    @%one mbarrier.init.shared::cta.b64 [%bar+{8 * i}], {n};" for i, n in enumerate(counts)]
    return "\n".join([*lines, "    bar.sync 0;"]) + "\n"


def wait(address: str, label: str, parity: str = "%parity", poll: str = "try_wait") -> str:
    """The usual polling loop."""
    return f"""{label}:
    mbarrier.{poll}.parity.shared::cta.b64 %done, [{address}], {parity};
    @!%done bra {label};
"""


def _dependent(poll: str, parity: int, chosen: str) -> str:
    """A poll whose predicate chooses the next address, in these kernels always the barrier's own."""
    return f"""    mbarrier.{poll}.parity.shared::cta.b64 %done, [%address], {parity};
    selp.b32 %value, {chosen}, %done;
    add.u32 %address, %bar, %value;
"""


# name -> (one event, setup); {i} numbers the events of a turn
EVENTS: dict[str, tuple[str, str]] = {
    "mbar_arrive_sink": ("    mbarrier.arrive.shared::cta.b64 _, [%bar];\n", init((MANY,))),
    "mbar_arrive_1lane": ("    @%first_lane mbarrier.arrive.shared::cta.b64 _, [%bar];\n", init((MANY,))),
    "mbar_arrive_expect_tx": (
        "    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16;\n",
        init((MANY,)),
    ),
    "mbar_try_wait_done": (wait("%bar", "WAIT{i}", "1"), init((1,))),
    "mbar_test_wait_done": (wait("%bar", "WAIT{i}", "1", "test_wait"), init((1,))),
    "mbar_try_wait_done_dep": (
        _dependent("try_wait", 1, "0, 64"),
        init((1,)) + "    mov.b32 %address, %bar;\n",
    ),
    "mbar_test_wait_notdone_dep": (
        _dependent("test_wait", 0, "64, 0"),
        init((1,)) + "    mov.b32 %address, %bar;\n",
    ),
    "syncwarp": ("    bar.warp.sync 0xffffffff;\n", ""),
    "fence_proxy_async_shared": ("    fence.proxy.async.shared::cta;\n", ""),
    "st_shared+fence_proxy_async_shared": (
        "    st.volatile.shared.b32 [%address], %lane;\n    fence.proxy.async.shared::cta;\n",
        "    mad.lo.u32 %address, %thread, 4, %smem;\n",
    ),
    "fence_proxy_async": ("    fence.proxy.async;\n", ""),
    "fence_acq_rel_cta": ("    fence.acq_rel.cta;\n", ""),
    "fence_acq_rel_gpu": ("    fence.acq_rel.gpu;\n", ""),
    "wgmma_fence_idle": ("    wgmma.fence.sync.aligned;\n", ""),
    "wgmma_wait0_idle": ("    wgmma.wait_group.sync.aligned 0;\n", ""),
    "bulk_commit+wait_group0_idle": ("    cp.async.bulk.commit_group;\n    cp.async.bulk.wait_group 0;\n", ""),
}
WARPS = (1, 4, 8, 16)
PER_TURN = 16


def event_kernel(name: str, lanes: int) -> str:
    """A turn of 16 events; with lanes=1 only lane 0 of the warp is active in the timed part."""
    event, setup = EVENTS[name]
    body = loop("".join(event.replace("{i}", str(i)) for i in range(PER_TURN)))
    sinks = ("%address",) if "%address" in event else ()
    setup = setup if "%address" in setup else setup + "    mov.b32 %address, 0;\n"
    if lanes == 1:
        body = f"    @!%first_lane bra OTHERS;\n{body}OTHERS:\n    bar.warp.sync 0xffffffff;\n"
    return kernel(body, declare=DECLARE, setup=setup, sinks=sinks)


def bar_sync(barrier: int, per_turn: int) -> str:
    """CTA barriers back to back."""
    return kernel(loop(f"    bar.sync {barrier};\n" * per_turn))


def elect() -> str:
    """elect.sync, its predicate turned into a number and added; four at a time, as ptxas interleaves them."""
    four = "".join(f"    elect.sync %e{i}|%q{i}, 0xffffffff;\n" for i in range(4))
    four += "".join(f"    selp.b32 %e{i}, 1, 0, %q{i};\n" for i in range(4))
    four += "".join(f"    add.u32 %value, %value, %e{i};\n" for i in range(4))
    declare = DECLARE + registers("e", 4) + registers("q", 4, "pred")
    return kernel(loop(four * (PER_TURN // 4)), declare=declare, setup="    mov.b32 %value, 0;\n", sinks=("%value",))


def lds_chain() -> str:
    """ld.shared and add, dependent; memory holds zero."""
    event = "    ld.shared.b32 %value, [%address];\n    add.u32 %address, %value, %bar;\n"
    setup = f"    add.u32 %bar, %smem, {BARRIERS};\n    st.shared.b32 [%bar], 0;\n    mov.b32 %address, %bar;\n"
    return kernel(loop(event * PER_TURN), declare=DECLARE, setup=setup, sinks=("%address",))


def named_ping_pong(side: int) -> str:
    """Two sides of `side` warps: arrive at one named barrier, wait at the other."""
    threads = 64 * side
    turn = f"    bar.arrive 1, {threads};\n    bar.sync 2, {threads};\n" * PER_TURN
    back = f"    bar.sync 1, {threads};\n    bar.arrive 2, {threads};\n" * PER_TURN
    return _two_sides(loop(turn, "PING"), loop(back, "PONG"), side, "")


def mbar_ping_pong(side: int, every_lane: bool, poll: str, stride: int = 1) -> str:
    """Two sides of warps over two mbarriers; one turn is two round trips, so that parities repeat."""
    guard = "" if every_lane else "@%first_lane "
    count = side * (32 if every_lane else 1)

    def hop(mine: str, yours: str, label: str, first: bool) -> str:
        arrive = f"    {guard}mbarrier.arrive.shared::cta.b64 _, [{yours}];\n"
        lines = []
        for phase in (0, 1):
            waits = wait(mine, f"{label}{phase}", str(phase), poll)
            lines.append(arrive + waits if first else waits + arrive)
        return "".join(lines)

    ping = loop(hop("%bar", "%other", "WAITA", True), "PING")
    pong = loop(hop("%other", "%bar", "WAITB", False), "PONG")
    return _two_sides(ping, pong, side, init((count, count)) + "    add.u32 %other, %bar, 8;\n", stride)


def _two_sides(ping: str, pong: str, side: int, setup: str, stride: int = 1) -> str:
    """Warps below `side` run `ping`, the next `side` warps (times `stride`) run `pong`."""
    skip = f"    setp.eq.u32 %done, %warp, {side * stride};\n    @!%done bra JOIN;\n" if stride > 1 else ""
    timed = f"""    setp.ge.u32 %side, %warp, {side};
    mov.u64 %start, %clock64;
    @%side bra SECOND;
{ping}    bra JOIN;
SECOND:
{skip}{pong}JOIN:
    mov.u64 %end, %clock64;
"""
    stores = store((("%start", START), ("%end", END)), 2)
    return kernel(timed + stores, declare=DECLARE, setup=setup, clocks=False)


def wake_up(waiting: int, waited: int, poll: str) -> str:
    """Warp 0 arrives after `waited` cycles; the others wait.  Slots: before, after."""
    timed = f"""    setp.eq.u32 %side, %warp, 0;
    and.b32 %parity, %pass, 1;
    mov.u64 %start, %clock64;
    @!%side bra WAITERS;
SPIN:
    mov.u64 %end, %clock64;
    sub.u64 %state, %end, %start;
    setp.lt.u64 %done, %state, {waited};
    @%done bra SPIN;
    mov.u64 %start, %clock64;
    @%first_lane mbarrier.arrive.shared::cta.b64 _, [%bar];
    mov.u64 %end, %clock64;
    bra JOIN;
WAITERS:
{wait("%bar", "WAIT", poll=poll)}    mov.u64 %end, %clock64;
JOIN:
"""
    stores = store((("%start", START), ("%end", END)), 2)
    return kernel(timed + stores, declare=DECLARE, setup=init((1,)), clocks=False)


def setmaxnreg() -> str:
    """240 to 40 and back, one warpgroup alone.  Slots: before, between, after."""
    timed = """    mov.u64 %start, %clock64;
    setmaxnreg.dec.sync.aligned.u32 40;
    mov.u64 %state, %clock64;
    setmaxnreg.inc.sync.aligned.u32 240;
    mov.u64 %end, %clock64;
"""
    stores = store((("%start", 0), ("%state", 1), ("%end", 2)), 3)
    return kernel(timed + stores, declare=DECLARE, clocks=False, directives=".maxntid 128, 1, 1\n.maxnreg 240")


def setmaxnreg_waits(delay: int) -> str:
    """Warpgroup 0 gives registers up after `delay` cycles; warpgroups 1 and 2 wait for them."""
    timed = f"""    setp.lt.u32 %side, %warp, 4;
    mov.u64 %start, %clock64;
    @!%side bra TAKERS;
SPIN:
    mov.u64 %end, %clock64;
    sub.u64 %state, %end, %start;
    setp.lt.u64 %done, %state, {delay};
    @%done bra SPIN;
    mov.u64 %start, %clock64;
    setmaxnreg.dec.sync.aligned.u32 24;
    mov.u64 %end, %clock64;
    bra JOIN;
TAKERS:
    setmaxnreg.inc.sync.aligned.u32 240;
    mov.u64 %end, %clock64;
JOIN:
"""
    stores = store((("%start", START), ("%end", END)), 2)
    directives = ".maxntid 384, 1, 1\n.maxnreg 168"
    return kernel(timed + stores, declare=DECLARE, clocks=False, passes=1, directives=directives)


def benches() -> Iterator[Bench]:
    """Every row of the family; combinations that were not measured are dropped by the caller."""
    for name in EVENTS:
        for warps, lanes in ((1, 1), *((w, 32) for w in WARPS), (12, 32)):
            row_params = f"warps={warps}" if name.startswith("wgmma") else f"warps={warps};lanes={lanes}"
            row = Row(name, row_params, interval(TURNS, PER_TURN))
            yield _bench(event_kernel(name, lanes), warps, TURNS, row)
    for warps in (1, 2, 4, 8, 12, 16):
        yield _bench(bar_sync(0, 16), warps, TURNS, Row("bar_sync_0", f"warps={warps}", interval(TURNS, 16)))
        yield _bench(bar_sync(1, 32), warps, TURNS, Row("bar_sync_named", f"warps={warps}", interval(TURNS, 32)))
    for warps in WARPS:
        params = f"warps={warps};lanes=32"
        yield _bench(elect(), warps, TURNS, Row("elect_sync", params, interval(TURNS, PER_TURN)))
        yield _bench(lds_chain(), warps, TURNS, Row("lds_dep_plus_add", params, interval(TURNS, PER_TURN)))
    yield from _ping_pongs()
    yield from _wake_ups()
    yield from _setmaxnregs()


def _setmaxnregs() -> Iterator[Bench]:
    alone = (
        Row("setmaxnreg_dec", "from=240;to=40;warps=4", pair(0, 1)),
        Row("setmaxnreg_inc", "from=40;to=240;warps=4;registers free", pair(1, 2)),
    )
    yield Bench("barriers", setmaxnreg(), 4, (1,), alone, slots=3, shared=SHARED)
    for delay in (500, 5000):
        base = f"wgs=3;delay={delay}"
        waiting = (
            Row("setmaxnreg_dec_24", base, pair()),
            Row("setmaxnreg_inc_after_dec", f"{base};wg=1", _after(4)),
            Row("setmaxnreg_inc_after_dec", f"{base};wg=2", _after(8)),
        )
        yield Bench("barriers", setmaxnreg_waits(delay), 12, (1,), waiting, shared=SHARED)


def _after(warp: int) -> Callable[[Tables], float]:
    """From warp 0's start clock to the end clock of `warp`."""
    return lambda tables: float(int(tables[-1][warp, END]) - int(tables[-1][0, START]))


def _bench(text: str, warps: int, turns: tuple[int, ...], row: Row) -> Bench:
    return Bench("barriers", text, warps, turns, (row,), shared=SHARED)


def _ping_pongs() -> Iterator[Bench]:
    for side in (1, 4):
        row = Row("named_pingpong_rtt", f"warps_per_side={side}", interval(TURNS, PER_TURN))
        yield _bench(named_ping_pong(side), 2 * side, TURNS, row)
        for every_lane in (False, True):
            for poll in ("try_wait", "test_wait"):
                arrivals = "all lanes" if every_lane else "1 lane"
                params = f"warps_per_side={side};arrivals={arrivals};poll={poll}"
                row = Row("mbar_pingpong_rtt", params, interval((20, 60), 2))
                yield _bench(mbar_ping_pong(side, every_lane, poll), 2 * side, (20, 60), row)
    row = Row(
        "mbar_pingpong_rtt",
        "warps_per_side=1;same SMSP;arrivals=1 lane;poll=try_wait",
        interval((20, 60), 2, (0, 4)),
    )
    yield _bench(mbar_ping_pong(1, False, "try_wait", stride=4), 5, (20, 60), row)


def _wake_ups() -> Iterator[Bench]:
    for waiting in (1, 4, 8):
        for waited in (100, 1000, 10000):
            for poll in ("try_wait", "test_wait"):
                params = f"waiting_warps={waiting};waited={waited};poll={poll};lanes=32"

                def last(tables: Tables) -> float:
                    return float(int(tables[-1][1:, END].max()) - int(tables[-1][0, START]))

                def first(tables: Tables) -> float:
                    return float(int(tables[-1][1:, END].min()) - int(tables[-1][0, START]))

                rows = (
                    Row("mbar_wakeup_first", params, first),
                    Row("mbar_wakeup_last", params, last),
                    Row("mbar_arrive_clock_pair", params, pair()),
                )
                yield Bench("barriers", wake_up(waiting, waited, poll), 1 + waiting, (1,), rows, shared=SHARED)
