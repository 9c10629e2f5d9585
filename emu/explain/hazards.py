"""What a run has seen that silicon may do in another order: accesses that nothing orders behind a copy or product (emu/units/hazards.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emu.explain.places import place, short
from emu.explain.rules import HAZARDS
from emu.result import Finding
from emu.units.hazards import H_NONE, H_PRODUCT, H_SIGNAL, H_SIZE

if TYPE_CHECKING:
    from emu.sm import StreamingMultiprocessor


def explain_hazards(sms: Sequence[StreamingMultiprocessor]) -> list[Finding]:
    """The first hazard of the first SM that has one; nothing when there was none."""
    sm = next((sm for sm in sms if sm.sm[0]["hazard"] != H_NONE), None)
    if sm is None:
        return []
    S = sm.sm[0]
    rule, _, remedy = HAZARDS[int(S["hazard"])]
    location, _, text = place(sm, int(S["hazard_pc"]))
    reader = int(sm.warps[int(S["hazard_warp"])]["index"])
    who = f"warp {reader}, lane {int(S['hazard_lane'])}: `{text}`"
    return [Finding(rule=rule, severity="error", location=location, message=f"{_what(sm, who)}; {remedy}")]


def _what(sm: StreamingMultiprocessor, who: str) -> str:
    """What the SM has noted; `who` accesses."""
    S = sm.sm[0]
    kind, address, newer = (int(S[name]) for name in ("hazard", "hazard_address", "hazard_newer"))
    writer = f"{short(sm, int(S['hazard_by_pc']))} by warp {int(sm.warps[int(S['hazard_by'])]['index'])}"
    if kind == H_SIZE:
        return f"src-size {address} is above cp-size, which is undefined ({who})"
    if kind == H_PRODUCT:
        return f"Tensor Memory at {address:#010x} is accessed ({who}), but the product of {writer} is under way"
    copied = f"shared memory at {address:#x} is read ({who}), but the cp.async of {writer} has"
    if kind == H_SIGNAL:
        return f"{copied} only been waited for by that warp, which has come to no barrier since"
    if newer == 0:
        return f"{copied} not been waited for, nor its group closed by cp.async.commit_group"
    behind = f"{newer - 1} behind it" if newer > 1 else "none behind it"
    return f"{copied} not been waited for: its group has {behind}, so that cp.async.wait_group {newer - 1} would do it"
