"""The machine's numbers as the core reads them: one frozen record, made from a machine file.

Fractions become fixed-point (`cy256`: cycles times 256).  Where the machine file states what a
measurement saw from outside (issue to the waiter's next instruction), the parts that the core adds
elsewhere are subtracted here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from emu.machine import Machine

FIELDS = (
    "clock_mhz", "nanosleep_min", "fence_port_cy256",
    "bar_hop_cy", "bar_serve_cy", "bar_open_cy",
    "setmaxnreg_inc_cy", "setmaxnreg_dec_cy", "setmaxnreg_wake_cy",
    "mbar_arrive_cy", "mbar_serve_cy", "mbar_wake_cy", "mbar_wake_next_cy", "mbar_poll_cy", "try_wait_limit_cy",
    "answer_cy", "l2_kb_cy256", "line_cy256", "l1_latency_cy", "l2_latency_cy", "l2_atomic_cy256", "l2_atomic_float_cy256", "l2_atomic_return_cy256", "l2_atomic_line_cy256",
    "atomic_return_pass_cy256", "atomic_kb_cy256", "match_value_cy256", "fence_stored256", "hbm_latency_cy", "store_queue_cy", "load_queue", "overtake256",
    "tma_queue", "tma_kb_cy256", "tma_row_cy256", "tma_latency_cy", "tma_hbm_cy",
    "store_kb_cy256", "store_read_cy", "store_write_cy", "bulk_wake_cy", "fill_share256", "copy_latency_cy", "copy_wake_cy",
    "peer_cy", "peer_load_cy", "peer_atom_cy", "peer_store_cy", "peer_arrive_cy", "peer_copy_cy", "peer_copy_kb_cy256", "peer_ack_cy", "cluster_open_cy", "cluster_far_cy", "tpc_sms", "multicast_cy", "multicast_share256",
    "mma_queue", "mma_start_cy", "mma_spacing_min", "mma_spacing_less", "mma_spacing_per",
    "mma_fence_cy", "mma_commit_cy", "mma_rs_commit_cy", "mma_wake_cy", "mma_column_cy256", "mma_b_port_cy256", "mma_a_port_cy",
    "mma_rs_min_cy", "mma_latency_cy", "mma_rs_latency_cy", "mma_share256", "grant_period_cy",
    "stream_start", "stream_period_cy", "stream_length", "stream_decay",
    "mma_fraction", "mma_issue_cy", "mma_spare256", "mma_stream", "mma_f8_fraction", "mma_f8_kept",
    "return_cy256", "return_mma_cy256", "mio_queue", "wavefront_cy", "merged_cy", "store_wavefront_cy", "branch_guard_cy",
    "tmem_columns", "tmem_unit", "tmem_beat_cy256", "tmem_load_cy", "tmem_store_cy", "tmem_alloc_cy", "tmem_retry_cy",
    "tc_queue", "tc_column_cy256", "tc_operand_cy256", "tc_least_cy", "tc_ss_cy", "tc_ss64_cy", "tc_ts_cy", "tc_pair_ss_cy", "tc_pair_ts_cy", "tc_pair_ss128_cy", "tc_pair_ts128_cy", "tc_cp_cy", "tc_cp_kb_cy256",
    "turnaround_cy256", "turnaround_warp_cy256", "warp_start_cy", "cancel_cy",
)  # fmt: skip
CONFIG = np.dtype([(name, np.int64) for name in FIELDS], align=True)
KB = 256 * 1024  # bytes a cycle -> cy256 of a kilobyte
REGISTER_BYTES = 4
WGMMA_ROWS, WGMMA_K_BYTES = 64, 32  # of an operand tile: m64, 32 bytes deep (PTX ISA 9.7.15.2)


Value = Callable[[str], float]


def configure(machine: Machine) -> Any:
    """A CONFIG record of a machine."""
    v = machine.value
    values = _core(v) | _barriers(v) | _copies(v) | _clusters(v) | _tensor(v) | _shared(v)
    if machine.has("tcgen05"):
        values |= _tensor_memory(v) | _commands(v)
    record = np.zeros(1, CONFIG)
    for name in FIELDS:
        record[name] = round(values.get(name, 0))  # of what the machine does not have, nothing
    return record


def _core(v: Value) -> dict[str, float]:
    return {
        "clock_mhz": v("clock.boost_mhz"),
        "nanosleep_min": v("timing.nanosleep.latency"),
        "fence_port_cy256": 256 * v("unit.fence.port_cy"),
        "fence_stored256": 256 * (1 + v("unit.fence.stored_cy") / v("timing.fence_gpu.latency")),
        "match_value_cy256": 256 * v("unit.match.value_cy"),
        "branch_guard_cy": v("unit.branch.predicate_cy") - v("timing.predicate.latency"),
        "turnaround_cy256": 256 * v("sm.turnaround_cy"),
        "turnaround_warp_cy256": 256 * v("sm.turnaround_warp_cy"),
        "warp_start_cy": v("sm.warp_start_cy"),
        "cancel_cy": v("sm.cancel_cy"),
    }


def _barriers(v: Value) -> dict[str, float]:
    return {
        "bar_hop_cy": v("unit.barrier.hop_cy") - v("unit.barrier.base_cy") - v("unit.barrier.warp_cy"),
        "bar_serve_cy": v("unit.barrier.warp_cy"),
        "bar_open_cy": v("unit.barrier.base_cy"),
        "setmaxnreg_inc_cy": v("unit.setmaxnreg.inc_cy"),
        "setmaxnreg_dec_cy": v("unit.setmaxnreg.dec_cy"),
        "setmaxnreg_wake_cy": v("unit.setmaxnreg.wake_cy"),
        "mbar_arrive_cy": v("unit.mbarrier.arrive_latency_cy"),
        "mbar_serve_cy": v("unit.mbarrier.arrive_port_cy"),
        "mbar_wake_cy": v("unit.mbarrier.wake_cy"),
        "mbar_wake_next_cy": v("unit.mbarrier.wake_next_cy"),
        "mbar_poll_cy": v("unit.mbarrier.poll_cy"),
        "try_wait_limit_cy": v("unit.mbarrier.suspend_cy"),
    }


def _copies(v: Value) -> dict[str, float]:
    """L2, HBM and the copy engine.  Nothing that the chip answers takes effect within `answer_cy`."""
    copy_latency = v("unit.tma.load_latency_cy") - v("unit.tma.signal_cy")
    answers = (
        v("unit.l2.hit_cy") - v("unit.l2.line_cy"),
        v("unit.hbm.latency_cy"),
        copy_latency,
        v("unit.copy.latency_cy"),
        v("sm.turnaround_cy"),
    )
    return {
        "answer_cy": max(min(answers), 1),
        "store_queue_cy": v("unit.l2.store_queue_b") / v("unit.tma.store_b_per_cy"),
        "load_queue": v("unit.l1.queue"),
        "overtake256": 256 * v("unit.l1.overtake_cy"),
        "l2_kb_cy256": KB / v("unit.l2.sm_b_per_cy"),
        "line_cy256": 256 * v("unit.l2.line_cy"),
        "l1_latency_cy": v("unit.l1.hit_cy") - v("unit.l2.line_cy"),
        "l2_latency_cy": v("unit.l2.hit_cy") - v("unit.l2.line_cy"),
        "l2_atomic_cy256": 256 * v("unit.l2.atomic_cy"),
        "l2_atomic_float_cy256": 256 * v("unit.l2.atomic_float_cy"),
        "l2_atomic_return_cy256": 256 * v("unit.l2.atomic_return_cy"),
        "l2_atomic_line_cy256": 256 * v("unit.l2.atomic_line_cy"),
        "atomic_return_pass_cy256": 256 * v("unit.l2.atomic_return_pass_cy"),
        "atomic_kb_cy256": KB / v("unit.l2.atomic_b_per_cy"),
        "hbm_latency_cy": v("unit.hbm.latency_cy") - v("unit.l2.line_cy"),
        "tma_queue": v("unit.tma.queue"),
        "tma_kb_cy256": KB / v("unit.tma.load_b_per_cy"),
        "tma_row_cy256": 256 * v("unit.tma.row_cy"),
        "tma_latency_cy": copy_latency,
        "tma_hbm_cy": v("unit.tma.hbm_extra_cy"),
        "store_kb_cy256": KB / v("unit.tma.store_b_per_cy"),
        "store_read_cy": v("unit.tma.store_latency_cy") - v("timing.bulk_wait.latency"),
        "store_write_cy": v("unit.tma.store_write_cy"),
        "bulk_wake_cy": v("timing.bulk_wait.latency"),
        "copy_latency_cy": v("unit.copy.latency_cy"),
        "copy_wake_cy": v("timing.copy_wait.latency"),
        "fill_share256": 256 * v("unit.smem.store_share"),
    }


def _clusters(v: Value) -> dict[str, float]:
    """Clusters.  Nothing that one CTA does reaches another one within `peer_cy`, nor does the answer to it come back sooner."""
    load, store, copy = v("unit.cluster.load_cy"), v("unit.cluster.store_cy"), v("unit.cluster.copy_cy")
    opens, arrive = v("unit.cluster.barrier_cy"), v("unit.cluster.arrive_cy")
    ways = (load // 2, store, arrive, copy, opens, v("timing.stas.latency"), _copies(v)["answer_cy"])
    return {
        "peer_cy": max(int(min(ways)), 1),
        "peer_load_cy": load,
        "peer_atom_cy": v("unit.cluster.atom_cy"),
        "peer_store_cy": store,
        "peer_arrive_cy": arrive,
        "peer_copy_cy": copy,
        "peer_copy_kb_cy256": KB / v("unit.cluster.copy_b_per_cy"),
        "peer_ack_cy": v("unit.cluster.acknowledge_cy"),
        "cluster_open_cy": opens,
        "cluster_far_cy": v("unit.cluster.far_cy"),
        "tpc_sms": v("chip.tpc_sms"),
        "multicast_cy": v("unit.cluster.multicast_cy"),
        "multicast_share256": 256 * v("unit.cluster.multicast_share"),
    }


def _tensor(v: Value) -> dict[str, float]:
    """The tensor core; its latencies are measured from the clock before the wgmma to the clock behind the wait."""
    issue_share = v("unit.tensor.other_issue_per_cy")
    operand_rate = v("unit.tensor.operand_b_per_cy")
    start = v("unit.tensor.start_cy")
    outside = start + v("timing.clock.stall") + v("timing.wgmma_wait.stall")
    return {
        "mma_queue": v("unit.tensor.queue"),
        "mma_start_cy": start,
        "mma_spacing_min": v("unit.tensor.issue_least_cy"),
        "mma_spacing_less": v("unit.tensor.issue_free_columns"),
        "mma_spacing_per": v("unit.tensor.issue_columns_per_cy"),
        "mma_fence_cy": v("timing.wgmma_fence.stall"),
        "mma_commit_cy": v("timing.wgmma_commit.stall"),
        "mma_rs_commit_cy": v("unit.tensor.rs_commit_cy"),
        "mma_wake_cy": v("timing.wgmma_wait.stall"),
        "mma_column_cy256": 256 / v("unit.tensor.columns_per_cy"),
        "mma_b_port_cy256": 256 * WGMMA_K_BYTES / operand_rate,
        "mma_a_port_cy": WGMMA_ROWS * WGMMA_K_BYTES / operand_rate,
        "mma_rs_min_cy": v("unit.tensor.rs_least_cy"),
        "mma_latency_cy": v("unit.tensor.ss_latency_cy") - outside,
        "mma_rs_latency_cy": v("unit.tensor.rs_latency_cy") - outside,
        "mma_share256": 256 * (1 - issue_share),
        "grant_period_cy": 1 / issue_share,
        "stream_start": v("unit.tensor.stream_run") - 1,
        "stream_period_cy": 1 / v("unit.tensor.stream_issue_per_cy"),
        "stream_length": v("unit.tensor.starving_run") - 1,
        "stream_decay": v("unit.tensor.starving_rest"),
        "mma_fraction": v("unit.tensor.fraction_bits"),
        "mma_issue_cy": v("unit.tensor.mma_issue_cy"),
        "mma_spare256": 256 * (1 - v("unit.tensor.mma_port_share")),
        "mma_stream": v("unit.tensor.mma_starving_run") - 1,
        "mma_f8_fraction": v("unit.tensor.f8_fraction_bits"),
        "mma_f8_kept": v("unit.tensor.f8_result_bits"),
    }


def _shared(v: Value) -> dict[str, float]:
    """Shared memory's ports and the memory input/output queue."""
    return {
        "return_cy256": 256 / (v("unit.shuffle.lanes") / v("sm.warp_lanes")),
        "return_mma_cy256": 256 / v("unit.tensor.other_return_per_cy"),
        "mio_queue": v("unit.smem.queue") * v("sm.subpartitions"),
        "wavefront_cy": v("unit.smem.wavefront_cy"),
        "merged_cy": (v("timing.lds128.latency") - v("timing.lds.latency")) / 3,
        "store_wavefront_cy": v("unit.smem.store_wavefront_cy"),
    }


def _tensor_memory(v: Value) -> dict[str, float]:
    """Tensor Memory; what its ports move at a time are two quarters of a column: two register rows."""
    beat = 2 * v("sm.warp_lanes") * REGISTER_BYTES
    return {
        "tmem_columns": v("unit.tmem.columns"),
        "tmem_unit": v("unit.tmem.alloc_unit"),
        "tmem_beat_cy256": 256 * beat / v("unit.tmem.port_b_per_cy"),
        "tmem_load_cy": v("unit.tmem.load_latency_cy"),
        "tmem_store_cy": v("unit.tmem.store_latency_cy"),
        "tmem_alloc_cy": v("unit.tmem.alloc_cy"),
        "tmem_retry_cy": v("unit.tmem.retry_ns") * v("clock.boost_mhz") / 1000,
    }


def _commands(v: Value) -> dict[str, float]:
    """tcgen05's products; their latencies are measured from the clock before one to the clock behind the wait for its commit."""
    outside = v("timing.clock.stall") + v("unit.mbarrier.wake_cy") + v("timing.branch.stall")
    return {
        "tc_queue": v("unit.tc.queue"),
        "tc_column_cy256": 256 / v("unit.tc.columns_per_cy"),
        "tc_operand_cy256": 256 / v("unit.tc.operand_b_per_cy"),
        "tc_least_cy": v("unit.tc.least_cy"),
        "tc_ss_cy": v("unit.tc.ss_latency_cy") - outside,
        "tc_ss64_cy": v("unit.tc.ss64_latency_cy") - outside,
        "tc_ts_cy": v("unit.tc.ts_latency_cy") - outside,
        "tc_pair_ss_cy": v("unit.tc.pair_ss_latency_cy") - outside,
        "tc_pair_ts_cy": v("unit.tc.pair_ts_latency_cy") - outside,
        "tc_pair_ss128_cy": v("unit.tc.pair_ss128_latency_cy") - outside,
        "tc_pair_ts128_cy": v("unit.tc.pair_ts128_latency_cy") - outside,
        "tc_cp_cy": v("unit.tc.cp_latency_cy") - outside,
        "tc_cp_kb_cy256": KB / v("unit.tc.cp_b_per_cy"),
    }
