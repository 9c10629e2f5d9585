"""The tensor core as tcgen05 uses it: products on Tensor Memory and their commits (PTX ISA 9.7.16).

One thread issues a command, every active one its own; they are executed in order (`emu.units.tcgen05_queue`).  A product takes
max(N / 2, operand bytes / 128) cycles of the pipe and is complete N / 2 and a fixed latency after its start.  Read window: A, B,
scales and D are read until completion.  Write moment: D appears in Tensor Memory at completion, where the mbarrier of a commit
behind it sees the arrival, too.
"""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

from emu.compiled import compiled
from emu.raw import ld16, ld32
from emu.state import NEVER, TC_RING, WARP_SLOTS
from emu.tmem_state import TC_COMMIT, TC_COPY, TC_MMA, TC_SHIFT
from emu.units.common import (
    F_PAIR,
    F_TC_IDESC,
    F_TC_LANE,
    F_TC_MATRIX,
    F_TC_RANGE,
    F_TMEM_ALIGN,
    F_TMEM_COLUMNS,
    commands_of,
    ctas_of,
    fault,
    get32,
    get64,
    signed32,
    sms_of,
    warps_of,
)
from emu.units.each_lane import each_lane
from emu.units.tcgen05_commit import addressed, arrive
from emu.units.tcgen05_copy import (
    CHUNK,
    FOURS,
    QUARTER,
    SHIFT_COLUMNS,
    copy_in,
    shape_of,
    shift_down,
    source_chunks,
    source_rows,
)
from emu.units.tcgen05_math import LANES, mma, mma_pair
from emu.units.tcgen05_queue import ask, begin, command, enter, retire, room
from emu.units.tensor_math import FAULT_A, OK
from emu.units.tmem import foreign, reachable
from emu.units.tmem_layout import column_of, lane_of, parts_of
from isa import descriptors
from isa.descriptors import (
    WORD_A_TENSOR,
    WORD_MASK,
    WORD_PAIR,
    WORD_SCALE_D,
    WORD_WS,
    blocks_of,
    columns_of,
    d_type_of,
    matrix_problem,
    problem_of,
    rows_of,
    types_of,
)
from isa.ops.tcgen05 import PAIR
from isa.ops.tcgen05_copy import PAIR_COPY

for _function in descriptors.MACHINE:
    register_jitable(_function)
OPERAND_BYTES = 32  # of K of a row of A or a column of B: every kind (9.7.16.2.1)
A_COLUMNS = 8  # of A in Tensor Memory: as many bytes
SCALE_ROWS = 32  # rows whose scales share a column (9.7.16.10.7)


# ---- issue ---------------------------------------------------------------------------------------------


@compiled
def decode(S: Any, C: Any, W: Any, I: Any, lane: int, J: Any) -> bool:
    """Fill in a product from a lane's registers and check it; False after a fault."""
    word, list_at = I.imm, S.list_at + I.list * 2
    idesc = get32(W, ld16(list_at + 2), lane)
    wrong = problem_of(word, idesc)
    if wrong:
        fault(S, W, F_TC_IDESC, lane, idesc, wrong)
        return False
    kind = word & 15
    J.word, J.d, J.b = word, get32(W, ld16(list_at), lane), get64(W, I.b, lane)
    J.a_tensor, J.ws = 1 if word & WORD_A_TENSOR else 0, 1 if word & WORD_WS else 0
    J.a = get32(W, I.a, lane) if J.a_tensor else get64(W, I.a, lane)
    J.m, J.n, J.d_type = rows_of(kind, idesc), columns_of(idesc), d_type_of(kind, idesc)
    if word & WORD_PAIR:  # each CTA has half of the rows; with 64 D lies as with .ws
        J.pair, J.m, J.ws = 1, J.m >> 1, 1
        if not paired_off(S, W, lane):
            return False
    J.kind_a, J.kind_b = types_of(kind, idesc)
    J.negate = (idesc >> 13 ^ idesc >> 14) & 1
    J.trans_a, J.trans_b, J.saturate = idesc >> 15 & 1, idesc >> 16 & 1, idesc >> 3 & 1
    p = ld32(W.pred_at + I.pa * 4) >> lane & 1
    J.accumulate = 1 - p if I.flip & 2 else p
    J.scale_d, J.blocks = word >> WORD_SCALE_D & 15, blocks_of(word)
    J.ue8m0, J.sfa_id, J.sfb_id = idesc >> 23 & 1, idesc >> 29 & 3, idesc >> 4 & 3
    for k in range(4):
        J.mask[k] = get32(W, ld16(list_at + 4 + 2 * k), lane) if word & WORD_MASK else 0
        J.mask_odd[k] = get32(W, ld16(list_at + 12 + 2 * k), lane) if word & WORD_MASK and J.pair else 0
    if J.blocks:
        J.sfa, J.sfb = get32(W, ld16(list_at + 4), lane), get32(W, ld16(list_at + 6), lane)
    return matrices_fit(S, W, lane, J) and places_fit(S, C, W, lane, J)


@compiled
def matrices_fit(S: Any, W: Any, lane: int, J: Any) -> bool:
    """Whether the matrix descriptors are such; a fault otherwise."""
    wrong, desc = 0, J.a
    if not J.a_tensor:
        wrong = matrix_problem(J.a, J.kind_a, J.trans_a)
    if not wrong:
        wrong, desc = matrix_problem(J.b, J.kind_b, J.trans_b), J.b
    if wrong:
        fault(S, W, F_TC_MATRIX, lane, desc, wrong)
        return False
    return True


@compiled
def places_fit(S: Any, C: Any, W: Any, lane: int, J: Any) -> bool:
    """Whether D, A and the scales lie in Tensor Memory that the CTA owns, D and A in the lanes of their layout."""
    first = lane_of(J.d)
    if first != 0 and (first != 16 or J.m != 64 or J.ws):
        fault(S, W, F_TC_LANE, lane, J.d, 0)
        return False
    if J.a_tensor and lane_of(J.a) != first:
        fault(S, W, F_TC_LANE, lane, J.a, 0)
        return False
    if not reachable(S, C, W, J.d, 1, J.n // parts_of(J)):
        return False
    if J.a_tensor and not reachable(S, C, W, J.a, 1, A_COLUMNS):
        return False
    if J.blocks and not reachable(S, C, W, J.sfa, 1, J.m // SCALE_ROWS):
        return False
    return bool(not J.blocks or reachable(S, C, W, J.sfb, 1, (J.n + SCALE_ROWS - 1) // SCALE_ROWS))


@compiled
def latency_of(C: Any, J: Any) -> int:
    """Cycles of a product beyond those that its columns take."""
    if J.pair:
        if J.a_tensor:
            return int(C.tc_pair_ts_cy if J.m == LANES else C.tc_pair_ts128_cy)
        return int(C.tc_pair_ss_cy if J.m == LANES else C.tc_pair_ss128_cy)
    return int(C.tc_ts_cy if J.a_tensor else C.tc_ss_cy if J.m == LANES else C.tc_ss64_cy)


@compiled
def paired_off(S: Any, W: Any, lane: int) -> bool:
    """Whether the cluster has pairs of CTAs; a fault otherwise."""
    if S.peers % 2 or not S.peers:
        fault(S, W, F_PAIR, lane, 0, max(S.peers, 1))
        return False
    return True


@each_lane(room)
def tcgen05_mma(S: Any, C: Any, W: Any, I: Any, t: int, lane: int) -> bool:
    """tcgen05.mma."""
    J = command(S, W, TC_MMA, lane)
    if not decode(S, C, W, I, lane, J):
        return False
    compute = J.n // parts_of(J) * C.tc_column_cy256
    columns = J.n >> 1 if J.pair else J.n  # of B in this CTA
    port = (columns + (0 if J.a_tensor else J.m)) * OPERAND_BYTES * C.tc_operand_cy256
    interval = max(max(compute, port) >> 8, C.tc_least_cy if J.m == LANES else 1)
    latency = latency_of(C, J)
    enter(S, C, W, J, t, interval, latency + (compute >> 8), port >> 8)
    S.tensor_cycles += compute >> 8
    S.mma_count += 1
    return True


@each_lane(room)
def tcgen05_commit(S: Any, C: Any, W: Any, I: Any, t: int, lane: int) -> bool:
    """tcgen05.commit: an arrival behind all commands before it."""
    J = command(S, W, TC_COMMIT, lane)
    if not addressed(S, W, I, lane, J):
        return False
    enter(S, C, W, J, t, 0, 1, 0)
    return True


@each_lane(room)
def tcgen05_cp(S: Any, C: Any, W: Any, I: Any, t: int, lane: int) -> bool:
    """tcgen05.cp."""
    J = command(S, W, TC_COPY, lane)
    J.word, J.d, J.a = I.imm, (get32(W, I.a, lane) + signed32(I.imm)) & 0xFFFFFFFF, get64(W, I.b, lane)
    J.pair = 1 if I.imm & PAIR_COPY else 0
    wrong = matrix_problem(J.a, 0, 0)
    if wrong:
        fault(S, W, F_TC_MATRIX, lane, J.a, wrong)
        return False
    if J.pair and not paired_off(S, W, lane):
        return False
    lanes = 3 * QUARTER + 1 if shape_of(J.word) == FOURS else LANES
    if not reachable(S, C, W, J.d, lanes, 4 * source_chunks(J.word)):
        return False
    enter_copy(S, C, W, J, t, source_rows(J.word) * source_chunks(J.word) * CHUNK)
    return True


@each_lane(room)
def tcgen05_shift(S: Any, C: Any, W: Any, I: Any, t: int, lane: int) -> bool:
    """tcgen05.shift."""
    J = command(S, W, TC_SHIFT, lane)
    J.word, J.d = 0, (get32(W, I.a, lane) + signed32(I.imm)) & 0xFFFFFFFF
    J.pair = 1 if I.imm & PAIR else 0
    if J.pair and not paired_off(S, W, lane):
        return False
    if lane_of(J.d) % QUARTER:
        fault(S, W, F_TMEM_ALIGN, lane, J.d, 0)
        return False
    if not reachable(S, C, W, J.d, 1, SHIFT_COLUMNS):
        return False
    enter_copy(S, C, W, J, t, LANES * SHIFT_COLUMNS * 4)
    return True


@compiled
def enter_copy(S: Any, C: Any, W: Any, J: Any, t: int, bytes_: int) -> None:
    """Queue a copy or shift of so many bytes; a copy reads them through shared memory's port."""
    interval = bytes_ * C.tc_cp_kb_cy256 >> 18
    port = bytes_ * C.tc_operand_cy256 >> 8 if J.what == TC_COPY else 0
    enter(S, C, W, J, t, interval, C.tc_cp_cy + interval, port)


# ---- advance -------------------------------------------------------------------------------------------


@compiled
def multiply(S: Any, C: Any, W: Any, J: Any) -> None:
    """A product is complete: D is there, unless its columns were given away meanwhile."""
    missing = foreign(S, C, J.cta, column_of(J.d), J.n // parts_of(J))
    if missing >= 0:
        fault(S, W, F_TMEM_COLUMNS, J.lane, J.d, missing)
        return
    smem = S.smem_at + ctas_of(S.cta_at, S.cta_slots)[J.cta].smem_base
    code = mma(J, S.tmem_at, smem, S.smem_per_cta, S.tc_scratch_at)
    if code != OK:
        fault(S, W, F_TC_RANGE, J.lane, J.a if code == FAULT_A else J.b, code)


@compiled
def move(S: Any, C: Any, W: Any, J: Any) -> None:
    """A copy or shift is complete."""
    width = SHIFT_COLUMNS if J.what == TC_SHIFT else 4 * source_chunks(J.word)
    missing = foreign(S, C, J.cta, column_of(J.d), width)
    if missing >= 0:
        fault(S, W, F_TMEM_COLUMNS, J.lane, J.d, missing)
    elif J.what == TC_SHIFT:
        shift_down(S, J)
    elif not copy_in(S, J, S.smem_at + ctas_of(S.cta_at, S.cta_slots)[J.cta].smem_base):
        fault(S, W, F_TC_RANGE, J.lane, J.a, 0)


@compiled
def paired(S: Any, C: Any, k: int, other: int) -> int:
    """Execute command k of the queue, of a pair of CTAs: on this SM and on the one whose record is at `other`.

    The chip calls it, in the order of its answers, while no SM moves.
    """
    J, P = commands_of(S.tc_at, TC_RING)[k], sms_of(other, 1)[0]
    W, cta = warps_of(S.warp_at, WARP_SLOTS)[J.warp], J.cta
    width = (
        J.n // parts_of(J) if J.what == TC_MMA else SHIFT_COLUMNS if J.what == TC_SHIFT else 4 * source_chunks(J.word)
    )
    missing = max(foreign(S, C, cta, column_of(J.d), width), foreign(P, C, cta, column_of(J.d), width))
    if missing >= 0:
        fault(S, W, F_TMEM_COLUMNS, J.lane, J.d, missing)
    here = S.smem_at + ctas_of(S.cta_at, S.cta_slots)[cta].smem_base
    there = P.smem_at + ctas_of(P.cta_at, P.cta_slots)[cta].smem_base
    if missing < 0 and J.what == TC_MMA:
        if S.place % 2:
            code = mma_pair(J, P.tmem_at, there, S.tmem_at, here, S.smem_per_cta, S.tc_scratch_at)
        else:
            code = mma_pair(J, S.tmem_at, here, P.tmem_at, there, S.smem_per_cta, S.tc_scratch_at)
        if code != OK:
            fault(S, W, F_TC_RANGE, J.lane, J.a if code == FAULT_A else J.b, code)
        P.tensor_cycles += J.n // parts_of(J) * C.tc_column_cy256 >> 8
    elif missing < 0 and J.what == TC_SHIFT:
        shift_down(S, J)
        shift_down(P, J)
    elif missing < 0 and not (copy_in(S, J, here) and copy_in(P, J, there)):
        fault(S, W, F_TC_RANGE, J.lane, J.a, 0)
    if S.fault:
        S.fault_pc = J.pc
    return 0


@compiled
def advance(S: Any, C: Any, t: int) -> int:
    """Complete and start commands that are due, in order; returns the next cycle of interest."""
    commands, warps = commands_of(S.tc_at, TC_RING), warps_of(S.warp_at, WARP_SLOTS)
    while S.tc_head < S.tc_tail:
        J = commands[S.tc_head & (TC_RING - 1)]
        if J.finish > t:
            break
        W = warps[J.warp]
        if J.pair:  # the chip has done it
            pass
        elif J.what == TC_MMA:
            multiply(S, C, W, J)
        elif J.what == TC_COMMIT:
            arrive(S, C, W, J, t)
            if J.finish > t:
                break
        else:
            move(S, C, W, J)
        if S.fault:
            S.fault_pc = J.pc
            return NEVER
        retire(S, t)
    look = min(begin(S, t), ask(S, C, t))
    if S.tc_head < S.tc_tail:
        look = min(look, commands[S.tc_head & (TC_RING - 1)].finish)
    return int(look)
