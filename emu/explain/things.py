"""The state of what is waited for, in words and as `BarrierState`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from emu.explain.log import GIVES, Event, rounds
from emu.explain.parties import Thing
from emu.explain.places import barrier_name, nearest_symbol, role, short, span, warps_text
from emu.result import BarrierState
from emu.state import LIVE
from emu.units.mbarrier_word import expected_of, pending_of, phase_of, tx_of

if TYPE_CHECKING:
    from emu.sm import StreamingMultiprocessor

VERB = {"arrive": "arrival", "drop": "arrive_drop", "expect": "bytes expected", "bytes": "bytes copied"}


def without_partner(sm: StreamingMultiprocessor, slot: int) -> int:
    """The other CTA of a pair when it has not come to the tcgen05.alloc in which this one waits, else -1."""
    if not sm.ctas[slot]["tmem_asked"]:
        return -1
    other = sm.team[int(sm.sm[0]["place"]) % len(sm.team) ^ 1].ctas[slot]
    return -1 if other["tmem_asked"] else int(other["id"])


def name_of(sm: StreamingMultiprocessor, thing: Thing) -> str:
    """`K_EMPTY[0]`, `barrier 3`, `the register pool`, `warpgroup 1`, `shared memory at 0x400 (flag)`."""
    if thing.kind == "mbarrier":
        return barrier_name(sm, sm.ctas[thing.cta], thing.number) if alive(sm, thing) else f"{thing.number:#x}"
    if thing.kind == "barrier":
        return f"barrier {thing.number}"
    if thing.kind == "cluster":
        return "the cluster's barrier"
    if thing.kind == "registers":
        return "the register pool"
    if thing.kind == "tmem":
        return "Tensor Memory"
    if thing.kind == "warpgroup":
        return f"warpgroup {thing.number}"
    if thing.kind == "memory":
        if thing.number < 0:
            return "global memory"
        symbol, at = nearest_symbol(sm, thing.number)
        offset = f" + {thing.number - at}" if thing.number > at else ""
        return f"shared memory at {thing.number:#x}" + (f" ({symbol}{offset})" if symbol else "")
    return "bulk groups" if thing.kind == "bulk" else "nothing"


def alive(sm: StreamingMultiprocessor, thing: Thing) -> bool:
    """Whether an mbarrier lives at a thing's address."""
    cell = (int(sm.ctas[thing.cta]["smem_base"]) + thing.number) >> 3
    return 0 <= cell < len(sm.live) and bool(sm.live[cell])


def word_of(sm: StreamingMultiprocessor, thing: Thing) -> int:
    """The word of an mbarrier."""
    return int(sm.mbars[(int(sm.ctas[thing.cta]["smem_base"]) + thing.number) >> 3])


def who(sm: StreamingMultiprocessor, *events: Event, quote: bool = False) -> str:
    """`mma warps 4-7 at ring.mptx:30 (...)`: who did something at one place."""
    owner = role(sm, events[0].pc)
    ctas = sorted({e.by for e in events if e.by >= 0})
    other = f"CTA{'s' if len(ctas) > 1 else ''} {span(ctas)} " if ctas else ""
    warps = warps_text(e.warp for e in events)
    return f"{other}{owner + ' ' if owner != 'main' else ''}{warps} at {short(sm, events[0].pc, quote)}"


def together(given: list[Event]) -> list[list[Event]]:
    """Equal events of different warps at one place."""
    groups: dict[tuple[str, int, int, int], list[Event]] = {}
    for e in given:
        groups.setdefault((e.kind, e.pc, e.amount, e.by), []).append(e)
    return list(groups.values())


def state_of(sm: StreamingMultiprocessor, thing: Thing, log: list[Event]) -> BarrierState:
    """The state of a thing; `asked` and `sources` are filled in by the caller."""
    cta = sm.ctas[thing.cta]
    state = BarrierState(kind=thing.kind, name=name_of(sm, thing), cta=int(cta["id"]))  # type: ignore[arg-type]
    if sm.peers and thing.kind in ("mbarrier", "barrier", "registers", "warpgroup"):
        state.name += f" of CTA {state.cta}"
    if thing.kind == "cluster":
        _cluster(sm, thing, state, log)
    elif thing.kind == "mbarrier" and alive(sm, thing):
        _mbarrier(sm, thing, state, log)
    elif thing.kind == "barrier":
        state.expected = int(cta["bar_expected"][thing.number])
        state.pending = state.expected - int(cta["bar_arrived"][thing.number])
        state.given = [
            f"{32 * len(group)} threads of {who(sm, *group)}"
            for group in together(generations(log, state.cta, thing.number)[-1])
        ]
    elif thing.kind == "registers":
        state.pending, state.expected = int(cta["pool"]), 0
        state.given = ledger(sm, thing)
    elif thing.kind == "tmem":
        owned = tensor_memory(sm)
        state.expected = sm.tmem.shape[0]
        state.pending = sum(columns for _, _, columns, _ in owned)
        state.given = [
            f"columns {first}-{first + columns - 1} of CTA {cta}, from {short(sm, pc)}"
            for cta, first, columns, pc in owned
        ]
    elif thing.kind == "warpgroup":
        state.expected, state.pending = 4, 4 - _warpgroup_arrived(sm, thing)
    elif thing.kind == "memory" and thing.number >= 0:
        state.address = thing.number
    return state


def _mbarrier(sm: StreamingMultiprocessor, thing: Thing, state: BarrierState, log: list[Event]) -> None:
    word, cell = word_of(sm, thing), (int(sm.ctas[thing.cta]["smem_base"]) + thing.number) >> 3
    state.address, state.phase, state.parity = thing.number, int(sm.cells["phases"][cell]), phase_of.py_func(word)
    state.expected, state.pending, state.bytes = (f.py_func(word) for f in (expected_of, pending_of, tx_of))
    given = rounds(log, state.cta, thing.number).given
    for group in together(given[-1]):
        amount, kind = sum(e.amount for e in group), group[0].kind
        state.given.append(
            f"{amount:,} {VERB[kind]}{'s' if amount > 1 and kind == 'arrive' else ''} by {who(sm, *group)}"
        )
    state.difference = difference(sm, given)


def _cluster(sm: StreamingMultiprocessor, thing: Thing, state: BarrierState, log: list[Event]) -> None:
    """Threads of the cluster's warps that have not exited, and which of them have come."""
    members = members_of(sm, thing)
    came = came_to(sm, thing, log)
    state.expected = 32 * len(members)
    state.pending = state.expected - 32 * len({(e.cta, e.warp) for e in came})
    for cta in dict.fromkeys(cta for cta, _ in members):
        for group in together([e for e in came if e.cta == cta]):
            state.given.append(f"{32 * len(group)} threads of CTA {cta} {who(sm, *group)}")


def members_of(sm: StreamingMultiprocessor, thing: Thing) -> dict[tuple[int, int], Any]:
    """(CTA, warp) -> the WARP of every warp of a cluster that has not exited."""
    found = {}
    for other in sm.team:
        cta = other.ctas[thing.cta]
        for k in range(int(cta["first_warp"]), int(cta["first_warp"]) + int(cta["warps"])):
            if cta["state"] == LIVE and other.warps[k]["state"] == LIVE:
                found[int(cta["id"]), int(other.warps[k]["index"])] = other.warps[k]
    return found


def came_to(sm: StreamingMultiprocessor, thing: Thing, log: list[Event]) -> list[Event]:
    """The arrivals at a cluster's barrier of warps that are still there, in the phase that is not over."""
    waiting = {who for who, W in members_of(sm, thing).items() if W["came_phase"] >= 0}
    last = {(e.cta, e.warp): e for e in log if e.kind == "cluster arrive"}
    return [e for who, e in last.items() if who in waiting]


def difference(sm: StreamingMultiprocessor, given: list[list[Event]]) -> str:
    """The first thing of the phase before that has not come in this phase."""
    if len(given) < 2:
        return ""
    now: Counter[tuple[str, int, int]] = Counter((e.kind, e.pc, e.amount) for e in given[-1])
    for e in given[-2]:
        key = (e.kind, e.pc, e.amount)
        if now[key]:
            now[key] -= 1
            continue
        other = [x for x in given[-1] if x.kind == e.kind and x.pc == e.pc and x.amount != e.amount]
        if other:
            return f"{other[0].amount:,} {VERB[e.kind]} by {who(sm, other[0])}, then {e.amount:,}"
        return f"not yet the {e.amount:,} {VERB[e.kind]} by {who(sm, e)}"
    return ""


def generations(log: list[Event], cta: int, number: int) -> list[list[Event]]:
    """Who has come to a named barrier, between its openings; the last one is not over."""
    found: list[list[Event]] = [[]]
    for e in log:
        if e.cta == cta and e.what == number and e.kind in ("sync", "barrier arrive", "open"):
            if e.kind == "open":
                found.append([])
            else:
                found[-1].append(e)
    return found


def ledger(sm: StreamingMultiprocessor, thing: Thing) -> list[str]:
    """Registers that the CTA's warps hold, and what is in the pool."""
    cta = sm.ctas[thing.cta]
    first, count, entry = int(cta["first_warp"]), int(cta["warps"]), int(sm.sm[0]["regs_entry"])
    holding: dict[int, list[int]] = {}
    for k in range(first, first + count):
        holding.setdefault(int(sm.warps[k]["regs"]), []).append(int(sm.warps[k]["index"]))
    lines = [f"{entry} registers a thread at launch, {int(cta['pool']):,} registers in the pool"]
    for registers, warps in holding.items():
        kept = " (no setmaxnreg yet)" if registers == entry else ""
        lines.append(f"{warps_text(warps)}: {registers} a thread{kept}")
    return lines


def tensor_memory(sm: StreamingMultiprocessor) -> list[tuple[int, int, int, int]]:
    """Allocations of Tensor Memory: CTA, first column, columns, the instruction that made it."""
    S, unit = sm.sm[0], int(sm.config["tmem_unit"][0])
    return [
        (int(sm.ctas[int(S["tmem_owner"][k]) - 1]["id"]), k * unit, int(S["tmem_size"][k]), int(S["tmem_pc"][k]))
        for k in range(len(S["tmem_size"]))
        if S["tmem_size"][k]
    ]


def _warpgroup_arrived(sm: StreamingMultiprocessor, thing: Thing) -> int:
    group = sm.groups[(int(sm.ctas[thing.cta]["first_warp"]) >> 2) + thing.number]
    return int(group["fence_count"]) or int(group["arrived"][int(group["started"]) % len(group["arrived"])])


def waits_for(sm: StreamingMultiprocessor, W: Any, thing: Thing, asked: int, spinning: bool) -> str:
    """What one warp needs, with the state of the thing that it waits on."""
    if thing.kind == "mbarrier":
        return _mbarrier_text(sm, thing, asked)
    if thing.kind == "barrier":
        cta = sm.ctas[thing.cta]
        have, need = int(cta["bar_arrived"][thing.number]), int(cta["bar_expected"][thing.number])
        return f"barrier {thing.number}: {have} of {need} threads have arrived, {need - have} are missing"
    if thing.kind == "cluster":
        missing = [f"CTA {cta} warp {k}" for (cta, k), V in members_of(sm, thing).items() if V["came_phase"] < 0]
        own = "" if W["came_phase"] >= 0 else ", to which it has not come itself (barrier.cluster.arrive)"
        text = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        return f"the cluster's barrier{own}: {text} {'has' if len(missing) == 1 else 'have'} not come"
    if thing.kind == "warpgroup":
        group = sm.groups[int(W["slot"]) // 4]
        if int(group["fence_count"]):
            return f"wgmma.fence: {int(group['fence_count'])} of the warpgroup's 4 warps are here"
        k = int(group["started"]) % len(group["arrived"])
        return f"wgmma: the next one has been issued by {int(group['arrived'][k])} of the warpgroup's 4 warps"
    if thing.kind == "registers":
        pool, need = int(sm.ctas[thing.cta]["pool"]), int(W["wait_aux"])
        return f"setmaxnreg.inc: needs {need} registers, the CTA's pool has {pool}"
    if thing.kind == "tmem":
        other = without_partner(sm, thing.cta)
        if other >= 0:
            return f"tcgen05.alloc: {int(W['wait_aux'])} columns, with CTA {other}, which has not come to its tcgen05.alloc"
        used = sum(columns for _, _, columns, _ in tensor_memory(sm))
        return f"tcgen05.alloc: needs {int(W['wait_aux'])} columns side by side, {sm.tmem.shape[0] - used} are free"
    if thing.kind == "bulk":
        return "bulk groups that never complete"
    if spinning:
        return (
            f"a change of {name_of(sm, thing)}, which it reads again and again"
            if thing.kind == "memory"
            else "its own loop"
        )
    return "its own instruction stream"


def _mbarrier_text(sm: StreamingMultiprocessor, thing: Thing, asked: int) -> str:
    if not alive(sm, thing):
        return f"mbarrier at {thing.number:#x}: there is none"
    word = word_of(sm, thing)
    pending, tx = pending_of.py_func(word), tx_of.py_func(word)
    missing = [f"{pending} of {expected_of.py_func(word)} arrivals"] if pending else []
    if tx:
        more = f"an expect_tx for {-tx} bytes more: copies brought more than was announced"
        missing.append(f"{tx} bytes" if tx > 0 else more)
    return (
        f"mbarrier at {thing.number:#x} ({name_of(sm, thing)}): waits for the phase of parity {asked}, "
        f"current parity {phase_of.py_func(word)}, pending: {' and '.join(missing) or 'nothing'}"
    )


def gives(e: Event, thing: Thing, cta: int) -> bool:
    """Whether an event gives a thing something, which lies in CTA `cta`."""
    if thing.kind == "cluster":
        return e.kind == "cluster arrive"
    if thing.kind == "tmem":
        return e.kind == "dealloc"
    if e.cta != cta:
        return False
    if thing.kind == "mbarrier":
        return e.what == thing.number and e.kind in (*GIVES, "copy")
    if thing.kind == "barrier":
        return e.what == thing.number and e.kind in ("sync", "barrier arrive")
    return thing.kind == "registers" and e.kind == "registers" and e.amount < 0
