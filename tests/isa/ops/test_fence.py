"""Fences and what they cost."""

import pytest

ACCEPTED = {
    "fence.acq_rel.cta;": "fence_cta",
    "fence.cta;": "fence_cta",
    "fence.sc.cta;": "fence_cta",
    "fence.acquire.cluster;": "fence_gpu",
    "fence.release.gpu;": "fence_gpu",
    "fence.gpu.sc;": "fence_gpu",
    "fence.acq_rel.sys;": "fence_sys",
    "membar.cta;": "fence_cta",
    "membar.gl;": "fence_gpu",
    "membar.sys;": "fence_sys",
    "fence.proxy.async;": "fence_async_all",
    "fence.proxy.async.global;": "fence_async",
    "fence.proxy.async.shared::cta;": "fence_async",
    "fence.proxy.async.shared::cluster;": "fence_async",
    "fence.proxy.tensormap::generic.release.gpu;": "fence_gpu",
    "fence.proxy.tensormap::generic.acquire.cta [%rd1], 128;": "fence_cta",
}
FREE = [
    "fence.mbarrier_init.release.cluster;",
    "fence.acquire.sync_restrict::shared::cluster.cluster;",
    "fence.release.sync_restrict::shared::cta.cluster;",
    "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;",
    "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;",
    "fence.proxy.alias;",
    "membar.proxy.alias;",
]
REJECTED = [
    "fence;",
    "fence.sc;",
    "membar.gpu;",
    "fence.proxy.async.shared;",
    "fence.mbarrier_init.release.cta;",
    "fence.mbarrier_init;",
    "fence.acquire.sync_restrict::shared::cta.cluster;",
    "fence.acquire.sync_restrict::shared::cluster.gpu;",
    "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 64;",
    "fence.proxy.tensormap::generic.acquire.gpu;",
    "fence.proxy.tensormap::generic.release.gpu [%rd1], 128;",
]


def test_accepted(instructions):
    instructions.accept([*ACCEPTED, *FREE])


@pytest.mark.parametrize("text", REJECTED)
def test_rejected(instructions, text):
    instructions.reject(text)


@pytest.mark.parametrize("text", ACCEPTED)
def test_timing_class(instructions, text):
    (op,) = instructions.lower(text)
    routine = "membar" if ACCEPTED[text] in ("fence_gpu", "fence_sys") else "fence"
    assert (op.micro.unit, op.micro.timing) == (routine, ACCEPTED[text])


@pytest.mark.parametrize("text", FREE)
def test_costs_nothing(instructions, text):
    assert instructions.lower(text) == []
