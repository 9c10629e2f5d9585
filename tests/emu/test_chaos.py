"""Chaos: reproducible, nothing when off, correct programs do not change, wrong ones do and the reason is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import emu
import programs
from emu.chaos import Chaos
from emu.explain.chaos import Outcome, compare, differs, shrink
from emu.machine import load_machine
from emu.solve import solve
from programs.tensormap import TensorMap

SMALL = {"seqlen": 130, "seqlen_k": 200, "heads": 1}
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fa3": ({"KV_TILE": 48}, SMALL),
    "fa3 in order": ({"KV_TILE": 48, "OVERLAP": 0}, SMALL),
    "fa3 without producer": ({"KV_TILE": 48, "SPECIALIZE": 0}, SMALL),
    "fa3 scheduled": ({"KV_TILE": 48, "SCHEDULE": 1}, SMALL | {"heads": 4}),
    "fa3 three consumers": ({"KV_TILE": 48, "CONSUMERS": 3}, SMALL | {"head_dim": 64}),
    "fa3 P in shared memory": ({"KV_TILE": 48, "P_SHARED": 1}, SMALL),
    "fa3 causal": ({"KV_TILE": 48}, SMALL | {"causal": True}),
    "fa2": ({}, SMALL | {"head_dim": 64}),
    "fa1": ({}, SMALL | {"head_dim": 64}),
    "gemm": ({"TILE_N": 64}, {"m": 130, "n": 136, "k": 200}),
    "softmax": ({}, {"rows": 5, "cols": 260}),
    "vector_add": ({}, {"n": 3000}),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shipped_programs_do_not_change(name: str) -> None:
    """Twenty seeds (of variants five): other cycles, the same bits."""
    seeds = 5 if " " in name else 20
    defines, options = SHAPES[name]
    machine = load_machine("h200", ("chip.sms=2",))
    problem = programs.find(name.split()[0]).from_options(defines, **options)
    kernel, inputs = emu.load(problem.kernel_path, defines=problem.defines), problem.make_inputs(0)

    def run(seed: int | None) -> emu.Result:
        start = problem.launch(inputs, 2)
        result = emu.launch(
            kernel, machine=machine, grid=start.grid, block=start.block, args=start.args, shared_bytes=start.shared_bytes,
            max_cycles=10_000_000, chaos=seed,
        )  # fmt: skip
        result.outputs.update(start.arrays)
        return result

    plain, cycles = run(None), set()
    assert plain.exit_code() == 0 and problem.check({n: plain.outputs[n] for n in problem.outputs}, inputs).passed
    for seed in range(seeds):
        result = run(seed)
        assert differs(plain, result) == "", seed
        cycles.add(result.cycles)
    assert len(cycles) > seeds // 2 and plain.cycles not in cycles


def test_a_seed_stands_for_one_timing() -> None:
    defines, options = SHAPES["fa3"]
    problem = programs.find("fa3").from_options(defines, **options)
    machine = load_machine("h200", ("chip.sms=2",))
    first, second = (solve(problem, machine, chaos=Chaos(5)) for _ in range(2))
    assert first.cycles == second.cycles and first.stalls == second.stalls
    assert first.perturbations == second.perturbations and first.chaos.made == len(first.perturbations) > 50
    plain, none = solve(problem, machine), solve(problem, machine, chaos=Chaos(5, 0))
    assert plain.cycles == none.cycles and none.chaos.made == 0
    some = solve(problem, machine, chaos=Chaos(5, 7))
    assert (
        some.perturbations
        == [p for sm in (0, 1) for p in first.perturbations if p in some.perturbations][: len(some.perturbations)]
    )
    assert some.chaos.made == 14  # seven on each of two SMs


RACE = """mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; mov.u32 %r1, box; mov.u32 %r2, 0; @!%p1 bra GO;
    mbarrier.init.shared.b64 [full], 1; GO: bar.sync 0; @!%p1 bra READ;
    mbarrier.arrive.expect_tx.shared.b64 _, [full], 4096; tma.load.2d [%r1], [%map, {%r2, %r2}], [full];
    READ: WAIT nanosleep.u32 600; mul.wide.u32 %d1, %r0, 4; add.u64 %d1, %out, %d1; shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r1;
    ld.shared.u32 %r4, [%r3]; st.global.u32 [%d1], %r4;"""
SHARED = ".shared .align 128 .b8 box[4096]; .shared .align 8 .b64 full;"


def race(ptx: Any, wait: str) -> Any:
    def run(chaos: Chaos | None) -> Any:
        array, out = np.arange(1024, dtype=np.float32).reshape(32, 32), np.zeros(64, np.uint32)
        args = [TensorMap(array, (32, 32), 0), out]
        return ptx.run(RACE.replace("WAIT", wait), "tensormap map, u64 out", args, shared=SHARED, block=64, chaos=chaos)

    return run


def test_a_missing_wait_is_shown_by_one_late_copy(ptx: Any) -> None:
    """Sleeping instead of waiting works, until the copy takes longer."""
    late = [seed for seed in range(60) if differs(race(ptx, "")(None), race(ptx, "")(Chaos(seed)))]
    found = [compare(race(ptx, ""), Chaos(seed)) for seed in late]
    for result in found:
        assert [f.rule for f in result.findings] == ["CHAOS"] and result.exit_code() == 1
        assert len(result.chaos.events) <= 3 and "out changed" in result.findings[0].message
    (shown, *_) = [r for r in found if len(r.chaos.events) == 1 and "bulk load" in r.chaos.events[0]]
    assert "late" in shown.chaos.events[0] and shown.chaos.events[0] in shown.findings[0].message
    for seed in range(60):
        assert not compare(race(ptx, "mbarrier.wait [full], 0;"), Chaos(seed)).findings


ASYNC = """mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, box; add.u32 %r2, %r2, %r1; cvt.u64.u32 %d0, %r1;
    add.u64 %d1, %in, %d0; add.u64 %d2, %out, %d0; cp.async.cg.shared.global [%r2], [%d1], 16; cp.async.commit_group; WAIT
    ld.shared.u32 %r4, [%r2]; st.global.u32 [%d2], %r4;"""


@pytest.mark.parametrize(("sleep", "kind"), [("", "instruction after this one"), ("nanosleep.u32 900;", "cp.async")])
def test_a_missing_wait_for_cp_async_is_shown(ptx: Any, sleep: str, kind: str) -> None:
    """Read at once, old data come unless the reader is late; after a sleep, new data unless the copy is."""

    def run(wait: str) -> Any:
        def start(chaos: Chaos | None) -> Any:
            source, out = np.arange(1, 257, dtype=np.uint32), np.zeros(256, np.uint32)
            body = ASYNC.replace("WAIT", wait + sleep)
            return ptx.run(body, "u64 in, u64 out", [source, out], shared=SHARED, block=64, chaos=chaos)

        return start

    plain, right = run("")(None), run("cp.async.wait_group 0;")
    late = [seed for seed in range(40) if differs(plain, run("")(Chaos(seed)))]
    assert late and not any(differs(right(None), right(Chaos(seed))) for seed in range(40))
    shown = [compare(run(""), Chaos(seed)).chaos.events for seed in late]
    assert any(len(events) == 1 and kind in events[0] for events in shown), shown


def test_shrink_finds_the_least_cause() -> None:
    """Perturbations 11 and 17 together, out of 40."""

    def trial(chaos: Chaos) -> Outcome:
        names = [n for n in range(40) if chaos.only is None or n in chaos.only][: chaos.limit]
        return Outcome({11, 17} <= set(names), [(n, str(n)) for n in names])

    shrunk = shrink(trial, Chaos(0))
    assert shrunk.events == ("11", "17") and shrunk.chaos == Chaos(0, None, (11, 17)) and shrunk.runs < 60
    with pytest.raises(ValueError, match="does not fail"):
        shrink(trial, Chaos(0, 5))


def test_what_chaos_may_be() -> None:
    assert Chaos.of("7") == Chaos.of(7) == Chaos(7) and Chaos.of("7:3") == Chaos(7, 3) and Chaos.of(None) is None
    assert str(Chaos(7, 3)) == "7:3" and str(Chaos(7)) == "7"
    for wrong in ("x", "7:", "-1", "7:x", ""):
        with pytest.raises(ValueError, match="SEED"):
            Chaos.of(wrong)


def test_command_line(ptx: Any) -> None:
    from emu.commands.run import command

    run = CliRunner().invoke(
        command, ["softmax", "--rows", "3", "--cols", "64", "--chaos", "3:20", "--json", "-"], standalone_mode=False
    )
    assert run.return_value == 0
    result = emu.Result.from_json(run.output)
    assert result.chaos.seed == 3 and result.chaos.limit == 20 and result.numerics.passed
    wrong = CliRunner().invoke(command, ["softmax", "--chaos", "3:x"])
    assert wrong.exit_code == 2 and "SEED:N" in wrong.output


ORDER = """.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) {
    .reg .pred %p; .reg .b32 %t, %w; .reg .b64 %out;
    ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; shr.u32 %w, %t, 5; and.b32 %t, %t, 31; setp.eq.u32 %p, %t, 0;
    @%p st.global.u32 [%out], %w; ret;
}
"""


def test_the_report_says_what_chaos_did(tmp_path: Any) -> None:
    """A passing run has a row of its own; and `run` warns of registers that nothing writes, as `asm` does."""
    from emu.commands.run import command

    (tmp_path / "order.mptx").write_text(
        ORDER.replace("@%p st", "add.u32 %w, %w, %none; @%p st").replace("%w;", "%w, %none;", 1)
    )
    args = [str(tmp_path / "order.mptx"), "--grid", "1", "--block", "32", "--arg", "out=zeros:u32[1]", "--chaos", "7"]
    run = CliRunner().invoke(command, args, standalone_mode=False)
    assert run.return_value == 0
    text = " ".join(run.stdout.split())
    assert (
        "chaos seed 7: " in text and "outputs unchanged; cycles are those of this timing, not of the plain run" in text
    )
    assert run.stderr.startswith("warning: ") and "%none is read, but nothing has written it" in run.stderr


def test_command_line_on_a_file(tmp_path: Any) -> None:
    """Who stores last depends on timing: some seed says so, with exit code 1 and the perturbation."""
    from emu.commands.run import command

    (tmp_path / "order.mptx").write_text(ORDER)
    args = [str(tmp_path / "order.mptx"), "--grid", "1", "--block", "64", "--arg", "out=zeros:u32[1]"]
    for seed in range(40):
        run = CliRunner().invoke(command, [*args, "--chaos", str(seed)], standalone_mode=False)
        if run.return_value == 1:
            break
    assert run.return_value == 1 and "out changed; 1 perturbation shows it: cycle 0: start of the warp" in " ".join(
        run.output.split()
    )
