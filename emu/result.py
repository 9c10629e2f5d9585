"""The result of a run: JSON version 1, as typed structures.

`schema/result-1.json` is generated from this file: `python -m emu.result > emu/schema/result-1.json`.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Literal

import msgspec

from emu.stalls import REASONS

SCHEMA = 1


class Problem(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a shipped program computed: named extents, operand type, and whether a causal mask applied."""

    shape: dict[str, int]
    dtype: str
    causal: bool = False


class Numerics(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Outputs against the reference.  `rel_error` is the Frobenius norm of the difference over the reference's.

    `mode` says whose arithmetic made them: `silicon` is the card's bit for bit.  `bound`, of fast mode only, is the most
    by which one of the kernel's instructions can differ from the card's, relative to the magnitudes that it adds up.
    `failed` says which outputs differ too much, where and by how much.
    """

    max_abs_error: float
    rel_error: float
    reference: str
    tiles_checked: int
    passed: bool
    mode: Literal["fast", "silicon"] = "fast"
    bound: float | None = None
    failed: list[str] = []


class Issue(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Issue slots of all sub-partitions over the SMs' active cycles."""

    selected: int
    idle: int


class Finding(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Something wrong with the program; `fault` ended the run, `limit` cut it short."""

    rule: str
    severity: Literal["info", "warning", "error", "fault", "limit"]
    location: str
    message: str


class Source(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Who could still give a barrier what it lacks: after `waits` more waits, the first of which is for `waits_for`."""

    who: str
    what: str
    location: str
    waits: int
    waits_for: str


class BarrierState(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Something that warps wait for, or (`asked` and `sources` empty) an mbarrier that none waits for.

    `phase` counts completed phases, `expected` and `pending` arrivals (threads of a named barrier or a cluster's, registers of
    setmaxnreg, warps of a warpgroup, columns of Tensor Memory), `bytes` what the phase still lacks (negative: too many came).  `given` is what
    came in this phase, `difference` the first thing that came in the phase before and has not come in this one.
    """

    kind: Literal["mbarrier", "barrier", "cluster", "registers", "warpgroup", "tmem", "memory", "bulk", "none"]
    name: str
    cta: int
    address: int | None = None
    phase: int | None = None
    parity: int | None = None
    asked: list[int] = []
    expected: int = 0
    pending: int = 0
    bytes: int = 0
    given: list[str] = []
    sources: list[Source] = []
    difference: str = ""

    @property
    def progress(self) -> str:
        """Of an mbarrier: `phase 3 (parity 1), 1 of 2 arrivals, 4,096 bytes pending`."""
        more = f", {self.bytes:,} bytes pending" if self.bytes else ""
        return f"phase {self.phase} (parity {self.parity}), {self.expected - self.pending} of {self.expected} arrivals{more}"


class Cause(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is probably wrong; `warpsmith explain RULE` says more."""

    rule: str
    message: str
    consequence: bool = False  # of the causes before it


class StuckWarp(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A warp that cannot go on: where it is and what it waits for."""

    cta: int
    warp: int
    role: str
    location: str
    instruction: str
    waits_for: str
    on: str = ""


class Deadlock(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why no warp can ever get on: nothing moves, or (livelock) all that move repeat themselves.

    `causes` come first what is most probably wrong; `barriers` first what warps wait for.
    """

    cycle: int
    message: str
    warps: list[StuckWarp]
    kind: Literal["deadlock", "livelock"] = "deadlock"
    causes: list[Cause] = []
    barriers: list[BarrierState] = []


class ChaosRun(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Under which timing a run was made: seed, most perturbations an SM (null: no limit), those made.

    `events` are the fewest that show a difference from the plain run, when there is one.
    """

    seed: int
    limit: int | None = None
    made: int = 0
    events: list[str] = []


class Line(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One source line: warp instructions issued and warp-cycles by reason (`selected` included)."""

    file: str
    line: int
    text: str
    role: str
    warp_instructions: int
    stalls: dict[str, int]


class Result(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One run.

    `cycles` are the most SM-active cycles of any SM, `cycles_elapsed` include launch and drain; `pipes`
    are busy fractions of the active cycles, `metrics` other numbers by Nsight Compute's names; `instruction_mix` is role -> pipe -> warp instructions;
    `stalls` is role -> reason -> warp-cycles; `host_seconds` are spent in the compiled core only.
    `printed` is the text of vprintf.  `outputs` (array arguments by name) is kept beside the JSON, not in it.
    """

    schema: int = SCHEMA
    warpsmith_version: str
    kernel: str
    machine: str
    mode: Literal["full", "representative"]
    problem: Problem | None = None
    cycles: int
    cycles_elapsed: int
    time_us: float
    clock_mhz: float
    tflops: float | None = None
    tensor_utilization: float | None = None
    pipes: dict[str, float]
    metrics: dict[str, float] = {}
    warp_instructions: int
    instruction_mix: dict[str, dict[str, int]]
    host_seconds: float
    warp_instructions_per_second: float
    numerics: Numerics | None = None
    registers_per_thread: int
    shared_bytes: int
    occupancy: float
    stalls: dict[str, dict[str, int]]
    issue: Issue
    findings: list[Finding] = []
    deadlock: Deadlock | None = None
    chaos: ChaosRun | None = None
    lines: list[Line] = []
    printed: str = ""

    def __repr__(self) -> str:
        state = "".join(
            f", {word}" for word, there in (("deadlock", self.deadlock), ("findings", self.findings)) if there
        )
        return f"<Result {self.kernel} on {self.machine}: {self.cycles:,} cycles, {self.time_us:.2f} us{state}>"

    @property
    def executed(self) -> list[int]:
        """Numbers of the CTAs that were executed (empty for a result read from JSON)."""
        found: list[int] = self.__dict__.setdefault("executed", [])
        return found

    @property
    def outputs(self) -> dict[str, Any]:
        """Array arguments after the run, by parameter name (empty for a result read from JSON)."""
        found: dict[str, Any] = self.__dict__.setdefault("outputs", {})
        return found

    @property
    def perturbations(self) -> list[tuple[int, str]]:
        """What chaos changed, as (name of the decision point, words), in order; beside the JSON as `outputs`."""
        made: list[tuple[int, str]] = self.__dict__.setdefault("perturbations", [])
        return made

    def to_json(self, indent: int = 2) -> str:
        """The result as JSON text, version 1."""
        return msgspec.json.format(msgspec.json.encode(self), indent=indent).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Result:
        """Read `to_json`'s text; ValueError when fields or version do not fit."""
        try:
            result = msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise ValueError(f"not a warpsmith result: {error}") from None
        if result.schema != SCHEMA:
            raise ValueError(f"result schema {result.schema}, this version reads {SCHEMA}")
        return result

    def exit_code(self) -> int:
        """What the command line returns: 3 deadlock, 6 fault, 5 limit, 1 findings or wrong numbers, 0 clean."""
        severities = {f.severity for f in self.findings}
        if "fault" in severities:
            return 6
        if self.deadlock is not None:
            return 3
        if "limit" in severities:
            return 5
        wrong = self.numerics is not None and not self.numerics.passed
        return 1 if wrong or severities & {"warning", "error"} else 0


def validate(result: Result) -> list[str]:
    """The invariants that every result obeys; returns what does not hold (empty: all well)."""
    problems = []
    selected = 0
    for role, reasons in result.stalls.items():
        problems += [f"stalls.{role}: unknown reason '{name}'" for name in reasons if name not in REASONS]
        problems += [f"stalls.{role}.{name}: negative" for name, cycles in reasons.items() if cycles < 0]
        selected += reasons.get("selected", 0)
    if selected != result.issue.selected:
        problems.append(f"selected warp-cycles are {selected}, selected issue slots {result.issue.selected}")
    mixed = sum(count for pipes in result.instruction_mix.values() for count in pipes.values())
    if mixed != result.warp_instructions:
        problems.append(f"instruction_mix sums to {mixed}, warp_instructions are {result.warp_instructions}")
    problems += [f"pipes.{name}: {x} is not a fraction" for name, x in result.pipes.items() if not 0 <= x <= 1]
    if not 0 < result.occupancy <= 1:
        problems.append(f"occupancy: {result.occupancy} is not a fraction")
    if result.cycles > result.cycles_elapsed:
        problems.append(f"cycles {result.cycles} exceed cycles_elapsed {result.cycles_elapsed}")
    return problems


def schema_text() -> str:
    """The JSON schema of a result."""
    schema = msgspec.json.schema(Result)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
