"""A kernel, and what the machine would say of it, for tests of the commands."""

from emu.result import Issue, Result

KERNEL = """
.version 8.0
.target sm_90a
.address_size 64
.define N = 2
.visible .entry add(.param .u64 x, .param .u32 n)
.reqntid 32, 1, 1
{
    .reg .b32 %r<4>;
    mov.u32 %r0, %tid.x;
    .for i in (0, N) { add.u32 %r1, %r0, 7 + i; }
    exit;
}
"""


def fake_result(**changes: object) -> Result:
    """The result of a run, with changed fields."""
    fields: dict[str, object] = {
        "warpsmith_version": "0",
        "kernel": "add",
        "machine": "h200",
        "mode": "full",
        "cycles": 100,
        "cycles_elapsed": 200,
        "time_us": 0.05,
        "clock_mhz": 1980.0,
        "pipes": {"alu": 0.5},
        "warp_instructions": 5,
        "instruction_mix": {"": {"alu": 5}},
        "host_seconds": 0.001,
        "warp_instructions_per_second": 5000.0,
        "registers_per_thread": 8,
        "shared_bytes": 0,
        "occupancy": 0.5,
        "stalls": {"": {"selected": 5, "wait": 3}},
        "issue": Issue(selected=5, idle=35),
    }
    return Result(**{**fields, **changes})  # type: ignore[arg-type]
