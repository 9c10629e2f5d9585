"""Every array of machine state: one structured record type each, with units.

Cycles are `int64` in fields that end in `_cy` or are documented as times; host addresses end in
`_at`.  A run can be saved and resumed by dumping these arrays.
"""

from __future__ import annotations

import numpy as np

SUBPARTITIONS = 4  # an SM's schedulers; warp slot w belongs to scheduler w % 4 (CUDA programming guide)
WARP_SLOTS = 64
CTA_SLOTS = 32
WARPGROUPS = WARP_SLOTS // 4
PIPES = 16
UNIT_KINDS = 16  # kinds of instructions: 0 lane, else 1 + the unit's place in emu.generate.UNITS
REASONS = 32  # width of a stall row (emu.stalls has fewer)
HOT = 8  # the most frequent reasons of an instruction are counted in a table of their own
STACK = 32  # divergence stack entries a warp
RING = 16  # queued wgmma a warpgroup, power of two above any machine's queue
FLY = WARPGROUPS * RING  # wgmma whose results are on their way
JOBS = 64  # bulk copies in flight an SM
COPIES = 512  # warp instructions of cp.async in flight an SM, power of two
GROUPS = 64  # remembered wgmma commit groups, power of two
TMEM_LANES = 128  # of a column of Tensor Memory; each sub-partition has a quarter
TMEM_PARTS = 16  # units of allocation that Tensor Memory is kept account of
TC_RING = 128  # commands of tcgen05 in flight an SM, power of two: those of 32 threads beyond any machine's queue
TMEM_RINGS = 2 * SUBPARTITIONS  # loads of each sub-partition, then stores
TMEM_RING = 16  # in flight in each, power of two
NEVER = 1 << 60  # a time that does not come

i64, i32, u32, u16, u8, f64 = np.int64, np.int32, np.uint32, np.uint16, np.uint8, np.float64

WARP = np.dtype(
    [
        ("state", i32),  # FREE, LIVE, DONE
        ("pc", i32),
        ("cta", i32),  # CTA slot
        ("index", i32),  # warp number in the CTA
        ("sub", i32),
        ("slot", i32),  # its place in the SM
        ("slot8", i64),  # 8 times that
        ("smem_base", i64),  # of its CTA
        ("window", i64),  # where shared addresses of its CTA begin (rank << 24 where the program knows of clusters)
        ("active", i64),  # lanes executing now
        ("exited", i64),
        ("depth", i32),
        ("rpc", i32),  # reconvergence point of the current path, -1: none
        ("regs", i32),  # registers a thread now owned (setmaxnreg)
        ("block", i32),  # what the warp is parked on (BLOCK_*)
        ("reason", i32),  # stall reason until it is ready
        ("nthrottle", i32),  # stall reason of the next instruction's pipe
        ("streak", i32),  # preceding instructions with an encoded gap of one cycle
        ("wait_slot", i32),  # mbarrier cell, named barrier, ... of the park
        ("wait_aux", i64),  # parity, wgmma count, registers, ...
        ("wait_pc", i32),
        ("wait_state", i32),
        ("wait_mask", i64),
        ("last", i64),  # cycle of the last issue
        ("gap_until", i64),  # end of the encoded gap
        ("dep_ready", i64),  # earliest next issue by dependences
        ("dep_reason", i32),
        ("park_since", i64),
        ("deadline", i64),  # when a suspended try_wait gives up
        ("held", i64),  # until when a unit last held it, or when it was last woken
        ("held_reason", i32),
        ("born", i64),
        ("row_at", i64),  # register window
        ("pred_at", i64),  # predicate masks
        ("time_at", i64),  # ready times: (cycle << 8 | reason), one per row and predicate slot
        ("mma_issued", i64),  # wgmma issued by this warp
        ("mma_group", i64),  # wgmma groups committed
        ("order", i64),  # launch order, for selection
        ("group_end", i64, GROUPS),  # mma_issued when a group was committed
        ("bulk_group", i32, 32),  # per lane: bulk groups committed
        ("copies", i32),  # whether it has executed a cp.async
        ("copy_group", i32, 32),  # per lane: groups of cp.async committed,
        ("copy_waited", i32, 32),  # waited for,
        ("copy_shown", i32, 32),  # and waited for when it last signalled
        ("decisions", i64),  # decision points of chaos so far
        # when its tcgen05.alloc first looks for columns, 0: it has none, below: -1 - the unit that a pair got
        ("tmem_due", i64),
        ("tmem_loaded", i64),  # when its loads of Tensor Memory, and
        ("tmem_stored", i64),  # its stores are complete
        ("bar_result", i64),  # threads whose predicate held at its last barrier; bits 32 and up: did not hold
        ("met", i64),  # lanes that have reached the barrier.sync that `met_slot` names, their warp not yet
        ("met_slot", i32),
        ("came", i64),  # lanes that have come to the cluster's barrier, their warp not yet
        ("came_phase", i64),  # phase of the cluster's barrier that the warp has come to, -1: it has waited since
        ("mixed", i64),  # when those lanes have a result whose addresses are not in the cluster
        ("passed", i64),  # lanes whose path still stands at a barrier.sync that their warp has passed
        ("stack_pc", i32, STACK),
        ("stack_rpc", i32, STACK),
        ("stack_mask", i64, STACK),
        ("stall_at", i64),  # int64 [REASONS]: warp-cycles by reason
    ],
    align=True,
)
FREE, LIVE, DONE = 0, 1, 2
ASKED, GIVEN = 3, 4  # a CTA slot: waits for the chip to say what comes next; has a CTA that is yet to start
(
    BLOCK_NONE,
    BLOCK_MBAR,
    BLOCK_BAR,
    BLOCK_MMA_WAIT,
    BLOCK_MMA_QUEUE,
    BLOCK_MMA_FENCE,
    BLOCK_BULK_WAIT,
    BLOCK_BULK_QUEUE,
    BLOCK_REGISTERS,
    BLOCK_COPY_QUEUE,
    BLOCK_COPY_WAIT,
    BLOCK_TMEM_ALLOC,
    BLOCK_TMEM_QUEUE,
    BLOCK_TC_QUEUE,
    BLOCK_CLUSTER,
) = range(15)

CTA = np.dtype(
    [
        ("state", i32),
        ("id", i32),  # linear CTA number of the grid
        ("ctaid", i32, 3),
        ("rank", i32),  # in its cluster
        ("cluster_phase", i64),  # how often the cluster's barrier has opened
        ("cluster_came", i32),  # warps that have come to it, of a CTA that is its own cluster
        ("first_warp", i32),
        ("warps", i32),
        ("live", i32),
        ("pool", i32),  # registers (32-bit, whole CTA) that setmaxnreg.dec has given back
        ("smem_base", i64),  # byte offset of the CTA's window in the SM's shared memory
        ("born", i64),  # when it may start
        ("began", i64),
        ("bar_expected", i32, 16),
        ("bar_arrived", i32, 16),
        ("bar_true", i32, 16),  # threads of the current generation that came with a predicate (bar.red), and
        ("bar_false", i32, 16),  # those for which it did not hold
        ("bar_all", i32, 16),  # whether the count is that of all warps that have not exited
        ("tmem_closed", i32),  # tcgen05.relinquish_alloc_permit: it allocates no more
        ("tmem_asked", i32),  # columns that it wants together with the other CTA of its pair, 0: none
        ("tmem_warp", i32),  # the warp slot that wants them, its instruction and the cycle
        ("tmem_pc", i32),
        ("tmem_when", i64),
    ],
    align=True,
)

# A warpgroup's queue of wgmma, by sequence number modulo RING.
WGROUP = np.dtype(
    [
        ("issued", i64),  # wgmma that some warp has issued
        ("done", i64),  # wgmma completed
        ("started", i64),  # wgmma started on the tensor core
        ("fence_count", i32),
        ("word", i64, RING),
        ("desc_a", i64, RING),
        ("desc_b", i64, RING),
        ("scale_d", i32, RING),
        ("list", i32, RING),
        ("nd", i32, RING),
        ("pc", i32, RING),
        ("arrived", i32, RING),  # warps that have issued it
        ("ready", i64, RING),  # when the fourth warp issued it
    ],
    align=True,
)

# An mbarrier beside its word, per 8-byte cell.
CELL = np.dtype([("init_pc", i32), ("phases", i32)], align=True)  # where it was initialised; phases completed since

# What a warp or a copy did to a barrier (emu/units/history.py).
EVENT = np.dtype(
    [
        (name, i32 if name != "cycle" else i64)
        for name in ("cycle", "pc", "cta", "by", "warp", "kind", "what", "amount")
    ],
    align=True,
)
EVENTS = 1 << 14  # remembered, power of two

# What chaos changed: `name` is (CTA * 64 + warp) << 32 | number of the warp's decision point (emu/units/chaos.py).
PERTURBATION = np.dtype([("name", i64), ("cycle", i64), ("pc", i32), ("kind", i32), ("amount", i64)], align=True)
PERTURBATIONS = 1 << 16  # remembered, power of two

SM = np.dtype(
    [
        # control
        ("status", i32),
        ("now", i64),
        ("limit", i64),
        ("next_event", i64),
        ("live_warps", i32),
        ("open", i32),  # CTA slots that are in use, or may be again
        ("last", i64),  # when a warp or a copy last ended
        ("stored", i64),  # when it last asked to change global memory
        ("weight", i32),  # SMs that it stands for
        ("launched", i64),
        ("finished_ctas", i64),
        # what it asks of the chip
        ("log_at", i64),
        ("log_head", i64),  # first request without an answer
        ("log_tail", i64),
        ("due", i64),  # when it needs its answers at the latest
        # its cluster
        ("clustered", i32),  # whether the program knows of clusters
        ("cluster", i32, 3),  # CTAs in each direction
        ("explicit_cluster", i32),
        ("peers", i32),  # CTAs of a cluster that may reach each other's memory, 0: none do
        ("place", i32),  # its number among the SMs that run
        ("window_row", i32),  # constant row that holds the CTA's window, -1: none
        ("idle", i32),  # only other SMs can make something happen
        ("by", i64),  # who acts from afar just now: 1 + CTA, its warp, its instruction
        ("by_warp", i32),
        ("by_pc", i32),
        ("sent", i64),  # messages so far
        ("acknowledged", i64),  # when the other CTAs have confirmed all of them
        ("sent_at", i64),  # int64 [SENDING]: when the latest of them arrive
        ("message_at", i64),  # MESSAGE
        ("inbox_at", i64),  # int32: which of them are to come, in the order of their arrival
        ("inbox_head", i64),
        ("inbox_tail", i64),
        ("spare_at", i64),  # int32: which of them are free
        ("spares", i32),
        ("inbox_size", i64),
        # fault record
        ("fault_by", i64),  # 1 + the CTA that caused it from afar, 0: its own
        ("fault", i32),
        ("fault_warp", i32),
        ("fault_lane", i32),
        ("fault_pc", i32),
        ("fault_address", i64),
        ("fault_aux", i64),
        # the first access that nothing orders behind a copy or product (emu.units.hazards): kind, who accesses, and the other
        ("hazard", i32),
        ("hazard_pc", i32),
        ("hazard_warp", i32),
        ("hazard_lane", i32),
        ("hazard_address", i64),
        ("hazard_by", i32),
        ("hazard_by_pc", i32),
        ("hazard_newer", i32),  # groups of copies that its lane has committed since, its own included
        # schedulers
        ("sub_next", i64, SUBPARTITIONS),
        ("sub_others", i64, SUBPARTITIONS),  # no warp but the last one can issue before
        ("sub_last", i32, SUBPARTITIONS),  # 8 times the slot of the last warp that issued, -1: none
        ("sub_count", i32, SUBPARTITIONS),
        ("grant_next", i64, SUBPARTITIONS),  # next register-port slot while the tensor core runs
        ("clear_at", i64, SUBPARTITIONS),  # from when an mma.sync reads its operands without delay, unless it is of
        ("clear_warp", i64, SUBPARTITIONS),  # this warp
        # beside an mma.sync: when other warps than the last get the register file's ports
        ("port_next", i64, SUBPARTITIONS),
        ("mma_spare", i64, SUBPARTITIONS),  # cycles in which the last mma.sync leaves the ports to others
        ("tensor_pipe", i64),  # 8 times its number
        ("stolen", i64, SUBPARTITIONS),  # port slots taken from the running wgmma
        # tensor core
        ("mma_wg", i32),  # warpgroup whose wgmma runs, -1: idle
        ("mma_queued", i32),  # wgmma in the queue of all warpgroups, the running one included
        ("mma_parked", i32),  # whether a warp waits for room in it
        ("mma_rs", i32),
        ("mma_start", i64),
        ("mma_end", i64),  # end of its pass
        ("mma_busy_end", i64),  # end of its use of the register file
        ("mma_port_num", i64),  # shared-memory port cycles that it takes, of
        ("mma_port_den", i64),  # this many cycles
        ("mma_delay", i64),  # port slots lost by the slowest sub-partition, already in mma_end
        ("fly_head", i64),
        ("fly_tail", i64),
        ("fly_time", i64, FLY),
        ("fly_wg", i32, FLY),
        # Tensor Memory
        ("tmem_owner", i32, TMEM_PARTS),  # CTA slot + 1 of each unit of columns, 0: free
        ("tmem_size", i32, TMEM_PARTS),  # columns of the allocation that begins there, 0: none does
        ("tmem_pc", i32, TMEM_PARTS),  # where it was allocated
        ("tmem_parked", i32),  # warps that wait for columns
        # tcgen05's commands
        ("tc_head", i64),  # first one that is not complete
        ("tc_begun", i64),  # first one that has not started
        ("tc_asked", i64),  # first one that the chip has not been asked for, if it is of a pair
        ("tc_tail", i64),
        ("tc_free", i64),  # when the next one may start
        ("tc_last", i64),  # when the last one completes
        ("tc_parked", i32),  # warps that wait for room
        ("tmem_head", i64, TMEM_RINGS),  # loads of each sub-partition, then stores: the oldest one in flight
        ("tmem_tail", i64, TMEM_RINGS),
        ("tmem_port", i64, SUBPARTITIONS),  # cycles * 256: when the sub-partition's port is free
        # bulk copies
        ("tma_free", i64),  # cycles * 256
        ("store_free", i64),  # cycles * 256
        ("tma_until", i64),  # fills of shared memory go on until then
        ("job_seq", i64),
        ("jobs", i32),  # in flight
        ("copy_head", i64),  # cp.async: entries that are done
        ("copy_tail", i64),  # and that have been issued
        ("copy_last", i64),  # when the last of those was done
        ("give_up", i64),  # earliest deadline of a suspended try_wait
        # shared memory, L2, barriers
        ("port_free", i64),  # cycles * 256
        ("return_free", i64),  # cycles * 256
        ("hold", i64),  # when the queue of the instruction's pipe has room again
        ("l2_free", i64),  # cycles * 256
        ("line_free", i64),  # loads and stores: when all lines before are looked up, cycles * 256
        # L1
        ("l1_at", i64),  # L1_LINE, the ways of a set side by side
        ("l1_sets", i64),
        ("l1_epoch", i64),  # in the upper bits of the tags of lines that are there
        ("l1_settled", i64),  # as of its lines, for bulk stores
        ("bar_free", i64),
        ("sync_free", i64),
        ("fence_free", i64),  # cycles * 256
        # counters
        ("tensor_cycles", i64),
        ("tma_bytes", i64),
        ("store_bytes", i64),
        ("hbm_bytes", i64),
        ("l2_bytes", i64),
        ("l1_sectors", i64),  # that loads and stores have looked up, and found
        ("l1_hits", i64),
        ("smem_waves", i64),
        ("mma_count", i64),
        # launch
        ("ntid", i32, 3),
        ("nctaid", i32, 3),
        ("warps_per_cta", i32),
        ("threads", i32),
        ("cta_slots", i32),
        ("smem_per_cta", i64),
        ("smem_dynamic", i64),
        ("smem_static", i64),
        ("regs_entry", i32),
        ("rows", i32),
        ("const_first", i32),
        ("const_rows", i32),
        ("shuffle_row", i32),  # a scratch row behind the window
        ("slots", i32),  # ready-time slots
        ("predicates", i32),
        ("sm_id", i32),
        ("sms", i32),
        ("npc", i32),
        ("silicon", i32),  # whether tensor cores compute bit for bit as the card does
        # host addresses
        ("instr_at", i64),
        ("unit_at", i64, UNIT_KINDS),  # machine code of the units, by the `kind` of instructions
        ("advance_at", i64, UNIT_KINDS),  # of those in use that act by themselves
        ("advancing", i32),  # how many of them
        # what selection looks at, int64 each
        ("ready_at", i64),  # per warp slot: earliest next issue by dependences, NEVER when parked
        ("next_at", i64),  # per warp slot: 8 times the next instruction's pipe, bit 0: it uses the register ports
        ("free_at", i64),  # per sub-partition and pipe: when it is free
        ("order_at", i64),  # per sub-partition: 8 times the slots of its warps, oldest first
        ("list_at", i64),
        ("warp_at", i64),
        ("cta_at", i64),
        ("wg_at", i64),
        ("job_at", i64),
        ("const_at", i64),
        ("smem_at", i64),
        ("smem_bytes", i64),
        ("mbar_at", i64),  # 64-bit word per 8-byte cell of shared memory
        ("live_at", i64),  # one byte per cell: an mbarrier lives here
        ("cell_at", i64),  # CELL per 8-byte cell
        ("event_at", i64),  # the barrier log
        ("events", i64),  # recorded so far
        ("chaos", i64),  # seed, 0: off
        ("chaos_left", i64),  # perturbations that may still be made
        ("chaos_done", i64),
        ("chaos_at", i64),  # PERTURBATION
        ("chaos_only", i64),  # decision points that may be perturbed, -1: all
        ("chaos_only_at", i64),  # their names
        ("copied_at", i64),  # who copied last to each 16 bytes of shared memory,
        ("marked_at", i64),  # and per 1 KB page which of them that still matters for; 0: the program has no cp.async
        ("version_at", i64),  # write count per 1 KB page of shared memory
        ("segment_at", i64),
        ("segments", i32),
        ("segment_last", i32),
        ("tmap_at", i64),  # a decoded tensor map per bulk copy
        ("hot_at", i64),  # uint32 [npc][HOT]: stalls by instruction, the first reasons
        ("cold_at", i64),  # uint32 [npc][REASONS - HOT]: the others
        ("scratch_at", i64),
        ("fragment_at", i64),  # scratch of mma.sync
        ("copy_at", i64),
        ("tmem_at", i64),  # Tensor Memory: uint32 [columns][TMEM_LANES]; 0: the machine has none
        ("tc_at", i64),  # TC_JOB [TC_RING]
        ("tc_scratch_at", i64),
        ("tmem_move_at", i64),  # TMOVE [TMEM_RINGS][TMEM_RING]
        ("tmem_stage_at", i64),  # registers of stores [SUBPARTITIONS][TMEM_RING]
        ("window_at", i64),  # scratch: row_at of a warpgroup's four warps
        ("local_at", i64),
        ("local_bytes", i64),  # of a thread
    ],
    align=True,
)
RUNNING, FINISHED, DEADLOCK, QUANTUM, FAULT, LIMIT = range(6)
