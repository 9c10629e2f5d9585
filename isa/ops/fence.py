"""Fences: `fence`, `membar`, proxy fences (PTX ISA 9.7.13.4).

Values of the model are those of program order; fences cost time.  Which class stands for what
`ptxas` emits was measured as a whole, so each PTX fence is one micro-operation.
"""

from __future__ import annotations

from isa.micro import Micro, unit
from isa.registry import Emitter, Match, instruction


def _fence(name: str, timing: str, routine: str = "fence") -> Micro:
    return unit(name, "->", timing, routine, "orders memory; no value changes", "barrier")


MEMBAR = {
    (kind, scope): _fence(f"MEMBAR.{kind}.{scope}", timing, "fence" if scope == "CTA" else "membar")
    for kind in ("ALL", "SC")
    for scope, timing in (("CTA", "fence_cta"), ("GPU", "fence_gpu"), ("SYS", "fence_sys"))
}
FENCE_ASYNC_SHARED = _fence("FENCE.VIEW.ASYNC.S", "fence_async")
FENCE_ASYNC_GLOBAL = _fence("FENCE.VIEW.ASYNC.G", "fence_async")
FENCE_ASYNC = _fence("FENCE.VIEW.ASYNC", "fence_async_all")

_WIDTH = {"cta": "CTA", "cluster": "GPU", "gpu": "GPU", "gl": "GPU", "sys": "SYS"}
_SETS: dict[str, tuple[str, ...]] = {
    "SEM": (".sc", ".acq_rel", ".acquire", ".release"),
    "SCOPE": (".cta", ".cluster", ".gpu", ".sys"),
}
_HOPPER_ON = ("sm_90", "sm_90a", "sm_100a")


CCTL_IVALL = unit("CCTL.IVALL", "->", "stg", "cctl_ivall", "empties the L1", "barrier")


def release(e: Emitter, m: Match) -> None:
    """What ptxas puts in front of an access that releases: a fence as wide as its scope."""
    if m.has(".release") or m.has(".acq_rel"):
        scope = next((word for word in m.mods if word in _WIDTH), "gpu")
        e(MEMBAR["ALL", _WIDTH[scope]], None)


def acquire(e: Emitter, m: Match) -> None:
    """What ptxas puts behind an access that acquires beyond its CTA."""
    if (m.has(".acquire") or m.has(".acq_rel")) and not m.has(".cta"):
        e(CCTL_IVALL, None)


@instruction("fence{.SEM}.SCOPE;", "fence.SCOPE.SEM;", sets=_SETS)
def fence(e: Emitter, m: Match) -> None:
    """Order the thread's accesses in a scope; acq_rel by default.  A cluster costs what the GPU does."""
    e(MEMBAR["SC" if m["SEM"] == "sc" else "ALL", _WIDTH[m["SCOPE"]]], None)


@instruction("membar.LEVEL;", sets={"LEVEL": (".cta", ".gl", ".sys")})
def membar(e: Emitter, m: Match) -> None:
    """The older spelling of fence.sc."""
    e(MEMBAR["SC", _WIDTH[m["LEVEL"]]], None)


@instruction(
    "fence.proxy.async{.SPACE};", sets={"SPACE": (".global", ".shared::cta", ".shared::cluster")}, targets=_HOPPER_ON
)
def fence_proxy_async(e: Emitter, m: Match) -> None:
    """Order generic accesses and those of TMA and tensor cores, in one state space or in all."""
    space = m["SPACE"].split("::")[0]
    e({"shared": FENCE_ASYNC_SHARED, "global": FENCE_ASYNC_GLOBAL}.get(space, FENCE_ASYNC), None)


@instruction(
    "fence.mbarrier_init.release.cluster;",
    "fence.SEM.RESTRICT.cluster;",
    "fence.proxy.async::generic.SEM.RESTRICT.cluster;",
    sets={
        "SEM": (".acquire", ".release"),
        "RESTRICT": (".sync_restrict::shared::cluster", ".sync_restrict::shared::cta"),
    },
    targets=_HOPPER_ON,
)
def fence_cluster(e: Emitter, m: Match) -> None:
    """Order mbarrier accesses with those of the cluster; `ptxas` emits nothing for it."""
    pair = {"": "", "acquire": "sync_restrict::shared::cluster", "release": "sync_restrict::shared::cta"}
    if m["RESTRICT"] != pair[m["SEM"]]:
        raise e.error(f".{m['SEM']} goes with .{pair[m['SEM']]}")


@instruction("fence.proxy.alias;", "membar.proxy.alias;")
def fence_proxy_alias(e: Emitter, m: Match) -> None:
    """Order accesses through different addresses of one location; memory has no aliases here."""


@instruction("fence.proxy.tensormap::generic.release.SCOPE;", sets=_SETS, targets=_HOPPER_ON)
def fence_tensormap_release(e: Emitter, m: Match) -> None:
    """Release ordinary writes to a tensor map to its readers."""
    e(MEMBAR["ALL", _WIDTH[m["SCOPE"]]], None)


@instruction(
    "fence.proxy.tensormap::generic.acquire.SCOPE [a], size;",
    sets=_SETS,
    types={"a": "addr", "size": "imm"},
    targets=_HOPPER_ON,
)
def fence_tensormap_acquire(e: Emitter, m: Match) -> None:
    """Acquire a tensor map that ordinary writes have changed."""
    if m.size != 128:
        raise e.error(f"the size is {m.size}, a tensor map has 128 bytes", operand=m.operand("size"))
    e(MEMBAR["ALL", _WIDTH[m["SCOPE"]]], None)
