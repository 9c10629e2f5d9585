"""A branch that only leads to the end is an exit (ptxas: @P EXIT), so its lanes are gone at once."""

from __future__ import annotations

from isa.assembler import assemble

TEXT = """
.version 8.5
.target sm_90a
.address_size 64
.entry k()
{
    .reg .pred %p;
    .reg .b32 %t;
    mov.u32 %t, %tid.x;
    setp.ne.u32 %p, %t, 0;
    @%p bra END;
    bar.sync 1;
    bra END;
    trap;
END:
    ret;
}
"""


def test_branches_to_the_end_become_exits() -> None:
    program = assemble(text=TEXT).program(None)
    assert "BRA" not in program.micro_names
    first, second = (k for k, name in enumerate(program.micro_names[:-1]) if name == "EXIT")
    assert program.instrs["guard"][first] != 0 and program.instrs["guard"][second] == 0
