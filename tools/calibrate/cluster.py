"""Clusters of two CTAs: memory and barriers of the other CTA, the cluster's barrier (section D), rings of multicast loads (section C).

One warp a CTA.  The kernels end with the cluster's barrier, so that no CTA is gone while the other one needs it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.calibrate.barriers import init, wait
from tools.calibrate.bench import Bench, Box, Row, interval
from tools.calibrate.chip import SHARED_REGION, TURNS, median_rate
from tools.calibrate.text import kernel, loop
from tools.calibrate.tma import BUFFER, LOAD, elected, load
from tools.calibrate.tma import DECLARE as DECLARE_TMA
from tools.calibrate.tma import setup as setup_tma

EVENTS = (4, 20)  # turns of the event rows
PER_TURN = 16
CLUSTER, SYNC = 2, "    barrier.cluster.arrive;\n    barrier.cluster.wait;\n"
DECLARE = """    .reg .b32 %bar, %other, %parity, %address, %rank, %peer, %cta;
    .reg .b64 %mine;
    .reg .pred %done, %one, %side;
"""
ADDRESSES = f"""    mov.u32 %rank, %cluster_ctarank;
    xor.b32 %peer, %rank, 1;
    add.u32 %bar, %smem, 1024;
    mapa.shared::cluster.u32 %other, %bar, %peer;
    mapa.shared::cluster.u32 %address, %smem, %peer;
    st.shared.b32 [%smem], %smem;
    mov.u32 %cta, %ctaid.x;
    mul.wide.u32 %mine, %cta, 16;
    add.u64 %out, %out, %mine;
{SYNC}"""

# name -> (event, for one lane only)
ROWS = {
    "dsmem_load_latency_plus_add": (
        "    ld.shared::cluster.b32 %address, [%address];\n    add.u32 %address, %address, 0;\n",
        False,
    ),
    "cluster_barrier": (SYNC, False),
    "remote_mbar_arrive_issue_default": ("    mbarrier.arrive.shared::cluster.b64 _, [%other];\n", True),
    "remote_mbar_arrive_issue_release_cluster": (
        "    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%other];\n",
        True,
    ),
}
# name -> what one CTA gives the other one
HOPS = {
    "remote_mbar_pingpong_rtt_default": "    mbarrier.arrive.shared::cluster.b64 _, [%other];\n",
    "remote_mbar_pingpong_rtt_release_cluster": "    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%other];\n",
    "st_async_pingpong_rtt": "    st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%address+512], %rank, [%other];\n",
}


def events(name: str) -> str:
    """16 events a turn, in all lanes or in one."""
    event, one_lane = ROWS[name]
    if (
        "%address," in event
    ):  # the word at the address is the address: the offset is an operand that ptxas does not know
        event = event.replace("%address, 0", "%address, %parity")
    body = loop(event * PER_TURN)
    if one_lane:
        body = f"    @!%first_lane bra OTHERS;\n{body}OTHERS:\n    bar.warp.sync 0xffffffff;\n"
    setup = init((1 << 19,)) + ADDRESSES + "    ld.shared.b32 %parity, [%smem+512];\n"
    return kernel(body + SYNC, declare=DECLARE, setup=setup, sinks=("%address",))


def ping_pong(name: str) -> str:
    """A warp of each CTA gives by one lane and waits, or waits and gives; two round trips a turn, so that parities repeat."""
    give = HOPS[name].replace("    ", "    @%first_lane ", 1)
    arm = "    @%first_lane mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 4;\n" if "st.async" in give else ""

    def side(label: str, first: bool) -> str:
        steps = []
        for phase in (0, 1):
            waits = wait("%bar", f"{label}{phase}", str(phase))
            steps.append(arm + give + waits if first else arm + waits + give)
        return loop("".join(steps), label)

    body = f"""    setp.eq.u32 %side, %rank, 0;
    @!%side bra SECOND;
{side("PING", True)}    bra JOIN;
SECOND:
{side("PONG", False)}JOIN:
"""
    return kernel(body + SYNC, declare=DECLARE, setup=init((1,)) + ADDRESSES)


def ring(box: Box, stages: int, multicast: bool) -> str:
    """`chip.ring` of tiles that both CTAs need: each loads all of it, or half of it for both; nobody waits for the other one."""
    region, half = SHARED_REGION // 128, box.box_rows
    tile = box.bytes * (2 if multicast else 1)

    def copy(stage: int) -> str:
        if not multicast:
            return load(0, "%at", f"%buffer+{stage * tile}", f"%bar+{8 * stage}")
        return f"    {LOAD}.multicast::cluster [%half+{stage * tile}], [%map, {{0, %at}}], [%bar+{8 * stage}], 3;\n"

    def refill(stage: int) -> str:
        return f"""    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar+{8 * stage}], {tile};
    add.u32 %at, %base, %row_at;
{copy(stage)}    add.u32 %row_at, %row_at, {tile // 128};
    and.b32 %row_at, %row_at, {region - 1};
"""

    steps = "".join(wait(f"%bar+{8 * s}", f"FULL{s}") + refill(s) for s in range(stages))
    drain = "".join(wait(f"%bar+{8 * s}", f"DRAIN{s}") for s in range(stages))
    body = f"""    mov.u32 %row_at, 0;
    mov.u64 %start, %clock64;
{"".join(refill(s) for s in range(stages))}{loop(steps + "    xor.b32 %parity, %parity, 1;" + chr(10))}{drain}    xor.b32 %parity, %parity, 1;
    mov.u64 %end, %clock64;
    st.global.u64 [%out], %start;
    st.global.u64 [%out+8], %end;
"""
    declare = DECLARE_TMA + "    .reg .b32 %at, %base, %cta, %rank, %half;\n    .reg .b64 %mine;\n"
    start = f"""{setup_tma(stages)}    mov.b32 %parity, 0;
    mov.u32 %cta, %ctaid.x;
    mul.wide.u32 %mine, %cta, 16;
    add.u64 %out, %out, %mine;
    mov.u32 %rank, %cluster_ctarank;
    shr.u32 %base, %cta, 1;
    mul.lo.u32 %base, %base, {region};
{f"    mad.lo.u32 %base, %rank, {half}, %base;" + chr(10) if multicast else ""}    mad.lo.u32 %half, %rank, {box.bytes}, %buffer;
    fence.mbarrier_init.release.cluster;
{SYNC}"""
    return kernel(elected(body) + SYNC, declare=declare, setup=start, clocks=False, tensor_map=True)


def benches() -> Iterator[Bench]:
    """Every row of the family."""
    for name in ROWS:
        row = Row(name, "cluster=2", interval(EVENTS, PER_TURN, (0,)))
        yield Bench("cluster", events(name), 1, EVENTS, (row,), shared=4096, ctas=CLUSTER, cluster=CLUSTER)
    for name in HOPS:
        row = Row(name, "cluster=2", interval((20, 60), 2, (0,)))
        yield Bench("cluster", ping_pong(name), 1, (20, 60), (row,), shared=4096, ctas=CLUSTER, cluster=CLUSTER)
    for ctas in (2, 132):
        for size in (16384, 32768):
            for stages in (2, 4, 8):
                yield _ring(ctas, size, stages, False)
                yield _ring(ctas, size, stages, True)


def _ring(ctas: int, size: int, stages: int, multicast: bool) -> Bench:
    rows = size // 128 // (2 if multicast else 1)
    box = Box(64, SHARED_REGION // 128 * (ctas // 2), 64, rows, 128)
    name = "tma2d_multicast2_throughput" if multicast else "tma2d_cluster2_nomulticast_throughput"
    row = Row(name, f"tile_bytes={size};stages={stages};ctas={ctas}", median_rate(size * stages))
    text, shared = ring(box, stages, multicast), BUFFER + stages * size
    return Bench("cluster", text, 1, TURNS, (row,), 2, shared, box, ctas=ctas, cluster=CLUSTER)
