"""The fault of a run in words: where, which lane, what is wrong, what to do."""

from __future__ import annotations

from collections.abc import Sequence

from emu.explain.invariants import filled_again
from emu.explain.log import SENT, events, rounds
from emu.explain.parties import Thing
from emu.explain.places import place
from emu.explain.rules import TEMPLATES
from emu.explain.things import alive, name_of, state_of, who
from emu.memory_map import MemoryMap
from emu.result import Finding
from emu.sm import StreamingMultiprocessor
from emu.state import WARP_SLOTS
from isa.descriptors import MATRIX_PROBLEMS, PROBLEMS
from isa.program import RANK_BIT


def _barrier(sm: StreamingMultiprocessor, address: int) -> str:
    """The mbarrier of a fault: its name, its state, and what has come to it in this phase."""
    slot = int(sm.sm[0]["fault_warp"]) // WARP_SLOTS
    thing = Thing("mbarrier", slot, address)
    log = events(sm)
    if not alive(sm, thing):
        return name_of(sm, thing)
    state = state_of(sm, thing, log)
    given = rounds(log, state.cta, address).given[-1]
    came = ", ".join(dict.fromkeys(who(sm, e) for e in given if e.kind in ("arrive", "drop")))
    return f"{name_of(sm, thing)}, {state.progress}" + (f"; in this phase: {came}" if came else "")


def _refilled(sm: StreamingMultiprocessor, address: int) -> str:
    """Why one arrival more came to an mbarrier, where the same warp came twice in a phase."""
    S = sm.sm[0]
    thing = Thing("mbarrier", int(S["fault_warp"]) // WARP_SLOTS, address)
    if S["fault_by"] or not alive(sm, thing):
        return ""
    log = [e for e in events(sm) if not e.kind.startswith(SENT)]
    return filled_again(sm, log, int(S["fault_warp"]) % WARP_SLOTS, address, state_of(sm, thing, log))


def _life(sm: StreamingMultiprocessor, address: int) -> str:
    """Whether an mbarrier that a copy misses is gone or yet to come."""
    cta = int(sm.ctas[int(sm.sm[0]["fault_warp"]) // WARP_SLOTS]["id"])
    was = any(e.kind == "init" and e.cta == cta and e.what == address for e in events(sm))
    return "it was invalidated" if was else "it is not initialised yet"


def _problem(problems: Sequence[tuple[str, str]], message: str, number: int) -> str:
    """What is wrong with a descriptor of tcgen05.mma, where the message says so."""
    return ": ".join(problems[number]) if "descriptor" in message and number < len(problems) else ""


def explain_fault(sm: StreamingMultiprocessor, memory: MemoryMap) -> Finding:
    """The first fault of a run."""
    S = sm.sm[0]
    rule, message, remedy = TEMPLATES[int(S["fault"])]
    address = int(S["fault_address"]) % (1 << 64)
    name = f" ({_barrier(sm, address)})" if "{name}" in message else ""
    aux = int(S["fault_aux"])
    words = {
        "life": _life(sm, address),
        "idesc": _problem(PROBLEMS, message, aux),
        "matrix": _problem(MATRIX_PROBLEMS, message, aux),
    }
    message = message.format(address=address, aux=aux, where=memory.describe(address), name=name, **words)
    location, _, text = place(sm, int(S["fault_pc"]))
    warp, lane = int(S["fault_warp"]) % WARP_SLOTS, int(S["fault_lane"])
    cta = int(S["fault_by"]) - 1 if S["fault_by"] else int(sm.ctas[int(S["fault_warp"]) // WARP_SLOTS]["id"])
    if rule == "MEM101" and sm.program.clustered and address >> RANK_BIT:
        remedy = "the address names another CTA of the cluster, which .shared::cluster accesses reach"
    if rule == "MB106":
        remedy = _refilled(sm, address) or remedy
    help_text = f"; {remedy}" if remedy else ""
    full = f"{message} (CTA {cta}, warp {warp}, lane {lane}, cycle {int(S['now']):,}: `{text}`){help_text}"
    return Finding(rule=rule, severity="fault", location=location, message=full)
