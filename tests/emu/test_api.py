"""load and launch: what fits, what does not, and what comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu
from emu.memory_map import LaunchError
from emu.result import Result, validate
from isa.errors import AssemblyError

TEXT = """
.version 8.6
.target sm_90a
.address_size 64
.define ADD = 1
.visible .entry first(.param .u64 x, .param .u32 n) .reqntid 64
{
    .reg .b32 %r<4>; .reg .b64 %d<3>;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 64, %r1; ld.param.u64 %d1, [x]; mul.wide.u32 %d2, %r1, 4; add.u64 %d1, %d1, %d2;
    ld.global.u32 %r3, [%d1]; add.u32 %r3, %r3, ADD; st.global.u32 [%d1], %r3; ret;
}
.visible .entry second() { ret; }
"""


def test_arrays_are_updated_in_place() -> None:
    x = np.arange(256, dtype=np.uint32)
    result = emu.launch(emu.load(text=TEXT, kernel="first"), grid=4, args=[x, 3])
    assert np.array_equal(x, np.arange(256) + 1) and result.outputs["x"] is x
    assert validate(result) == [] and result.exit_code() == 0 and result.kernel == "first" and result.machine == "h200"
    assert Result.from_json(result.to_json()).cycles == result.cycles


def test_defines_and_files(tmp_path: Any) -> None:
    path = tmp_path / "kernel.mptx"
    path.write_text(TEXT)
    x = np.zeros(64, np.uint32)
    emu.launch(emu.load(path, kernel="first", defines={"ADD": 5}), args=[x, 3])
    emu.launch(emu.load(str(path), kernel="first"), block=(64, 1, 1), args=[x, 3], machine="h100")
    assert (x == 6).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"block": 32}, "requires blocks of"),
        ({"args": []}, "takes 2 arguments"),
        ({"grid": 0}, "positive whole numbers"),
        ({"grid": (1, 1, 1, 1)}, "positive whole numbers"),
        ({"grid": -1}, "positive whole numbers"),
        ({"shared_bytes": 300_000}, "bytes of shared memory"),
    ],
)
def test_launches_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        emu.launch(emu.load(text=TEXT, kernel="first"), **({"args": [np.zeros(64, np.uint32), 1]} | options))


def test_blocks_that_are_too_large() -> None:
    with pytest.raises(LaunchError, match="1024 threads"):
        emu.launch(emu.load(text=TEXT, kernel="second"), block=(32, 33))


def test_kernels_with_too_many_registers(ptx: Any) -> None:
    with pytest.raises(LaunchError, match="registers"):
        ptx.run("", block=1024, directives=".maxnreg 128")


def test_the_kernel_must_be_named_when_there_are_two() -> None:
    with pytest.raises(AssemblyError, match="first"):
        emu.load(text=TEXT)
    with pytest.raises(AssemblyError, match="first"):
        emu.load(text=TEXT, kernel="third")


def test_shipped_programs_by_name() -> None:
    kernel = emu.load("vector_add")
    a, b, c = np.ones(300, np.float32), np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
    emu.launch(kernel, grid=2, args=[a, b, c, 300])
    assert np.array_equal(c, a + b)


def test_objects_show_themselves_in_a_line() -> None:
    kernel = emu.load(text=TEXT, kernel="first")
    result = emu.launch(kernel, args=[np.zeros(64, np.uint32), 1])
    machine = emu.load_machine("h200", ["unit.sfu.lanes=32"])
    for thing, words in ((kernel, "Kernel first: sm_90a"), (result, "first on h200"), (machine, "unit.sfu.lanes=32")):
        assert words in repr(thing) and len(repr(thing)) < 120
    assert set(emu.__all__) <= set(dir(emu)) and all(hasattr(emu, name) for name in emu.__all__)


def test_many_sms_share_the_grid() -> None:
    """132 SMs: CTA i runs on SM i mod 132, and every one reports itself."""
    text = TEXT.replace("ld.global.u32 %r3, [%d1]; add.u32 %r3, %r3, ADD;", "mov.u32 %r3, %smid;")
    x = np.zeros((300, 64), np.uint32)
    result = emu.launch(emu.load(text=text, kernel="first"), grid=300, args=[x, 1])
    assert np.array_equal(x, np.repeat(np.arange(300) % 132, 64).reshape(300, 64))
    assert result.warp_instructions == 600 * (result.warp_instructions // 600) and validate(result) == []


def test_a_fault_stops_the_launch_and_names_the_cta() -> None:
    x = np.zeros(64 * 200, np.uint32)
    result = emu.launch(emu.load(text=TEXT, kernel="first"), grid=201, args=[x, 1])
    assert [f.rule for f in result.findings] == ["MEM103"] and "CTA 200" in result.findings[0].message


def test_a_kernel_is_linked_once_for_a_machine_and_forgets_old_ones() -> None:
    kernel = emu.load("vector_add")
    machines = [emu.load_machine("h200", (f"chip.sms={k}",)) for k in range(1, 13)]
    first = kernel.linked(machines[0])
    assert kernel.linked(machines[0]) is first
    for machine in machines:
        kernel.linked(machine)
    assert kernel.linked(machines[-1]) is kernel.linked(machines[-1]) and len(kernel._linked) <= 8
