"""What the SMs of a chip share: the requests that they make of it, servers, lines of L2, arrays; one structured record type each.

Fields are named as in `emu.state`: cycles in `_cy` or where a comment says so, host addresses in `_at`.
"""

from __future__ import annotations

import numpy as np

from emu.state import f64, i32, i64, u32

PENDING = 1 << 52  # a time that the chip has yet to say: it answers before an SM gets there
REQUESTS = 512  # of an SM without an answer, power of two

# What an SM asks of the chip (emu/units/requests.py); `kind` is ASK_*.
REQUEST = np.dtype(
    [
        ("time", i64),
        ("kind", i32),
        ("warp", i32),
        ("pc", i32),
        ("mixed", i32),  # other lanes of the instruction have addresses of another kind
        ("job", i32),  # bulk copy, entry of the queue of cp.async, CTA slot; of atomics the most lanes of one address
        ("mask", i64),  # lanes
        ("width", i64),  # bytes a lane
        ("bytes", i64),  # in whole sectors
        ("port", i64),  # when the SM's own port has passed them
        ("first", i64),  # address of lane 0 when the lanes' bytes follow one another, else 0
        ("address", i64, 32),
        ("data", u32, 256),  # what a store writes, `width` bytes a lane; rows that an atomic takes its values from
    ],
    align=True,
)
(
    ASK_LOAD,
    ASK_STORE,
    ASK_ATOMIC,
    ASK_COPY_ASYNC,
    ASK_COPY_IN,
    ASK_COPY_OUT,
    ASK_CTA,
    ASK_PEER,  # a message to another CTA of the cluster; `job` is P_*, `first` the rank, `bytes` the immediate
    ASK_REPLY,  # what a message read; `job` is the SM that asked, `bytes` its CTA
    ASK_SEND,  # a bulk copy to another CTA of the cluster
    ASK_CLUSTER,  # a warp comes to the cluster's barrier, or (`first`) exits; `bytes` is the phase that it has come to
    ASK_CANCEL,
    ASK_PAIR,  # a command of tcgen05 of a pair of CTAs; `job` is its place in the queue
    ASK_TMEM,  # Tensor Memory for a pair: `job` the CTA slot, `width` columns
    ASK_FREE,  # a CTA of a pair gives back `width` units of columns from `first` on
) = range(15)
REQUEST_BYTES, REQUEST_DATA = REQUEST.itemsize, int(REQUEST.fields["data"][1])  # type: ignore[index]

# What a CTA of the cluster does to the shared memory of one on this SM (emu/units/peers.py); `kind` is P_*.
MESSAGE = np.dtype(
    [
        ("time", i64),  # of its arrival
        ("kind", i32),
        ("place", i32),  # the SM that sent it, its warp slot, the warp's number and CTA
        ("warp", i32),
        ("index", i32),
        ("by", i32),
        ("slot", i32),  # the CTA that it is for
        ("cta", i32),
        ("pc", i32),
        ("mixed", i32),
        ("mask", i64),
        ("width", i64),  # bytes a lane
        ("word", i64),  # the instruction's immediate
        ("address", i64, 32),
        ("data", u32, 256),
    ],
    align=True,
)
P_LOAD, P_STORE, P_ATOMIC, P_ARRIVE, P_TX, P_ASYNC, P_COPY, P_OPEN, P_TMEM, P_BYTES = range(10)
MESSAGE_BYTES, MESSAGE_DATA = MESSAGE.itemsize, int(MESSAGE.fields["data"][1])  # type: ignore[index]
SENDING = 128  # messages of an SM that are under way, power of two; the next one waits

# The barrier of a cluster, and its CTAs; by team of SMs and slot.
CLUSTER = np.dtype([("phase", i64), ("pending", i32), ("live", i32), ("ended", i32)], align=True)

# A part of the chip that all SMs share; times in cycles.
SERVER = np.dtype(
    [
        ("free", f64),  # when what was asked so far has passed
        ("work", f64),  # cycles of work of late
        ("at", i64),  # up to when `work` is right
        ("rate", f64),  # bytes a cycle
        ("knee", f64),  # cycles that unevenness costs at half load, beyond `slack`
        ("slack", f64),
        ("window", f64),  # cycles that `work` remembers
    ],
    align=True,
)
L2, HBM, WRITES = range(3)  # servers
ATOMIC_WORDS = 1024  # addresses of atomics told apart, by their lower bits

# A 128-byte line of global memory: fills of L2 up to its last use, plus one (0: never), DIRTY when it was written since
# it came; cycle of its last fetch.
FILL, DIRTY = (1 << 31) - 1, 1 << 31
RING = 2048  # counts of dirty lines, by the fill of their last use
LINE_STATE = np.dtype([("fill", u32), ("when", u32)])

# What SMs load of an array: bytes, those that L2 has moved, those from HBM, those of loads that waited for HBM.  The parts of
# that in the whole chip are given when SMs stand for others; then what is due of them, and the lines not in L2 yet.
ARRAY = np.dtype(
    [(name, f64) for name in ("asked", "moved", "missed", "waited")]
    + [(name, f64) for name in ("moved_share", "missed_share", "waited_share", "credit", "patience", "budget")],
    align=True,
)

CHIP = np.dtype(
    [
        ("core_at", i64),  # machine code of the cycle loop
        ("sm_at", i64),
        ("sms", i32),
        ("rounds", i32),  # to make before Python looks
        ("stop", i32),  # nothing is left to do, or an SM has failed
        ("horizon", i64),  # every SM has got so far
        ("limit", i64),  # none goes further
        ("ctas", i64),  # of the grid
        ("next_cta", i64),  # how many have been given out
        ("cta_cy", f64),  # between two CTAs that are handed to free slots ...
        ("cta_free", f64),  # ... and when the next one can be
        ("order_at", i64),  # int64: which CTA comes when
        ("span_at", i64),  # int64 by CTA: cycles from its start to its end
        ("where_at", i64),  # int64 by CTA: its SM
        ("server_at", i64),
        ("line_at", i64),
        ("fills", i64),  # lines that L2 has taken from memory
        ("capacity", i64),  # lines that it holds
        ("dirty_at", i64),  # int64: dirty lines that were last used at each 2^ring_shift fills, RING of them
        ("ring_shift", i64),
        ("kept", i64),  # the first fill whose dirty lines have not been written back
        ("requests", f64),  # passes through slices that the lines touched last take
        ("request_b", f64),  # bytes that L2 could move meanwhile
        ("far_share", f64),  # of the lines, those whose home is the other part of L2
        ("written", f64),  # part of HBM's traffic of late that writes
        ("turns", f64),  # cost of the mix, for each `written * (1 - written)`
        ("merge", f64),  # cycles in which a second request for a line joins the first
        ("merge_share", f64),  # and so many of each cycle that L2 is behind
        ("array", i32),  # that the last access was to
        ("array_at", i64),  # ARRAY of every segment
        ("cluster", i32),  # CTAs of a cluster, on as many neighbouring SMs: a team
        ("peers", i32),  # as in SM
        ("slots", i32),  # CTAs of an SM
        ("cluster_at", i64),  # CLUSTER by team and slot
        ("atomic_free", i64, (ATOMIC_WORDS,)),  # cycle, in 256ths, from which on L2 takes an atomic on an address
        ("sampled", i32),  # SMs stand for others, whose parts in L2 and HBM are given
    ],
    align=True,
)

# An array in emulated global memory; `line` is the index of its first line's LINE_STATE.
SEGMENT = np.dtype([("base", i64), ("size", i64), ("host_at", i64), ("writable", i32), ("line", i32)], align=True)
