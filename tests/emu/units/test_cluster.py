"""Clusters: who is where, what CTAs do to each other's memory and barriers, and what must not be done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu import clusters
from emu.machine import load_machine
from emu.memory_map import LaunchError
from emu.result import validate

# %r1 the shared memory, %r2 the rank, %r3 the next rank, %r4 the memory of that CTA, %r5 thread, %d1 a place for the CTA's thread.
START = """mov.u32 %r1, s; mov.u32 %r2, %cluster_ctarank; mov.u32 %r8, %cluster_nctarank; add.u32 %r3, %r2, 1; rem.u32 %r3, %r3, %r8;
    mapa.shared::cluster.u32 %r4, %r1, %r3; mov.u32 %r5, %tid.x; mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ntid.x; mad.lo.u32 %r6, %r6, %r7, %r5;
    mul.wide.u32 %d0, %r6, 4; add.u64 %d1, %out, %d0; setp.eq.u32 %p0, %r5, 0; setp.eq.u32 %p15, %r2, 0;
    """
SYNC = "barrier.cluster.arrive; barrier.cluster.wait;"
SHARED = ".shared .align 1024 .b8 s[4096]; .shared .align 8 .b64 bar[4];"
MACHINE = load_machine("h200", ("chip.sms=16", "chip.gpcs=2"))


def run(ptx: Any, body: str, out: np.ndarray, grid: Any = 4, cluster: Any = 2, code: int = 0, **options: Any) -> Any:
    options = {"machine": MACHINE, "block": 32} | options
    result = ptx.run(START + body, "u64 out", [out], shared=SHARED, grid=grid, cluster=cluster, **options)
    assert result.exit_code() == code and validate(result) == [], (result.findings, result.deadlock)
    return result


# ---- where a CTA is ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 2, 2), (2, 2, 2), (8, 1, 1)])
def test_special_registers(ptx: Any, cluster: tuple[int, int, int]) -> None:
    """PTX ISA 10: %clusterid, %nclusterid, %cluster_ctaid, %cluster_nctaid, %cluster_ctarank, %cluster_nctarank."""
    grid, names = (8, 4, 2), ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid", "ctaid", "nctaid")
    body = "".join(
        f"mov.u32 %r9, %{name}.{d}; st.global.u32 [%d2 + {4 * (3 * k + i)}], %r9;"
        for k, name in enumerate(names) for i, d in enumerate("xyz")
    )  # fmt: skip
    place = """mov.u32 %r10, %ctaid.z; mov.u32 %r11, %nctaid.y; mov.u32 %r12, %ctaid.y; mad.lo.u32 %r10, %r10, %r11, %r12; mov.u32 %r11, %nctaid.x;
        mov.u32 %r12, %ctaid.x; mad.lo.u32 %r10, %r10, %r11, %r12; mul.wide.u32 %d2, %r10, 96; add.u64 %d2, %out, %d2;"""
    body = (
        place
        + body
        + "st.global.v2.u32 [%d2 + 72], {%r2, %r8}; mov.pred %p1, %is_explicit_cluster; selp.u32 %r9, 1, 0, %p1; st.global.u32 [%d2 + 80], %r9;"
    )
    out = np.zeros((64, 24), np.uint32)
    run(ptx, body, out, grid, cluster, block=1)
    for number, row in enumerate(out.astype(int).tolist()):
        at = (number % 8, number // 8 % 4, number // 32)
        inside = [a % c for a, c in zip(at, cluster, strict=True)]
        expected = [a // c for a, c in zip(at, cluster, strict=True)] + [
            n // c for n, c in zip(grid, cluster, strict=True)
        ]
        expected += [
            *inside,
            *cluster,
            *at,
            *grid,
            inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2]),
            int(np.prod(cluster)),
            1,
        ]
        assert row[:21] == expected, number


def test_ctas_of_a_cluster_are_on_neighbouring_sms(ptx: Any) -> None:
    """One on each SM of a team in one GPC; clusters follow each other in the grid's order."""
    out = np.zeros(32, np.uint32)
    run(ptx, "mov.u32 %r9, %smid; st.global.u32 [%d1], %r9;", out, 32, 4, block=1)
    where = out.reshape(8, 4).tolist()
    assert where[:4] == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


def test_teams_are_those_of_a_card() -> None:
    """What %smid showed on one H200: clusters at a time, and who is beside whom."""
    machine = load_machine("h200")
    assert [len(clusters.teams(machine, size)) for size in (1, 2, 4, 8, 16)] == [132, 66, 30, 15, 7]
    assert {(0, 1, 16, 17), (14, 15, 30, 31), (76, 77, 90, 91)} <= {tuple(team) for team in clusters.teams(machine, 4)}
    assert [14, 15, 30, 31, 46, 47, 62, 63] in clusters.teams(machine, 8)
    for sms, count in ((1, 8), (5, 2), (60, 8), (132, 1)):
        found = clusters.gpcs(load_machine("h200", (f"chip.sms={sms}", f"chip.gpcs={count}")))
        assert sorted(sm for gpc in found for sm in gpc) == list(range(sms))


@pytest.mark.parametrize(
    "cluster, words",
    [(3, "no multiple"), (32, "at most 16"), (16, "no GPC"), ((2, 3, 1), "no multiple")],
)
def test_clusters_that_do_not_fit(ptx: Any, cluster: Any, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        run(ptx, "", np.zeros(1, np.uint32), 32, cluster)


def test_what_the_kernel_asks_for(ptx: Any) -> None:
    """.reqnctapercluster, .explicitcluster, .maxclusterrank, .blocksareclusters (PTX ISA 11.5)."""
    out, body = np.zeros(8, np.uint32), "st.global.u32 [%d1], %r8;"

    def launch(directives: str, **how: Any) -> Any:
        options = {"shared": SHARED, "machine": MACHINE, "block": 1, "directives": directives}
        return ptx.run(START + body, "u64 out", [out], **options, **how)

    launch(".explicitcluster .reqnctapercluster 4, 1, 1", grid=8)
    assert out.tolist() == [4] * 8
    launch(".explicitcluster", grid=8, cluster=2)
    assert out.tolist() == [2] * 8
    launch(".reqntid 1, 1, 1 .reqnctapercluster 4, 1, 1 .blocksareclusters", grid=2)
    assert out.tolist() == [4] * 8
    for directives, cluster, words in (
        (".explicitcluster", None, "wants a cluster size"),
        (".reqnctapercluster 4, 1, 1", 2, "requires clusters of"),
        (".maxclusterrank 2", 4, "at most 2"),
    ):
        with pytest.raises(LaunchError, match=words):
            launch(directives, grid=8, cluster=cluster)


# ---- memory of other CTAs ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("generic", [False, True])
def test_loads_and_stores(ptx: Any, size: int, generic: bool) -> None:
    """Each CTA writes into the next one and reads from it, by shared and by generic addresses, wide and narrow."""
    spell = (
        (lambda text: text.replace(".shared::cluster", "").replace("%r4", "%d4")) if generic else (lambda text: text)
    )
    body = f"""cvt.u64.u32 %d3, %r1; cvta.shared.u64 %d3, %d3; mapa.u64 %d4, %d3, %r3; mul.wide.u32 %d5, %r5, 16; add.u64 %d4, %d4, %d5;
        shl.b32 %r20, %r5, 4; add.u32 %r4, %r4, %r20; add.u32 %r1, %r1, %r20; mad.lo.u32 %r9, %r2, 1000, %r5;
        {spell("st.shared::cluster.v2.u32 [%r4], {%r9, %r2}; st.shared::cluster.u16 [%r4 + 8], %h1; st.shared::cluster.u8 [%r4 + 11], %r9;")}
        {SYNC} ld.shared.v2.u32 {{%r10, %r11}}, [%r1]; st.global.u32 [%d1], %r10;
        {spell("ld.shared::cluster.u32 %r12, [%r4]; ld.shared::cluster.u8 %r13, [%r4 + 11]; ld.shared::cluster.v2.u32 {%r14, %r15}, [%r4];")}
        st.global.u32 [%d1 + {4 * 64 * size}], %r12; sub.u32 %r13, %r13, %r9; sub.u32 %r14, %r14, %r12; st.global.v2.u32 [%d6], {{%r13, %r14}}; {SYNC}"""
    body = f"add.u64 %d6, %d1, %d0; add.u64 %d6, %d6, {4 * 128 * size}; mov.u16 %h1, 7;" + body
    out = np.zeros(256 * size, np.uint32)
    run(ptx, body, out, 2 * size, size)
    rank, lane = np.arange(64 * size) // 32 % size, np.arange(64 * size) % 32
    assert (out[: 64 * size] == (rank - 1) % size * 1000 + lane).all()
    assert (out[64 * size : 128 * size] == rank * 1000 + lane).all()
    found = out[128 * size :].reshape(-1, 2)
    assert (found[:, 0].astype(np.int32) == (rank * 1000 + lane & 255) - (rank * 1000 + lane)).all() and not found[
        :, 1
    ].any()


def test_lanes_of_one_instruction_go_everywhere(ptx: Any) -> None:
    """Generic loads whose lanes lie in global memory, the own and two other CTAs (PTX ISA 5.2)."""
    body = f"""mad.lo.u32 %r9, %r2, 100, %r5; shl.b32 %r10, %r5, 2; add.u32 %r11, %r1, %r10; st.shared.u32 [%r11], %r9; {SYNC}
        and.b32 %r12, %r5, 3; cvt.u64.u32 %d3, %r11; cvta.shared.u64 %d3, %d3; mapa.u64 %d4, %d3, %r12;
        setp.eq.u32 %p1, %r12, 3; mul.wide.u32 %d5, %r5, 4; add.u64 %d5, %out, %d5; @%p1 mov.u64 %d4, %d5;
        ld.u32 %r13, [%d4]; add.u32 %r13, %r13, 1; st.global.u32 [%d1 + 128], %r13; {SYNC}"""
    out = np.zeros(32 + 3 * 32, np.uint32)
    out[:32] = np.arange(5000, 5032)
    run(ptx, body, out, 3, 3)
    lane = np.arange(32)
    expected = np.where(lane % 4 == 3, 5000 + lane, lane % 4 * 100 + lane) + 1
    assert (out[32:].reshape(3, 32) == expected).all()


@pytest.mark.parametrize("generic", [False, True])
def test_atomics(ptx: Any, generic: bool) -> None:
    """Every CTA adds to counters of all; a compare-and-swap and 64 bits beside them (PTX ISA 9.7.13.5, 9.7.13.7)."""
    space, at = ("", "%d4") if generic else (".shared::cluster", "%r10")
    body = f"""setp.ge.u32 %p1, %r5, 32; mov.u32 %r11, 0; shl.b32 %r12, %r5, 2; add.u32 %r13, %r1, %r12; st.shared.u32 [%r13], %r11; {SYNC}
        mov.u32 %r14, 0; .for r in (0, 4) {{ mapa.shared::cluster.u32 %r10, %r1, r; cvt.u64.u32 %d4, %r10; cvta.shared.u64 %d4, %d4;
        atom{space}.add.u32 %r15, [{at}], 1; max.u32 %r14, %r14, %r15; red{space}.add.u64 [{at} + 8], 3; red{space}.max.s32 [{at} + 16], %r6; @%p0 atom{space}.cas.b32 %r16, [{at} + 20], 0, %r6; }}
        {SYNC} ld.shared.u32 %r17, [%r13]; st.global.u32 [%d1], %r17; st.global.u32 [%d1 + 512], %r14; {SYNC}"""
    out = np.zeros(256, np.uint32)
    run(ptx, body, out, 4, 4)
    counters = out[:128].reshape(4, 32)
    assert (counters[:, 0] == 128).all() and (counters[:, 2] == 384).all() and (counters[:, 4] == 127).all()
    assert set(counters[:, 5].tolist()) <= {0, 32, 64, 96} and out[128:].max() == 127


def test_program_order_at_another_cta(ptx: Any) -> None:
    """A thread sees its own stores to another CTA, and an arrival behind a store brings it along."""
    body = f"""@%p0 mbarrier.init.shared.b64 [bar], 1; {SYNC} mov.u32 %r9, bar; mapa.shared::cluster.u32 %r9, %r9, %r3; shl.b32 %r10, %r5, 2; add.u32 %r10, %r4, %r10;
        .for k in (0, 5) {{ add.u32 %r11, %r5, k; st.shared::cluster.u32 [%r10], %r11; ld.shared::cluster.u32 %r12, [%r10]; sub.u32 %r13, %r12, %r11; add.u32 %r14, %r14, %r13; }}
        @%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];
        W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W; shl.b32 %r15, %r5, 2; add.u32 %r15, %r1, %r15;
        ld.shared.u32 %r16, [%r15]; add.u32 %r16, %r16, %r14; st.global.u32 [%d1], %r16; {SYNC}"""
    out = np.zeros(64, np.uint32)
    run(ptx, "mov.u32 %r14, 0;" + body, out, 2, 2)
    assert (out.reshape(2, 32) == np.arange(32) + 4).all()


def test_results_do_not_depend_on_threads(ptx: Any) -> None:
    """Ranks race with atomics on each other's memory: the same winners and cycles on one thread and on three."""
    body = f"""mov.u32 %r9, 0; shl.b32 %r10, %r5, 2; add.u32 %r11, %r1, %r10; st.shared.u32 [%r11], %r9; {SYNC}
        .for k in (0, 6) {{ .for r in (0, 4) {{ mapa.shared::cluster.u32 %r12, %r11, r; atom.shared::cluster.exch.b32 %r13, [%r12], %r6; mad.lo.u32 %r9, %r9, 33, %r13; }} }}
        {SYNC} ld.shared.u32 %r14, [%r11]; add.u32 %r9, %r9, %r14; st.global.u32 [%d1], %r9; {SYNC}"""
    seen = []
    for threads in (1, 3):
        out = np.zeros(256, np.uint32)
        seen.append((run(ptx, body, out, 8, 4, threads=threads).cycles, out.tolist()))
    assert seen[0] == seen[1]


# ---- barriers of other CTAs ----------------------------------------------------------------------------


def test_remote_arrivals(ptx: Any) -> None:
    """arrive, arrive_drop, expect_tx, complete_tx on another CTA's mbarrier (PTX ISA 9.7.13.15.11-14)."""
    body = f"""@%p0 mbarrier.init.shared.b64 [bar], 3; {SYNC} mov.u32 %r9, bar; mapa.shared::cluster.u32 %r9, %r9, %r3; @!%p0 bra WAITING;
        mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r9], 48; mbarrier.arrive.shared::cluster.b64 _, [%r9]; mbarrier.arrive_drop.shared::cluster.b64 _, [%r9];
        mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%r9], 16; mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r9], 64;
        mbarrier.arrive.shared::cluster.b64 _, [%r9], 2;
        WAITING: .for k in (0, 2) {{ W{{k}}: mbarrier.try_wait.parity.shared.b64 %p1, [bar], k; @!%p1 bra W{{k}}; }} {SYNC}
        @%p0 mbarrier.inval.shared.b64 [bar]; bar.warp.sync -1; ld.shared.u64 %d4, [bar]; shr.u64 %d5, %d4, 63; cvt.u32.u64 %r10, %d5; st.global.u32 [%d1], %r10;"""
    out = np.ones(64, np.uint32)
    run(ptx, body, out, 2, 2)
    assert not out.any()  # two phases are over


def test_asynchronous_stores(ptx: Any) -> None:
    """st.async and red.async to another CTA: bytes, then the signal there (PTX ISA 9.7.9.12, 9.7.13.8)."""
    body = f"""@%p0 mbarrier.init.shared.b64 [bar], 1; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512; shl.b32 %r9, %r5, 3; add.u32 %r10, %r1, %r9; mov.b64 %d4, {{%r5, %r5}};
        st.shared.u64 [%r10], %d4; {SYNC} mov.u32 %r11, bar; mapa.shared::cluster.u32 %r11, %r11, %r3; add.u32 %r12, %r4, %r9; mad.lo.u32 %r13, %r2, 100, %r5;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%r12 + 512], {{%r13, %r5}}, [%r11];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r12], %r13, [%r11];
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.max.u32 [%r12 + 4], 9, [%r11]; W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W;
        ld.shared.v2.u32 {{%r14, %r15}}, [%r10 + 512]; ld.shared.v2.u32 {{%r16, %r17}}, [%r10]; sub.u32 %r16, %r16, %r14; add.u32 %r14, %r14, %r16; mad.lo.u32 %r14, %r17, 10000, %r14; st.global.u32 [%d1], %r14; {SYNC}"""
    out = np.zeros(64, np.uint32)
    run(ptx, body, out, 2, 2)
    lane = np.arange(32)
    assert (out.reshape(2, 32) == np.stack([(100 + 2 * lane), 2 * lane]) + np.maximum(lane, 9) * 10000).all()


@pytest.mark.parametrize(
    "form, size", [("", 512), (".add.u32", 128), (".max.s32", 128), (".or.b32", 128), (".add.u64", 256)]
)
def test_bulk_copies_between_ctas(ptx: Any, form: str, size: int) -> None:
    """cp.async.bulk and cp.reduce.async.bulk to the shared memory of another CTA, and to the own one (PTX ISA 9.7.9.25.4)."""
    kind = "cp.reduce.async.bulk" if form else "cp.async.bulk"
    body = f"""@%p0 mbarrier.init.shared.b64 [bar], 1; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {2 * size};
        .for k in (0, 4) {{ mad.lo.u32 %r9, %r2, 1000, %r5; add.u32 %r9, %r9, {{32*k}}; shl.b32 %r10, %r5, 2; add.u32 %r10, %r1, %r10; st.shared.u32 [%r10 + 128*k], %r9;
        add.u32 %r11, %r5, 500; st.shared.u32 [%r10 + 1024 + 128*k], %r11; st.shared.u32 [%r10 + 2048 + 128*k], %r11; }}
        fence.proxy.async; {SYNC} mov.u32 %r11, bar; mapa.shared::cluster.u32 %r12, %r11, %r3; @!%p0 bra WAITING;
        add.u32 %r13, %r4, 1024; {kind}.shared::cluster.shared::cta.mbarrier::complete_tx::bytes{form} [%r13], [%r1], {size}, [%r12];
        add.u32 %r13, %r1, 2048; {kind}.shared::cluster.shared::cta.mbarrier::complete_tx::bytes{form} [%r13], [%r1], {size}, [%r11];
        WAITING: W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W; ld.shared.u32 %r14, [%r10 + 1024]; st.global.u32 [%d1], %r14; ld.shared.u32 %r14, [%r10 + 2048]; st.global.u32 [%d1 + 256], %r14; {SYNC}"""
    out = np.zeros(128, np.uint32)
    run(ptx, body.replace("{32*k}", "32*k"), out, 2, 2)
    lane, old = np.arange(32), np.arange(32) + 500
    how = {
        "": lambda a, b: b,
        ".add.u32": lambda a, b: a + b,
        ".max.s32": np.maximum,
        ".or.b32": lambda a, b: a | b,
        ".add.u64": lambda a, b: a + b,
    }[form]
    assert (
        out.reshape(2, 2, 32) == [[how(old, 1000 + lane), how(old, lane)], [how(old, lane), how(old, 1000 + lane)]]
    ).all()


@pytest.mark.parametrize("mask", [1, 2, 3, 5, 10, 15])
@pytest.mark.parametrize("tensor", [False, True])
def test_multicast(ptx: Any, mask: int, tensor: bool) -> None:
    """Data and signal at the same places in every CTA of the mask, in no other one (PTX ISA 9.7.9.25.4.1, 9.7.9.27.1.2)."""
    copy = "cp.async.bulk.tensor.2d" if tensor else "cp.async.bulk"
    source = "[%map, {%r20, %r20}]" if tensor else "[%data], 1024"
    body = (
        START
        + f"""@%p0 mbarrier.init.shared.b64 [bar], 1; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024; fence.mbarrier_init.release.cluster; {SYNC}
        mov.u32 %r20, 0; shr.b32 %r9, {mask}, %r2; and.b32 %r9, %r9, 1; setp.eq.u32 %p2, %r9, 1; setp.eq.u32 %p3, %r2, 2; and.pred %p3, %p3, %p0; mov.u32 %r10, bar;
        @%p3 {copy}.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], {source}, [%r10], {mask};
        @!%p2 bra NOT; W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W;
        NOT: {SYNC} nanosleep.u32 3000; shl.b32 %r11, %r5, 2; add.u32 %r11, %r1, %r11; ld.shared.u32 %r12, [%r11]; st.global.u32 [%d1], %r12;
        mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; selp.u32 %r13, 1, 0, %p1; st.global.u32 [%d1 + 512], %r13; {SYNC}"""
    )
    data, out = np.arange(1, 257, dtype=np.uint32).reshape(8, 32), np.zeros(256, np.uint32)
    args = [out, data, emu.TensorMap(data, (32, 8), 0)]
    result = ptx.run(body, "u64 out, u64 data, tensormap map", args, shared=SHARED, grid=4, cluster=4, machine=MACHINE)
    assert result.exit_code() == 0, (result.findings, result.deadlock)
    named = [(mask >> rank) & 1 for rank in range(4)]
    assert (out.reshape(2, 4, 32) == [[data[0] * k for k in named], [np.full(32, k) for k in named]]).all()


def test_a_multicast_before_the_other_cta_s_init(ptx: Any) -> None:
    """Rank 1 initialises its mbarrier long after the copy of rank 0 has come."""
    body = (
        START
        + """setp.eq.u32 %p3, %r2, 0; and.pred %p3, %p3, %p0; mov.u32 %r10, bar;
        @%p3 mbarrier.init.shared.b64 [bar], 1; @%p3 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
        @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%data], 1024, [%r10], 3;
        nanosleep.u32 20000; setp.eq.u32 %p3, %r2, 1; and.pred %p3, %p3, %p0; @%p3 mbarrier.init.shared.b64 [bar], 1;"""
    )
    args = [np.zeros(64, np.uint32), np.zeros(256, np.uint32)]
    result = ptx.run(body, "u64 out, u64 data", args, shared=SHARED, grid=2, cluster=2, machine=MACHINE)
    (finding,) = result.findings
    assert finding.rule == "TX104" and "it is not initialised yet" in finding.message and "multicast" in finding.message


def test_a_copy_may_go_to_one_other_cta(ptx: Any) -> None:
    """Without a mask the address says where."""
    body = (
        START
        + f"""@%p0 mbarrier.init.shared.b64 [bar], 1; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128; {SYNC}
        mov.u32 %r9, bar; mapa.shared::cluster.u32 %r9, %r9, %r3; mul.wide.u32 %d3, %r2, 128; add.u64 %d3, %data, %d3;
        @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%d3], 128, [%r9]; W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W;
        shl.b32 %r11, %r5, 2; add.u32 %r11, %r1, %r11; ld.shared.u32 %r12, [%r11]; st.global.u32 [%d1], %r12; {SYNC}"""
    )
    data, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    result = ptx.run(body, "u64 out, u64 data", [out, data], shared=SHARED, grid=2, cluster=2, machine=MACHINE)
    assert result.exit_code() == 0 and (out == np.roll(data, 32)).all(), result.findings


# ---- the cluster's barrier -----------------------------------------------------------------------------


def test_the_barrier_waits_for_all(ptx: Any) -> None:
    """barrier.cluster.wait ends when all threads that have not exited have come (PTX ISA 9.7.13.3)."""
    body = f"""mov.u32 %r9, 1; setp.eq.u32 %p1, %r2, 1; @!%p1 bra GO; nanosleep.u32 5000; GO: setp.eq.u32 %p2, %r2, 3; @%p2 exit;
        mapa.shared::cluster.u32 %r10, %r1, 0; @%p0 st.shared::cluster.u32 [%r10], %r2; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
        ld.shared::cluster.u32 %r11, [%r10]; st.global.u32 [%d1], %r11; {SYNC}"""
    out = np.zeros(128, np.uint32)
    run(ptx, body, out, 4, 4)
    assert (out.reshape(4, 32)[:3] == 1).all() and not out[96:].any()


def test_lanes_come_from_different_places(ptx: Any) -> None:
    """Without .aligned the lanes of a warp may arrive and wait on different paths, and some may exit instead."""
    body = """setp.lt.u32 %p1, %r5, 9; setp.eq.u32 %p2, %r5, 31; @%p2 exit; @%p1 bra OTHER; barrier.cluster.arrive.relaxed; barrier.cluster.wait; mov.u32 %r9, 3; bra JOIN;
        OTHER: barrier.cluster.arrive.relaxed; barrier.cluster.wait; mov.u32 %r9, 5; JOIN: st.global.u32 [%d1], %r9;"""
    for cluster in (1, 2):
        out = np.zeros(64, np.uint32)
        run(ptx, body, out, 2, cluster)
        assert (
            out.reshape(2, 32)[:, :9].min() == 5 and (out.reshape(2, 32)[:, 9:31] == 3).all() and not out[31::32].any()
        )


def test_a_cta_alone_is_a_cluster(ptx: Any) -> None:
    """A launch without clusters: rank 0 of 1, and the barrier is the CTA's."""
    body = f"""shl.b32 %r9, %r5, 2; add.u32 %r9, %r1, %r9; st.shared.u32 [%r9], %r5; .for k in (0, 3) {{ {SYNC} }} xor.b32 %r10, %r9, 128; mapa.shared::cluster.u32 %r10, %r10, 0;
        ld.shared::cluster.u32 %r11, [%r10]; st.global.u32 [%d1], %r11;"""
    out = np.zeros(64, np.uint32)
    run(ptx, body, out, 1, None, block=64)
    assert (out == np.arange(64) ^ 32).all()


def test_clusters_follow_each_other(ptx: Any) -> None:
    """A team's slot takes the next cluster when all CTAs of the one before have ended; barriers begin anew."""
    body = f"""setp.eq.u32 %p1, %r2, 1; @!%p1 bra GO; nanosleep.u32 3000; GO: {SYNC} shl.b32 %r9, %r5, 2; add.u32 %r10, %r4, %r9; add.u32 %r11, %r1, %r9; st.shared::cluster.u32 [%r10], %r6;
        {SYNC} ld.shared.u32 %r12, [%r11]; st.global.u32 [%d1], %r12;"""
    out = np.zeros(32 * 40, np.uint32)
    run(ptx, body, out, 40, 2, machine=load_machine("h200", ("chip.sms=4", "chip.gpcs=1", "sm.ctas=2")))
    assert (out.reshape(20, 2, 32) == np.arange(32 * 40).reshape(20, 2, 32)[:, ::-1]).all()


# ---- what must not be done -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, rule",
    [
        ("mapa.shared::cluster.u32 %r9, %r1, 5; ld.shared::cluster.u32 %r10, [%r9];", "CL103"),
        ("@%p0 mbarrier.init.shared.b64 [bar], 1; mov.u32 %r9, bar; @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%out], 16, [%r9], 4;", "CL102"),
        ("@%p0 mbarrier.init.shared.b64 [bar], 1; mov.u32 %r9, bar; @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%out], 16, [%r9];", "CL103"),
        ("ld.shared.u32 %r9, [%r4];", "MEM101"),
        ("add.u32 %r9, %r4, 200000; st.shared::cluster.u32 [%r9], %r5;" + SYNC, "MEM101"),
        ("add.u32 %r9, %r4, 2; st.shared::cluster.u32 [%r9], %r5;" + SYNC, "MEM102"),
        ("mov.u32 %r9, bar; mapa.shared::cluster.u32 %r9, %r9, %r3; mbarrier.arrive.shared::cluster.b64 _, [%r9];" + SYNC, "MB101"),
        ("barrier.cluster.arrive; barrier.cluster.arrive;", "CL105"),
        ("@%p15 exit; nanosleep.u32 2000; ld.shared::cluster.u32 %r10, [%r4];", "CL104"),
        ("@%p15 exit; nanosleep.u32 2000; st.shared::cluster.u32 [%r4], %r5;", "CL104"),
    ],
)  # fmt: skip
def test_faults(ptx: Any, body: str, rule: str) -> None:
    result = run(ptx, body, np.zeros(64, np.uint32), 2, 2, code=6)
    assert result.findings[0].rule == rule, result.findings
