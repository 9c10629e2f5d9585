"""What the lanes of a warp find out together: redux.sync of integers and f32, match.sync (PTX ISA 9.7.13.10, 9.7.13.12)."""

from __future__ import annotations

from typing import Any

from emu.compiled import compiled
from emu.instruction import HAS_D
from emu.raw import ld16, ld32, st32
from emu.units.common import DEFAULT, first_lane, get32, get64, members, signed32
from emu.units.sharing import return_cost
from isa.ops.warp import MATCH_ALL, MATCH_WIDE, REDUCTIONS

ADD, MIN, MAX, AND, OR, XOR = range(len(REDUCTIONS))
SIGNED, ABS, NAN = 1 << 8, 1 << 9, 1 << 10
NAN32, INF32 = 0x7FFFFFFF, 0x7F800000


@compiled
def redux(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """One value of all lanes, combined in lane order."""
    if not members(S, W, ld16(S.list_at + 2 * I.list), m):
        return DEFAULT
    op, lead = I.imm & 255, first_lane(m)
    result = get32(W, I.a, lead)
    for lane in range(lead + 1, 32):
        if not (m >> lane) & 1:
            continue
        x = get32(W, I.a, lane)
        if op == ADD:
            result += x
        elif op == AND:
            result &= x
        elif op == OR:
            result |= x
        elif op == XOR:
            result ^= x
        else:
            p, q = (signed32(result), signed32(x)) if I.imm & SIGNED else (result, x)
            result = x if (q > p) == (op == MAX) else result
    for lane in range(32):
        if (m >> lane) & 1:
            st32(W.row_at + I.d * 128 + lane * 4, result)
    return int(I.latency) + return_cost(S, C, t, 1)


@compiled
def redux_f32(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """The least or largest f32, or magnitude, of all lanes; a NaN counts only with .NaN, or where all are."""
    if not members(S, W, ld16(S.list_at + 2 * I.list), m):
        return DEFAULT
    result, best, nans, lanes = NAN32, 0, 0, 0
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        x = get32(W, I.a, lane)
        if I.imm & ABS:
            x &= 0x7FFFFFFF
        if (x & 0x7FFFFFFF) > INF32:
            nans += 1
            continue
        order = -1 - (x & 0x7FFFFFFF) if x >> 31 else x  # sorts like the value, -0 below +0
        if lanes == 0 or (order > best) == (I.imm & 255 == MAX):
            result, best = x, order
        lanes += 1
    if I.imm & NAN and nans:
        result = NAN32
    for lane in range(32):
        if (m >> lane) & 1:
            st32(W.row_at + I.d * 128 + lane * 4, result)
    return int(I.latency) + return_cost(S, C, t, 1)


@compiled
def match(S: Any, C: Any, W: Any, I: Any, t: int, m: int) -> int:
    """The lanes with the same value (any), or all lanes if every one has it (all)."""
    if not members(S, W, ld16(S.list_at + 2 * I.list), m):
        return DEFAULT
    equal_to_first, lead, values = 0, first_lane(m), 0
    found = W.row_at + S.shuffle_row * 128  # a result may overwrite the values
    for lane in range(32):
        if not (m >> lane) & 1:
            continue
        mine = get64(W, I.a, lane) if I.imm & MATCH_WIDE else get32(W, I.a, lane)
        same = 0
        for other in range(32):
            if (m >> other) & 1:
                x = get64(W, I.a, other) if I.imm & MATCH_WIDE else get32(W, I.a, other)
                same |= (x == mine) << other
        if lane == lead:
            equal_to_first = same
        values += first_lane(same) == lane
        if not I.imm & MATCH_ALL:
            st32(found + lane * 4, same)
    if not I.imm & MATCH_ALL:
        for lane in range(32):
            if (m >> lane) & 1:
                st32(W.row_at + I.d * 128 + lane * 4, ld32(found + lane * 4))
    values = 1 if I.imm & MATCH_ALL else values
    further = int(C.match_value_cy256 * (values - 1) >> 8)
    if I.imm & MATCH_ALL:
        agree = equal_to_first == m
        if I.flags & HAS_D:
            for lane in range(32):
                if (m >> lane) & 1:
                    st32(W.row_at + I.d * 128 + lane * 4, m if agree else 0)
        if I.pd:
            at = W.pred_at + I.pd * 4
            st32(at, (ld32(at) & ~m) | (m if agree else 0))
    return int(I.latency) + further + return_cost(S, C, t, 2 * values - 1)
