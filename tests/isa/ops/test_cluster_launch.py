"""Forms of cluster launch control; what it does is in tests/emu/units/test_bulk.py."""

from __future__ import annotations

import pytest

TRY = "clusterlaunchcontrol.try_cancel.async"
QUERY = "clusterlaunchcontrol.query_cancel"
BYTES = "mbarrier::complete_tx::bytes"
ANSWER = ".reg .b128 %q; mov.b128 %q, {%rd1, %rd2};"


def test_what_is_taken(instructions) -> None:
    texts = [f"{TRY}{space}.{BYTES}{cast}.b128 [%r1], [%r2];" for space in ("", ".shared::cta")
             for cast in ("", ".multicast::cluster::all")]  # fmt: skip
    texts += [f"{ANSWER} {QUERY}.is_canceled.pred.b128 %p1, %q;"]
    texts += [f"{ANSWER} {QUERY}.get_first_ctaid.v4.b32.b128 {{%r1, %r2, %r3, _}}, %q;"]
    texts += [f"{ANSWER} {QUERY}.get_first_ctaid::{part}.b32.b128 %r1, %q;" for part in "xyz"]
    instructions.accept(texts, "sm_100a")


@pytest.mark.parametrize(
    "text", [f"{TRY}.shared::cluster.{BYTES}.b128 [%r1], [%r2];", f"{TRY}.{BYTES}.b64 [%r1], [%r2];"]
)
def test_what_is_not(instructions, text: str) -> None:
    instructions.reject(text, "sm_100a")


def test_needs_blackwell(instructions) -> None:
    instructions.reject(f"{TRY}.{BYTES}.b128 [%r1], [%r2];")
